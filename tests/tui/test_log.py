"""What a launched server prints: whole lines, to which one can go back."""

from __future__ import annotations

from typing import cast

from llmtop.servers.launch import Launched
from llmtop.tui.screens.live import LiveApp
from tests.live_traces import TARGET, Scene, live_trace
from tests.tui.live_app import FixedSession, press, running


class Printing:
    """As much of a command that llmtop started as its pane asks for."""

    def __init__(self) -> None:
        self.printed = [f"  line {i}: " + "word " * 20 + "end" for i in range(1, 41)]

    def lines(self, n: int) -> tuple[str, ...]:
        return tuple(self.printed[-n:])

    def poll(self) -> int | None:
        return None


async def test_the_log_is_whole_and_goes_on_until_one_goes_back_in_it() -> None:
    server = Printing()
    app = LiveApp(FixedSession(live_trace(Scene(), 90)), TARGET, launched=cast("Launched", server))
    async with running(app, (80, 24), keys=("7", "z")) as pilot:
        text = await press(pilot)
        assert "│  line 40: word" in text, "blanks say something in a traceback"
        assert "lines 63 to 80 of 80" in text
        assert "end  " in text
        server.printed.append("one more")
        app.live.refresh_trace()
        assert "one more" in await press(pilot)
        back = await press(pilot, "pageup")
        assert "one more" not in back
        server.printed.append("and another")
        app.live.refresh_trace()
        assert "lines 48 to 65 of 82" in await press(pilot), "it stays where one reads"
        assert "and another" in await press(pilot, "end")
        server.printed.append("the last one")
        app.live.refresh_trace()
        assert "the last one" in await press(pilot)
        assert "/line 3:_ 1 of 1" in await press(pilot, "slash", *"line 3:")
