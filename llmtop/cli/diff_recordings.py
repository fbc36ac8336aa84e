"""`llmtop diff` of recordings: what changed from one moment to another, of one recording or of several."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llmtop.analysis.pages.diff.page import DiffSection
from llmtop.analysis.pages.diff.verdict import DiffVerdict, Outcome
from llmtop.analysis.pages.observed import observed_lines
from llmtop.analysis.pages.observed_diff import ChangedNumber, ObservedDiff, observed_diff
from llmtop.analysis.tables import csv_of_rows, numbered
from llmtop.analysis.views import Column
from llmtop.cli.diff_drawn import drawn
from llmtop.cli.diff_json import report_document
from llmtop.cli.diff_pages import A, DiffPage
from llmtop.cli.documents import fact, finding_document
from llmtop.cli.moments import moment
from llmtop.errors import FileError, UsageError
from llmtop.parsers.registry import load, recording_at
from llmtop.text import clean

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Fact, Finding, Trace

RECORDINGS_SCHEMA: Final = "llmtop.diff-recordings/1"
_TITLES: Final = {"causes": "What threads were in", "stacks": "Where stacks end"}
_COLUMNS: Final = (
    Column("name", "number"),
    Column("before", "A", width=18, pair="value"),
    Column("after", "B", width=18, pair="value"),
    Column("change", "change", width=14, help="of what it was; of shares the difference"),
)
_LESS: Final = "not comparable: "


def recorded_moments(paths: Sequence[Path], wanted: str | None) -> list[Trace] | None:
    """The moments to compare, each with the window before it; None where no file is a recording.

    Args:
        paths: As they were given.
        wanted: A moment of each, with commas between; of one recording alone several. Without it, each one's end.

    Raises:
        FileError: One is a recording, another is none.
        UsageError: What is wanted are no moments of them, or not as many as recordings.
    """
    readers = [recording_at(path) for path in paths]
    if all(one is None for one in readers):
        if wanted is not None:
            raise UsageError("--at takes moments of recordings, and there is none")
        return None
    times = [] if wanted is None else wanted.split(",")
    if len(readers) == 1 and len(times) > 1:
        readers, paths = readers * len(times), [*paths] * len(times)
    if times and len(times) != len(readers):
        raise UsageError(f"--at {wanted}: give a moment of each recording, with commas between, as in 2:00,-1:00")
    if len(readers) < 2:
        raise UsageError("a recording is compared with another, or with itself: --at 2:00,12:00 takes two moments")
    found = []
    for path, reader, at in zip(paths, readers, times or [""] * len(readers), strict=True):
        if reader is None:
            load(path)  # whoever cannot read it says why
            raise FileError(f"{path} is no recording: recordings are compared with recordings alone")
        trace = reader.trace(moment(at, path, reader))
        named = clean(f"{path} at {at}" if at else str(path))
        found.append(replace(trace, origin=replace(trace.origin, path=named)))
    return found


def recordings_diff(traces: Sequence[Trace], baseline: int, kind: str, *, to_terminal: bool) -> Iterator[str]:
    """Each of the others beside the baseline, in one of the formats of `llmtop diff`."""
    others = [trace for i, trace in enumerate(traces) if i != baseline]
    before = traces[baseline]
    compared = [(chr(ord(A) + i), after, observed_diff(before, after)) for i, after in enumerate(others, 1)]
    match kind:
        case "json":
            return _json(before, compared)
        case "csv":
            return csv_of_rows({"report": name, **_number(one)} for name, _, found in compared for one in found.numbers)
    pages = (_page(before, after, name, found) for name, after, found in compared)
    title = " – ".join(Path(one.origin.path).name for one in (before, *others))
    return drawn(pages, kind, title, to_terminal=to_terminal)


# -- pages -----------------------------------------------------------------------------------------------------


def _page(before: Trace, after: Trace, name: str, found: ObservedDiff) -> DiffPage:
    head = (A, _about(before)), (name, _about(after))
    cannot = f"{_LESS}{'; '.join(found.cannot)}" if found.cannot else ""
    verdict = DiffVerdict(Outcome.UNKNOWN, found.verdict, cannot, ())
    return DiffPage(head, verdict, tuple(_sections(found, name)))


def _about(trace: Trace) -> str:
    """A recording in a line: its path, its machine and time, its server."""
    return " · ".join((trace.origin.path, *tuple(observed_lines(trace))[:2]))


def _sections(found: ObservedDiff, name: str) -> Iterator[DiffSection]:
    if found.cautions:
        yield DiffSection("With care", found.cautions)
    yield DiffSection(f"Findings, of the last {found.judged} of each", tuple(_findings(found)))
    if found.setup:
        yield DiffSection("Settings", tuple(f"{what}: {was} → {now}" for what, was, now in found.setup))
    columns = tuple(replace(one, title=name) if one.key == "after" else one for one in _COLUMNS)
    for part, several in groupby(found.numbers, lambda one: one.part):
        rows = [(one.title, one.before.text, one.after.text, one.change_said) for one in several]
        yield DiffSection(
            f"{_TITLES.get(part) or part[:1].upper() + part[1:]}, over {found.seconds:.0f} s",
            table=numbered(columns, rows),
        )


def _findings(found: ObservedDiff) -> Iterator[str]:
    for word, several in (("came", found.came), ("went", found.went), ("in both", found.stayed)):
        yield from (f"{word}: {one.severity}: {one.headline()}" for one in several)
        if not several:
            yield f"{word}: none"


# -- data ------------------------------------------------------------------------------------------------------


def _json(before: Trace, compared: Sequence[tuple[str, Trace, ObservedDiff]]) -> Iterator[str]:
    document: dict[str, Json] = {
        "schema": RECORDINGS_SCHEMA,
        "reports": [report_document(A, before), *(report_document(name, after) for name, after, _ in compared)],
        "comparisons": [_comparison(name, found) for name, _, found in compared],
    }
    yield json.dumps(document, allow_nan=False, indent=1) + "\n"


def _comparison(name: str, found: ObservedDiff) -> Json:
    return {
        "report": name,
        "baseline": A,
        "verdict": found.verdict,
        "not_comparable": "; ".join(found.cannot) or None,
        "cautions": list(found.cautions),
        "window_s": found.seconds,
        "numbers": [_written(one) for one in found.numbers],
        "findings": {
            "came": _documents(found.came),
            "went": _documents(found.went),
            "kept": len(found.stayed),
            "stayed": _documents(found.stayed),
            "window_s": {"before": found.judged_s[0], "after": found.judged_s[1]},
        },
        "setup": [{"what": what, "before": was, "after": now, "unit": ""} for what, was, now in found.setup],
    }


def _written(one: ChangedNumber) -> Json:
    return {key: None if value is None else fact(value) for key, value in _number(one).items()}


def _number(one: ChangedNumber) -> dict[str, Fact | None]:
    """What is the same in JSON and CSV."""
    return {
        "part": one.part,
        "number": one.key,
        "title": one.title,
        "unit": one.unit,
        "before": one.before.value,
        "after": one.after.value,
        "before_said": one.before.text,
        "after_said": one.after.text,
        "change": one.change,
    }


def _documents(findings: Sequence[Finding]) -> Json:
    return [finding_document(one) for one in findings]
