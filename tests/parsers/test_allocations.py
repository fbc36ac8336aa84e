"""Memory that is held, of events in any order: against sets of addresses that are kept apart."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop.model import Trace
from llmtop.parsers.allocations import Ends, MemoryEvent, allocations, columns_of, levels
from tests.parsers.kineto_files import allocator_event, few_events, written
from tests.parsers.test_kineto import opened

EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 9), st.booleans()), max_size=40).map(
    lambda rows: [MemoryEvent(10 * i, key, at, size, 0, back, i) for i, (key, at, size, back) in enumerate(rows)]
)


@given(events=EVENTS)
def test_levels_are_those_of_what_is_held_and_never_below_nothing(events: list[MemoryEvent]) -> None:
    first_of_place: dict[tuple[int, int], MemoryEvent] = {}
    for event in events:
        first_of_place.setdefault((event.key, event.address), event)
    now = {place: event.bytes for place, event in first_of_place.items() if event.is_release}
    expected: dict[int, dict[int, int]] = defaultdict(dict)
    odd = 0
    for event in events:
        place = event.key, event.address
        odd += event.is_release and place not in now
        now.pop(place, None)
        if not event.is_release:
            now[place] = event.bytes
        expected[event.key][event.t_ns] = sum(size for (key, _), size in now.items() if key == event.key)
    held, found_odd = allocations(events)
    assert found_odd == odd
    assert {one.ends for one in held if one.end_ns == one.start_ns < 10 * (len(events) - 1)} <= {Ends.BEFORE}
    for (key, _), samples in levels(held):
        assert all(level >= 0 for _, level in samples)
        for t_ns, level in samples:
            if t_ns in expected[key]:
                assert level == expected[key][t_ns], "as the sets have it"
    starts, ends, *_ = columns_of(held)
    assert list(starts) == sorted(starts)
    assert all(start <= end for start, end in zip(starts, ends, strict=True))


def memory(at: float, size: int, address: int, total: int, *, device: int = 0, tid: int = 10) -> dict[str, Any]:
    """An event as the allocator of a GPU writes it."""
    on_gpu = {"Device Type": 1, "Device Id": device, "Total Reserved": 1 << 20}
    return allocator_event(at, {"Bytes": size, "Addr": address, "Total Allocated": total, **on_gpu}, tid)


def read(tmp_path: Path, *events: dict[str, Any]) -> Trace:
    return opened(tmp_path, written([*few_events(), *events]))


def test_pytorchs_memory_is_held_and_asked_for_by_threads(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        memory(1050, -256, 0x20, 4096), memory(1015, 512, 0x10, 4864), memory(1090, -512, 0x10, 3584),
        memory(1100, 128, 0x10, 3712, tid=11), memory(1120, 64, 0x99, 64, device=1),
        memory(1130, -64, 0x99, 0, device=1), memory(1140, -64, 0x99, 0, device=1),
        memory(1122, 1, 0x77, 65, device=1), memory(1125, -1, 0x77, 64, device=1),
    )  # fmt: skip
    table = trace.spans["allocation"]
    assert [
        (table.names[name], table.tracks[track], start, end)
        for name, track, start, end in zip(table.name_id, table.track_id, table.start_ns, table.end_ns, strict=True)
    ] == [
        ("PyTorch's memory (from before the capture)", "gpu:0", 15_000, 50_000),
        ("PyTorch's memory", "gpu:0", 15_000, 90_000),
        ("PyTorch's memory (not given back)", "gpu:0", 100_000, 140_000),
        ("PyTorch's memory", "gpu:1", 120_000, 130_000),
        ("PyTorch's memory", "gpu:1", 122_000, 125_000),
    ]
    asked = trace.more_spans["allocator"]
    by_join = {
        join: (asked.tracks[track], asked.names[name])
        for join, track, name in zip(asked.correlation, asked.track_id, asked.name_id, strict=True)
    }
    assert [by_join[join] for join in table.correlation] == [
        (ids.thread(10, 10), "give memory back"), (ids.thread(10, 10), "get memory"),
        (ids.thread(10, 11), "get memory"), *[(ids.thread(10, 10), "get memory")] * 2,
    ]  # fmt: skip
    assert [(asked.start_ns[i], asked.names[asked.name_id[i]], asked.amount[i]) for i in range(len(asked))] == [
        (15_000, "get memory", 512), (50_000, "give memory back", 256), (90_000, "give memory back", 512),
        (100_000, "get memory", 128), (120_000, "get memory", 64), (122_000, "get memory", 1),
        (125_000, "give memory back", 1), (130_000, "give memory back", 64), (140_000, "give memory back", 64),
    ]  # fmt: skip
    assert [(issue.code, issue.count) for issue in trace.issues if "allocation" in issue.code] == [
        ("kineto-allocation-odd", 1)
    ]


def test_totals_below_nothing_are_not_known(tmp_path: Path) -> None:
    trace = read(tmp_path, memory(1015, 512, 0x10, 0), memory(1020, 512, 0x20, -1), memory(1030, 512, 0x30, 1024))
    assert list(trace.series[ids.gpu(0), "torch.allocated"]) == [(15_000, 0.0), (20_000, None), (30_000, 1024.0)]


def test_events_without_addresses_are_series_alone(tmp_path: Path) -> None:
    event = memory(1015, 512, 0x10, 512)
    del event["args"]["Addr"]
    trace = read(tmp_path, event)
    assert "allocation" not in trace.spans
    assert not trace.more_spans
    assert ("gpu:0", "torch.allocated") in trace.series
