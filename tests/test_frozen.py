"""`frozen` classes are what `dataclass(frozen=True, slots=True)` makes of the same fields."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import pytest

from llmtop.frozen import frozen

T = TypeVar("T")


@frozen
class Kept:
    """Made by llmtop."""

    name: str
    size: int = 3
    labels: Mapping[str, str] = field(default_factory=dict)
    place: int = field(default=0, compare=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Standard:
    """Made by the standard library."""

    name: str
    size: int = 3
    labels: Mapping[str, str] = field(default_factory=dict)
    place: int = field(default=0, compare=False)
    secret: str = field(default="", repr=False)


@frozen
class Child(Kept):
    """Has its base's fields first, and another default for one of them."""

    size: int = 4
    more: tuple[int, ...] = ()


@frozen
class Pair(Generic[T]):
    """A class of two values of one type, which says itself how it is shown."""

    left: T
    right: T

    def __repr__(self) -> str:
        return f"{self.left}|{self.right}"


@frozen
class Nothing:
    """No field at all."""


@frozen
class Chain:
    """May hold itself, by a list."""

    links: list[Any]


KINDS = pytest.mark.parametrize("kind", [Kept, Standard])


@KINDS
def test_values_stand_in_their_fields(kind: type[Any]) -> None:
    one, other = kind("a", 5, {"b": "c"}, place=2), kind(name="a")
    assert asdict(one) == {"name": "a", "size": 5, "labels": {"b": "c"}, "place": 2, "secret": ""}
    assert (other.size, other.labels, other.place, other.secret) == (3, {}, 0, "")
    assert kind("a").labels is not other.labels
    assert kind.__slots__ == kind.__match_args__ == tuple(one.name for one in fields(kind))
    assert is_dataclass(kind)
    assert not hasattr(one, "__dict__")


@KINDS
def test_equal_are_those_of_one_class_whose_compared_fields_are(kind: type[Any]) -> None:
    labels: Mapping[str, str] = {}
    assert kind("a") == kind("a", place=7)
    assert kind("a") != kind("b")
    assert kind("a") != kind("a", secret="s")
    assert kind("a") != Child("a", 3)
    assert kind("a") != ("a", 3, labels, "")
    with pytest.raises(TypeError, match="unhashable type: 'dict'"):
        hash(kind("a"))


def test_equal_values_have_one_hash_and_it_is_that_of_their_fields() -> None:
    assert hash(Pair(1, 2)) == hash(Pair(1, 2)) == hash((1, 2))
    assert len({Pair(1, 2), Pair(1, 2), Pair(2, 1), Nothing(), Nothing()}) == 3


@KINDS
def test_nothing_can_be_set_or_deleted(kind: type[Any]) -> None:
    value = kind("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'size'"):
        value.size = 4
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'size'"):
        del value.size
    assert value.size == 3


@KINDS
def test_it_says_what_it_holds(kind: type[Any]) -> None:
    assert repr(kind("a", secret="s")) == f"{kind.__name__}(name='a', size=3, labels={{}}, place=0)"
    with pytest.raises(
        TypeError, match=rf"{kind.__name__}.__init__\(\) missing 1 required positional argument: 'name'"
    ):
        kind()


def test_what_holds_itself_is_said_once() -> None:
    chain = Chain([])
    chain.links.append(chain)
    assert repr(chain) == "Chain(links=[...])"


@KINDS
def test_copies_are_equal(kind: type[Any]) -> None:
    value = kind("a", 4, {"b": "c"}, 1, "s")
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    assert pickle.loads(pickle.dumps(value)).place == 1
    assert replace(value, size=9) == kind("a", 9, {"b": "c"}, 1, "s")


def test_a_subclass_adds_fields_and_changes_defaults() -> None:
    child = Child("a", more=(1,))
    assert (child.name, child.size, child.more) == ("a", 4, (1,))
    assert repr(child) == "Child(name='a', size=4, labels={}, place=0, more=(1,))"
    assert child != Kept("a", 4)


def test_methods_of_the_class_are_kept() -> None:
    assert repr(Pair("a", "b")) == "a|b"
    assert repr(Nothing()) == "Nothing()"


def test_the_first_value_is_made_like_all_others() -> None:
    """Before it the class has no compiled `__init__`: it is the same for a subclass that calls it."""

    @frozen
    class Late(Pair[int]):
        """Has no value yet."""

        place: int = 7

    class Later(Late):
        """Makes the first one."""

        def __init__(self) -> None:
            super().__init__(1, right=2)

    first, second = Later(), Later()
    assert (first.left, first.right, first.place) == (1, 2, 7)
    assert first == second
    assert Late(1, 2, 3).place == 3
