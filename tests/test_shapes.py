"""What a reader trips over: functions that stand twice, classes of one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from llmtop.model import KINETO, LIVE, RECORDING, SpanKind

ROOT = Path(__file__).resolve().parents[1]
CODE = ("llmtop", "tui", "collectors", "parsers")
LEAST = 3
"""Statements from which a body that stands twice is logic that stands twice, and no common way to delegate."""

Function = tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]


def files() -> Iterator[Path]:
    """All of the product; links to packages lead to the same files and are left out."""
    for path in (path for package in CODE for path in sorted((ROOT / package).rglob("*.py"))):
        if not any(part.is_symlink() for part in (path, *path.parents)) and not path.name.endswith("_pb2.py"):
            yield path


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Each file with its tree, of which none is kept: all of them take 200 MB."""
    for path in files():
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def functions_in(found: Iterable[ast.AST], where: str) -> Iterator[Function]:
    for node in found:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{where}:{node.lineno} {node.name}", node


def body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Without the docstring."""
    return function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body


def bodies(found: Iterable[Function]) -> Iterator[tuple[str, str]]:
    """What stands in each function that is long enough, whatever that is called, and where."""
    for where, function in found:
        statements = body(function)
        if sum(isinstance(node, ast.stmt) for one in statements for node in ast.walk(one)) >= LEAST:
            yield "\n".join(map(ast.dump, statements)), where


def test_no_function_stands_twice_and_no_class_has_the_name_of_another() -> None:
    """Values are made by `llmtop.frozen`, three times as fast as `dataclass`; helpers have no llmtop."""
    places: dict[int, list[str]] = defaultdict(list)
    classes: dict[str, list[str]] = defaultdict(list)
    slow, keys, seen = list[str](), list[str](), set[str]()
    for where, tree in trees():
        seen.add(where)
        found = list(ast.walk(tree))
        for text, place in bodies(functions_in(found, where)):
            places[hash(text)].append(place)
        for node in found:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(f"{where}:{node.lineno}")
                decorators = map(ast.unparse, node.decorator_list)
                if "/helper/" not in where and "dataclass(frozen=True, slots=True)" in decorators:
                    slow.append(f"{where}:{node.lineno} {node.name}")
        keys += spelled(found, where)
    assert [several for several in places.values() if len(several) > 1] == []
    assert {name: several for name, several in classes.items() if len(several) > 1} == {}
    assert slow == []
    assert keys == []
    assert {"llmtop/model/trace.py", "tui/app.py", "collectors/proc.py", "parsers/nsys.py"} <= seen
    assert not any(where.startswith("llmtop/tui/") for where in seen)


SAME = """
def first(a):
    '''One.'''
    b = a + 1
    if b:
        return b
class C:
    def second(self, a):
        b = a + 1
        if b:
            return b
def other(a):
    b = a + 2
    if b:
        return b
def short(a):
    return a
def short_too(a):
    return a
"""


def test_bodies_are_compared_without_names_and_docstrings() -> None:
    told = {where.split()[1]: text for text, where in bodies(functions_in(ast.walk(ast.parse(SAME)), "x"))}
    assert told.keys() == {"first", "second", "other"}
    assert told["first"] == told["second"] != told["other"]


KEYED = frozenset({"facts", "spans", "more_spans"})
"""Attributes whose keys are declared once: `llmtop/facts.py`, `SpanKind`."""
KINDS = frozenset({*SpanKind, LIVE.kind, RECORDING, KINETO})


def spelled(found: Iterable[ast.AST], where: str) -> Iterator[str]:
    """Where a key or a kind is a string on the spot, so that no type checker sees a typo in it."""
    for node in found:
        match node:
            case (
                ast.Subscript(ast.Attribute(attr=held), ast.Constant(str(key)))
                | ast.Call(ast.Attribute(ast.Attribute(attr=held), "get"), [ast.Constant(str(key)), *_])
                | ast.Compare(ast.Constant(str(key)), [ast.In() | ast.NotIn()], [ast.Attribute(attr=held)])
            ) if held in KEYED:
                yield f"{where}:{node.lineno} {key!r} of {held}"
            case ast.Compare(ast.Attribute(attr="kind"), [ast.Eq() | ast.NotEq()], [ast.Constant(str(key))]) if (
                key in KINDS
            ):
                yield f"{where}:{node.lineno} kind {key!r}"


SPELLED = """
a = track.facts["role"]
b = trace.spans.get("nvtx")
c = "kernel" in trace.more_spans
d = trace.origin.kind == "live"
e = facts["role"], track.facts[ROLE], roof.kind == "memory"
"""


def test_each_way_to_spell_a_key_is_seen() -> None:
    assert [one.partition(" ")[0] for one in spelled(ast.walk(ast.parse(SPELLED)), "x")] == ["x:2", "x:3", "x:4", "x:5"]
