"""One look: perf's events are opened together, count for a while, and are read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.protocol import Link
from llmtop.collectors.tracing.perf import sched as perf_sched
from llmtop.collectors.tracing.perf import threads as perf_threads
from llmtop.collectors.tracing.perf.events import HERTZ, PerfEvents
from llmtop.collectors.tracing.perf.perf_text import ThreadCalls
from llmtop.collectors.tracing.perf.run import PerfError, Recording
from llmtop.collectors.tracing.perf.sched import Seed, Slice, SliceSums, Stacks
from llmtop.collectors.tracing.perf.threads import ThreadTable
from llmtop.model import NS_PER_S, Unknown, UnknownKind

LEAST_SWITCHES = 20
"""So many switches of the server without a single event are no chance."""
MOST_MISSED, MOST_AT_EDGES = 0.1, 5
"""Of the times that threads came to a CPU, what may be unseen: sleeps are wrong by as much."""
Found = TypeVar("Found")


class RecordedSlice:
    """A look that is over, with records to be read.

    Attributes:
        start: When it began, in ns.
        end: When it ended.
        lost: Events of the records read so far that found no room in perf's buffers.
    """

    def __init__(self, events: PerfEvents, recordings: Mapping[str, Recording], family: ThreadTable) -> None:
        self._events = events
        self._recordings = recordings
        self._family = family
        self._seeds: Mapping[int, Seed] = {}
        self._switches = 0
        self._expected = 0.0
        self.start: int
        self.end: int
        self.lost = 0

    def take(self, link: Link, seconds: float) -> None:
        """Look for so long; at nothing, where no event counts, in no time."""
        self._recordings = {name: one for name, one in self._recordings.items() if self._events.enable(name, one)}
        # Not before: until perf has answered that it counts, threads go to sleep and wake up.
        self._seeds = perf_threads.seeds(self._family) if "scheduler" in self._recordings else {}
        self.start = time.monotonic_ns()
        link.say({"kind": "looking", "calls": "syscalls" in self._recordings})
        counted_ns, before = self._counts()
        if self._recordings:
            link.wait(seconds=seconds)
        self.end = time.monotonic_ns()
        link.say({"kind": "looked"})
        for recording in self._recordings.values():
            recording.stop()
        until_ns, after = self._counts()
        self._switches = perf_threads.times_run(before, after)
        self._expected = self._switches * (self.end - self.start) / max(1, until_ns - counted_ns)

    def _counts(self) -> tuple[int, dict[int, tuple[int, int]]]:
        """What the kernel counts of each thread, and when: in the middle of reading it, which may take a while."""
        before = time.monotonic_ns()
        counts = perf_threads.schedstats(self._family)
        return (before + time.monotonic_ns()) // 2, counts

    def sums(self) -> SliceSums | None:
        """What the scheduler did; None where that could not be seen."""

        def read(recording: Recording) -> SliceSums:
            account = Slice(self.start, self.end, self._seeds)
            for sample in recording.samples(self._events.wait):
                account.take(sample)
            sums = account.close()
            self._must_have(sums.events)
            self._must_have_all(sums.arrivals, recording.lost)
            return sums

        return self._read("scheduler", read)

    def stacks(self) -> Stacks:
        """The stacks of what ran, and of sleeps if they were asked for."""

        def read(recording: Recording) -> Stacks:
            events, tids = recording.samples(self._events.wait), frozenset(self._family.threads)
            return perf_sched.stacks_of(events, self.start, self.end, tids, NS_PER_S // HERTZ)

        return self._read("samples", read) or {}

    def calls(self) -> Sequence[ThreadCalls] | None:
        """The system calls of each thread; None where they could not be seen."""

        def read(recording: Recording) -> Sequence[ThreadCalls]:
            tables = recording.calls(self._events.wait)
            self._must_have(len(tables))
            return tables

        return self._read("syscalls", read)

    def _read(self, name: str, read: Callable[[Recording], Found]) -> Found | None:
        recording, part = self._recordings.get(name), self._events.parts[name]
        if recording is None:
            return None
        try:
            found = read(recording)
        except PerfError as error:
            part.failed(error)
            return None
        finally:
            self.lost += recording.lost
        part.worked()
        return found

    def _must_have(self, events: int) -> None:
        """A program of another tracer that returns 0 on an event takes it away from perf, without a word."""
        switches = self._switches
        if events or switches < LEAST_SWITCHES:
            return
        others = ""
        if os.geteuid() == 0:
            others = ", ".join(f"{name} (pid {pid})" for pid, name, _ in system.other_tracers())
        reason = (
            f"perf got no events though the server's threads switched {switches} times: another tracer filters them"
        )
        raise PerfError(Unknown(reason, f"end {others or 'it'}: its programs should return 1"), lasting=False)

    def _must_have_all(self, arrivals: int, lost: int) -> None:
        """Where some events are kept from perf, a sleep seems to go on, or never to have begun.

        Another tracer's program may let only its own process's events through; some kernels give perf no event of
        one CPU's idle task, which is what most sleepers wake up after.
        """
        if self._expected - arrivals <= max(MOST_AT_EDGES, MOST_MISSED * self._expected):
            return
        reason = f"perf saw {arrivals} of {self._expected:.0f} times that the server's threads came to a CPU"
        if lost:
            raise PerfError(
                Unknown(f"{reason}: its buffers had no room", "it is tried again by itself", UnknownKind.PASSING),
                lasting=False,
            )
        remedy = "end other tracers, or use eBPF probes (llmtop doctor says what they need here)"
        raise PerfError(Unknown(f"{reason}: another tracer or the kernel keeps the rest", remedy), lasting=False)


@contextmanager
def looked(
    events: PerfEvents, family: ThreadTable, link: Link, names: Sequence[str], seconds: float, *, sleeps: bool = False
) -> Iterator[RecordedSlice]:
    """Look at some parts at the same time; their records can be read within the block.

    Args:
        events: Opens the parts' events.
        family: The threads to look at.
        link: Tells llmtop when the look begins and ends.
        names: The parts.
        seconds: How long to look.
        sleeps: Whether samples are of sleeps too.
    """
    with ExitStack() as opened:
        recordings = {name: one for name in names if (one := events.open(name, opened, sleeps=sleeps)) is not None}
        look = RecordedSlice(events, recordings, family)
        look.take(link, seconds)
        yield look
