"""What llmtop makes of a helper's words, life and end: the helper is a script of reports, and time is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from llmtop import ids, procfs, programs
from llmtop.collectors import children
from llmtop.collectors.base import Probes
from llmtop.collectors.tracing import helped
from llmtop.collectors.tracing.collector import TRACERS, Tracer
from llmtop.collectors.tracing.helped import HelpedCollector, HelperWords, KnownProcesses
from llmtop.collectors.tracing.perf.collector import PerfCollector
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import (
    NS_PER_S,
    Issue,
    Mark,
    MarkKind,
    Missing,
    Severity,
    Target,
    TargetProcess,
    Trace,
    Unknown,
    UnknownKind,
    What,
)

ROOT, WORKER, CHILD, STRANGER = 4_300_001, 4_300_002, 4_300_003, 4_300_009
START_NS = 1000 * NS_PER_S
STARTING = Unknown("it attaches", "wait")


class Script:
    """A helper that says what it is given to say."""

    def __init__(self, arguments: list[str], *, sudo: bool = False, program: tuple[str, ...]) -> None:
        self.arguments, self.sudo, self.program = arguments, sudo, program
        self.lines: list[dict[str, Any]] = []
        self.is_at_end = self.has_crashed = self.is_killed = self.is_closed = False
        self.words = "exit code 1"
        self.known_as: list[int] = []

    def reports(self) -> list[dict[str, Any]]:
        lines, self.lines = self.lines, []
        return lines

    def last_words(self) -> str:
        return self.words

    def is_known_as(self, pid: int) -> None:
        self.known_as.append(pid)

    def kill(self) -> None:
        self.is_killed = True

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """The machine around a collector: its clock, its processes, and the helpers that it has started."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.started = {ROOT: 11, WORKER: 12}
        self.scripts: list[Script] = []

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)

    def start(self, arguments: list[str], *, sudo: bool, program: tuple[str, ...]) -> Script:
        self.scripts.append(Script(arguments, sudo=sudo, program=program))
        return self.scripts[-1]

    @property
    def helper(self) -> Script:
        return self.scripts[-1]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    one = Stage()
    monkeypatch.setattr(helped, "HelperProcess", one.start)
    monkeypatch.setattr(helped, "_start_ticks", one.started.get)
    monkeypatch.setattr(helped, "through_sudo", lambda: False)

    class Family:
        @staticmethod
        def descendants(*pids: int) -> tuple[int, ...]:
            return (CHILD,) if WORKER in pids and CHILD in one.started else ()

    monkeypatch.setattr(procfs, "family", Family)
    return one


class Scripted(HelpedCollector):
    """A tracer of no kind."""

    name, source = "tracer", "a tracer"
    words = HelperWords("the helper", "looking", "its buffers", STARTING)
    program = ("the", "program")


def target() -> Target:
    told = (TargetProcess(ROOT, "", "a"), TargetProcess(WORKER, "", "b"))
    return Target(WORKER, ROOT, "process", "a program", told)


@pytest.fixture
def collector(stage: Stage) -> Iterator[Scripted]:
    with Scripted(target(), clock=stage) as one:
        yield one


def sample(t_ns: int = START_NS, **parts: Any) -> dict[str, Any]:
    observed = {"calls": 0, "timed": 0, "scheduler": 0}
    said = {"kind": "sample", "t": t_ns, "elapsed": NS_PER_S, "observed": observed, "missing": {}, "shed": ""}
    return {**said, "lost": 0, "gone": [], **parts}


READY = {"kind": "ready", "pid": 77}


def missing(trace: Trace) -> dict[str, str]:
    return {one.what: str(one.why) for one in trace.missing}


def say(stage: Stage, collector: HelpedCollector, *lines: dict[str, Any]) -> Trace:
    stage.helper.lines += lines
    return collector.poll()


