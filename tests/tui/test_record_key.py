"""`r` on the live screen: a file with what was, and what comes, until it is pressed again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from llmtop.model import NS_PER_S
from llmtop.parsers.registry import recording_at
from llmtop.tui.screens.live import LiveApp
from tests.tui.live_app import fixed_app, press, running
from tests.tui.quiet import wait_until


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where recordings go."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("llmtop.session_recording.PERIOD_S", 0.01)
    monkeypatch.setattr("llmtop.tui.screens.live_screen._RECORDING_TOLD_S", 0.05)
    return tmp_path / "llmtop" / "recordings"


def said(app: LiveApp) -> list[str]:
    return [one.message for one in app._notifications]


@pytest.mark.parametrize("width", [80, 160])
async def test_it_keeps_what_was_and_says_where_it_is(width: int, folder: Path) -> None:
    app = fixed_app()
    async with running(app, (width, 24)) as pilot:
        assert "rec " not in app.screen_text().splitlines()[0]
        await press(pilot, "r")
        (path,) = folder.iterdir()
        await wait_until(pilot, lambda: f"KiB {path.name}" in app.screen_text().splitlines()[0])
        assert "live" in app.screen_text().splitlines()[0]
        await press(pilot, "r")
        await wait_until(pilot, lambda: bool(said(app)))
        assert said(app)[0].startswith("recorded 00:00:0")
        assert said(app)[0].endswith(f": llmtop open {path}")
        await wait_until(pilot, lambda: "rec " not in app.screen_text().splitlines()[0])
    recording = recording_at(path)
    assert recording is not None
    trace = recording.trace(recording.times[-1])
    assert trace.end_ns - trace.start_ns == 89 * NS_PER_S
    assert max(map(len, trace.series.values())) == 90


async def test_each_recording_is_a_file_of_its_own(folder: Path) -> None:
    app = fixed_app()
    async with running(app) as pilot:
        for count in (1, 2):
            await press(pilot, "r", "r")
            await wait_until(pilot, lambda count=count: len(said(app)) == count)  # type: ignore[misc]
    assert len(list(folder.iterdir())) == 2


async def test_a_recording_ends_with_the_program(folder: Path) -> None:
    app = fixed_app()
    async with running(app) as pilot:
        await press(pilot, "r")
    assert app.live.recording is not None
    assert not app.live.recording.is_running
    assert app.live.recording.failure == ""


async def test_a_full_disk_is_said_and_the_screen_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(file: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    app = fixed_app()
    async with running(app) as pilot:
        await press(pilot, "r")
        (path,) = folder.iterdir()
        monkeypatch.setattr(os, "pwrite", pwrite)
        await wait_until(pilot, lambda: bool(said(app)))
        assert said(app) == [f"the recording has stopped: No space left on device; {path} has all up to then"]
        assert "run 64 wait" in app.screen_text()


async def test_where_no_file_can_be_made_that_is_said(tmp_path: Path, folder: Path) -> None:
    folder.parent.write_text("in the way")
    app = fixed_app()
    async with running(app) as pilot:
        await press(pilot, "r")
        assert len(said(app)) == 1
        assert "cannot be written: " in said(app)[0]
        assert app.live.recording is None
