"""What helpers say to llmtop, and how it is read: the one place where both sides learn the keys and their order.

A helper writes a JSON object a line (protocol.py). Its key "kind" tells which: `Attaching` until it looks, `Ready` once
it does, then a `Sample` again and again; or `Unavailable` and the end. perf's helper says `Looking` at both ends of
each of its looks, and whoever does not know a kind passes it over.

The helpers of probes and of perf fill the same `Sample`. Counters in it are sums since the helper was started, of
what has changed since the sample before: nothing is said of a counter that stands. Stacks are no sums: they are of the
time since the sample before. What a tracer cannot see it leaves out, and says so under `missing`.

Rows are named tuples here and lists in JSON. Numbers that are keys are text there, which `sample` undoes. Times are in
ns, moments of the machine's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

LAST_SLOT = 27
"""Slots of a latency: 0 is below 2^8 ns, 1 below 2^9 ns ... and this one all above (programs/common.h)."""
LOWEST_LOG2 = 8
"""The first slot of histograms ends at so many powers of two of a nanosecond."""
NO_CALL = 0xFFFF
"""In place of a system call: the thread is in none, or nobody can tell."""
IN_SYNC = 0x100
"""Set in the state of a sleep within a call that waits for the GPU (programs/scheduler.c)."""


class WireError(ValueError):
    """A helper has said something that is not as told here."""


class Why(NamedTuple):
    """Why something cannot be had, and what would change that; a remedy may be empty."""

    reason: str
    remedy: str


class Ready(TypedDict, total=False):
    """It looks from now on.

    Attributes:
        pid: Its own, which is not that of the process started where that is sudo.
        processes: Those it looks at.
        seconds: How long that took.
        others: Processes of others that hold BPF programs on events.
        missing: As of a sample.
        knows_calls: Whether sleeps are told by system call.
        perf: The program that is run, of perf's helper.
    """

    kind: str
    pid: int
    processes: Sequence[int]
    seconds: float
    others: Sequence[OtherTracer]
    missing: Mapping[str, Why]
    knows_calls: bool
    perf: str


class OtherTracer(NamedTuple):
    """A process of others with BPF programs; `kinds` is for people."""

    pid: int
    name: str
    kinds: str


class Unavailable(TypedDict):
    """It cannot look here for good."""

    kind: str
    reason: str
    remedy: str


class Looking(TypedDict, total=False):
    """A look of perf's begins (`looking`, with whether at system calls) or is over (`looked`)."""

    kind: str
    calls: bool


class EndedThread(NamedTuple):
    """A thread that has ended; `pid` is its process."""

    pid: int
    tid: int


class CallTotal(NamedTuple):
    """System calls of a process by their id, which `Sample.names` gives a name.

    What was counted alone has neither errors nor time nor slots. `errors` is None where the tracer tells none.
    """

    pid: int
    call: int
    times: int
    errors: int | None
    ns: int
    slots: Mapping[int, int]


class SwitchTimeouts(NamedTuple):
    """Timed waits on a futex that ended by their time limit of Python's switch interval: waits for the GIL."""

    pid: int
    times: int


class SpinTotal(NamedTuple):
    """Calls of a thread that only pass the time: `kind` is "poll" or "sched_yield"."""

    pid: int
    tid: int
    kind: str
    times: int


class SleepTotal(NamedTuple):
    """Sleep of a thread in one system call, or `NO_CALL`, and one state of the kernel's, up to now.

    `descriptor` is the call's first argument: a file, of a call that has one. `state` is as sched_switch tells it: 1 is
    interruptible, 2 is not, 4 and 8 are stopped; `IN_SYNC` may be set beside.
    """

    pid: int
    tid: int
    call: int
    state: int
    descriptor: int
    ns: int


class CauseTotal(NamedTuple):
    """Sleep of a thread by cause, a value of `vocabulary.ThreadCause`, of tracers that know no calls."""

    pid: int
    tid: int
    cause: str
    ns: int


class QueueTotal(NamedTuple):
    """Waits of a process's threads in the run queue, by slot."""

    pid: int
    slots: Mapping[int, int]


