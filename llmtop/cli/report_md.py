"""`llmtop report --format md`: Markdown for an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.bounds import Bound
from llmtop.analysis.kernels.communication import communication, described
from llmtop.analysis.kernels.family_shares import family_shares, other_kinds
from llmtop.analysis.kernels.lacking import lacking, typed
from llmtop.analysis.kernels.nvtx_ranges import in_range
from llmtop.analysis.kernels.table import Grouping, has_counters, kernel_table, roofline_view
from llmtop.analysis.pages.damage import damage
from llmtop.analysis.pages.noted import note_lines
from llmtop.analysis.pages.observed import observed_lines
from llmtop.analysis.pages.report import Summary, kernel_time, summary
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.timeline.capture import capture_length
from llmtop.analysis.timeline.causes import MEANINGS
from llmtop.analysis.timeline.idle_view import IdleView, idle_view
from llmtop.analysis.timeline.work import gpu_title
from llmtop.analysis.views import RooflineView
from llmtop.cli.md_parts import escaped, md_row, md_table
from llmtop.cli.part_table import why_dashes
from llmtop.cli.report_rows import counted, kernel_rows, total_row
from llmtop.model import Trace, Unknown
from llmtop.units import duration, number, percent, si

if TYPE_CHECKING:
    from llmtop.cli.part_table import PartTable

_KERNELS = 50
_IDLE_ROWS = 10
_PARTS = 100
_FUNCTIONS = 50


def report_md(trace: Trace, *, each_range: bool = False, by: PartTable[Any] | None = None) -> Iterator[str]:
    """The report, line by line."""
    for line in _lines(trace, by, each_range=each_range):
        yield line + "\n"


def _lines(trace: Trace, by: PartTable[Any] | None, *, each_range: bool) -> Iterator[str]:
    totals = summary(trace)
    yield from _head(trace, totals)
    if trace.origin.is_observed:
        yield from _observed(trace, by)
        return
    if by is not None:
        yield from _by(by)
    if why := no_kernels(trace):
        yield from (f"No kernels: {escaped(str(why))}", "")
    else:
        yield from _kernels(trace)
        yield from _families(trace)
        if has_counters(trace):
            yield from _roofline(roofline_view(trace))
    yield from _functions(trace)
    yield from _idle(idle_view(trace))
    yield from _communication(trace)
    yield from _findings(trace)
    yield from _missing(trace)


def _observed(trace: Trace, by: PartTable[Any] | None) -> Iterator[str]:
    """What llmtop has observed: the verdict, and then the numbers that it rests on."""
    yield from _findings(trace)
    if by is not None:
        yield from _by(by)
    yield from _functions(trace)
    yield from _missing(trace)


def _code(text: str) -> str:
    """A code span that its content cannot close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"


def _head(trace: Trace, totals: Summary) -> Iterator[str]:
    origin = trace.origin
    yield f"# {escaped(origin.path)}"
    yield ""
    for message in damage(trace):
        yield from (f"**damaged**: {escaped(message)}", "")
    yield f"{escaped(origin.kind)} {escaped(origin.tool_version)} {escaped(origin.gpu)}".rstrip()
    yield ""
    for line in (*note_lines(trace), *observed_lines(trace)):
        yield from (escaped(line), "")
    if not totals.launches:
        return
    launches = f"{counted(totals.kernels, 'kernel')} in {counted(totals.launches, 'launch')}"
    parts = (in_range(trace), launches, kernel_time(trace), capture_length(trace))
    yield f"{escaped('; '.join(part for part in parts if part))}."
    bounds = ", ".join(f"{bound} {percent(100 * share)}" for bound, share in totals.time_by_bound.items())
    if set(totals.time_by_bound) - {str(Bound.UNKNOWN)}:
        yield f"Of the time, by what limits it: {bounds}."
    yield ""


def _kernels(trace: Trace) -> Iterator[str]:
    table = kernel_table(trace, Grouping.SHAPE)
    table = table.beside([column.key for column in table.columns])
    yield "## Kernels"
    yield ""
    yield md_row([escaped(column.title) for column in table.columns])
    yield md_row(["---:" if column.is_number else "---" for column in table.columns])
    for texts in (*kernel_rows(table, _KERNELS), total_row(table)):
        yield md_row([escaped(text) for text in texts])
    if len(table) > _KERNELS:
        yield f"\n{len(table) - _KERNELS} more are not shown."
    yield ""


def _by(by: PartTable[Any]) -> Iterator[str]:
    for before in by.before:
        yield from _by(before)
    yield f"## {by.title}"
    yield ""
    table = by.rows()
    if not isinstance(table, Unknown):
        yield from md_table(table, _PARTS)
        yield from (f"- {escaped(why)}" for why in why_dashes(table, _PARTS))
    for said in by.sentences():
        yield f"- {escaped(said)}"
    yield ""


