"""Several ranks in the explorer: one tab for a run, tabs of their own for what is apart."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llmtop.cli import main
from llmtop.errors import ApartError, FileError
from llmtop.model import Trace
from llmtop.parsers.registry import load
from llmtop.tui.loading import Loading, start_loading_run
from llmtop.tui.screens import explore
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.rank_files import PlantedClock, RankRun, kineto_file, nsys_file
from tests.tui.report_traces import report
from tests.tui.test_explore import settle

CLOCKS = (PlantedClock(), PlantedClock(2_000_000_000, 10e-6), PlantedClock(-70_000))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = RankRun.of(3, 30, slow=1)
    for rank, clock in enumerate(CLOCKS):
        nsys_file(tmp_path, run, rank, clock)
    return tmp_path


def done(loadings: Sequence[Loading]) -> list[BaseException | None]:
    return [loading.future.exception(60) for loading in loadings]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_folder_of_ranks_is_one_tab_with_a_table_of_them(folder: Path, size: tuple[int, int]) -> None:
    loadings = start_loading_run([folder])
    done(loadings)
    assert [loading.is_shown for loading in loadings] == [True, False, False, False]
    app = ExploreApp(loadings)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        assert "report-0" not in app.screen_text()
        await pilot.press("3")
        await settle(pilot)
        for _ in range(3):
            await pilot.press("b")
            await settle(pilot)
        shown = app.screen_text()
        assert "Steps: ranks" in shown
        assert "largest / mean 1.28 (rank 1); waited for: rank 1," in shown
        assert ("ms; scaling tax " in shown) is (size[0] == 120)
        await pilot.press("down")
        await settle(pilot)
        assert "it was the last at 30, for which the others waited" in app.screen_text()
        await pilot.press("6")
        await settle(pilot)
        assert "clock of rank 1" in app.screen_text()


async def test_files_that_are_apart_have_tabs_of_their_own_and_say_why(tmp_path: Path) -> None:
    run = RankRun.of(2, 20, slow=0)
    for name in ("a.sqlite", "b.sqlite"):
        nsys_file(tmp_path, run, 1, PlantedClock(), name=name)
    loadings = start_loading_run([tmp_path])
    assert isinstance(done(loadings)[0], ApartError)
    assert [loading.is_shown for loading in loadings] == [False, True, True]
    app = ExploreApp(loadings)
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        app.screen.on_explore_screen_loaded()  # type: ignore[attr-defined]
        await settle(pilot)
        assert "[a.sqlite] b.sqlite" in app.screen_text()
        assert ["both are of rank 1" in said.message for said in app._notifications] == [True], "once, however long"
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert "[b.sqlite]" in app.screen_text()
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert "[a.sqlite]" in app.screen_text()


def test_together_joins_what_is_apart(tmp_path: Path) -> None:
    run = RankRun.of(2, 20, slow=0)
    for name in ("a.sqlite", "b.sqlite"):
        nsys_file(tmp_path, run, 1, PlantedClock(), name=name)
    whole, *_ = start_loading_run([tmp_path], is_forced=True)
    assert [part.name for part in whole.future.result(60).parts] == ["a", "b"]


def test_a_report_of_another_kind_waits_for_no_other_file() -> None:
    """Nothing but timelines is of one run: the first is there before the second is read."""
    go = threading.Event()

    def read(path: Path) -> Trace:
        if path.name == "b.ncu-rep":
            assert go.wait(30)
        return report()

    whole, first, second = start_loading_run([Path("a.ncu-rep"), Path("b.ncu-rep")], read)
    assert first.future.result(30) is not None
    assert isinstance(whole.future.exception(30), ApartError)
    assert not second.future.done()
    go.set()
    assert second.future.result(30) is not None


def test_what_cannot_be_read_is_said_of_the_file(tmp_path: Path) -> None:
    loadings = start_loading_run([tmp_path / "a.json", tmp_path / "b.json"])
    errors = done(loadings)
    assert [loading.is_shown for loading in loadings] == [False, True, True]
    assert all(isinstance(error, FileError) and "cannot be read" in str(error) for error in errors[1:])


def test_one_file_of_a_folder_is_a_report_like_any(tmp_path: Path) -> None:
    path = kineto_file(tmp_path, RankRun.of(1, 5, slow=0), 0, PlantedClock())
    (only,) = start_loading_run([tmp_path])
    assert only.path == path
    assert only.is_shown
    assert only.future.result(60).end_ns == load(path).end_ns


@pytest.mark.parametrize(
    ("options", "told"), [([], None), (["--together"], True), (["--apart"], False)], ids=["content", "one", "apart"]
)
def test_the_command_says_whether_they_are_one(
    options: list[str], told: bool | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("llmtop.cli.live.refuse_unfit_terminal", lambda: None)

    def shown(*arguments: Any) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr(explore, "explore", shown)
    assert main(["open", str(folder), *options]) == 0
    assert asked == [([folder], told, [])]
    loadings = explore._started([folder], told)
    done(loadings)
    assert [loading.files for loading in loadings] == ([0] * 3 if told is False else [3, 0, 0, 0])
