"""The warps that failed, of a core dump of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.analysis.rules.gpu_fault import accessed
from llmtop.analysis.views import Column
from llmtop.model import GpuFault, Trace, Unknown
from llmtop.tui.panes.report import ListPane, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import Cell
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look

_COLUMNS = (
    Column("exception", "exception", width=24, shrink=1),
    Column("kernel", "kernel", width=24, shrink=2),
    Column("place", "at", width=0),
    Column("block", "block", width=12, shrink=3),
    Column("thread", "thread", width=12, shrink=4, help="the one that failed, or the first of the warp"),
    Column("sm", "SM", width=4, shrink=6),
    Column("warp", "warp", width=4, shrink=7),
    Column("lanes", "lanes", width=5, shrink=5, help="threads of the warp that were at the instruction"),
)
_NO_FAULTS = Unknown("this is no core dump of a GPU")
_ACROSS = 4
_GONE = Unknown("the warp had ended before the GPU was read, as it may behind a store")


class GpuFaultsPane(ListPane[tuple[GpuFault, ...]]):
    """Each warp that failed: with what, where in the source, in which thread; Enter shows its registers."""

    number = 1
    title = "GPU faults"
    is_of_reports = False

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if trace.faults else _NO_FAULTS

    def view(self, trace: Trace) -> tuple[GpuFault, ...] | Unknown:
        return trace.faults or _NO_FAULTS

    def rows(self, view: tuple[GpuFault, ...], trace: Trace) -> RowTable:
        return table_of(_COLUMNS, dict(enumerate(map(_row, view))))

    def details(self, view: tuple[GpuFault, ...], trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        return tuple(_details(view[key]))


def _row(fault: GpuFault) -> tuple[Cell, ...]:
    index, stood = "{},{},{}".format, fault.stood
    place = f"{fault.function}+{fault.offset:#x}" if isinstance(fault.place, Unknown) else fault.place
    if stood is None:
        return (fault.exception, fault.kernel, place, _GONE, _GONE, fault.sm, _GONE, _GONE)
    where = (index(*stood.block_index), index(*stood.thread_index), fault.sm, stood.warp, stood.lanes)
    return (fault.exception, fault.kernel, place, *where)


def _details(fault: GpuFault) -> Iterator[tuple[str, str]]:
    yield f"{fault.exception} in {fault.kernel}", "title"
    yield f"{fault.function or 'an unknown function'}+{fault.offset:#x} ({fault.pc:#x}): {fault.instruction}", "text"
    yield f"{fault.place}", "text"
    if fault.stood is None:
        yield f"block and thread are not known: {_GONE.reason}", "dim"
    if (address := accessed(fault)) is not None:
        yield f"address {address:#x}, as the registers stand", "text"
    if not fault.registers:
        yield "its registers were left out of the dump", "dim"
    for at in range(0, len(fault.registers), _ACROSS):
        named = enumerate(fault.registers[at : at + _ACROSS], at)
        yield "  ".join(f"R{i:<3} {word:#010x}" for i, word in named), "dim"


VIEW: Final = GpuFaultsPane
