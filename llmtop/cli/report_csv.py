"""`llmtop report --format csv`: one row a kernel, an empty cell where a value is not known.

Of a file that has stacks and no kernels one row a function; of a GPU's core dump one row a warp that failed.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.pages.report import Entry, entries
from llmtop.analysis.rules.gpu_fault import accessed
from llmtop.analysis.tables import csv_line
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.views import RooflinePoint
from llmtop.model import FailedWarp, Trace, Unknown

_COLUMNS = (
    "name", "demangled", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "calls", "duration_ns",
    "time_share", "bound", "intensity_flop_per_byte", "flops_per_s", "bytes_per_s", "precision", "roof_fraction",
    "occupancy_percent", "registers_per_thread", "waves", "top_stall", "top_stall_share", "missing",
    "title", "family", "launch_latency_ns", "queue_ns", "mean_ns", "min_ns", "max_ns", "shared_memory_bytes",
)  # fmt: skip

_NO_LAUNCH = (Unknown("a report of kernels has no launches"),) * 2


def report_csv(trace: Trace) -> Iterator[str]:
    """The table, line by line."""
    if trace.faults and no_kernels(trace):
        yield from _faults(trace)
        return
    if trace.stacks and no_kernels(trace):
        yield from _functions(trace)
        return
    yield csv_line(_COLUMNS)
    kernels = kernels_of(trace)
    for entry in entries(trace):
        launched = map(_known, kernels.launched(entry.row) or _NO_LAUNCH)
        yield csv_line((*_cells(entry), *launched, *_times(entry), _known(entry.facts.shared_memory)))


def _times(entry: Entry) -> Iterator[object]:
    """Of one launch: the mean, the shortest, the longest."""
    row = entry.row
    yield from (ns if ns == ns else "" for ns in (row.mean_ns, row.min_ns, row.max_ns))


def _functions(trace: Trace) -> Iterator[str]:
    yield csv_line(("function", "unit", "own", "total", "own_share", "total_share"))
    for one in functions(trace):
        for share in one.shares:
            yield csv_line((share.name, one.unit, share.own, share.total, share.own_share, share.total_share))


_FAULTS = (
    "exception", "code", "gpu", "kernel", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
    "block_index_x", "block_index_y", "block_index_z", "thread_index_x", "thread_index_y", "thread_index_z",
    "sm", "warp", "lane", "lanes", "function", "offset", "pc", "is_exact", "address", "place", "instruction", "missing",
)  # fmt: skip


def _faults(trace: Trace) -> Iterator[str]:
    """Addresses in bytes; the address is what the instruction goes to, as the registers stand."""
    yield csv_line(_FAULTS)
    for one in trace.faults:
        gpu, address, stood = trace.tracks.get(one.gpu), accessed(one), one.stood
        told = {"place": one.place, "instruction": one.instruction}
        yield csv_line(
            (
                one.exception,
                one.code,
                gpu.name if gpu else one.gpu,
                one.kernel,
                *_indices(stood),
                one.sm,
                *(("",) * 3 if stood is None else (stood.warp, "" if stood.lane is None else stood.lane, stood.lanes)),
                *(one.function, one.offset, one.pc, int(one.is_exact)),
                "" if address is None else address,
                *(_known(value) for value in told.values()),
                "; ".join(f"{name}: {value}" for name, value in told.items() if isinstance(value, Unknown)),
            )
        )


def _indices(stood: FailedWarp | None) -> tuple[object, ...]:
    return ("",) * 12 if stood is None else (*stood.grid, *stood.block, *stood.block_index, *stood.thread_index)


def _cells(entry: Entry) -> tuple[object, ...]:
    facts, total = entry.facts, entry.row.total_ns
    stall = ("", "") if isinstance(facts.stalls, Unknown) else facts.stalls.top
    return (
        entry.name,
        entry.demangled,
        *(size if size >= 0 else "" for size in (*entry.grid, *entry.block)),
        entry.row.calls,
        total if total == total else "",
        "" if entry.share is None else entry.share,
        str(facts.bound_name),
        *_point(entry.roofline),
        _known(facts.roof_fraction),
        _known(facts.occupancy),
        _known(facts.registers),
        _known(facts.waves),
        *stall,
        _reasons(entry),
        entry.short,
        str(entry.family),
    )


def _reasons(entry: Entry) -> str:
    """What is not known, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for missing in entry.missing:
        by_reason.setdefault(str(missing.why), []).append(str(missing.what))
    return "; ".join(f"{', '.join(what)}: {why}" for why, what in by_reason.items())


def _point(point: RooflinePoint | Unknown) -> tuple[object, ...]:
    if isinstance(point, Unknown):
        return "", "", "", ""
    return point.intensity, point.flops_per_s, point.bytes_per_s, point.precision


def _known(value: object) -> object:
    return "" if isinstance(value, Unknown) else value
