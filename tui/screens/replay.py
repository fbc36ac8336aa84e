"""The way into a recording: the live screen, on what another one has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.replay import Replay
from llmtop.tui.app import run_app
from llmtop.tui.screens.live import LiveApp
from llmtop.tui.screens.replay_screen import ReplayScreen

if TYPE_CHECKING:
    from llmtop.recording.reader import RecordingReader


def play_recording(recording: RecordingReader, *, is_playing: bool = False) -> int:
    """Show it until the user leaves: its end, or from its beginning as it goes on; the exit code."""
    replay = Replay(recording)
    if is_playing:
        replay.toggle()
    return run_app(LiveApp(replay, replay.target, screen=ReplayScreen(replay)))
