"""What `llmtop report --format perfetto` writes, in Perfetto's own trace processor: it is all there, and as meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.rates import rate_samples
from llmtop.cli import main
from llmtop.demo.replays import REPLAYS
from llmtop.frozen import frozen
from llmtop.ids import pid, tid
from llmtop.model import Trace, TrackKind
from llmtop.parsers.registry import load
from tests.e2e.trace_processor import WHY_NOT, LoadedTrace, is_here, trace_processor

pytestmark = pytest.mark.skipif(not is_here(), reason=WHY_NOT)
DEMO = Path(__file__).resolve().parents[2] / "sample_traces/recording/1/demo-server.llmtop.xz"
RECORDINGS = {DEMO.name.partition(".")[0]: DEMO} | {name: replay.path for name, replay in REPLAYS.items()}
COUNTERS = """
    SELECT process.name AS of, process_counter_track.name, counter.ts, counter.value
    FROM counter JOIN process_counter_track ON counter.track_id = process_counter_track.id JOIN process USING (upid)
    ORDER BY counter.ts
"""
STATES = """
    SELECT process.pid, thread.tid, slice.name, slice.ts, slice.dur
    FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)
    ORDER BY slice.ts
"""
INSTANTS = """
    SELECT process.name AS of, slice.name, slice.ts, slice.dur
    FROM slice JOIN process_track ON slice.track_id = process_track.id JOIN process USING (upid)
"""


@frozen
class Loaded:
    """A recording, by us and by Perfetto."""

    ours: Trace
    perfetto: LoadedTrace


@pytest.fixture(scope="module", params=list(RECORDINGS.values()), ids=list(RECORDINGS))
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    written = tmp_path_factory.mktemp("perfetto") / "trace.json"
    assert main(["report", str(request.param), "--format", "perfetto", "-o", str(written)]) == 0
    with trace_processor(written) as perfetto:
        yield Loaded(load(request.param), perfetto)


def test_nothing_is_refused_or_lost(loaded: Loaded) -> None:
    wrong = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
    assert loaded.perfetto.ask(wrong) == []


def test_processes_and_threads_are_named(loaded: Loaded) -> None:
    """Besides the one that Linux calls swapper, which every trace in Perfetto has, nothing is without a name."""
    tracks = loaded.ours.tracks
    threads = Counter((pid(id), tid(id), one.name) for id, one in tracks.items() if one.kind is TrackKind.THREAD)
    told = loaded.perfetto.ask("SELECT pid, tid, thread.name FROM thread JOIN process USING (upid) WHERE upid > 0")
    assert threads <= Counter(told)
    assert all(process == thread for process, thread, _ in Counter(told) - threads), "Perfetto's own: the first threads"
    names = Counter(name for (name,) in loaded.perfetto.ask("SELECT name FROM process WHERE upid > 0"))
    ours = [one for one in tracks.values() if one.kind is not TrackKind.THREAD]
    assert names.total() == len(ours) + names["findings and events"]
    assert all(any(name.endswith(one.name) for name in names) for one in ours)
    assert sum(name.startswith("GPU 0: ") for name in names) == len(list(loaded.ours.tracks_of(TrackKind.GPU)))


def test_each_number_is_there_at_its_time_in_its_unit(loaded: Loaded) -> None:
    """Of counters their rates, from the look on that they are counted from. Parts of numbers (buckets) are left out.

    Perfetto reads one in a few hundred with another last bit than it was written with.
    """
    ours = list[tuple[str, int, float]]()
    for (track, _), series in loaded.ours.series.items():
        metric = series.metric
        if loaded.ours.tracks[track].kind is TrackKind.THREAD or v.is_part(metric):
            continue
        unit = f"{metric.unit}/s" if metric.counter else metric.unit
        rates = zip(series.times[:-1], (rate for _, rate in rate_samples(series)), strict=True)
        samples = rates if metric.counter else series
        ours += [(f"{metric.title or metric.name} ({unit})", t, value) for t, value in samples if value is not None]
    told = sorted(tuple(one[1:]) for one in loaded.perfetto.ask(COUNTERS))
    ours.sort()
    assert ours
    assert [one[:2] for one in told] == [one[:2] for one in ours]
    assert [one[2] for one in told] == pytest.approx([one[2] for one in ours], rel=1e-15, abs=0)


def test_the_gpus_numbers_are_of_the_gpu(loaded: Loaded) -> None:
    told = [(name, t, value) for of, name, t, value in loaded.perfetto.ask(COUNTERS) if of.startswith("GPU 0: ")]
    for gpu in loaded.ours.tracks_of(TrackKind.GPU):
        assert [one[1:] for one in told if one[0] == "power (W)"] == list(loaded.ours.series[gpu.id, "gpu.power"].known)


def test_threads_are_in_their_states_without_a_gap_or_overlap(loaded: Loaded) -> None:
    """From the first look at a thread to the last, in each stretch in what the clocks say that it did mostly."""
    looks: dict[tuple[int, int], dict[int, float]] = {}
    for (track, name), series in loaded.ours.series.items():
        if name == v.THREAD_ON_CPU.name and len(values := dict(series.known)) > 1:
            looks[pid(track), tid(track)] = values
    states: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for process, thread, name, t_ns, dur_ns in loaded.perfetto.ask(STATES):
        states.setdefault((process, thread), []).append((name, t_ns, t_ns + dur_ns))
    assert states.keys() == looks.keys()
    for thread, slices in states.items():
        values = looks[thread]
        assert [end for *_, end in slices[:-1]] == [start for _, start, _ in slices[1:]]
        assert (slices[0][1], slices[-1][2]) == (min(values), max(values))
        for name, start_ns, end_ns in slices:
            assert name in ("on CPU", "waits for a CPU", "sleeps") or name.startswith("sleeps: ")
            busy = (values[end_ns] - values[start_ns]) / (end_ns - start_ns)
            assert busy >= 0.5 if name == "on CPU" else busy <= 0.5


def said_changes(trace: Trace) -> Iterator[tuple[str, int, int]]:
    """What codes and bits stand for, when they become another."""
    for (track, _), series in trace.series.items():
        if series.metric.unit in v.SIGNS and trace.tracks[track].kind is not TrackKind.THREAD:
            for (_, before), (t_ns, value) in pairwise([(0, None), *series.known]):
                if value != before:
                    yield f"{series.metric.title}: {v.said(series.metric, value or 0.0)}", t_ns, 0


def test_events_and_findings_are_told_when_they_were(loaded: Loaded) -> None:
    ours = Counter((mark.text, mark.t_ns, 0) for mark in loaded.ours.marks)
    ours.update(said_changes(loaded.ours))
    ours.update((finding.headline(), loaded.ours.end_ns, 0) for finding in diagnose(loaded.ours).findings)
    told = loaded.perfetto.ask(INSTANTS)
    assert ours
    assert Counter(tuple(one[1:]) for one in told) == ours
    assert {of.partition(":")[0] for of, name, *_ in told if name.startswith("XID")} <= {"GPU 0"}
