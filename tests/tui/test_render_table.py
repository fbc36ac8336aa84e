"""Table rows and stall bars as text at fixed sizes."""

from __future__ import annotations

from textual.strip import Strip

from llmtop.analysis.kernels.stalls import REASONS, StallBar
from llmtop.analysis.views import Column
from llmtop.model import Unknown
from llmtop.tui.render.bars import bar_rows, draw_stall_bars, ranked_reasons, reason_fill, reason_role
from llmtop.tui.render.look import ASCII, MONO, Look
from llmtop.tui.render.table import Sort, cell_text, header, place_columns, row, unknowns

LOOK = Look()
COLUMNS = (
    Column("name", "kernel"),
    Column("share", "time", "%", 6, 1),
    Column("duration", "duration", "ns", 9, 2),
    Column("roof", "roof", "%", 6, 3),
    Column("grid", "grid", "", 12, 7),
)
WHY = Unknown("not collected", "ncu --section SpeedOfLight")
CELLS = ("gemm<float, 128>", 50.2, 1_234_567.0, WHY, "4096x2")


def test_columns_are_left_out_by_their_shrink() -> None:
    keys = [[one.column.key for one in place_columns(COLUMNS, width)] for width in (80, 45, 36, 30, 5)]
    assert keys == [
        ["name", "share", "duration", "roof", "grid"],
        ["name", "share", "duration", "roof"],
        ["name", "share", "duration"],
        ["name", "share"],
        ["name"],
    ]


def test_columns_of_a_pair_are_left_out_together() -> None:
    columns = (
        Column("name", "kernel", width=10),
        Column("a", "A", "ns", 9, 1, pair="time"),
        Column("b", "B", "ns", 9, 1, pair="time"),
        Column("bound", "bound", "", 8, 3),
        Column("calls_a", "calls A", "1", 7, 5, pair="calls"),
        Column("calls_b", "calls B", "1", 7, 5, pair="calls"),
    )
    kept = dict.fromkeys(tuple(one.column.title for one in place_columns(columns, width)) for width in range(70, 0, -1))
    assert list(kept) == [
        ("kernel", "A", "B", "bound", "calls A", "calls B"),
        ("kernel", "A", "B", "bound"),
        ("kernel", "A", "B"),
        ("kernel",),
    ]


def test_short_names_leave_room_for_a_column_more() -> None:
    assert [one.column.key for one in place_columns(COLUMNS, 62)] == ["name", "share", "duration", "roof", "grid"]
    assert [one.column.key for one in place_columns(COLUMNS, 58)] == ["name", "share", "duration", "roof"]
    keys = [one.column.key for one in place_columns(COLUMNS, 58, widest=(9, 4, 7, 4, 6))]
    assert keys == ["name", "share", "duration", "roof", "grid"]


def test_texts_that_stay_share_what_numbers_leave() -> None:
    columns = (Column("cause", "cause", width=23), Column("name", "call"), Column("ns", "time", "ns", 8))
    for width, widths in ((60, (23, 25, 8)), (40, (14, 14, 8)), (38, (13, 13, 8)), (9, (1, 1, 8))):
        assert tuple(one.width for one in place_columns(columns, width)) == widths
    assert [one.width for one in place_columns(columns, 38, widest=(22, 9, 7))] == [13, 13, 8]
    few = (Column("cause", "cause", width=4), *columns[1:])
    assert [one.width for one in place_columns(few, 30)] == [4, 14, 8]
    assert [one.width for one in place_columns(few, 18)] == [3, 3, 8]


def test_a_row_is_as_wide_as_its_table() -> None:
    placed = place_columns(COLUMNS, 64)
    assert header(placed, Sort("share", descending=True), 64, LOOK).text == (
        "kernel                    time▼   duration    roof  grid        "
    )
    assert row(placed, CELLS, 64, LOOK).text == "gemm<float, 128>           50 %    1.23 ms       –  4096x2      "
    assert row(placed, CELLS, 64, LOOK, is_cursor=True).cell_length == 64


