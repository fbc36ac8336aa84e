"""Rounds of the GPU's work: what the kernel keeps of them, what is told, and as which series."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.collectors.tracing.helper.budget import Account
from llmtop.collectors.tracing.helper.functions import COLLECT, COLLECTOR, GRAPH, KINDS, LAUNCH, OTHER, QUERY, WAIT
from llmtop.collectors.tracing.probes.helper.gpu_rounds import GpuRounds
from llmtop.collectors.tracing.probes.helper.process_libraries import ProbedFunction, ProcessLibraries
from llmtop.collectors.tracing.probes.helper.sampling import Sampling
from llmtop.collectors.tracing.round_series import RoundSeries
from llmtop.collectors.tracing.wire import GpuRound
from llmtop.model import Metric
from llmtop.vocabulary import RoundPart
from tests.collectors.tracing.probes import probing, why_no_probes
from tests.collectors.tracing.recorded_maps import RecordedModule
from tests.workloads.noise import measured_again, no_others_first, put_first
from tests.workloads.programs import Workload, build_engine, compiler

PID, TID, END, START = 7, 8, 900, 400
ENTRY = (START, 300, 10, 20, 30, 40, 50, 60, 70, 5, 9, 1)
"""struct gpu_round of programs/library.c."""
NOT_KNOWN = 2**64 - 1


def process(steady: frozenset[str], since: int = 100) -> ProcessLibraries:
    one = ProcessLibraries(PID, Sampling(Account(1e6), 0.0), {"cuLaunchKernel": ProbedFunction({}, 1.0, LAUNCH)})
    one.sampling.steady = steady
    one.observe(since)
    return one


def taken(
    steady: frozenset[str] = frozenset(KINDS), entry: tuple[int, ...] = ENTRY, followed_since: int | None = 0
) -> list[GpuRound]:
    module = RecordedModule()
    rounds = GpuRounds(module.module, {PID: process(steady)})
    module["gpu_rounds"].put((END, TID, PID), entry)
    module["gpu_rounds"].put((END, TID, 99), entry)
    return rounds.take(followed_since)


def test_a_round_is_told_once_with_all_that_was_looked_at() -> None:
    assert taken() == [GpuRound(PID, TID, END, 500, 300, 9, 1, 5, 10, 20, 30, 40, 50, 60, 70)]


def test_what_was_not_looked_at_from_its_start_on_is_not_known() -> None:
    (one,) = taken(followed_since=START + 1)
    assert (one.queued, one.locked, one.for_input, one.asleep) == (None,) * 4
    (one,) = taken(followed_since=None)
    assert one.locked is None
    assert taken(frozenset(KINDS) - {QUERY}), "nobody may ask"
    (one,) = taken(frozenset({WAIT, OTHER}))
    assert (one.launches, one.graphs, one.allocation, one.copy) == (None, None, 50, 60)
    (one,) = taken(frozenset({WAIT, GRAPH, LAUNCH}))
    assert (one.launches, one.graphs, one.allocation, one.copy, one.collection) == (9, 1, None, None, None)
    (one,) = taken(frozenset({WAIT, COLLECT}))
    assert (one.launches, one.copy, one.collection) == (None, None, 70)
    (one,) = taken(frozenset({WAIT, GRAPH}))
    assert (one.launches, one.graphs) == (None, 1), "graphs are counted all the time where kernels are too many"
    (one,) = taken(frozenset({WAIT, LAUNCH}))
    assert (one.launches, one.graphs) == (None, None), "launches are of graphs too"
    (one,) = taken(entry=(*ENTRY[:9], NOT_KNOWN, *ENTRY[10:]))
    assert one.faults is None


def test_an_interpreter_whose_collector_cannot_be_found_makes_collections_unknown() -> None:
    module, one = RecordedModule(), process(frozenset(KINDS))
    one.refused.add(COLLECTOR)
    rounds = GpuRounds(module.module, {PID: one})
    module["gpu_rounds"].put((END, TID, PID), ENTRY)
    (found,) = rounds.take(0)
    assert (found.copy, found.collection) == (60, None)


def test_of_a_round_whose_waits_were_not_all_seen_nothing_is_told() -> None:
    assert taken(frozenset({LAUNCH, OTHER})) == []
    assert taken(entry=(99, *ENTRY[1:])) == [], "it began before the probes"


def test_the_kernel_is_told_of_processes_whose_launches_it_does_not_count() -> None:
    module = RecordedModule()
    one = process(frozenset({WAIT}))
    rounds = GpuRounds(module.module, {PID: one})
    for steady in ({WAIT}, {WAIT, GRAPH}, {WAIT, LAUNCH}):
        one.sampling.steady = frozenset(steady)
        rounds.take(None)
        assert set(module["uncounted"].rows) == {(PID,)}
    one.sampling.steady = frozenset(KINDS)
    rounds.take(None)
    assert not module["uncounted"].rows


def test_what_is_nought_has_no_sample_but_the_first_one() -> None:
    series = RoundSeries("eBPF")
    rows = [
        GpuRound(PID, TID, 100, 90, 60, 9, 0, None, 0, 0, 0, 0, None, None, None),
        GpuRound(PID, TID, 200, 100, 70, 9, 1, 3, 0, 5, 0, 0, 0, None, None),
        GpuRound(PID, TID, 300, 100, 70, 9, 0, 0, None, None, None, None, 0, 4, 6),
    ]
    readings = list(series.readings(rows))
    told = [(one.metric.name, one.t_ns, one.value) for one in readings]
    assert {(one.track, one.source) for one in readings} == {(ids.thread(PID, TID), "eBPF")}

    def of(metric: Metric) -> list[tuple[int, float | None]]:
        return [(t, value) for name, t, value in told if name == metric.name]

    assert of(v.THREAD_ROUND) == [(100, 90), (200, 100), (300, 100)]
    assert of(v.ROUND_GRAPHS) == [(100, 0), (200, 1)]
    assert of(v.ROUND_FAULTS) == [(200, 3)]
    assert of(v.labelled(v.THREAD_ROUND, RoundPart.LOCK)) == [(100, 0), (200, 5), (300, None)]
    assert of(v.labelled(v.THREAD_ROUND, RoundPart.ALLOCATION)) == [(200, 0)]
    assert of(v.labelled(v.THREAD_ROUND, RoundPart.COPY)) == [(300, 4)]
    assert of(v.labelled(v.THREAD_ROUND, RoundPart.COLLECTION)) == [(300, 6)]


def test_a_thread_that_takes_the_id_of_one_that_ended_begins_anew() -> None:
    series = RoundSeries("eBPF")
    row = GpuRound(PID, TID, 100, 90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    first = len(list(series.readings([row])))
    assert (first, len(list(series.readings([row])))) == (12, 1)
    series.forget({ids.thread(PID, TID)})
    assert len(list(series.readings([row]))) == 12


# -- the kernel's own -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine whose slow steps are known."""
    if why := why_no_probes():
        pytest.skip(why)
    if compiler() is None:
        pytest.skip("needs a C compiler (gcc) for a stand-in libcuda")
    return build_engine(tmp_path_factory.mktemp("engine"))