def end(stage: Stage, collector: HelpedCollector, words: str = "exit code 1") -> Trace:
    stage.helper.is_at_end, stage.helper.words = True, words
    return collector.poll()


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, ["--stacks"]),
        ({"stacks": False}, []),
        ({"is_light": True}, ["--light"]),
        ({"is_light": True, "stacks": False}, ["--light"]),
    ],
)
def test_the_helper_is_told_whom_to_look_at_and_how(stage: Stage, options: dict[str, bool], flags: list[str]) -> None:
    stage.started[CHILD] = 13
    with Scripted(target(), **options, clock=stage) as one:
        pids = [str(pid) for pid in (ROOT, WORKER, CHILD)]
        assert stage.helper.arguments == [*pids, "--interval", "1.0", "--budget", "0.01", *flags]
        assert (stage.helper.sudo, stage.helper.program, one.period_s) == (False, ("the", "program"), 0.25)
    assert stage.helper.is_closed
    with Scripted(target(), budget=0.5, interval_s=0.1, clock=stage):
        assert stage.helper.arguments[3:7] == ["--interval", "0.1", "--budget", "0.5"]


def test_it_is_started_through_sudo_where_that_is_wanted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helped, "through_sudo", lambda: True)
    with Scripted(target(), clock=stage):
        assert stage.helper.sudo


def test_until_it_looks_that_is_said_and_for_how_long(stage: Stage, collector: Scripted) -> None:
    first = collector.poll()
    assert first.missing == (Missing(What("tracer"), STARTING),)
    assert (first.start_ns, first.end_ns) == (START_NS, START_NS)
    assert collector.is_starting
    stage.wait(0.999)
    assert missing(collector.poll()) == {"tracer": "it attaches (wait)"}
    stage.wait(0.001)
    assert missing(collector.poll()) == {"tracer": "it attaches, for 1 s (wait)"}
    trace = say(stage, collector, READY)
    assert (trace.missing, trace.marks, stage.helper.known_as) == ((), (), [77])
    assert (collector.is_starting, collector.unavailable) == (False, None)


def test_what_a_part_of_it_lacks_is_missing_wherever_it_would_stand(stage: Stage, collector: Scripted) -> None:
    why = ["no \x1btracepoint", "another\x1b kernel"]
    trace = say(stage, collector, READY, sample(missing={"syscalls": why, "scheduler": why, "samples": why, "x": why}))
    whats = ("syscalls", "scheduler", "thread.blocked", "run-queue latency", "on-CPU stacks", "x")
    assert missing(trace) == dict.fromkeys(whats, "no ␛tracepoint (another␛ kernel)")
    assert missing(say(stage, collector, sample())) == {}


def test_what_is_shed_is_said_once_and_stands_as_missing(stage: Stage, collector: Scripted) -> None:
    trace = say(stage, collector, READY, sample(shed="no stacks"))
    cost = "looking would cost more than 1 % of a core"
    assert trace.issues == (Issue(Severity.INFO, "tracer-shed", f"{cost}, so less is looked at: no stacks"),)
    assert missing(trace) == {
        "tracer.shed": f"{cost}; now: no stacks (it is tried again by itself; --overhead-budget 3 lets them cost more)"
    }
    again = say(stage, collector, sample(shed="no stacks"))
    assert (again.issues, missing(again)) == ((), missing(trace))
    less = say(stage, collector, sample(shed="nothing"))
    assert [one.message for one in less.issues] == [f"{cost}, so less is looked at: nothing"]
    back = say(stage, collector, sample())
    assert (back.issues, back.missing) == ((), ())
    assert len(say(stage, collector, sample(shed="nothing")).issues) == 1


def test_losses_are_told_by_how_many_came_since(stage: Stage, collector: Scripted) -> None:
    message = "events found no room in its buffers: counts are too low"
    trace = say(stage, collector, READY, sample(lost=3))
    assert trace.issues == (Issue(Severity.WARNING, "tracer-lost", message, 3),)
    assert say(stage, collector, sample(lost=3)).issues == ()
    assert say(stage, collector, sample(lost=10)).issues == (Issue(Severity.WARNING, "tracer-lost", message, 7),)
    end(stage, collector)
    stage.wait(30)
    collector.poll()
    again = say(stage, collector, READY, sample(lost=2))
    assert again.issues == (Issue(Severity.WARNING, "tracer-lost", message, 2),), "another helper counts from 0"