def test_the_cursor_row_is_of_one_style() -> None:
    strip = row(place_columns(COLUMNS, 60), CELLS, 60, LOOK, is_cursor=True)
    assert {segment.style for segment in strip} == {LOOK.style("cursor")}
    assert "…" not in strip.text


def test_a_name_loses_its_middle_and_prose_its_end() -> None:
    column = place_columns((Column("name", "name"),), 20)
    assert row(column, ("void elementwise_kernel<4, add<float>>",), 20, LOOK).text == "void eleme…d<float>>"
    assert row(column, ("the grid is too small to fill the GPU",), 20, LOOK).text == "the grid is too sma…"


def test_cells_read_in_their_unit_and_unknown_ones_are_a_dash() -> None:
    time = COLUMNS[2]
    assert cell_text(1500.0, time, LOOK) == "1.50 µs"
    assert cell_text(WHY, time, LOOK) == "–"
    assert cell_text(WHY, time, Look(ASCII)) == "-"
    assert cell_text(float("nan"), time, LOOK) == "–"
    assert cell_text(None, time, LOOK) == ""
    assert cell_text(12345, Column("n", "n", "1"), LOOK) == "12345"


def test_each_reason_is_said_once_with_its_columns() -> None:
    assert unknowns(("k", WHY, WHY, 1.0, Unknown("other")), COLUMNS, LOOK) == (
        "time, duration: not collected (ncu --section SpeedOfLight) · grid: other"
    )


BARS = (
    StallBar("sgemm[/b]", 0, 0.6, (("long_scoreboard", 0.75), ("wait", 0.25)), "cycles per issued instruction"),
    StallBar("内核", 1, 0.3, (("wait", 1.0),), "cycles per issued instruction"),
    StallBar("copy", 2, 0.1, (), why_not=Unknown("not collected", "--section WarpStateStats")),
)


def test_a_reason_has_the_same_fill_in_every_bar() -> None:
    text = [strip.text for strip in draw_stall_bars(BARS, 60, 10, Look(MONO))]
    assert text == [
        "kernel                  time  what its warps wait for       ",
        "sgemm[/b]               60 %  ███████████████████████▓▓▓▓▓▓▓",
        "内核                    30 %  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓",
        "copy                    10 %  not collected (--section Warp…",
        "                                                            ",
        "                                                            ",
        "                                                            ",
        "█ long_scoreboard  ▓ wait                                   ",
        "long_scoreboard 75 % · wait 25 %                            ",
        "cycles per issued instruction                               ",
    ]


def test_a_reason_has_the_same_colour_whatever_else_is_drawn() -> None:
    alone = draw_stall_bars((StallBar("k", 0, 1.0, (("wait", 1.0),)),), 60, 10, LOOK)
    beside = draw_stall_bars(BARS, 60, 10, LOOK)
    assert _fill_of(alone[-3], "wait") == _fill_of(beside[-3], "wait")
    assert len({(reason_role(reason), reason_fill(reason, 0, LOOK)) for reason in REASONS}) == len(REASONS)


def _fill_of(strip: Strip, reason: str) -> tuple[str, str]:
    """What stands before a reason in the legend, with its colour."""
    segments = list(strip)
    place = next(i for i, segment in enumerate(segments) if segment.text.strip() == reason)
    return segments[place - 1].text, str(segments[place - 1].style)


def test_with_room_the_first_reason_is_explained() -> None:
    text = "\n".join(strip.text for strip in draw_stall_bars(BARS, 90, 20, LOOK))
    assert "long_scoreboard: waits for global, local or texture memory" in text


def test_rare_reasons_become_the_rest() -> None:
    shares = tuple((f"reason{i}", 0.1 - i / 1000) for i in range(10))
    reasons = ranked_reasons((StallBar("k", 0, 1.0, shares),))
    assert reasons == (*(f"reason{i}" for i in range(7)), "the rest")


def test_bars_keep_to_any_box() -> None:
    for width, height in ((1, 1), (12, 3), (40, 8), (200, 60)):
        strips = draw_stall_bars(BARS, width, height, LOOK, cursor=2, top=1)
        assert [strip.cell_length for strip in strips[:height]] == [width] * height
        assert bar_rows(BARS, width, height, LOOK) >= 1
