"""What the thread that feeds a GPU can be doing while that has nothing to do, told by the names of calls."""

from __future__ import annotations

import re
from enum import StrEnum


class Cause(StrEnum):
    """Why a GPU had nothing to do. The value is the key in JSON."""

    GRAPH = "graph"
    LAUNCH = "launch"
    SLOW_LAUNCH = "slow-launch"
    LATENCY = "launch-latency"
    TURNAROUND = "turnaround"
    QUEUED = "queued"
    SYNC = "sync"
    COPY = "copy"
    ALLOCATION = "allocation"
    LOADING = "code-loading"
    GRAPH_BUILD = "graph-building"
    CALL = "cuda-call"
    MIGRATION = "page-migration"
    OS = "os-call"
    DESCHEDULED = "descheduled"
    OWN_CODE = "own-code"
    PROFILER = "profiler"
    NO_WORK = "no-work"
    UNKNOWN = "unknown"


TITLES = {
    Cause.GRAPH: "inside a graph launch",
    Cause.LAUNCH: "launch call",
    Cause.SLOW_LAUNCH: "slow launch call",
    Cause.LATENCY: "start after a launch",
    Cause.TURNAROUND: "start of queued work",
    Cause.QUEUED: "launched, not started",
    Cause.SYNC: "synchronisation",
    Cause.COPY: "copy call",
    Cause.ALLOCATION: "memory allocation",
    Cause.LOADING: "code loaded or compiled",
    Cause.GRAPH_BUILD: "graph built",
    Cause.CALL: "other CUDA call",
    Cause.MIGRATION: "between page migrations",
    Cause.OS: "OS call",
    Cause.DESCHEDULED: "off its CPU",
    Cause.OWN_CODE: "host code",
    Cause.PROFILER: "the profiler's cost",
    Cause.NO_WORK: "no work asked for",
    Cause.UNKNOWN: "not known",
}
"""What to call them on a screen: what the launching thread was doing, or where the work was."""

MEANINGS = {
    Cause.GRAPH: "between works of one CUDA graph: no thread has to ask for them; fewer and longer kernels help",
    Cause.LAUNCH: "the launching thread was in a call that launches; with nothing queued, its time is the GPU's",
    Cause.SLOW_LAUNCH: "over 200 µs, where some are usual: the launch loaded code, or waited for a lock or a CPU",
    Cause.LATENCY: "nothing was queued: from the end of a launch call its work takes up to 20 µs to begin on the GPU",
    Cause.TURNAROUND: "the next work was queued before the last one ended; the GPU takes a microsecond or so for each",
    Cause.QUEUED: "the work was launched and waited for more than 20 µs: for an event, a host function, another GPU, "
    "for what the GPU had to do from before the capture",
    Cause.SYNC: "the launching thread waited for the GPU, or only then came back from waiting",
    Cause.COPY: "the launching thread was in a copy; copies of pageable memory keep it until they are done",
    Cause.ALLOCATION: "the launching thread allocated or freed memory",
    Cause.LOADING: "code was loaded or compiled: at the first use of a kernel, or because new ones are made",
    Cause.GRAPH_BUILD: "a CUDA graph was captured, instantiated or changed",
    Cause.CALL: "the launching thread was in another CUDA call",
    Cause.MIGRATION: "the driver moved pages of managed memory one after the other, as code touched them",
    Cause.OS: "the launching thread was in a call of the operating system, or blocked between two calls on files",
    Cause.DESCHEDULED: "the launching thread was off its CPU, in no call that was traced",
    Cause.OWN_CODE: "the launching thread ran code, the program's own or a library's, in no call that was traced",
    Cause.PROFILER: "the profiler worked on the launching thread; without it this time is shorter",
    Cause.NO_WORK: "nothing was asked for: before the first and after the last work, or its thread waited for input",
    Cause.UNKNOWN: "the capture does not tell",
}
"""What each says, in a sentence."""