def test_stacks_are_summed_up_every_two_seconds(stage: Stage, collector: Scripted) -> None:
    say(stage, collector, READY)
    running = [[ROOT, ROOT, ["main"], 100]]
    told = []
    for tenths in (0, 10, 19, 20, 21, 40):
        t_ns = START_NS + tenths * NS_PER_S // 10
        trace = say(stage, collector, sample(t_ns, running=running))
        told.append([one.weight for one in trace.stacks])
    assert told == [[100], [], [], [400], [], [600]]


def test_stacks_come_with_the_first_report_that_has_any(stage: Stage, collector: Scripted) -> None:
    assert say(stage, collector, READY, sample()).stacks == ()
    running = [[ROOT, ROOT, ["main"], 100]]
    assert len(say(stage, collector, sample(START_NS + 1, running=running), sample(START_NS + 2)).stacks) == 1


def test_a_report_becomes_readings_and_tells_what_has_ended(stage: Stage, collector: Scripted) -> None:
    calls: dict[str, Any] = {"calls": [[WORKER, 0, 5, 0, 9, {"0": 5}]], "names": {"0": "read"}}
    trace = say(stage, collector, READY, sample(**calls, gone=[WORKER], ended=[[WORKER, WORKER]]))
    counts = [one for one in trace.readings if one.metric.name == "syscall.count|read"]
    assert [(one.track, one.value, one.source) for one in counts] == [
        (ids.process(WORKER), 0, "a tracer"),
        (ids.process(WORKER), 5, "a tracer"),
    ]
    assert trace.gone == (ids.thread(WORKER, WORKER), ids.process(WORKER))


def test_a_helper_that_never_begins_to_look_is_ended_after_a_minute(stage: Stage, collector: Scripted) -> None:
    stage.wait(60)
    assert "ended" not in missing(collector.poll())["tracer"]
    assert not stage.helper.is_killed
    stage.wait(0.001)
    trace = collector.poll()
    how = "it did not answer for 60 s and was ended"
    assert missing(trace) == {"tracer": f"the helper ended: {how} (it is started again in 30 seconds)"}
    assert trace.marks == (
        Mark(
            stage.now_ns, MarkKind.PROBES_ENDED, ids.SELF, f"{how}; it is started again in 30 seconds", Severity.WARNING
        ),
    )  # fmt: skip
    assert (stage.helper.is_killed, stage.helper.is_closed, collector.is_starting) == (True, True, False)


@pytest.mark.parametrize(("interval_s", "patience_s"), [(1.0, 30), (9.9, 30), (11.0, 33)])
def test_one_that_looks_may_be_silent_for_half_a_minute_or_three_rounds(
    stage: Stage, interval_s: float, patience_s: int
) -> None:
    with Scripted(target(), interval_s=interval_s, clock=stage) as one:
        stage.wait(20)
        say(stage, one, READY)
        stage.wait(patience_s - 1)
        say(stage, one, {"kind": "looking"})
        stage.wait(patience_s)
        assert one.poll().missing == ()
        stage.wait(0.001)
        why = missing(one.poll())["tracer"]
        assert why.startswith(f"the helper ended: it did not answer for {patience_s} s and was ended (it is started")
        assert stage.helper.is_killed


def test_one_that_ends_is_started_again_after_half_a_minute(stage: Stage, collector: Scripted) -> None:
    calls: dict[str, Any] = {"calls": [[WORKER, 0, 5, 0, 9, {"0": 5}]], "names": {"0": "read"}}
    say(stage, collector, READY, sample(**calls, missing={"x": ["gone", ""]}))
    stage.wait(1)
    trace = end(stage, collector, "oh\x1b no")
    assert list(missing(trace)) == ["tracer"], "what it had to say of its parts is over"
    assert {one.value for one in trace.readings if one.track == ids.process(WORKER)} == {None}
    assert [one.kind for one in trace.marks] == [MarkKind.PROBES_ENDED]
    stage.wait(29.999)
    collector.poll()
    assert len(stage.scripts) == 1
    stage.wait(0.001)
    assert missing(collector.poll()) == {"tracer": "it attaches (wait)"}
    assert len(stage.scripts) == 2
    stage.wait(2)
    back = say(stage, collector, READY, sample(START_NS + 40 * NS_PER_S, **calls))
    assert back.marks == (Mark(stage.now_ns, MarkKind.PROBES_BACK, ids.SELF, "the helper looks again"),)
    counts = [one.value for one in back.readings if one.metric.name == "syscall.count|read"]
    assert counts == [5, 10]
    assert say(stage, collector, READY).marks == ()


