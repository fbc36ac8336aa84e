"""The events that perf opens on a server: which, with what, and what becomes of those that cannot be had."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing

from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.system import UnavailableError
from llmtop.collectors.tracing.perf import threads as perf_threads
from llmtop.collectors.tracing.perf.run import PerfError, PerfProgram, Recording, Wait
from llmtop.collectors.tracing.perf.threads import ServerThreads
from llmtop.collectors.tracing.wire import Why
from llmtop.model import Unknown

HERTZ = 199
"""Of on-CPU stacks within a look: in all as many as 20 a second all the time. A prime, so as to go with no timer."""
MOST_THREADS = 1000
"""That perf opens events for; of more, the busiest."""
MOST_PAGES = 4096
"""Of perf's buffers over all threads, 4 KiB each; an ordinary user has an eighth of that for each CPU by default."""
MOST_RANGES = 24
"""Of thread ids in the kernel's filter: each costs every switch of the machine some ns, and its text has a page."""
USER_PAGES_A_CPU = 64
"""What an ordinary user's buffers may have: half of perf_event_mlock_kb's default of 516 KiB a CPU."""
_MOST_PASSING = 3
"""Failures in a row that may pass, from which on they count as lasting."""
_OUTSIDE = "run llmtop on the host, or its container with --pid=host"
_BY_USER = Why("perf shows an ordinary user no kernel functions", "sudo llmtop ...")


class EventGroup:
    """Something that is looked at: as long as it can be, and not when it costs too much."""

    def __init__(self) -> None:
        self.given_up = False
        self.why: Unknown | None = None
        """Why there is nothing."""
        self._failures = 0

    def worked(self) -> None:
        """It was looked at."""
        self.why = None
        self._failures = 0

    def failed(self, error: PerfError) -> None:
        """It could not be: what may pass by itself is told when it does not."""
        self._failures += 1
        self.given_up = error.lasting
        if error.lasting or self._failures >= _MOST_PASSING:
            self.why = error.why


class PerfEvents:
    """Opens perf's events, and learns what does not work here.

    Args:
        program: The perf to run.
        server: On whose threads.
        wait: How to wait for perf.
    """

    def __init__(self, program: PerfProgram, server: ServerThreads, wait: Wait) -> None:
        self._perf = program
        self._server = server
        self.wait = wait
        self.parts = {"scheduler": EventGroup(), "samples": EventGroup(), "syscalls": EventGroup()}
        self._is_users_only = False
        self._only_old = False
        """Whether short-lived threads are left out: perf gives up when one ends while it begins."""
        self._note_namespace()

    def _note_namespace(self) -> None:
        """Events name threads by the machine's own ids, which from within a PID namespace mean others."""
        try:
            if system.pid_namespace() is None:
                return
            why = Unknown("inside a PID namespace perf's events name threads by the machine's ids", _OUTSIDE)
        except UnavailableError as error:
            why = Unknown(error.reason, error.remedy)
        self.parts["scheduler"].failed(PerfError(why, lasting=True))

    @property
    def unavailable(self) -> Unknown | None:
        """Why there will never be anything; None while there may be."""
        if not all(part.given_up for part in self.parts.values()):
            return None
        return self.parts["samples"].why

    def missing(self) -> dict[str, Why]:
        """What cannot be had."""
        found = {name: Why(part.why.reason, part.why.remedy) for name, part in self.parts.items() if part.why}
        if self._is_users_only:
            found["stacks of the kernel"] = _BY_USER
        left_out = len(self._server.family.threads) - len(self._busiest())
        if left_out > 0:
            which = f"of less than {perf_threads.OLD_S:g} s" if self._only_old else "that did least"
            found["perf.threads"] = Why(f"the stacks and calls of {left_out} threads {which} are left out", "")
        return found

    def open(self, name: str, opened: ExitStack, *, sleeps: bool) -> Recording | None:
        """Have perf open a part's events, and wait until it has; None where it cannot.

        Args:
            name: The part.
            opened: Ends the recording.
            sleeps: Whether samples are of sleeps too.
        """
        part = self.parts[name]
        if part.given_up:
            return None
        recording = opened.enter_context(closing(Recording(self._perf.path, self.options(name, sleeps=sleeps))))
        if self._tell(name, recording, "disable"):
            return recording
        if name == "samples" and part.given_up and not self._is_users_only and os.geteuid() != 0:
            self._is_users_only = True
            part.given_up = False
            return self.open(name, opened, sleeps=sleeps)
        if name != "scheduler" and not part.given_up and not self._only_old:
            self._only_old = True
            return self.open(name, opened, sleeps=sleeps)
        return None

    def enable(self, name: str, recording: Recording) -> bool:
        """Have a part's events counted from now on; whether they are."""
        return self._tell(name, recording, "enable")

    def _tell(self, name: str, recording: Recording, command: str) -> bool:
        try:
            recording.tell(command, self.wait)
        except PerfError as error:
            self.parts[name].failed(self._better_reason(error))
            return False
        return True

    def _better_reason(self, error: PerfError) -> PerfError:
        """What perf cannot know: whose processes these are."""
        owners = {perf_threads.owner(pid) for pid in self._server.family.processes} - {None}
        if os.geteuid() == 0 or owners <= {os.geteuid()}:
            return error
        why = Unknown("the server is another user's", "sudo llmtop ..., or run llmtop as that user")
        return PerfError(why, lasting=error.lasting)

    def options(self, name: str, *, sleeps: bool) -> list[str]:
        """What `perf record` is told for a part; `sleeps` as for `open`."""
        if name == "scheduler":
            return self._of_scheduler()
        return self._of_samples(sleeps) if name == "samples" else self._of_calls()

    def _of_scheduler(self) -> list[str]:
        ranges = perf_threads.id_ranges(self._server.family.threads, MOST_RANGES)
        stack = "call-graph=fp,max-stack=16"
        switches = f"{perf_threads.within('prev_pid', ranges)}||{perf_threads.within('next_pid', ranges)}"
        events = [f"-esched:sched_switch/{stack}/", "--filter", switches]
        for wakeup in ("sched:sched_wakeup", "sched:sched_wakeup_new"):
            events += [f"-e{wakeup}/{stack}/", "--filter", perf_threads.within("pid", ranges)]
        return ["-a", "-m", "256", "--kernel-callchains", *self._perf.without_maps, *events]

    def _of_samples(self, sleeps: bool) -> list[str]:
        common = ["-T", "--per-thread", "-g", *self._whom()]
        if self._is_users_only:
            return [*common, "-e", f"cpu-clock/freq={HERTZ}/u"]
        switches = ["--switch-events", "-e", "sched:sched_switch"] if sleeps else []
        return [*common, "-e", f"cpu-clock/freq={HERTZ}/", *switches]

    def _of_calls(self) -> list[str]:
        events = ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit"]
        return ["-T", "--per-thread", *self._perf.without_maps, *self._whom(), *events]

    def _whom(self) -> list[str]:
        pages = USER_PAGES_A_CPU * (os.cpu_count() or 1) if self._is_users_only else MOST_PAGES
        return self._server.family.options(pages, self._busiest())

    def _busiest(self) -> list[int]:
        """The threads to open events for: all, or as many as perf can take."""
        most = MOST_THREADS
        if self._is_users_only:
            most = min(most, USER_PAGES_A_CPU * (os.cpu_count() or 1) // 2)
        return self._server.busiest(most, only_old=self._only_old)
