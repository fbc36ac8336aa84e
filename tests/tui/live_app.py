"""The live app over a trace that does not change: what is on the screen then depends on nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from llmtop.model import Origin, Target, Trace
from llmtop.session import Session
from llmtop.tui.screens.live import LiveApp
from tests.live_traces import TARGET, Scene, live_trace


class FixedSession(Session):
    """A session without collectors that knows one trace; `now` may be replaced by a newer one."""

    def __init__(self, trace: Trace) -> None:
        super().__init__((), Origin("live"))
        self.now = trace

    def trace(self) -> Trace:
        return self.now


def fixed_app(scene: Scene | None = None, *, target: Target | None = TARGET, ticks: int = 90) -> LiveApp:
    """An app to run in a test; call `app.live.refresh_trace()` to draw."""
    return LiveApp(FixedSession(live_trace(scene, ticks)), target)


def session_of(app: LiveApp) -> FixedSession:
    """The session that the app was made with."""
    assert isinstance(app.session, FixedSession)
    return app.session


@asynccontextmanager
async def running(
    app: LiveApp, size: tuple[int, int] = (120, 40), *, keys: Sequence[str] = (), faults: Sequence[str] = ()
) -> AsyncIterator[Pilot[Any]]:
    """The app with its first frame drawn, and keys pressed; at the end no pane has failed but those told (`faults`)."""
    async with app.run_test(size=size, notifications=True) as pilot:
        app.live.refresh_trace()
        await pilot.pause()
        await press(pilot, *keys)
        yield pilot
        assert [issue.code for issue in app.issues] == list(faults)


async def press(pilot: Pilot[Any], *keys: str) -> str:
    """Type, and give the screen's text when all is drawn."""
    await pilot.press(*keys)
    await pilot.pause()
    text: str = pilot.app.screen_text()  # type: ignore[attr-defined]
    return text
