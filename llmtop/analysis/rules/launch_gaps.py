"""The GPU waits for launches: the CPU cannot feed it fast enough."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.gaps import LAUNCH_GAP_NS, GpuGaps, gpu_gaps
from llmtop.model import Finding, Severity, Trace
from llmtop.units import duration, percent

id = "launch-gaps"
summary = "Short gaps between kernels take more than a tenth of the GPU's working time."
source = "Machine Learning Systems, Performance Engineering (launch gaps above 10 %: CUDA graphs first)"

_NOTABLE_SHARE = 0.10
_FEWEST_WORKS = 50
"""A capture of a handful of kernels is no steady state."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each GPU of a timeline."""
    if "kernel" not in trace.spans:
        return
    for gaps in gpu_gaps(trace):
        if gaps.works >= _FEWEST_WORKS and gaps.short_share > _NOTABLE_SHARE:
            yield Finding(
                rule=id,
                severity=Severity.WARNING,
                subject=gaps.gpu.replace("gpu:", "GPU "),
                message=f"launch gaps: idle {percent(100 * gaps.short_share)} of its working time between kernels",
                evidence=tuple(_evidence(gaps)),
                action="capture the step as a CUDA graph (do not run with --enforce-eager), fuse small kernels "
                "(torch.compile), batch more; if the engine's thread waits for a core, give it one",
                next_command="llmtop --attach PID",
                source=source,
            )


def _evidence(gaps: GpuGaps) -> Iterator[str]:
    yield f"{gaps.short} gaps of up to {duration(LAUNCH_GAP_NS)}: {duration(gaps.short_ns)} (nsys)"
    yield f"busy {duration(gaps.busy_ns)} with {gaps.works} kernels and copies (nsys)"
    if gaps.joined_ns:
        late = percent(100 * gaps.late_ns / gaps.joined_ns)
        yield f"in {late} of that idle time the next kernel had not been launched yet: the CPU was late"
    if gaps.long_ns:
        yield f"longer pauses, not counted: {duration(gaps.long_ns)}"
