"""Tables of what the sections of a profiler's report say of each kernel, and of the warps that a core dump has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.counting import not_counted
from llmtop.analysis.kernels.instruction_mix import instruction_mix
from llmtop.analysis.kernels.pm_samples import pm_samples
from llmtop.analysis.kernels.roofline_levels_table import all_levels_table, levels_by_launch
from llmtop.analysis.kernels.section_page import PageRow, SectionPage
from llmtop.analysis.kernels.section_tables import section_tables
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.kernels.warps import warps_page
from llmtop.analysis.rules.gpu_fault import accessed
from llmtop.analysis.views import Column
from llmtop.model import Unknown
from llmtop.python.frame import Frame

if TYPE_CHECKING:
    from llmtop.analysis.kernels.section_page import PageOf
    from llmtop.analysis.views import Cell
    from llmtop.model import FailedWarp, GpuFault, Trace

KERNEL = (
    Column("kernel", "kernel", help="short name, as in kernels"),
    Column("launch", "#", "1", help="as in kernels"),
)
_PAGE = (
    *KERNEL,
    Column("part", "part", help="what its values have in common"),
    Column("name", "name", help="empty where a row says why a part is not there"),
    Column("value", "value", help="a number in the unit of its row, or a text"),
    Column("unit", "unit", help="of the value; empty where it has none"),
    Column("share", "share", "ratio", help="of what its part says; None where it is a share of nothing"),
    Column("metric", "metric", help="the tool's own name; empty where the value is worked out"),
    Column("says", "says", help="what it means"),
    Column("advice", "advice", help="what to do where it is much"),
)
_SERIES = (
    *KERNEL,
    Column("part", "part", help="the unit of the GPU"),
    Column("name", "name"),
    Column("metric", "metric", help="the tool's own name"),
    Column("step", "step", "1", help="of the kernel's time, in equal steps from 0 on"),
    Column("value", "value", "1", help="in the unit of its row"),
    Column("unit", "unit", help="of the value; what is counted is counted in this step"),
)
_FAULTS = (
    Column("exception", "exception", help="as cuda-gdb calls it"),
    Column("code", "code", "1", help="its number (CUDBGException_t)"),
    Column("kernel", "kernel"),
    Column("function", "function", help="what holds the instruction"),
    Column("offset", "offset", "bytes", help="of the instruction from the function's beginning"),
    Column("place", "place", help="file and line of the source"),
    Column("instruction", "instruction"),
    Column("address", "address", "1", help="that it accessed, as the registers stand"),
    Column("gpu", "GPU", help="its track"),
    Column("sm", "SM", "1"),
    Column("warp", "warp", "1", help="its place on the SM"),
    Column("block", "block", help="its index, as x,y,z"),
    Column("thread", "thread", help="the one that failed, or the first of the warp, as x,y,z"),
    Column("lanes", "lanes", "1", help="threads of the warp that were at the instruction"),
)
_ENDED = Unknown("the warp had ended before the GPU was read")
_NO_FAULTS = Unknown("this is no core dump of a GPU")

Pages: TypeAlias = Iterator[tuple[tuple[str, int], "SectionPage | Unknown"]]
"""Of launches the cells that say which it is, and its page."""


def page_frame(page_of: PageOf, trace: Trace, kernel: str) -> Frame | Unknown:
    """A page of each kernel, its values below each other."""
    rows = ((*which, *cells) for which, page in _pages(page_of, trace, kernel) for cells in _cells(page))
    return not_counted(trace) or Frame.of(_PAGE, rows)


def _pages(page_of: PageOf, trace: Trace, kernel: str) -> Pages:
    kernels = kernels_of(trace)
    for i in kernels.standing(kernel):
        yield (kernels.short_name(i), i), page_of(trace, i)


def _cells(page: SectionPage | Unknown) -> Iterator[tuple[Cell, ...]]:
    """Of what is not there a row without a name, which says why."""
    if isinstance(page, SectionPage):
        yield from ((part.title, *_row(row)) for part, row in page.rows)
    why = page if isinstance(page, Unknown) else page.missing
    if why is not None:
        yield ("", *_row(PageRow("", why)))


def _row(row: PageRow) -> tuple[Cell, ...]:
    return row.name, row.value, row.unit, row.share, row.metric, row.says, row.advice


def series_frame(trace: Trace, kernel: str) -> Frame | Unknown:
    """The samples of each kernel that has any; why none has."""
    if (why := not_counted(trace)) is not None:
        return why
    pages = list(_pages(pm_samples, trace, kernel))
    rows = [
        (*which, part.title, row.name, row.metric, step, value, row.unit)
        for which, page in pages
        if isinstance(page, SectionPage)
        for part, row in page.rows
        for step, value in enumerate(row.samples)
    ]
    why = next((page for _, page in pages if isinstance(page, Unknown)), None)
    return Frame.of(_SERIES, rows) if rows or why is None else why


def levels_frame(trace: Trace, kernel: str) -> Frame | Unknown:
    """Each kernel under the ceilings of each level of the memory."""
    found = levels_by_launch(trace, kernel)
    if isinstance(found, Unknown):
        return found
    rows = all_levels_table(trace, found)
    return Frame.of(rows.columns, map(rows.cells, range(len(rows))))


def faults_frame(trace: Trace) -> Frame | Unknown:
    """A row for each warp that failed."""
    return Frame.of(_FAULTS, map(_fault, trace.faults)) if trace.faults else _NO_FAULTS


def _fault(fault: GpuFault) -> tuple[Cell, ...]:
    at = (fault.function, fault.offset, fault.place, fault.instruction, accessed(fault), fault.gpu, fault.sm)
    stood: tuple[Cell, ...] = (_ENDED,) * 4 if fault.stood is None else _warp(fault.stood)
    return fault.exception, fault.code, fault.kernel, *at, *stood


def _warp(stood: FailedWarp) -> tuple[Cell, ...]:
    index = "{},{},{}".format
    return stood.warp, index(*stood.block_index), index(*stood.thread_index), stood.lanes


PAGES: dict[str, PageOf] = {
    "warps": warps_page,
    "instruction_mix": instruction_mix,
    "pm_samples": pm_samples,
    "sections": section_tables,
}
"""By the name of its table what makes the page of a launch."""
