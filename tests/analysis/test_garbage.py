"""What of a thread's time Python's collector takes: known where a probe saw it at work, and no 0 elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.threads.details import Detail, ThreadDetails, thread_details
from llmtop.analysis.threads.garbage import GarbageCollection, garbage_collection
from llmtop.analysis.threads.shares import ThreadsView, threads_view
from llmtop.analysis.threads.table import threads_table
from llmtop.model import Metric, Missing, Trace, Track, TrackId, TrackKind, Unknown
from tests.analysis.probe_traces import PROCESS, THREAD, Probed, Rate

CLOCKS = {v.THREAD_ON_CPU: 0.5, v.THREAD_RUN_QUEUE: 0.1}
AT_WORK: dict[tuple[TrackId, Metric], Rate] = {
    (PROCESS, v.labelled(v.LIBRARY_COUNT, v.PYTHON_COLLECTOR)): 4.0,
    (THREAD, v.THREAD_COLLECTING): 0.1,
    (THREAD, v.THREAD_COLLECTIONS): 4.0,
}


def cells(trace: Trace) -> dict[str, Any]:
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    table = threads_table(trace, view)
    return dict(zip([column.key for column in table.columns], table.cells(0), strict=True))


def test_the_share_of_the_time_and_how_often_a_second() -> None:
    trace = Probed(CLOCKS, probes=AT_WORK).trace()
    found = garbage_collection(trace, THREAD)
    assert isinstance(found, GarbageCollection)
    assert (found.share, found.per_s) == pytest.approx((0.1, 4.0))
    assert (cells(trace)["gc"], cells(trace)["gc_per_s"]) == pytest.approx((0.1, 4.0))
    details = thread_details(trace, [(ids.pid(THREAD), ids.tid(THREAD))])
    assert isinstance(details, ThreadDetails)
    assert Detail("garbage collection", "10 %, 4.00 /s") in details.parts[1][1]


def test_probes_that_looked_for_a_part_of_the_time_speak_for_that() -> None:
    rates = {key: rate * 0.6 for key, rate in AT_WORK.items() if isinstance(rate, float)}
    found = garbage_collection(Probed(CLOCKS, probes=rates, observed=0.6).trace(), THREAD)
    assert isinstance(found, GarbageCollection)
    assert (found.share, found.per_s) == pytest.approx((0.1, 4.0))
    assert isinstance(garbage_collection(Probed(CLOCKS, probes=rates, observed=0.4).trace(), THREAD), Unknown)


def test_another_thread_of_an_interpreter_that_collects_has_collected_nothing() -> None:
    other = Track(ids.thread(ids.pid(THREAD), 999), TrackKind.THREAD, "other", PROCESS)
    trace = Probed(CLOCKS, probes=AT_WORK, tracks=(other,)).trace()
    assert garbage_collection(trace, other.id) == GarbageCollection(0.0, 0.0)


def test_without_a_collection_nobody_knows_whether_there_is_a_collector() -> None:
    found = garbage_collection(Probed(CLOCKS).trace(), THREAD)
    assert isinstance(found, Unknown)
    assert found.reason == "no collection was seen: it runs no Python, or has collected nothing yet"


def test_an_interpreter_without_symbols_says_so() -> None:
    why = Unknown("this interpreter has neither probes nor symbols", "use another one")
    trace = Probed(CLOCKS, missing=(Missing(whats.function(v.PYTHON_COLLECTOR), why),)).trace()
    assert garbage_collection(trace, THREAD) == why
    assert cells(trace)["gc"] == cells(trace)["gc_per_s"] == why


def test_without_probes_the_reason_is_theirs() -> None:
    found = garbage_collection(Probed(CLOCKS, observed=None).trace(), THREAD)
    assert isinstance(found, Unknown)
    assert found.reason == "no probe sees Python's collector"
    why = Missing(whats.source("ebpf"), Unknown("this needs root", "sudo llmtop"))
    told = garbage_collection(Probed(CLOCKS, observed=None, missing=(why,)).trace(), THREAD)
    assert isinstance(told, Unknown)
    assert told.reason == "this needs root"
