"""One thread over time: exact clocks at every poll, and what it was found waiting for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from llmtop import ids, procfs
from llmtop import vocabulary as v
from llmtop.collectors.gil_futex import Range, read_interpreter_data
from llmtop.collectors.thread_causes import cause_of_state, cause_of_syscall, cause_of_wchan, timed_futex
from llmtop.facts import ThreadFact
from llmtop.model import Fact, Metric, Reading, Track, TrackId, TrackKind
from llmtop.text import clean
from llmtop.vocabulary import ThreadCause

SCHEDSTAT = "schedstat"
STATUS = "/proc/PID/status"
SAMPLED = "sampled at each poll"
GIL_SAMPLED = "/proc/TID/syscall, sampled at each poll"
_CAUSE_METRICS: Mapping[ThreadCause, Metric] = {
    cause: v.labelled(v.THREAD_STATE_SAMPLES, cause.value) for cause in ThreadCause
}
_SWITCHES_NS = 900_000_000
"""How often its switches are told: once a second; a tenth less, because polls jitter."""
_KEPT = ("schedstat", "stat", "syscall", "wchan")
_PROCESSOR = 36
"""The place of `processor` in /proc/PID/stat, from the state on (proc(5): fields 39 and 3)."""
_PATIENCE = 50
"""Wait channels read as 0 before this kernel is believed never to name any."""


@dataclass(slots=True)
class ThreadAccess:
    """Which files may be asked about a process's threads; learned by asking.

    Attributes:
        silent_channels: How many wait channels said nothing so far; 0 again as soon as one speaks.
        may_see_calls: Whether /proc/PID/task/TID/syscall may be read; None before the first try.
        has_told: Whether a wait channel was ever named.
        interpreter: Where the static data of its CPython are; None before the first look.
    """

    pid: int
    silent_channels: int = 0
    may_see_calls: bool | None = None
    has_told: bool = False
    interpreter: tuple[Range, ...] | None = None

    @property
    def are_silent(self) -> bool:
        """Whether nothing tells what a sleeping thread waits for."""
        return self.may_see_calls is False and not self.has_told

    def file_of(self, descriptor: int) -> str | None:
        """What a file descriptor of the process points to."""
        return procfs.file_behind(self.pid, descriptor)

    def wchan(self, thread: Thread, task: int) -> str:
        """The kernel function in which a thread sleeps; empty when the kernel does not say."""
        if self.silent_channels >= _PATIENCE:
            return ""
        channel = (thread.read("wchan", task) or b"").decode("ascii", "replace")
        if channel in ("", "0"):
            self.silent_channels += 1
            return ""
        self.silent_channels = 0
        self.has_told = True
        return clean(channel)

    def is_gil(self, address: int) -> bool:
        """Whether a futex waited for with a time limit is that of its interpreter's lock."""
        if self.interpreter is None:
            self.interpreter = read_interpreter_data(self.pid)
        return any(start <= address < end for start, end in self.interpreter)

    def call(self, thread: Thread, task: int) -> str:
        """The system call in which a thread is; empty when it may not be seen."""
        if self.may_see_calls is False:
            return ""
        line = thread.read("syscall", task)
        if line is not None:
            self.may_see_calls = True
        elif self.may_see_calls is None and thread.read("schedstat", task) is not None:
            self.may_see_calls = False  # the thread is still there, so it is the right that is lacking
        return (line or b"").decode("ascii", "replace").strip()


