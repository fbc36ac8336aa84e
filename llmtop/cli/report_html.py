"""`llmtop report --format html`: one file that needs nothing else: the verdict, what to do first, charts, tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.bounds import Bound
from llmtop.analysis.kernels.communication import communication, described
from llmtop.analysis.kernels.duration_histograms import Histogram, kernel_histograms
from llmtop.analysis.kernels.family_shares import family_shares, other_kinds
from llmtop.analysis.kernels.lacking import DataKind, lacking, typed
from llmtop.analysis.kernels.nvtx_ranges import in_range
from llmtop.analysis.kernels.stalls import PALETTE, REASONS, UNNAMED, StallBar
from llmtop.analysis.kernels.table import (
    Grouping,
    has_counters,
    kernel_table,
    kernels_of,
    roofline_view,
    stall_bars,
)
from llmtop.analysis.pages.damage import damage
from llmtop.analysis.pages.noted import note_lines
from llmtop.analysis.pages.observed import observed_lines
from llmtop.analysis.pages.report import Summary, kernel_time, summary
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.timeline.capture import capture_length
from llmtop.analysis.timeline.causes import MEANINGS
from llmtop.analysis.timeline.causes import PALETTE as IDLE_PALETTE
from llmtop.analysis.timeline.idle_view import IdleOfGpu, IdleRow, IdleView, idle_view
from llmtop.analysis.timeline.span_rows import span_cells, span_rows
from llmtop.analysis.timeline.work import gpu_title
from llmtop.analysis.views import Cell, Column, RooflinePoint, RooflineView
from llmtop.cli.html_parts import html_table, page_begin, page_end
from llmtop.cli.report_incident import incident_html
from llmtop.cli.report_rows import counted
from llmtop.cli.report_svg import NUMBERED, BarPart, histogram_svg, roofline_svg, stacked_bar
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import duration, number, percent

_KERNELS = 500
_FIRST = 3
_BARS = 12
_IDLE_ROWS = 100
_PARTS = 2000
_VISIBLE = 0.003
"""Of a bar: what is narrower is not in its legend."""


def report_html(trace: Trace, *, each_range: bool = False, by: PartTable[Any] | None = None) -> Iterator[str]:
    """The page, in parts; with `each_range` NVTX ranges by their full names."""
    totals, diagnosis = summary(trace), diagnose(trace)
    title = PurePath(trace.origin.path).name or trace.origin.kind
    yield from page_begin(title)
    yield from _head(trace, totals)
    yield "</header>\n<main>\n"
    yield from _verdict(trace, diagnosis)
    if trace.origin.is_observed:
        yield from incident_html(trace)
    if by is not None:
        yield from _by(by)
    why = no_kernels(trace)
    if why is not None and not trace.origin.is_observed:
        yield f"<p class='why'>No kernels: {escape(str(why))}</p>\n"
    elif why is None:
        yield from _charts(trace, totals)
        yield from _kernels(trace)
    yield from _functions(trace)
    yield from _spans(trace, each=each_range)
    yield from _findings(diagnosis.findings[_FIRST:])
    yield from _missing(trace)
    yield from page_end(trace.origin.path)


def _head(trace: Trace, totals: Summary) -> Iterator[str]:
    origin = trace.origin
    yield from (f"<p><strong>damaged:</strong> {escape(message)}</p>\n" for message in damage(trace))
    facts = [origin.gpu, " ".join(part for part in (origin.kind, origin.tool_version) if part)]
    if totals.launches:
        facts.append(f"{counted(totals.kernels, 'kernel')} in {counted(totals.launches, 'launch')}")
    facts += [kernel_time(trace), in_range(trace), capture_length(trace)]
    yield f"<p>{escape(' · '.join(fact for fact in facts if fact))}</p>\n"
    yield from (f"<p>{escape(line)}</p>\n" for line in (*note_lines(trace), *observed_lines(trace)))


# -- what to do -------------------------------------------------------------------------------------------------------


def _verdict(trace: Trace, diagnosis: Diagnosis) -> Iterator[str]:
    """The first finding as a headline, then the first three in full: what one came for."""
    if not diagnosis.findings:
        silence = diagnosis.silence_reason or "no findings: the rules that this capture has data for found nothing"
        blind = any(group.title is DataKind.COUNTERS for group in lacking(trace))
        lacks = ", and it lacks much: see what is not in this capture, below" if blind else ""
        yield f"<p class='verdict{' info' if blind else ''}'>{escape(silence + lacks)}</p>\n"
        yield from _no_verdicts(diagnosis)
        return
    gravest = diagnosis.findings[0]
    yield f"<p class='verdict {escape(gravest.severity)}'>{escape(gravest.headline())}</p>\n"
    told = (diagnosis.of_what(), profiling.where_to_run(trace, diagnosis.findings))
    yield from (f"<p class='why'>{escape(said)}</p>\n" for said in told if said)
    yield "<div class='cards'>\n"
    for finding in diagnosis.findings[:_FIRST]:
        yield from _finding(finding)
    yield "</div>\n"
    if len(diagnosis.findings) > _FIRST:
        more = counted(len(diagnosis.findings) - _FIRST, "more finding")
        yield f"<p class='why'>{more} below.</p>\n"
    yield from _no_verdicts(diagnosis)


def _no_verdicts(diagnosis: Diagnosis) -> Iterator[str]:
    yield from (f"<p class='why'>{escape(said)}</p>\n" for said in diagnosis.no_verdicts)


def _finding(finding: Finding) -> Iterator[str]:
    yield f"<section class='card {escape(finding.severity)}'><h3>{escape(finding.subject)}</h3>\n"
    yield f"<p><b class='severity'>{escape(finding.severity)}</b> {escape(finding.message)}</p>\n"
    yield f"<p class='do'>→ {escape(finding.action)}</p>\n"
    if finding.next_command:
        yield f"<pre><code>{escape(finding.next_command)}</code></pre>\n"
    elif finding.no_command:
        yield f"<p class='why'>no command: {escape(finding.no_command)}</p>\n"
    if finding.evidence:
        yield "<ul>" + "".join(f"<li>{escape(evidence)}</li>" for evidence in finding.evidence) + "</ul>\n"
    yield f"<p class='source'>{escape(finding.rule)}: {escape(finding.source)}</p></section>\n"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    if findings:
        yield "<h2>Further findings</h2>\n<div class='cards'>\n"
        for finding in findings:
            yield from _finding(finding)
        yield "</div>\n"


# -- charts -----------------------------------------------------------------------------------------------------------


def _charts(trace: Trace, totals: Summary) -> Iterator[str]:
    yield "<div class='charts'>\n"
    yield from _time(trace, totals)
    yield from _idle(idle_view(trace))
    yield from _communication(trace)
    if has_counters(trace):
        yield from _stalls(stall_bars(trace))
    yield "</div>\n"
    if has_counters(trace):
        yield from _roofline(roofline_view(trace))
    yield from _histograms(kernel_histograms(trace))


def _time(trace: Trace, totals: Summary) -> Iterator[str]:
    """Where the kernels' time goes: by what limits it, and by kernel."""
    yield "<section><h2>Time</h2>\n"
    bounds = [bound for bound in totals.time_by_bound if bound != Bound.UNKNOWN]
    if bounds:
        yield "<h3>by what limits it</h3>\n"
        parts = [(f"b-{bound}", bound, share) for bound, share in totals.time_by_bound.items()]
        yield stacked_bar(BarPart(share, colour, f"{bound} {percent(100 * share)}") for colour, bound, share in parts)
        yield _legend((colour, f"{bound} {percent(100 * share)}") for colour, bound, share in parts)
    yield "<h3>by family</h3>\n"
    yield from _bars((str(one.family), one.share, duration(one.total_ns)) for one in family_shares(trace))
    if other := other_kinds(trace):
        yield f"<p class='why'>{escape(other)}</p>\n"
    yield "<h3>by kernel</h3>\n"
    kernels = kernels_of(trace)
    rows = kernels.groups(Grouping.NAME)
    yield from _bars(
        (kernels.short_name(row.launches[0]), kernels.share(row.total_ns), duration(row.total_ns))
        for row in rows[:_BARS]
        if row.total_ns == row.total_ns
    )
    if len(rows) > _BARS:
        rest = kernels.share(sum(row.total_ns for row in rows[_BARS:] if row.total_ns == row.total_ns))
        yield f"<p class='why'>and {counted(len(rows) - _BARS, 'more name')}, {percent(100 * (rest or 0.0))}</p>\n"
    yield "</section>\n"