class WakeTotal(NamedTuple):
    """How often `waker`, a thread's id, woke a thread; 0 is a timer or an interrupt."""

    pid: int
    tid: int
    waker: int
    times: int


class SleepStack(NamedTuple):
    """`ns` that a thread has slept here since the sample before; frames root first, the kernel's end in "_[k]"."""

    pid: int
    tid: int
    call: int
    state: int
    descriptor: int
    frames: Sequence[str]
    ns: int


class CauseStack(NamedTuple):
    """Likewise by cause, as of `CauseTotal`."""

    pid: int
    tid: int
    cause: str
    frames: Sequence[str]
    ns: int


class RunStack(NamedTuple):
    """`ns` that a thread has run here since the sample before, by samples."""

    pid: int
    tid: int
    frames: Sequence[str]
    ns: int


class FunctionTotal(NamedTuple):
    """Calls of a library function by a process."""

    pid: int
    name: str
    times: int
    ns: int
    slots: Mapping[int, int]


class LibraryThread(NamedTuple):
    """Launches of a thread, and its ns in calls that wait for the GPU, up to now."""

    pid: int
    tid: int
    launches: int
    sync_ns: int


class CollectingThread(NamedTuple):
    """Time of a thread in Python's garbage collector, and how often it collected."""

    pid: int
    tid: int
    ns: int
    times: int


class GpuRound(NamedTuple):
    """What a thread has launched was waited for until `end`, `ns` after the end of the wait before.

    Attributes:
        wait: Time of it in calls that wait for the GPU, of whichever thread; all further times are of this thread.
        launches: Of kernels and graphs; None where they are not counted all the time.
        graphs: Of graphs alone, likewise: they are seldom launched, so that they are known where `launches` are not.
        faults: Page faults; None where they are not known, as of all that follows.
        queued: In the run queue.
        locked: Asleep in futex, `for_input` in poll, epoll, select or a read of a socket, `asleep` in anything else.
        allocation: In calls that get or give back memory of the GPU, `copy` in those that copy and do not wait for it.
        collection: In Python's garbage collector, without such calls of its own.
    """

    pid: int
    tid: int
    end: int
    ns: int
    wait: int
    launches: int | None
    graphs: int | None
    faults: int | None
    queued: int | None
    locked: int | None
    for_input: int | None
    asleep: int | None
    allocation: int | None
    copy: int | None
    collection: int | None


class LibraryObserved(NamedTuple):
    """For how long all of a process's calls that wait for the GPU had probes."""

    pid: int
    ns: int


class Uncounted(NamedTuple):
    """Functions of a process that have no probes."""

    pid: int
    names: Sequence[str]


class Unseen(NamedTuple):
    """What is not known of a process for lack of probes: "launches", "sync", "collections"."""

    pid: int
    kinds: Sequence[str]


class SampledCalls(NamedTuple):
    """Functions of a process of which samples stand for all calls, and what is so known by sample: as of `Unseen`."""

    pid: int
    names: Sequence[str]
    kinds: Sequence[str]


class Observed(TypedDict):
    """For how long each part has looked: counters are sums over that time and no other.

    Attributes:
        calls: System calls were counted.
        timed: They were timed too.
        scheduler: Threads were followed on and off the CPU.
    """

    calls: int
    timed: int
    scheduler: int


class Lifetimes(TypedDict, total=False):
    """What became of processes and threads since the sample before.

    Attributes:
        born: Children that are looked at from now on.
        gone: Processes that have ended.
        renewed: Processes that run as another program now.
        ended: Threads that have ended.
    """

    born: Sequence[int]
    gone: Sequence[int]
    renewed: Sequence[int]
    ended: Sequence[EndedThread]


class SystemCalls(TypedDict, total=False):
    """System calls. `names` has the name of each id in `calls`."""

    calls: Sequence[CallTotal]
    names: Mapping[int, str]
    switch_timeouts: Sequence[SwitchTimeouts]
    spins: Sequence[SpinTotal]


