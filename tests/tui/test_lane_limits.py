"""Objectives as lines in lanes: on the scale where they are near, and told apart without colours too."""

from __future__ import annotations

import pytest

from llmtop.analysis.views import Lane, LaneLimit, Lanes
from llmtop.model import NS_PER_S
from llmtop.tui.render.lanes import draw_lanes
from llmtop.tui.render.look import ASCII, UNICODE, Glyphs, Look

LIMITS = (LaneLimit(0.2, "p50 200 ms"), LaneLimit(0.5, "p99 500 ms"))
STAIRS = [0.1] * 10 + [0.3] * 10 + [0.6] * 10


def drawn(values: list[float], rows: int, glyphs: Glyphs, limits: tuple[LaneLimit, ...] = LIMITS) -> list[str]:
    """Thirty seconds in thirty columns, without the axis."""
    samples = tuple((i * NS_PER_S, value) for i, value in enumerate(values))
    lane = Lane("TTFT mean", "s", "test", samples, limits=limits)
    view = Lanes(0, len(values) * NS_PER_S, (lane,))
    strips = draw_lanes(view, 63, rows + 1, Look(glyphs=glyphs), most_rows=rows)
    return [strip.text.rstrip() for strip in strips[:rows]]


def test_lines_stand_where_limits_are_with_their_values_beside_them() -> None:
    assert drawn(STAIRS, 3, UNICODE) == [
        "TTFT mean         600 ms ─500ms  ────────────────────██████████",
        "                                           ▄▄▄▄▄▄▄▄▄▄██████████",
        "                         ─200ms  ▅▅▅▅▅▅▅▅▅▅████████████████████",
    ]


def test_in_ascii_a_line_is_no_height_of_the_graph() -> None:
    top = drawn(STAIRS, 3, ASCII)[0]
    assert top == "TTFT mean         600 ms ~500ms  ~~~~~~~~~~~~~~~~~~~~##########"
    assert "~" not in ASCII.spark


def test_with_one_row_what_passes_the_limit_is_marked() -> None:
    assert drawn(STAIRS, 1, UNICODE) == ["TTFT mean         600 ms ▲500ms  ▂▂▂▂▂▂▂▂▂▂▅▅▅▅▅▅▅▅▅▅▲▲▲▲▲▲▲▲▲▲"]
    assert drawn(STAIRS, 1, ASCII) == ["TTFT mean         600 ms ^500ms  ..........==========^^^^^^^^^^"]


@pytest.mark.parametrize(
    ("largest", "scale", "line"),
    [
        (0.4, "─500ms", True),
        (0.25, "─500ms", True),
        (0.24, "─200ms", True),
        (0.1, "─200ms", True),
        (0.09, "/90ms", False),
    ],
)
def test_a_limit_far_above_everything_leaves_the_scale_to_the_values(largest: float, scale: str, line: bool) -> None:
    first = drawn([0.08] * 15 + [largest] * 15, 3, UNICODE)[0]
    assert scale in first
    assert ("─" * 15 in first) is line


def test_what_is_beyond_limits_has_the_colours_of_a_warning_and_of_a_fault() -> None:
    lane = Lane("TTFT mean", "s", "test", tuple((i * NS_PER_S, x) for i, x in enumerate(STAIRS)), limits=LIMITS)
    look = Look()
    (strip, *_) = draw_lanes(Lanes(0, 30 * NS_PER_S, (lane,)), 63, 2, look, most_rows=1)
    runs = [(segment.text, segment.style) for segment in strip][-3:]
    assert [style for _, style in runs] == [look.style("memory"), look.style("warn"), look.style("bad")]
    assert [len(text) for text, _ in runs] == [10, 10, 10]


def test_without_limits_nothing_is_drawn_anew() -> None:
    assert drawn(STAIRS, 1, UNICODE, ()) == ["TTFT mean         600 ms /600ms  ▂▂▂▂▂▂▂▂▂▂▅▅▅▅▅▅▅▅▅▅██████████"]
