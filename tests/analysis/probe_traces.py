"""Threads under probes: clocks at every poll, probe counters only where they moved, as the collectors give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.model import NS_PER_S, Metric, Missing, Origin, Reading, Trace, Track, TrackId, TrackKind
from llmtop.session import Recorder
from tests.live_traces import SOURCES

START_NS = 500 * NS_PER_S
THREAD = ids.thread(7, 8)
PROCESS = ids.process(7)
GPU = ids.gpu(0)
SERVER = ids.server(8000)

Rate = float | Callable[[int], float]
"""Per second; or by second, for what changes."""


@dataclass(frozen=True)
class Probed:
    """One engine thread of one process, a GPU and a server, second by second.

    Attributes:
        clocks: ns per ns, by clock of the thread.
        probes: By (track, metric): growth a second.
        gauges: By (track, metric): values.
        observed: ns per ns in which probes were attached; None for no probes at all.
        calls_until: The second in which the system calls' probes are taken off; None for never.
        probes_from: The second in which all probes are attached.
        jitter_ns: How late each third poll is.
    """

    clocks: Mapping[Metric, Rate] = field(default_factory=dict)
    counters: Mapping[tuple[TrackId, Metric], Rate] = field(default_factory=dict)
    probes: Mapping[tuple[TrackId, Metric], Rate] = field(default_factory=dict)
    gauges: Mapping[tuple[TrackId, Metric], Rate | Callable[[int], float | None]] = field(default_factory=dict)
    observed: float | None = 1.0
    calls_until: int | None = None
    probes_from: int = 0
    jitter_ns: int = 0
    missing: tuple[Missing, ...] = ()
    role: str = "EngineCore"
    tracks: tuple[Track, ...] = ()

    def trace(self, seconds: int = 12) -> Trace:
        """What the recorder holds after so many seconds."""
        recorder = Recorder(Origin("live"))
        recorder.tell_sources(SOURCES.all)
        sums: dict[tuple[TrackId, str], float] = {}
        for second in range(seconds + 1):
            recorder.append("test", self._poll(second, sums))
        return recorder.freeze()

    def _poll(self, second: int, sums: dict[tuple[TrackId, str], float]) -> Trace:
        t = START_NS + second * NS_PER_S + self.jitter_ns * (second % 3)
        readings = []
        clocks = {(THREAD, clock): rate for clock, rate in self.clocks.items()}
        for (track, metric), rate in (clocks | dict(self.counters)).items():
            scale = NS_PER_S if metric.unit == "ns" else 1
            value = _grow(sums, track, metric, rate, second, scale)[1]
            readings.append(Reading(track, metric, t, value, "schedstat"))
        for (track, metric), level in self.gauges.items():
            readings.append(Reading(track, metric, t, level(second) if callable(level) else level, "GPM"))
        readings += self._probed(second, t, sums)
        return Trace(Origin("live"), t, t, tracks=self._tracks(), readings=tuple(readings), missing=self.missing)

    def _probed(self, second: int, t: int, sums: dict[tuple[TrackId, str], float]) -> list[Reading]:
        readings: list[Reading] = []
        if self.observed is None or second < self.probes_from:
            return readings
        clocks = [v.SCHEDULER_OBSERVED, v.SYSCALL_OBSERVED]
        if self.sees_libraries:
            clocks.append(v.LIBRARY_OBSERVED)
        for metric in clocks:
            is_off = metric is v.SYSCALL_OBSERVED and self.calls_until is not None and second > self.calls_until
            value = _grow(sums, PROCESS, metric, 0.0 if is_off else self.observed, second, NS_PER_S)[1]
            readings.append(Reading(PROCESS, metric, t, value, "eBPF"))
        for (track, metric), rate in self.probes.items():
            before, after = _grow(sums, track, metric, rate, second, NS_PER_S if metric.unit == "ns" else 1)
            if after == before:
                continue
            if before == 0:
                readings.append(Reading(track, metric, t - NS_PER_S, 0.0, "eBPF"))
            readings.append(Reading(track, metric, t, after, "eBPF"))
        return readings

    @property
    def sees_libraries(self) -> bool:
        """Whether its process maps a CUDA library that has probes all the time."""
        if (PROCESS, v.LIBRARY_OBSERVED) in self.probes:
            return False
        calls = (v.LIBRARY_COUNT.name, v.THREAD_LAUNCHES.name, v.THREAD_CUDA_SYNC.name)
        return any(track in (THREAD, PROCESS) and metric.name.startswith(calls) for track, metric in self.probes)

    def _tracks(self) -> dict[TrackId, Track]:
        found = [
            Track(PROCESS, TrackKind.PROCESS, self.role, facts={"role": self.role}),
            Track(THREAD, TrackKind.THREAD, "engine", PROCESS, {"role": self.role}),
            *self.tracks,
        ]
        used = {track for track, _ in self.gauges} | {track for track, _ in self.counters}
        if GPU in used:
            found.append(Track(GPU, TrackKind.GPU, "NVIDIA H100"))
        if SERVER in used:
            found.append(Track(SERVER, TrackKind.SERVER, "vLLM :8000"))
        return {track.id: track for track in found}


def _grow(
    sums: dict[tuple[TrackId, str], float], track: TrackId, metric: Metric, rate: Rate, second: int, scale: float
) -> tuple[float, float]:
    """The counter before and after one second."""
    key = (track, metric.name)
    before = sums.get(key, 0.0)
    grown = 0.0 if second == 0 else scale * (rate(second) if callable(rate) else rate)
    sums[key] = before + grown
    return before, sums[key]
