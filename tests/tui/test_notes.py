"""Names and notes by keys in the explorer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmtop.notes import NoteKind, keep
from llmtop.parsers.registry import load
from llmtop.state import state_folder
from llmtop.tui.loading import start_loading
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.note import NoteDialog
from tests.kernel_traces import LADDER
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    from textual.pilot import Pilot

NAIVE = "sgemm_naive(int, const float *, const float *, float *)"


async def typed(pilot: Pilot[Any], key: str, text: str) -> None:
    await pilot.press(key)
    await settle(pilot)
    assert isinstance(pilot.app.screen, NoteDialog)
    await pilot.press("ctrl+u", *text, "enter")
    await settle(pilot)


async def test_a_kernel_is_renamed_and_has_its_own_name_again() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await typed(pilot, "e", "baseline")
        assert "│baseline " in app.screen_text()
        assert "│sgemm_naive" not in app.screen_text()
        await pilot.press("5")
        await settle(pilot)
        assert "baseline" in app.screen_text(), "findings too"
        await pilot.press("1")
        await typed(pilot, "e", "")
        assert "│sgemm_naive" in app.screen_text()


async def test_a_note_stands_in_the_details_of_its_kernel() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await typed(pilot, "a", "seen on monday")
        await pilot.press("enter")
        await settle(pilot)
        assert "seen on monday" in app.screen_text()


async def test_a_note_on_a_report_stands_in_its_session(tmp_path: Path) -> None:
    path = tmp_path / LADDER.name
    path.write_bytes(LADDER.read_bytes())
    (loading,) = start_loading([path])
    loading.future.result()
    app = ExploreApp([loading])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("6")
        await settle(pilot)
        await typed(pilot, "a", "the old driver")
        assert "the old driver" in app.screen_text()
    assert list(tmp_path.iterdir()) == [path], "nothing is written beside it"


async def test_what_is_no_file_has_no_note() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("6")
        await settle(pilot)
        app.screen.loadings[0].path = Path("none")  # type: ignore[attr-defined]
        await pilot.press("a")
        await settle(pilot)
        assert not isinstance(app.screen, NoteDialog)
        assert "by its content" in app.screen_text()


async def test_what_cannot_be_kept_is_said_and_stays_to_be_copied() -> None:
    keep(NoteKind.NAME, "another", "kernel")
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        notes = state_folder() / "notes.json"
        notes.write_text("damaged")
        await typed(pilot, "e", "baseline")
        assert isinstance(app.screen, NoteDialog)
        assert "not kept: names and notes are not read" in app.screen_text()
        assert "baseline" in app.screen_text()
        assert notes.read_text() == "damaged"
        notes.write_text(json.dumps({"schema": "llmtop.notes/1", "names": {"another": "kernel"}}))
        await pilot.press("enter")
        await settle(pilot)
        assert json.loads(notes.read_text())["names"] == {"another": "kernel", NAIVE: "baseline"}
