"""CUDA calls that returned an error, of captures that keep what calls returned."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from llmtop.analysis.commands.profiling import program
from llmtop.frozen import frozen
from llmtop.model import Finding, Severity, SpanKind, SpanTable, Stretch, Trace, Value
from llmtop.units import count, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

id = "failed-calls"
summary = "CUDA calls returned errors: a kernel that faulted, memory that was short, work that did not run."
source = "CUDA Driver API: CUresult; CUDA C++ Programming Guide (error checking)"

_SHOWN = 4
"""Calls with a line of their own, each with its error."""
_NUMBER = re.compile(r"(\d+)\)?\Z")
_TOLD_AGAIN = re.compile(r"cuda(?:GetLast|PeekAtLast)Error")
"""They return what an earlier call did."""
_ANSWERS: Final = frozenset({600, 704})
"""Not ready, as a query of an event says, and peer access that is enabled already: no failures."""
_LOST: Final = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719})
"""After these no call of the process succeeds any more: a kernel or the hardware failed (cuda.h, CUresult)."""
_SHORT: Final = frozenset({2})


@frozen
class _FailedCall:
    """A call, its error in words and as a number, and when and where it was."""

    name: str
    error: str
    number: int | None
    is_launch: bool
    place: Stretch


@frozen
class _Verdict:
    """What errors of one kind mean; `command` stands before the program."""

    severity: Severity
    message: str
    action: str
    command: str = ""
    no_command: str = ""


_CONTEXT_LOST = _Verdict(
    Severity.ERROR,
    "a kernel or the GPU failed",
    "a kernel launched before the first of them faulted, or the GPU did: calls that wait return the error of an "
    "earlier launch, so look there; with CUDA_LAUNCH_BLOCKING=1 each launch returns its own; see dmesg for Xid errors",
    command="compute-sanitizer --tool memcheck ",
)
_MEMORY_SHORT = _Verdict(
    Severity.WARNING,
    "memory was short",
    "take less of the GPU's memory (a smaller batch or KV cache), see what else holds some; a caching allocator that "
    "gives its cache back and asks again hides the error, and waits for the GPU each time",
    no_command="this capture shows when; what held the memory is told by one with --cuda-memory-usage=true",
)
_NOT_LAUNCHED = _Verdict(
    Severity.WARNING,
    "work was not launched",
    "check what the launch returns: too many threads or registers for a block, too much shared memory, no code for "
    "this GPU, a stream that is being captured",
    command="compute-sanitizer --tool memcheck --report-api-errors all ",
)
_OTHER = _Verdict(
    Severity.INFO,
    "CUDA calls returned errors",
    "libraries ask so what a GPU or a driver can do, and go on: look only at calls that the program itself makes",
    command="compute-sanitizer --tool memcheck --report-api-errors all ",
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each kind of error, the gravest first."""
    kinds: dict[int, list[_FailedCall]] = defaultdict(list)
    verdicts = (_CONTEXT_LOST, _MEMORY_SHORT, _NOT_LAUNCHED, _OTHER)
    for call in _failed(trace):
        kinds[_kind(call)].append(call)
    for kind in sorted(kinds):
        yield _finding(trace, verdicts[kind], kinds[kind])


def _kind(call: _FailedCall) -> int:
    """Which of the verdicts it is, by the gravest that holds."""
    return [call.number in _LOST, call.number in _SHORT, call.is_launch, True].index(True)


def _failed(trace: Trace) -> Iterator[_FailedCall]:
    for kind in (SpanKind.LAUNCH, SpanKind.CALL, SpanKind.BRIEF_CALL):
        if table := trace.spans.get(kind) or trace.more_spans.get(kind):
            calls = (_call(table, row, error) for row, note in table.notes.items() if (error := note.get("returned")))
            yield from (call for call in calls if call.number not in _ANSWERS and not _TOLD_AGAIN.match(call.name))


def _call(table: SpanTable, row: int, error: Value) -> _FailedCall:
    number = _NUMBER.search(str(error))
    return _FailedCall(
        table.names[table.name_id[row]],
        str(error),
        int(number[1]) if number else None,
        table.kind == SpanKind.LAUNCH,
        Stretch(table.start_ns[row], table.end_ns[row], table.tracks[table.track_id[row]]),
    )


def _finding(trace: Trace, verdict: _Verdict, calls: Sequence[_FailedCall]) -> Finding:
    names = Counter((call.name, call.error) for call in calls)
    first = min(calls, key=lambda call: call.place.start_ns)
    track = trace.tracks.get(first.place.track) if first.place.track else None
    return Finding(
        rule=id,
        severity=verdict.severity,
        subject=track.name if track else "CUDA",
        message=f"{verdict.message}: {first.error}",
        evidence=(
            f"the first: {first.name} after {duration(first.place.start_ns - trace.start_ns)} of the capture",
            *(f"{name} returned {error}: {count(n)} x" for (name, error), n in names.most_common(_SHOWN)),
        ),
        action=verdict.action,
        next_command=verdict.command and verdict.command + program(trace),
        no_command=verdict.no_command,
        source=source,
        parts=tuple(dict.fromkeys(call.name for call in calls)),
        place=first.place,
    )
