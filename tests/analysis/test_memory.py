"""Memory over time: its level, its peak with what lived then, who got it, and whether it grows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.rules import memory_growth
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.timeline.join import joined
from llmtop.analysis.timeline.listed import Listed, listed
from llmtop.analysis.timeline.memory import BEFORE, NOT_TOLD, OUTSIDE, MemoryPool, memory_pools
from llmtop.analysis.timeline.memory_table import memory_rows, memory_table, owner_title, pool_lines, said_of_memory
from llmtop.model import (
    FROM_BEFORE,
    NOT_GIVEN_BACK,
    TORCH_ALLOCATED,
    TORCH_GROWN,
    TORCH_RESERVED,
    Series,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
)
from llmtop.parsers.registry import load
from tests.analysis.test_span_rows import OTHER, THREAD, trace
from tests.kernel_traces import span_table as table
from tests.nsys_capture import MS, PID, US, Capture, add_table, global_id
from tests.parsers.kineto_files import QWEN, few_events, kernel_pair, needs_qwen, span, written
from tests.parsers.test_allocations import memory
from tests.parsers.test_kineto import opened

GPU = ids.gpu_process(ids.gpu(0), 1)
DEVICE = "device memory"


def pools_of(of: Trace) -> tuple[MemoryPool, ...]:
    found = memory_pools(of)
    assert not isinstance(found, Unknown)
    return found


@pytest.mark.parametrize(
    ("track", "title"),
    [
        (ids.gpu(3), "GPU 3"),
        (ids.gpu_process(ids.gpu(3), 42), "GPU 3, process 42"),
        (ids.process(42), "serve 42"),
        (ids.process(43), "process:43"),
    ],
)
def test_who_holds_memory_is_called_as_its_track(track: TrackId, title: str) -> None:
    known = Track(ids.process(42), TrackKind.PROCESS, "serve 42")
    assert owner_title(replace(trace(), tracks={known.id: known}), track) == title


def test_the_peak_has_what_lived_then_by_who_got_it() -> None:
    made = trace(
        table("allocation", (DEVICE + FROM_BEFORE, GPU, 0, 60, -1, 1000), (DEVICE, GPU, 10, 40, 1, 500),
              (DEVICE + NOT_GIVEN_BACK, GPU, 20, 90, 2, 300), (DEVICE, GPU, 40, 90, 3, 50),
              (DEVICE, GPU, 50, 55, 4, 9)),
        table("call", ("cudaMalloc", THREAD, 9, 11, 1, math.nan), ("cudaMalloc", THREAD, 19, 21, 2, math.nan),
              ("cudaMalloc", OTHER, 39, 41, 3, math.nan)),
        table("nvtx", ("load 7", THREAD, 0, 100, -1, math.nan), ("layer", THREAD, 15, 30, -1, math.nan)),
    )  # fmt: skip
    (pool,) = pools_of(made)
    assert (pool.peak, pool.peak_ns, pool.before, pool.untold, pool.told) == (1800, 20, 1000, 0, False)
    assert [pool.at(t_ns) for t_ns in (5, 20, 40, 50, 60, 95)] == [1000, 1800, 1350, 1359, 350, 300]
    assert not isinstance(pool.owners, Unknown)
    owners = {one.name: one for one in pool.owners}
    assert {name: (one.at_peak, one.held, one.kept) for name, one in owners.items()} == {
        BEFORE: (1000, 1, 0), "load #": (500, 1, 0), "layer": (300, 1, 300), OUTSIDE: (0, 0, 0), NOT_TOLD: (0, 0, 0),
    }  # fmt: skip
    rows = memory_rows((pool,), made)
    every = (f"GPU 0, process 1: {DEVICE}", 1800, 1.0, 3, 1000, 5, 1859, 300)
    assert memory_table(rows).cells(0) == ("GPU 0, process 1", DEVICE, *every)
    said = " ".join(pool_lines(pool, 0))
    assert "of what was held before the capture only 1000 B is known" in said
    assert "300 B in 1 allocations not given back" in said


@pytest.mark.parametrize(("at", "name"), [(30, "layer"), (31, "load #"), (101, OUTSIDE)])
def test_a_range_lasts_until_its_end(at: int, name: str) -> None:
    made = trace(
        table("allocation", (DEVICE + NOT_GIVEN_BACK, GPU, at, at, 1, 8)),
        table("call", ("cudaMalloc", THREAD, at, at + 1, 1, math.nan)),
        table("nvtx", ("load 7", THREAD, 0, 100, -1, math.nan), ("layer", THREAD, 15, 30, -1, math.nan)),
    )
    (pool,) = pools_of(made)
    assert isinstance(pool.owners, tuple)
    assert [(one.name, one.at_peak) for one in pool.owners] == [(name, 8)], "what the last event got is held"


def test_what_is_given_back_without_having_been_got_is_of_what_was_there_before() -> None:
    samples: list[tuple[int, float | None]] = [(0, 1500.0), (60, 500.0)]
    rows = table(
        "allocation", (DEVICE + FROM_BEFORE, GPU, 0, 60, -1, 1000), (DEVICE + NOT_GIVEN_BACK, GPU, 0, 60, 1, 200)
    )
    told = {(GPU, TORCH_ALLOCATED.name): Series.of(GPU, TORCH_ALLOCATED, "", samples)}
    (pool,) = pools_of(replace(trace(rows), series=told))
    assert (pool.before, pool.untold) == (1300, 300), "of what was there before, events tell of 1000"


def test_what_the_allocator_itself_says_is_the_level_and_the_rest_was_there_before() -> None:
    samples: list[tuple[int, float | None]] = [(10, 7500.0), (40, 7000.0)]
    made = replace(
        trace(table("allocation", (DEVICE, ids.gpu(0), 10, 40, 1, 500))),
        series={
            (ids.gpu(0), TORCH_ALLOCATED.name): Series.of(ids.gpu(0), TORCH_ALLOCATED, "", samples),
            (ids.gpu(0), TORCH_RESERVED.name): Series.of(ids.gpu(0), TORCH_RESERVED, "", [(10, 9000.0)]),
        },
    )
    (pool,) = pools_of(made)
    assert (pool.peak, pool.before, pool.untold, pool.reserved, pool.told) == (7500, 7000, 7000, 9000, True)
    rows = memory_rows((pool,), made)
    assert [(row.owner.name, row.owner.at_peak) for row in rows if row.owner] == [(BEFORE, 7000), (NOT_TOLD, 500)]
    assert memory_table(rows).cells(1)[5:] == (None,) * 5, "how many these are is told by nothing"
    assert "6.84 KiB were held before the first event: no event tells by whom" in said_of_memory((pool,), made)[0]


def grown_in_nsys(path: Path) -> Path:
    """Ten steps: each gets 64 KiB in the range "cache" that stay, and 1 MiB of scratch that it gives back."""
    made, rows = Capture(), []
    for step in range(10):
        now = step * MS
        made.nvtx(f"step {step}", now, now + 900 * US)
        made.nvtx("cache", now + 5 * US, now + 50 * US)
        kept = made.call("cudaMalloc", now + 10 * US, now + 20 * US)
        scratch = made.call("cudaMalloc", now + 60 * US, now + 70 * US)
        for i in (100, 300):
            call = made.call("cudaLaunchKernel", now + i * US, now + (i + 5) * US)
            made.kernel(now + (i + 10) * US, now + (i + 100) * US, call)
        freed = made.call("cudaFree", now + 500 * US, now + 510 * US)
        rows += [(now + 15 * US, 100 + step, 1 << 16, 0, kept), (now + 65 * US, 7, 1 << 20, 0, scratch)]
        rows += [(now + 505 * US, 7, 1 << 20, 1, freed)]
    file = made.write(path / "memory.sqlite")
    columns = "start address bytes memoryOperationType correlationId globalPid deviceId memKind"
    add_table(file, "CUDA_GPU_MEMORY_USAGE_EVENTS", columns, *((*row, global_id(PID), 0, 2) for row in rows))
    return file


def test_a_capture_of_nsys_tells_who_holds_memory_and_that_it_grows(tmp_path: Path) -> None:
    made = load(grown_in_nsys(tmp_path))
    (pool,) = pools_of(made)
    assert (pool.peak, pool.before, pool.untold, pool.told) == ((10 << 16) + (1 << 20), 0, 0, False)
    assert isinstance(pool.owners, tuple)
    assert [(one.name, one.at_peak, one.kept_count) for one in pool.owners] == [
        ("step #", 1 << 20, 0), ("cache", 10 << 16, 10),
    ]  # fmt: skip
    assert pool.growth is not None
    assert (pool.growth.per_step, pool.growth.owners) == (1 << 16, (("cache", 8 << 16),))
    found = [finding.rule for finding in diagnose(made).findings]
    assert found.count("memory-growth") == 1
    assert found.count("allocation-stalls") <= 1


@needs_qwen
def test_pytorchs_level_of_a_real_trace_is_what_was_there_and_what_is_held() -> None:
    pool, *_ = pools_of(load(QWEN))
    assert isinstance(pool.owners, tuple)
    assert sum(one.at_peak for one in pool.owners) + pool.before == pool.peak == 2_088_508_416
    assert pool.levels[-1] == pool.before, "all that was got is given back"
    assert {one.kept for one in pool.owners} == {0}
    assert pool.owners[0].name == "aten::linear"


HOLDINGS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=25)


@given(holdings=HOLDINGS, kept=st.sets(st.integers(0, 24)))
def test_the_level_is_what_is_held_at_each_moment(holdings: list[tuple[int, int, int]], kept: set[int]) -> None:
    holdings.sort()
    last = max(start + length for start, length, _ in holdings)
    rows = [
        (DEVICE + (NOT_GIVEN_BACK if i in kept else ""), GPU, start, last if i in kept else start + length, i, size)
        for i, (start, length, size) in enumerate(holdings)
    ]
    (pool,) = pools_of(trace(table("allocation", *rows)))
    ends = [math.inf if i in kept else start + length for i, (start, length, _) in enumerate(holdings)]
    lives = [(start, end, size) for (start, _, size), end in zip(holdings, ends, strict=True)]
    truth = [sum(size for start, end, size in lives if start <= t < end) for t in range(last + 1)]
    assert [pool.at(t) for t in range(last + 1)] == truth
    assert (pool.peak, pool.peak_ns) == (max(truth), truth.index(max(truth)))
    assert isinstance(pool.owners, tuple)
    assert sum(one.at_peak for one in pool.owners) == pool.peak
    parts = pool.over_time(0, last, min(5, last))
    assert max(parts) <= pool.peak
    assert min(parts) >= 0


def stepped(tmp_path: Path, keeps: list[int], before: int = 1 << 20) -> Trace:
    """Steps of which each gets 1 MiB and gives it back, and keeps so many bytes more (or gives some back)."""
    events: list[dict[str, Any]] = []
    level = before
    for i, size in enumerate(keeps):
        at = 1000 + i * 1000
        events += [span("user_annotation", f"ProfilerStep#{i}", at, 900), span("cpu_op", "aten::cat", at + 10, 300)]
        events += [*kernel_pair(2 * i + 1, at + 20), *kernel_pair(2 * i + 2, at + 60)]
        events += [memory(at + 15, 1 << 20, 1, level + (1 << 20)), memory(at + 200, -(1 << 20), 1, level)]
        level += size
        if size:
            events.append(memory(at + 220, size, 100 + i if size > 0 else 99 + i, level))
    return opened(tmp_path, written(events))


def test_memory_that_is_more_after_every_step_is_told_with_who_got_it(tmp_path: Path) -> None:
    made = stepped(tmp_path, [1 << 18] * 9)
    pool, *_ = pools_of(made)
    assert pool.growth is not None
    assert (pool.growth.per_step, pool.growth.steps, pool.growth.owners) == (1 << 18, 7, (("aten::cat", 7 << 18),))
    (finding,) = memory_growth.check(made)
    assert finding.message == "PyTorch's memory is more after each of 7 steps: 256 KiB a step"
    assert "still held: aten::cat 1.75 MiB" in finding.evidence[0]


@pytest.mark.parametrize(
    "keeps",
    [
        [1 << 18] * 7,
        [1 << 18] * 6 + [0] + [1 << 18] * 3,
        [100] * 9,
        [0] * 12,
        [1 << 18] * 5 + [-(1 << 18)] + [1 << 18] * 4,
    ],
    ids=["few steps", "one adds nothing", "hardly anything", "steady", "one gives back"],
)
def test_what_does_not_surely_grow_is_no_finding(keeps: list[int], tmp_path: Path) -> None:
    assert list(memory_growth.check(stepped(tmp_path, keeps))) == []


def test_ranks_of_one_run_each_have_their_own_owners(tmp_path: Path) -> None:
    ranks = [stepped(tmp_path, [1 << 18] * 9), stepped(tmp_path, [1 << 18] * 5 + [0] * 4)]
    whole = joined(ranks, ["rank 0", "rank 1"], [Unknown("no clock")] * 2, "run")
    found = [(pool.track, pool.growth is not None, pool.owners) for pool in pools_of(whole)]
    assert len({track for track, _, _ in found}) == 2
    for _, _, owners in found:
        assert isinstance(owners, tuple)
        assert [one.name for one in owners] == ["aten::cat"], "who asked is known of each"


def test_events_without_addresses_have_a_curve_and_say_why_no_owner_is_known() -> None:
    samples: list[tuple[int, float | None]] = [(0, -10.0), (50, 30.0), (60, 0.0)]
    made = replace(trace(), series={(GPU, TORCH_GROWN.name): Series.of(GPU, TORCH_GROWN, "", samples)})
    (pool,) = pools_of(made)
    assert (pool.peak, pool.untold, pool.told) == (40, 40, False), "10 bytes more were given back than got"
    assert (min(pool.levels), pool.before) == (0, 10)
    assert isinstance(pool.owners, Unknown)
    cells = memory_table(memory_rows((pool,), made)).cells(0)
    assert cells[5:] == (pool.owners,) * 5
    assert len(memory_rows((pool,), made)) == 1
    assert "of what was held before the capture only 10 B is known" in pool_lines(pool, 0)


ODD: st.SearchStrategy[Any] = st.one_of(
    st.integers(-(1 << 64), 1 << 64), st.sampled_from([None, "x", 1.5, True, [], -1, 0, 1, 1 << 63])
)
ODD_KEYS = ("Bytes", "Addr", "Total Allocated", "Device Id")
ODD_EVENTS = st.lists(st.fixed_dictionaries(dict.fromkeys(ODD_KEYS, ODD)), max_size=8)


@given(told=ODD_EVENTS)
def test_whatever_a_file_says_of_memory_no_curve_is_below_nothing(
    told: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    events = [memory(1010 + i, 1, 1, 1) for i in range(len(told))]
    for event, args in zip(events, told, strict=True):
        event["args"] |= args
    made = opened(tmp_path_factory.mktemp("odd"), written([*few_events(), *events]))
    for what in Listed:
        listed(made, what)
    found = memory_pools(made)
    for pool in () if isinstance(found, Unknown) else found:
        assert min(pool.levels) >= 0
        assert pool.untold >= 0
        assert list(pool_lines(pool, 0))
        memory_table(memory_rows((pool,), made))


def test_a_trace_that_tells_nothing_says_what_would() -> None:
    why = memory_pools(trace())
    assert isinstance(why, Unknown)
    assert "--cuda-memory-usage=true" in why.remedy
