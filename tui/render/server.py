"""The server's numbers as cells: a label, a value, and a graph in what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from textual.strip import Strip

from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown
from llmtop.tui.render.lines import Part, blank, cut_lines, line, pad, prose, spark, width_of
from llmtop.units import bounds, count, two_digits

if TYPE_CHECKING:
    from llmtop.analysis.series.histograms import Quantile
    from llmtop.analysis.server.configuration import Setting
    from llmtop.analysis.server.objectives import JudgedObjective
    from llmtop.analysis.server.view import ServerNumber, ServerView
    from llmtop.tui.render.look import Look

_GAP = 2
_LEAST_CELL = 19
_ROOMY_CELL = 27
"""With less than this a cell has no room for long labels and a graph."""
_ESSENTIAL = 8
"""So many cells must be on screen before graphs get room."""
LEAST_ROWS = 7
"""Of cells, however much there is to say of requests: narrow ones show their numbers without graphs."""
_SETTING = 56
"""Room for a setting, its value, and the flag or metric that tells it."""
_LABEL, _SHORT_LABEL = 10, 5
_VALUE = 14
"""Graphs of one column start at the same cell."""
_ALL_THREE, _SPELLED, _SPACED = 50, 30, 17
"""Cells for a latency's value from which it says median, p99 and mean; mean and p99 with their names and both bounds;
"mean / p99", what the border explains. By the widest that numbers get, and not by what they are now: all cells say it
alike, and go on so."""


@frozen
class _Cell:
    """`parts` if they fit, else the first of `shorter` that does: a number is never cut in its middle.

    `note` stands behind the label: whether objectives are kept.
    """

    label: str
    short: str
    parts: tuple[Part, ...]
    values: Sequence[float | None] = ()
    high: float | None = None
    shorter: tuple[tuple[Part, ...], ...] = ()
    note: Part = ("", "dim")

    def fitted(self, room: int) -> tuple[Part, ...]:
        """The fullest form that fits; the shortest one where none does."""
        forms = (self.parts, *self.shorter)
        return next((form for form in forms if sum(width_of(text) for text, _ in form) <= room), forms[-1])


def draw_server(view: ServerView, width: int, height: int, look: Look, requests: Sequence[Strip] = ()) -> list[Strip]:
    """The most important numbers first, in as many columns as it takes; then why others are missing.

    `requests`: lines about what requests get, which come next.
    """
    if view.lost is not None and height > 1:
        lost = prose(str(view.lost), width, look, "warn")[: max(1, height // 2)]
        return [*lost, *_draw_stats(view, width, height - len(lost), look, requests)]
    return _draw_stats(view, width, height, look, requests)


def _draw_stats(view: ServerView, width: int, height: int, look: Look, requests: Sequence[Strip]) -> list[Strip]:
    roomy = _columns(12, width, max(LEAST_ROWS, height - len(requests)))
    cell_width = (width - _GAP * (roomy - 1)) // roomy
    cells = _cells(view, cell_width)
    strips = []
    for start in range(0, len(cells), roomy):
        row = [_draw_cell(cell, cell_width, look) for cell in cells[start : start + roomy]]
        joined = Strip.join([one for strip in row for one in (strip, blank(_GAP, look))][:-1])
        strips.append(joined.adjust_cell_length(width, look.style("text")))
    if len(strips) < height:
        strips += [*_reasons(view, width, look), *requests]
    for more in (_objectives, _configuration):
        if len(strips) < height:
            strips += more(view, width, look)
    return cut_lines(strips, width, height, look) if requests else strips[:height]


def _columns(count: int, width: int, height: int) -> int:
    """Few columns leave room for graphs, many show more numbers."""
    most = max(1, (width + _GAP) // (_LEAST_CELL - 1 + _GAP))
    roomy = max(1, (width + _GAP) // (_ROOMY_CELL + _GAP))
    for across in range(1, most + 1):
        if across * height >= (_ESSENTIAL if across >= roomy else count):
            return across
    return most


def _cells(view: ServerView, width: int) -> list[_Cell]:
    stat, is_roomy = view.stats, width >= _ROOMY_CELL
    room = width - (_LABEL if is_roomy else _SHORT_LABEL)
    return [
        _number("output", "out", stat["output_tokens_per_s"]),
        (_queue if is_roomy else _tight_queue)(stat["running"], stat["waiting"]),
        _promised(_latency("TTFT", "TTFT", stat["ttft_p50"], stat["ttft_p99"], room), "ttft", view),
        _promised(_latency("ITL", "ITL", stat["itl_p50"], stat["itl_p99"], room), "itl", view),
        _number("KV cache", "KV", stat["kv_usage"], high=1.0, warn=0.9, bad=0.95),
        _number("prompt", "in", stat["prompt_tokens_per_s"]),
        _number("preempt", "pre", stat["preemptions_per_min"], bad=0.0),
        _number("finished", "done", stat["requests_per_s"]),
        _latency("queued", "wait", stat["queue_time_p50"], stat["queue_time_p99"], room),
        _number("prefix", "hit", stat["prefix_hit"]),
        _latency("e2e", "e2e", stat["e2e_p50"], stat["e2e_p99"], room),
        _number("failed", "fail", stat["failures_per_s"], bad=0.0),
        *(
            _latency(label, short, stat[f"{label}_time_p50"], stat[f"{label}_time_p99"], room)
            for label, short in (("prefill", "pref"), ("decode", "dec"))
            if stat[f"{label}_time_p50"].mean is not None  # few servers tell: no dash for the others
        ),
    ]


def _draw_cell(cell: _Cell, width: int, look: Look) -> Strip:
    is_tight = width < _ROOMY_CELL
    head = _head(cell, is_tight=is_tight, look=look)
    room = width - sum(width_of(text) for text, _ in head)
    head += [(text.replace("–", look.glyphs.unknown), role) for text, role in cell.fitted(room)]
    if is_tight:
        return line(head, width, look)
    used = sum(width_of(text) for text, _ in head)
    start = max(used, _LABEL + _VALUE) + 1
    room = width - start
    if room >= 4 and any(value is not None for value in cell.values):
        graph = spark(cell.values[-room:], room, look, high=cell.high)
        head += [(" " * (start - used), "text"), (graph, "series1")]
    return line(head, width, look)


def _head(cell: _Cell, *, is_tight: bool, look: Look) -> list[Part]:
    """The label with its note; without room only what is wrong is noted, with a sign."""
    word, role = cell.note
    if is_tight:
        sign = "!" if role == "bad" else " "
        return [(pad(cell.short, _SHORT_LABEL - 1, look), "dim"), (sign, role)] if cell.short else []
    label = f"{cell.label} "
    return [(label, "dim"), (pad(word, _LABEL - len(label), look), role)]


def _number(
    label: str,
    short: str,
    stat: ServerNumber,
    *,
    high: float | None = None,
    warn: float | None = None,
    bad: float | None = None,
) -> _Cell:
    """A value with its history; above `warn` and `bad` it changes its role."""
    if isinstance(stat.value, Unknown):
        return _Cell(label, short, ((stat.text, "dim"),))
    role = "value"
    if bad is not None and stat.value > bad:
        role = "bad"
    elif warn is not None and stat.value > warn:
        role = "warn"
    parts: tuple[Part, ...] = ((stat.text, role),)
    noted: tuple[Part, ...] = (*parts, (f"  {stat.note}", "dim")) if stat.note else parts
    return _Cell(label, short, noted, stat.values, high, shorter=(parts,))


def _queue(running: ServerNumber, waiting: ServerNumber) -> _Cell:
    waits = not isinstance(waiting.value, Unknown) and waiting.value > 0
    parts = (("run ", "dim"), (_count(running), "value"), (" wait ", "dim"), (_count(waiting), _warn(waits)))
    return _Cell("requests", "req", parts, waiting.values)


def _tight_queue(running: ServerNumber, waiting: ServerNumber) -> _Cell:
    """It names itself: without a label both numbers fit."""
    return replace(_queue(running, waiting), short="")


def _warn(is_bad: bool) -> str:
    return "warn" if is_bad else "value"


def _count(stat: ServerNumber) -> str:
    return stat.text if isinstance(stat.value, Unknown) else count(stat.value)


def _latency(label: str, short: str, middle: ServerNumber, tail: ServerNumber, room: int) -> _Cell:
    """The mean, which is exact, and the p99: its value, or what it lies below; with room both bounds and the median."""
    mean: tuple[Part, ...] = () if middle.mean is None else (("avg ", "dim"), (two_digits(middle.mean, "s"), "value"))
    if middle.bounds is None or tail.bounds is None:
        return _Cell(label, short, mean or ((middle.text, "dim"),))
    median: tuple[Part, ...] = (("p50 ", "dim"), (middle.text, "value"))
    late: Part = (_at_most(tail.bounds), "value")
    if room >= _SPELLED:
        full = (("  p99 ", "dim"), (tail.text, "value"))
        gap: tuple[Part, ...] = (("  ", "dim"),) if mean else ()
        return _Cell(label, short, (*median, *full, *gap, *mean) if room >= _ALL_THREE else (*(mean or median), *full))
    slash: Part = (" / " if room >= _SPACED else "/", "dim")
    tight = late if room >= _SPACED else (_tightened(late[0]), late[1])
    lead = mean[1:] or median  # the border says that it is the mean
    return _Cell(label, short, (*lead, slash, tight), shorter=((("p99 ", "dim"), late),))


def _at_most(tail: Quantile) -> str:
    """A quantile in few cells: its value, or the bound that no more than so many were beyond."""
    if tail.value is not None or tail.is_lower_bound:
        return tail.text("s")
    return bounds(0.0, tail.high, "s")


def _promised(cell: _Cell, key: str, view: ServerView) -> _Cell:
    """With a word behind its label, once the objectives of this latency were judged.

    What is shown is red too where it is late itself. Where some seconds of its time were alone, these stand behind it,
    and without room for both instead of it: else what is late would stand beside a number that is in time.
    """
    judged = [one for one in view.objectives if one.objective.key == key]
    verdicts = [one.is_met for one in judged]
    if False in verdicts:
        late = [one for one in judged if one.is_met is False]
        forms = [cell.parts, *cell.shorter]
        is_all = any(not one.is_of_seconds for one in late)
        forms = [_reddened(form) for form in forms] if is_all else [*_of_seconds(forms[0], late[0])]
        return replace(cell, parts=forms[0], shorter=tuple(forms[1:]), note=("late", "bad"))
    is_kept = bool(verdicts) and all(one is True for one in verdicts)
    return replace(cell, note=("ok", "good")) if is_kept else cell


def _of_seconds(parts: tuple[Part, ...], late: JudgedObjective) -> Iterator[tuple[Part, ...]]:
    """What was late in some seconds alone, with when these ended, the fullest form first."""
    if late.seen is None:
        return
    seen, ago_s = _at_most(late.seen), late.ago_ns / NS_PER_S
    when = f"{ago_s:.0f} s ago" if ago_s >= 1 else "just now"
    said: Part = (f"{seen} {when}", "bad")
    middle = takewhile(lambda part: "p99" not in part[0] and "/" not in part[0], parts)
    yield (*parts, ("  ", "dim"), said)
    yield (*middle, ("  ", "dim"), said)
    yield (said,)
    yield ((f"{_tightened(seen)} {when}", "bad"),)
    yield ((seen, "bad"),)


def _tightened(bound: str) -> str:
    return bound.replace("< ", "<").replace("> ", ">")


def _reddened(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple((text, "bad" if role == "value" else role) for text, role in parts)


def _objectives(view: ServerView, width: int, look: Look) -> list[Strip]:
    """Each objective and whether it is kept; what cannot be told says why."""
    if not any(one.seen is not None for one in view.objectives):
        return []
    strips = [blank(width, look)]
    for one in view.objectives:
        word, role = (
            ("cannot tell", "dim")
            if isinstance(one.is_met, Unknown)
            else (("kept", "good") if one.is_met else ("missed", "bad"))
        )
        why = f"  {one.is_met.reason}" if isinstance(one.is_met, Unknown) else ""
        strips.append(line([(pad(word, 12, look), role), (one.text, "text"), (why, "dim")], width, look))
    return strips


def _configuration(view: ServerView, width: int, look: Look) -> list[Strip]:
    """What the server is set to, and who says so; what nobody says is left out."""
    known = [one for one in view.configuration.values() if not isinstance(one, Unknown)]
    if not known:
        return []
    cells = [_setting(one) for one in known]
    columns = max(1, (width + _GAP) // (_SETTING + _GAP))
    cell_width = (width - _GAP * (columns - 1)) // columns
    strips = [blank(width, look), line([("set to", "dim")], width, look)]
    for start in range(0, len(cells), columns):
        row = [line(parts, cell_width, look) for parts in cells[start : start + columns]]
        joined = Strip.join([one for strip in row for one in (strip, blank(_GAP, look))][:-1])
        strips.append(joined.adjust_cell_length(width, look.style("text")))
    return strips


def _setting(one: Setting) -> list[Part]:
    return [(f"{one.title} ", "dim"), (one.text, "value"), (f"  {one.source}", "dim")]


def _reasons(view: ServerView, width: int, look: Look) -> list[Strip]:
    """Each reason once, with the numbers it takes away."""
    titles: dict[Unknown, list[str]] = {}
    for stat in view.absent:
        titles.setdefault(stat.value, []).append(stat.title) if isinstance(stat.value, Unknown) else None
    texts = [f"{look.glyphs.unknown} {', '.join(names)}: {why}" for why, names in titles.items()]
    return [strip for text in texts for strip in prose(text, width, look, "dim")]
