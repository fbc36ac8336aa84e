"""A kernel's code as lists side by side: how much of the waiting each row has, and what it waits for."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.strip import Strip

from llmtop.analysis.kernels.code_sides import CodePlace, CodeSide, CodeSides
from llmtop.analysis.kernels.source_table import reason_text
from llmtop.analysis.kernels.stalls import REASONS
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.tui.render.bars import reason_role
from llmtop.tui.render.lines import Part, bar, blank, fill, line, pad, prose, width_of
from llmtop.units import binary_bytes, count, percent

if TYPE_CHECKING:
    from llmtop.analysis.kernels.source import Spent
    from llmtop.tui.render.look import Look

WIDE = 118
"""From so many columns on all three stand side by side: a screen of 120, less its border."""
_WITH_REASON, _REASON = 70, 19
"""From so many columns of a list on the reason stands in its rows, and how many it takes."""
_SHARES = {CodeSide.SOURCE: 0.4, CodeSide.PTX: 0.26, CodeSide.SASS: 0.34}
_BAR, _SHARE = 4, 6
_LEAST_SHARE = 0.0005
"""A smaller one would be written as none."""
_FOOT_FROM = 10
_MOST_FOOT = 6


@frozen
class CodeScreen:
    """What is to be drawn.

    Attributes:
        place: Where the cursor is.
        reason: Only waiting for this one counts; empty for any.
    """

    sides: CodeSides
    place: CodePlace
    reason: str = ""


def shown_sides(width: int, focus: CodeSide) -> tuple[CodeSide, ...]:
    """All where they have room, else the one that has the cursor."""
    return tuple(CodeSide) if width >= WIDE else (focus,)


def list_height(height: int) -> int:
    """Rows of each list: what its heading and the lines about the row under the cursor leave."""
    return max(1, height - 1 - _foot_height(height))


def _foot_height(height: int) -> int:
    return min(_MOST_FOOT, height // 5) if height >= _FOOT_FROM else 0


def draw_code(screen: CodeScreen, width: int, height: int, look: Look) -> list[Strip]:
    """The sides that have room, with the cursor's row in the middle of its list, and what is known of that row."""
    sides, place = screen.sides, screen.place
    shown = shown_sides(width, place.side)
    widths = _widths(shown, width)
    rows = list_height(height)
    marked = sides.instructions(place.side, place.row)
    lists = [_listed(screen, side, marked, widths[i], rows, look) for i, side in enumerate(shown)]
    gap = Strip([Segment(f"{look.glyphs.vertical}", look.style("dim"))], 1)
    strips = [_joined(parts, gap) for parts in zip(*lists, strict=True)]
    foot = foot_lines(screen, width, _foot_height(height), look)
    return fill([*strips, *foot], width, height, look)


def _joined(parts: Sequence[Strip], gap: Strip) -> Strip:
    return Strip.join([one for part in parts for one in (gap, part)][1:])


def _widths(shown: Sequence[CodeSide], width: int) -> list[int]:
    if len(shown) == 1:
        return [width]
    room = width - len(shown) + 1
    widths = [int(room * _SHARES[side]) for side in shown]
    return [*widths[:-1], room - sum(widths[:-1])]


