"""`llmtop report --format text`: tables and charts for a terminal, a log or a mail."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.bounds import LEANS, Bound
from llmtop.analysis.kernels.classes import COLUMNS, kernel_classes
from llmtop.analysis.kernels.communication import communication, described
from llmtop.analysis.kernels.family_shares import family_shares, other_kinds
from llmtop.analysis.kernels.lacking import DataKind, lacking, typed
from llmtop.analysis.kernels.nvtx_ranges import in_range, of_no_range, range_shares
from llmtop.analysis.kernels.stalls import REASONS, StallBar, costliest
from llmtop.analysis.kernels.table import (
    Grouping,
    KernelRows,
    has_counters,
    kernel_table,
    roofline_view,
    stall_bars,
)
from llmtop.analysis.pages.damage import damage
from llmtop.analysis.pages.noted import note_lines
from llmtop.analysis.pages.observed import observed_lines
from llmtop.analysis.pages.report import Summary, kernel_time, summary
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.timeline.capture import capture_length
from llmtop.analysis.timeline.causes import MEANINGS
from llmtop.analysis.timeline.idle_view import ASCII_LEVELS, BLOCKS, IdleOfGpu, IdleRow, IdleView, idle_view, picture
from llmtop.analysis.timeline.span_rows import TITLES
from llmtop.analysis.timeline.unified import migrations
from llmtop.analysis.timeline.work import gpu_title
from llmtop.cli.report_rows import UNKNOWN, counted, kernel_rows, total_row
from llmtop.cli.text_layout import (
    NARROWEST_NAME,
    TextStyle,
    fitting,
    heading,
    in_ascii,
    row_lines,
    table_lines,
    wrapped,
)
from llmtop.model import SpanKind, Trace, Unknown
from llmtop.units import duration, number, percent, si

_KERNELS = 20
_FUNCTIONS = 20
_STALLED = 10
_RANGES = 10
_PARTS = 40
_CLASS_WIDTH = 10
_CLASS_REST = 36
"""What the other columns of that table take."""
_LEANING = (
    "What a kernel leans to is the busier one of two, however little either is: SM % less DRAM %, above 5 SM, below -5 "
    "DRAM (the DeepSeek-OCR study's classes compute and memory). The bound is what limits it: there memory has the "
    "caches too, and below 60 % of both it is latency."
)

if TYPE_CHECKING:
    from llmtop.cli.part_table import PartTable
_MEANS = " Means count each kernel once; by time, as long as it takes."
_CACHED = "{} of the time is memory-bound and does not lean to DRAM: caches or shared memory limit it."
_REASONS = 4
_NOTABLE_REASON = 0.01
"""Of the waiting."""
_REFUSED = 5
_IDLE_PARTS = 8
_FURTHER = 2
_EACH_GPU = 2
"""More GPUs have one table for all of them, and a line each."""
_SPANS = {
    **TITLES,
    SpanKind.KERNEL: "kernel",
    SpanKind.SAMPLE: "CPU sample",
    SpanKind.REGION: "library call",
    SpanKind.GPU_RANGE: "range on the GPU",
    SpanKind.CAPTURED: "captured kernel",
}
"""What to call spans of each kind."""
_STATES = frozenset({SpanKind.ON_CPU, SpanKind.OFF_CPU, SpanKind.OVERHEAD})
"""Those that are no things to be counted: how often it was so."""
_SILENCE = "none: the rules that this capture has data for found nothing"
_LONGEST_EVIDENCE = 240
"""The profiler's own advice runs to paragraphs; the other formats have all of it."""


def report_text(trace: Trace, style: TextStyle) -> Iterator[str]:
    """The report, line by line."""
    for line in _lines(trace, style):
        yield (in_ascii(line) if style.ascii_only else line) + "\n"


def _lines(trace: Trace, style: TextStyle) -> Iterator[str]:
    totals = summary(trace)
    yield from _head(trace, totals, style)
    if trace.origin.is_observed:
        yield from _observed(trace, style)
        return
    if style.by is not None:
        yield from _by(style.by, style)
    if why := no_kernels(trace):
        yield from wrapped(f"No kernels: {why}", style, "  ")
    else:
        yield from _kernels(trace, style)
        yield from _families(trace, style)
        yield from _ranges(trace, style)
        yield from _classes(trace, style)
        yield from _roofline(trace, style)
        yield from _histogram(trace, style)
        yield from _stalls(trace, style)
    yield from _functions(trace, style)
    yield from _timeline(trace, totals, style)
    yield from _findings(trace, style)
    yield from _missing(trace, style)


