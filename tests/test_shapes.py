"""What a reader trips over: functions too long for a screen, functions that stand twice, classes of one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from llmtop.model import KINETO, LIVE, RECORDING, SpanKind

ROOT = Path(__file__).resolve().parents[1]
CODE = ("llmtop", "tui", "collectors", "parsers")
LONGEST = 40
"""Lines, from `def` to the last one."""
LEAST = 3
"""Statements from which a body that stands twice is logic that stands twice, and no common way to delegate."""

Function = tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]


def files() -> Iterator[Path]:
    """All of the product; links to packages lead to the same files and are left out."""
    for path in (path for package in CODE for path in sorted((ROOT / package).rglob("*.py"))):
        if not any(part.is_symlink() for part in (path, *path.parents)) and not path.name.endswith("_pb2.py"):
            yield path


@cache
def nodes() -> dict[str, tuple[ast.AST, ...]]:
    """All that stands in each file."""
    return {str(path.relative_to(ROOT)): tuple(ast.walk(ast.parse(path.read_text()))) for path in files()}


def functions() -> Iterator[Function]:
    """All of them, with where they stand."""
    for where, found in nodes().items():
        yield from functions_in(found, where)


def functions_in(found: Iterable[ast.AST], where: str) -> Iterator[Function]:
    for node in found:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{where}:{node.lineno} {node.name}", node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Without the docstring."""
    return function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body


def twins(all_functions: Iterator[Function]) -> list[list[str]]:
    """Where bodies stand that are the same statement for statement, whatever their functions are called."""
    places: dict[str, list[str]] = defaultdict(list)
    for where, function in all_functions:
        statements = body(function)
        if sum(isinstance(node, ast.stmt) for one in statements for node in ast.walk(one)) >= LEAST:
            places["\n".join(map(ast.dump, statements))].append(where)
    return [several for several in places.values() if len(several) > 1]


def test_functions_fit_on_a_screen() -> None:
    assert [(where, length(function)) for where, function in functions() if length(function) > LONGEST] == []


def test_no_function_stands_twice() -> None:
    assert twins(functions()) == []


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
    found = list(functions_in(ast.walk(ast.parse(SAME)), "x"))
    assert twins(iter(found)) == [["x:2 first", "x:8 second"]]
    assert [length(function) for _, function in found] == [5, 4, 2, 2, 4]


def test_all_of_the_product_is_looked_at() -> None:
    seen = {where.split(":")[0] for where, _ in functions()}
    assert {"llmtop/model/trace.py", "tui/app.py", "collectors/proc.py", "parsers/nsys.py"} <= seen
    assert not any(where.startswith("llmtop/tui/") for where in seen)


def test_no_class_has_the_name_of_another() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for where, found in nodes().items():
        for node in found:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{where}:{node.lineno}")
    assert {name: several for name, several in places.items() if len(several) > 1} == {}


def test_classes_of_values_are_made_as_fast_as_they_can_be() -> None:
    """By `llmtop.frozen`: a start waits for their making more than for all else of our own. Helpers have no llmtop."""
    standard = [
        f"{where}:{node.lineno} {node.name}"
        for where, found in nodes().items()
        for node in found
        if isinstance(node, ast.ClassDef)
        and "/helper/" not in where
        and "dataclass(frozen=True, slots=True)" in map(ast.unparse, node.decorator_list)
    ]
    assert standard == []


KEYED = frozenset({"facts", "spans", "more_spans"})
"""Attributes whose keys are declared once: `llmtop/facts.py`, `SpanKind`."""
KINDS = frozenset({*SpanKind, LIVE.kind, RECORDING, KINETO})


def spelled(text: str, where: str) -> Iterator[str]:
    """Where a key or a kind is a string on the spot, so that no type checker sees a typo in it."""
    for node in ast.walk(ast.parse(text)):
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


def test_keys_are_declared_and_not_spelled() -> None:
    found = (one for path in files() for one in spelled(path.read_text(), str(path.relative_to(ROOT))))
    assert list(found) == []


SPELLED = """
a = track.facts["role"]
b = trace.spans.get("nvtx")
c = "kernel" in trace.more_spans
d = trace.origin.kind == "live"
e = facts["role"], track.facts[ROLE], roof.kind == "memory"
"""


def test_each_way_to_spell_a_key_is_seen() -> None:
    assert [one.partition(" ")[0] for one in spelled(SPELLED, "x")] == ["x:2", "x:3", "x:4", "x:5"]
