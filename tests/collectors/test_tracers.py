"""The choice of tracer: the best that works, the next when it does not, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest

from llmtop import ids
from llmtop.collectors.base import Probes
from llmtop.collectors.tracing.collector import (
    Tracer,
    TracerCollector,
    TracingCollector,
    chosen,
    modes,
)
from llmtop.collectors.tracing.switches import CHOICE, NONE, OFF
from llmtop.model import Issue, MarkKind, Metric, Missing, Origin, Reading, Severity, Target, Trace, Unknown, What

if TYPE_CHECKING:
    from types import TracebackType

TARGET = Target(1, 1, "process", "a program", ())
NOT_ROOT = Unknown("only root may load probes", "sudo llmtop")
NO_PROBES = Unknown("the kernel is locked down", "boot with lockdown=integrity")
NO_PERF = Unknown("perf is not installed", "sudo apt install linux-perf")
CALLS = Metric("syscall.count|read", "calls", counter=True)


class FakeCollector:
    """A tracer's collector that gives what it is told to give."""

    period_s = 0.25

    def __init__(self, name: str, *, missing: Unknown | None = None) -> None:
        self.name = name
        self.why = missing
        self.unavailable: Unknown | None = None
        self.traces: list[Trace] = []
        self.lives: list[str] = []

    def missing(self) -> Unknown | None:
        return self.why

    def __enter__(self) -> Self:
        self.lives.append("in")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lives.append("out")

    def poll(self) -> Trace:
        return self.traces.pop(0) if self.traces else Trace(Origin("live"), 5, 5)


def tracer_of(collector: FakeCollector) -> Tracer:
    def make(target: Target, probes: Probes, budget: float) -> TracingCollector:
        assert target is TARGET
        return collector

    return Tracer(collector.name, make)


def tracing(*collectors: FakeCollector, probes: Probes = Probes.FULL) -> TracerCollector:
    tracers = tuple(tracer_of(collector) for collector in collectors)
    return TracerCollector(TARGET, tracers=tracers, probes=probes, clock=lambda: 100)


def reading(value: float, t_ns: int = 10) -> Reading:
    return Reading(ids.process(1), CALLS, t_ns, value, "a tracer")


def missing(trace: Trace) -> dict[str, str]:
    return {one.what: str(one.why) for one in trace.missing}


def test_the_best_is_taken_and_nothing_is_said_of_it() -> None:
    ebpf, perf = FakeCollector("ebpf"), FakeCollector("perf")
    ebpf.traces = [Trace(Origin("live"), 1, 2, readings=(reading(3),))]
    with tracing(ebpf, perf) as collector:
        assert collector.tracer == "ebpf"
        trace = collector.poll()
    assert trace.readings == (reading(3),)
    assert (trace.missing, trace.issues) == ((), ())
    assert (ebpf.lives, perf.lives) == (["in", "out"], [])


def test_one_that_cannot_run_is_passed_over_and_named() -> None:
    ebpf, perf = FakeCollector("ebpf", missing=NO_PROBES), FakeCollector("perf")
    collector = tracing(ebpf, perf)
    assert collector.missing() is None
    with collector:
        first, second = collector.poll(), collector.poll()
    assert ebpf.lives == []
    said = "perf looks in place of ebpf (the kernel is locked down) (boot with lockdown=integrity)"
    assert missing(first) == missing(second) == {"tracer": said}
    said = "perf looks into the kernel in place of ebpf (the kernel is locked down)"
    assert first.issues == (Issue(Severity.INFO, "tracer-fallback", said),)
    assert [(mark.kind, mark.text) for mark in first.marks] == [(MarkKind.TRACER, said)]
    assert (second.issues, second.marks) == ((), ())


def test_one_that_gives_up_is_ended_and_the_next_goes_on() -> None:
    ebpf, perf = FakeCollector("ebpf"), FakeCollector("perf")
    last_words = Trace(Origin("live"), 1, 2, readings=(reading(3),), missing=(Missing(What("ebpf"), NO_PROBES),))
    ebpf.traces = [last_words]
    perf.traces = [Trace(Origin("live"), 200, 201, readings=(reading(1, 201),))]
    with tracing(ebpf, perf) as collector:
        ebpf.unavailable = NO_PROBES
        change = collector.poll()
        assert (ebpf.lives, perf.lives) == (["in", "out"], ["in"])
        assert collector.tracer == "perf"
        after = collector.poll()
    assert change.readings == (reading(3), Reading(ids.process(1), CALLS, 100, None, "a tracer"))
    assert list(missing(change)) == ["tracer"]
    assert [issue.code for issue in change.issues] == ["tracer-fallback"]
    assert after.readings == (reading(1, 201),)
    said = "perf looks in place of ebpf (the kernel is locked down)"
    assert missing(after) == {"tracer": f"{said} (boot with lockdown=integrity)"}
    assert perf.lives == ["in", "out"]


