"""The table that `llmtop report --by` adds: as plain cells, as a JSON object, and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from llmtop.analysis.kernels.breakdown.breakdown import By, Difference, Spread, TimePart, breakdown, shares_of
from llmtop.analysis.kernels.breakdown.breakdown_table import (
    NO_CALLS,
    breakdown_table,
    spread_lines,
    spread_of,
    why_slow,
)
from llmtop.analysis.kernels.breakdown.ranks import rank_lines
from llmtop.analysis.kernels.breakdown.within import range_times
from llmtop.analysis.kernels.source_table import TITLES, CodeBy, code_rows, code_table, said_of_code
from llmtop.analysis.pages.cut import only_begun_in, only_time
from llmtop.analysis.tables import RowTable, csv_line
from llmtop.analysis.timeline import listed_table, memory_table
from llmtop.analysis.timeline.listed import Listed, listed
from llmtop.analysis.timeline.unified import unified_lines
from llmtop.cli.documents import fact
from llmtop.cli.report_listed import listed_csv, listed_document
from llmtop.cli.report_memory import memory_csv, memory_document, memory_report_table, said_below
from llmtop.cli.report_source import code_csv, code_document
from llmtop.errors import FileError
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Trace


@dataclass(frozen=True, slots=True)
class CodeOf:
    """The lines or the instructions of kernels with this in their name; of all where it is empty."""

    by: CodeBy
    kernel: str = ""


Table: TypeAlias = By | Listed | Literal["memory"] | CodeOf
"""What one table can be of."""
_TITLES: Mapping[By, str] = {
    By.STEP: "Steps",
    By.STREAM: "Time by stream",
    By.RANK: "Time by GPU",
}
_SLOW = 10


@dataclass(frozen=True, slots=True)
class WantedTable:
    """A table that is asked for.

    Attributes:
        of: What its rows are.
        whole: What it is of, where that is another trace than the report's.
        within: The name of ranges to whose time its rows are cut; empty for all of the time.
        said: What it is of, where that has to be said.
    """

    of: Table
    whole: Trace | None = None
    within: str = ""
    said: str = ""

    def trace(self, reported: Trace) -> Trace:
        """What the table is made of."""
        return reported if self.whole is None else self.whole


def table_named(by: str | WantedTable) -> WantedTable:
    """What a value of `--by` asks for; of the code of kernels, with ":" and a part of their name behind it."""
    return by if isinstance(by, WantedTable) else WantedTable(_table_named(by))


def _table_named(by: str) -> Table:
    if by == "memory":
        return "memory"
    what, _, kernel = by.partition(":")
    if what in tuple(CodeBy):
        return CodeOf(CodeBy(what), kernel)
    return Listed(by) if by in tuple(Listed) else By(by)


def table_within(trace: Trace, by: str, name: str) -> WantedTable | Unknown:
    """The table of a whole trace cut to ranges of this name; why there is none.

    Steps, ranges, streams and GPUs are cut to their time; of calls, copies and allocations those that were asked for in
    them are left; memory over time is that from the first one's begin to the last one's end.
    """
    of = _table_named(by)
    if isinstance(of, CodeOf):
        return WantedTable(of)
    if isinstance(of, By):
        return WantedTable(of, trace, name)
    times = range_times(trace, name)
    if isinstance(times, Unknown):
        return times
    if of != "memory":
        return WantedTable(of, only_begun_in(trace, times), said=f'asked for in the ranges "{name}"')
    cut = only_time(trace, max(0, times.start_ns - trace.start_ns), times.end_ns - trace.start_ns)
    said = f'from the begin of the first to the end of the last range "{name}"'
    return cut if isinstance(cut, Unknown) else WantedTable(of, cut, said=said)


def title_of(trace: Trace, wanted: WantedTable) -> str:
    """What stands above the table."""
    trace, by = wanted.trace(trace), wanted.of
    if by is By.RANK and trace.parts:
        return "Time by rank"
    if by == "memory":
        return memory_table.TITLE
    if isinstance(by, CodeOf):
        return TITLES[by.by]
    if by is By.NVTX:
        return f"Time by {trace.origin.range_term}"
    return listed_table.TITLES[by] if isinstance(by, Listed) else _TITLES[by]


def part_table(trace: Trace, wanted: WantedTable, *, each_range: bool) -> RowTable | Unknown:
    """Its rows, as a table that shows them."""
    trace, by = wanted.trace(trace), wanted.of
    if by == "memory":
        return memory_report_table(trace)
    if isinstance(by, CodeOf):
        code = code_rows(trace, by.by, by.kernel)
        return code if isinstance(code, Unknown) else code_table(code, by.by)
    if isinstance(by, Listed):
        rows = listed(trace, by)
        return rows if isinstance(rows, Unknown) else listed_table.listed_table(rows, by)
    found = breakdown(trace, by, each=each_range, within=wanted.within)
    return found if isinstance(found, Unknown) else breakdown_table(found, trace.start_ns)


def said_of(trace: Trace, wanted: WantedTable, *, each_range: bool) -> list[str]:
    """What stands with the table: how its rows were found, how long steps last, which are slow and why."""
    trace, by, also = wanted.trace(trace), wanted.of, [wanted.said] if wanted.said else []
    if by == "memory":
        return [*also, *said_below(trace)]
    if isinstance(by, CodeOf):
        return said_of_code(trace, by.by, by.kernel)
    if isinstance(by, Listed):
        unified = unified_lines(trace) if by is Listed.COPY else ()
        return [*also, *listed_table.said_of_all(listed(trace, by)), *unified]
    found = breakdown(trace, by, each=each_range, within=wanted.within)
    if isinstance(found, Unknown):
        return [str(found)]
    slow = [(i, one) for i, one in enumerate(found.parts, 1) if one.is_slow]
    slow.sort(key=lambda one: -one[1].account.wall_ns)
    more = [f"{len(slow) - _SLOW} more are slow"] if len(slow) > _SLOW else []
    return [
        f"found {found.found}",
        *(rank_lines(trace, found.parts) if by is By.RANK else ()),
        *spread_lines(found.spreads),
        *(f"{one.name} ({i}): {why_slow(one, spread_of(found, one))}" for i, one in slow[:_SLOW]),
        *more,
    ]


# -- JSON -------------------------------------------------------------------------------------------------------------


def part_document(trace: Trace, wanted: WantedTable, *, each_range: bool) -> Json:
    """The object under "by"."""
    trace, by = wanted.trace(trace), wanted.of
    if by == "memory":
        return memory_document(trace)
    if isinstance(by, CodeOf):
        return code_document(trace, by.by, by.kernel)
    if isinstance(by, Listed):
        return listed_document(trace, by)
    found = breakdown(trace, by, each=each_range, within=wanted.within)
    if isinstance(found, Unknown):
        return fact(found)
    return {
        "by": str(found.by),
        "found": found.found,
        "sureness": found.sureness,
        "spreads": [_spread(one) for one in found.spreads],
        "rows": [_row(one) for one in found.parts],
    }


def _spread(spread: Spread) -> Json:
    return {
        "group": spread.group.title,
        "phase": None if spread.phase is None else str(spread.phase),
        "steps": len(spread.steps),
        "numbers": list(spread.steps),
        "median_ns": spread.median_ns,
        "p95_ns": spread.p95_ns,
        "p99_ns": spread.p99_ns,
        "slow_from_ns": spread.slow_from_ns,
        "kernels": fact(NO_CALLS if spread.kernels is None else spread.kernels),
        "exposed_ns": spread.exposed_ns,
        "more": [_difference(one) for one in spread.more],
    }


def _row(part: TimePart) -> Json:
    account = part.account
    return {
        **_plain(part),
        "kernels": _asked(account.kernels),
        "launches": _asked(account.launches),
        "copied_bytes": _asked(account.copied),
        "phase": fact(part.phase)
        if isinstance(part.phase, Unknown)
        else None
        if part.phase is None
        else str(part.phase),
        "idle": [{"cause": str(cause), "name": name, "ns": ns} for (cause, name), ns in account.idle],
        "families": [{"family": str(family), "ns": ns} for family, ns in account.families],
        "more": [_difference(one) for one in part.more],
    }


def _plain(part: TimePart) -> dict[str, Json]:
    """What is the same in JSON and CSV."""
    account, met = part.account, part.met
    return {
        "name": part.name,
        "owner": part.owner,
        "times": part.times,
        "start_ns": part.start_ns,
        "wall_ns": account.wall_ns,
        "longest_ns": part.longest_ns,
        "cpu_ns": part.cpu_ns,
        "gpu_ns": account.gpu_ns,
        "busy_ns": account.busy_ns,
        "idle_ns": account.idle_ns,
        "communication_ns": account.communication_ns,
        "exposed_ns": account.exposed_ns,
        "alone_ns": part.alone_ns,
        "computing_ns": None if met is None else met.computing_ns,
        "waiting_ns": None if met is None else met.waiting_ns,
        "waited_for_ns": None if met is None else met.waited_for_ns,
        "collectives": None if met is None else met.operations,
        "last": None if met is None else met.last,
        "group": part.group.title,
        "slow": part.is_slow,
    }


def _asked(value: int | None) -> Json:
    return fact(NO_CALLS if value is None else value)


def _difference(one: Difference) -> Json:
    what, of = one.part
    return {"what": what, "of": str(of), "name": one.name, "ns": one.ns}


# -- CSV --------------------------------------------------------------------------------------------------------------


def report_by_csv(trace: Trace, wanted: WantedTable, *, each_range: bool = False) -> Iterator[str]:
    """The table line by line, of time with a column for each family of kernels and each cause of idle time.

    Raises:
        FileError: There is no such table.
    """
    trace, by = wanted.trace(trace), wanted.of
    if by == "memory":
        return memory_csv(trace)
    if isinstance(by, CodeOf):
        return code_csv(trace, by.by, by.kernel)
    if isinstance(by, Listed):
        return listed_csv(trace, by)
    found = breakdown(trace, by, each=each_range, within=wanted.within)
    if isinstance(found, Unknown):
        raise FileError(f"{trace.origin.path}: {found}")
    return _csv([replace(part, start_ns=part.start_ns - trace.start_ns) for part in found.parts])


def _csv(parts: Sequence[TimePart]) -> Iterator[str]:
    """Beginnings count from that of the capture, as `--range` does: no other column tells when it began."""
    shares = list(dict.fromkeys(share for part in parts for share in shares_of(part.account)))
    shares.sort(key=lambda share: (share[0] == "idle", share[1]))
    titles = [f"{what}_{of}_ns" for what, of in shares]
    yield csv_line(("number", *(_plain(parts[0]) if parts else ()), *_COUNTED, *titles, "missing"))
    for number, part in enumerate(parts, 1):
        counts = part.account.kernels, part.account.launches, part.account.copied
        own = shares_of(part.account)
        phase = "" if part.phase is None or isinstance(part.phase, Unknown) else str(part.phase)
        missing = [f"phase: {part.phase}"] if isinstance(part.phase, Unknown) else []
        missing += [f"kernels, launches, copied_bytes: {NO_CALLS}"] if None in counts else []
        plain = (_cell(value) for value in _plain(part).values())
        amounts = (own.get(share, 0) for share in shares)
        yield csv_line((number, *plain, *map(_cell, counts), phase, *amounts, "; ".join(missing)))


_COUNTED = ("kernels", "launches", "copied_bytes", "phase")


def _cell(value: object) -> object:
    return "" if value is None else int(value) if isinstance(value, bool) else value
