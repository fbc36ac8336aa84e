"""Which of several servers to watch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop.cli.live import ask
from llmtop.tui import terminal
from llmtop.tui.screens import choose
from llmtop.tui.screens.choose import ChooseApp, describe
from tests.live_traces import TARGET

SERVERS = (TARGET, replace(TARGET, root_pid=77, title="SGLang"))


@pytest.mark.parametrize(
    ("keys", "chosen", "code"),
    [
        (("down", "enter"), SERVERS[1], 0),
        (("2",), SERVERS[1], 0),
        (("3", "q"), None, 0),
        (("q",), None, 0),
        (("escape",), None, 0),
        (("ctrl+c",), None, 130),
    ],
)
async def test_a_key_chooses_or_leaves(keys: tuple[str, ...], chosen: object, code: int) -> None:
    app = ChooseApp(SERVERS)
    async with app.run_test(size=(80, 10)) as pilot:
        await pilot.press(*keys)
    assert (app.return_value, app.return_code or 0) == (chosen, code)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("3", "3: there are 2 servers"),
        ("x", "x does nothing here: arrows and Enter, or a number, take a server; q leaves"),
        ("slash", "/ does nothing here: arrows and Enter, or a number, take a server; q leaves"),
    ],
)
async def test_a_key_that_takes_no_server_says_which_do(key: str, why: str) -> None:
    app = ChooseApp(SERVERS)
    async with app.run_test(size=(80, 10), notifications=True) as pilot:
        await pilot.press(key)
        assert [notice.message for notice in app._notifications] == [why]
        assert app.is_running
        await pilot.press("q")
    assert app.return_value is None


def test_who_leaves_without_one_has_done_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "choose_target", lambda _: None)
    monkeypatch.setattr(terminal, "guard", lambda: None)
    with pytest.raises(SystemExit) as left:
        ask(SERVERS)
    assert left.value.code == 0


def test_servers_are_told_apart_in_columns() -> None:
    other = replace(
        TARGET, root_pid=77, title="SGLang", ports=(), gpus=(), model="/models/a-name-that-has-no-end-and-goes-on"
    )
    first, second = describe((TARGET, other))
    assert first.startswith("1  vLLM    ")
    assert second.startswith("2  SGLang  a-name-that-has-")
    assert first.index("pid ") == second.index("pid ")
    assert "no port yet" in second