def test_when_none_works_all_reasons_are_told_best_remedy_first() -> None:
    ebpf = FakeCollector("ebpf")
    collector = tracing(ebpf, FakeCollector("perf", missing=NO_PERF))
    assert collector.unavailable is None, "nobody has tried yet"
    with collector:
        assert collector.unavailable is None
        ebpf.unavailable = NO_PROBES
        change, later = collector.poll(), collector.poll()
    why = Unknown(
        "ebpf (the kernel is locked down); perf (perf is not installed)",
        "boot with lockdown=integrity; or sudo apt install linux-perf",
    )
    assert change.missing == later.missing == (Missing(What("ebpf"), why),)
    assert collector.unavailable == why
    assert ebpf.lives == ["in", "out"]


def test_a_reason_that_all_share_is_told_once() -> None:
    collector = tracing(FakeCollector("ebpf", missing=NOT_ROOT), FakeCollector("perf", missing=NOT_ROOT))
    assert collector.missing() == NOT_ROOT


def test_a_remedy_that_tracers_share_is_told_once() -> None:
    """As to an ordinary user whose server has ended: each tracer has its own words then."""
    ebpf = Unknown("only root may load probes", "sudo llmtop ... (or LLMTOP_SUDO=1 where sudo asks no password)")
    perf = Unknown("the server is another user's", "sudo llmtop ..., or run llmtop as that user")
    collector = tracing(FakeCollector("ebpf", missing=ebpf), FakeCollector("perf", missing=perf))
    why = collector.missing()
    assert why is not None
    assert why.remedy == f"{ebpf.remedy}; or run llmtop as that user"


def test_what_a_tracer_says_of_itself_is_said_of_the_kernels_view() -> None:
    perf = FakeCollector("perf")
    why = Unknown("it starts")
    names = ("perf", "perf.shed", "performance", "syscalls")
    perf.traces = [Trace(Origin("live"), missing=tuple(Missing(What(name), why) for name in names))]
    with tracing(perf) as collector:
        assert list(missing(collector.poll())) == ["ebpf", "ebpf.shed", "performance", "syscalls"]


def test_series_of_what_has_ended_have_no_gap() -> None:
    ebpf = FakeCollector("ebpf")
    ebpf.traces = [
        Trace(Origin("live"), readings=(reading(1),)),
        Trace(Origin("live"), gone=(ids.process(1),)),
        Trace(Origin("live")),
    ]
    with tracing(ebpf) as collector:
        collector.poll()
        collector.poll()
        ebpf.unavailable = NO_PROBES
        assert collector.poll().readings == ()


def test_what_light_probes_leave_out_is_said() -> None:
    with tracing(FakeCollector("ebpf"), probes=Probes.LIGHT) as collector:
        told = missing(collector.poll())
    assert set(told) == {"ebpf.light", "stacks", "library calls"}
    assert set(told.values()) == {"left out by --probes light (--probes full, the default)"}


def test_without_probes_no_tracer_is_made() -> None:
    ebpf = FakeCollector("ebpf")
    with tracing(ebpf, probes=Probes.OFF) as collector:
        assert str(collector.missing()).startswith("switched off by --probes off")
        assert set(missing(collector.poll())) == {"ebpf", "ebpf.off"}
    assert ebpf.lives == []


@pytest.mark.parametrize("name", ["ebpf", "perf"])
def test_the_environment_names_the_only_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, name)
    assert [tracer.name for tracer in chosen()] == [name]


def test_the_environment_switches_all_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, NONE)
    assert TracerCollector(TARGET).missing() == Unknown(f"switched off by {CHOICE}=none", f"unset {CHOICE}")


def test_a_name_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, "dtrace")
    why = TracerCollector(TARGET).missing()
    assert why is not None
    assert why.reason == "LLMTOP_TRACER names no tracer that there is"
    assert why.remedy.startswith("LLMTOP_TRACER is one of ebpf, ")
    assert why.remedy.endswith(", none")


def test_without_probes_no_other_tracer_is_started_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHOICE, raising=False)
    monkeypatch.setenv(OFF, "1")
    assert TracerCollector(TARGET).missing() == Unknown(f"switched off by {OFF}", f"unset {OFF}")


def _modes(**states: str | Unknown) -> dict[str, str]:
    return {check.what: str(check.state) for check in modes(states)}


def test_doctor_says_what_each_mode_would_do_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (CHOICE, OFF):
        monkeypatch.delenv(variable, raising=False)
    told = _modes(ebpf=NO_PROBES, perf="system calls, scheduler and stacks")
    assert list(told) == ["--probes full", "--probes light", "--probes off"]
    assert told["--probes full"].startswith("perf: ")
    assert "without stacks" in told["--probes light"]
    assert told["--probes off"].startswith("nothing is loaded")

    nothing = _modes(ebpf=NOT_ROOT, perf=NOT_ROOT)
    assert "as off" in nothing["--probes full"]
    assert NOT_ROOT.remedy in nothing["--probes light"]

    own = _modes(ebpf=NOT_ROOT, perf="on-CPU stacks of your own processes")
    assert own["--probes full"] == "perf: on-CPU stacks of your own processes"
    assert "as off" in own["--probes light"], "stacks are what light leaves out"

    monkeypatch.setenv(CHOICE, NONE)
    assert CHOICE in _modes(ebpf="works", perf="works")["--probes full"]