def _families(trace: Trace) -> Iterator[str]:
    yield "## Time by kind of kernel"
    yield ""
    yield md_row(["kind", "time", "duration", "launches", "longest"])
    yield md_row(["---", "---:", "---:", "---:", "---"])
    for share in family_shares(trace):
        numbers = [percent(100 * share.share), duration(share.total_ns), str(share.launches)]
        yield md_row([str(share.family), *numbers, escaped(", ".join(share.longest))])
    yield ""
    if other := other_kinds(trace):
        yield escaped(other)
        yield ""


def _roofline(view: RooflineView) -> Iterator[str]:
    yield "## Roofline"
    yield ""
    if view.why_not is not None:
        yield escaped(str(view.why_not))
    else:
        yield md_row(["kernel", "FLOP/byte", "FLOP/s", "precision", "of the roof"])
        yield md_row(["---", "---:", "---:", "---", "---:"])
    for point in view.points[:_KERNELS]:
        fraction = "" if point.roof_fraction is None else percent(100 * point.roof_fraction)
        work = si(point.flops_per_s, "FLOP/s")
        yield md_row([escaped(point.label), number(point.intensity), work, point.precision, fraction])
    yield ""


def _functions(trace: Trace) -> Iterator[str]:
    for one in functions(trace):
        yield from (f"## Stacks: {one.title}", "")
        yield md_row(["own", "with what it calls", "function"])
        yield md_row(["---:", "---:", "---"])
        for share in one.shares[:_FUNCTIONS]:
            yield md_row([percent(100 * share.own_share), percent(100 * share.total_share), escaped(share.title)])
        yield ""


def _idle(view: IdleView) -> Iterator[str]:
    """Where the time of each GPU of a timeline went, and what the capture does not tell of it."""
    for gpu in view.gpus:
        share = percent(100 * gpu.idle_ns / max(1, gpu.capture_ns))
        yield f"## Idle time of {gpu.title}: {duration(gpu.idle_ns)}, {share} of the capture"
        yield ""
        yield md_row(["time", "of the idle time", "cause", "call or range", "gaps", "longest"])
        yield md_row(["---:", "---:", "---", "---", "---:", "---:"])
        for row in gpu.rows[:_IDLE_ROWS]:
            cells = (duration(row.ns), percent(100 * row.share), row.title, escaped(row.name), f"{row.gaps:,}")
            yield md_row([*cells, duration(row.longest_ns)])
        if len(gpu.rows) > _IDLE_ROWS:
            yield f"\n{len(gpu.rows) - _IDLE_ROWS} more are not shown."
        yield ""
    for missing in view.unknown:
        yield f"{escaped(missing.what)}: {escaped(str(missing.why))}"
        yield ""
    causes = dict.fromkeys((row.title, row.cause) for gpu in view.gpus for row in gpu.rows[:_IDLE_ROWS])
    yield from (f"- {title}: {escaped(MEANINGS[cause])}" for title, cause in causes)
    if causes:
        yield ""


def _communication(trace: Trace) -> Iterator[str]:
    if sent := communication(trace):
        yield "## Communication between GPUs"
        yield ""
        yield from (f"- {escaped(f'{gpu_title(gpu.gpu)}: {described(gpu)}')}" for gpu in sent)
        yield ""


def _findings(trace: Trace) -> Iterator[str]:
    diagnosed = diagnose(trace)
    findings = diagnosed.findings
    yield "## Findings"
    yield ""
    for said in (diagnosed.of_what(), profiling.where_to_run(trace, findings)):
        if said:
            yield f"({escaped(said)})"
            yield ""
    for finding in findings:
        yield f"- **{finding.severity}** {escaped(finding.headline())}"
        yield from (f"  - {escaped(evidence)}" for evidence in finding.evidence)
        yield f"  - → {escaped(finding.action)}"
        if finding.next_command:
            yield f"  - {_code(finding.next_command)}"
        elif finding.no_command:
            yield f"  - no command: {escaped(finding.no_command)}"
    if not findings:
        yield escaped(diagnosed.verdict) if trace.origin.is_observed else "None."
        yield ""
    yield from (f"- {escaped(said)}" for said in diagnosed.no_verdicts)
    yield ""


def _missing(trace: Trace) -> Iterator[str]:
    yield f"## Not in this {'recording' if trace.origin.is_observed else 'capture'}"
    yield ""
    for group in lacking(trace):
        for what, reason in group.parts:
            yield f"- {escaped(what)}: {escaped(reason)}"
        yield f"- to collect it: {_code(group.command)}" if group.command else f"- {escaped(typed(group))}"
    for issue in trace.issues:
        yield f"- {issue.severity}: {escaped(issue.message)}"