def _bars(rows: Iterable[tuple[str, float | None, str]]) -> Iterator[str]:
    """Bars of (name, share, value), the first ones longest."""
    yield "<div class='bars'>\n"
    for name, share, value in rows:
        part = 0.0 if share is None else share
        yield f"<span class='name' title='{escape(name)}'>{escape(name)}</span>"
        yield stacked_bar([BarPart(part, "b-time", f"{percent(100 * part)}")])
        yield f"<span class='n'>{percent(100 * part)}</span><span class='n'>{escape(value)}</span>\n"
    yield "</div>\n"


def _stalls(bars: Sequence[StallBar]) -> Iterator[str]:
    """What warps wait for: in each of the heaviest kernels that was asked."""
    yield "<section><h2>What warps wait for</h2>\n"
    measured = [bar for bar in bars if bar.shares][:_BARS]
    if not measured:
        why = next((bar.why_not for bar in bars if bar.why_not), Unknown("not collected"))
        yield f"<p class='why'>{escape(str(why))}</p></section>\n"
        return
    yield "<div class='bars'>\n"
    for bar in measured:
        reason, share = bar.shares[0]
        yield f"<span class='name' title='{escape(bar.kernel)}'>{escape(bar.kernel)}</span>"
        yield stacked_bar(
            BarPart(part, _stall_class(name), f"{name} {percent(100 * part)}") for name, part in bar.shares
        )
        yield f"<span class='n'>{percent(100 * share)}</span><span>{escape(reason)}</span>\n"
    yield "</div>\n"
    yield _legend((_stall_class(name), f"{name}: {REASONS.get(name, '')}") for name in _worth_naming(measured))
    yield f"<p class='why'>Shares of the waiting, in {escape(measured[0].unit)}.</p></section>\n"