@dataclass(slots=True)
class Thread:
    """What is remembered of a thread from poll to poll. Times in ns, counters as the kernel has them."""

    id: TrackId
    pid: int
    tid: int
    name: str = ""
    run_ns: int = 0
    wait_ns: int = 0
    slices: int = 0
    has_run: bool = True
    ran_ns: int = 0
    """When it was last seen to have run, or seen first."""
    due_ns: int = 0
    """When it is read again, unless it did so much last time that it is read at each poll."""
    is_told: bool = False
    """It has a track. One of very many that has not run since it was seen first has none."""
    activity_ns: int = 0
    """Time on a CPU or queued for one since the last poll."""
    state: str = ""
    cpu: int | None = None
    """The processor that it ran on last."""
    wchan: str = ""
    called: str = ""
    """The system call that it was in, where that was read."""
    cause: ThreadCause | None = None
    waits_for_gil: bool = False
    gil_samples: int = 0
    cpus: str = ""
    """The CPUs that it may run on, as the kernel lists them: "0-15,32"."""
    cpus_before: str = ""
    """Those of before, once they have changed, which was seen at `cpus_since_ns`."""
    cpus_since_ns: int = 0
    switches: tuple[int, int] | None = None
    samples: int = 0
    samples_by_cause: dict[ThreadCause, int] = field(default_factory=dict)
    new_causes: list[ThreadCause] = field(default_factory=list)
    sampled_ns: int = 0
    shown: tuple[str, ...] = ()
    files: procfs.KeptFiles = field(default_factory=lambda: procfs.KeptFiles(0))
    told_ns: int = 0
    """When its switches were told last."""
    may_have_switched: bool = True
    """It has run since they were read."""
    may_be_new: bool = True
    """Something was read that its track shows."""

    def read(self, name: str, task: int) -> bytes | None:
        """One of the files that are read again: the clocks at each poll, the others only of threads that run."""
        if not self.is_told or (name != "schedstat" and not self.samples):  # most threads sleep, and are looked at once
            return procfs.read_bytes(f"{self.tid}/{name}", task)
        return self.files.read(f"{self.tid}/{name}", task)

    def close(self) -> None:
        """Let go of its files: it has ended."""
        self.files.close(*(f"{self.tid}/{name}" for name in _KEPT))

    def read_clocks(self, task: int) -> bool:
        """Read time on a CPU, time queued for one and slices; False when the thread is gone or has no clocks."""
        try:
            run, wait, slices = map(int, (self.read("schedstat", task) or b"").split())
        except ValueError:
            return False
        if slices < self.slices:  # the id is another thread's by now
            self.state, self.switches, self.samples, self.samples_by_cause = "", None, 0, {}
            self.gil_samples, self.cpus, self.cpus_before = 0, "", ""
        self.has_run = slices != self.slices or run != self.run_ns
        self.may_have_switched |= self.has_run
        self.activity_ns = run - self.run_ns + wait - self.wait_ns
        self.run_ns, self.wait_ns, self.slices = run, wait, slices
        return True

    def look(self, task: int, access: ThreadAccess) -> None:
        """Read name, state and cause.

        A thread that slept and has not run since is still in the same wait, so nothing is read again. That is
        most threads, most of the time. (It may have been woken and be queued for a CPU by now: the exact clocks
        have that as soon as it runs.)
        """
        if self.state and not self.has_run and self.cause is not ThreadCause.RUNNING:
            return
        content = self.read("stat", task)
        if content is None:
            return
        opening, closing = content.find(b"("), content.rfind(b")")
        self.name = clean(content[opening + 1 : closing].decode("utf-8", "surrogateescape"))
        self.state, self.may_be_new = chr(content[closing + 2]), True
        fields = content[closing + 2 :].split(None, _PROCESSOR + 1)
        self.cpu = int(fields[_PROCESSOR]) if len(fields) > _PROCESSOR else None
        self.cause = self._cause(self.state, task, access)
        self.waits_for_gil = self.cause is ThreadCause.FUTEX and self._is_at_gil(task, access)

    def count(self) -> None:
        """Count one look at the thread."""
        self.new_causes = []
        if self.cause is None:
            return
        self.samples += 1
        if self.cause not in self.samples_by_cause and self.samples > 1:
            self.new_causes = [self.cause]
        self.samples_by_cause[self.cause] = self.samples_by_cause.get(self.cause, 0) + 1
        self.gil_samples += self.waits_for_gil

    def readings(self, now: int) -> Iterable[Reading]:
        """The clocks and counters as they stand."""
        yield Reading(self.id, v.THREAD_ON_CPU, now, float(self.run_ns), SCHEDSTAT)
        yield Reading(self.id, v.THREAD_RUN_QUEUE, now, float(self.wait_ns), SCHEDSTAT)
        for cause in self.new_causes:
            # It was looked at before and never found so: that is a true zero, and growth can start from it.
            yield Reading(self.id, _CAUSE_METRICS[cause], self.sampled_ns, 0.0, SAMPLED)
        if self.samples:
            yield Reading(self.id, v.THREAD_STATE_SAMPLES, now, float(self.samples), SAMPLED)
        for cause, count in self.samples_by_cause.items():
            yield Reading(self.id, _CAUSE_METRICS[cause], now, float(count), SAMPLED)
        if self.gil_samples:
            if self.gil_samples == 1 and self.waits_for_gil and self.samples > 1:
                yield Reading(self.id, v.THREAD_GIL_FUTEX, self.sampled_ns, 0.0, GIL_SAMPLED)
            yield Reading(self.id, v.THREAD_GIL_FUTEX, now, float(self.gil_samples), GIL_SAMPLED)
        self.note(now)

    def note(self, now: int) -> None:
        """Its clocks were read at this moment."""
        self.sampled_ns = now
        if self.has_run or not self.ran_ns:
            self.ran_ns = now

    def forget(self) -> None:
        """Let it have no track until it runs again."""
        self.is_told, self.may_be_new, self.shown = False, True, ()
        self.samples, self.samples_by_cause, self.gil_samples = 0, {}, 0
        self.close()

    def begin(self, seen_ns: int, run_ns: int, wait_ns: int) -> Iterator[Reading]:
        """What its clocks said when they were read last, of one that had no track then: its shares start from there."""
        yield Reading(self.id, v.THREAD_ON_CPU, seen_ns, float(run_ns), SCHEDSTAT)
        yield Reading(self.id, v.THREAD_RUN_QUEUE, seen_ns, float(wait_ns), SCHEDSTAT)

    def switched(self, task: int, now: int) -> Iterator[Reading]:
        """Its switches, and with them the CPUs that it may run on, at most every `_SWITCHES_NS`.

        The kernel writes sixty lines for them: of all files read here the dearest, for rates over ten seconds.
        """
        if self.told_ns and now - self.told_ns < _SWITCHES_NS:
            return
        self.told_ns = now
        if self.may_have_switched:
            self._read_switches(task, now)
        if self.switches is not None:
            yield Reading(self.id, v.THREAD_VOLUNTARY, now, float(self.switches[0]), STATUS)
            yield Reading(self.id, v.THREAD_INVOLUNTARY, now, float(self.switches[1]), STATUS)

    def news(self, role: str) -> Track | None:
        """The thread's track if anything about it has changed since it was last shown."""
        if not self.may_be_new and role == self.shown[1]:
            return None
        self.may_be_new = False
        facts: dict[str, Fact] = {ThreadFact.ROLE: role}
        if self.state:
            facts[ThreadFact.STATE] = self.cause.value if self.cause is not None else "sleeping"
        if self.wchan:
            facts[ThreadFact.WAIT_CHANNEL] = self.wchan
        if self.cpu is not None:
            facts[ThreadFact.CPU] = self.cpu
        if self.cpus:
            facts[ThreadFact.CPUS] = self.cpus
        if self.cpus_before:
            facts |= {ThreadFact.CPUS_BEFORE: self.cpus_before, ThreadFact.CPUS_SINCE: self.cpus_since_ns}
        shown = (self.name, *(str(fact) for fact in facts.values()))
        if shown == self.shown:
            return None
        self.shown = shown
        return Track(self.id, TrackKind.THREAD, self.name, ids.process(self.pid), facts)

    def _cause(self, state: str, task: int, access: ThreadAccess) -> ThreadCause | None:
        """What the thread is doing; None when nothing tells."""
        self.wchan = self.called = ""
        if (settled := cause_of_state(state)) is not None:
            return settled
        self.wchan = access.wchan(self, task)
        if (told := cause_of_wchan(self.wchan)) is not None:
            return told
        call = self.called = access.call(self, task)
        if call == "running":
            return ThreadCause.RUNNING
        if (told := cause_of_syscall(call, access.file_of)) is not None:
            return told
        if state == "D":
            return ThreadCause.UNINTERRUPTIBLE
        if not call and self.wchan == "wait_woken":  # of sockets and terminals: mostly of sockets
            return ThreadCause.SOCKET
        return ThreadCause.OTHER if call or self.wchan else None

    def _is_at_gil(self, task: int, access: ThreadAccess) -> bool:
        address = timed_futex(self.called or access.call(self, task))
        return address is not None and access.is_gil(address)

    def _read_switches(self, task: int, now: int) -> None:
        status = procfs.read_bytes(f"{self.tid}/status", task)
        if status is None:
            return
        self.may_be_new = True
        listed = status.rpartition(b"\nCpus_allowed_list:")[2]
        cpus = listed.split(b"\n", 1)[0].strip().decode("ascii", "replace")
        if self.cpus and cpus != self.cpus:
            self.cpus_before, self.cpus_since_ns = self.cpus, now
        self.cpus = cpus
        _, _, tail = status.rpartition(b"\nvoluntary_ctxt_switches:")
        numbers = tail.split()  # "12 nonvoluntary_ctxt_switches: 3"
        if len(numbers) == 3:
            self.switches, self.may_have_switched = (int(numbers[0]), int(numbers[2])), False
