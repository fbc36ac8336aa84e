"""`llmtop diff --format md`: Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from llmtop.cli.md_parts import escaped, md_table

if TYPE_CHECKING:
    from llmtop.cli.diff_pages import DiffPage

_ROWS = 100


def diff_md(pages: Iterable[DiffPage]) -> Iterator[str]:
    """The pages, line by line."""
    for page in pages:
        for line in _lines(page):
            yield line + "\n"


def _lines(page: DiffPage) -> Iterator[str]:
    if page.first:
        yield from (f"**{escaped(page.first)}**", "")
    if page.verdict is not None:
        yield from (f"**{escaped(page.verdict.said)}**", "")
    yield from (f"- {name}: {escaped(about)}" for name, about in page.head)
    yield from (f"- {escaped(caution)}" for caution in page.cautions)
    if page.head or page.cautions:
        yield ""
    for section in page.sections:
        yield from (f"## {escaped(section.title)}", "")
        if section.table is not None and len(section.table):
            yield from md_table(section.table, _ROWS)
        yield from (f"- {escaped(said)}" for said in section.said)
        if section.said:
            yield ""
