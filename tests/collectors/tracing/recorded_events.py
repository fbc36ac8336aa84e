"""One stream of the kernel's events, and what each tracer hands to its reader of it.

That is maps of probes and text of perf. `Counted` is what the probes (programs/*.c) count in the kernel of such a
stream; that they do is tried on real kernels (test_probes.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from llmtop.collectors.tracing.wire import LAST_SLOT
from tests.collectors.tracing.recorded_maps import RecordedModule, slots

STATES = {"S": 1, "D": 2}
RUNS, QUEUES = 0xFFFFFFFF, 0
_KERNEL = "ffffffff81000000 {} ([kernel.kallsyms])"


@dataclass(frozen=True)
class Switch:
    """A CPU goes from one thread to another: the first one's state, and the kernel's function that it sleeps in."""

    t: int
    prev: int
    state: str
    following: int
    sleeps_in: str = ""


@dataclass(frozen=True)
class Wake:
    """A thread may run again; `waker` is 0 for an interrupt."""

    t: int
    waker: int
    tid: int


@dataclass(frozen=True)
class Enter:
    """A system call begins."""

    t: int
    tid: int
    call: int
    argument: int = 0


@dataclass(frozen=True)
class Leave:
    """A system call ends."""

    t: int
    tid: int
    call: int
    result: int = 0


Event: TypeAlias = "Switch | Wake | Enter | Leave"
Place: TypeAlias = "tuple[int, int, int, int]"
"""Thread, call, state and descriptor of a sleep."""


@dataclass
class Off:
    """A thread off the CPU: since when, in what, and since when it may run again."""

    since: int
    place: Place | None
    runnable: int = 0


def slot_of(ns: int) -> int:
    """As programs/common.h has it: by the number of bits above 2^8 ns."""
    return min(LAST_SLOT, len(f"{ns >> 8:b}") if ns >> 8 else 0)


@dataclass
class Counted:
    """What is counted of the threads of a server. `owners` are processes by thread."""

    owners: Mapping[int, int]
    slept: Counter[Place] = field(default_factory=Counter)
    queued: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By thread."""
    wakes: Counter[tuple[int, int]] = field(default_factory=Counter)
    off: dict[int, Off] = field(default_factory=dict)
    calls: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """Errors and ns, by process and call."""
    latency: dict[tuple[int, int], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    _within: dict[int, Enter] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """One more event."""
        match event:
            case Switch():
                self._switch(event)
            case Wake(t, waker, tid) if tid in self.owners:
                self.wakes[tid, waker] += 1
                if (off := self.off.get(tid)) and off.place and not off.runnable:
                    self.slept[off.place] += t - off.since
                    off.runnable = t
            case Enter():
                self._within[event.tid] = event
            case Leave(t, tid, call, result):
                key, ns = (self.owners[tid], call), t - self._within.pop(tid).t
                self.calls[key][0] += result < 0
                self.calls[key][1] += ns
                self.latency[key][slot_of(ns)] += 1

    def _switch(self, event: Switch) -> None:
        if event.prev in self.owners:
            call = self._within.get(event.prev)
            state = STATES.get(event.state)
            place = (event.prev, call.call, state, call.argument) if call and state else None
            self.off[event.prev] = Off(event.t, place, 0 if place else event.t)
        if off := self.off.pop(event.following, None):
            self.queued[event.following][slot_of(event.t - off.runnable)] += 1


def counted(events: Iterable[Event], owners: Mapping[int, int]) -> Counted:
    """All that a stream comes to."""
    found = Counted(owners)
    for event in events:
        found.take(event)
    return found


def into_maps(found: Counted, module: RecordedModule, taken: Counter[tuple[int, int]]) -> None:
    """As the probes leave their maps, by struct thread of programs/scheduler.c.

    `taken` are the wakes that were read before: the reader takes them out of their map.
    """
    for tid, pid in found.owners.items():
        off = found.off.get(tid) or Off(0, None)
        state = QUEUES if off.since else RUNS
        _, call, state, descriptor = off.place or (tid, 0, state, 0)
        woken = off.runnable if off.place else 0
        queued = slots(**{f"s{slot}": count for slot, count in found.queued[tid].items()})
        # A sleep that has ended is in `waits` already, though its thread only queues yet.
        state = QUEUES if woken else state
        head = (off.since, woken, 0, 0, 0, pid, state, call, descriptor, 0, 1, 0, -1, -1, 0)
        module["threads"].put((tid,), (*head, *queued))
    for (tid, call, state, descriptor), ns in found.slept.items():
        module["waits"].put((tid, call, state), (ns, 1, found.owners[tid], descriptor))
    for (tid, waker), count in (found.wakes - taken).items():
        module["wakes"].put((tid, waker), (count,))
    taken |= found.wakes


def into_call_maps(found: Counted, module: RecordedModule) -> None:
    """Likewise, by struct call of programs/calls.c."""
    for key, (errors, ns) in found.calls.items():
        counts = {f"s{slot}": count for slot, count in found.latency[key].items()}
        module["calls"].put(key, (sum(counts.values()), errors, ns, 0, *slots(**counts)))


def as_switches(events: Iterable[Event], owners: Mapping[int, int]) -> str:
    """As `perf script` prints what a record of the scheduler holds."""
    text = ""
    for one in events:
        if isinstance(one, Switch):
            frames = ["__schedule", "schedule", *([one.sleeps_in] if one.sleeps_in else [])]
            text += (
                f" {owners.get(one.prev, one.prev)}/{one.prev}  {_seconds(one.t)}:  sched:sched_switch: "
                f"prev_comm=python prev_pid={one.prev} prev_prio=120 prev_state={one.state} ==> "
                f"next_comm=python next_pid={one.following} next_prio=120\n"
            )
            text += "".join(f"\t{_KERNEL.format(frame)}\n" for frame in frames) + "\n"
        elif isinstance(one, Wake):
            text += (
                f" {owners.get(one.waker, one.waker)}/{one.waker}  {_seconds(one.t)}:  sched:sched_wakeup: "
                f"comm=python pid={one.tid} prio=120 target_cpu=000\n\t{_KERNEL.format('ttwu_do_activate')}\n\n"
            )
    return text


def as_calls(events: Iterable[Event]) -> str:
    """As it prints a record of system calls."""
    text = ""
    for one in events:
        if isinstance(one, Enter):
            arguments = f"{one.argument:x}, 0, 0, 0, 0, 0"
            text += f" {one.tid}  {_seconds(one.t)}: raw_syscalls:sys_enter: NR {one.call} ({arguments})\n"
        elif isinstance(one, Leave):
            text += f" {one.tid}  {_seconds(one.t)}:  raw_syscalls:sys_exit: NR {one.call} = {one.result}\n"
    return text


def _seconds(t_ns: int) -> str:
    return f"{t_ns // 10**9}.{t_ns % 10**9:09}"
