"""Time by step, range, stream or GPU, for `llmtop report --by`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.breakdown.breakdown import (
    Breakdown,
    By,
    Difference,
    Spread,
    TimePart,
    breakdown,
    shares_of,
)
from llmtop.analysis.kernels.breakdown.breakdown_table import (
    NO_CALLS,
    breakdown_table,
    spread_lines,
    spread_of,
    why_slow,
)
from llmtop.analysis.kernels.breakdown.ranks import rank_lines, scaling_tax_of
from llmtop.analysis.tables import csv_line
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Trace

_SLOW = 10


def time_by(trace: Trace, wanted: WantedTable) -> PartTable[Breakdown]:
    """Where the time went, by what is wanted: one of `By`."""
    by = By(wanted.by)
    found = breakdown(trace, by, each=wanted.each_range, within=wanted.within)
    return PartTable(
        _title(trace, by),
        trace.origin.path,
        found,
        rows_of=lambda found: breakdown_table(found, trace.start_ns),
        document_of=_document,
        csv_of=partial(_csv, start_ns=trace.start_ns),
        said=lambda: [str(found)] if isinstance(found, Unknown) else _said(trace, found),
    )


def _title(trace: Trace, by: By) -> str:
    match by:
        case By.STEP:
            return "Steps"
        case By.STREAM:
            return "Time by stream"
        case By.NVTX:
            return f"Time by {trace.origin.range_term}"
        case By.RANK:
            return "Time by rank" if trace.parts else "Time by GPU"


def _said(trace: Trace, found: Breakdown) -> list[str]:
    """How the rows were found, how long steps last, which are slow and why."""
    slow = [(i, one) for i, one in enumerate(found.parts, 1) if one.is_slow]
    slow.sort(key=lambda one: -one[1].account.wall_ns)
    more = [f"{len(slow) - _SLOW} more are slow"] if len(slow) > _SLOW else []
    return [
        f"found {found.found}",
        *(rank_lines(trace, found.parts) if found.by is By.RANK else ()),
        *spread_lines(found.spreads),
        *(f"{one.name} ({i}): {why_slow(one, spread_of(found, one))}" for i, one in slow[:_SLOW]),
        *more,
    ]


# -- JSON -------------------------------------------------------------------------------------------------------------


def _document(found: Breakdown) -> Json:
    return {
        "by": str(found.by),
        "found": found.found,
        "sureness": found.sureness,
        "scaling_tax": _tax(found),
        "spreads": [_spread(one) for one in found.spreads],
        "rows": [_row(one) for one in found.parts],
    }


def _tax(found: Breakdown) -> Json:
    tax = scaling_tax_of(found.parts) if found.by is By.RANK else None
    return None if tax is None else {"share": tax.share, "waiting": tax.waiting}


def _spread(spread: Spread) -> Json:
    return {
        "group": spread.group.title,
        "phase": None if spread.phase is None else str(spread.phase),
        "steps": len(spread.steps),
        "numbers": list(spread.steps),
        "median_ns": spread.median_ns,
        "p95_ns": spread.p95_ns,
        "p99_ns": spread.p99_ns,
        "longest_ns": spread.longest_ns,
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


def _csv(found: Breakdown, start_ns: int) -> Iterator[str]:
    """With a column for each family of kernels and each cause of idle time.

    Beginnings count from that of the capture, as `--range` does: no other column tells when it began.
    """
    parts = [replace(part, start_ns=part.start_ns - start_ns) for part in found.parts]
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