def _stall_class(reason: str) -> str:
    colour, shade = PALETTE.get(reason, UNNAMED)
    return f"s{colour}-{shade}"


def _worth_naming(bars: Sequence[StallBar]) -> list[str]:
    """The reasons that take a visible part of a bar, in the order of their weight."""
    weights: dict[str, float] = {}
    for bar in bars:
        for name, share in bar.shares:
            if share >= 0.03:
                weights[name] = weights.get(name, 0.0) + share * max(bar.total, 1e-9)
    return sorted(weights, key=lambda name: -weights[name])


def _idle(view: IdleView) -> Iterator[str]:
    """What each GPU of a timeline did in the time of the capture, and why it had nothing to do."""
    if not view.gpus:
        return
    yield "<section><h2>GPU time</h2>\n"
    for gpu in view.gpus:
        whole = max(1, gpu.capture_ns)
        shown = [BarPart(gpu.busy_ns / whole, "i-busy", f"at work {duration(gpu.busy_ns)}")]
        shown += [BarPart(row.ns / whole, _idle_class(row), f"{row.title} {duration(row.ns)}") for row in gpu.causes]
        yield f"<h3>{escape(gpu.title)}</h3>\n" + stacked_bar(shown)
        visible = [part for part in shown if part.share >= _VISIBLE]
        yield _legend((part.colour, f"{part.title}, {percent(100 * part.share)}") for part in visible)
        yield "<details><summary>idle time by cause</summary>\n"
        yield from _idle_rows(gpu)
        yield "</details>\n"
    yield from _glossary(view.gpus)
    yield from (f"<p class='why'>{escape(f'{lacks.what}: {lacks.why}')}</p>\n" for lacks in view.unknown)
    yield "</section>\n"


def _communication(trace: Trace) -> Iterator[str]:
    """What each GPU sends and receives, and how much of that costs time."""
    if sent := communication(trace):
        yield "<section><h2>Communication between GPUs</h2><ul>\n"
        yield from (f"<li>{escape(gpu_title(gpu.gpu))}: {escape(described(gpu))}</li>\n" for gpu in sent)
        yield "</ul></section>\n"


def _glossary(gpus: Sequence[IdleOfGpu]) -> Iterator[str]:
    """What each cause means."""
    causes = dict.fromkeys((row.title, row.cause) for gpu in gpus for row in gpu.causes)
    if causes:
        yield "<details><summary>what the causes mean</summary><ul>\n"
        yield from (f"<li><b>{escape(title)}</b>: {escape(MEANINGS[cause])}</li>\n" for title, cause in causes)
        yield "</ul></details>\n"


def _idle_rows(gpu: IdleOfGpu) -> Iterator[str]:
    columns = (
        Column("cause", "had nothing to do"),
        Column("name", "call or range"),
        Column("time", "time", "ns"),
        Column("share", "of the idle time", "ratio"),
        Column("gaps", "gaps", "1"),
        Column("longest", "longest", "ns"),
    )
    rows = [(row.title, row.name, row.ns, row.share, row.gaps, row.longest_ns) for row in gpu.rows[:_IDLE_ROWS]]
    yield from html_table(columns, rows)


