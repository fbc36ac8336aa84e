"""The text that perf prints: `perf script`, and the tables of `perf trace -s`.

Read from perf 5.10 to 6.17 (tools/perf/builtin-script.c and builtin-trace.c of Linux). perf prints the names of
threads as they are, with spaces, brackets and newlines in them, so that nothing here trusts a name: numbers are looked
for behind it, and what cannot be read is passed over. Names are not cleaned here: that is for whoever puts them into a
trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from llmtop.frozen import frozen

SWITCH_IN = "PERF_RECORD_SWITCH IN"
SWITCH_OUT = "PERF_RECORD_SWITCH OUT"

_HEADER = re.compile(
    r"(?P<comm>.*?)\s*(?:(?P<pid>-?\d+)/)?(?P<tid>-?\d+)\s+(?:\[(?P<cpu>\d{3,})\]\s+)?"
    r"(?P<seconds>\d{1,12})\.(?P<fraction>\d{6,9}):\s+(?:(?P<period>\d+)\s+)?"
    r"(?P<event>PERF_RECORD_SWITCH(?:_CPU_WIDE)? (?:IN|OUT)|[^\s:]\S*:(?=\s|\Z))\s*(?P<payload>.*)",
    re.DOTALL,
)
_FRAME = re.compile(r"\s*(?P<address>[0-9a-f]{1,16}) (?P<text>.*?)\s*")
_LAST_OBJECT = re.compile(r" \((?=[/\[]|inlined\)|//anon)")
_OFFSET = re.compile(r"\+0x[0-9a-f]+\Z")
_STATE = re.compile(r"(?:prev_state=|\] )(?P<state>[A-Za-z+|]+) ==> ")
_PREV = re.compile(r"prev_comm=.*? prev_pid=(\d+) prev_prio=-?\d+ prev_state=[A-Za-z+|]+ ==> ", re.DOTALL)
_NEXT = re.compile(r" ==> next_comm=.* next_pid=(\d+) next_prio=", re.DOTALL)
# libtraceevent's plugin writes the same shorter: "python:123 [120] S ==> swapper/1:0 [120]".
_SHORT = re.compile(r".*?:(\d+) \[\d+\] [A-Za-z+|]+ ==> .*:(\d+) \[\d+\]", re.DOTALL)
_WOKEN = re.compile(r"(?:comm=.* pid=|.*:)(\d+) (?:prio=|\[)", re.DOTALL)
_KERNEL_BIT = 1 << 63
_USER_OBJECTS = ("[vdso]", "[vsyscall]", "[unknown]", "[heap]", "[stack]", "[anon]", "[uprobes]")
_MODULE = re.compile(r"\.ko(\.\w+)?\Z")


class StackFrame(NamedTuple):
    """One function of a stack. `object` is the file it is in: a path, or a name in brackets."""

    address: int
    symbol: str
    object: str

    @property
    def is_kernel(self) -> bool:
        """Whether it belongs to the kernel: these have the upper half of the addresses."""
        if self.address & _KERNEL_BIT or _MODULE.search(self.object):
            return True
        return self.object.startswith("[kernel.") or self.object.startswith("[guest.kernel.")

    @property
    def name(self) -> str:
        """The function as llmtop's stacks name it: marked when it is the kernel's, else its library in brackets."""
        known = self.symbol not in ("", "[unknown]")
        if self.is_kernel:
            return f"{self.symbol if known else '[kernel]'}_[k]"
        if known:
            return self.symbol
        if self.object and self.object not in _USER_OBJECTS:
            return f"[{self.object.rstrip('/').rpartition('/')[2].strip('[]')}]"
        return "[unknown]"


@frozen
class PerfSample:
    """One event. `frames` are innermost first; -1 stands for an id or a period that was not printed."""

    comm: str
    pid: int
    tid: int
    time_ns: int
    event: str
    period: int
    payload: str
    frames: tuple[StackFrame, ...]


class Switch(NamedTuple):
    """What sched:sched_switch says: who leaves the CPU in which state ("S", "R+" ...), and who comes."""

    prev_tid: int
    state: str
    next_tid: int


class CallRow(NamedTuple):
    """A line of `perf trace -s`; `errors` is None where this perf has no such column. Times in ns."""

    name: str
    calls: int
    errors: int | None
    total_ns: int


@frozen
class ThreadCalls:
    """The system calls of one thread."""

    tid: int
    rows: tuple[CallRow, ...]


def samples(lines: Iterable[str]) -> Iterator[PerfSample]:
    """The events of `perf script`, as they come.

    A line that is neither a header nor a frame is the rest of a header whose thread has a newline in its name.
    """
    header: re.Match[str] | None = None
    rest: list[str] = []
    frames: list[StackFrame] = []
    for raw in lines:
        line = raw.rstrip("\n")
        if not line:
            if header and frames:
                yield _sample(header, rest, frames)
                header, rest, frames = None, [], []
            continue
        found = None if line.startswith("\t") else _HEADER.fullmatch(line)
        if found is not None:
            if header:
                yield _sample(header, rest, frames)
            header, rest, frames = found, [], []
        elif header and (frame := _frame(line)) is not None and line[:1] in " \t":
            frames.append(frame)
        elif header and not frames:
            rest.append(line)
    if header:
        yield _sample(header, rest, frames)


def switch(payload: str) -> Switch | None:
    """What the fields of sched:sched_switch say, however perf wrote them; None for anything else.

    >>> switch("prev_comm=a b prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120")
    Switch(prev_tid=7, state='S', next_tid=0)
    >>> switch("python:7 [120] R+ ==> (sd-pam):12 [120]")
    Switch(prev_tid=7, state='R+', next_tid=12)
    """
    state = _STATE.search(payload)
    prev, following = _PREV.match(payload), _NEXT.search(payload)
    if state and prev and following:
        return Switch(int(prev.group(1)), state.group("state"), int(following.group(1)))
    short = _SHORT.match(payload)
    if state and short:
        return Switch(int(short.group(1)), state.group("state"), int(short.group(2)))
    return None


def woken(payload: str) -> int | None:
    """The thread that sched:sched_wakeup says was woken.

    >>> woken("comm=a pid=1 prio=x pid=42 prio=120 target_cpu=001"), woken("python:42 [120] success=1 CPU:001")
    (42, 42)
    """
    found = _WOKEN.match(payload)
    return int(found.group(1)) if found else None


_THREAD = re.compile(r"\s?.* \((?P<tid>\d+)\), \d+ events, [\d.]+%.*", re.DOTALL)
_CALL = re.compile(
    r"\s+(?P<name>\S+)\s+(?P<calls>\d+)\s+(?:(?P<errors>\d+)\s+)?(?P<total>\d+\.\d+)"
    r"\s+\d+\.\d+\s+\d+\.\d+\s+\d+\.\d+\s+\d+\.\d+%\s*"
)
_NS_PER_MS = 1_000_000
_RAW_CALL = re.compile(
    r"\s*(?P<tid>\d+)\s+(?P<s>\d+)\.(?P<ns>\d{9}):\s+raw_syscalls:sys_"
    r"(?:(?P<entered>enter): NR \d+|exit: NR (?P<number>\d+) = (?P<result>-?\d+)).*"
)
"""What `perf script -F tid,time,event,trace --ns` writes of the system calls' tracepoints."""


