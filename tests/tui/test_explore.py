"""The explorer, driven by keys; on made-up reports, and on the ones that come with llmtop."""

from __future__ import annotations

import asyncio
import sys
import threading
from array import array
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from llmtop import ids
from llmtop.analysis.kernels.stalls import REASONS, StallBar
from llmtop.errors import FileError
from llmtop.model import Origin, RuleResult, Trace
from llmtop.parsers.progress import current
from llmtop.parsers.registry import load
from llmtop.tui.aside import ANALYSIS_THREAD
from llmtop.tui.loading import Loading, start_loading
from llmtop.tui.panes import stalls
from llmtop.tui.panes.findings import FindingsPane
from llmtop.tui.panes.recorded import MODULES, all_views, by_digit, views_of
from llmtop.tui.panes.sections import SectionRow
from llmtop.tui.panes.threads import ThreadsPane
from llmtop.tui.screens.explore import explore
from llmtop.tui.screens.explore_screen import ExploreApp, ExploreScreen
from llmtop.tui.screens.help import HelpScreen, active_keys
from llmtop.tui.screens.kernel import KernelScreen
from tests.kernel_traces import LADDER, OCCUPANCY, TIMELINE, Launch, spans
from tests.kernel_traces import report as counted_report
from tests.live_traces import Scene, live_trace
from tests.parsers.kineto_files import few_events, written
from tests.tui.quiet import DEADLINE_S, wait_until
from tests.tui.report_traces import HOSTILE, report

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from tests.e2e.terminal import TerminalFactory

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = [
    ROOT / "sample_traces" / name
    for name in (
        "cuda-core/13.0/trap.nvcudmp.xz",
        "ncu/2024.1.1/llama-decode.details.csv.xz",
        "ncu/2024.1.1/llama-decode.raw.csv.xz",
        "ncu/2025.3.1/few-metrics.ncu-rep.xz",
        "ncu/2025.3.1/sgemm-ladder.ncu-rep.xz",
        "nsys/2025.3.2/llama-prefill-decode.sqlite.xz",
        "recording/1/demo-server.llmtop.xz",
    )
]
"""One of each format, and of reports one with all sections and one with few: the others have the same views."""
REPORTS_SEEN = (LADDER, LADDER.parents[1] / "2024.1.1" / "llama-decode.raw.csv.xz")
"""Whose views other tests open, and what is read into the same as the table of details."""
FOLDED = ROOT / "sample_traces" / "py-spy" / "0.4.3" / "demo-server.folded"


def read(result: Trace | Exception | None, name: str = "made-up.ncu-rep") -> Loading:
    future: Future[Trace] = Future()
    if isinstance(result, Trace):
        future.set_result(result)
    elif result is not None:
        future.set_exception(result)
    return Loading(Path(name), future)


async def settle(pilot: Pilot[Any]) -> None:
    """Wait for what a key set off: mounts, the threads that make a view, one after the other, the frame after them."""
    await pilot.pause()
    while threads := [thread for thread in threading.enumerate() if thread.name == ANALYSIS_THREAD]:
        for thread in threads:
            await asyncio.to_thread(thread.join, DEADLINE_S)
            assert not thread.is_alive()
        await pilot.pause()
    await pilot.pause()
    await pilot.pause()


async def test_a_name_goes_without_the_grid_where_that_has_a_column() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("slash", *"silu_kernel", "enter")
        await settle(pilot)
        for width in (80, 40, 80):
            await pilot.resize_terminal(width, 24)
            await settle(pilot)
            assert "silu" in app.screen_text()
            assert ("vec8  " in app.screen_text()) is (width == 80), "as soon as the column has room, and as long"


async def test_of_a_range_the_line_below_the_table_has_the_name_of_the_range() -> None:
    trace = load(TIMELINE)
    app = ExploreApp([read(trace, "a-capture-with-a-rather-long-name.sqlite")])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for _ in range(3):
            await pilot.press("b")
            await settle(pilot)
        lines = app.screen_text().splitlines()
        assert "by range" in app.screen_text()
        assert next(line for line in lines if line.startswith("1/3")).rstrip().endswith("prefill")


