"""Pages of sections of all kernels, for `llmtop report --by warps` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.counting import not_counted
from llmtop.analysis.kernels.instruction_mix import instruction_mix
from llmtop.analysis.kernels.pm_samples import pm_samples
from llmtop.analysis.kernels.section_page import PageOf, PagePart, PageRow, SectionPage
from llmtop.analysis.kernels.section_tables import section_tables
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.kernels.warps import warps_page
from llmtop.analysis.tables import csv_of_rows, numbered
from llmtop.analysis.views import Column
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import Cell
    from llmtop.cli.documents import Json
    from llmtop.model import Fact, Trace

Pages: TypeAlias = "dict[int, SectionPage | Unknown]"

PAGES: Mapping[str, tuple[str, PageOf]] = {
    "warps": ("Warps", warps_page),
    "mix": ("Instruction mix", instruction_mix),
    "samples": ("PM samples", pm_samples),
    "sections": ("Section tables", section_tables),
}
"""By the value of `--by` its title, and what makes the page of a launch."""
_COLUMNS = (
    Column("kernel", "kernel", width=0, help="the launch that stands for its calls"),
    Column("part", "of", "", 24, 3, "what the values have in common"),
    Column("name", "name", "", 24),
    Column("value", "value", "", 14),
    Column("share", "share", "ratio", 7, 1),
    Column("says", "", "", 40, 2, "what it means"),
)


def pages_by(trace: Trace, wanted: WantedTable) -> PartTable[Pages]:
    """A page of each kernel, as one table."""
    title, page_of = PAGES[wanted.by]
    found = not_counted(trace) or {i: page_of(trace, i) for i in kernels_of(trace).standing(wanted.kernel)}
    return PartTable(
        title,
        trace.origin.path,
        found,
        rows_of=lambda pages: _table(trace, pages),
        document_of=lambda pages: {"by": wanted.by, "rows": [_document(trace, i, page) for i, page in pages.items()]},
        csv_of=lambda pages: csv_of_rows(_csv(trace, pages)),
        said=lambda: [str(found)] if isinstance(found, Unknown) else list(_said(trace, found)),
    )


def _table(trace: Trace, pages: Pages) -> RowTable:
    names = kernels_of(trace).short_name
    return numbered(_COLUMNS, [(names(i), *cells) for i, page in pages.items() for cells in _cells(page)])


def _cells(page: SectionPage | Unknown) -> Iterator[tuple[Cell, ...]]:
    if isinstance(page, Unknown):
        yield (page,) * (len(_COLUMNS) - 1)
        return
    yield from ((part.title, row.name, row.text, row.share, row.says) for part, row in page.rows)


def _csv(trace: Trace, pages: Pages) -> Iterator[Mapping[str, object]]:
    """Numbers as the report has them, in their units."""
    names = kernels_of(trace).short_name
    for i, page in pages.items():
        rows = () if isinstance(page, Unknown) else page.rows
        yield from ({"kernel": names(i), "launch": i, "part": part.title, **_of_row(row)} for part, row in rows)
        why = page if isinstance(page, Unknown) else page.missing
        if why is not None:
            yield {"kernel": names(i), "launch": i, "part": "", **_of_row(PageRow("", why))}


def _of_row(row: PageRow) -> dict[str, Fact | None]:
    told = {"name": row.name, "value": row.value, "unit": row.unit, "share": row.share}
    return {**told, "metric": row.metric, "says": row.says, "advice": row.advice}


def _document(trace: Trace, launch: int, page: SectionPage | Unknown) -> Json:
    name = kernels_of(trace).short_name(launch)
    if isinstance(page, Unknown):
        return {"kernel": name, "launch": launch, "parts": fact(page), "missing": None}
    missing = None if page.missing is None else fact(page.missing)
    return {"kernel": name, "launch": launch, "parts": [_part(part) for part in page.parts], "missing": missing}


def _part(part: PagePart) -> Json:
    return {"title": part.title, "says": [*part.says, *part.asides], "rows": [_row(row) for row in part.rows]}


def _row(row: PageRow) -> Json:
    told = {key: value if value is None else fact(value) for key, value in _of_row(row).items()}
    if row.points:
        return {**told, "points": [list(point) for point in row.points]}
    return {**told, "samples": list(row.samples)} if row.samples else told


def _said(trace: Trace, pages: Pages) -> Iterator[str]:
    """What is said of all values of a part, why some are not known, what is missing, and where all of it comes from."""
    names = kernels_of(trace).short_name
    known = {i: page for i, page in pages.items() if isinstance(page, SectionPage)}
    yield from (f"{names(i)}: {page}" for i, page in pages.items() if isinstance(page, Unknown))
    yield from (f"{names(i)}: {text}" for i, page in known.items() for part in page.parts for text in part.says)
    yield from _unknown({i: page.unknown for i, page in known.items()}, names)
    yield from (f"{names(i)}: {page.missing}" for i, page in known.items() if page.missing is not None)
    yield from dict.fromkeys(page.source for page in known.values())


def _unknown(said: Mapping[int, tuple[str, ...]], names: Callable[[int], str]) -> Iterator[str]:
    """Why values are not known: once for all kernels of which the same is said."""
    launches: dict[str, list[int]] = {}
    for i, sentences in said.items():
        for why in sentences:
            launches.setdefault(why, []).append(i)
    for why, of in launches.items():
        yield f"{names(of[0]) if len(of) == 1 else f'{len(of)} of {len(said)} kernels'}: {why}"
