"""The lines and the instructions of kernels as tables, and what is said of them in sentences: for reports."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels import counting
from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.source import (
    NO_CODE,
    CodeLine,
    KernelSource,
    Spent,
    has_code,
    kernel_source,
    sampled_launches,
    why_no_code,
)
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.tables import RowTable, numbered
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown
from llmtop.text import listed, shorten
from llmtop.units import percent


class CodeBy(StrEnum):
    """What a row is of."""

    LINE = "line"
    INSTRUCTION = "instruction"


TITLES = {CodeBy.LINE: "Lines of the source", CodeBy.INSTRUCTION: "Instructions"}
NO_LINE = "(no line)"
"""Stands for the line of code of which none is known."""
_NO_TEXT = Unknown("no line of it is known")
_NO_COST = Unknown("not collected", NO_CODE.remedy)
_KERNEL_WIDTH = 28
"""Cells of the column of kernels."""
_NAMED = 3
"""Kernels that are named in one sentence."""
_SPENT = (
    Column("share", "of kernel", "ratio", 9, 0, "of the kernel's waiting warps, as they were sampled"),
    Column("samples", "samples", "1", 9, 3, "samples of its warps, waiting or not"),
    Column("not_issued", "not issued", "1", 10, 6, "of these, waiting while the scheduler issued nothing"),
    Column("reason", "mostly for", "", 20, 1, "what its warps wait for most, and how much of its waiting that is"),
    Column("executed", "executed", "1", 12, 5, "times that a warp executed it"),
    Column("threads", "threads", "ratio", 7, 4, "of the warp's threads, those that took part"),
    Column("l2", "to L2", "bytes", 9, 7, "asked of L2 for global memory"),
    Column("l2_excess", "excess", "bytes", 9, 8, "of these beyond what the access needs at least"),
    Column("shared", "shared", "1", 11, 9, "wavefronts of shared memory"),
    Column("shared_excess", "excess", "1", 11, 10, "of these beyond what the access needs at least"),
)
_KERNEL = Column("kernel", "kernel", width=_KERNEL_WIDTH, help="the launch that stands for its calls")
_COLUMNS = {
    CodeBy.LINE: (
        _KERNEL,
        Column("line", "line", width=24, help="file and number"),
        Column("name", "source", width=0, help="its text, where that is found; the function of code without lines"),
        *_SPENT,
    ),
    CodeBy.INSTRUCTION: (
        _KERNEL,
        Column("offset", "offset", width=8, help="bytes from the beginning of its function"),
        Column("line", "line", width=24, shrink=4, help="what it was made from"),
        Column("name", "instruction", width=0, help="its text, where a disassembler is found"),
        *_SPENT,
    ),
}


@frozen
class CodeRow:
    """A row: of which kernel, where, and what was seen of it.

    Attributes:
        number: Of the line from 1 on; 0 where it is not known.
        function: Of an instruction, and of code without lines; empty of a line.
        offset: Of an instruction from the beginning of its function, in bytes; None of a line, as is its address.
    """

    kernel: str
    source: KernelSource
    file: str
    number: int
    text: str | Unknown
    spent: Spent
    function: str = ""
    offset: int | None = None
    address: int | None = None

    @property
    def place(self) -> str:
        """File and line, in short; empty where it is not known."""
        return f"{posixpath.basename(self.file)}:{self.number}" if self.number else ""


@lru_cache(maxsize=2)
def sources(trace: Trace, name: str) -> tuple[tuple[str, KernelSource | Unknown], ...]:
    """The kernels whose name contains this, by what they are called, the one with the most time first."""
    kernels = kernels_of(trace)
    return tuple((kernels.short_name(i), kernel_source(trace, i)) for i in sampled_launches(trace, name))


def code_rows(trace: Trace, by: CodeBy, name: str = "") -> tuple[CodeRow, ...] | Unknown:
    """What was seen of each line or instruction that was seen at all, kernel after kernel, the hottest first."""
    known = [(kernel, one) for kernel, one in sources(trace, name) if not isinstance(one, Unknown)]
    if by is CodeBy.LINE and not any(one.lines for _, one in known):
        return _why_none(trace, by, name)
    make = _line_rows if by is CodeBy.LINE else _instruction_rows
    rows = tuple(row for kernel, one in known for row in make(kernel, one))
    return rows or _why_none(trace, by, name)


def _why_none(trace: Trace, by: CodeBy, name: str) -> Unknown:
    if not has_code(trace):
        return _why_no_code(trace)
    if (why := no_such_kernel(trace, name)) is not None:
        return why
    for _, one in sources(trace, name):
        if isinstance(one, Unknown):
            return one
        if by is CodeBy.LINE and one.code.why_no_lines is not None:
            return one.code.why_no_lines
    return NO_CODE


def no_such_kernel(trace: Trace, name: str) -> Unknown | None:
    """That no kernel whose code is known has this in its name; None where one has, and where no code is known."""
    has_none = has_code(trace) and not sampled_launches(trace, name)
    return Unknown(f'no kernel has "{name}" in its name') if name and has_none else None


def _why_no_code(trace: Trace) -> Unknown:
    """With the command that looks into the kernel that has most of a timeline's time."""
    why = no_kernels(trace)
    if why is not None:
        return Unknown(f"no samples of instructions: {why.reason}", why.remedy)
    if profiling.is_of_amd(trace):
        return Unknown("no samples of instructions: only Nsight Compute takes them, of NVIDIA's GPUs")
    if trace.origin.is_ncu:
        return why_no_code(trace) or NO_CODE
    command, no_command = counting.of_heaviest(trace)
    return Unknown(f"{NO_CODE.reason}{f': {no_command}' if no_command else ''}", command)