def _observed(trace: Trace, style: TextStyle) -> Iterator[str]:
    """What llmtop has observed: the verdict, and then the numbers that it rests on."""
    yield from _findings(trace, style)
    if style.by is not None:
        yield from _by(style.by, style)
    yield from _functions(trace, style)
    yield from _missing(trace, style)


def _head(trace: Trace, totals: Summary, style: TextStyle) -> Iterator[str]:
    origin = trace.origin
    yield style.cut(origin.path)
    for message in damage(trace):
        yield from wrapped(f"damaged: {message}", style, "  ", "    ")
    tool = " ".join(part for part in (origin.kind, origin.tool_version) if part)
    yield from wrapped(" · ".join(part for part in (tool, origin.gpu) if part), style, "  ")
    for line in (*note_lines(trace), *observed_lines(trace)):
        yield from wrapped(line, style, "  ", "    ")
    yield from wrapped(in_range(trace), style, "  ")
    yield from wrapped(of_no_range(trace), style, "  ", "    ")
    if totals.launches:
        launches = f"{counted(totals.kernels, 'kernel')} in {counted(totals.launches, 'launch')}"
        yield from wrapped(", ".join(part for part in (launches, kernel_time(trace)) if part), style, "  ", "    ")
        yield from wrapped(capture_length(trace), style, "  ", "    ")
        if set(totals.time_by_bound) <= {str(Bound.UNKNOWN)}:
            return
        bounds = ", ".join(f"{bound} {percent(100 * share)}" for bound, share in totals.time_by_bound.items())
        yield from wrapped(f"of the time, by what limits it: {bounds}", style, "  ", "    ")


def _kernels(trace: Trace, style: TextStyle) -> Iterator[str]:
    table = kernel_table(trace, Grouping.SHAPE)
    yield from heading("Kernels", style)
    yield from _table(table, min(_KERNELS, len(table)), style)
    if len(table) > _KERNELS:
        yield f"  and {len(table) - _KERNELS} more (--format csv lists all)"