def test_one_that_always_ends_before_it_looks_is_given_up(stage: Stage, collector: Scripted) -> None:
    """One start on a busy machine may fail, and the next one too; who ends a third time will always."""
    for attempt in range(1, 4):
        assert (len(stage.scripts), collector.unavailable) == (attempt, None)
        trace = end(stage, collector)
        stage.wait(30)
        collector.poll()
    assert missing(trace) == {"tracer": "the helper ended: exit code 1 (llmtop doctor tries it anew)"}
    assert trace.marks[0].text == "exit code 1; llmtop doctor tries it anew"
    assert collector.unavailable == trace.missing[0].why
    assert len(stage.scripts) == 3


def test_ends_are_counted_anew_once_it_has_looked(stage: Stage, collector: Scripted) -> None:
    for _ in range(3):
        for _ in range(2):
            end(stage, collector)
            stage.wait(30)
            collector.poll()
        say(stage, collector, READY)
        end(stage, collector)
        stage.wait(30)
        collector.poll()
    assert collector.unavailable is None
    for _ in range(3):
        end(stage, collector)
        stage.wait(30)
        collector.poll()
    assert collector.unavailable is not None, "the end of one that looked is no early one"


def test_one_that_crashes_before_it_looks_is_given_up_at_once(stage: Stage, collector: Scripted) -> None:
    stage.helper.has_crashed = True
    end(stage, collector, "it was ended by SIGSEGV")
    why = Unknown("the helper ended: it was ended by SIGSEGV", "llmtop doctor tries it anew", UnknownKind.PASSING)
    assert collector.unavailable == why


def test_a_crash_of_one_that_looked_is_tried_again(stage: Stage, collector: Scripted) -> None:
    say(stage, collector, READY)
    stage.helper.has_crashed = True
    end(stage, collector)
    assert collector.unavailable is None


def test_what_it_says_itself_that_cannot_be_done_stands(stage: Stage, collector: Scripted) -> None:
    say(stage, collector, {"kind": "unavailable", "reason": "no\x1b luck", "remedy": "apt\x1b install"})
    assert collector.unavailable is None, "until it has ended"
    trace = end(stage, collector)
    assert collector.unavailable == Unknown("no␛ luck", "apt␛ install")
    assert (missing(trace), trace.marks) == ({"tracer": "no␛ luck (apt␛ install)"}, ())
    stage.wait(100)
    assert (missing(collector.poll()), len(stage.scripts)) == (missing(trace), 1)


def test_sudo_that_refuses_is_not_asked_again(stage: Stage, collector: Scripted) -> None:
    trace = end(stage, collector, "sudo: a password is required")
    remedy = "sudo llmtop ..., or a sudo rule that asks no password (NOPASSWD)"
    assert collector.unavailable == Unknown("sudo refuses: a password is required", remedy)
    assert (missing(trace), trace.marks) == ({"tracer": f"sudo refuses: a password is required ({remedy})"}, ())


def test_with_the_servers_last_process_it_ends(stage: Stage, collector: Scripted) -> None:
    assert say(stage, collector, READY, sample(gone=[WORKER])).missing == ()
    trace = say(stage, collector, sample(gone=[ROOT]))
    exited = {"tracer": "the server's processes have ended (start it again: llmtop follows)"}
    assert missing(trace) == exited
    assert (stage.helper.is_closed, collector.unavailable, trace.marks) == (True, None, ())
    stage.wait(100)
    assert (missing(collector.poll()), len(stage.scripts)) == (exited, 1)


