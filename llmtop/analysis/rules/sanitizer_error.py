"""What compute-sanitizer reported, once for each place: what a kernel did there, in which thread, called from where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.model import Finding, SanitizerError, Severity, Trace, Unknown
from llmtop.text import base_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

id = "sanitizer-error"
summary = "compute-sanitizer reported an error: what was done, where in the source, in which thread."
source = "NVIDIA Compute Sanitizer, user guide: Memcheck, Racecheck, Initcheck and Synccheck tools"

_WHAT_TO_DO: Final = (
    ("Leaked", "free it before the context is destroyed, at the end of what got it"),
    ("Unused", "get less memory, or none: nothing was written there"),
    ("Program hit", "the call failed: an error of a kernel shows in a later call; mend what is reported before it"),
    ("Uninitialized", "write it first: cudaMemset and cudaMemcpy count bytes, not elements; look for a part left out"),
    ("Host API", "fill all of the buffer before it is copied"),
    ("Race", "put __syncthreads() (of one warp __syncwarp()) between the two accesses"),
    ("Potential", "put __syncthreads() (of one warp __syncwarp()) between the two accesses"),
    ("Barrier", "let all threads of the block, or those of the mask, come to the same barrier: not within a branch"),
)
_MISALIGNED = "an access must begin at a multiple of its size: look at pointers made from bytes, and float4"
_OUTSIDE = "compare the index with the size of the allocation: mostly the last block, or a size that is no multiple"
_SHOWN = 6
"""Notes, and frames of a stack, that are told."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each error and place; errors before warnings, then in the order of the report."""
    groups: dict[tuple[str, str, int | None], list[SanitizerError]] = {}
    for error in trace.sanitizer:
        groups.setdefault((_kind(error), error.function, error.offset), []).append(error)
    for errors in sorted(groups.values(), key=lambda errors: errors[0].severity is not Severity.ERROR):
        yield _finding(errors)


def _kind(error: SanitizerError) -> str:
    """What is the same of errors at one place of a kernel; of the host each is another."""
    return error.what if error.function else repr((error.what, error.host_frames))


def _finding(errors: Sequence[SanitizerError]) -> Finding:
    first = errors[0]
    place = "" if isinstance(first.place, Unknown) else f" at {first.place}"
    return Finding(
        rule=id,
        severity=first.severity,
        subject=base_name(first.function) if first.function else "the program",
        message=f"{first.what}{place}{_who(first)}",
        evidence=tuple(_evidence(errors)),
        action=_action(first),
        source=source,
        no_command="mend it and run compute-sanitizer again",
    )


def _action(error: SanitizerError) -> str:
    if "misaligned" in " ".join((error.what, *error.notes)).lower():
        return _MISALIGNED
    return next((action for word, action in _WHAT_TO_DO if error.what.startswith(word)), _OUTSIDE)


def _who(error: SanitizerError) -> str:
    block, thread = (
        "" if index is None else f", {name} {_index(index)}"
        for name, index in (("block", error.block), ("thread", error.thread))
    )
    return f"{block}{thread}"


def _index(place: tuple[int, int, int]) -> str:
    return "({},{},{})".format(*place)


def _evidence(errors: Sequence[SanitizerError]) -> Iterator[str]:
    first = errors[0]
    if first.function:
        yield f"instruction at {first.function}{'' if first.offset is None else f'+{first.offset:#x}'}"
        if isinstance(first.place, Unknown):
            yield str(first.place)
    yield from first.notes[:_SHOWN]
    if hazards := sum(error.hazards for error in errors):
        yield f"{hazards} hazards: pairs of accesses that nothing keeps in order"
    if len(errors) > 1:
        blocks = len({error.block for error in errors})
        yield f"reported {len(errors)} times, of {blocks} {'block' if blocks == 1 else 'blocks'}"
    for side, frames in (("within", first.device_frames), ("called from", first.host_frames)):
        if frames:
            more = f" < {len(frames) - _SHOWN} more" if len(frames) > _SHOWN else ""
            yield f"{side} {' < '.join(frames[:_SHOWN])}{more}"
