"""Events whose JSON is wrong: what they were to be, and where that cannot be told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmtop.parsers.kineto_repair import mended

MIB = 1 << 20


def meant(text: str) -> dict[str, Any] | None:
    return mended(text, json.JSONDecoder())


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (r'"{\"b\": 1} of "a""', '{"b": 1} of "a"'),
        (r'"{\"b\"} of "a""', '{"b"} of "a"'),
        (r'"C:\models\"', "C:\\models\\"),
    ],
    ids=["an escaped quote before a colon", "one before a brace", "a path that ends the name"],
)
def test_a_backslash_before_a_quote_escapes_it_unless_nothing_could_be_read_then(written: str, name: str) -> None:
    assert meant(f'{{"ph": "X", "name": {written}, "pid": 1}}') == {"ph": "X", "name": name, "pid": 1}


def test_what_is_no_event_is_none_when_it_is_mended() -> None:
    assert meant('{"name": "a "b" c"}') is None


@pytest.mark.parametrize("over", [0, 1])
def test_texts_of_up_to_a_mebibyte_are_mended(over: int) -> None:
    begin, end = '{"ph": "X", "name": "a "b" ', '"}'
    filling = "c" * (MIB - len(begin) - len(end) + over)
    event = meant(begin + filling + end)
    assert event == (None if over else {"ph": "X", "name": f'a "b" {filling}'})