PALETTE = {
    Cause.SYNC: (1, 1),
    Cause.COPY: (1, 2),
    Cause.ALLOCATION: (1, 3),
    Cause.LAUNCH: (2, 1),
    Cause.SLOW_LAUNCH: (2, 2),
    Cause.LATENCY: (2, 3),
    Cause.OWN_CODE: (3, 1),
    Cause.CALL: (3, 2),
    Cause.MIGRATION: (5, 3),
    Cause.OS: (5, 1),
    Cause.DESCHEDULED: (5, 2),
    Cause.GRAPH: (6, 1),
    Cause.TURNAROUND: (6, 2),
    Cause.QUEUED: (6, 3),
    Cause.LOADING: (7, 1),
    Cause.GRAPH_BUILD: (7, 2),
    Cause.PROFILER: (7, 3),
    Cause.NO_WORK: (8, 1),
    Cause.UNKNOWN: (8, 3),
}
"""Which of eight colours a cause has wherever it is drawn, and which of that colour's three shades: causes of a kind
share a colour (calls that wait, launches, the system, the program's code, the GPU's side, what is done once)."""

_OF_CALLS = (
    (Cause.SYNC, re.compile(r"Synchronize|(Event|Stream)Query")),
    (Cause.LAUNCH, re.compile(r"Memset")),
    (Cause.COPY, re.compile(r"Memcpy|MemPrefetch")),
    (Cause.GRAPH_BUILD, re.compile(r"cu(da)?Graph|BeginCapture|EndCapture")),
    (Cause.LOADING, re.compile(r"(Module|Library)(Load|Get|Unload)|Link(Create|Add|Complete)|(Kernel|Func)Set")),
    (
        Cause.ALLOCATION,
        re.compile(r"Malloc|MemAlloc|Free|HostAlloc|HostRe|HostUnre|Mem(Create|Map|Unmap|Release|Addr)"),
    ),
)
"""By the names of CUDA calls other than launches; the first that matches. Filling memory gives a GPU work like one."""

DRIVER_WORK = frozenset({"JIT compilation", "module loading", "lazy function loading"})
"""What the driver does behind a call to get code ready."""


class OsWait(StrEnum):
    """What an OS call keeps a thread for."""

    INPUT = "input"
    SLEEP = "sleep"
    THREAD = "another thread"
    FILES = "files"
    MEMORY = "memory"
    OTHER = "other"


_OF_OS = (
    (OsWait.INPUT, re.compile(r"^(p?poll|__poll|epoll_p?wait2?|p?select|accept4?|recv(from|m?msg)?|mq_.*receive)$")),
    (OsWait.SLEEP, re.compile(r"sleep$")),
    (OsWait.THREAD, re.compile(r"^(pthread_|sem_(timed|clock)?wait|futex|mtx_|cnd_|wait|sched_yield)")),
    (OsWait.MEMORY, re.compile(r"^(mmap|munmap|mremap|mprotect|madvise|s?brk|mlock|move_pages|mbind)")),
    (
        OsWait.FILES,
        re.compile(
            r"read|write|open|close|stat|sync|seek|fget|fput|fallocate|sendfile|getdents|truncate|fcntl|flock|lockf"
        ),
    ),
)


def cause_of_call(name: str) -> Cause:
    """What a CUDA call that launches no kernel is for.

    >>> [cause_of_call(name).value for name in ("cudaMemcpyAsync", "cuMemAlloc", "cudaEventRecord", "cuModuleLoadData")]
    ['copy', 'allocation', 'cuda-call', 'code-loading']
    """
    return next((cause for cause, pattern in _OF_CALLS if pattern.search(name)), Cause.CALL)


def os_wait(name: str) -> OsWait:
    """What an OS call keeps its thread for.

    >>> [os_wait(name).value for name in ("epoll_wait", "clock_nanosleep", "pthread_cond_wait", "fread", "ioctl")]
    ['input', 'sleep', 'another thread', 'files', 'other']
    """
    return next((kind for kind, pattern in _OF_OS if pattern.search(name)), OsWait.OTHER)


def cause_of_os_call(name: str) -> Cause:
    """A thread that waits for input was asked for nothing; any other OS call is a cause of its own."""
    return Cause.NO_WORK if os_wait(name) is OsWait.INPUT else Cause.OS
