"""`llmtop diff --format html`: one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Final

from llmtop.analysis.pages.diff.verdict import Outcome
from llmtop.cli.html_parts import html_table, page_begin, page_end

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.page import DiffSection
    from llmtop.cli.diff_pages import DiffPage

_ROWS = 2000
_COLOURS: Final[Mapping[Outcome, str]] = {Outcome.SLOWER: "error", Outcome.UNKNOWN: "info", Outcome.NOISE: "info"}
"""How a verdict is drawn that is not as one wishes; the others as one without findings."""


def diff_html(pages: Iterable[DiffPage], what: str) -> Iterator[str]:
    """The page, in parts.

    Args:
        pages: What stands on it.
        what: The reports, as its title and its foot have them.
    """
    yield from page_begin(what)
    yield "</header>\n<main>\n"
    for page in pages:
        yield from _page(page)
    yield from page_end(what)


def _page(page: DiffPage) -> Iterator[str]:
    verdict = page.verdict
    if page.first:
        yield f"<p class='verdict{' warning' * (verdict is not None)}'>{escape(page.first)}</p>\n"
    if verdict is not None:
        colour = _COLOURS.get(verdict.outcome, "")
        yield f"<p class='{f'verdict {colour}'.strip()}'>{escape(verdict.said)}</p>\n"
    yield from (f"<p>{escape(f'{name}: {about}')}</p>\n" for name, about in page.head)
    yield from (f"<p class='why'>{escape(caution)}</p>\n" for caution in page.cautions)
    for section in page.sections:
        yield from _section(section)


def _section(section: DiffSection) -> Iterator[str]:
    yield f"<section><h2>{escape(section.title)}</h2>\n"
    table = section.table
    if table is not None and len(table):
        yield from html_table(table.columns, (table.cells(i) for i in range(min(_ROWS, len(table)))))
    if section.said:
        yield "<ul>" + "".join(f"<li>{escape(said)}</li>\n" for said in section.said) + "</ul>\n"
    yield "</section>\n"
