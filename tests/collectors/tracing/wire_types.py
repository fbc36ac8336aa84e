"""Holds what a helper has said to the types of wire.py: nothing that is not told there, and nothing of another kind."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from llmtop.collectors.tracing import wire

KINDS: Mapping[str, type[Any]] = {
    "ready": wire.Ready,
    "unavailable": wire.Unavailable,
    "looking": wire.Looking,
    "looked": wire.Looking,
    "sample": wire.Sample,
}


def assert_is_told(said: Mapping[str, Any]) -> None:
    """A line of a helper, as it came out of JSON."""
    _check(said, KINDS[said["kind"]], said["kind"])


def _check(value: Any, kind: Any, where: str) -> None:
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        assert value.keys() <= hints.keys(), f"{where}: {value.keys() - hints.keys()}"
        assert value.keys() >= kind.__required_keys__, f"{where}: {kind.__required_keys__ - value.keys()}"
        for key, one in value.items():
            _check(one, hints[key], f"{where}.{key}")
    elif hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        assert len(value) == len(hints), f"{where}: {value}"
        for one, (name, hint) in zip(value, hints.items(), strict=True):
            _check(one, hint, f"{where}.{name}")
    elif get_origin(kind) is Sequence:
        assert isinstance(value, list), f"{where}: {value}"
        for one in value:
            _check(one, get_args(kind)[0], where)
    elif get_origin(kind) is Mapping:
        key_kind, of = get_args(kind)
        for key, one in value.items():
            _check(int(key) if key_kind is int else key, key_kind, where)
            _check(one, of, f"{where}[{key}]")
    elif get_origin(kind) in (Union, types.UnionType):
        assert type(value) in get_args(kind), f"{where}: {value!r}"
    else:
        assert type(value) is kind or (kind is float and type(value) is int), f"{where}: {value!r} is no {kind}"
