"""The live screen over a recording: the same panes and keys, and more keys that go through time."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.model import LIVE, NS_PER_S, Mark, MarkKind, Severity
from llmtop.recording.reader import RecordingReader
from llmtop.recording.writer import RecordingWriter
from llmtop.replay import Replay
from llmtop.session import Recorder
from llmtop.tui.panes.base import Pane
from llmtop.tui.screens.help import active_keys
from llmtop.tui.screens.live import LiveApp
from llmtop.tui.screens.replay_screen import ReplayScreen
from llmtop.tui.screens.seek import SeekDialog
from tests.live_traces import SOURCES, START_NS, TARGET, Scene, poll
from tests.tui.live_app import FixedSession, press, running

SECONDS = 100
"""More than a stretch of the file."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a server with an event, that was judged once, half a minute later."""
    path = tmp_path_factory.mktemp("recording") / "file"
    writer = RecordingWriter(path, {"host": "gpu-7", "utc_ns": 1_760_000_000 * NS_PER_S})
    recorder = Recorder(LIVE)
    recorder.tell_sources(SOURCES.all)
    for second in range(SECONDS + 1):
        t_ns = START_NS + second * NS_PER_S
        recorder.append("synthetic", poll(Scene(gpus=2), second, t_ns))
        if second == 40:
            recorder.mark(Mark(t_ns, MarkKind.XID, "gpu:0", "fell off the bus", Severity.ERROR))
        writer.write(recorder.freeze(), TARGET)
        if second == 70:
            writer.judge(t_ns, "it is slow", ())
    writer.close()
    return path


def replaying(file: Path) -> LiveApp:
    replay = Replay(RecordingReader(file))
    return LiveApp(replay, replay.target, screen=ReplayScreen(replay))


def replay_of(app: LiveApp) -> Replay:
    assert isinstance(app.session, Replay)
    return app.session


def second(app: LiveApp) -> float:
    return (replay_of(app).at_ns - START_NS) / NS_PER_S


def panes(text: str) -> str:
    """All but the header, which names the moment of a recording, and the keys of the last line."""
    return "\n".join(text.splitlines()[1:-1])


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_the_panes_are_those_that_were_live(file: Path, size: tuple[int, int]) -> None:
    app = replaying(file)
    async with running(app, size) as pilot:
        for keys in ((), ("left",), ("4", "z"), ("z", "e")):
            await press(pilot, *keys)
            recorded = panes(app.screen_text())
            live = LiveApp(FixedSession(replay_of(app).trace()), TARGET)
            async with running(live, size, keys=[key for key in keys if key != "left"]) as beside:
                if keys == ("z", "e"):
                    await press(beside, "4", "e")
                assert panes(live.screen_text()) == recorded


async def test_the_header_says_whose_of_when_and_where(file: Path) -> None:
    app = replaying(file)
    async with running(app, (60, 24)) as pilot:
        for width in (60, 80, 160):
            await pilot.resize_terminal(width, 24)
            header = (await press(pilot)).splitlines()[0]
            assert "recording paused, 00:01:40 of 00:01:40" in header
            assert (", of gpu-7 at 2025-10-09 " in header) == (width > 60)
            assert "live" not in header


async def test_keys_go_through_time(file: Path) -> None:
    app = replaying(file)
    async with running(app) as pilot:
        for keys, at in (
            (["comma"], 99),
            (["comma", "full_stop"], 99),
            (["right"], 100),
            (["left", "left"], 90),
            (["left_curly_bracket"], 40),
            (["right_parenthesis"], 70),
            (["left_curly_bracket", "left_curly_bracket"], 30),  # the preemption of the scene
            (["T", "1", ":", "0", "5", "enter"], 65),
            (["T", "1", "0", "0", "enter", "left_parenthesis"], 70),
            (["T", "minus", "3", "0", "enter"], 40),
            (["T", "9", "escape"], 40),
        ):
            await press(pilot, *keys)
            assert second(app) == at, keys
            assert f"00:0{at // 60}:{at % 60:02} of 00:01:40" in app.screen_text()
        await press(pilot, "T", "x", "enter")
        assert isinstance(app.screen, SeekDialog)
        assert [one.message for one in app._notifications] == ["'x' is no time as 12:31, 1:02:03, +30 or -1:00"]
        await press(pilot, "backspace", "7", "enter")
        assert not isinstance(app.screen, SeekDialog), "what is no time stays to be mended"
        assert second(app) == 7
        assert "00:00:07 of 00:01:40" in await press(pilot, "T"), "the moment that is left stays in sight"
        assert "Go to" in app.screen_text()


async def test_space_plays_and_stands_still(file: Path) -> None:
    app = replaying(file)
    async with running(app) as pilot:
        await press(pilot, "left_curly_bracket", "space")
        assert "recording playing, " in app.screen_text()
        await press(pilot, "right_square_bracket", "right_square_bracket")
        assert "recording playing 5x, " in app.screen_text()
        await press(pilot, "space")
        assert "recording paused, " in app.screen_text()
        assert second(app) >= 40


async def test_a_moment_that_is_stood_at_is_shown_by_every_pane_whatever_its_pace(file: Path) -> None:
    app = replaying(file)
    async with running(app, (160, 50)) as pilot:
        await press(pilot, "left", "full_stop")
        slow = [
            app.live.findings,
            *(pane for pane in app.live.panes.values() if isinstance(pane, Pane) and pane.display),
        ]
        assert {one._trace.end_ns for one in slow if one._trace is not None} == {replay_of(app).at_ns}


async def test_where_nothing_follows_that_is_said_and_a_recording_is_not_recorded(file: Path) -> None:
    app = replaying(file)
    async with running(app) as pilot:
        await press(pilot, "right_curly_bracket", "r")
        assert "no event after this moment" in [one.message for one in app._notifications]
        assert app.live.recording is None


async def test_keys_are_called_as_they_stand_on_the_keyboard(file: Path) -> None:
    app = replaying(file)
    async with running(app) as pilot:
        keys = dict(active_keys(app.screen))
        assert keys["{ }"] == "To the event before or after"
        assert keys["( )"] == "To where the rules found something else, before or after"
        assert "{ }  To the event before or after" in await press(pilot, "question_mark")
