"""Traces of an engine whose steps are known: what probes would have told of its rounds, and what was planted."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.server.step_causes import StepCause
from llmtop.model import LIVE, Metric, Series, Trace, Track, TrackId, TrackKind
from llmtop.vocabulary import RoundPart

MS = 1_000_000
ENGINE = ids.thread(7, 8)
SERVER = ids.server(8000)
GPU = ids.gpu(0)


@dataclass(frozen=True)
class Round:
    """What happens from one wait for the GPU to the end of the next; all else of its time is on the CPU."""

    ns: float = 10 * MS
    parts: Mapping[RoundPart, float] = field(default_factory=lambda: {RoundPart.WAIT: 7 * MS})
    launches: float | None = 30
    graphs: float | None = 0
    faults: float | None = 0

    def longer(self, ns: float, part: RoundPart | None = None) -> Round:
        """The same, and so long in a part, or on the CPU."""
        parts = dict(self.parts)
        if part is not None:
            parts[part] = parts.get(part, 0.0) + ns
        return replace(self, ns=self.ns + ns, parts=parts)


Columns = dict[tuple[TrackId, str], Series]


def series_of(track: TrackId, metric: Metric, samples: Sequence[tuple[int, float | None]]) -> Columns:
    return {(track, metric.name): Series.of(track, metric, "eBPF", list(samples))}


def rounds_of(rounds: Sequence[Round], track: TrackId = ENGINE, start_ns: int = 0) -> Columns:
    """Their series, as probes write them: what is 0 has no sample but the first one."""
    ends, t = [], start_ns
    for one in rounds:
        t += int(one.ns)
        ends.append(t)
    made = series_of(track, v.THREAD_ROUND, [(end, int(one.ns)) for end, one in zip(ends, rounds, strict=True)])
    columns: dict[Metric, list[float | None]] = {
        v.ROUND_LAUNCHES: [one.launches for one in rounds],
        v.ROUND_GRAPHS: [one.graphs for one in rounds],
        v.ROUND_FAULTS: [one.faults for one in rounds],
    }
    for part in RoundPart:
        columns[v.labelled(v.THREAD_ROUND, part)] = [one.parts.get(part, 0.0) for one in rounds]
    for metric, values in columns.items():
        if values[0] is not None:
            told = [(end, value) for i, (end, value) in enumerate(zip(ends, values, strict=True)) if value or not i]
            made |= series_of(track, metric, told)
    return made


def trace_of(series: Mapping[tuple[TrackId, str], Series]) -> Trace:
    """A live trace of an engine, a server and a GPU."""
    tracks = {
        ENGINE: Track(ENGINE, TrackKind.THREAD, "EngineCore"),
        SERVER: Track(SERVER, TrackKind.SERVER, "vLLM"),
        GPU: Track(GPU, TrackKind.GPU, "GPU 0"),
        ids.gpu_process(GPU, 7): Track(ids.gpu_process(GPU, 7), TrackKind.GPU_PROCESS, "7", GPU),
        ids.process(7): Track(ids.process(7), TrackKind.PROCESS, "EngineCore"),
    }
    end_ns = max(one.last_t_ns or 0 for one in series.values())
    return Trace(LIVE, 0, end_ns, tracks=tracks, series=series)


def even(count: int, seed: int = 1) -> list[Round]:
    """Steps as they are on a busy machine: a tenth of a millisecond up and down, and some in the run queue."""
    chance = random.Random(seed)
    return [
        Round().longer(chance.gauss(0, 0.1) * MS).longer(chance.random() * 0.1 * MS, RoundPart.QUEUE)
        for _ in range(count)
    ]


def counter(track: TrackId, metric: Metric, grows_at: Sequence[int], end_ns: int) -> Columns:
    """A counter that is read every 20 ms, and grows at these times."""
    return series_of(track, metric, [(t, float(sum(one <= t for one in grows_at))) for t in range(0, end_ns, 20 * MS)])


PLANTED: Mapping[StepCause, Round] = {
    StepCause.QUEUE: Round().longer(6 * MS, RoundPart.QUEUE),
    StepCause.LOCK: Round().longer(8 * MS, RoundPart.LOCK),
    StepCause.ASLEEP: Round().longer(9 * MS, RoundPart.ASLEEP),
    StepCause.ALLOCATION: Round().longer(9 * MS, RoundPart.ALLOCATION),
    StepCause.COPY: Round().longer(5 * MS, RoundPart.COPY),
    StepCause.COLLECTION: Round().longer(12 * MS, RoundPart.COLLECTION),
    StepCause.FAULTS: replace(Round().longer(7 * MS), faults=9000),
    StepCause.OWN_CODE: Round().longer(6 * MS),
    StepCause.MORE_WORK: replace(Round().longer(14 * MS, RoundPart.WAIT).longer(4 * MS), launches=400),
    StepCause.SLOWER_GPU: Round().longer(6 * MS, RoundPart.WAIT),
}
"""A round with each cause that its own numbers tell."""
