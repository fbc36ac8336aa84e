"""The view Speed of light in the explorer."""

from __future__ import annotations

from llmtop.analysis.kernels.speed_of_light import Throughput
from llmtop.model import Unknown
from llmtop.parsers.registry import load
from llmtop.tui.panes.speed_of_light import SpeedOfLightPane
from llmtop.tui.render.look import Look
from llmtop.tui.render.speed_of_light import speed_of_light_lines
from llmtop.tui.screens.explore_screen import ExploreApp, ExploreScreen
from tests.kernel_traces import LLAMA, TIMELINE
from tests.tui.test_explore import read, settle

BOTH = (
    Throughput("compute", 50.0, (("sm__issue_active", 50.0), ("sm__pipe_alu_cycles_active", 0.0))),
    Throughput("memory", 25.0, (("dram__cycles_active", 25.0),)),
)


def drawn(both: tuple[Throughput, ...], width: int) -> list[str]:
    strips = speed_of_light_lines(both, width, Look())
    assert {strip.cell_length for strip in strips} == {width}
    return [strip.text.rstrip() for strip in strips]


def test_below_each_other_where_there_is_little_room() -> None:
    assert drawn(BOTH, 58) == [
        "compute                                 50 % ██████",
        " sm__issue_active                       50 % ██████",
        " sm__pipe_alu_cycles_active              0 %",
        "memory                                  25 % ███",
        " dram__cycles_active                    25 % ███",
    ]


def test_beside_each_other_where_there_is_room() -> None:
    assert drawn(BOTH, 101) == [
        "compute                         50 % ██████       memory                          25 % ███",
        " sm__issue_active               50 % ██████        dram__cycles_active            25 % ███",
        " sm__pipe_alu_cycles_active      0 %",
    ]


def test_one_that_was_not_collected_says_so() -> None:
    lines = drawn((BOTH[0], Throughput("memory", Unknown("not collected", "ncu --set full"), ())), 80)
    assert lines[-1] == "memory: not collected (ncu --set full)"


async def test_it_follows_the_kernel_and_is_searched() -> None:
    app = ExploreApp([read(load(LLAMA))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, ExploreScreen)
        screen.show_view(SpeedOfLightPane)
        await settle(pilot)
        assert "─ Speed of light  GEMM 64x8 bf16 nvjet (1 of 34)" in app.screen_text()
        assert "dram__cycles_active" in app.screen_text()
        await pilot.press("full_stop")
        await settle(pilot)
        assert "(2 of 34)" in app.screen_text()
        await pilot.press("slash", *"alu", "enter")
        await settle(pilot)
        assert "/alu 1 of 1" in app.screen_text()


def test_a_timeline_has_no_such_tab() -> None:
    assert SpeedOfLightPane.why_not(load(TIMELINE)) is not None