async def test_the_header_has_each_fact_of_a_file_whole_or_not_at_all() -> None:
    made = counted_report(*[Launch("k")] * 3, gpu="NVIDIA H100")
    app = ExploreApp([read(made, f"{'a' * 42}.ncu-rep")])
    async with app.run_test(size=(80, 24)) as pilot:
        for width, facts in ((80, "NVIDIA H100"), (110, "NVIDIA H100  3 launches  ncu-rep")):
            await pilot.resize_terminal(width, 24)
            await settle(pilot)
            assert app.screen_text().splitlines()[0].rstrip().endswith(f".ncu-rep  {facts}")


async def test_the_header_says_that_a_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    for data, is_damaged in ((written(few_events())[:-400], True), (written(few_events()), False)):
        path.write_bytes(data)
        app = ExploreApp([read(load(path), "cut.json")])
        async with app.run_test(size=(120, 40)) as pilot:
            await settle(pilot)
            assert ("damaged: Session says what is lost" in app.screen_text().splitlines()[0]) == is_damaged


async def test_every_view_opens_on_a_small_screen_and_fills_a_large_one() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(40, 12), notifications=True) as pilot:
        for view in views_of(report()):
            await pilot.press(str(view.number or "M"))
            for size in ((40, 12), (200, 60)):
                await pilot.resize_terminal(*size)
                await settle(pilot)
                assert f"[{view.number or ''} {view.title}]".replace("[ ", "[") in app.screen_text()
                assert "failed" not in app.screen_text()
        assert app.issues == []


async def test_enter_gives_a_findings_details_more_room_and_the_keys_of_pages_and_takes_them_back() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("5")
        await settle(pilot)
        pane = app.screen.query_one(FindingsPane)
        usual = pane.text.size.height
        assert "do: " in app.screen_text(), "what to do shows without a key"
        assert f"lines 1 to {usual} of " in app.screen_text(), "and that there is more"
        await pilot.press("enter")
        await settle(pilot)
        assert pane.text.size.height > usual + 2
        assert pane.table.outer_size.height >= 3
        await pilot.press("pagedown")
        await settle(pilot)
        assert (pane.table.cursor, pane.text.at > 0) == (0, True)
        assert "rule: kernel-uncoalesced" in app.screen_text(), "the last line of the details"
        await pilot.press("enter")
        await settle(pilot)
        assert pane.text.size.height == usual
        await pilot.press("pagedown")
        await settle(pilot)
        assert pane.table.cursor > 0


async def test_hostile_names_are_only_text() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(200, 40), notifications=True) as pilot:
        await settle(pilot)
        text = app.screen_text()
        assert "[@click=app.quit]click me[/]" in text
        assert "内核 matmul 행렬" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        for _ in HOSTILE[:2]:
            await pilot.press("down", "enter")
            await settle(pilot)
            assert isinstance(app.screen, KernelScreen)
            await pilot.press("escape")
            await settle(pilot)
        assert app.return_code is None or app.return_code == 0
        assert app.is_running


async def test_tab_goes_round_the_views_and_back_and_tabs_and_keys_can_be_clicked() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("tab")
        await settle(pilot)
        assert "[2 Stalls]" in app.screen_text()
        await pilot.press("shift+tab", "shift+tab")
        await settle(pilot)
        assert "[Section tables]" in app.screen_text()
        await pilot.press("1")
        await settle(pilot)
        row = app.screen_text().splitlines()
        await pilot.click(offset=(row[1].index("4 Sections") + 2, 1))
        await settle(pilot)
        assert "[4 Sections]" in app.screen_text()
        await pilot.press("1")
        await settle(pilot)
        await pilot.click(offset=(row[29].index("group by") + 2, 29))
        await settle(pilot)
        assert " by name: " in app.screen_text()
        await pilot.click(offset=(row[29].index("help") + 1, 29))
        await settle(pilot)
        assert "Esc closes" in app.screen_text()


async def test_a_new_theme_reaches_every_line() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        app.theme = "textual-light"
        await settle(pilot)
        backgrounds = {
            segment.style.bgcolor.name
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.style and segment.style.bgcolor
        }
        assert "#121212" not in backgrounds


