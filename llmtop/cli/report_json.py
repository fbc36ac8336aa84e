"""`llmtop report --format json`: the contract `llmtop.report/1`, described in docs/json-report.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from llmtop import whats
from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.classes import COLUMNS, KernelClass, kernel_classes
from llmtop.analysis.kernels.communication import Communication, communication
from llmtop.analysis.kernels.family_shares import FamilyShare, family_shares
from llmtop.analysis.kernels.lacking import lacking
from llmtop.analysis.kernels.nvtx_ranges import RangeShare, range_shares
from llmtop.analysis.kernels.table import SIZE_NOT_TOLD, Dim3, Kernels, kernels_of
from llmtop.analysis.kernels.traffic import Traffic
from llmtop.analysis.pages.observed import observation
from llmtop.analysis.pages.report import Entry, Summary, entries, summary
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.timeline.account import GpuAccount, IdlePart
from llmtop.analysis.timeline.idle_view import merged
from llmtop.analysis.views import RooflinePoint
from llmtop.cli.documents import fact, finding_document
from llmtop.model import Finding, Issue, Stack, Trace, Unknown, UnknownKind, Value

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.cli.part_table import PartTable

SCHEMA = "llmtop.report/1"
_TEMPLATES = 64


def report_json(trace: Trace, *, each_range: bool = False, by: PartTable[Any] | None = None) -> Iterator[str]:
    """The document in pieces, a kernel at a time: the counters of thousands of launches never are in memory at once."""
    totals = summary(trace)
    kernels = kernels_of(trace)
    metrics = _Metrics(kernels.unit)
    yield f'{{"schema": {_dumps(SCHEMA)},\n"source": {_dumps(_source(trace))},\n"kernels": ['
    for i, entry in enumerate(entries(trace)):
        yield (
            ",\n" if i else "\n"
        ) + f'{_dumps(_kernel(entry, kernels))[:-1]}, "metrics": {metrics.written(entry.metrics)}}}'
    yield "],\n"
    rest: dict[str, Json] = {
        **_notes(trace),
        "families": [_family(share) for share in family_shares(trace)],
        "classes": [_class(one) for one in kernel_classes(trace)],
        "ranges": [_range(share) for share in range_shares(trace, each=each_range)],
        "timeline": _timeline(trace, totals),
        "by": None if by is None else by.document(),
        "stacks": [_stack(stack) for stack in trace.stacks],
        "findings": [_finding(finding) for finding in diagnose(trace).findings],
        "issues": [_issue(issue) for issue in trace.issues],
        "missing": [
            {"what": what, "reason": reason, "remedy": group.command}
            for group in lacking(trace)
            for what, reason in group.parts
        ],
    }
    yield ",\n".join(f'"{key}": {_dumps(value)}' for key, value in rest.items()) + "}\n"


_dumps = json.JSONEncoder(allow_nan=False).encode
_NUMBERS = frozenset({int, float})


_fact = partial(fact, not_finite=Unknown("the value in the report is not a finite number"))


class _Metrics:
    """Writes the metrics of launch after launch. The names and units of those with the same ones are encoded once.

    Hundreds of values of thousands of launches are most of a document, and names most of a value.
    """

    def __init__(self, unit: Callable[[str], str]) -> None:
        self._template = lru_cache(_TEMPLATES)(partial(_template, unit))

    def written(self, values: Mapping[str, Value]) -> str:
        """The object of one launch. Of finite numbers "%s" makes what JSON does."""
        plain = [
            value if value.__class__ in _NUMBERS and isfinite(value) else _dumps(_fact(value))  # type: ignore[arg-type]
            for value in values.values()
        ]
        return self._template(tuple(values)) % tuple(plain)


def _template(unit: Callable[[str], str], names: Sequence[str]) -> str:
    """The object of metrics of these names, with %s for each value."""
    members = (f'{_dumps(name)}: {{"value": \0, "unit": {_dumps(unit(name))}}}' for name in names)
    return "{" + ", ".join(members).replace("%", "%%").replace("\0", "%s") + "}"


def _named(text: str, what: str) -> Json:
    return _fact(text or Unknown(f"the report does not name its {what}"))


def _size(size: Dim3) -> Json:
    return list(size) if min(size) >= 0 else _fact(SIZE_NOT_TOLD)


def _source(trace: Trace) -> Json:
    origin = trace.origin
    return {
        "kind": origin.kind,
        "tool_version": _named(origin.tool_version, "tool's version"),
        "path": origin.path,
        "gpu": _named(origin.gpu, "GPU"),
        "directory": _named(profiling.directory(trace), "program's directory"),
        "observed": _observed(trace),
    }


def _notes(trace: Trace) -> dict[str, Json]:
    """What the user wrote, where they did."""
    notes = trace.notes
    named = sorted({*notes.names, *notes.kernels})
    kernels = [
        {"demangled": name, "name": notes.names.get(name, ""), "note": notes.kernels.get(name, "")} for name in named
    ]
    return {"notes": {"report": notes.report, "kernels": kernels}} if notes.report or kernels else {}


def _observed(trace: Trace) -> Json:
    of = observation(trace)
    if of is None:
        return None
    told = {field.name: getattr(of, field.name) for field in fields(of)}
    return {name: None if value is None else _fact(value) for name, value in told.items()}


def _kernel(entry: Entry, kernels: Kernels) -> Json:
    launch = kernels.launched(entry.row)
    total = entry.row.total_ns
    stalls = entry.facts.stalls
    return {
        "name": entry.name,
        "title": entry.short,
        "family": str(entry.family),
        "demangled": entry.demangled,
        "grid": _size(entry.grid),
        "block": _size(entry.block),
        "calls": entry.row.calls,
        "duration_ns": _fact(total if total == total else Unknown("duration not collected")),
        "launch": None if launch is None else _launch(*launch),
        "bound": str(entry.facts.bound_name),
        "class": str(entry.facts.class_name),
        "dram": None if isinstance(entry.facts.traffic, Unknown) else _traffic(entry.facts.traffic),
        "roofline": None if isinstance(entry.roofline, Unknown) else _point(entry.roofline),
        "stalls": {} if isinstance(stalls, Unknown) else dict(stalls.shares),
        "missing": [missing.document for missing in entry.missing],
    }


def _launch(latency: float | Unknown, queue: float | Unknown) -> Json:
    return {"latency_ns": _fact(latency), "queue_ns": _fact(queue)}


def _traffic(traffic: Traffic) -> Json:
    return {"bytes_per_s": traffic.bytes_per_s, "peak_fraction": traffic.fraction, "source": traffic.source}


def _family(share: FamilyShare) -> Json:
    return {
        "family": str(share.family),
        "kernels": share.kernels,
        **_spent(share),
    }


def _class(one: KernelClass) -> Json:
    return {
        "class": one.name,
        "kernels": one.kernels,
        "time_share": one.share,
        "means": {key: {"value": value, "unit": _class_unit(key)} for key, value in one.means.items()},
    }


def _class_unit(key: str) -> str:
    return COLUMNS[key][1] if key in COLUMNS else "ns"


def _range(share: RangeShare) -> Json:
    return {
        "name": share.name,
        "names": share.names,
        "times": share.times,
        **_spent(share),
    }


def _spent(share: FamilyShare | RangeShare) -> dict[str, Json]:
    return {"launches": share.launches, "duration_ns": share.total_ns, "time_share": share.share}


def _point(point: RooflinePoint) -> Json:
    return {
        "intensity": point.intensity,
        "flops_per_s": point.flops_per_s,
        "bytes_per_s": point.bytes_per_s,
        "precision": point.precision,
        "roof_fraction": point.roof_fraction,
        "quality": str(point.quality),
    }


def _stack(stack: Stack) -> Json:
    return {"frames": stack.frames, "weight": stack.weight, "unit": stack.unit, "state": stack.state}


def _finding(finding: Finding) -> Json:
    return finding_document(finding) | {"no_command": finding.no_command, "at_stake_ns": finding.at_stake_ns}


def _issue(issue: Issue) -> Json:
    return {"severity": str(issue.severity), "code": issue.code, "message": issue.message, "count": issue.count}


def _of_failed(trace: Trace) -> Unknown | None:
    return next((missing.why for missing in trace.missing if missing.why.kind is UnknownKind.FAILED), None)


def _why_no_timeline(trace: Trace) -> Unknown:
    why = trace.why_missing(whats.TIMELINE) or _of_failed(trace)
    if why is not None and why.kind in (UnknownKind.NOT_ASKED, UnknownKind.FAILED):
        return why
    return Unknown("the report has no timeline" if why is None else why.reason, profiling.timeline(trace))


def _timeline(trace: Trace, totals: Summary) -> Json:
    if not totals.spans:
        return _fact(_why_no_timeline(trace))
    return {
        "start_ns": trace.start_ns,
        "end_ns": trace.end_ns,
        "spans": {kind: {"count": count, "total_ns": total} for kind, (count, total) in totals.spans.items()},
        "gpus": [_gpu(gpu) for gpu in totals.idle.gpus],
        "communication": [_communication(gpu) for gpu in communication(trace)],
        "idle_unknown": [missing.document for missing in totals.idle.unknown],
    }


def _gpu(gpu: GpuAccount) -> Json:
    late = gpu.late_ns if gpu.joined_ns else Unknown("the launches of this work are not in the capture")
    return {
        "gpu": gpu.gpu,
        "capture_ns": gpu.end_ns - gpu.start_ns,
        "busy_ns": gpu.busy_ns,
        "idle_ns": gpu.idle_ns,
        "idle": [_idle(part) for part in merged(gpu.parts, by_name=True)],
        "short_gaps": gpu.short,
        "short_gap_ns": gpu.short_ns,
        "late_launch_ns": _fact(late),
        "pause_ns": gpu.pause_ns,
        "busy_over_time": [float(f"{share:.4g}") for share in gpu.busy_over_time],
    }


def _communication(gpu: Communication) -> Json:
    alone = Unknown("no other GPU of the capture takes part")
    return {
        "gpu": gpu.gpu,
        "kernels": gpu.kernels,
        "total_ns": gpu.total_ns,
        "exposed_ns": gpu.exposed_ns,
        "matched": gpu.matched,
        "waiting_ns": _fact(gpu.waiting_ns if gpu.matched else alone),
        "last": _fact(gpu.last if gpu.matched else alone),
    }


def _idle(part: IdlePart) -> Json:
    return {
        "cause": str(part.cause),
        "name": part.name,
        "ns": part.ns,
        "gaps": part.gaps,
        "longest_ns": part.longest_ns,
    }