def raw_calls(lines: Iterable[str], names: Mapping[int, str]) -> tuple[ThreadCalls, ...]:
    """The system calls of each thread from their events, as `perf trace -s` sums them up.

    Args:
        lines: Of `perf script`.
        names: System calls by number.
    """
    entered: dict[str, int] = {}
    sums: dict[str, dict[str, list[int]]] = {}
    for line in lines:
        found = _RAW_CALL.fullmatch(line.rstrip("\n"))
        if found is None:
            continue
        tid, now = found["tid"], int(found["s"] + found["ns"])
        if found["entered"]:
            entered[tid] = now
            continue
        number = int(found["number"])
        call = sums.setdefault(tid, {}).setdefault(names.get(number, f"syscall {number}"), [0, 0, 0])
        call[0] += 1
        call[1] += int(found["result"]) < 0
        call[2] += now - entered.pop(tid, now)
    return tuple(
        ThreadCalls(int(tid), tuple(CallRow(name, *call) for name, call in calls.items()))
        for tid, calls in sums.items()
    )


def thread_calls(lines: Iterable[str]) -> tuple[ThreadCalls, ...]:
    """The tables of `perf trace -s`, one a thread; empty when it saw none."""
    tables: list[tuple[int, list[CallRow]]] = []
    for line in lines:
        if (row := _CALL.fullmatch(line.rstrip("\n"))) and tables:
            errors = row.group("errors")
            total_ns = round(float(row.group("total")) * _NS_PER_MS)
            name = row.group("name")
            tables[-1][1].append(CallRow(name, int(row.group("calls")), int(errors) if errors else None, total_ns))
        elif found := _THREAD.fullmatch(line.rstrip("\n")):
            tables.append((int(found.group("tid")), []))
    return tuple(ThreadCalls(tid, tuple(rows)) for tid, rows in tables)


_LOST = re.compile(r"\bLOST (\d+) events|\blost (\d+) (?:chunks|samples|events)", re.IGNORECASE)


def lost_events(text: str) -> int:
    """How many events perf says it had no room for.

    >>> lost_events("LOST 27 events!"), lost_events("[ perf record: Woken up 1 times to write data ]")
    (27, 0)
    """
    return sum(int(one or other) for one, other in _LOST.findall(text))


def _sample(header: re.Match[str], rest: list[str], frames: list[StackFrame]) -> PerfSample:
    payload = "\n".join((header.group("payload"), *rest))
    if not frames and not rest and (only := _frame(payload)) is not None and only.object:
        frames, payload = [only], ""  # without call chains the one function follows on the same line
    fraction = header.group("fraction")
    event = header.group("event")
    return PerfSample(
        header.group("comm"),
        int(header.group("pid") or -1),
        int(header.group("tid")),
        int(header.group("seconds")) * 1_000_000_000 + int(fraction.ljust(9, "0")),
        event.removesuffix(":"),
        int(header.group("period") or -1),
        payload.strip(),
        tuple(frames),
    )


def _frame(line: str) -> StackFrame | None:
    """One line of a stack. Symbols of C++ have spaces and parentheses; the object is in the last ones."""
    found = _FRAME.fullmatch(line)
    if found is None:
        return None
    text = found.group("text")
    ends = [match.start() for match in _LAST_OBJECT.finditer(text)]
    if ends and text.endswith(")"):
        symbol, within = text[: ends[-1]], text[ends[-1] + 2 : -1]
    else:
        symbol, within = text, ""
    return StackFrame(int(found.group("address"), 16), _OFFSET.sub("", symbol.strip()), within)
