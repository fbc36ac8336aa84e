"""Reading what bpftrace prints: as it is, cut short, and damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.bpftrace.output import (
    HELPER_ERROR,
    LAST_SLOT,
    Looks,
    Printout,
    Record,
    count_of,
    parse,
    stack_key,
)

# What bpftrace 0.17 printed of a program that sleeps, put together.
SAID = rb"""
{"type": "attached_probes", "data": {"probes": 12}}
{"type": "map", "data": {"@early": {"1": 1}}}

{"type": "printf", "data": "begin 11943455636910\n"}
{"type": "hist", "data": {"@latency": {"3612,1": [{"min": 64, "max": 127, "count": 1}], "3612,230": [{"min": 32768, "max": 65535, "count": 42}, {"min": 65536, "max": 131071, "count": 2}]}}}
{"type": "map", "data": {"@time": {"3612,1": 21111, "3612,230": 675413176}}}
{"type": "map", "data": {"@foreign_calls": 183}}
{"type": "map", "data": {"@off": {"3612": [11943455600000,3612,65766,1]}}}
{"type": "lost_events", "data": {"events": 3}}
{"type": "printf", "data": "stacks\n"}
{"type": "map", "data": {"@sleep_stacks": {"3612,3613,65766,\n    clock_nanosleep+35\n    sleep_here+9\n    main+905\n,\n    schedule+35\n    do_nanosleep+94\n": 662675070}}}
{"type": "map", "data": {"@user": {"3612": "\n    clock_nanosleep+35\n    sleep_here+9\n"}}}
{"type": "printf", "data": "end\n"}
{"type": "printf", "data": "begin 11944455634837\n"}
{"type": "map", "data": {"@time": {"3612,1": 21112}}}
"""  # noqa: E501


_END = rb'"end\n"}'


def looks_of(text: bytes) -> list[Printout]:
    looks = Looks()
    taken = (looks.take(record) for line in text.split(b"\n") if (record := parse(line)) is not None)
    return [look for look in taken if look is not None]


def test_a_look_is_what_lies_between_its_borders() -> None:
    (look,) = looks_of(SAID)  # the second has no end
    assert look.t_ns == 11943455636910
    assert look.has_stacks
    assert "early" not in look.maps
    assert look.table("time", 2) == {(3612, 1): 21111, (3612, 230): 675413176}
    assert look.table("foreign_calls", 0) == {(): 183}
    assert look.histograms("latency", 2) == {(3612, 1): {7: 1}, (3612, 230): {16: 42, 17: 2}}
    assert look.tuples("off", 1) == {(3612,): (11943455600000, 3612, 65766, 1)}
    user, kernel = ("main", "sleep_here", "clock_nanosleep"), ("do_nanosleep", "schedule")
    assert look.stacks("sleep_stacks", 3) == [((3612, 3613, 65766), user, kernel, 662675070)]
    assert look.frames("user") == {3612: ("sleep_here", "clock_nanosleep")}


def test_what_is_not_there_is_empty() -> None:
    look = Printout(1)
    assert (look.table("time", 2), look.histograms("latency", 2), look.tuples("off", 1)) == ({}, {}, {})
    assert (look.stacks("samples", 2), look.frames("user")) == ([], {})


def test_what_the_kernel_refuses_is_told_with_its_number() -> None:
    said = b'{"type": "helper_error", "msg": "Argument list too long", "helper": "map_update_elem", "retcode": -7}'
    record = parse(said)
    assert record is not None
    assert (record.kind, count_of(record, "retcode")) == (HELPER_ERROR, -7)


def test_lost_events_are_told() -> None:
    record = parse(b'{"type": "lost_events", "data": {"events": 3}}')
    assert record is not None
    assert count_of(record, "events") == 3
    assert count_of(Record("lost_events", "", None), "events") == 0


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Attaching 3 probes...",
        b"[1]",
        b"null",
        b'{"data": {}}',
        b'{"type": 3, "data": {}}',
        b'{"type": "map", "data": 3}',
        b'{"type": "map", "data": {}}',
        b'{"type": "map", "data": {"@a": {}, "@b": {}}}',
        b'{"type": "printf", "data": 3}',
        b'{"type": "map", "data": {"@time": {"3612,1": 21111',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_line_of_it_is_none(line: bytes) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    "content",
    [
        {"3612": 5},
        {"3612,1,1": 5},
        {"3612,x": 5},
        {"3612,1": "many"},
        {"3612,1": True},
        {"3612,1": None},
        {"3612,1": {"min": 1}},
        {"3612,": 5},
        [1],
        "3612,1",
    ],
)
def test_entries_that_are_no_numbers_are_left_out(content: Any) -> None:
    assert Printout(1, {"time": content}).table("time", 2) == {}


def test_newer_versions_write_large_numbers_as_text() -> None:
    assert Printout(1, {"time": {"1,2": "9007199254740993"}}).table("time", 2) == {(1, 2): 9007199254740993}


@pytest.mark.parametrize(
    ("buckets", "slots"),
    [
        ([{"min": 0, "max": 0, "count": 2}], {0: 2}),
        ([{"min": 1, "max": 1, "count": 2}], {1: 2}),
        ([{"min": 1 << 60, "max": (1 << 61) - 1, "count": 2}], {LAST_SLOT: 2}),
        ([{"min": 4, "max": 7, "count": 0}, {"min": 8, "max": 15, "count": 1}], {4: 1}),
    ],
)
def test_buckets_of_256_ns_are_slots(buckets: list[dict[str, int]], slots: dict[int, int]) -> None:
    assert Printout(1, {"queue": {"7": buckets}}).histograms("queue", 1) == {(7,): slots}


@pytest.mark.parametrize(
    "buckets",
    [[], [{"max": -1, "count": 1}], [{"min": 1}], [{"min": -1, "count": 1}], [{"min": 1, "count": -1}], [3], 3],
)
def test_buckets_that_are_none_are_left_out(buckets: Any) -> None:
    assert Printout(1, {"queue": {"7": buckets}}).histograms("queue", 1) == {}


@pytest.mark.parametrize(
    "key",
    ["", "7", "7,8", "x,8,\n    main+1\n,", "7,8,9,9,", "7,8,\n    main+1\n", "7,8,9"],
)
def test_keys_that_are_no_stacks_are_none(key: str) -> None:
    assert stack_key(key, 2) is None


def test_line_breaks_may_be_escaped_once_more() -> None:
    key = r"7,8,\n        write+79\n,\n        vfs_write+35\n"
    assert stack_key(key, 2) == ((7, 8), ("write",), ("vfs_write",))


def test_newer_versions_leave_spaces_out() -> None:
    assert stack_key("7,8,\nstd::map<int,int>::find(intconst&)+16\nmain+4\n,\nread+1\n", 2) == (
        (7, 8),
        ("main", "std::map<int,int>::find(intconst&)"),
        ("read",),
    )


frames = st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n+\\"), min_size=1).map(str.strip))


@given(frames.map(lambda names: [name for name in names if name and name != ","]), st.booleans())
def test_stacks_come_back_as_they_were(names: list[str], has_kernel: bool) -> None:
    text = "".join(f"\n    {name}+1" for name in names) + ("\n" if names else "")
    kernel = "\n    schedule+2\n" if has_kernel else ""
    expected = tuple(reversed(names)), ("schedule",) if has_kernel else ()
    assert stack_key(f"7,8,{text},{kernel}", 2) == ((7, 8), *expected)


@given(st.integers(0, len(SAID)))
def test_a_cut_anywhere_costs_only_what_is_cut(length: int) -> None:
    looks = looks_of(SAID[:length])
    assert looks == (looks_of(SAID) if length >= SAID.index(_END) + len(_END) else [])


@given(st.integers(0, len(SAID) - 1), st.binary(min_size=1, max_size=8))
def test_damage_never_raises_and_never_makes_numbers_up(place: int, damage: bytes) -> None:
    for look in looks_of(SAID[:place] + damage + SAID[place + len(damage) :]):
        for value in look.table("time", 2).values():
            assert isinstance(value, int)
        look.histograms("latency", 2)
        look.tuples("off", 1)
        look.stacks("sleep_stacks", 3)
        look.frames("user")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("1,2"), inner, max_size=3),
)


@given(json_values)
def test_any_json_is_taken_or_left(value: Any) -> None:
    parse(json.dumps(value).encode())
    record = parse(json.dumps({"type": "map", "data": {"@any": value}}).encode())
    assert record is not None
    look = Printout(1, {"any": record.data})
    look.table("any", 2)
    look.table("any", 0)
    look.histograms("any", 2)
    look.tuples("any", 1)
    look.stacks("any", 1)
    look.frames("any")
