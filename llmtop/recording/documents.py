"""Values of the model as JSON, and back: fields by their names, those that have their default left out.

What a newer version has added is passed over, and what only an older one had keeps its default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from llmtop import model
from llmtop.text import clean, is_clean

_LONGEST: Final = 4 << 20
"""Characters of a document: one of a thousand processes takes a tenth. Its objects may take twenty times as much."""
_DEEPEST: Final = 32
"""Lists and objects within each other: llmtop writes nine."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""Of an integer: a column holds no longer one. A float beyond them is looked at more closely, as NaN is."""
WRONG_SHAPE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a document raises in code that expects another one: whoever reads foreign ones has it cost that one alone."""
_T = TypeVar("_T")
_PLAIN: Final = frozenset({str, int, float, bool, NoneType})
_NAMES = {
    **vars(model),
    "Mapping": Mapping,
    "Sequence": Sequence,
    "Value": float | int | str,
    "Fact": float | int | str | model.Unknown,
}
"""What annotations refer to that is imported for types alone; of the model's aliases only their text is left."""


class MisfitError(ValueError):
    """A document that is none of what it should be."""


def parsed(text: str | bytes) -> Any:
    """What a recording's JSON says. This is its border: every text in it is clean.

    Raises:
        ValueError: It is none, or longer or deeper than any that llmtop writes, or has numbers that no column holds.
    """
    text = text if isinstance(text, str) else text.decode()
    if len(text) > _LONGEST:
        raise ValueError("too long")
    try:
        document = json.loads(text)
        if not _is_usual(document):
            document = _CAREFUL.decode(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    is_safe = "\\" not in text and (is_clean(text) if not text.isascii() else "\x7f" not in text)
    return document if is_safe else _cleaned(document)


def _is_usual(document: Any) -> bool:
    """Whether each number in it is finite and of eight bytes.

    Raises:
        ValueError: It is deeper than any that llmtop writes.
    """
    is_usual, level = True, [[document]]
    for _ in range(_DEEPEST):
        deeper = []
        for whole in level:
            for one in whole:
                kind = one.__class__
                if kind is dict:
                    deeper.append(one.values())
                elif kind is list:
                    deeper.append(one)
                elif (kind is int or kind is float) and not _LEAST <= one <= _MOST:
                    is_usual = False
        if not deeper:
            return is_usual
        level = deeper
    raise ValueError("too deep")


def _cleaned(document: Any) -> Any:
    if isinstance(document, str):
        return clean(document)
    if isinstance(document, dict):
        return {clean(key): _cleaned(one) for key, one in document.items()}
    return [_cleaned(one) for one in document] if isinstance(document, list) else document


def _integer(digits: str) -> int:
    if not _LEAST <= (value := int(digits)) <= _MOST:
        raise ValueError("an integer of more than eight bytes")
    return value


def _finite(digits: str) -> float | None:
    """A number; None of what is infinite or none: no reader has to expect these."""
    return value if math.isfinite(value := float(digits)) else None


_CAREFUL: Final = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_finite)


def text_of(value: Any) -> str:
    """A value as it is written."""
    return json.dumps(document_of(value), ensure_ascii=False, separators=(",", ":"))


def document_of(value: Any) -> Any:
    """A value in what JSON has."""
    if value.__class__ in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (str, int, float)):  # of a class of its own
        return value
    if isinstance(value, Mapping):
        return {key: document_of(one) for key, one in value.items()}
    if is_dataclass(value):
        told = ((field, getattr(value, field.name)) for field in _fields(value.__class__).values())
        return {field.name: document_of(one) for field, one in told if one != _default(field)}
    return [document_of(one) for one in value]


def value_of(kind: type[_T], document: Any, skip: Callable[[str], None] | None = None) -> _T:
    """What a document says.

    Args:
        kind: The class, or whatever an annotation may be.
        document: As `document_of` gives it.
        skip: Takes the name of each field of its own that cannot be read and keeps its default; without it, none may.

    Raises:
        MisfitError: It says no value of this type.
    """
    return cast("_T", _value(kind, document) if skip is None else _made(kind, document, skip))


def _value(kind: Any, document: Any) -> Any:
    return _reader(kind)(document)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What reads values of a type: to look at an annotation takes longer than to read what it is of."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return partial(_any_of, get_args(kind))
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(_made, kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_checked, kind)
    if origin is tuple or origin is Sequence:
        return partial(_items, get_args(kind))
    if origin is Mapping:
        return partial(_mapping, get_args(kind)[1])
    plain = getattr(kind, "__supertype__", kind)
    return _number if plain is float else partial(_expect, plain)


def _number(document: Any) -> Any:
    return float(document) if type(document) is int else _expect(float, document)


def _mapping(of: Any, document: Any) -> Any:
    return {str(key): _value(of, one) for key, one in _expect(dict, document).items()}


def _items(kinds: tuple[Any, ...], document: Any) -> tuple[Any, ...]:
    items = _expect(list, document)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = kinds[:1] * len(items)
    elif len(kinds) == 1:
        kinds = kinds * len(items)
    if len(kinds) != len(items):
        raise MisfitError
    return tuple(_value(kind, one) for kind, one in zip(kinds, items, strict=True))


def _any_of(kinds: Sequence[Any], document: Any) -> Any:
    """A plain value as it is; of several classes the first that has all fields of an object."""
    if type(document) in kinds:
        return document
    for kind in kinds:
        try:
            return _value(kind, document)
        except MisfitError:
            continue
    raise MisfitError


def _made(kind: type, document: Any, skip: Callable[[str], None] | None = None) -> Any:
    known, told = _fields(kind), _expect(dict, document)
    if not known.keys() & told.keys() and (told or any(_default(field) is MISSING for field in known.values())):
        raise MisfitError
    readers, values = _readers(kind), {}
    for name in known.keys() & told.keys():
        try:
            values[name] = readers[name](told[name])
        except MisfitError:
            if skip is None or _default(known[name]) is MISSING:
                raise
            skip(name)
    try:
        return kind(**values)
    except TypeError as error:
        raise MisfitError from error


def _checked(kind: type[Enum], document: Any) -> Enum:
    try:
        return kind(document)
    except ValueError as error:
        raise MisfitError from error


def _expect(kind: Any, document: Any) -> Any:
    if not isinstance(document, kind):
        raise MisfitError
    return document


@cache
def _fields(kind: Any) -> dict[str, Field[Any]]:
    return {field.name: field for field in fields(kind) if field.init}


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    """What reads each field of a class."""
    return {name: _reader(hint) for name, hint in get_type_hints(kind, _NAMES).items()}


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default
