"""The views of sections in the explorer, and how their pages are drawn."""

from __future__ import annotations

import pytest

from llmtop.analysis.kernels.section_page import PagePart, PagePlot, PageRow, SectionPage
from llmtop.model import Unknown
from llmtop.parsers.registry import load
from llmtop.tui.panes.instruction_mix import InstructionMixPane
from llmtop.tui.panes.pm_samples import PmSamplesPane
from llmtop.tui.panes.section_page import SectionPagePane
from llmtop.tui.panes.section_tables import SectionTablesPane
from llmtop.tui.panes.warps import WarpsPane
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.render.section_page import section_page_lines
from llmtop.tui.screens.explore_screen import ExploreApp, ExploreScreen
from tests.kernel_traces import LADDER, TIMELINE
from tests.tui.test_explore import read, settle

WAITS = PagePart(
    "Waits",
    (
        PageRow("barrier", 6.0, "", 0.6, "", "waits for the other warps", "synchronise less"),
        PageRow("wait", 0.5, "", 0.05, "", "a fixed latency", "unroll"),
        PageRow("new", Unknown("not collected"), "", says="another"),
    ),
    ("11 cycles in all",),
)
SERIES = PagePart("SM", (PageRow("issued", 2.5, "%", 0.025, "sm__x", "at most 4 %", samples=(1.0, 4.0)),))
PLAIN = PagePart("Launch", (PageRow("Registers Per Thread", 64, "register/thread"), PageRow("Cycles", 2e6, "cycle")))
CHARTS = PagePart(
    "Bars",
    (PageRow("ALU", 50.0, "%", bar=0.5), PageRow("FMA", 0.0, "%", bar=0.0)),
    asides=("see Roofline",),
)
LINE = PagePart(
    "Line",
    (PageRow("warps", 48.0, says="at 40", points=((0.0, 64.0), (40.0, 48.0), (80.0, 0.0))),),
    plot=PagePlot("registers", "warps", 64.0, 40.0),
)
PAGE = SectionPage(0, (WAITS, SERIES, PLAIN), "made", Unknown("pipes not collected", "ncu --section X"))


def drawn(width: int, look: Look | None = None, page: SectionPage = PAGE) -> list[str]:
    strips = section_page_lines(page, width, look or Look())
    assert {strip.cell_length for strip in strips} == {width}
    return [strip.text.rstrip() for strip in strips]


def test_what_a_value_means_stands_beside_it_where_there_is_room() -> None:
    assert drawn(60) == [
        "Waits",
        " barrier     6   60 % ██████      waits for the other warps",
        "   → synchronise less",
        " wait     0.50  5.0 % ▌           a fixed latency",
        " new         –  another",
        "11 cycles in all",
        "",
        "SM",
        " issued  2.5 %  ▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃███████████████  at most 4 %",
        "",
        "Launch",
        " Registers Per Thread  64 register/thread",
        " Cycles                      2.00 M cycle",
        "",
        "– new: not collected",
        "– pipes not collected",
        "$ ncu --section X",
    ]


def test_it_stands_below_where_there_is_little() -> None:
    assert drawn(44)[1:6] == [
        " barrier     6   60 % ██████",
        "   waits for the other warps",
        "   → synchronise less",
        " wait     0.50  5.0 % ▌",
        "   a fixed latency",
    ]


def test_charts_are_as_wide_as_there_is_room() -> None:
    page = SectionPage(0, (CHARTS, LINE), "made")
    assert drawn(40, page=page) == [
        "Bars",
        " ALU  50 %  █████████████▌",
        " FMA   0 %",
        "see Roofline",
        "",
        "Line",
        " warps  48  at 40",
        " 64 │⠉⠑⠒⠒⠢⠤⠤⢄⣀⣀",
        "    │          ⠉⠉⠉⠒⠒⠒⠤◉⣀",
        "    │                   ⠉⠒⠤⣀",
        "    │                       ⠉⠒⠤⣀",
        "    │                           ⠉⠒⠤⣀",
        " 0  │                               ⠉⠒⠤⣀",
        "    └0────────── registers ───────────80",
        "",
    ]
    assert drawn(60, page=page)[1] == " ALU  50 %  ███████████████████████▌"


def test_a_long_name_stands_whole_where_there_is_room() -> None:
    name = "a_counter_whose_name_is_long_but_fits_in_the_line"
    page = SectionPage(0, (PagePart("SM", (PageRow(name, 1.0, says="at most 2", samples=(1.0, 2.0)),)),), "made")
    assert name in drawn(80, page=page)[1]
    assert name not in drawn(60, page=page)[1]


def test_ascii() -> None:
    assert all(line.isascii() for line in drawn(60, Look(ASCII)))
    charts = drawn(60, Look(ASCII), SectionPage(0, (CHARTS, LINE), "made"))
    assert all(line.isascii() for line in charts)


@pytest.mark.parametrize(
    ("pane", "said"),
    [
        (WarpsPane, "with all 16 warps"),
        (InstructionMixPane, "Pipes, busy"),
        (PmSamplesPane, "samples of"),
        (SectionTablesPane, "GPU Speed Of Light Throughput"),
    ],
)
async def test_each_is_a_tab_that_follows_the_kernel(pane: type[SectionPagePane], said: str) -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, ExploreScreen)
        screen.show_view(pane)
        await settle(pilot)
        assert f"─ {pane.title}  sgemm_naive (1 of 5)" in app.screen_text()
        assert said in app.screen_text()
        await pilot.press("full_stop")
        await settle(pilot)
        assert "(2 of 5)" in app.screen_text()
    assert pane.why_not(load(TIMELINE)) is not None
