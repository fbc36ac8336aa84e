"""Looks at purpose-built programs as at LLM servers: real clocks and probes, a made-up GPU and endpoint."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.rules.thread_signals import threads
from llmtop.collectors import children
from llmtop.collectors.proc import ProcCollector
from llmtop.collectors.pyspy import PySpyCollector
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import (
    NS_PER_S,
    Finding,
    Origin,
    Reading,
    Trace,
    Track,
    TrackId,
    TrackKind,
)
from llmtop.session import Session
from tests.collectors.tracing.probes import eventually
from tests.live_traces import PlayedCollector, readings
from tests.workloads.noise import no_others_first, put_first
from tests.workloads.programs import Workload, target_of

LOOK_NS = 2 * NS_PER_S
"""What has not been said by then is for most programs never said; probes speak for half of what has been seen."""
PATIENCE_NS = 6 * NS_PER_S
AGAIN_NS = NS_PER_S // 4


@dataclass(frozen=True)
class Case:
    """Programs as the processes of one server, and what its GPU and endpoint say.

    Attributes:
        roles: By program, the role of each of its processes, in order.
        has_to_queue: Whether the programs are to run like everybody else's.
        expected: All the rules that must speak.
        without: Metrics to leave out, as if nobody had read them.
    """

    roles: Mapping[str, tuple[str, ...]]
    sm: float
    running: float
    waiting: float
    expected: frozenset[str]
    without: tuple[str, ...] = ()
    has_to_queue: bool = False


@dataclass(frozen=True)
class Looked:
    """What a look has brought: the trace of the case's server, its diagnosis, and the machine's load average then."""

    trace: Trace
    findings: tuple[Finding, ...]
    load: float

    @property
    def rules(self) -> frozenset[str]:
        """The rules that have spoken."""
        return frozenset(finding.rule for finding in self.findings)

    @property
    def queued(self) -> float:
        """The largest share of the time that one of its threads waited for a CPU."""
        return max((thread.shares.run_queue for thread in threads(self.trace)), default=0.0)


def surroundings(cases: Sequence[Case]) -> PlayedCollector:
    """The GPU and the endpoint of each case: track "gpu:N" and "server:N" for the Nth."""
    tracks = {ids.gpu(n): Track(ids.gpu(n), TrackKind.GPU, "GPU") for n in range(len(cases))}
    tracks |= {ids.server(n): Track(ids.server(n), TrackKind.SERVER, f"server {n}") for n in range(len(cases))}

    def play(now: int) -> Trace:
        told: list[Reading] = []
        for n, case in enumerate(cases):
            told += readings(ids.gpu(n), {v.GPU_ACTIVE: case.sm}, now, "made up")
            requests = {v.SERVER_RUNNING: case.running, v.SERVER_WAITING: case.waiting}
            told += readings(ids.server(n), requests, now, "made up")
        return Trace(Origin("live"), now, now, tracks=tracks, readings=tuple(told))

    return PlayedCollector("surroundings", play)


class Watch:
    """All programs under one session, idle until they are started.

    Args:
        programs: How each is made; they live until the watch ends or `look` is over.
        cases: By name.
        group_of: The program whose cgroup is read.
    """

    def __init__(
        self, programs: Mapping[str, Callable[[], Workload]], cases: Mapping[str, Case], group_of: str
    ) -> None:
        self._makers = programs
        self._cases = cases
        self._group_of = group_of
        self._ends = {name: ExitStack() for name in programs}
        self._stack = ExitStack()
        self._news = threading.Event()
        self.programs: dict[str, Workload] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for name, end in self._ends.items():
                self.programs[name] = end.enter_context(self._makers[name]())
                stack.callback(end.close)
            self.session = self._session()
            stack.callback(self.session.stop)
            self.session.start()
            assert eventually(self._is_attached), self.session.trace().missing
            put_first(children.running(), priority=3)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _session(self) -> Session:
        first = self.programs[self._group_of]
        target = target_of(first.pid, *(pid for program in self.programs.values() for pid in program.pids))
        pyspy = PySpyCollector(target, budget=0.1)
        pyspy.ask(whats.PYTHON_FRAMES, wanted=True)
        probes = EbpfCollector(target, budget=100.0, stacks=False, interval_s=0.25)
        collectors = (ProcCollector(target), probes, pyspy, surroundings(tuple(self._cases.values())))
        return Session(collectors, Origin("live"), interval_s=0.25, on_news=self._news.set)

    def look(self, names: Sequence[str]) -> dict[str, Looked]:
        """Start the programs of some cases, look until all is said that must be, and end them."""
        with no_others_first():
            return self._look(names)

    def _look(self, names: Sequence[str]) -> dict[str, Looked]:
        cases = {name: self._cases[name] for name in names}
        running = {name: self.programs[name] for case in cases.values() for name in case.roles}
        fair = {name for case in cases.values() if case.has_to_queue for name in case.roles}
        start_ns = time.monotonic_ns()
        for name, program in running.items():
            if name not in fair:
                put_first(program.pids, priority=2)
            program.start()
        seen = self._when_told(cases, start_ns)
        for name in running:
            self._ends[name].close()
        return seen

    def _when_told(self, cases: Mapping[str, Case], start_ns: int) -> dict[str, Looked]:
        """What is said when everything is, or at the last."""
        first_ns, last_ns = start_ns + LOOK_NS, start_ns + PATIENCE_NS
        seen: dict[str, Looked] = {}
        while (now := time.monotonic_ns()) < last_ns:
            self._news.clear()
            self._news.wait((last_ns - now) / NS_PER_S)
            if time.monotonic_ns() < first_ns:
                continue
            seen = {name: self._diagnosed(name, start_ns) for name in cases}
            if all(seen[name].rules == case.expected for name, case in cases.items()):
                break
            first_ns = time.monotonic_ns() + AGAIN_NS
        return seen

    def _diagnosed(self, name: str, start_ns: int) -> Looked:
        trace = self._server(name, start_ns)
        return Looked(trace, diagnose(trace).findings, os.getloadavg()[0])

    def _server(self, name: str, start_ns: int) -> Trace:
        """The part of the trace that is about one case's server, since its programs were started."""
        n, case = list(self._cases).index(name), self._cases[name]
        whole = self.session.trace()
        roles = {
            pid: role
            for program, several in case.roles.items()
            for pid, role in zip(self.programs[program].pids, several, strict=True)
        }
        kept = {ids.HOST: whole.tracks[ids.HOST]} | {id: whole.tracks[id] for id in (ids.gpu(n), ids.server(n))}
        for id, track in whole.tracks.items():
            if (pid := _process_of(id)) in roles:
                role = roles[pid]
                called = role if track.kind is TrackKind.PROCESS else track.name
                kept[id] = replace(track, name=called, facts={**track.facts, "role": role})
        series = {
            key: one.between(start_ns, whole.end_ns)
            for key, one in whole.series.items()
            if key[0] in kept and not key[1].startswith(case.without or ("?",))
        }
        return replace(whole, start_ns=start_ns, tracks=kept, series=series)

    def _is_attached(self) -> bool:
        series = self.session.trace().series
        return ("self", v.SELF_PROBE_HITS.name) in series and ("host", v.HOST_CPU_PRESSURE.name) in series


def _process_of(track: TrackId) -> int:
    kind, _, rest = track.partition(":")
    return int(rest.partition("/")[0]) if kind in ("process", "thread") else -1