def _idle_class(row: IdleRow) -> str:
    colour, shade = IDLE_PALETTE[row.cause]
    return f"s{colour}-{shade}"


def _legend(items: Iterable[tuple[str, str]]) -> str:
    """What the colours of a chart mean."""
    listed = "".join(f"<li><i class='{colour}'></i>{escape(text)}</li>" for colour, text in items)
    return f"<ul class='legend'>{listed}</ul>\n"


def _roofline(view: RooflineView) -> Iterator[str]:
    yield "<section><h2>Roofline</h2>\n"
    if not view.points:
        why = view.why_not or Unknown("no kernel has a place")
        yield f"<p class='why'>no point: {escape(str(why))}</p></section>\n"
        return
    yield "<div class='wide'>\n"
    yield from roofline_svg(view)
    yield "</div>\n"
    if len({point.precision for point in view.points}) > 1:
        yield "<details><summary>normalised: all precisions under one roof</summary><div class='wide'>\n"
        yield from roofline_svg(view, normalised=True)
        yield "</div></details>\n"
    yield "<ol class='points'>"
    yield from (f"<li>{escape(_place(point))}</li>\n" for point in view.points[:NUMBERED])
    yield f"</ol>\n<p class='why'>{escape(_ridges(view))}</p>\n"
    yield "<details><summary>all points</summary>\n"
    columns = (
        Column("number", "#", "1"),
        Column("name", "kernel"),
        Column("intensity", "FLOP/byte", "1"),
        Column("flops", "FLOP/s", "FLOP/s"),
        Column("bytes", "bytes/s", "bytes/s"),
        Column("precision", "precision"),
        Column("roof", "of the roof", "%"),
        Column("time", "time", "%"),
    )
    yield from html_table(columns, (_point(i, point) for i, point in enumerate(view.points[:_KERNELS], 1)))
    yield "</details>\n"
    if view.refusals:
        yield f"<details><summary>{counted(len(view.refusals), 'kernel')} not on it</summary><ul>\n"
        refusals = view.refusals[:_KERNELS]
        yield from (f"<li>{escape(refusal.label)}: {escape(str(refusal.why))}</li>\n" for refusal in refusals)
        yield "</ul></details>\n"
    yield "</section>\n"


def _place(point: RooflinePoint) -> str:
    of_roof = "" if point.roof_fraction is None else f" {percent(100 * point.roof_fraction)} of the roof,"
    return f"{point.label}:{of_roof} {percent(100 * point.weight)} of the time"


def _ridges(view: RooflineView) -> str:
    """From which intensity on a kernel can reach its compute roof."""
    levels = (roof.level for roof in view.roofs_of("compute"))
    ridges = [f"{level} {number(ridge)} FLOP/byte" for level in levels if (ridge := view.ridge(level)) is not None]
    notes = " ".join(view.notes)
    return " ".join(filter(None, (f"Ridges: {', '.join(ridges)}." if ridges else "", notes)))


def _point(place: int, point: RooflinePoint) -> tuple[Cell, ...]:
    of_roof = None if point.roof_fraction is None else 100 * point.roof_fraction
    rates = point.intensity, point.flops_per_s, point.bytes_per_s
    return place, point.label, *rates, point.precision, of_roof, 100 * point.weight


def _histograms(histograms: Sequence[Histogram]) -> Iterator[str]:
    yield "<section><h2>How the launches are spread</h2>\n<div class='small'>\n"
    for histogram in histograms:
        if histogram.counts:
            lacking = f" ({counted(histogram.unknown, 'launch')} without)" if histogram.unknown else ""
            caption = f"<figcaption>{escape(histogram.title)}{lacking}</figcaption>"
            yield f"<figure>{caption}{histogram_svg(histogram)}</figure>"
    yield "</div>\n"
    lacking_of: dict[str, list[str]] = {}
    for histogram in histograms:
        if histogram.why_not is not None:
            lacking_of.setdefault(histogram.why_not.remedy, []).append(histogram.title)
    for remedy, titles in lacking_of.items():
        yield f"<p class='why'>not collected: {escape(', '.join(titles))} ({escape(remedy)})</p>\n"
    yield "</section>\n"


# -- tables -----------------------------------------------------------------------------------------------------------


