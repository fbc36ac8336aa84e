"""Kernels of a watched server that failed, of the core dumps that it has left of its GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.rules.gpu_fault import by_place, of_place
from llmtop.analysis.server.fault import for_s
from llmtop.model import CoreDump, Finding, GpuFault, Mark, Severity, Trace, Unknown
from llmtop.text import quoted
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

id = "core-dump"
summary = "A kernel of the server failed: what it did, where in the source, in which thread; or its dump was cut short."
source = "CUDA-GDB: GPU core dump support, CUDA exception codes (CUDA_EXCEPTION_1 ...)"

_SHOWN = 4
"""Dumps that are named of those that tell the same."""


def check(trace: Trace) -> Iterator[Finding]:
    """Of each exception and place in the code what the newest dump tells; then dumps that tell nothing."""
    left = [(mark, mark.about) for mark in reversed(trace.marks) if isinstance(mark.about, CoreDump)]
    yield from _of_dumps(trace, [(mark, dump) for mark, dump in left if dump.why_not is None])
    for mark, dump in left:
        if dump.why_not is not None:
            yield _untold(trace, mark, dump, dump.why_not)


def newest_dump(trace: Trace) -> CoreDump | None:
    """The last one that can be opened; None where the server has left none."""
    dumps = (mark.about for mark in reversed(trace.marks) if isinstance(mark.about, CoreDump))
    return next((dump for dump in dumps if dump.why_not is None), None)


def _of_dumps(trace: Trace, dumps: Sequence[tuple[Mark, CoreDump]]) -> Iterator[Finding]:
    """What the newest dump of each exception and place tells: workers that fail alike are one finding."""
    places: dict[tuple[str, str, int], list[tuple[Mark, CoreDump, list[GpuFault]]]] = {}
    for mark, dump in dumps:
        for faults in by_place(dump.faults):
            first = faults[0]
            places.setdefault((first.exception, first.function, first.offset), []).append((mark, dump, faults))
    for (mark, dump, faults), *others in places.values():
        finding = of_place(faults, dump.gpu or faults[0].gpu, _opening(dump))
        told = [_left(trace, mark, dump), *dump.notes]
        told += [f"the same in {other.subject}: {another.file}" for other, another, _ in others[: _SHOWN - 1]]
        if len(others) >= _SHOWN:
            told.append(f"and in {len(others) - _SHOWN + 1} more dumps")
        yield replace(finding, rule=id, source=source, evidence=(*finding.evidence, *told))


def _untold(trace: Trace, mark: Mark, dump: CoreDump, why: Unknown) -> Finding:
    return Finding(
        rule=id,
        severity=Severity.ERROR,
        subject=mark.subject,
        message=f"{mark.subject} left a core dump of its GPU, which {why.reason}",
        evidence=(_left(trace, mark, dump),),
        action=why.remedy or "the program's own log may say which call failed",
        source=source,
    )


def _left(trace: Trace, mark: Mark, dump: CoreDump) -> str:
    ago = for_s(mark.t_ns, trace.end_ns)
    return f"core dump of {mark.subject}, {binary_bytes(dump.size)}, {ago} ago: {dump.file}"


def _opening(dump: CoreDump) -> str:
    return f"llmtop open {quoted(dump.file)}"
