"""What every page of HTML has: its frame with the policy that keeps it from loading anything, and tables."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from llmtop import __version__
from llmtop.analysis.views import Cell, Column
from llmtop.cli.report_page import SCRIPT, STYLE
from llmtop.cli.report_rows import cell_text
from llmtop.model import Unknown

_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'"
"""Should a name get past the escaping after all, the browser still loads nothing and runs nothing but `SCRIPT`."""


def page_begin(title: str) -> Iterator[str]:
    """All before what stands in the page's head, below its title."""
    shown = escape(title)
    yield "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
    yield "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    yield f"<title>{shown} – llmtop</title>\n<style>{STYLE}</style></head><body>\n"
    yield f"<header><h1>{shown}</h1>\n"


def page_end(what: str) -> Iterator[str]:
    """All behind what stands in the page; `what` it was made of."""
    yield f"</main>\n<footer>llmtop {escape(__version__)} · {escape(what)}</footer>\n"
    yield f"<script>{SCRIPT}</script>\n</body></html>\n"


def html_table(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], names: Sequence[str] = (), foot: Sequence[Cell] = ()
) -> Iterator[str]:
    """A table that the script sorts and filters; `names` are what the first cells are called in full."""
    yield "<div class='table'><table><thead><tr>"
    for column in columns:
        kind = " class=n" if column.is_number else ""
        yield f"<th{kind} scope='col' title='{escape(column.help)}'>{escape(column.title)}</th>"
    yield "</tr></thead><tbody>\n"
    for i, row in enumerate(rows):
        cells = [_cell(cell, column) for cell, column in zip(row, columns, strict=True)]
        if i < len(names) and names[i] != row[0]:
            cells[0] = f"<td class=t><details><summary>{escape(str(row[0]))}</summary>{escape(names[i])}</details></td>"
        yield f"<tr>{''.join(cells)}</tr>\n"
    yield "</tbody>"
    if foot:
        sums = "".join(_cell(cell, column) for cell, column in zip(foot, columns, strict=True))
        yield f"<tfoot><tr>{sums}</tr></tfoot>"
    yield "</table></div>\n"


def _cell(cell: Cell, column: Column) -> str:
    """A cell; numbers keep their value beside their text, to be sorted by."""
    text = escape(cell_text(cell, column))
    if isinstance(cell, Unknown):
        return f"<td{' class=n' if column.is_number else ''} title='{escape(str(cell))}'>{text}</td>"
    if isinstance(cell, int | float):
        return f"<td class=n data-v='{cell!r}'>{text}</td>"
    return f"<td class=t>{text}</td>" if not column.width else f"<td>{text}</td>"
