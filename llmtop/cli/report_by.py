"""What `llmtop report --by` can be asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llmtop.analysis.kernels.breakdown.breakdown import By
from llmtop.analysis.kernels.breakdown.within import range_times
from llmtop.analysis.kernels.nvtx_ranges import only_range
from llmtop.analysis.kernels.source_table import CodeBy
from llmtop.analysis.pages.cut import only_begun_in, only_time
from llmtop.analysis.timeline.listed import Listed
from llmtop.cli.report import OF_RECORDINGS
from llmtop.cli.report_levels import levels_by
from llmtop.cli.report_listed import listed_by
from llmtop.cli.report_memory import memory_over_time
from llmtop.cli.report_occupancy import occupancy_by
from llmtop.cli.report_pages import PAGES, pages_by
from llmtop.cli.report_printed import PRINTED, printed_by
from llmtop.cli.report_series import series_over_time
from llmtop.cli.report_source import code_by
from llmtop.cli.report_time import time_by
from llmtop.cli.report_traffic import traffic_by
from llmtop.errors import FileError
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llmtop.cli.part_table import PartTable, WantedTable
    from llmtop.model import Trace


@frozen
class _Kind:
    """One kind of table.

    Attributes:
        make: What makes it of a trace.
        within: What leaves of a trace that which it is made of where it is cut to the ranges of a name.
        part: How that is said, "{}" for the name; empty where the table says so itself.
    """

    make: Callable[[Trace, WantedTable], PartTable[Any]]
    within: Callable[[Trace, str], Trace | Unknown]
    part: str = ""


def _whole(trace: Trace, name: str) -> Trace:
    """Of steps, ranges, streams and GPUs the rows themselves are cut: what is beside them counts too."""
    return trace


def _asked_for(trace: Trace, name: str) -> Trace | Unknown:
    times = range_times(trace, name)
    return times if isinstance(times, Unknown) else only_begun_in(trace, times)


def _meanwhile(trace: Trace, name: str) -> Trace | Unknown:
    times = range_times(trace, name)
    if isinstance(times, Unknown):
        return times
    return only_time(trace, max(0, times.start_ns - trace.start_ns), times.end_ns - trace.start_ns)


def _observed_by(trace: Trace, wanted: WantedTable) -> PartTable[Any]:
    # Imported here: with it comes all that a snapshot says, and reports of tools have no use for it.
    from llmtop.cli.report_observed import observed_by

    return observed_by(trace, wanted)


_MEANWHILE = 'from the begin of the first to the end of the last range "{}"'
_TOLD_OF_RECORDINGS = (*OF_RECORDINGS, "series")
_OF_REPORTS = Unknown(
    "a recording has no kernels and no timeline, but numbers over time", f"--by {' or '.join(_TOLD_OF_RECORDINGS)}"
)
_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(By, _Kind(time_by, _whole)),
    **dict.fromkeys(Listed, _Kind(listed_by, _asked_for, 'asked for in the ranges "{}"')),
    "memory": _Kind(memory_over_time, _meanwhile, _MEANWHILE),
    "series": _Kind(series_over_time, _meanwhile, _MEANWHILE),
    **dict.fromkeys(OF_RECORDINGS, _Kind(_observed_by, _meanwhile, _MEANWHILE)),
    **dict.fromkeys(PRINTED, _Kind(printed_by, _whole)),
    **dict.fromkeys(CodeBy, _Kind(code_by, only_range)),
    "occupancy": _Kind(occupancy_by, only_range),
    "traffic": _Kind(traffic_by, only_range),
    "roofline": _Kind(levels_by, only_range),
    **dict.fromkeys(PAGES, _Kind(pages_by, only_range)),
}


def part_table(trace: Trace, wanted: WantedTable) -> PartTable[Any]:
    """The table that is wanted of a trace.

    Raises:
        FileError: The trace has no ranges of the name that it is to be cut to.
    """
    kind = _KINDS[wanted.by]
    if trace.origin.is_observed and wanted.by not in _TOLD_OF_RECORDINGS:
        return replace(kind.make(trace, wanted), found=_OF_REPORTS)
    if not wanted.within:
        return kind.make(trace, wanted)
    cut = kind.within(trace, wanted.within)
    if isinstance(cut, Unknown):
        raise FileError(f"{trace.origin.path}: {cut}")
    return replace(kind.make(cut, wanted), part=kind.part.format(wanted.within))
