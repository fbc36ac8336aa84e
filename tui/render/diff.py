"""A report beside its baseline in lines: the verdict first, then what explains it, then tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from llmtop.analysis.pages.diff.verdict import Outcome
from llmtop.tui.render.lines import line, prose
from llmtop.tui.render.table import cell_text, header, place_columns, row

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.pages.diff.page import DiffSection, DiffView
    from llmtop.analysis.tables import RowTable
    from llmtop.tui.render.look import Look

_ROWS = 200
_ROLES: Final[Mapping[Outcome, str]] = {Outcome.SLOWER: "bad", Outcome.FASTER: "good"}


def diff_lines(view: DiffView, width: int, look: Look) -> list[Strip]:
    """All of it."""
    return list(_lines(view, width, look))


def _lines(view: DiffView, width: int, look: Look) -> Iterator[Strip]:
    verdict = view.verdict
    yield from prose(verdict.cannot, width, look, "warn")
    yield from prose(verdict.said, width, look, _ROLES.get(verdict.outcome, "value"))
    for name, file, what in zip("AB", view.names, ("the baseline", "this file"), strict=True):
        yield from prose(f"{name} is {file}, {what}", width, look, "dim")
    for caution in verdict.cautions:
        yield from prose(f"with care: {caution.text}", width, look, "dim")
    for section in view.sections:
        yield from _section(section, width, look)


def _section(section: DiffSection, width: int, look: Look) -> Iterator[Strip]:
    yield line([("", "text")], width, look)
    yield line([(section.title, "title")], width, look)
    if section.table is not None and len(section.table):
        yield from _table(section.table, width, look)
    for said in section.said:
        yield from prose(said, width, look)


def _table(table: RowTable, width: int, look: Look) -> Iterator[Strip]:
    count = min(_ROWS, len(table))
    texts = [[cell_text(*pair, look) for pair in zip(table.cells(i), table.columns, strict=True)] for i in range(count)]
    widest = [max(map(len, column)) for column in zip(*texts, strict=True)]
    pairs = zip(table.columns, widest, strict=True)
    columns = [one if one.key == "name" else replace(one, width=max(most, len(one.title), 1)) for one, most in pairs]
    placed = place_columns(columns, width, widest)
    yield header(placed, None, width, look)
    yield from (row(placed, table.cells(i), width, look) for i in range(count))
