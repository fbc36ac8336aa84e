"""The line above all panes: what is watched, how it goes, and what watching costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.gpus.models import precision_of
from llmtop.analysis.pages.header import Header, header
from llmtop.analysis.series.ages import age_text
from llmtop.analysis.server.view import ServerView
from llmtop.model import Unknown, UnknownKind
from llmtop.text import clean, shorten
from llmtop.tui.panes.base import Pane
from llmtop.tui.render.lines import Part, line, width_of
from llmtop.units import count, si

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Fact, Trace
    from llmtop.tui.render.look import Look

_MB = 1_000_000
_LONGEST_MODEL = 40
_TOKENS, _REQUESTS, _SHARE, _OWN_SHARE, _RSS = 5, 3, 5, 6, 6
"""Cells for a number, however short it is: with another digit nothing moves, and no field is left out for it."""
Field = tuple[int, Sequence[Part]]
"""What to leave out first when the line is too long (the largest number), and the text."""


class HeaderLine(Pane[Header], can_focus=False):
    """One line; on a narrow screen the less important fields are left out."""

    def __init__(self) -> None:
        super().__init__(id="header")
        self._state: Part = ("starting", "dim")
        self._note: Part = ("", "dim")

    def say(self, text: str, role: str) -> None:
        """Show a state: live, paused, some time ago, ended."""
        if self._state != (text, role):
            self._state = (text, role)
            self.redraw()

    def note(self, text: str, role: str) -> None:
        """Show something beside the state: that a recording is written."""
        if self._note != (text, role):
            self._note = (text, role)
            self.redraw()

    def view(self, trace: Trace) -> Header:
        return header(trace, self.context.target)

    def draw(self, view: Header, width: int, height: int, look: Look) -> list[Strip]:
        return [draw_header(view, self._state, width, look, self._note)]


def draw_header(view: Header, state: Part, width: int, look: Look, note: Part = ("", "dim")) -> Strip:
    """All fields that fit, in reading order."""
    fields = [(0, [(" llmtop ", "title")]), *_identity(view, look), *_load(view)]
    fields += [(0, [state]), (0, [note] if note[0] else []), *_own_cost(view)]
    kept = [(rank, parts) for rank, parts in fields if parts]
    bar: Part = (f" {look.glyphs.vertical} ", "dim")
    while len(kept) > 1 and _width(kept) > width:
        kept.remove(max(kept, key=lambda field: field[0]))
    parts: list[Part] = []
    for i, (_, field) in enumerate(kept):
        parts += [*([bar] if i else []), *((text.replace("–", look.glyphs.unknown), role) for text, role in field)]
    return line(parts, width, look)


def _width(fields: Sequence[Field]) -> int:
    return sum(width_of(text) for _, parts in fields for text, _ in parts) + 3 * (len(fields) - 1)


def _identity(view: Header, look: Look) -> list[Field]:
    fields: list[Field] = [(3, [(shorten(view.title, 24), "value")])]
    names = [_known(view.model), _dtype(view.dtype)]
    if any(names):
        fields.append((6, [(" ".join(name for name in names if name), "text")]))
    if view.pid is not None:
        more = f" +{view.others}" if view.others else ""
        fields.append((7, [("pid ", "dim"), (f"{view.pid}{more}", "text")]))
    if isinstance(view.gpus, Unknown):
        fields.append((4, [_no_gpu(view.gpus)]))
    elif view.gpus is not None:
        name, count = view.gpus
        times = "x" if look.glyphs.ascii else "×"
        gpus: Part = (f"{_first_words(name)} {times}{count}", "text")
        amiss = [(view.gpus_hung, "hang" if view.gpus_hung > 1 else "hangs"), (view.gpus_lost, "lost")]
        said = [f"{number} {what}" for number, what in amiss if number]
        fields.append((4, [gpus, (f", {', '.join(said)}", "bad")]) if said else (8, [gpus]))
    return fields


def _no_gpu(why: Unknown) -> Part:
    if why.kind is UnknownKind.HUNG:
        return "GPU hangs", "bad"
    return ("uses no GPU", "text") if why.kind is UnknownKind.UNUSED else ("no GPU", "warn")


def _load(view: Header) -> list[Field]:
    if not isinstance(view.server, ServerView):
        state = "loading, not ready yet" if view.is_starting else "no answer yet" if view.is_awaited else ""
        return [(1, [(state, "warn")])] if state else []
    stats = view.server.stats
    kv = stats["kv_usage"]
    return [
        (1, [("tok/s ", "dim"), (stats["output_tokens_per_s"].text.removesuffix(" tok/s").ljust(_TOKENS), "value")]),
        (
            2,
            [
                ("run ", "dim"),
                (_count(view, "running").ljust(_REQUESTS), "value"),
                (" wait ", "dim"),
                (_count(view, "waiting").ljust(_REQUESTS), "value"),
            ],
        ),
        (4, [("KV ", "dim"), (kv.text.ljust(_SHARE), "value")]),
        _objectives(view),
        (1, [] if not view.server.age_s or _is_blank(view.server) else [(age_text(view.server.age_s), "warn")]),
    ]


def _objectives(view: Header) -> Field:
    """Whether promises are kept: one that is missed is worth more room than those that are kept."""
    parts: list[Part] = []
    for name, is_kept in view.objectives:
        parts += [*([(" ", "text")] if parts else []), (f"{name} ok", "good") if is_kept else (f"{name} late", "bad")]
    return (5 if all(is_kept for _, is_kept in view.objectives) else 3), parts


def _is_blank(server: ServerView) -> bool:
    return all(isinstance(stat.value, Unknown) for stat in server.stats.values())


def _count(view: Header, concept: str) -> str:
    value = view.server.value(concept) if isinstance(view.server, ServerView) else view.server
    return "–" if isinstance(value, Unknown) else count(value)


def _own_cost(view: Header) -> list[Field]:
    """Rounded to half a percent, to whole MB and to two digits: it is there to be trusted, not to flicker."""
    fields: list[Field] = []
    if not isinstance(view.self_cpu, Unknown) and not isinstance(view.self_rss, Unknown):
        cpu = round(view.self_cpu * 200) / 2
        rss = f"{view.self_rss / _MB:.0f} MB"
        fields.append((5, [("self ", "dim"), (f"{cpu:.1f} %".ljust(_OWN_SHARE) + f" {rss.ljust(_RSS)}", "text")]))
    hits = 0.0 if isinstance(view.probe_hits, Unknown) else view.probe_hits
    rate = _rough(hits) if hits >= 1 else "<1"
    words = [*([view.probes] if view.probes else []), *([f"{rate} hits/s"] if hits else [])]
    if words:
        fields.append((9, [("probes ", "dim"), (" ".join(words), "text")]))
    return fields


def _rough(value: float) -> str:
    """Two significant digits."""
    step = 10 ** (math.floor(math.log10(value)) - 1)
    text, _, prefix = si(round(value / step) * step).partition(" ")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + prefix


def _first_words(name: str) -> str:
    """What people call a GPU: "H100", "RTX 4090"; its memory and socket are in the GPU pane."""
    words = name.split()
    return " ".join(words[: 2 if words[:1] in (["RTX"], ["GTX"], ["Quadro"]) else 1])


def _dtype(fact: Fact) -> str:
    precision = precision_of(fact)
    return _known(fact if isinstance(precision, Unknown) else precision)


def _known(fact: Fact) -> str:
    return "" if isinstance(fact, Unknown) else shorten(clean(str(fact)).rpartition("/")[2], _LONGEST_MODEL)
