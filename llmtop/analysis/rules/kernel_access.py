"""Access patterns that move more than they use: uncoalesced global accesses, shared-memory bank conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmtop.analysis.counters import first, number
from llmtop.analysis.rules.kernel_evidence import Judged, heavy
from llmtop.model import Finding, Severity, Trace
from llmtop.units import number as text
from llmtop.units import percent, si

id = "kernel-access-pattern"
summary = "The kernel's loads and stores move bytes that nobody asked for, or collide in shared memory."
source = "Nsight Compute, UncoalescedGlobalAccess and SharedMemoryConflicts rules (10 %); CUDA Best Practices Guide"

_SECTOR_BYTES = 32
_POOR_BYTES = 16.0
"""Half of a sector: from here down most of what is moved is thrown away. Ours; NVIDIA's rule speaks below 32."""
_NOTABLE_SHARE = 0.1
"""Of all wavefronts: the threshold of NVIDIA's SharedMemoryConflicts rule."""


@dataclass(frozen=True, slots=True)
class _Access:
    title: str
    operation: str


_GLOBAL = (_Access("global loads", "ld"), _Access("global stores", "st"))
_SHARED = (_Access("shared loads", "ld"), _Access("shared stores", "st"))


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels, one finding for each kind of access that wastes."""
    for judged in heavy(trace):
        for access in _GLOBAL:
            yield from _uncoalesced(judged, access)
        for access in _SHARED:
            yield from _conflicts(judged, access)


def _uncoalesced(judged: Judged, access: _Access) -> Iterator[Finding]:
    used = number(judged.metrics, f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{access.operation}.ratio")
    # A kernel without such accesses has the ratio 0.
    if used is None or not 0 < used <= _POOR_BYTES:
        return
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=judged.name,
        message=f"uncoalesced {access.title}: {text(used)} of the {_SECTOR_BYTES} bytes of a sector are used",
        evidence=(judged.time, f"{text(used)} bytes per sector (ncu)"),
        action="let neighbouring threads touch neighbouring addresses: swap the index order, transpose through "
        "shared memory, or change the layout",
        next_command=judged.again("SourceCounters", "MemoryWorkloadAnalysis_Tables"),
        source=source,
    )


def _conflicts(judged: Judged, access: _Access) -> Iterator[Finding]:
    name = f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{access.operation}.sum"
    conflicts = number(judged.metrics, name)
    wavefronts = first(judged.metrics, (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{access.operation}.sum",))
    if not conflicts or not wavefronts or conflicts / wavefronts < _NOTABLE_SHARE:
        return
    share = percent(100 * conflicts / wavefronts)
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=judged.name,
        message=f"bank conflicts: {share} of the wavefronts of {access.title} are repeats",
        evidence=(judged.time, f"{si(conflicts)} conflicts in {si(wavefronts)} wavefronts (ncu)"),
        action="pad the rows of the shared array by one element, or swizzle its index",
        next_command=judged.again("SourceCounters", "MemoryWorkloadAnalysis_Tables"),
        source=source,
    )