def test_a_helper_that_ended_with_its_server_is_not_started_again(stage: Stage, collector: Scripted) -> None:
    say(stage, collector, READY)
    end(stage, collector)
    stage.started.clear()
    stage.wait(30)
    collector.poll()
    assert missing(collector.poll()) == {"tracer": "the server's processes have ended (start it again: llmtop follows)"}
    assert len(stage.scripts) == 1


def test_processes_are_known_by_when_they_were_started(stage: Stage) -> None:
    known = KnownProcesses((ROOT, WORKER, STRANGER))
    assert (len(known), known.alive()) == (2, [ROOT, WORKER])
    stage.started |= {ROOT: 99, CHILD: 13}
    assert known.alive() == [WORKER, CHILD]
    tracks = (ids.process(ROOT), ids.thread(ROOT, 5), ids.process(WORKER), ids.thread(WORKER, 5), ids.SELF)
    assert [known.is_kept(track) for track in tracks] == [False, False, True, True, True]
    known.remove((ROOT, STRANGER))
    known.add((CHILD, STRANGER))
    assert (len(known), known.alive(), known.is_same(ROOT)) == (2, [WORKER, CHILD], False)


# -- the tracers' own ----------------------------------------------------------------------------------------------

TOLD: dict[str, Any] = {"born": [], "renewed": [], "unprobed": {}}


def ready(**parts: Any) -> dict[str, Any]:
    said = {"processes": [ROOT, WORKER], "others": [], "missing": {}, "knows_calls": True}
    return {**READY, **said, **parts}


