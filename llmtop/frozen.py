"""Classes of frozen values, made in a third of the time that `dataclass(frozen=True, slots=True)` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import Any, NoReturn, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[_T]) -> type[_T]:
    """A frozen dataclass with slots; for `fields`, `replace`, `asdict` and type checkers it is one like any other.

    A start makes two hundred of them before its first frame, and until Python 3.12 `dataclasses` compiles six methods
    for each, one by one. Here `__init__` alone is compiled, as values are made by the million, and only with the first
    value: a start has none of most classes. The other methods are shared.
    Each field is an argument, there is no `__post_init__`, and a method that stands in the class itself is kept.
    """
    made = dataclass(init=False, repr=False, eq=False, slots=True)(kind)
    for method in (_initialiser(made), *_comparison(made), *_SHARED):
        if method.__name__ not in vars(kind):
            setattr(made, method.__name__, method)
    return made


def _initialiser(kind: type) -> Callable[..., None]:
    """The `__init__` of a class without values, which puts the compiled one in its place."""

    def __init__(self: object, *args: object, **named: object) -> None:  # noqa: N807 - a method of the class
        compiled = _compiled(kind)
        type.__setattr__(kind, "__init__", compiled)
        compiled(self, *args, **named)

    return __init__


def _compiled(kind: type) -> FunctionType:
    """`__init__`, which fills the slots; what a factory makes is made anew wherever it is not given."""
    told = fields(kind)
    made = {one.name: one.default_factory for one in told if one.default_factory is not MISSING}
    scope: dict[str, Any] = {f"set_{one.name}": getattr(kind, one.name).__set__ for one in told}
    scope |= {"MISSING": MISSING} | {f"make_{name}": make for name, make in made.items()}
    lines = [f"def __init__({', '.join(['self', *(one.name for one in told)])}):", " pass"]
    lines += [f" if {name} is MISSING: {name} = make_{name}()" for name in made]
    lines += [f" set_{one.name}(self, {one.name})" for one in told]
    exec("\n".join(lines), scope)
    initialise: FunctionType = scope["__init__"]
    initialise.__qualname__ = f"{kind.__qualname__}.__init__"
    initialise.__defaults__ = tuple(one.default for one in told if one.default is not MISSING or one.name in made)
    return initialise


def _comparison(kind: type) -> Sequence[Callable[..., object]]:
    """`__eq__` and `__hash__`, by the values of all fields that are compared."""
    names = [one.name for one in fields(kind) if one.compare]
    values: Callable[[object], object] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __eq__, __hash__


class _Frozen:
    """The methods that are alike in all of these classes."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    @recursive_repr("...")
    def __repr__(self: Any) -> str:
        told = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{self.__class__.__qualname__}({', '.join(told)})"

    def __getstate__(self: Any) -> list[object]:
        return [getattr(self, one.name) for one in fields(self)]

    def __setstate__(self: Any, state: list[object]) -> None:
        for one, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, one.name, value)


_SHARED = [vars(_Frozen)[name] for name in ("__setattr__", "__delattr__", "__repr__", "__getstate__", "__setstate__")]