MS = 1_000_000
STEPS, EVERY = 200, 10


def rounds_told(engine: Path, mode: str) -> tuple[dict[str, GpuRound], list[GpuRound]]:
    """One round of each planted cause, by it, and all of them."""
    with (
        no_others_first(),
        Workload(engine, mode, str(STEPS), str(EVERY)) as program,
        probing(program.pid) as probes,
    ):
        put_first([program.pid], 1)
        put_first([probes.helper.process.pid], 2)
        probes.until(lambda report: report.get("probed") == 7 and not report["settling"])
        program.start()
        planted: Any = program.account()
        probes.next()
    told = [GpuRound._make(one) for one in probes.all("gpu_rounds")]
    assert told == sorted(told, key=lambda one: one.end)
    return {cause: min(told, key=lambda one: abs(one.end - end)) for cause, end in planted}, told


@measured_again
def test_each_round_is_seen_with_what_it_was_spent_in(engine: Path) -> None:
    by_cause, told = rounds_told(engine, "plain")
    assert len(told) == STEPS - 1, "the first one has no beginning"
    assert all(later.end - later.ns == one.end for one, later in pairwise(told))
    assert all(one.wait >= 3.9 * MS for one in told)
    for cause, field in (("asleep", "asleep"), ("input", "for_input"), ("allocation", "allocation"), ("copy", "copy")):
        *others, first, second = sorted(getattr(one, field) for one in told)
        assert getattr(by_cause[cause], field) in (first, second), cause
        assert max(others) < 1 * MS < 8 * MS <= first, cause
    assert (by_cause["lock"].locked or 0) > 5 * MS
    assert (by_cause["run queue"].queued or 0) > 2 * MS
    assert (by_cause["page faults"].faults or 0) >= (64 << 20) // 4096
    assert {(one.launches, one.graphs) for one in told} == {(9, 1), (409, 1)}
    assert by_cause["more work"].launches == 409
    assert by_cause["slower GPU"].wait >= 12.9 * MS


@measured_again
def test_a_round_ends_where_the_gpu_is_asked_no_more(engine: Path) -> None:
    by_cause, told = rounds_told(engine, "polls")
    assert len(told) == STEPS - 1
    assert {(one.launches, one.graphs) for one in told} == {(9, 1), (409, 1)}
    long = [one for one in told if one.wait + (one.queued or 0) >= 3.5 * MS]
    assert len(long) >= 0.95 * len(told), "a virtual machine may lose the CPU to others without a word"
    assert by_cause["slower GPU"].wait + (by_cause["slower GPU"].queued or 0) >= 12.5 * MS
    assert (by_cause["asleep"].asleep or 0) >= 8 * MS


@measured_again
def test_a_round_ends_where_another_thread_has_waited(engine: Path) -> None:
    by_cause, told = rounds_told(engine, "apart")
    assert len({one.tid for one in told}) == 1
    assert len(told) == STEPS - 1
    assert all(one.wait >= 3.9 * MS for one in told)
    assert (by_cause["page faults"].faults or 0) >= (64 << 20) // 4096
    assert sum((one.faults or 0) >= 1000 for one in told) == STEPS // EVERY // 10, "those of who launches"
    assert by_cause["slower GPU"].wait >= 12.9 * MS
    assert (by_cause["asleep"].asleep or 0) >= 8 * MS
