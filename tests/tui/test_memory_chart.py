"""The view Memory chart in the explorer."""

from __future__ import annotations

from llmtop.analysis.kernels.memory_chart import MemoryChart, memory_chart
from llmtop.model import Trace
from llmtop.parsers.registry import load
from llmtop.tui.panes.memory_chart import MemoryChartPane
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.render.memory_chart import draw_memory_chart
from llmtop.tui.screens.explore_screen import ExploreApp, ExploreScreen
from tests.kernel_traces import LADDER, LLAMA, TIMELINE
from tests.tui.test_explore import read, settle

COPY = LADDER.with_name("copy-at-roof.ncu-rep.xz")

CHART = """\
          asked for                  bytes
│        │ ─ 2.10 M ─→ │global      │  1.00 GiB → │            │             │            │  1008 MiB → │device      │
│        │ ←─ 2.10 M ─ │hits 0 %    │ ← 1.00 GiB  │            │             │            │ ← 1.00 GiB  │busy 86 %   │
│        │                                        │            │             │            │
│        │ ─── 0 ────→ │TMA         │ ── 0 B ───→ │            │             │            │
│        │ ←─── 0 ──── │instructions│ ←── 0 B ─── │            │             │            │
│        │                                        │            │             │            │
│        │ ─── 0 ────→ │local       │ ── 0 B ───→ │            │             │            │
│        │ ←─── 0 ──── │            │ ←── 0 B ─── │L1/TEX      │             │L2          │ ── 0 B ───→ │system      │
│kernel  │                                        │hits 0 %    │  1.00 GiB → │hits 51 %   │ ←── 0 B ─── │            │
│        │             │texture     │             │busy 19 %   │ ← 1.00 GiB  │busy 78 %   │
│        │ ←─── 0 ──── │            │ ←── 0 B ─── │            │             │            │
│        │                                        │            │             │            │
│        │ ─── 0 ────→ │surface     │ ── 0 B ───→ │            │             │            │
│        │ ←─── 0 ──── │            │ ←── 0 B ─── │            │             │            │
│        │                                        │            │             │            │ ── 0 B ───→ │peer        │
│        │ ─── 0 ────→ │shared      │             │            │             │            │ ←── 0 B ─── │            │
│        │ ←─── 0 ──── │wavefronts  │             │            │             │            │
│        │                                        │            │             │            │"""


def drawn(trace: Trace, width: int, height: int, look: Look | None = None) -> list[str]:
    chart = memory_chart(trace, 0)
    assert isinstance(chart, MemoryChart)
    strips = draw_memory_chart(chart, width, height, look or Look())
    assert {strip.cell_length for strip in strips} == {width}
    return [strip.text.rstrip() for strip in strips]


def test_a_chart_where_there_is_room() -> None:
    assert "\n".join(drawn(load(COPY), 118, 30)) == CHART


def test_a_table_where_there_is_little() -> None:
    assert drawn(load(COPY), 58, 14) == [
        "            read           written             hits   busy",
        "global    2.10 M  1.00 GiB  2.10 M  1.00 GiB    0 %",
        "TMA            0       0 B       0       0 B  instructions",
        "local          0       0 B       0       0 B",
        "texture        0       0 B",
        "surface        0       0 B       0       0 B",
        "shared         0                 0              wavefronts",
        "L1/TEX                                          0 %   19 %",
        "L2        8.39 M  1.00 GiB  8.39 M  1.00 GiB   51 %   78 %",
        "device            1.00 GiB          1008 MiB          86 %",
        "system                 0 B               0 B",
        "peer                   0 B               0 B",
    ]


def test_ascii() -> None:
    lines = drawn(load(COPY), 118, 30, Look(ASCII))
    assert all(line.isascii() for line in lines)
    assert lines[1].startswith("|        | - 2.10 M -> |global      |  1.00 GiB > |")


def test_what_is_missing_stands_below_with_the_command() -> None:
    lines = drawn(load(LLAMA), 78, 19)
    assert lines[1].split() == ["global", "–", "–", "–", "–", "–"]
    assert "– traffic between units not collected" in lines
    assert any(line.startswith("$ ncu ") for line in lines)


async def test_tab_gets_there_and_it_follows_the_kernel() -> None:
    app = ExploreApp([read(load(LLAMA))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, ExploreScreen)
        screen.show_view(MemoryChartPane)
        await settle(pilot)
        assert "─ Memory chart  GEMM 64x8 bf16 nvjet (1 of 34)" in app.screen_text()
        await pilot.press("full_stop")
        await settle(pilot)
        assert "(2 of 34)" in app.screen_text()
        assert "hits 5.2 %" in app.screen_text()


def test_a_timeline_has_no_such_tab() -> None:
    assert MemoryChartPane.why_not(load(TIMELINE)) is not None