async def test_enter_opens_all_that_is_known_of_a_kernel() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        text = app.screen_text()
        assert "launch 1 of 8" in text
        assert "Registers [/b]" in text
        await pilot.press("end")
        await settle(pilot)
        assert "step [/b] > layer 3" in app.screen_text()
        await pilot.press("tab")
        await settle(pilot)
        text = app.screen_text()
        assert "made_up__[/b].ratio" in text
        assert "25 %" in text
        await pilot.press("tab", "slash", *"nothing", "enter")
        await settle(pilot)
        assert "made_up__nothing.avg" in app.screen_text()
        assert "the tool wrote no number (NaN)" in app.screen_text()
        assert "made_up__[/b]" not in app.screen_text()
        await pilot.press("escape")
        await settle(pilot)
        assert "made_up__[/b].ratio" in app.screen_text()
        await pilot.press("escape")
        await settle(pilot)
        assert "[1 Kernels]" in app.screen_text()


async def test_help_and_screenshot_work_over_the_details_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path))
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("enter", "s")
        await settle(pilot)
        assert {file.suffix for file in tmp_path.iterdir()} == {".svg", ".txt"}
        await pilot.press("question_mark")
        await settle(pilot)
        assert isinstance(app.screen, HelpScreen)
        assert "Back to the list" in app.screen_text()
        await pilot.press("q", "q")
        assert isinstance(app.screen, ExploreScreen)


async def test_stalls_turn_into_an_icicle_that_keys_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = (("long_scoreboard", 0.75), ("wait", 0.25))
    bars = (StallBar("gemm[/b]", 0, 0.6, shares), StallBar("内核", 1, 0.3, shares[1:]))
    monkeypatch.setattr(stalls, "stall_bars", lambda trace: bars)
    app = ExploreApp([read(report())])
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("2")
        await settle(pilot)
        assert "share of each kernel's waiting" in app.screen_text()
        await pilot.press("f", "down", "down", "right")
        await settle(pilot)
        assert "▏gemm[/b]" in app.screen_text()
        assert "22 %  wait" in app.screen_text()
        await pilot.press("enter")
        await settle(pilot)
        assert "▏内核" not in app.screen_text()
        await pilot.press("escape", "f")
        await settle(pilot)
        assert "reason, then kernel" in app.screen_text()
        assert "▏内核" in app.screen_text()


