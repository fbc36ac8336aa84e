"""Kernels that were launched and did not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from llmtop.analysis.kernels.table import FAILED, kernels_of
from llmtop.model import Finding, Severity, Trace

id = "failed-launches"
summary = "A kernel launch failed: what its results are read from is not what it would have written."
source = "CUDA C++ Programming Guide (error checking: a launch reports its errors at a later call)"

_SHOWN = 4
"""Names with a line of their own."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for all of them, whatever their time: nobody knows what they would have taken."""
    kernels = kernels_of(trace)
    failed = kernels.failed
    if not failed:
        return
    names = Counter(kernels.short_name(i) for i in failed)
    several = f"{len(failed)} launches of {len(names)} kernels" if len(names) > 1 else next(iter(names))
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=several,
        message=f"{len(failed)} of {len(kernels.table)} launches failed: shares of time are of the others",
        evidence=(
            FAILED.reason,
            *(f"{name}: {times} x" for name, times in names.most_common(_SHOWN)),
        ),
        action="check what cudaGetLastError says after the launch: too many threads or registers for a block, too much "
        "shared memory, no code for this GPU; compute-sanitizer names accesses that are out of bounds",
        no_command="no profiler measures a launch that fails",
        source=source,
        parts=tuple(names),
    )
