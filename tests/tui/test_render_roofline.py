"""The roofline as text at fixed sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.analysis.views import Quality, Refusal, Roof, RooflinePoint, RooflineView
from llmtop.model import Unknown
from llmtop.tui.render.canvas import Canvas
from llmtop.tui.render.look import ASCII, UNICODE, Look
from llmtop.tui.render.roofline import draw_roofline

DRAM = Roof("memory", "DRAM", 3.35e12, "NVML")
BF16 = Roof("compute", "bf16", 989e12, "datasheet")


def point(
    label: str,
    intensity: float,
    flops: float,
    *,
    age_s: float = 0.0,
    weight: float = 1.0,
    quality: Quality = Quality.MEASURED,
) -> RooflinePoint:
    return RooflinePoint(
        label,
        intensity,
        flops,
        flops / intensity if intensity else 1e12,
        "bf16",
        "GPM",
        quality,
        weight=weight,
        age_s=age_s,
        roof_fraction=min(1.0, flops / (intensity * 3.35e12)) if intensity else None,
    )


def drawn(view: RooflineView, width: int, height: int, look: Look | None = None) -> list[str]:
    strips = draw_roofline(view, width, height, look or Look())
    assert [strip.cell_length for strip in strips] == [width] * height
    return [strip.text.rstrip() for strip in strips]


def live() -> RooflineView:
    trail = tuple(point("", 61 * (1 + i / 20), 150e12 * (1 - i / 100), age_s=float(i)) for i in range(1, 60))
    return RooflineView("GPU0", (DRAM, BF16), (point("now", 61, 172e12), *trail), notes=("a note",))


def test_a_live_point_in_forty_by_twelve() -> None:
    assert drawn(live(), 40, 12, Look(ASCII)) == [
        "X now  84 % of roof  bf16 GPM",
        "    | FLOP/s            bf16 989 TFLOP/s",
        "  1P+                     .'''''''''''''",
        "    |                  .:'",
        "    |               .:X",
        "100T+            ..'' ''':..",
        "    |          .:'         '",
        "    |       .:'   DRAM 3.35 TB/s",
        " 10T+    ..'",
        "    ++--------+---------+---------------",
        "     1       10        100        FLOP/B",
        "a note",
    ]


def test_precision_source_and_quality_are_never_cut() -> None:
    bound = replace(live().points[0], quality=Quality.UPPER_BOUND)
    view = replace(live(), points=(bound,))
    assert drawn(view, 52, 16)[:2] == ["▽ now  84 % of roof  61.0 FLOP/B  172 TFLOP/s", "  bf16 GPM upper bound"]
    assert drawn(view, 52, 9)[0] == "▽ now  84 % of roof  bf16 GPM upper bound"
    assert drawn(view, 90, 16)[0].endswith("2.82 TB/s  bf16 GPM upper bound")


def test_where_there_is_little_room_the_source_goes_before_the_label_and_how_sure_it_is() -> None:
    lead = replace(live().points[0], label="work done", source="from tokens and shapes", quality=Quality.ESTIMATE)
    view = replace(live(), points=(lead,))
    assert [drawn(view, width, 7)[0] for width in (36, 42, 66)] == [
        "○ work…  84 % of roof  bf16 estimate",
        "○ work done  84 % of roof  bf16 estimate",
        "○ work done  84 % of roof  bf16 from tokens and shapes estimate",
    ]


def test_notes_get_shorter_before_the_last_are_left_out() -> None:
    long = "precision not known (the server does not tell; llmtop --dtype tells it): tensor work counts as bf16 or fp8"
    notes = (long, "MIG is enabled: the roofs are of the whole GPU", "third " * 30)
    view = replace(live(), notes=notes)
    rows = drawn(view, 60, 16)[-3:]
    assert rows[1:] == ["precision not known: tensor work counts as bf16 or fp8", notes[1]]
    assert not any("third" in row for row in rows)
    assert any("third" in row for row in drawn(view, 60, 40))
    assert long in drawn(view, 130, 40)


def test_all_sizes_and_glyphs_keep_to_their_box() -> None:
    for width, height in ((1, 1), (10, 3), (11, 5), (24, 6), (40, 12), (80, 24), (200, 60)):
        for glyphs in (UNICODE, ASCII):
            text = "".join(drawn(live(), width, height, Look(glyphs)))
            assert glyphs is UNICODE or text.isascii()


def test_labels_never_cover_each_other() -> None:
    roofs = tuple(Roof("memory", level, value, "x") for level, value in (("DRAM", 3.35e12), ("L2", 4e12), ("L1", 5e12)))
    peaks = tuple(
        Roof("compute", name, value, "x") for name, value in (("bf16", 989e12), ("fp8", 1.1e15), ("tf32", 9e14))
    )
    text = "\n".join(drawn(RooflineView("", roofs + peaks, (point("k", 10, 1e13),)), 80, 24))
    for label in ("DRAM 3.35 TB/s", "L2 4.00 TB/s", "L1 5.00 TB/s", "bf16 989 TFLOP/s", "fp8 1.10 PFLOP/s"):
        assert label in text


def test_marks_tell_weight_and_quality_by_shape() -> None:
    points = (
        point("heavy", 10, 1e13, weight=0.5),
        point("middle", 1, 1e11, weight=0.05),
        point("light", 100, 1e11, weight=0.001),
        point("estimate", 300, 1e13, quality=Quality.ESTIMATE),
        point("bound", 0.3, 1e10, quality=Quality.UPPER_BOUND),
    )
    text = "\n".join(drawn(RooflineView("", (DRAM, BF16), points), 80, 24)[1:])
    assert [text.count(mark) for mark in "◉•·○▽"] == [1, 1, 1, 1, 1]


def test_the_selected_point_is_named_and_marked() -> None:
    points = (point("first", 10, 1e13), point("second", 1, 1e11, weight=0.05))
    strips = draw_roofline(RooflineView("", (DRAM, BF16), points), 80, 24, Look(), selected=1)
    assert strips[0].text.startswith("◉ second")
    assert sum(strip.text.count("◉") for strip in strips[1:]) == 1


def test_a_point_without_place_is_listed_not_drawn() -> None:
    view = RooflineView("", (DRAM, BF16), (point("fine", 10, 1e13), point("copy", 0.0, 0.0)))
    text = "\n".join(drawn(view, 90, 24))
    assert "copy · no FLOPs or no bytes were counted" in text


def test_refusals_are_grouped_by_reason() -> None:
    refusals = tuple(
        Refusal(f"k{i}", Unknown(f"no FLOPs{';:'[i % 2]} {i} % of DRAM", "ncu --section X")) for i in range(5)
    )
    text = drawn(RooflineView("", (DRAM, BF16), (point("k", 10, 1e13),), refusals=refusals), 80, 24)
    assert text[-1] == "5 not drawn · no FLOPs (ncu --section X)"


def test_without_a_point_it_says_why() -> None:
    view = RooflineView("", (DRAM,), (), why_not=Unknown("GPM needs Hopper or newer", "use ncu"))
    text = drawn(view, 40, 6)
    assert [row.strip() for row in text if row] == ["GPM needs Hopper or newer", "use ncu"]


@pytest.mark.parametrize("band", [(90e12, 300e12), (0.0, 1e12), (5e12, 1e12)])
def test_a_band_is_drawn_only_where_it_is_one(band: tuple[float, float]) -> None:
    plain = drawn(RooflineView("", (DRAM, BF16), (point("now", 61, 172e12),)), 60, 16)
    banded = drawn(RooflineView("", (DRAM, BF16), (point("now", 61, 172e12),), band=band), 60, 16)
    assert (plain == banded) is not (0 < band[0] <= band[1])


def test_extreme_values_do_not_break_the_axes() -> None:
    points = (point("tiny", 1e-6, 1.0), point("huge", 1e9, 1e18), point("nan", float("nan"), float("inf")))
    text = drawn(RooflineView("", (), points), 80, 24)
    assert any("nan" in row for row in text)


def ghosts(*batches: int) -> tuple[RooflinePoint, ...]:
    return tuple(
        point(f"B{batch}", float(batch), min(batch * 3.35e12, 989e12), quality=Quality.ESTIMATE) for batch in batches
    )


def test_ghosts_of_the_decode_model_stand_on_the_roof_and_are_named() -> None:
    view = RooflineView("", (DRAM, BF16), (point("now", 30, 50e12),), ghosts=(*ghosts(1, 8, 128), *ghosts(32)))
    rows = drawn(view, 60, 18, Look(ASCII))
    text = "\n".join(rows)
    assert all(f"B{batch}" in text for batch in (1, 8, 32, 128))
    assert text.count("X") == 2  # the point, and in the line above the plot


def test_a_small_plot_keeps_its_decades_for_the_work() -> None:
    alone = drawn(RooflineView("", (DRAM, BF16), (point("now", 61, 172e12),)), 40, 12, Look(ASCII))
    with_ghosts = RooflineView("", (DRAM, BF16), (point("now", 61, 172e12),), ghosts=ghosts(1, 64))
    small = drawn(with_ghosts, 40, 12, Look(ASCII))
    assert small[-1] == alone[-1]
    assert "B64" in "".join(small)
    assert "B1 " not in "".join(small)


def test_the_roof_at_the_clock_of_now_is_drawn_and_labelled() -> None:
    slow = Roof("compute", "bf16", 989e12, "datasheet", now=500e12)
    text = "\n".join(drawn(RooflineView("", (DRAM, slow), (point("now", 61, 172e12),)), 80, 24))
    assert "500 TFLOP/s at this clock" in text
    assert "bf16 989 TFLOP/s" in text


def test_each_compute_roof_says_the_clock_that_it_holds_at() -> None:
    slow = Roof("compute", "bf16", 989e12, "datasheet", now=500e12, mhz=1830.0, now_mhz=925.0)
    view = RooflineView("", (DRAM, slow), (point("now", 61, 172e12),))
    text = "\n".join(drawn(view, 90, 24))
    assert "bf16 989 TFLOP/s at 1830 MHz" in text
    assert "500 TFLOP/s at 925 MHz, now" in text
    narrow = "\n".join(drawn(view, 30, 12))
    assert "bf16 989 TFLOP/s" in narrow
    assert "at 1830 MHz" not in narrow, "the clock goes before the roof"


def test_an_estimate_is_named_beside_its_mark() -> None:
    points = (point("now", 61, 172e12), point("server estimate", 30, 50e12, quality=Quality.ESTIMATE))
    text = "\n".join(drawn(RooflineView("", (DRAM, BF16), points), 80, 24))
    assert "○ server estimate" in text


@st.composite
def views(draw: st.DrawFn) -> RooflineView:
    positive = st.floats(1e-3, 1e5)
    rates = st.floats(1e8, 1e17)
    roofs = draw(
        st.lists(
            st.builds(
                Roof,
                st.just("compute"),
                st.sampled_from(("bf16", "fp8", "FP32")),
                rates,
                st.just("x"),
                st.none() | rates,
                st.none() | rates,
            ),
            max_size=4,
        )
    )
    memory = draw(st.lists(st.builds(Roof, st.just("memory"), st.just("DRAM"), rates, st.just("x")), max_size=3))
    place = st.builds(
        point,
        st.sampled_from(("now", "server estimate", "B128", "k")),
        positive,
        rates,
        age_s=st.sampled_from((0.0, 3.0)),
    )
    points, others = draw(st.lists(place, max_size=8)), draw(st.lists(place, max_size=6))
    return RooflineView("", (*memory, *roofs), tuple(points), ghosts=tuple(others))


@given(views(), st.integers(10, 130), st.integers(5, 45), st.booleans())
def test_no_two_labels_overlap(view: RooflineView, width: int, height: int, is_ascii: bool) -> None:
    """What has more than one character covers nothing, and nothing covers it; only marks may meet."""
    canvases: dict[int, dict[tuple[int, int], str]] = {}
    clashes: list[str] = []
    write = Canvas.text

    def spy(canvas: Canvas, col: int, row: int, text: str, role: str) -> None:
        cells = canvases.setdefault(id(canvas), {})
        is_label = len(text.strip()) > 1 and any(character.isalnum() for character in text)
        for at, character in enumerate(text):
            held = cells.get((col + at, row))
            if held is not None and (is_label or len(held) > 1) and character != " ":
                clashes.append(f"{text!r} over {held!r}")
            if character != " ":
                cells[col + at, row] = text if is_label else character
        write(canvas, col, row, text, role)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Canvas, "text", spy)
        drawn(view, width, height, Look(ASCII if is_ascii else UNICODE))
    assert not clashes


@pytest.mark.parametrize("size", [(38, 7), (30, 8), (38, 9)])
def test_a_roofs_name_leaves_its_line_to_be_seen(size: tuple[int, int]) -> None:
    roofs = (DRAM, replace(BF16, mhz=1830.0, now=850e12, now_mhz=1600.0))
    rows = drawn(replace(live(), roofs=roofs), *size)
    (named,) = (row for row in rows if "bf16 989 TFLOP/s" in row)
    assert len(named.rpartition("TFLOP/s")[2].strip()) >= 6