async def test_a_kernel_is_followed_through_the_reports_that_have_it() -> None:
    timeline = counted_report(Launch("mul", 40.0), Launch("mul", 60.0), Launch("add", 10.0), counted=False)
    profile = counted_report(Launch("add"), Launch("mul", 70.0, {"made_up__counter": 1.0}))
    app = ExploreApp([read(timeline, "timeline.sqlite"), read(profile, "profile.ncu-rep"), read(load(FOLDED))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        text = app.screen_text()
        assert "Kernel  timeline.sqlite  launch 2 of 3" in text
        assert "profile.ncu-rep: 1 launch, 70.0 ns, " in text
        assert "occupancy" not in text, "without counters that is said once"
        await pilot.press("o")
        await settle(pilot)
        text = app.screen_text()
        assert "Kernel  profile.ncu-rep  launch 2 of 2" in text
        assert "timeline.sqlite: 2 launches" in text
        assert "made_up__counter" in text
        await pilot.press("o")
        await settle(pilot)
        text = app.screen_text()
        assert "timeline.sqlite  launch 2 of 3" in text
        assert "made_up__counter" not in text
        await pilot.press("n")
        await settle(pilot)
        await pilot.press("o")
        await settle(pilot)
        assert "profile.ncu-rep  launch 1 of 2" in app.screen_text(), "add"
        await pilot.press("escape")
        await settle(pilot)
        assert "[timeline.sqlite]" in app.screen_text()


async def test_a_kernel_that_no_other_report_has_offers_none() -> None:
    app = ExploreApp([read(counted_report(Launch("mul"))), read(counted_report(Launch("add")), "add.ncu-rep")])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "other report" not in app.screen_text()
        await pilot.press("o")
        await settle(pilot)
        assert "launch 1 of 1" in app.screen_text()


async def test_a_filter_says_of_how_many_rows_nobody_knows() -> None:
    counted = [Launch("gemm", metrics={OCCUPANCY: 40.0}), Launch("copy")]
    app = ExploreApp([read(counted_report(*counted))])
    async with app.run_test(size=(140, 30)) as pilot:
        await settle(pilot)
        await pilot.press("slash", *"occ", "space", "less_than_sign", "space", *"50", "enter")
        await settle(pilot)
        assert "; occ is not known of 1 of 2 rows: occupancy not collected" in app.screen_text()
        await pilot.press("slash", *[*["backspace"] * 8], *"occ", "space", "greater_than_sign", "space", *"50", "enter")
        await settle(pilot)
        assert "occ is not known of 1 of 2 rows: occupancy not collected" in app.screen_text()


async def test_kernels_are_grouped_in_other_ways() -> None:
    app = ExploreApp([read(report(["a", "b", "a"]))])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        for said in ("by name and shape", "by name", "every launch", "by range", "by name and shape"):
            assert f" {said}: " in app.screen_text()
            await pilot.press("b")
            await settle(pilot)


async def test_the_kernels_border_sums_up_what_a_filter_leaves() -> None:
    app = ExploreApp([read(report(["gemm", "copy", "gemm"]))])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        assert ": 3 rows, 3 launches, " in app.screen_text()
        await pilot.press("slash", *"gem", "enter")
        await settle(pilot)
        assert ": 2 rows, 2 launches, " in app.screen_text()
        await pilot.press("escape")
        await settle(pilot)
        assert ": 3 rows, 3 launches, " in app.screen_text()


async def test_sections_show_what_the_tools_rules_said_and_unknown_sections_too() -> None:
    app = ExploreApp([read(report(["gemm"]))])
    async with app.run_test(size=(140, 40)) as pilot:
        await pilot.press("4")
        await settle(pilot)
        text = app.screen_text()
        assert "This [workload] is memory-bound. Look at the Memory Workload Analysis section." in text
        assert "estimated speedup: 12 % (global)" in text
        assert "BrandNewSection" in text
        await pilot.press("down")
        await settle(pilot)
        assert "collected; no rule had anything to say of it" in app.screen_text()
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, KernelScreen)


async def test_the_session_shows_facts_issues_and_what_is_missing() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("6")
        await settle(pilot)
        text = app.screen_text()
        assert "./made [/b]" in text
        assert "rows that could not be read were skipped (3 times)" in text
        assert "timeline: no timeline [/b]" in text
        assert "$ nsys profile --trace=cuda,nvtx,osrt" in text


async def test_a_report_without_kernels_says_so_in_every_view() -> None:
    says = {"Findings": "no rule found", "Idle": "no timeline"}
    app = ExploreApp([read(Trace(Origin("ncu-rep")))])
    async with app.run_test(size=(100, 30)) as pilot:
        for view in views_of(Trace(Origin("ncu-rep"))):
            await pilot.press(str(view.number or "M"))
            await settle(pilot)
            below_the_tabs = "\n".join(app.screen_text().splitlines()[2:])
            assert says.get(view.title, "kernel") in below_the_tabs, view.title
        assert app.issues == []


async def test_a_file_that_is_being_read_says_so_and_then_shows_what_was_asked_for() -> None:
    go = threading.Event()

    def slowly(path: Path) -> Trace:
        assert go.wait(20)
        return load(TIMELINE)

    app = ExploreApp(start_loading([ROOT / "pyproject.toml"], slowly))
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        assert "reading pyproject.toml (" in app.screen_text()
        assert "KiB)" in app.screen_text()
        await pilot.press("2")
        go.set()
        app_loading = app.screen.loadings[0]  # type: ignore[attr-defined]
        assert isinstance(app_loading.future.result(20), Trace)
        await settle(pilot)
        assert "[2 Timeline]" in app.screen_text(), "though a report has another view of this digit"
        assert "reading" not in app.screen_text()


async def test_one_bad_file_costs_its_own_tab() -> None:
    bad = read(FileError("bad[/b].ncu-rep is truncated; copy it again"), "bad[/b].ncu-rep")
    app = ExploreApp([bad, read(report(), "good.ncu-rep")])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        assert "[good.ncu-rep]" in app.screen_text()
        await pilot.press("left_square_bracket")
        await settle(pilot)
        assert "bad[/b].ncu-rep is truncated; copy it again" in app.screen_text()
        await pilot.press("right_square_bracket", "6")
        await settle(pilot)
        assert "NVIDIA Made-Up GPU" in app.screen_text()


async def test_a_fault_of_a_parser_is_said_in_the_tab() -> None:
    app = ExploreApp([read(KeyError("[/b]"), "a.ncu-rep"), read(None, "b.ncu-rep")])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        assert "a.ncu-rep: reading failed: KeyError: '[/b]'; please report this" in app.screen_text()


def test_nothing_that_can_be_read_is_an_error_before_the_screen(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"missing\.ncu-rep"):
        explore([tmp_path / "missing.ncu-rep", tmp_path / "also.ncu-rep"])


@pytest.mark.parametrize("path", [path for path in SAMPLES if path not in REPORTS_SEEN], ids=lambda path: path.name)
async def test_every_view_of_the_shipped_samples_opens(path: Path) -> None:
    loadings = start_loading([path])
    trace = loadings[0].future.result(60)
    app = ExploreApp(loadings)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        for view in views_of(trace):
            await pilot.press(str(view.number or "M"))
            await settle(pilot)
            assert app.issues == []
        if not trace.kernels:
            return
        await pilot.press("1")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "registers a thread" in app.screen_text()
        assert "launch " in app.screen_text()
        assert app.issues == []


async def test_details_go_from_launch_to_launch_in_the_order_of_the_capture() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("end", "enter")
        await settle(pilot)
        assert "launch 8 of 8" in app.screen_text()
        await pilot.press("n")
        await settle(pilot)
        assert "launch 8 of 8" in app.screen_text()
        for _ in range(9):
            await pilot.press("p")
        await settle(pilot)
        assert "launch 1 of 8" in app.screen_text()
        assert "q back" in app.screen_text().splitlines()[-1], "the keys are listed as on other screens"
        await pilot.resize_terminal(80, 13)
        await settle(pilot)
        assert "q back" not in app.screen_text()


async def test_the_meaning_of_every_stall_reason_is_a_key_away() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "m")
        await settle(pilot)
        text = app.screen_text()
        assert all(reason in text for reason in REASONS)
        await pilot.press("escape")
        await settle(pilot)
        assert "[2 Stalls]" in app.screen_text()