def _classes(trace: Trace, style: TextStyle) -> Iterator[str]:
    classes = kernel_classes(trace)
    if not classes:
        return
    yield from heading("Means by what kernels lean to", style)
    is_one = classes[-1].kernels == 1
    cached = classes[-1].cached_share
    yield from wrapped(_LEANING + ("" if is_one else _MEANS), style, "  ")
    if cached:
        yield from wrapped(_CACHED.format(percent(100 * cached)), style, "  ")
    shown_keys = list(COLUMNS)[: max(0, (style.width - _CLASS_REST) // _CLASS_WIDTH)]
    titles = "".join(f"{COLUMNS[key][0]:>{_CLASS_WIDTH}}" for key in shown_keys)
    yield f"  {'leans to':<9}{'kernels':>8}{'time':>7}{titles}  duration"
    for one in classes:
        time = "" if one.share is None else percent(100 * one.share)
        head = f"  {LEANS.get(one.name, one.name):<9}{one.kernels:>8}{time:>7}"
        mean = duration(one.means["duration"]) if "duration" in one.means else UNKNOWN
        yield f"{head}{_class_cells(one.means, shown_keys)}{mean:>10}"
    if not is_one:
        yield f"  {'all, by time':<24}{_class_cells(classes[-1].by_time, shown_keys)}"


def _class_cells(means: Mapping[str, float], keys: Sequence[str]) -> str:
    return "".join(f"{percent(means[key]) if key in means else UNKNOWN:>{_CLASS_WIDTH}}" for key in keys)


def _ranges(trace: Trace, style: TextStyle) -> Iterator[str]:
    shares = range_shares(trace, each=style.each_range)
    if not shares:
        return
    yield from heading(f"Kernel time by {trace.origin.range_term} (one within another counts in both)", style)
    for share in shares[:_RANGES]:
        times = "" if share.times is None else counted(share.times, "time")
        head = (
            f"  {percent(100 * share.share):>6}  {duration(share.total_ns):>8}  {counted(share.launches, 'launch'):>15}"
        )
        yield style.cut(f"{head}  {times:>11}  {share.name}")
    if len(shares) > _RANGES:
        yield f"  and {len(shares) - _RANGES} more"
    if any(share.names > 1 for share in shares[:_RANGES]):
        yield "  names that differ by numbers or addresses only are one (--each-range shows each)"


def _families(trace: Trace, style: TextStyle) -> Iterator[str]:
    yield from heading("Time by kind of kernel", style)
    for share in family_shares(trace):
        head = f"  {percent(100 * share.share):>6}  {share.family:<18}  {duration(share.total_ns):>8}"
        line = f"{head}  {counted(share.launches, 'launch'):>15}  {', '.join(share.longest)}"
        yield line if len(line) <= style.width or not style.cuts else line[: style.width - 1] + "…"
    yield from wrapped(other_kinds(trace), style, "  ", "    ")


def _table(table: KernelRows, count: int, style: TextStyle) -> Iterator[str]:
    """The first rows, with as many columns as fit, the name taking what is left over."""
    widths = _widths(table, kernel_rows(table, count))
    shown = fitting(table.columns, widths, style.width)
    rows = kernel_rows(table.beside([table.columns[i].key for i in shown]), count)
    whole, room = max(len(row[0]) for row in rows), style.width - 1 - sum(widths[i] + 2 for i in shown)
    widths[0] = style.name_width(whole, widths[0] + room)
    for texts in ([column.title for column in table.columns], *rows, total_row(table)):
        yield from row_lines(texts, table.columns, shown, widths, style)


def _by(by: PartTable[Any], style: TextStyle) -> Iterator[str]:
    for before in by.before:
        yield from _by(before, style)
    yield from heading(by.title, style)
    table = by.rows()
    if not isinstance(table, Unknown):
        yield from table_lines(table, _PARTS, style, by.more)
    for said in by.sentences():
        yield from wrapped(said, style, "  ", "    ")


def _widths(table: KernelRows, rows: Sequence[Sequence[str]]) -> list[int]:
    """Of each column the longest text, of names what they need at least."""
    columns = zip(table.columns, zip(*rows, total_row(table), strict=True), strict=True)
    widths = [max(len(text) for text in [column.title, *texts]) for column, texts in columns]
    return [min(widths[0], NARROWEST_NAME), *widths[1:]]


def _roofline(trace: Trace, style: TextStyle) -> Iterator[str]:
    view = roofline_view(trace)
    if not has_counters(trace):
        return  # what is not in the capture says so, with the command
    yield from heading("Roofline", style)
    if view.points:
        # Imported here: reports without a point need no charts.
        from llmtop.cli.report_charts import point_marks, roofline_chart

        chart = roofline_chart(view, style.width - 2, 20, ascii_only=style.ascii_only)
        yield from (f"  {line}" for line in chart.splitlines())
        marks = point_marks(view)
        for mark, point in marks:
            of_roof = "" if point.roof_fraction is None else f", {percent(100 * point.roof_fraction)} of the roof"
            where = f"{number(point.intensity)} FLOP/B, {si(point.flops_per_s, 'FLOP/s')} {point.precision}{of_roof}"
            yield f"  {mark} {where}  {style.cut(point.label, max(20, style.width - len(where) - 6))}"
        if len(view.points) > len(marks):
            yield f"  and {len(view.points) - len(marks)} more, which are not drawn"
        roofs = ", ".join(_roof(roof.level, roof.kind, roof.value) for roof in view.roofs)
        yield from wrapped(f"roofs: {roofs}", style, "  ", "    ")
    elif view.why_not is not None:
        yield from wrapped(f"no point: {view.why_not}", style, "  ", "    ")
        return
    for refusal in view.refusals[:_REFUSED]:
        yield from wrapped(f"not on it: {style.cut(refusal.label, 40)}: {refusal.why}", style, "  ", "    ")
    if len(view.refusals) > _REFUSED:
        yield f"  not on it: {len(view.refusals) - _REFUSED} more"


def _roof(level: str, kind: str, value: float) -> str:
    return f"{level} {si(value, 'B/s' if kind == 'memory' else 'FLOP/s')}"


def _histogram(trace: Trace, style: TextStyle) -> Iterator[str]:
    table = trace.kernels
    durations = [] if table is None else [ns for ns in table.duration_ns if ns == ns]
    if len(durations) < 2:
        return
    from llmtop.cli.report_charts import duration_histogram

    yield from heading("Durations (launches)", style)
    chart = duration_histogram(durations, style.width - 2, 10, ascii_only=style.ascii_only)
    yield from (f"  {line}" for line in chart.splitlines())


def _stalls(trace: Trace, style: TextStyle) -> Iterator[str]:
    bars = stall_bars(trace)
    measured = [bar for bar in bars if bar.shares][:_STALLED]
    if not has_counters(trace):
        return
    yield from heading("Warp stalls (share of the waiting)", style)
    if not measured:
        why = next((bar.why_not for bar in bars if bar.why_not), Unknown("not collected"))
        yield from wrapped(str(why), style, "  ", "    ")
    names = [style.cut(bar.kernel, NARROWEST_NAME) for bar in measured]
    name_width = max(map(len, names), default=0)
    for name, bar in zip(names, measured, strict=True):
        reasons = ", ".join(f"{reason} {percent(100 * share)}" for reason, share in _main_reasons(bar))
        busy = " (schedulers are busy: costs little)" if bar.starved is False else ""
        yield f"  {name:<{name_width}}  {reasons}{busy}"
    yield from _glossary(bars[:_KERNELS], measured, style)


def _main_reasons(bar: StallBar) -> list[tuple[str, float]]:
    return [pair for pair in bar.shares[:_REASONS] if pair[1] >= _NOTABLE_REASON]


def _glossary(rows: Sequence[StallBar], measured: Sequence[StallBar], style: TextStyle) -> Iterator[str]:
    """What the reasons mean that stand here and in the kernel table, once each."""
    tops = [costliest(bar.shares)[0] for bar in rows if bar.shares]
    named = dict.fromkeys([*(reason for bar in measured for reason, _ in _main_reasons(bar)), *tops])
    width = max((len(reason) for reason in named), default=0)
    for reason in named:
        if meaning := REASONS.get(reason, ""):
            yield from wrapped(f"{reason:<{width}}  {meaning}", style, "    ", " " * (width + 6))


def _functions(trace: Trace, style: TextStyle) -> Iterator[str]:
    """Where the stacks of a file end, and what they come through."""
    for one in functions(trace):
        yield from heading(f"Stacks: {one.title}", style)
        yield "     own   with what it calls"
        for share in one.shares[:_FUNCTIONS]:
            yield style.cut(
                f"  {percent(100 * share.own_share):>6}  {percent(100 * share.total_share):>6}  {share.title}"
            )
        if len(one.shares) > _FUNCTIONS:
            yield f"  and {counted(len(one.shares) - _FUNCTIONS, 'more function')} (--format csv lists all)"


def _timeline(trace: Trace, totals: Summary, style: TextStyle) -> Iterator[str]:
    if not totals.spans:
        return
    yield from heading("Timeline", style)
    titles = {**_SPANS, SpanKind.NVTX: trace.origin.range_term}
    moved = migrations(trace)
    counts = ((kind, n - moved if kind == SpanKind.MEMCPY else n) for kind, (n, _) in totals.spans.items())
    told = [_counted_spans(kind, titles.get(kind, kind), n) for kind, n in counts if n]
    spans = ", ".join([*told, *([counted(moved, "page migration")] if moved else [])])
    yield from wrapped(spans, style, "  ")
    yield from _idle(idle_view(trace), style)
    sent = communication(trace)
    if sent:
        yield from heading("Communication between GPUs", style)
        for gpu in sent:
            yield from wrapped(f"{gpu_title(gpu.gpu)}: {described(gpu)}", style, "  ", "    ")


def _counted_spans(kind: str, title: str, count: int) -> str:
    return f"{title} {counted(count, 'time')}" if kind in _STATES else counted(count, title)


def _idle(view: IdleView, style: TextStyle) -> Iterator[str]:
    """What the GPUs waited for, the largest parts first; together they are all of their idle time."""
    few = view.gpus if len(view.gpus) <= _EACH_GPU else (view.total,)
    for gpu in few:
        if gpu is not None:
            yield from _idle_of(gpu, style)
    if len(view.gpus) > _EACH_GPU:
        for gpu in view.gpus:
            causes = ", ".join(f"{row.title} {duration(row.ns)}" for row in gpu.causes[:_REASONS])
            yield from wrapped(f"{gpu.title}: {_idle_share(gpu)}: {causes}", style, "  ", "    ")
    for missing in view.unknown:
        yield from wrapped(f"{missing.what}: {missing.why}", style, "  ", "    ")
    yield from _meanings(few, style)


def _meanings(gpus: Sequence[IdleOfGpu | None], style: TextStyle) -> Iterator[str]:
    """What each cause means that has a line of its own."""
    shown = dict.fromkeys((row.title, row.cause) for gpu in gpus if gpu is not None for row in gpu.rows[:_IDLE_PARTS])
    width = max((len(title) for title, _ in shown), default=0)
    for title, cause in shown:
        yield from wrapped(f"{title:<{width}}  {MEANINGS[cause]}", style, "    ", " " * (width + 6))


def _idle_of(gpu: IdleOfGpu, style: TextStyle) -> Iterator[str]:
    yield from heading(f"Idle time of {gpu.title}: {_idle_share(gpu)}", style)
    if len(gpu.busy_over_time) + 2 <= style.width:
        yield f"  at work, the {duration(gpu.capture_ns)} from left to right:"
        yield f"  {picture(gpu, ASCII_LEVELS if style.ascii_only else BLOCKS)}".rstrip()
    for row in gpu.rows[:_IDLE_PARTS]:
        what = f"{row.title}: {row.name}" if row.name else row.title
        gaps = f"{counted(row.gaps, 'gap')}, longest {duration(row.longest_ns)}"
        yield style.cut(f"  {duration(row.ns):>8}  {percent(100 * row.share):>6}  {what}  ({gaps})")
    rest = gpu.rows[_IDLE_PARTS:]
    if rest:
        share = percent(100 * sum(row.share for row in rest))
        what = f"  {duration(sum(row.ns for row in rest)):>8}  {share:>6}  {_further(rest)}"
        yield style.cut(what)


def _further(rest: Sequence[IdleRow]) -> str:
    """How many smaller parts there are, and the causes of most of them: together they may be the largest part."""
    by_title: Counter[str] = Counter()
    for row in rest:
        by_title[row.title] += row.ns
    named = ", ".join(f"{title} {duration(ns)}" for title, ns in by_title.most_common(_FURTHER))
    return f"{counted(len(rest), 'smaller part')}: {named}{' ...' if len(by_title) > _FURTHER else ''}"


def _idle_share(gpu: IdleOfGpu) -> str:
    share = gpu.idle_ns / gpu.capture_ns if gpu.capture_ns else 0.0
    return f"{duration(gpu.idle_ns)}, {percent(100 * share)} of the capture"


def _findings(trace: Trace, style: TextStyle) -> Iterator[str]:
    diagnosed = diagnose(trace)
    findings = diagnosed.findings
    yield from heading("Findings", style)
    if of_what := diagnosed.of_what():
        yield from wrapped(of_what, style, "  ", "    ")
    if any(finding.next_command for finding in findings):
        yield from wrapped(profiling.where_to_run(trace, findings), style, "  ", "    ")
    if not findings:
        silence = diagnosed.verdict if trace.origin.is_observed else _SILENCE
        yield from wrapped(silence, style, "  ", "    ")
    for finding in findings:
        yield from wrapped(f"{finding.severity}: {finding.headline()}", style, "  ", "    ")
        for evidence in finding.evidence:
            brief = textwrap.shorten(evidence, _LONGEST_EVIDENCE, placeholder=" …") if style.cuts else evidence
            yield from wrapped(brief, style, "    • ", "      ")
        yield from wrapped(finding.action, style, "    → ", "      ")
        if finding.next_command:
            yield f"    $ {finding.next_command}"
        elif finding.no_command:
            yield from wrapped(f"no command: {finding.no_command}", style, "    ", "      ")
    for said in diagnosed.no_verdicts:
        yield from wrapped(said, style, "  ", "    ")


def _missing(trace: Trace, style: TextStyle) -> Iterator[str]:
    """What the capture cannot tell, with the one command for each tool that would; then faults of its data."""
    groups = lacking(trace)
    if groups or trace.issues:
        yield from heading(f"Not in this {'recording' if trace.origin.is_observed else 'capture'}", style)
    if groups and not any(finding.next_command for finding in diagnose(trace).findings):
        yield from wrapped(profiling.where_to_run(trace), style, "  ", "    ")
    for group in groups:
        for what, reason in group.parts:
            yield from wrapped(f"{what}: {reason}", style, "  ", "    ")
        if group.title is DataKind.OBSERVED:
            yield from wrapped(f"→ {typed(group)}", style, "    ", "      ")
        else:
            yield f"    {typed(group)}"
    for issue in trace.issues:
        times = f" ({issue.count})" if issue.count > 1 else ""
        yield from wrapped(f"{issue.severity}: {issue.message}{times}", style, "  ", "    ")
