"""Loads and stores of global memory that move sectors of which little is used."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.counters import quotient
from llmtop.analysis.rules.kernel_evidence import (
    BUSY,
    Claim,
    JudgedKernel,
    at_most,
    busy_share,
    claims_of,
    findings,
    heavy,
)
from llmtop.model import Finding, Trace
from llmtop.units import number as text
from llmtop.units import percent, si

id = "kernel-uncoalesced"
summary = "The kernel's loads and stores move bytes that nobody asked for."
source = (
    "Nsight Compute, UncoalescedGlobalAccess rule; CUDA C++ Best Practices Guide, coalesced access to global memory"
)

_SECTOR_BYTES = 32
_POOR_BYTES = 16.0
"""Half of a sector: from here down most of what is moved is thrown away. Ours; NVIDIA's rule speaks below 32."""
_NOTABLE_SHARE = 0.1
"""Of the sectors: less than a tenth too many is the edge of an array, one store a block."""
ADVICE = ("UncoalescedGlobalAccess", "MemoryCacheAccessPattern")
_OPERATIONS = {"ld": "loads", "st": "stores"}
_OWN = (
    "let neighbouring threads touch neighbouring addresses: swap the index order, transpose through shared memory, or "
    "change the layout"
)
_LIBRARY = (
    "give it contiguous inputs or the other layout (a transposed operand read as it lies), or merge the copy into it"
)


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "uncoalesced global accesses")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the kernel wastes; None where that is little, or not known."""
    poor = [(op, used) for op in _OPERATIONS if (used := _used(judged, op)) is not None and 0 < used <= _POOR_BYTES]
    excess = excessive_share(judged)
    if not poor or excess < _NOTABLE_SHARE:
        return None
    wasted_ns = judged.row.total_ns * excess * busy_share(judged)
    at_stake_ns, basis = at_most(judged, wasted_ns, f"the share of needless sectors, by {BUSY}", ADVICE)
    claim = Claim(
        judged,
        f"uncoalesced global {' and '.join(_OPERATIONS[op] for op, _ in poor)}: "
        f"{text(min(used for _, used in poor))} of the "
        f"{_SECTOR_BYTES} bytes of a sector are used",
        _LIBRARY if judged.kind.library else _OWN,
        at_stake_ns,
        basis,
        (*_sectors(judged), f"{percent(100 * excess)} of all sectors would not be needed (ncu)"),
        ("SourceCounters", "MemoryWorkloadAnalysis_Tables"),
        ADVICE,
    )
    return claim if claim.is_worthwhile else None


def _used(judged: JudgedKernel, operation: str) -> float | None:
    """Bytes used of a sector; a kernel without such accesses has the ratio 0."""
    return judged.counter(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{operation}.ratio")


def excessive_share(judged: JudgedKernel) -> float:
    """Sectors that coalesced accesses would not need, of all sectors of loads and stores of global memory.

    As SourceCounters counts them; without that section, by the bytes used and the sectors moved of each operation,
    which take equal shares where those were not counted either.
    """
    counted = quotient(
        judged.counter("derived__memory_l2_theoretical_sectors_global_excessive"),
        judged.counter("memory_l2_theoretical_sectors_global"),
    )
    if counted is not None:
        return counted
    used = {op: ratio for op in _OPERATIONS if (ratio := _used(judged, op))}
    sectors = {op: _moved(judged, op) for op in used}
    weights = {op: 1.0 if None in sectors.values() else float(sectors[op] or 0.0) for op in used}
    whole = sum(weights.values())
    return sum(weights[op] * max(0.0, 1 - used[op] / _SECTOR_BYTES) for op in used) / whole if whole else 0.0


def _moved(judged: JudgedKernel, operation: str) -> float | None:
    return judged.counter(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{operation}.sum")


def _sectors(judged: JudgedKernel) -> Iterator[str]:
    for operation, title in _OPERATIONS.items():
        used, moved = _used(judged, operation), _moved(judged, operation)
        if used:
            amount = "" if moved is None else f" in {si(moved)} sectors"
            yield f"{title}: {text(used)} bytes used of each sector{amount} (ncu)"