def _line_rows(kernel: str, source: KernelSource) -> Iterator[CodeRow]:
    """Its lines, and the functions that have none among them: their shares add up to all of the kernel."""
    rows = [
        *(CodeRow(kernel, source, one.file, one.line, _text(source, one), one.spent) for one in source.lines),
        *(CodeRow(kernel, source, "", 0, _NO_TEXT, one.spent, one.function) for one in source.lineless),
    ]
    yield from sorted(rows, key=lambda row: (-row.spent.stalls, -(row.spent.executed or 0)))


def _text(source: KernelSource, line: CodeLine) -> str | Unknown:
    return source.line_text(line.file, line.line)


def _instruction_rows(kernel: str, source: KernelSource) -> Iterator[CodeRow]:
    code, texts = source.code, source.assembly
    seen = [i for i, one in enumerate(source.instructions) if one.samples or one.executed]
    for i in sorted(seen, key=lambda i: -source.instructions[i].stalls):
        address, file = code.addresses[i], code.file_id[i]
        yield CodeRow(
            kernel,
            source,
            code.files[file] if file >= 0 else "",
            code.line[i],
            texts if isinstance(texts, Unknown) else texts.get(address, Unknown("the disassembler leaves it out")),
            source.instructions[i],
            code.functions[code.function_id[i]],
            code.offsets[i],
            address,
        )


def code_table(rows: tuple[CodeRow, ...], by: CodeBy) -> RowTable:
    """The rows, keyed by their number from 0 on; a kernel is named once."""
    return numbered(_COLUMNS[by], [_cells(row, by) for row in rows])


def _cells(row: CodeRow, by: CodeBy) -> tuple[Cell, ...]:
    kernel = shorten(row.kernel, _KERNEL_WIDTH)
    if by is CodeBy.INSTRUCTION:
        return kernel, f"{row.offset:05x}", row.place, row.text, *_spent_cells(row)
    return kernel, row.place or NO_LINE, row.text if row.place else row.function, *_spent_cells(row)


def _spent_cells(row: CodeRow) -> tuple[Cell, ...]:
    spent, source = row.spent, row.source
    why = source.why_no_samples
    return (
        why or source.share(spent),
        why or spent.samples,
        why or (_NO_COST if spent.not_issued is None else spent.not_issued),
        why or reason_text(spent),
        spent.executed,
        spent.thread_share,
        spent.l2_bytes,
        spent.l2_excess,
        spent.shared,
        spent.shared_excess,
    )


def reason_text(spent: Spent) -> str:
    """What it waits for most: "long_scoreboard 64 %"; empty where it does not wait."""
    return "" if spent.top is None else f"{spent.top[0]} {percent(100 * spent.top[1])}"


def said_of_code(trace: Trace, by: CodeBy, name: str = "") -> list[str]:
    """What stands with the table: what is not known of which kernels."""
    several = sources(trace, name)
    if all(isinstance(one, Unknown) for _, one in several):
        return [str(_why_none(trace, by, name))]
    notes: dict[str, list[str]] = {}
    for kernel, one in several:
        for said in _notes(one, by):
            notes.setdefault(said, []).append(kernel)
    return [said if len(of) == len(several) else f"{_some(of)}: {said}" for said, of in notes.items()]


def _some(kernels: list[str]) -> str:
    names = list(dict.fromkeys(kernels))
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return listed((*names[:_NAMED], *more))


def _notes(source: KernelSource | Unknown, by: CodeBy) -> Iterator[str]:
    """What is not known of one kernel."""
    if isinstance(source, Unknown):
        yield str(source)
        return
    if source.few:
        yield source.few
    for why in (source.why_no_samples, source.code.why_no_lines):
        if why is not None:
            yield str(why)
    if by is CodeBy.INSTRUCTION and isinstance(source.assembly, Unknown):
        yield f"no texts of instructions: {source.assembly}"
    for file in source.files if by is CodeBy.LINE else ():
        text = source.text(file)
        if isinstance(text, Unknown):
            yield f"{file}: {text}"
        elif text.doubt:
            yield f"{text.found}: {text.doubt}"


_HOT_SHARE = 0.25
_FEW_LINES = 2
"""Of a kernel whose code is that of one line it says nothing where it waits."""
_LONGEST_LINE = 80
"""Characters of a source line that are quoted."""


def hot_line(trace: Trace, launch: int) -> str:
    """The line that has most of a kernel's waiting, in a sentence; empty where none has much of it, or none is known.

    In place of a line stands a function that has none, where it is that one.

    Of a quarter on: it is where one looks first then, and at half of it others are left that matter as much.
    """
    source = kernel_source(trace, launch)
    if isinstance(source, Unknown) or source.why_no_samples or source.few or not source.lines:
        return ""
    rows = tuple(_line_rows("", source))
    hottest = rows[0]
    share = source.share(hottest.spent)
    if len(rows) < _FEW_LINES or share is None or share < _HOT_SHARE:
        return ""
    said = "" if isinstance(hottest.text, Unknown) else f": `{shorten(hottest.text, _LONGEST_LINE)}`"
    where = f"line {hottest.number} of {posixpath.basename(hottest.file)}{said}"
    if not hottest.number:
        where = f"code without lines in `{shorten(hottest.function, _LONGEST_LINE)}`"
    return f"{percent(100 * share)} of its waiting is {where}, mostly {reason_text(hottest.spent)} (ncu)"
