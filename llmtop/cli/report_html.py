"""`llmtop report --format html`: one file that needs nothing else, and runs nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from llmtop.analysis.kernels import Grouping, kernel_table, no_kernels, roofline_view, stall_bars
from llmtop.analysis.report import Summary, summary
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.views import RooflinePoint, RooflineView
from llmtop.cli.report_rows import counted, kernel_rows
from llmtop.model import Finding, Trace
from llmtop.units import duration, number, percent, si

_KERNELS = 500
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 78em; padding: 0 1em; color: #1b1f24; }
table { border-collapse: collapse; font-size: 13px; } th, td { padding: .25em .7em; border-bottom: 1px solid #d8dee4; }
th { text-align: left; } .n { text-align: right; white-space: nowrap; }
td:first-child { max-width: 34em; overflow-wrap: anywhere; }
code { background: #f3f4f6; padding: .1em .3em; overflow-wrap: anywhere; } .warning, .error { color: #9a3412; }
svg { max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { body { background: #15181c; color: #e6e8eb; } code { background: #262b31; }
  th, td { border-color: #363c44; } .warning, .error { color: #fdba74; } svg { color: #e6e8eb; } }
""".strip()
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Should a name get past the escaping after all, the browser still loads and runs nothing."""

_WIDTH, _HEIGHT, _MARGIN, _RIGHT = 860, 420, 90, 24


def report_html(trace: Trace) -> Iterator[str]:
    """The page, in parts."""
    totals = summary(trace)
    yield "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    yield f"<title>{escape(trace.origin.path)} – llmtop</title>\n<style>\n{_STYLE}\n</style></head><body>\n"
    yield from _head(trace, totals)
    if why := no_kernels(trace):
        yield f"<p>No kernels: {escape(str(why))}</p>\n"
    else:
        yield from _kernels(trace)
        yield from _roofline(roofline_view(trace))
        yield from _stalls(trace)
    yield from _findings(diagnose(trace).findings)
    yield from _missing(trace, totals)
    yield "</body></html>\n"


def _head(trace: Trace, totals: Summary) -> Iterator[str]:
    origin = trace.origin
    yield f"<h1>{escape(origin.path)}</h1>\n"
    yield f"<p>{escape(' · '.join(part for part in (origin.kind, origin.tool_version, origin.gpu) if part))}<br>\n"
    yield f"{counted(totals.kernels, 'kernel')} in {counted(totals.launches, 'launch')}, {duration(totals.total_ns)}"
    bounds = ", ".join(f"{bound} {percent(100 * share)}" for bound, share in totals.time_by_bound.items())
    yield f"; of the time, by what limits it: {bounds}</p>\n" if bounds else "</p>\n"


def _table(titles: Iterable[str], numeric: Sequence[bool], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "<table><thead><tr>" + "".join(f"<th>{escape(title)}</th>" for title in titles) + "</tr></thead><tbody>\n"
    for row in rows:
        cells = zip(row, numeric, strict=True)
        yield (
            "<tr>"
            + "".join(f"<td{' class=n' if right else ''}>{escape(text)}</td>" for text, right in cells)
            + "</tr>\n"
        )
    yield "</tbody></table>\n"


def _kernels(trace: Trace) -> Iterator[str]:
    table = kernel_table(trace, Grouping.SHAPE)
    yield "<h2>Kernels</h2>\n"
    titles, numeric = [column.title for column in table.columns], [column.is_number for column in table.columns]
    yield from _table(titles, numeric, kernel_rows(table, _KERNELS))
    if len(table) > _KERNELS:
        yield f"<p>{len(table) - _KERNELS} more are not shown.</p>\n"


def _roofline(view: RooflineView) -> Iterator[str]:
    yield "<h2>Roofline</h2>\n"
    if view.why_not is not None:
        yield f"<p>{escape(str(view.why_not))}</p>\n"
        return
    yield from _plot(view)
    rows = [
        (
            point.label,
            number(point.intensity),
            si(point.flops_per_s, "FLOP/s"),
            point.precision,
            "" if point.roof_fraction is None else percent(100 * point.roof_fraction),
        )
        for point in view.points
    ]
    titles = ("kernel", "FLOP/byte", "FLOP/s", "precision", "of the roof")
    yield from _table(titles, (False, True, True, False, True), rows)
    yield from (f"<p>Not on it: {escape(refusal.label)}: {escape(str(refusal.why))}</p>\n" for refusal in view.refusals)


def _plot(view: RooflineView) -> Iterator[str]:
    """The roofline as SVG: both axes logarithmic, areas of dots in proportion to time."""
    x_axis = _decades([*(point.intensity for point in view.points), *_ridges(view)])
    y_axis = _decades([*(point.flops_per_s for point in view.points), *_tops(view)])
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Roofline" fill="none" stroke="currentColor">\n'
    for decade in range(x_axis[0], x_axis[1] + 1):
        x = _x(10.0**decade, x_axis)
        yield f'<path d="M{x:.1f} 10V{_HEIGHT - 40}" opacity=".15"/>'
        yield _label(x, _HEIGHT - 22, number(10.0**decade), "middle")
    for decade in range(y_axis[0], y_axis[1] + 1):
        y = _y(10.0**decade, y_axis)
        yield f'<path d="M{_MARGIN} {y:.1f}H{_WIDTH - _RIGHT}" opacity=".15"/>'
        yield _label(_MARGIN - 6, y + 4, si(10.0**decade, "FLOP/s"), "end")
    yield _label(_WIDTH / 2, _HEIGHT - 4, "FLOP per byte of DRAM traffic", "middle") + "\n"
    yield from _roofs(view, x_axis, y_axis)
    yield from (_dot(point, x_axis, y_axis) for point in view.points)
    yield "</svg>\n"


_Decades = tuple[int, int]


def _decades(values: Sequence[float]) -> _Decades:
    logs = [math.log10(value) for value in values if value > 0] or [0.0]
    return math.floor(min(logs) - 0.3), math.ceil(max(logs) + 0.3)


def _x(value: float, axis: _Decades) -> float:
    return _MARGIN + (math.log10(value) - axis[0]) / (axis[1] - axis[0]) * (_WIDTH - _RIGHT - _MARGIN)


def _y(value: float, axis: _Decades) -> float:
    return 10 + (axis[1] - math.log10(value)) / (axis[1] - axis[0]) * (_HEIGHT - 50)


def _label(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor" stroke="none">{escape(text)}</text>'


def _tops(view: RooflineView) -> list[float]:
    return [roof.value for roof in view.roofs if roof.kind == "compute"]


def _ridges(view: RooflineView) -> list[float]:
    return [top / roof.value for top in _tops(view) for roof in view.roofs if roof.kind == "memory"]


def _roofs(view: RooflineView, x_axis: _Decades, y_axis: _Decades) -> Iterator[str]:
    slopes = [roof for roof in view.roofs if roof.kind == "memory"]
    for slope in slopes:
        # From where the slope enters the plot to the highest ridge.
        start = max(10.0 ** x_axis[0], 10.0 ** y_axis[0] / slope.value)
        end = min(10.0 ** x_axis[1], max(_tops(view), default=10.0 ** y_axis[1]) / slope.value)
        yield _line(start, start * slope.value, end, end * slope.value, x_axis, y_axis)
        yield _label(
            _x(start, x_axis) + 16,
            _y(start * slope.value, y_axis) + 14,
            f"{slope.level} {si(slope.value, 'B/s')}",
            "start",
        )
    for roof in view.roofs:
        if roof.kind == "compute":
            knee = min((roof.value / slope.value for slope in slopes), default=10.0 ** x_axis[0])
            yield _line(knee, roof.value, 10.0 ** x_axis[1], roof.value, x_axis, y_axis)
            yield _label(
                _WIDTH - _RIGHT - 2, _y(roof.value, y_axis) - 5, f"{roof.level} {si(roof.value, 'FLOP/s')}", "end"
            )


def _line(x1: float, y1: float, x2: float, y2: float, x_axis: _Decades, y_axis: _Decades) -> str:
    start, end = f"{_x(x1, x_axis):.1f} {_y(y1, y_axis):.1f}", f"{_x(x2, x_axis):.1f} {_y(y2, y_axis):.1f}"
    return f'<path d="M{start}L{end}" stroke-width="2"/>'


def _dot(point: RooflinePoint, x_axis: _Decades, y_axis: _Decades) -> str:
    radius = 3 + 14 * math.sqrt(point.weight)
    place = f'cx="{_x(point.intensity, x_axis):.1f}" cy="{_y(point.flops_per_s, y_axis):.1f}" r="{radius:.1f}"'
    title = f"{point.label}: {percent(100 * point.weight)} of the time"
    return (
        f'<circle {place} fill="#2563eb" fill-opacity=".45" stroke="#2563eb"><title>{escape(title)}</title></circle>\n'
    )


def _stalls(trace: Trace) -> Iterator[str]:
    bars = stall_bars(trace)
    yield "<h2>Warp stalls</h2>\n"
    rows = [
        (
            bar.kernel,
            percent(100 * bar.total),
            ", ".join(f"{reason} {percent(100 * share)}" for reason, share in bar.shares[:6]),
        )
        for bar in bars[:_KERNELS]
        if bar.shares
    ]
    if rows:
        yield from _table(("kernel", "time", "share of the waiting"), (False, True, False), rows)
    elif bars and bars[0].why_not is not None:
        yield f"<p>{escape(str(bars[0].why_not))}</p>\n"


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    yield "<h2>Findings</h2>\n"
    for finding in findings:
        yield f"<h3 class='{escape(finding.severity)}'>{escape(finding.subject)}: {escape(finding.message)}</h3>\n<ul>"
        yield from (f"<li>{escape(evidence)}</li>" for evidence in finding.evidence)
        yield f"</ul>\n<p>→ {escape(finding.action)}</p>\n"
        if finding.next_command:
            yield f"<p><code>{escape(finding.next_command)}</code></p>\n"
        yield f"<p><small>{escape(finding.rule)}: {escape(finding.source)}</small></p>\n"


def _missing(trace: Trace, totals: Summary) -> Iterator[str]:
    lines = [f"{missing.what}: {missing.why}" for missing in trace.missing]
    lines += [f"{missing.what} of {counted(count, 'kernel')}: {missing.why}" for missing, count in totals.unknowns]
    lines += [f"{issue.severity}: {issue.message}" for issue in trace.issues]
    if lines:
        yield "<h2>Not in this capture</h2>\n<ul>" + "".join(f"<li>{escape(line)}</li>\n" for line in lines) + "</ul>\n"
