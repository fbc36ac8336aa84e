"""Which tracer looks into the kernel: eBPF probes, else perf (docs/tracers.md)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.collectors.base import DEFAULT_BUDGET, Collector, DoctorCheck, Probes, Starting
from llmtop.collectors.tracing.switches import CHOICE, NONE, OFF
from llmtop.model import LIVE, Issue, Mark, MarkKind, Missing, Reading, Severity, Source, Target, Trace, Unknown
from llmtop.remedies import each_once

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock

_LEFT_OUT = Unknown("left out by --probes light", "--probes full, the default")
_SEES = {
    Probes.FULL: "threads on and off the CPU, system calls, stacks, library calls, within the budget; the default",
    Probes.LIGHT: "threads on and off the CPU, counts of system calls; no stacks, no library calls",
}
_SEEN_WITHOUT = "nothing is loaded: threads' clocks and states from /proc; no system calls, stacks, library calls"
_SWITCHED_OFF = Unknown("switched off by --probes off", "--probes full, the default, or light")


class TracingCollector(Collector, Protocol):
    """A collector that looks into the kernel: the same readings and stacks, whatever does the looking."""

    @property
    def unavailable(self) -> Unknown | None:
        """Why it cannot look here for good; None while it does, starts, or is about to try again."""
        ...


@dataclass(frozen=True)
class Tracer:
    """One way to look: its name for people, and what makes its collector."""

    name: str
    make: Callable[[Target, Probes, float], TracingCollector]


def _probes(target: Target, probes: Probes, budget: float) -> TracingCollector:
    from llmtop.collectors.tracing.probes.collector import EbpfCollector

    return EbpfCollector(target, budget=budget, is_light=probes is Probes.LIGHT)


def _perf(target: Target, probes: Probes, budget: float) -> TracingCollector:
    from llmtop.collectors.tracing.perf.collector import PerfCollector

    return PerfCollector(target, budget=budget, is_light=probes is Probes.LIGHT)


TRACERS: tuple[Tracer, ...] = (Tracer("ebpf", _probes), Tracer("perf", _perf))
"""Best first: what sees the most at the least cost."""


class TracerCollector:
    """Looks with the best tracer that works here, and goes on with the next when one turns out not to.

    Views ask for the reason why there is nothing under this collector's name, whichever tracer it uses.
    """

    name = "ebpf"
    owns = Source(
        name,
        families=("scheduler.", "syscall.", "library."),
        metrics=(
            *(v.PROCESS_RUN_QUEUE_LATENCY, v.PROCESS_GIL_WAITS, v.THREAD_BLOCKED, v.THREAD_WAKES, v.THREAD_SPINS),
            *(v.THREAD_LAUNCHES, v.THREAD_CUDA_SYNC, v.THREAD_COLLECTING, v.THREAD_COLLECTIONS, v.SELF_PROBE_HITS),
            *(v.THREAD_ROUND, v.ROUND_LAUNCHES, v.ROUND_GRAPHS, v.ROUND_FAULTS),
        ),
        whats=(whats.STACKS, whats.ON_CPU_STACKS, whats.SYSCALLS, whats.SCHEDULER, whats.LIBRARY_CALLS, whats.ROUNDS),
    )
    period_s = 0.25

    def __init__(
        self,
        target: Target,
        *,
        probes: Probes = Probes.FULL,
        tracers: tuple[Tracer, ...] | None = None,
        budget: float = DEFAULT_BUDGET,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._target = target
        self._probes = probes
        self._budget = budget
        self._clock = clock
        self._left = [] if probes is Probes.OFF else list(chosen() if tracers is None else tracers)
        self._reasons: dict[str, Unknown] = {}
        """Why the tracers before the current one are not used, by name, best first."""
        self._tracer: Tracer | None = None
        self._collector: TracingCollector | None = None
        self._told: dict[tuple[str, str], Reading] = {}
        """The last reading of each series, for the gaps that a change of tracer leaves."""
        self._issues: list[Issue] = []

    @property
    def tracer(self) -> str:
        """The name of the tracer in use; empty when there is none."""
        return self._tracer.name if self._tracer else ""

    @property
    def unavailable(self) -> Unknown | None:
        """Why no tracer works here; None while one may."""
        return None if self._collector or self._left else self._why_none()

    def missing(self) -> Unknown | None:
        if self._collector is None:
            self._choose()
        return None if self._collector else self._why_none()

    def __enter__(self) -> Self:
        if self._collector is None:
            self._choose()
        if self._collector:
            self._collector.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._collector:
            self._collector.__exit__(kind, error, trace)
        self._collector = self._tracer = None

    def poll(self) -> Trace:
        now = self._clock()
        if self._collector is None:
            mode = whats.state(self.name, whats.State.OFF)
            off = (Missing(mode, _SWITCHED_OFF),) if self._probes is Probes.OFF else ()
            return Trace(LIVE, now, now, missing=(Missing(whats.source(self.name), self._why_none()), *off))
        trace = self._collector.poll()
        why = self._collector.unavailable
        if why is not None:
            return self._go_on(why, trace)
        self._remember(trace)
        return self._with_notes(trace)

    @property
    def is_starting(self) -> bool:
        """Whether the tracer in use has not begun to look yet."""
        collector = self._collector
        return isinstance(collector, Starting) and collector.is_starting

    def _choose(self) -> None:
        """Take the first tracer that knows of no reason against it."""
        while self._left and self._collector is None:
            tracer = self._left.pop(0)
            collector = tracer.make(self._target, self._probes, self._budget)
            why = collector.missing()
            if why is None:
                self._tracer, self._collector = tracer, collector
            else:
                self._reasons[tracer.name] = why
        if self._tracer and self._reasons:
            message = f"{self._tracer.name} looks into the kernel in place of {_reasons(self._reasons)}"
            self._issues.append(Issue(Severity.INFO, "tracer-fallback", message))

    def _go_on(self, why: Unknown, last: Trace) -> Trace:
        """The tracer has given up: the next one starts. `last` is what the former still had to say."""
        assert self._tracer is not None
        assert self._collector is not None
        self._reasons[self._tracer.name] = why
        self._collector.__exit__(None, None, None)
        self._tracer = self._collector = None
        self._choose()
        if self._collector:
            self._collector.__enter__()
        readings = (*last.readings, *self._gaps(last))
        if self._collector is None:
            nothing = (Missing(whats.source(self.name), self._why_none()),)
            return replace(last, readings=readings, missing=nothing)
        return self._with_notes(replace(last, readings=readings, missing=()))

    def _remember(self, trace: Trace) -> None:
        for reading in trace.readings:
            self._told[reading.track, reading.metric.name] = reading
        if trace.gone:
            gone = set(trace.gone)
            self._told = {key: reading for key, reading in self._told.items() if key[0] not in gone}

    def _gaps(self, last: Trace) -> tuple[Reading, ...]:
        """The next tracer counts from 0: no rate may be made across the change."""
        self._remember(last)
        now = self._clock()
        told, self._told = self._told, {}
        return tuple(replace(reading, t_ns=max(now, reading.t_ns + 1), value=None) for reading in told.values())

    def _with_notes(self, trace: Trace) -> Trace:
        assert self._tracer is not None
        issues, self._issues = tuple(self._issues), []
        marks = tuple(Mark(trace.end_ns, MarkKind.TRACER, ids.SELF, issue.message, issue.severity) for issue in issues)
        missing = tuple(self._as_ours(one, self._tracer.name) for one in trace.missing)
        if self._reasons:
            missing = (*missing, Missing(whats.BEST_TRACER, self._why_fallback()))
        if self._probes is Probes.LIGHT:
            left_out = (whats.state(self.name, whats.State.LIGHT), whats.STACKS, whats.LIBRARY_CALLS)
            missing = (*missing, *(Missing(what, _LEFT_OUT) for what in left_out))
        return replace(trace, missing=missing, issues=(*trace.issues, *issues), marks=(*trace.marks, *marks))

    def _as_ours(self, missing: Missing, tracer: str) -> Missing:
        """What a tracer says of itself ("perf", "perf.shed") is said of the kernel's view."""
        what = whats.renamed(missing.what, tracer, self.name)
        return missing if what == missing.what else replace(missing, what=what)

    def _why_fallback(self) -> Unknown:
        assert self._tracer is not None
        remedies = [why.remedy for why in self._reasons.values()]
        return Unknown(f"{self._tracer.name} looks in place of {_reasons(self._reasons)}", remedies[0])

    def _why_none(self) -> Unknown:
        if self._probes is Probes.OFF:
            return _SWITCHED_OFF
        if not self._reasons:
            return _why_nothing_chosen()
        distinct = {why.reason for why in self._reasons.values()}
        reason = distinct.pop() if len(distinct) == 1 else _reasons(self._reasons)
        return Unknown(reason, _remedies(self._reasons))


