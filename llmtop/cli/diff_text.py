"""`llmtop diff --format text`: the verdict first, then what explains it, then tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from llmtop.cli.text_layout import TextStyle, heading, in_ascii, table_lines, wrapped

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.page import DiffSection
    from llmtop.cli.diff_pages import DiffPage

_ROWS = 30


def diff_text(pages: Iterable[DiffPage], style: TextStyle) -> Iterator[str]:
    """The pages, line by line."""
    for page in pages:
        for line in _lines(page, style):
            yield (in_ascii(line) if style.ascii_only else line) + "\n"


def _lines(page: DiffPage, style: TextStyle) -> Iterator[str]:
    yield from wrapped(page.first, style, "", "  ")
    if page.first and page.head:
        yield ""
    for name, about in page.head:
        yield from wrapped(f"{name}  {about}", style, "", "   ")
    if page.verdict is not None:
        yield ""
        yield from wrapped(page.verdict.said, style, "", "  ")
    for caution in page.cautions:
        yield from wrapped(caution, style, "  ", "    ")
    for section in page.sections:
        yield from _section(section, style)


def _section(section: DiffSection, style: TextStyle) -> Iterator[str]:
    yield from heading(section.title, style)
    if section.table is not None and len(section.table):
        yield from table_lines(section.table, _ROWS, style)
    for said in section.said:
        yield from wrapped(said, style, "  ", "    ")
