"""What a file's text may be changed into, and which function each of its lines is in."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
SHAPES = {"strict", "frozen", "slots", "kw_only", "eq", "order", "repr", "maxsize", "stacklevel", "total"}
"""Keywords whose values say how a thing is made, or tell the type checker alone; what it does is the same."""
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MARGIN = 1e-6
"""What less than this is added or taken away for lets rounding pass: half of it, or twice, does the same."""
SYMMETRIC = {"min", "max", "minimum", "maximum", "product", "isinstance", "hasattr", "cast", "TypeVar"}
"""Two arguments of these do the same the other way round, or are a mistake that the type checker tells."""


@dataclass(frozen=True)
class Mutant:
    """A file's text with one change: the lines it is on, what they were and have become, and the whole."""

    path: str
    line: int
    was: str
    becomes: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.was}  =>  {self.becomes}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may become.

    Another operator, a number one off (twice or half of one that was measured), no `not`, two arguments the other way
    round, a slice without one of its ends, nothing at all.
    """
    match node:
        case ast.Compare(ops=ops):
            for place, one in enumerate(ops):
                yield altered(node, ops=[*ops[:place], OPERATORS[type(one)](), *ops[place + 1 :]])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATORS:
            yield altered(node, op=OPERATORS[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Constant(value=float(value)):
            yield from (ast.Constant(value * 2), ast.Constant(value / 2)) if value else (ast.Constant(1.0),)
        case ast.Slice(lower=lower, upper=upper):
            yield from (altered(node, **{name: None}) for name, end in (("lower", lower), ("upper", upper)) if end)
        case ast.Call(func=func, args=[first, second, *others]) if _bare_name(func) not in SYMMETRIC:
            if ast.dump(first) != ast.dump(second) and not {type(first), type(second)} & {
                ast.Starred,
                ast.GeneratorExp,
            }:
                yield altered(node, args=[second, first, *others])
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()


def _bare_name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def altered(node: ast.AST, **fields: Any) -> ast.AST:
    """A copy of a node with some of its parts put otherwise."""
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def candidates(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may be changed: no types, no decorators, no f-strings (before Python 3.12 they tell no places)."""
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            unseen = name in ("annotation", "returns", "decorator_list") or isinstance(child, ast.JoinedStr)
            unseen |= isinstance(child, ast.keyword) and child.arg in SHAPES
            unseen |= _is_margin(node, child)
            unseen |= isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            if isinstance(child, ast.AST) and not unseen:
                yield from candidates(child)


def _is_margin(node: ast.AST, child: object) -> bool:
    match node, child:
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=right), ast.Constant(value=float(value)):
            return child is right and 0 < value < MARGIN
    return False


def mutants(path: str, text: str) -> Iterator[Mutant]:
    """All mutants of a file's text."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for node in candidates(ast.parse(text)):
        for changed in changes(node):
            first, last = node.lineno - 1, node.end_lineno  # type: ignore[attr-defined]
            before, after = lines[first][: node.col_offset], lines[last - 1][node.end_col_offset :]  # type: ignore[attr-defined]
            shown = ast.unparse(ast.fix_missing_locations(changed))
            bare = isinstance(changed, ast.stmt | ast.Slice | ast.Constant)
            becomes = before + (shown if bare else f"({shown})").encode() + after
            whole = b"".join([*lines[:first], becomes, *lines[last:]]).decode()
            was = " ".join(line.decode().strip() for line in lines[first:last])
            yield Mutant(path, node.lineno, was, becomes.decode().strip(), whole)  # type: ignore[attr-defined]


def functions(text: str) -> dict[int, str]:
    """The innermost function, with its class, that each line is in the body of."""
    found: dict[int, str] = {}

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = f"{name}.{child.name}" if isinstance(child, NAMED) else name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.update(dict.fromkeys(range(child.body[0].lineno, (child.end_lineno or 0) + 1), inner))
            visit(child, inner)

    visit(ast.parse(text), "")
    return found