def chosen() -> tuple[Tracer, ...]:
    """The tracers that may be tried, best first, as the environment has it."""
    choice = os.environ.get(CHOICE, "")
    if choice:
        return tuple(tracer for tracer in TRACERS if tracer.name == choice)
    # The first one says by itself that it is switched off; perf, which is not asked for, stays away too.
    return TRACERS[:1] if os.environ.get(OFF) else TRACERS


def are_allowed(probes: Probes) -> bool:
    """Whether the kernel may be asked for events at all."""
    choice = os.environ.get(CHOICE, "")
    return probes is not Probes.OFF and choice != NONE and bool(choice or not os.environ.get(OFF))


def _why_nothing_chosen() -> Unknown:
    choice = os.environ.get(CHOICE, "")
    if choice == NONE:
        return Unknown(f"switched off by {CHOICE}={NONE}", f"unset {CHOICE}")
    names = ", ".join((*(tracer.name for tracer in TRACERS), NONE))
    return Unknown(f"{CHOICE} names no tracer that there is", f"{CHOICE} is one of {names}")


def _reasons(by_name: Mapping[str, Unknown]) -> str:
    """Why each of them is not used, in one line; those with the same reason together.

    >>> _reasons({"ebpf": Unknown("not root"), "perf": Unknown("not installed")})
    'ebpf (not root); perf (not installed)'
    """
    names: dict[str, list[str]] = {}
    for name, why in by_name.items():
        names.setdefault(why.reason, []).append(name)
    return "; ".join(f"{', '.join(several)} ({reason})" for reason, several in names.items())