def _listed(
    screen: CodeScreen, side: CodeSide, marked: Sequence[int], width: int, height: int, look: Look
) -> list[Strip]:
    """A heading and so many rows."""
    sides, place = screen.sides, screen.place
    head = line([(pad(_title(sides, side), width, look), "title" if side is place.side else "header")], width, look)
    linked = [place.row] if side is place.side else sides.rows(side, marked)
    total = sides.count(side)
    if not total:
        why = sides.why_none(side) or Unknown("nothing")
        return [
            head,
            *fill([*prose(why.reason, width, look), *prose(why.remedy, width, look, "accent")], width, height, look),
        ]
    middle = max(linked, key=lambda row: sides.waiting(side, row, screen.reason), default=0)
    top = max(0, min(middle - height // 2, total - height))
    shown = range(top, min(top + height, total))
    label = max(3, *(len(sides.label(side, i)) for i in shown))
    chosen = frozenset(linked)
    rows = [_row(screen, side, i, chosen, label, width, look) for i in shown]
    return [head, *fill(rows, width, height, look)]


def _title(sides: CodeSides, side: CodeSide) -> str:
    why = sides.why_none(side)
    if side is CodeSide.SOURCE and sides.file:
        return f"{side}: {posixpath.basename(sides.file)}"
    return f"{side}: {why.reason}" if why is not None else str(side)


def _row(
    screen: CodeScreen, side: CodeSide, i: int, chosen: frozenset[int], label: int, width: int, look: Look
) -> Strip:
    """Share, bar, number and text."""
    sides, place = screen.sides, screen.place
    spent = sides.spent(side, i)
    share = None if spent is None else sides.source.share(spent, screen.reason)
    role = "cursor" if side is place.side and i == place.row else "selected" if i in chosen else "text"
    text = sides.row_text(side, i)
    number: Part = (f" {sides.label(side, i).rjust(label)} ", role if role != "text" else "dim")
    reason = _REASON if width >= _WITH_REASON else 0
    room = _text_room(width, label)
    parts: list[Part] = [*_heat(spent, share, screen.reason, look), number, (pad(text, room, look), role)]
    if reason and spent is not None and spent.top and share and share >= _LEAST_SHARE:
        parts.append((f" {screen.reason or spent.top[0]}", "dim"))
    return line(parts, width, look)


def _text_room(width: int, label: int) -> int:
    """Cells that a list of this width has for the texts of its rows."""
    return max(0, width - _SHARE - _BAR - label - 2 - (_REASON if width >= _WITH_REASON else 0))


def _heat(spent: Spent | None, share: float | None, reason: str, look: Look) -> list[Part]:
    """The share of the waiting as a number and as a bar in the colour of what is waited for."""
    if spent is None or not share or share < _LEAST_SHARE:
        return [(" " * (_SHARE + _BAR), "text")]
    top = reason or (spent.top[0] if spent.top else "")
    return [(percent(100 * share).rjust(_SHARE - 1) + " ", "value"), (bar(share, _BAR, look), reason_role(top))]


def foot_lines(screen: CodeScreen, width: int, height: int, look: Look) -> list[Strip]:
    """What is known of the row under the cursor, then what would bring its text, which has one line in any case."""
    told = _told_of_row(screen, width, look)
    why = screen.sides.why_none(screen.place.side)
    if why is None or not why.remedy or not height:
        return told[:height]
    remedy = prose(str(why), width, look, "accent")
    if len(told) + len(remedy) > height:
        remedy = [line([(str(why) if width_of(str(why)) <= width else why.remedy, "accent")], width, look)]
    return [*told[: height - len(remedy)], *remedy]


def _told_of_row(screen: CodeScreen, width: int, look: Look) -> list[Strip]:
    """What was seen of it, what it waits for first, and its text where its list cuts that."""
    sides, place = screen.sides, screen.place
    if place.row >= sides.count(place.side):
        return [blank(width, look)]
    spent = sides.spent(place.side, place.row)
    where = _where(sides, place)
    if spent is None:
        said = f"{where}: no instruction of the kernel"
        return [*prose(said, width, look, "dim"), *_cut_text(sides, place, width, look)]
    said = f" {look.glyphs.separator} ".join((where, *_said(screen, spent)))
    meaning = REASONS.get(spent.top[0], "") if spent.top else ""
    more = prose(f"{spent.top[0]}: {meaning}", width, look, "dim") if spent.top and meaning else []
    return [*prose(said, width, look), *more, *_cut_text(sides, place, width, look)]


def _cut_text(sides: CodeSides, place: CodePlace, width: int, look: Look) -> list[Strip]:
    """All of a row's text, where its list has no room for it."""
    shown = shown_sides(width, place.side)
    label = max(3, len(sides.label(place.side, place.row)))
    room = _text_room(_widths(shown, width)[shown.index(place.side)], label)
    text = sides.row_text(place.side, place.row) if sides.lineless(place.side, place.row) is None else ""
    return prose(text[: width * _MOST_FOOT], width, look) if width_of(text) > room else []


def _where(sides: CodeSides, place: CodePlace) -> str:
    label = sides.label(place.side, place.row)
    if place.side is CodeSide.SOURCE:
        return f"line {label}" if label else sides.row_text(place.side, place.row)
    return f"PTX line {label}" if place.side is CodeSide.PTX else _of_instruction(sides, place.row)


def _of_instruction(sides: CodeSides, i: int) -> str:
    code = sides.source.code
    made = f" of {posixpath.basename(code.files[code.file_id[i]])}:{code.line[i]}" if code.file_id[i] >= 0 else ""
    return f"{code.offsets[i]:05x}{made}"


def _said(screen: CodeScreen, spent: Spent) -> list[str]:
    """In the words of the report's columns."""
    source = screen.sides.source
    said = []
    if source.why_no_samples is None:
        share = source.share(spent, screen.reason) or 0.0
        of = f"of the waiting for {screen.reason}" if screen.reason else "of the kernel's waiting"
        said.append(f"{percent(100 * share)} {of}")
        said += [f"mostly {reason_text(spent)}"] if spent.top else []
        said.append(f"{count(spent.samples or 0)} samples")
        said += [] if spent.not_issued is None else [f"{count(spent.not_issued)} not issued"]
    else:
        said.append(str(source.why_no_samples))
    said += [] if spent.executed is None else [f"executed {count(spent.executed)} times"]
    said += [] if spent.thread_share is None else [f"{percent(100 * spent.thread_share)} of threads"]
    said += _traffic("to L2", spent.l2_bytes, spent.l2_excess, binary_bytes)
    return said + _traffic("shared wavefronts", spent.shared, spent.shared_excess, count)


def _traffic(what: str, amount: float | None, excess: float | None, written: Callable[[float], str]) -> list[str]:
    if not amount:
        return []
    return [f"{written(amount)} {what}" + (f", {percent(100 * excess / amount)} of it excess" if excess else "")]
