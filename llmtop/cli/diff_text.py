"""`llmtop diff --format text`: the verdict first, then what explains it, then tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.diff.page import DiffSection, diff_sections
from llmtop.cli.diff_head import CARE, head_of
from llmtop.cli.text_layout import TextStyle, heading, in_ascii, table_lines, wrapped

if TYPE_CHECKING:
    from llmtop.cli.diff_head import Compared

_ROWS = 30


def diff_text(compared: Sequence[Compared], style: TextStyle) -> Iterator[str]:
    """The comparison of each report with the first, line by line."""
    for one in compared:
        for line in _lines(one, style):
            yield (in_ascii(line) if style.ascii_only else line) + "\n"


def _lines(one: Compared, style: TextStyle) -> Iterator[str]:
    for name, about in head_of(one):
        yield from wrapped(f"{name}  {about}", style, "", "   ")
    verdict = one.verdict
    yield ""
    if verdict.cannot:
        yield from wrapped(verdict.cannot, style, "", "  ")
    yield from wrapped(verdict.said, style, "", "  ")
    for caution in verdict.cautions:
        yield from wrapped(f"{CARE}: {caution.text}", style, "  ", "    ")
    for section in diff_sections(one.before, one.after):
        yield from _section(section, style)


def _section(section: DiffSection, style: TextStyle) -> Iterator[str]:
    yield from heading(section.title, style)
    if section.table is not None and len(section.table):
        yield from table_lines(section.table, _ROWS, style)
        if len(section.table) > _ROWS:
            yield f"  and {len(section.table) - _ROWS} more (--format csv lists all)"
    for said in section.said:
        yield from wrapped(said, style, "  ", "    ")
