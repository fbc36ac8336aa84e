"""A kernel's source, its PTX and its instructions as three lists: which rows of one belong to those of another."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

from llmtop.analysis.kernels.source import CodeLine, KernelSource, LinelessFunction, Spent, waited
from llmtop.analysis.kernels.source_table import NO_LINE
from llmtop.frozen import frozen
from llmtop.model import Unknown


class CodeSide(StrEnum):
    """A list; the value is what it is called."""

    SOURCE = "source"
    PTX = "PTX"
    SASS = "SASS"


@frozen
class CodePlace:
    """A row of a side.

    Attributes:
        file: Of the source that is shown, whichever side the row is of; empty where there is none.
    """

    side: CodeSide
    file: str
    row: int


class CodeSides:
    """One launch in three lists, with one file of its source.

    Args:
        source: The launch.
        file: The file; empty where no line is known.
        assembly: The texts of its instructions, or why there are none.
    """

    def __init__(self, source: KernelSource, file: str, assembly: Mapping[int, str] | Unknown) -> None:
        self.source, self.file, self.assembly = source, file, assembly
        self.text = source.text(file) if file else source.code.why_no_lines or Unknown("no file of the source is known")

    @cached_property
    def numbers(self) -> Sequence[int]:
        """The lines of the file: all of them, or those that instructions are of where its text is not known."""
        told = [line for file, line in self.source.line_places if file == self.file]
        if isinstance(self.text, Unknown):
            return sorted(told)
        return range(1, max(len(self.text.lines), *told, 1) + 1)

    @cached_property
    def _indent(self) -> int:
        """Blanks before all lines that instructions are of: they tell nothing, and take room."""
        if isinstance(self.text, Unknown):
            return 0
        known = (line for file, line in self.source.line_places if file == self.file and line <= len(self.text.lines))
        texts = (text for line in known if (text := self.text.lines[line - 1]).strip())
        return min((len(text) - len(text.lstrip(" ")) for text in texts), default=0)

    @property
    def _lineless(self) -> Sequence[LinelessFunction]:
        """What stands below the lines, whichever file is shown; without any line the instructions say it all."""
        return self.source.lineless if self.file else ()

    def lineless(self, side: CodeSide, row: int) -> LinelessFunction | None:
        """The function that a row of the source is of, where it is no line."""
        below = row - len(self.numbers)
        return self._lineless[below] if side is CodeSide.SOURCE and 0 <= below < len(self._lineless) else None

    def count(self, side: CodeSide) -> int:
        """How many rows there are."""
        if side is CodeSide.SOURCE:
            return len(self.numbers) + len(self._lineless)
        if side is CodeSide.PTX:
            return 0 if isinstance(self.source.code.ptx, Unknown) else len(self.source.code.ptx)
        return len(self.source.code)

    def why_none(self, side: CodeSide) -> Unknown | None:
        """Why there is no text of a side; None where there is."""
        parts = {CodeSide.SOURCE: self.text, CodeSide.PTX: self.source.code.ptx, CodeSide.SASS: self.assembly}
        part = parts[side]
        return part if isinstance(part, Unknown) else None

    def label(self, side: CodeSide, row: int) -> str:
        """What stands before the text: the number of the line, or the offset of the instruction."""
        if side is CodeSide.SASS:
            return f"{self.source.code.offsets[row]:05x}"
        if self.lineless(side, row) is not None:
            return ""
        return str(self.numbers[row] if side is CodeSide.SOURCE else row + 1)

    def row_text(self, side: CodeSide, row: int) -> str:
        """The text of a row, without the indentation that all lines have; empty where it is not known."""
        if side is CodeSide.SASS:
            return "" if isinstance(self.assembly, Unknown) else self.assembly.get(self.source.code.addresses[row], "")
        if side is CodeSide.PTX:
            return "" if isinstance(self.source.code.ptx, Unknown) else self.source.code.ptx[row]
        function = self.lineless(side, row)
        if function is not None:
            return f"{NO_LINE} {function.function}"
        number = self.numbers[row]
        if isinstance(self.text, Unknown) or number > len(self.text.lines):
            return ""
        text = self.text.lines[number - 1]
        return text[min(self._indent, len(text) - len(text.lstrip(" "))) :]

    def spent(self, side: CodeSide, row: int) -> Spent | None:
        """What was seen of a row; None where no instruction is of it."""
        if side is CodeSide.SASS:
            return self.source.instructions[row]
        if side is CodeSide.PTX:
            of_ptx = self.source.ptx_lines.get(row + 1)
            return None if of_ptx is None else of_ptx.spent
        line = self.lineless(side, row) or self.source.line_places.get((self.file, self.numbers[row]))
        return None if line is None else line.spent

    def waiting(self, side: CodeSide, row: int, reason: str = "") -> float:
        """Samples of a row that waited, for one reason or for any."""
        spent = self.spent(side, row)
        return 0 if spent is None else waited(spent, reason)

    def instructions(self, side: CodeSide, row: int) -> Sequence[int]:
        """The instructions of a row, by their place in the code."""
        if side is CodeSide.SASS:
            return (row,)
        if side is CodeSide.PTX:
            line: CodeLine | LinelessFunction | None = self.source.ptx_lines.get(row + 1)
        else:
            number = self.numbers[row] if row < len(self.numbers) else 0
            line = self.lineless(side, row) or self.source.line_places.get((self.file, number))
        return () if line is None else line.instructions

    def rows(self, side: CodeSide, instructions: Iterable[int]) -> list[int]:
        """The rows of a side that instructions are of, from top to bottom."""
        code = self.source.code
        if side is CodeSide.SASS:
            return sorted(instructions)
        if side is CodeSide.PTX:
            return sorted({code.ptx_line[i] - 1 for i in instructions if code.ptx_line[i]})
        if self.file not in code.files:
            return []
        shown = code.files.index(self.file)
        asked = frozenset(instructions)
        lines = {code.line[i] for i in asked if code.file_id[i] == shown}
        below = enumerate(self._lineless, len(self.numbers))
        functions = (i for i, one in below if not asked.isdisjoint(one.instructions))
        return [*sorted(bisect_left(self.numbers, line) for line in lines), *functions]

    def hot(self, side: CodeSide, reason: str = "") -> list[CodePlace]:
        """The rows of a side that wait, for one reason or for any, in all files, the one that waits most first."""
        source = self.source
        if side is CodeSide.SASS:
            weights = {CodePlace(side, self.file, i): waited(one, reason) for i, one in enumerate(source.instructions)}
        elif side is CodeSide.PTX:
            weights = {
                CodePlace(side, self.file, line - 1): waited(one.spent, reason)
                for line, one in source.ptx_lines.items()
                if line <= self.count(side)
            }
        else:
            weights = {
                CodePlace(side, one.file, source_row(source, one.file, one.line)): waited(one.spent, reason)
                for one in source.lines
            }
            below = enumerate(self._lineless, len(self.numbers))
            weights |= {CodePlace(side, self.file, row): waited(one.spent, reason) for row, one in below}
        return sorted((place for place, weight in weights.items() if weight), key=lambda place: -weights[place])


def source_row(source: KernelSource, file: str, line: int) -> int:
    """The row of a line in the list of its file."""
    if not isinstance(source.text(file), Unknown):
        return line - 1
    return sorted(number for name, number in source.line_places if name == file).index(line)