@pytest.fixture
def ebpf(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[EbpfCollector]:
    names = {ROOT: "ro\x1bot", WORKER: ""}
    monkeypatch.setattr(procfs, "stat", lambda pid: object() if pid in stage.started else None)
    monkeypatch.setattr(procfs, "name", lambda pid: names.get(pid, f"p{pid}"))
    with EbpfCollector(target(), clock=stage) as one:
        yield one


def test_other_tracers_and_what_this_kernel_cannot_tell_are_said(stage: Stage, ebpf: EbpfCollector) -> None:
    others = [[5, "bpf\x1btrace", "kprobe, tracepoint"]]
    trace = say(stage, ebpf, ready(others=others, knows_calls=False, missing={"syscalls": ["refused", ""]}))
    told = "bpf␛trace (pid 5) has probes of its own in the kernel (kprobe, tracepoint): times include their cost"
    assert trace.issues == (Issue(Severity.WARNING, "ebpf-other-tracer", told),)
    why = (
        "this kernel does not tell a probe the system call that a thread sleeps in (Linux 5.15 or newer with BTF does)"
    )
    assert missing(trace) == {"syscalls": "refused", "thread.blocked/cause": why}
    assert missing(say(stage, ebpf, sample(**TOLD))) == {"thread.blocked/cause": why}
    assert missing(say(stage, ebpf, ready())) == {}


def test_it_settles_when_its_helper_says_so(stage: Stage, ebpf: EbpfCollector) -> None:
    assert ebpf.is_starting
    say(stage, ebpf, ready())
    assert ebpf.is_starting, "libraries have not been looked for"
    say(stage, ebpf, sample(**TOLD, settling=True))
    assert ebpf.is_starting
    say(stage, ebpf, sample(**TOLD, settling=False))
    assert not ebpf.is_starting


def test_one_that_looks_at_no_libraries_has_nothing_to_settle(stage: Stage, ebpf: EbpfCollector) -> None:
    with EbpfCollector(target(), is_light=True, clock=stage) as one:
        say(stage, one, ready())
        assert not one.is_starting


def test_a_process_that_became_another_program_is_marked(stage: Stage, ebpf: EbpfCollector) -> None:
    say(stage, ebpf, ready())
    stage.started[CHILD] = 13
    trace = say(stage, ebpf, sample(**TOLD | {"renewed": [ROOT, WORKER, CHILD, STRANGER], "born": [CHILD]}))
    assert trace.marks == (
        Mark(START_NS, MarkKind.EXEC, ids.process(ROOT), "runs as another program now", subject=f"ro␛ot (pid {ROOT})"),
        Mark(START_NS, MarkKind.EXEC, ids.process(WORKER), "runs as another program now", subject=f"it (pid {WORKER})"),
    )
    trace = say(stage, ebpf, sample(**TOLD | {"renewed": [CHILD]}))
    assert [one.text for one in trace.marks] == [f"p{CHILD} (pid {CHILD}) runs as another program now"]


def test_a_crowd_that_changes_at_once_has_five_marks(stage: Stage, ebpf: EbpfCollector) -> None:
    crowd = list(range(5_000_001, 5_000_010))
    stage.started |= dict.fromkeys(crowd, 7)
    say(stage, ebpf, ready(processes=crowd))
    assert len(say(stage, ebpf, sample(**TOLD | {"renewed": crowd})).marks) == 5


def test_functions_without_probes_say_why(stage: Stage, ebpf: EbpfCollector) -> None:
    trace = say(stage, ebpf, ready(), sample(**TOLD | {"unprobed": {"cuMemcpy": "refu\x1bsed"}}))
    assert missing(trace) == {"library.cuMemcpy": "refu␛sed"}


def test_threads_that_are_followed_no_more_have_gaps(stage: Stage, ebpf: EbpfCollector) -> None:
    waits: dict[str, Any] = {"waits": [[WORKER, WORKER, 202, 1, 0, 50]], "queue": [[WORKER, {"3": 1}]]}
    say(stage, ebpf, ready(), sample(**TOLD, **waits))
    off = "no stacks, system calls off, scheduler off"
    trace = say(stage, ebpf, sample(START_NS + 9, **TOLD | {"shed": off}))
    gaps = {(one.metric.name.partition("|")[0], one.t_ns) for one in trace.readings if one.value is None}
    assert gaps == {("thread.blocked", START_NS + 9), ("process.run_queue_latency", START_NS + 9)}
    again = say(stage, ebpf, sample(START_NS + 19, **TOLD | {"shed": off}))
    assert [one for one in again.readings if one.value is None] == []


def test_what_perf_has_taken_is_llmtops_own_cost(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[int] = []
    monkeypatch.setattr(children, "spend", spent.append)
    with PerfCollector(target(), clock=stage) as one:
        assert stage.helper.arguments[2:4] == ["--interval", "8.0"]
        say(stage, one, READY, sample(children_ns=5), sample(children_ns=12), sample(children_ns=11))
        say(stage, one, READY, sample(children_ns=4))
        stage.wait(60)
        assert one.poll().missing == ()
        stage.wait(0.001)
        assert "it did not answer for 60 s" in missing(one.poll())["perf"]
    assert spent == [5, 7, 0, 4]


@pytest.mark.parametrize(
    ("uid", "asked", "has_sudo", "by_sudo"),
    [(1000, "1", True, True), (0, "1", True, False), (1000, "", True, False), (1000, "1", False, False)],
)
def test_perf_runs_through_sudo_where_the_user_asks_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, uid: int, asked: str, has_sudo: bool, by_sudo: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv("LLMTOP_SUDO", asked)
    monkeypatch.setattr(programs, "find", lambda name, **_: "/usr/bin/sudo" if has_sudo and name == "sudo" else None)
    with PerfCollector(target(), clock=stage):
        assert stage.helper.sudo is by_sudo


@pytest.mark.parametrize("tracer", TRACERS, ids=lambda one: one.name)
def test_light_probes_are_light_with_every_tracer(stage: Stage, tracer: Tracer) -> None:
    for probes, flags in ((Probes.FULL, ["--stacks"]), (Probes.LIGHT, ["--light"])):
        with tracer.make(target(), probes, 0.03):
            assert [one for one in stage.helper.arguments if one in ("--stacks", "--light")] == flags
            assert stage.helper.arguments[stage.helper.arguments.index("--budget") + 1] == "0.03"