class Scheduling(TypedDict, total=False):
    """Threads on and off the CPU: `waits` of those who know the system call, else `blocked`."""

    waits: Sequence[SleepTotal]
    blocked: Sequence[CauseTotal]
    queue: Sequence[QueueTotal]
    wakes: Sequence[WakeTotal]


class Stacks(TypedDict, total=False):
    """Where threads slept, by call or by cause as their sleeps are told, and where they ran."""

    stacks: Sequence[SleepStack]
    asleep: Sequence[CauseStack]
    running: Sequence[RunStack]


class Coverage(TypedDict, total=False):
    """How much of the library calls is seen. `unprobed` says why, by function, and is for people."""

    library_observed: Sequence[LibraryObserved]
    uncounted: Sequence[Uncounted]
    unseen: Sequence[Unseen]
    sampled: Sequence[SampledCalls]
    unprobed: Mapping[str, str]


class LibraryCounts(Coverage, total=False):
    """Calls of CUDA and NCCL, and of Python's garbage collector. `probed` is how many functions have probes."""

    functions: Sequence[FunctionTotal]
    in_libraries: Sequence[LibraryThread]
    collecting: Sequence[CollectingThread]
    gpu_rounds: Sequence[GpuRound]
    probed: int


class Sample(Lifetimes, SystemCalls, Scheduling, Stacks, LibraryCounts, total=False):
    """What was seen since the sample before.

    Attributes:
        kind: "sample".
        t: When.
        elapsed: How long after the sample before.
        observed: For how long each part has looked since the start.
        hits: How often each kind of probe has run since the start.
        lost: Events that found no room since the start.
        missing: What cannot be had, or not now, by part ("syscalls", "scheduler", "samples") or by metric.
        shed: What is not looked at to save time, for people; empty when that is nothing.
        settling: More will be looked at soon.
        children_ns: CPU time of the programs that were run, since the start.
    """

    kind: str
    t: int
    elapsed: int
    observed: Observed
    hits: Mapping[str, int]
    lost: int
    missing: Mapping[str, Why]
    shed: str
    settling: bool
    children_ns: int


_ROWS: Mapping[str, type[Any]] = {
    "ended": EndedThread,
    "calls": CallTotal,
    "switch_timeouts": SwitchTimeouts,
    "spins": SpinTotal,
    "waits": SleepTotal,
    "blocked": CauseTotal,
    "queue": QueueTotal,
    "wakes": WakeTotal,
    "stacks": SleepStack,
    "asleep": CauseStack,
    "running": RunStack,
    "functions": FunctionTotal,
    "in_libraries": LibraryThread,
    "collecting": CollectingThread,
    "gpu_rounds": GpuRound,
    "library_observed": LibraryObserved,
    "uncounted": Uncounted,
    "unseen": Unseen,
    "sampled": SampledCalls,
}
_WITH_SLOTS = ("calls", "queue", "functions")
"""Rows that end with slots."""


def sample(said: Mapping[str, Any]) -> Sample:
    """A sample as it came out of JSON.

    Raises:
        WireError: A row has more or less in it than it should, or what all samples say is not there.
    """
    try:
        told: dict[str, Any] = {**said, "t": int(said["t"]), "elapsed": int(said["elapsed"])}
        for part in _ROWS.keys() & said.keys():
            make = _ROWS[part]
            if part in _WITH_SLOTS:
                told[part] = [make(*row, _by_number(slots)) for *row, slots in said[part]]
            else:
                told[part] = list(map(make._make, said[part]))
        if "names" in said:
            told["names"] = _by_number(said["names"])
        told["missing"] = reasons(said)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"a sample that is none: {error}") from error
    return cast("Sample", told)


def reasons(said: Mapping[str, Any]) -> dict[str, Why]:
    """What is missing, of a sample or of `Ready`; nothing where neither says so."""
    return {part: Why(*why) for part, why in said.get("missing", {}).items()}


def _by_number(entries: Mapping[Any, Any]) -> dict[int, Any]:
    return {int(key): value for key, value in entries.items()}