def _remedies(by_name: Mapping[str, Unknown]) -> str:
    return each_once((why.remedy for why in by_name.values()), "; or ")


def checks() -> tuple[DoctorCheck, ...]:
    """What of the tracers works here, for `llmtop doctor`."""
    from llmtop.collectors import signal_senders
    from llmtop.collectors.tracing.perf import collector as perf
    from llmtop.collectors.tracing.probes import collector as ebpf

    found = {"ebpf": ebpf.checks(), "perf": perf.checks()}
    states = {name: several[-1].state for name, several in found.items()}
    senders = signal_senders.checks() if are_allowed(Probes.FULL) else ()
    return (*(check for several in found.values() for check in several), *modes(states), *senders)


def modes(states: Mapping[str, str | Unknown]) -> tuple[DoctorCheck, ...]:
    """What each `--probes` would do here.

    Args:
        states: By tracer, what it sees here, or why nothing.
    """
    return (
        *(DoctorCheck(f"--probes {mode}", _seen(mode, states)) for mode in _SEES),
        DoctorCheck(f"--probes {Probes.OFF}", _SEEN_WITHOUT),
    )


def _seen(mode: Probes, states: Mapping[str, str | Unknown]) -> str | Unknown:
    """By which tracer, and what; perf looks a tenth of the time, and of other users' processes only as root."""
    whys: dict[str, Unknown] = {}
    for tracer in chosen():
        state = states[tracer.name]
        if isinstance(state, Unknown):
            whys[tracer.name] = state
        elif tracer.name != "perf":
            return f"{tracer.name}: {_SEES[mode]}"
        elif mode is Probes.FULL:
            return f"perf: {state}"
        elif "stacks of your own" in state:
            whys["perf"] = Unknown("sees stacks alone here, which light leaves out", "sudo llmtop ...")
        else:
            return f"perf: {state}; without stacks"
    return Unknown(f"as off: {_reasons(whys)}", _remedies(whys)) if whys else _why_nothing_chosen()


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry."""
    return TracerCollector(target, probes=aim.probes, budget=aim.budget)
