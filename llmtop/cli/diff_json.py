"""`llmtop diff --format json`: the contract `llmtop.diff/1`, described in docs/diff.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from llmtop.analysis.pages.diff.beside import (
    api_changes,
    findings_change,
    function_changes,
    idle_changes,
    memory_changes,
    setup_changes,
)
from llmtop.analysis.pages.diff.headline import Headline, headline
from llmtop.analysis.pages.diff.kernels import CallTimes, KernelChange, kernel_changes
from llmtop.analysis.pages.diff.lines import LineChange, WaitingLine, line_changes
from llmtop.analysis.pages.diff.page import says
from llmtop.analysis.pages.diff.verdict import Outcome
from llmtop.analysis.pages.diff.why import FactChange, why
from llmtop.cli.diff_pages import A, rungs_of
from llmtop.cli.documents import document_or_why, fact, finding_document
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.ladder import Rung
    from llmtop.analysis.pages.diff.side import Side
    from llmtop.cli.diff_pages import Compared
    from llmtop.cli.documents import Json
    from llmtop.model import Trace

SCHEMA = "llmtop.diff/1"
_NO_TIME = Unknown("its duration was not collected", "add --section SpeedOfLight")
_NOT_BOTH = Unknown("nothing that both reports have has a time in both")


def diff_json(compared: Sequence[Compared]) -> Iterator[str]:
    """The document of each report beside the baseline."""
    others = (report_document(one.name, one.after.trace) for one in compared)
    reports = [report_document(A, compared[0].before.trace), *others]
    rungs = rungs_of(compared) if len(compared) > 1 else ()
    yield from _written(reports, rungs, [_comparison(one) for one in compared])


def ladder_json(trace: Trace, rungs: Sequence[Rung]) -> Iterator[str]:
    """The document of the kernels of one report."""
    yield from _written([report_document(A, trace)], rungs, [])


def _written(reports: Sequence[Json], rungs: Sequence[Rung], comparisons: Sequence[Json]) -> Iterator[str]:
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "reports": reports,
        "ladder": [_rung(one) for one in rungs],
        "comparisons": comparisons,
    }
    yield json.dumps(document, allow_nan=False, indent=1) + "\n"


def report_document(name: str, trace: Trace) -> Json:
    """Which report it is."""
    origin = trace.origin
    return {
        "name": name,
        "path": origin.path,
        "kind": origin.kind,
        "tool_version": origin.tool_version,
        "gpu": origin.gpu,
    }


def _rung(one: Rung) -> Json:
    why = one.why_not or _NO_TIME
    why_no_speed = one.other_work or why
    return {
        "name": one.name,
        "ns": fact(one.ns, why),
        "baseline_ns": fact(one.baseline_ns, why),
        "times_as_fast": fact(one.speed, why_no_speed),
        "of_best": fact(one.of_best, why_no_speed),
        "beyond_noise": one.is_beyond_noise,
        "flops_per_s": None if one.flops_per_s is None else fact(one.flops_per_s),
        "flop": None if one.flop is None else fact(one.flop),
        "bound": one.bound,
    }


def _known(ns: float) -> Json:
    return fact(ns, _NO_TIME)


def _comparison(one: Compared) -> Json:
    before, after, verdict = one.before, one.after, one.verdict
    calls = api_changes(before, after)
    return {
        "report": one.name,
        "baseline": A,
        "outcome": str(verdict.outcome),
        "verdict": verdict.said,
        "not_comparable": verdict.cannot or None,
        "cautions": [caution.text for caution in verdict.cautions],
        **_headline(headline(before, after), verdict.outcome),
        "kernels": [_kernel(before, after, change) for change in kernel_changes(before, after)],
        "lines": [_line(change) for change in line_changes(before, after)],
        "findings": _findings(before, after),
        "calls": document_or_why(calls, lambda known: [asdict(change) for change in known]),
        "idle": [asdict(change) for change in idle_changes(before, after)],
        "memory": [_fact(change) for change in memory_changes(before, after)],
        "functions": [asdict(change) for change in function_changes(before, after)],
        "setup": [_fact(change) for change in setup_changes(before, after)],
    }


def _headline(found: Headline | None, outcome: Outcome) -> dict[str, Json]:
    if found is None:
        return {"time": fact(_NOT_BOTH)}
    return {
        "time": {
            "unit": str(found.unit),
            "of": found.what,
            "before_ns": found.before_ns,
            "after_ns": found.after_ns,
            "change_ns": found.change_ns,
            "change": _known(found.share),
            "noise_ns": found.noise.ns,
            "noise_measured": found.noise.is_known,
            "parts": [asdict(part) for part in found.parts],
            "not_counted": [asdict(part) for part in found.beside],
        }
    }


def _kernel(before: Side, after: Side, change: KernelChange) -> Json:
    facts = why(before, after, change) if change.is_changed or math.isnan(change.call_ns) else ()
    return {
        "name": change.name,
        "family": str(change.family),
        "told_by": None if change.likeness is None else str(change.likeness),
        "is": says(before, after, change),
        "before": _calls(change.before),
        "after": _calls(change.after),
        "call_change_ns": _known(change.call_ns) if change.is_in_both else None,
        "noise_ns": change.noise.ns if change.is_in_both else None,
        "noise_measured": change.noise.is_known,
        "change_ns": change.total_ns if change.is_timed else fact(_NO_TIME),
        "facts": [_fact(one) for one in facts],
    }


def _calls(calls: CallTimes | None) -> Json:
    if calls is None:
        return None
    return {
        "name": calls.name,
        "calls": calls.calls,
        "mean_ns": _known(calls.mean_ns),
        "median_ns": _known(calls.median_ns),
        "total_ns": _known(calls.total_ns if calls.times is not None else math.nan),
    }


def _fact(one: FactChange) -> Json:
    return {"what": one.what, "before": fact(one.before), "after": fact(one.after), "unit": one.unit}


def _line(change: LineChange) -> Json:
    return {
        "kernel": change.kernel,
        "before": _side_of_line(change.before),
        "after": _side_of_line(change.after),
        "change_ns": change.change_ns,
    }


def _side_of_line(line: WaitingLine | None) -> Json:
    if line is None:
        return None
    return {"file": line.file, "line": line.number, "text": line.text, "cost_ns": line.cost_ns}


def _findings(before: Side, after: Side) -> Json:
    found = findings_change(before, after)
    return {
        "went": [finding_document(one) for one in found.went],
        "came": [finding_document(one) for one in found.came],
        "kept": found.kept,
        "resized": [{**asdict(one), "is": one.word} for one in found.resized],
        "not_judged": [
            {"report": one.report, "why": one.why, "finding": finding_document(one.finding)} for one in found.unjudged
        ],
    }