def _kernels(trace: Trace) -> Iterator[str]:
    table = kernel_table(trace, Grouping.SHAPE)
    table = table.beside([column.key for column in table.columns])
    shown = range(min(_KERNELS, len(table)))
    yield "<section><h2>Kernels</h2>\n"
    rows = [table.cells(row) for row in shown]
    known = [i for i in range(len(table.columns)) if not all(isinstance(row[i], Unknown) for row in rows)]
    names = [table.kernels.table.name(row.launches[0]) for row in table.rows[:_KERNELS]]
    totals = table.totals()
    share = None if totals.share is None else 100 * totals.share
    sums: dict[str, Cell] = {"name": "all", "share": share, "calls": totals.launches, "duration": totals.total_ns}
    yield from html_table(
        [table.columns[i] for i in known],
        ([row[i] for i in known] for row in rows),
        names,
        [sums.get(table.columns[i].key) for i in known],
    )
    if len(table) > _KERNELS:
        yield f"<p class='why'>{len(table) - _KERNELS} more are not shown (--format csv lists all).</p>\n"
    if whys := {str(cell): None for row in rows for cell in row if isinstance(cell, Unknown)}:
        yield "<details><summary>why cells are empty or columns left out</summary><ul>"
        yield from (f"<li>{escape(why)}</li>\n" for why in whys)
        yield "</ul></details>\n"
    yield "</section>\n"


_SPAN_COLUMNS = (
    Column("kind", "kind", width=1),
    Column("name", "name"),
    Column("count", "count", "1"),
    Column("total", "total", "ns"),
    Column("mean", "mean", "ns"),
    Column("longest", "longest", "ns"),
    Column("gpu", "GPU time", "ns", help="of what its thread launched in the range, operator or call"),
    Column("launches", "launched", "1"),
    Column("bytes", "bytes", "bytes"),
    Column("rate", "rate", "bytes/s"),
    Column("recorded", "recorded", help="what else is told of them, as categories and payloads"),
)

if TYPE_CHECKING:
    from llmtop.cli.part_table import PartTable


def _spans(trace: Trace, *, each: bool) -> Iterator[str]:
    """What else a timeline holds: NVTX ranges with the GPU time in them, copies, calls."""
    rows = span_rows(trace, each=each)
    if not rows:
        return
    yield f"<section><h2>{escape(trace.origin.range_term)}s, copies and calls</h2>\n"
    yield from html_table(_SPAN_COLUMNS, map(span_cells, rows[:_KERNELS]))
    if len(rows) > _KERNELS:
        yield f"<p class='why'>{len(rows) - _KERNELS} more are not shown.</p>\n"
    yield "</section>\n"


def _by(by: PartTable[Any]) -> Iterator[str]:
    for before in by.before:
        yield from _by(before)
    yield f"<section><h2>{escape(by.title)}</h2>\n"
    for said in by.sentences():
        yield f"<p class='why'>{escape(said)}</p>\n"
    table = by.rows()
    if not isinstance(table, Unknown):
        yield from html_table(table.columns, (table.cells(i) for i in range(min(_PARTS, len(table)))))
        if len(table) > _PARTS:
            yield f"<p class='why'>{len(table) - _PARTS} more are not shown ({by.more} lists all).</p>\n"
    yield "</section>\n"


def _functions(trace: Trace) -> Iterator[str]:
    """Where the stacks of a file end, and what they come through."""
    columns = (Column("name", "function"), Column("own", "own", "%"), Column("total", "with what it calls", "%"))
    for one in functions(trace):
        yield f"<section><h2>Stacks: {escape(one.title)}</h2>\n"
        shown = one.shares[:_KERNELS]
        yield from html_table(
            columns, ((share.title, 100 * share.own_share, 100 * share.total_share) for share in shown)
        )
        if len(one.shares) > _KERNELS:
            yield f"<p class='why'>{counted(len(one.shares) - _KERNELS, 'more function')}, not shown.</p>\n"
        yield "</section>\n"


def _missing(trace: Trace) -> Iterator[str]:
    """What is not in the capture, with the command that would bring it, and faults of what is."""
    groups = lacking(trace)
    if not groups and not trace.issues:
        return
    yield f"<section><h2>Not in this {'recording' if trace.origin.is_observed else 'capture'}</h2>\n"
    for group in groups:
        yield "<ul>" + "".join(f"<li>{escape(what)}: {escape(reason)}</li>\n" for what, reason in group.parts)
        yield f"</ul>\n<pre><code>{escape(group.command or typed(group))}</code></pre>\n"
    if trace.issues:
        yield "<ul>" + "".join(f"<li>{escape(one.severity)}: {escape(one.message)}</li>\n" for one in trace.issues)
        yield "</ul>\n"
    yield "</section>\n"
