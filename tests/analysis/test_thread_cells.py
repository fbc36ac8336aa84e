"""What a thread did instant by instant: always the whole of it, and named by what was known then."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.grid import Grid
from llmtop.analysis.threads.cells import NOT_SAMPLED, ThreadCells, thread_cells
from llmtop.analysis.threads.probes import NOT_SEEN
from llmtop.model import NS_PER_S, Metric, Trace, Track, TrackId, TrackKind
from tests.analysis.probe_traces import PROCESS, START_NS, THREAD, Probed, Rate

FUTEX = (THREAD, v.labelled(v.THREAD_BLOCKED, "futex"))
SAMPLES = (THREAD, v.labelled(v.THREAD_STATE_SAMPLES, "epoll"))
LAUNCHES = (PROCESS, v.labelled(v.LIBRARY_COUNT, "cuLaunchKernel"))
BUSY = {v.THREAD_ON_CPU: 0.5, v.THREAD_RUN_QUEUE: 0.1}


def cells_of(trace: Trace, seconds: int = 20, thread: TrackId = THREAD) -> ThreadCells:
    return thread_cells(trace, thread, Grid(START_NS, NS_PER_S, seconds))


def test_each_second_has_what_was_done_in_it() -> None:
    clocks: Mapping[Metric, Rate] = {v.THREAD_ON_CPU: lambda s: 1.0 if s <= 10 else 0.25, v.THREAD_RUN_QUEUE: 0.0}
    trace = Probed(clocks, probes={FUTEX: lambda s: 0.0 if s <= 10 else 0.75, LAUNCHES: 1.0}).trace(20)
    seen = cells_of(trace)
    assert seen.are_causes_exact
    assert seen.knows_polling
    assert seen.knows_sync
    assert seen.cells[3] == pytest.approx({"working": 1.0})
    assert seen.cells[15] == pytest.approx({"working": 0.25, "blocked:futex": 0.75})
    assert seen.kinds == ("working", "blocked:futex")
    assert seen.of("working")[15] == pytest.approx(0.25)
    assert seen.of("blocked:disk")[15] == 0.0


def test_sampled_causes_of_the_window_stand_in_where_a_second_has_none() -> None:
    trace = Probed(BUSY, counters={SAMPLES: lambda s: 1.0 if s % 2 else 0.0}, observed=None).trace(20)
    seen = cells_of(trace)
    assert not seen.are_causes_exact
    assert all(cell == pytest.approx({"on_cpu": 0.5, "run_queue": 0.1, "blocked:epoll": 0.4}) for cell in seen.cells)
    never = cells_of(Probed(BUSY, observed=None).trace(20))
    assert never.cells[5] == pytest.approx({"on_cpu": 0.5, "run_queue": 0.1, f"blocked:{NOT_SAMPLED}": 0.4})


def test_sleep_that_the_probes_did_not_see_is_named_so() -> None:
    seen = cells_of(Probed(BUSY, probes={FUTEX: lambda s: 0.4 if s < 10 else 0.1, LAUNCHES: 1.0}).trace(20))
    assert seen.cells[15] == pytest.approx(
        {"working": 0.5, "run_queue": 0.1, "blocked:futex": 0.1, f"blocked:{NOT_SEEN}": 0.3}
    )


def test_seconds_before_the_probes_are_named_by_what_was_known_then() -> None:
    probes = {FUTEX: 0.4, LAUNCHES: 1.0, (THREAD, v.THREAD_CUDA_SYNC): 0.0}
    trace = Probed(BUSY, counters={SAMPLES: 1.0}, probes=probes, probes_from=6).trace(20)
    seen = cells_of(trace)
    assert seen.cells[2] == pytest.approx({"on_cpu": 0.5, "run_queue": 0.1, "blocked:epoll": 0.4})
    assert seen.cells[12] == pytest.approx({"working": 0.5, "run_queue": 0.1, "blocked:futex": 0.4})
    assert seen.are_causes_exact


def test_time_in_the_collector_is_told_from_work_as_far_as_it_was_on_a_cpu() -> None:
    """Of 0.3 s in it the thread queued for a CPU as often as elsewhere: 0.25 s on one."""
    probes: Mapping[tuple[TrackId, Metric], Rate] = {
        FUTEX: 0.4,
        LAUNCHES: 1.0,
        (THREAD, v.THREAD_COLLECTING): lambda s: 0.3 if s > 10 else 0.0,
    }
    seen = cells_of(Probed(BUSY, probes=probes).trace(20))
    assert seen.cells[4] == pytest.approx({"working": 0.5, "run_queue": 0.1, "blocked:futex": 0.4})
    collecting = {"collecting": 0.25, "working": 0.25, "run_queue": 0.1, "blocked:futex": 0.4}
    assert seen.cells[15] == pytest.approx(collecting)
    longer = cells_of(Probed(BUSY, probes={**probes, (THREAD, v.THREAD_COLLECTING): 0.9}).trace(20))
    assert longer.cells[15] == pytest.approx({"collecting": 0.5, "run_queue": 0.1, "blocked:futex": 0.4})


def test_seconds_without_clocks_are_unknown() -> None:
    seen = thread_cells(Probed(BUSY).trace(10), THREAD, Grid(START_NS - 5 * NS_PER_S, NS_PER_S, 15))
    assert seen.cells[:5] == (None,) * 5
    assert seen.of("run_queue")[0] is None


def test_process_that_makes_no_cuda_calls_waits_for_no_gpu() -> None:
    tracks = (Track(ids.process(9), TrackKind.PROCESS, "Worker"),)
    others = {(ids.process(9), v.LIBRARY_OBSERVED): 1.0, FUTEX: 0.4}
    assert cells_of(Probed(BUSY, probes=others, tracks=tracks).trace(20)).knows_sync
    assert not cells_of(Probed(BUSY, probes={FUTEX: 0.4}).trace(20)).knows_sync


@settings(deadline=None)
@given(
    on_cpu=st.lists(st.floats(0, 1.2), min_size=10, max_size=10),
    run_queue=st.floats(0, 1),
    throttled=st.floats(0, 4),
    slept=st.dictionaries(st.sampled_from(["futex", "cuda_sync", "disk"]), st.floats(0, 1.5)),
    sync=st.floats(0, 2),
    yields=st.sampled_from([0.0, 2e5]),
    observed=st.sampled_from([None, 0.3, 1.0]),
)
def test_shares_of_every_cell_sum_to_one(
    on_cpu: list[float],
    run_queue: float,
    throttled: float,
    slept: dict[str, float],
    sync: float,
    yields: float,
    observed: float | None,
) -> None:
    probes = {(THREAD, v.labelled(v.THREAD_BLOCKED, cause)): share for cause, share in slept.items()}
    probes |= {(THREAD, v.THREAD_CUDA_SYNC): sync, (THREAD, v.labelled(v.THREAD_SPINS, "sched_yield")): yields}
    trace = Probed(
        {v.THREAD_ON_CPU: lambda s: on_cpu[s % 10], v.THREAD_RUN_QUEUE: run_queue},
        {(PROCESS, v.CGROUP_THROTTLED): throttled, SAMPLES: 1.0},
        probes,
        observed=observed,
    ).trace(10)
    for cell in cells_of(trace, 10).cells:
        assert cell is not None
        assert all(share > 0 for share in cell.values())
        assert sum(cell.values()) == pytest.approx(1.0)
