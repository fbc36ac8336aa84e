"""The server's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from textual.content import Content

from llmtop import ids
from llmtop.analysis.pages.batch_advice import batch_advice
from llmtop.analysis.series.readings import NO_TARGET
from llmtop.analysis.series.recorded import told_of
from llmtop.analysis.server.history import WINDOW_NS, server_history
from llmtop.analysis.server.requests import requests_view
from llmtop.analysis.server.view import ServerView, server_view
from llmtop.facts import ServerFact
from llmtop.model import NS_PER_S, TrackKind, Unknown
from llmtop.text import clean
from llmtop.tui.panes.base import CALM_NS, Pane
from llmtop.tui.panes.view import Place, with_a_server
from llmtop.tui.render.lanes import draw_lanes
from llmtop.tui.render.lines import blank, width_of
from llmtop.tui.render.requests import draw_requests
from llmtop.tui.render.server import LEAST_ROWS, draw_server
from llmtop.units import seen

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


_LEAST_HISTORY = 3
"""A lane or two, and the axis below them; a gap above where there is room for one."""
_LEAST_WITH_HISTORY = 12
_PART = 3
"""The history has this part of the height: a third, but for what there is to say of requests."""
_MOST_ROWS = 3
_BORDER_LEAD = 4
"""Cells of corner and spaces around the title."""


class ServerPane(Pane[ServerView]):
    """Throughput, queue, KV cache and latencies from the metrics endpoint."""

    title = "Server"
    place = Place(2, "right", suits=with_a_server)
    ages_of = TrackKind.SERVER
    least_ns = CALM_NS

    def view(self, trace: Trace) -> ServerView | Unknown:
        return server_view(trace) if self.context.target else NO_TARGET

    def draw(self, view: ServerView, width: int, height: int, look: Look) -> list[Strip]:
        if not self.is_zoomed or self._trace is None or height < _LEAST_WITH_HISTORY:
            return draw_server(view, width, height, look)
        requests = self._requests(self._trace, width, look)
        least = min(height - _LEAST_HISTORY, LEAST_ROWS + len(requests))
        strips = draw_server(view, width, max(height - height // _PART, least), look, requests)
        gap = [blank(width, look)] if height - len(strips) > _LEAST_HISTORY else []
        room = height - len(strips) - len(gap)
        return [*strips, *gap, *draw_lanes(server_history(self._trace), width, room, look, most_rows=_MOST_ROWS)]

    def _requests(self, trace: Trace, width: int, look: Look) -> list[Strip]:
        found = told_of(trace, requests_view(trace))
        if isinstance(found, Unknown):
            return []
        return draw_requests(found, told_of(trace, batch_advice(trace, self.context.target)), width, look)

    def subtitle(self, view: ServerView) -> Content:
        past = f", below the last {WINDOW_NS // NS_PER_S // 60} min" if self.is_zoomed else ""
        latencies, rates = f"avg / p99 of {seen(view.window_s)}{past}", f"rates of {seen(view.rate_s)}"
        room = self.size.width - len(f"{self.number} {self.title}  {self._age}  ") - _BORDER_LEAD
        # Where one of them is cut, that is not what explains the numbers.
        choices = (f"{_endpoint(view)}  {rates}, {latencies}", f"{rates}, {latencies}", latencies)
        fitting = (one for one in choices if width_of(one) <= room)
        return Content(next(fitting, f"{latencies}  {_endpoint(view)}"))


def _endpoint(view: ServerView) -> str:
    """Where the numbers are from, in short: "vLLM /metrics :8000"."""
    port = f":{ids.port(view.track)}"
    name, path = view.title.removesuffix(port).rstrip(), urlsplit(str(view.facts.get(ServerFact.URL, ""))).path
    return clean(" ".join(part for part in (name, path, port) if part))


VIEW: Final = ServerPane
