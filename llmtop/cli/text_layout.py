"""Lines of text for a terminal, a log or a mail: headings, paragraphs and tables as wide as there is room."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from llmtop.analysis.kernels.names import shorten_kernel
from llmtop.analysis.tables import leave_out
from llmtop.cli.part_table import why_dashes
from llmtop.cli.report_rows import cell_texts
from llmtop.frozen import frozen
from llmtop.text import shorten

if TYPE_CHECKING:
    from llmtop.analysis.views import Column, TableView
    from llmtop.cli.part_table import PartTable

FALLBACK_SIZE = (100, 24)
NARROWEST_NAME = 24
_NAME_IN_FILE = 60
"""Columns of a table's names where nothing is cut: longer ones have a line of their own."""
_ASCII = str.maketrans(
    {"–": "-", "·": "|", "…": "~", "→": "->", "×": "x", "µ": "u", "└": "+", "┘": "+", "┌": "+", "┐": "+",
     "─": "-", "│": "|", "├": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+", "•": "*"}
)  # fmt: skip
"""What a terminal without these characters gets instead."""


@frozen
class TextStyle:
    """What the output can show.

    Attributes:
        width: Columns.
        bold: Headings may be bold.
        ascii_only: Only ASCII can be written.
        each_range: NVTX ranges stand by their full names.
        by: The table that is added; None for none.
        cuts: Names that do not fit are cut: of a file they stay whole, as no other place has room for them.
    """

    width: int = 100
    bold: bool = False
    ascii_only: bool = False
    each_range: bool = False
    by: PartTable[Any] | None = None
    cuts: bool = True

    def cut(self, text: str, width: int | None = None) -> str:
        """A text of so many columns, or as wide as the output; whole where nothing is cut."""
        return shorten(text, self.width if width is None else width) if self.cuts else text

    def name_width(self, whole: int, room: int) -> int:
        """How wide a table's names are: as they need where there is room, and in a file some more."""
        return min(whole, max(room, NARROWEST_NAME if self.cuts else _NAME_IN_FILE))


def terminal_style(
    *, each_range: bool = False, by: PartTable[Any] | None = None, to_terminal: bool = True
) -> TextStyle:
    """What standard output can show; of a file, nothing but its width is asked.

    Where it goes to no terminal, paragraphs have a width, and names are cut only where somebody asked for one.
    """
    from llmtop.tui.terminal import is_ascii_only

    width = shutil.get_terminal_size(FALLBACK_SIZE).columns
    cuts = "COLUMNS" in os.environ or (to_terminal and sys.stdout.isatty())
    if not to_terminal:
        return TextStyle(width, each_range=each_range, by=by, cuts=cuts)
    return TextStyle(width, _is_colourful(), is_ascii_only(os.environ, sys.stdout.encoding), each_range, by, cuts)


def _is_colourful() -> bool:
    """Whether headings may be bold: a terminal that nobody asked to be plain (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def in_ascii(line: str) -> str:
    """The names of others have characters that nothing stands for."""
    return line.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def heading(text: str, style: TextStyle) -> Iterator[str]:
    """An empty line, and the text."""
    yield ""
    text = style.cut(text, max(style.width, 40))
    yield f"\x1b[1m{text}\x1b[0m" if style.bold else text


def wrapped(text: str, style: TextStyle, indent: str, hanging: str | None = None) -> Iterator[str]:
    """A paragraph, its further lines behind another indent where one is given."""
    yield from textwrap.wrap(
        text,
        max(style.width, 40),
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table_lines(table: TableView, most: int, style: TextStyle, more: str = "--format csv") -> Iterator[str]:
    """The first rows, with as many columns as fit, and why cells of them are not known; names take what is left."""
    columns = table.columns
    rows = [cell_texts(table.cells(i), columns) for i in range(min(most, len(table)))]
    titles = [column.title for column in columns]
    widths = [max(map(len, texts)) for texts in zip(titles, *rows, strict=True)]
    name = next(i for i, column in enumerate(columns) if column.key == "name")
    whole, widths[name] = widths[name], min(widths[name], NARROWEST_NAME)
    shown = fitting(columns, widths, style.width)
    widths[name] = style.name_width(whole, widths[name] + style.width - 1 - sum(widths[i] + 2 for i in shown))
    for texts in (titles, *rows):
        yield from row_lines(texts, columns, shown, widths, style)
    if len(table) > most:
        yield f"  and {len(table) - most} more ({more} lists all)"
    for why in why_dashes(table, most, shown):
        yield from wrapped(why, style, "  ", "    ")


def fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Leave out columns, the least important first and names never, until the rest fits."""
    shown = list(range(len(columns)))
    while sum(widths[i] + 2 for i in shown) > width:
        droppable = [i for i in shown if columns[i].key != "name"]
        if not droppable:
            break
        shown = leave_out(columns, shown, droppable)
    return shown


def row_lines(
    texts: Sequence[str], columns: Sequence[Column], shown: Sequence[int], widths: Sequence[int], style: TextStyle
) -> Iterator[str]:
    """A row of a table, of the columns that are shown; a name that is not to be cut has a line before it."""
    name = next(i for i in shown if columns[i].key == "name")
    if not style.cuts and len(texts[name]) > widths[name]:
        yield f"  {texts[name]}"
        texts = ["" if i == name else text for i, text in enumerate(texts)]
    yield _row_line(texts, columns, shown, widths)


def _row_line(texts: Sequence[str], columns: Sequence[Column], shown: Sequence[int], widths: Sequence[int]) -> str:
    cells = []
    for i in shown:
        text = (shorten_kernel if columns[i].key == "name" else shorten)(texts[i], widths[i])
        cells.append(text.rjust(widths[i]) if columns[i].is_number else text.ljust(widths[i]))
    return ("  " + "  ".join(cells)).rstrip()