def test_each_bad_path_has_a_line_of_its_own(terminal: TerminalFactory, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    argv = [sys.executable, "-m", "llmtop", "open", "missing.ncu-rep", "notes.txt"]
    program = terminal(argv, columns=500, lines=30, cwd=tmp_path)
    assert program.wait_exit() == 1
    said = [line.strip() for line in program.screen_text().splitlines() if line.strip()]
    assert [line.split(" ")[:2] for line in said] == [["llmtop:", "missing.ncu-rep"], ["llmtop:", "notes.txt"]]


def test_good_files_open_beside_bad_ones_which_are_told_when_the_terminal_is_as_it_was(
    terminal: TerminalFactory, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "llmtop", "open", "missing.ncu-rep", str(LADDER)]
    program = terminal(argv, columns=120, lines=40, cwd=tmp_path)
    program.wait_for(f"[{LADDER.name}]")
    program.resize(80, 20)
    program.press("3")
    program.wait_for("[3 Roofline]")
    program.press("q")
    assert program.wait_exit() == 0
    assert program.unrestored() == []
    assert "llmtop: missing.ncu-rep cannot be read: No such file or directory" in program.screen_text()


async def test_a_timeline_has_its_spans_where_a_report_has_sections() -> None:
    loadings = start_loading([TIMELINE])
    loadings[0].future.result(60)
    app = ExploreApp(loadings)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4")
        await settle(pilot)
        text = app.screen_text()
        assert "[4 Spans]" in text
        keys = active_keys(app.screen)
        assert ("4", "Spans") in keys
        assert "Sections" not in {what for _, what in keys}
        assert "NVTX range" in text
        assert "launched in it: 1,242, 7.49 ms of GPU time" in text
        await pilot.press("slash", *"cuda call", "enter")
        await settle(pilot)
        assert "another call of the CUDA API" in app.screen_text(), "details follow the filter"
        assert "NVTX range" not in app.screen_text()


async def test_histograms_stand_in_the_place_of_the_kernels_and_go_again() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("h")
        await settle(pilot)
        text = app.screen_text()
        assert "duration  at most" in text
        assert "8 launches" in text
        await pilot.press("slash", "x", "Y")
        await settle(pilot)
        assert app.screen_text() == text, "there are no rows to filter"
        assert "duration  at most" in app.clipboard
        await pilot.press("h")
        await settle(pilot)
        assert "kernel  " in app.screen_text()
        assert "duration  at most" not in app.screen_text()


async def test_ranges_of_every_step_are_one_row_and_each_alone_a_key_away() -> None:
    steps = replace(spans("nvtx", [(0, 30, -1), (40, 50, -1)], ids.thread(1, 1)), names=("step 1", "step 2"))
    steps = replace(steps, name_id=array("q", (0, 1)))
    trace = replace(report(), spans={"nvtx": steps})
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4")
        await settle(pilot)
        assert "step #" in app.screen_text()
        await pilot.press("e")
        await settle(pilot)
        assert "step 1" in app.screen_text()
        assert "step 2" in app.screen_text()
        assert "step #" not in app.screen_text()


OF_REPORTS = ("Kernels", "Stalls", "Roofline", "Sections", "Findings", "Session", "Idle")
KNOWN = (*OF_REPORTS, "Spans", "Stacks", "Series")


def titles_of(trace: Trace | None) -> list[str]:
    """The views of a file; whatever else there may be by now."""
    return [view.title for view in views_of(trace) if view.title in KNOWN]


def test_no_file_has_two_views_of_one_digit() -> None:
    numbers = live_trace(Scene(), 5)
    traces = (load(LADDER), load(TIMELINE), load(FOLDED), replace(numbers, kernels=report().kernels))
    for digits in ([digit for digit in by_digit(views_of(trace)).values() if digit] for trace in traces):
        assert len(digits) == len(set(digits))
        assert digits == sorted(digits)
    assert by_digit(views_of(traces[-1]))[ThreadsPane] == 0, "its digit is that of the sections, which stand before it"
    assert len(all_views()) == len(MODULES) == len({view.title for view in all_views()})


def test_a_file_has_the_views_that_it_has_something_for() -> None:
    assert titles_of(report()) == titles_of(None) == list(OF_REPORTS)
    assert titles_of(Trace(Origin("ncu-rep"))) == list(OF_REPORTS), (
        "a report that lacks all says so in each of its views"
    )
    assert titles_of(load(FOLDED)) == ["Stacks", "Findings", "Session"]
    nvtx = replace(report(), kernels=None, spans={"nvtx": spans("nvtx", [(0, 30, -1)], ids.thread(1, 1))})
    assert titles_of(nvtx) == ["Spans", "Findings", "Session", "Idle"]
    numbers = Trace(Origin("made-up"), series=live_trace(Scene(), 5).series)
    assert titles_of(numbers) == ["Series", "Findings", "Session"]


async def test_where_not_all_tabs_fit_those_without_a_digit_are_one_and_the_last_are_digits() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("5")
        await settle(pilot)
        tabs = app.screen_text().splitlines()[1]
        assert tabs == "  1 Kernels  2 Stalls  3 Roofline  4 Sections [5 Findings] 6  7  9  M 7 more"
        await pilot.press("M")
        await settle(pilot)
        tabs = app.screen_text().splitlines()[1]
        assert tabs == "  1 Kernels  2 Stalls  3 Roofline  4  5  6  7  9 [Memory chart] M 6 more"


async def test_a_file_that_was_refused_has_no_views() -> None:
    app = ExploreApp([read(report()), read(FileError("cut.sqlite: cut off"), "cut.sqlite")])
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        assert "Stalls" in app.screen_text()
        await pilot.press("right_square_bracket")
        await settle(pilot)
        text = app.screen_text()
        assert "cut off" in text
        assert not [title for title in OF_REPORTS if title in text]
        for key in ("2", "tab", "enter"):
            await pilot.press(key)
            await settle(pilot)
            assert "it has no views" in app.screen_text()
            app.clear_notifications()
            await settle(pilot)
            assert "it has no views" not in app.screen_text()
        await pilot.press("left_square_bracket")
        await settle(pilot)
        assert "[1 Kernels]" in app.screen_text()
        assert app.issues == []


async def test_enter_before_there_are_rows_says_why_it_opens_nothing() -> None:
    loading = read(None)
    app = ExploreApp([loading])
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        assert "the file is still being read" in app.screen_text()
        app.clear_notifications()
        loading.future.set_result(report())
        await settle(pilot)
        await pilot.press("slash", *"no such kernel", "enter")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, ExploreScreen)
        assert app.screen_text().count("no row matches") == 2, "in the table, and as the answer to the key"
        await pilot.press("escape", "enter")
        await settle(pilot)
        assert isinstance(app.screen, KernelScreen)


