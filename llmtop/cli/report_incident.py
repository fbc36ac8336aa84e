"""What the HTML page of a recording shows beside findings and numbers: rooflines, lanes, and where threads were."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from llmtop.analysis.gpus.models import short_gpu_name
from llmtop.analysis.pages.lanes import lanes_view
from llmtop.analysis.pages.roofline import roofline
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.series.readings import server_gpus
from llmtop.analysis.series.recorded import told_of
from llmtop.analysis.threads.flames import TreeContent
from llmtop.analysis.threads.stack_tree import stack_flame
from llmtop.analysis.threads.stall_flame import stall_flame
from llmtop.cli.incident_svg import before_end, flame_svg, lanes_svg
from llmtop.cli.report_svg import roofline_svg
from llmtop.model import NS_PER_S, Unknown
from llmtop.units import number, percent, si

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.views import Lanes, RooflineView
    from llmtop.model import Trace

_LONGEST_NS = 600 * NS_PER_S
_TRAIL = 120
"""Points of a roofline: the newest."""
_GPUS = 8
_EVENTS = 20


def incident_html(trace: Trace) -> Iterator[str]:
    """All pictures, each with why it is not there."""
    yield from _rooflines(trace)
    yield from _lanes(trace)
    yield from _flame(trace)


def _rooflines(trace: Trace) -> Iterator[str]:
    gpus = server_gpus(trace)[:_GPUS]
    for gpu in gpus or (None,):
        view = roofline(trace, trace.target, gpu.id if gpu is not None else None)
        title = "Roofline" if gpu is None or len(gpus) == 1 else f"Roofline of {short_gpu_name(gpu.name)}, {gpu.id}"
        yield f"<section><h2>{escape(title)}</h2>\n"
        yield from _no_picture(view) if isinstance(view, Unknown) else _roofline(view)
        yield "</section>\n"


def _roofline(view: RooflineView) -> Iterator[str]:
    if not view.points:
        yield from _no_picture(view.why_not or Unknown("no moment has a place on it"))
        return
    newest = view.points[0]
    yield "<div class='wide'>\n"
    yield from roofline_svg(replace(view, points=view.points[:_TRAIL]), is_trail=True)
    yield "</div>\n"
    of_roof = "" if newest.roof_fraction is None else f", {percent(100 * newest.roof_fraction)} of the roof"
    where = f"{number(newest.intensity)} FLOP/byte, {si(newest.flops_per_s, 'FLOP/s')} {newest.precision}{of_roof}"
    yield f"<p class='why'>{escape(f'at the end: {where}; {newest.source}, {newest.quality}')}</p>\n"
    yield from (f"<p class='why'>{escape(note)}</p>\n" for note in view.notes)


def _lanes(trace: Trace) -> Iterator[str]:
    window_ns = min(_LONGEST_NS, max(NS_PER_S, trace.end_ns - trace.start_ns))
    lanes = told_of(trace, lanes_view(trace, None, window_ns, has_server=is_watched(trace)))
    yield "<section><h2>On one time axis</h2>\n"
    if any(lane.why_not is None for lane in lanes.lanes):
        yield "<div class='wide'>\n"
        yield from lanes_svg(lanes)
        yield "</div>\n"
    yield from _events(lanes)
    absent = [f"{lane.title}: {lane.why_not}" for lane in lanes.lanes if lane.why_not is not None]
    yield from (f"<p class='why'>{escape(said)}</p>\n" for said in absent)
    yield "</section>\n"


def _events(lanes: Lanes) -> Iterator[str]:
    """What the lines over the lanes are: the newest, for paper and for screens that nothing hovers over."""
    marks = sorted(lanes.marks, key=lambda mark: mark.t_ns)
    if len(marks) > _EVENTS:
        yield f"<p class='why'>the last {_EVENTS} of {len(marks)} events:</p>\n"
    for mark in marks[-_EVENTS:]:
        said = f"<b class='severity'>{before_end(mark.t_ns, lanes)}</b> {escape(mark.text)}"
        yield f"<p class='event {escape(mark.severity)}'>{said}</p>\n"


def _flame(trace: Trace) -> Iterator[str]:
    view = stall_flame(trace, TreeContent()) if is_watched(trace) else stack_flame(trace)
    yield "<section><h2>Where its threads were</h2>\n"
    if isinstance(view, Unknown):
        yield from _no_picture(view)
    else:
        yield "<div class='wide'>\n"
        yield from flame_svg(view.tree)
        yield f"</div>\n<p class='why'>{escape(' · '.join(view.notes))}</p>\n"
        if view.lack is not None:
            yield f"<p class='why'>{escape(f'{view.lack[0]}: {view.lack[1]}')}</p>\n"
    yield "</section>\n"


def _no_picture(why: Unknown) -> Iterator[str]:
    yield f"<p class='why'>{escape(str(why))}</p>\n"