async def test_a_file_of_stacks_opens_on_them_and_says_what_it_has_not() -> None:
    app = ExploreApp([read(load(FOLDED)), read(report(), "kernels.ncu-rep")])
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        await settle(pilot)
        text = app.screen_text()
        assert "5 Findings  6 Session [8 Stacks]" in text
        assert "377 samples" in text
        assert "100 %" in text
        await pilot.press("end", "enter")
        await settle(pilot)
        assert "Transformer" in app.screen_text().splitlines()[-3]
        assert {"5", "6", "8"} == {key for key, _ in active_keys(app.screen) if key.isdigit()}
        await pilot.press("1")
        await settle(pilot)
        assert "Kernels: folded stacks tell of functions on CPUs alone" in " ".join(app.screen_text().split())
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert "[1 Kernels]" in app.screen_text()
        assert next(iter(by_digit(views_of(report())))) is all_views()[0]


async def test_a_file_of_series_opens_on_them() -> None:
    trace = Trace(Origin("made-up"), series=live_trace(Scene(), 30).series)
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        assert "[9 Series]" in app.screen_text()
        await pilot.press("slash", *"tokens", "enter")
        await settle(pilot)
        text = app.screen_text()
        assert "samples: " in text
        assert "over 2" in text


async def test_a_file_of_spans_alone_opens_on_them() -> None:
    trace = replace(report(), kernels=None, spans={"nvtx": spans("nvtx", [(0, 30, -1)], ids.thread(1, 1))})
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        assert "[4 Spans] 5 Findings  6 Session  7 Idle" in app.screen_text()
        assert "NVTX range" in app.screen_text()


def test_a_remark_of_a_rule_has_no_speedup() -> None:
    rule = RuleResult("Id", "Name", "Section", (("optimization", "do"), ("warning", "see")), (("global", 20.0),))
    advice, remark = (SectionRow("Section", "k", 0, 1.0, says, "text", rule) for says in ("optimization", "warning"))
    assert (advice.worth, remark.worth) == (("global", 20.0), None)


async def test_a_file_that_is_long_in_coming_says_how_far_it_is_and_can_be_given_up() -> None:
    """As reports that nsys has to export first do."""

    def read(path: Path) -> Trace:
        progress = current()
        progress.text = "nsys exports it, 42 %: Esc stops it"
        while not progress.wait(0.05):
            continue
        raise FileError(f"{path}: stopped")

    loadings = start_loading([Path("run.nsys-rep")], read)
    app = ExploreApp(loadings)
    async with app.run_test(size=(120, 40)) as pilot:
        said = "reading run.nsys-rep (size unknown): nsys exports it, 42 %: Esc stops it"
        await wait_until(pilot, lambda: said in app.screen_text())
        await pilot.press("escape")
        with pytest.raises(FileError, match="stopped"):
            loadings[0].future.result(timeout=30)
