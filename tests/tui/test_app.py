"""The base of every screen: in a real terminal for signals and faults, by pilot for the rest."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import psutil
import pytest
from rich.segment import Segment
from textual import events
from textual.strip import Strip
from textual.widgets import Static

from llmtop.analysis.threads.flames import Order
from llmtop.tui.app import LlmtopApp, give_back_memory, settle
from llmtop.tui.driver import TerminalApp, TerminalDriver
from llmtop.tui.panes.stacks import StacksPane
from llmtop.tui.render.look import ROLES, Look
from llmtop.tui.screens.help import active_keys
from tests.collectors.processes import eventually
from tests.tui.live_app import fixed_app, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.widget import Widget

    from tests.e2e.terminal import TerminalFactory

ROOT = Path(__file__).resolve().parents[2]


def small(*what: str) -> list[str]:
    return [sys.executable, "-m", "tests.tui.small_app", *what]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_signal_restores_the_terminal(terminal: TerminalFactory, number: signal.Signals) -> None:
    program = terminal(small(), cwd=ROOT)
    program.wait_for("内核")
    program.signal(number)
    assert program.wait_exit() == 128 + number
    assert program.unrestored() == []


def test_ctrl_c_leaves(terminal: TerminalFactory) -> None:
    program = terminal(small(), cwd=ROOT)
    program.wait_for("ready")
    program.press("ctrl+c")
    assert program.wait_exit() == 128 + signal.SIGINT
    assert program.unrestored() == []


def test_ctrl_z_stops_and_the_foreground_goes_on(terminal: TerminalFactory) -> None:
    program = terminal(["sh", "-c", '"$@"; echo ended $?', "sh", *small()], cwd=ROOT)
    program.wait_for("ready")
    program.press("ctrl+z")
    (inner,) = psutil.Process(program.pid).children()
    eventually(lambda: inner.status() == psutil.STATUS_STOPPED)
    eventually(program.restored)
    os.killpg(program.pid, signal.SIGCONT)
    program.wait_for("ready")
    program.press("q")
    program.wait_for("ended 0")
    assert program.wait_exit() == 0
    assert program.unrestored() == []


def test_errors_may_go_to_a_file(terminal: TerminalFactory, tmp_path: Path) -> None:
    log = tmp_path / "err.log"
    program = terminal(small("file"), cwd=ROOT, stderr=log)
    program.wait_for("ready")
    program.press("x")
    assert program.wait_exit() == 1
    assert log.read_text() == "llmtop: report.ncu-rep is truncated; copy it again\n"
    assert program.unrestored() == []


def test_a_crash_is_one_line_after_the_screen_is_gone(terminal: TerminalFactory) -> None:
    program = terminal(small("crash"), cwd=ROOT)
    program.wait_for("ready")
    program.press("x")
    assert program.wait_exit() == 1
    assert program.unrestored() == []
    text = "\n".join(program.screen_lines())
    assert "llmtop: ValueError: on purpose␛[2J second line; please report this" in text.replace("\n", "")
    assert "Traceback" not in text


def test_a_fault_in_a_pane_ends_nothing(terminal: TerminalFactory) -> None:
    program = terminal(small("pane"), cwd=ROOT)
    program.wait_for("this pane failed: ValueError: in the pane")
    program.press("q")
    assert program.wait_exit() == 0
    assert program.unrestored() == []


def test_frames_go_on_though_the_terminal_does_not_answer(terminal: TerminalFactory) -> None:
    program = terminal(small(), cwd=ROOT, answers=False)
    program.wait_for(lambda text: re.search(r"ready [3-9]\d* 内核", text))
    program.press("q")
    assert program.wait_exit() == 0


def test_no_color_means_no_colour_codes(terminal: TerminalFactory) -> None:
    program = terminal(small(), cwd=ROOT, env={"NO_COLOR": "1", "COLORTERM": "truecolor"})
    program.wait_for("ready")
    program.press("q")
    program.wait_exit()
    codes = [code for found in re.findall(rb"\x1b\[([0-9;]*)m", program.raw) for code in found.split(b";") if code]
    assert codes
    assert {int(code) for code in codes} <= {0, 1, 2, 3, 4, 7, 39, 49}  # weights, and the default colours


@pytest.mark.parametrize("locale", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_an_ascii_terminal_gets_ascii(terminal: TerminalFactory, locale: dict[str, str]) -> None:
    program = terminal(small(), cwd=ROOT, env=locale)
    program.wait_for("ready")
    program.press("q")
    assert program.wait_exit() == 0
    assert program.raw.isascii()
    assert b"\\u" not in program.raw


def test_a_dumb_terminal_is_refused(terminal: TerminalFactory) -> None:
    program = terminal(small(), cwd=ROOT, env={"TERM": "dumb"})
    assert program.wait_exit() == 1
    assert "TERM=dumb cannot show a screen" in "".join(program.screen_lines())


class Empty(LlmtopApp):
    def compose(self) -> ComposeResult:
        yield Static("content", markup=False)


async def test_help_lists_every_key_once() -> None:
    app = Empty()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        lines = active_keys(app.screen)
        assert ("Ctrl+q q", "Leave") in lines
        assert ("?", "This list") in lines
        assert len({text for _, text in lines}) == len(lines)
        await pilot.press("question_mark")
        await pilot.pause()
        assert "Esc closes" in app.screen_text()
        await pilot.press("escape")
        await pilot.pause()
        assert "content" in app.screen_text()


async def test_the_palette_has_what_every_key_does() -> None:
    """The keys of the panes too that have not the focus; running one gives its pane the focus."""
    app = fixed_app()
    async with running(app) as pilot:
        commands = {one.title: one for one in app.get_system_commands(app.screen)}
        assert {"Zoom the focused pane, or back", "Leave", "This list", "Theme"} < commands.keys()
        title = "5 Stall flame: Levels by thread, state, waits, CPU, inverted"
        assert commands[title].help == "key: f"
        await commands[title].callback()
        await pilot.pause()
        flame = app.live.panes.of_kind(StacksPane)
        assert (app.focused, flame.wanted.order) == (flame, Order.BY_STATE)
        assert not {"Maximize", "Screenshot", "Keys"} & commands.keys()


async def test_the_palette_opens_without_a_second_screenshot_command() -> None:
    app = Empty()
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert "Theme" in titles
        assert "Screenshot" not in titles
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert len(app.screen_stack) == 2
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.screen_stack) == 1


async def test_a_screenshot_goes_where_it_is_told_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path / "shots"))
    app = Empty()
    async with app.run_test(size=(200, 24), notifications=True) as pilot:
        await pilot.press("s")
        await pilot.pause()
        written = sorted(path.suffix for path in (tmp_path / "shots").iterdir())
        assert written == [".svg", ".txt"]
        assert "content" in next((tmp_path / "shots").glob("*.txt")).read_text()
        assert [str(tmp_path) in notice.message for notice in app._notifications] == [True]


def test_what_stands_there_is_not_said_again_and_what_is_gone_is() -> None:
    app = Empty()
    said: list[str] = []
    with patch.object(TerminalApp, "notify", lambda _, message, **__: said.append(message)):
        for message in ("no span", "no span", "another", "no span"):
            app.notify(message, timeout=100.0)
        assert said == ["no span", "another"]
        for _ in range(2):
            app.notify("gone at once", timeout=0.0)
        assert said[2:] == ["gone at once", "gone at once"]


async def test_a_screenshot_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file[b]").write_text("")
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path / "file[b]" / "below"))
    app = Empty()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("s")
        await pilot.pause()
        assert [notice.severity for notice in app._notifications] == ["error"]


async def test_what_keys_write_and_copy_has_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range or a thread of a capture may be called like one."""
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path))

    class Telling(LlmtopApp):
        def compose(self) -> Iterator[Widget]:
            yield Static("range ghp_0123456789abcdef", markup=False)

    app = Telling()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s")
        await pilot.pause()
        app.copy_to_clipboard("of https://me:word@host/")
    assert app.clipboard == "of https://[redacted]@host/"
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert len(texts) == 2
    assert all("[redacted]" in text and "0123456789abcdef" not in text for text in texts)


def test_on_a_full_disk_no_broken_file_is_left(tmp_path: Path) -> None:
    """A limit on a file's size ends a write as a full disk does: after a part of it."""
    code = (
        "import resource, sys; from pathlib import Path; from llmtop.files import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); folder = Path(sys.argv[1])\n"
        "try: write_whole({folder / 'a.svg': 'x', folder / 'a.txt': 'y' * 9999})\n"
        "except OSError as error: print(type(error).__name__, sorted(folder.iterdir()))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "OSError []\n"


async def test_every_role_has_a_style_in_every_theme() -> None:
    app = Empty()
    async with app.run_test(size=(80, 24)) as pilot:
        for app.theme in ("llmtop", "textual-light", "ansi-dark"):
            await pilot.pause()
            await pilot.pause()
            look = app.look_over(app.screen.background_colors[1])
            assert all(look.style(role).color is not None for role in ROLES)
            assert look.style("cursor") != look.style("text")


async def test_the_dark_theme_is_the_table_that_tests_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = Empty()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        fixed = Look()
        for role in ROLES:
            style = app.get_component_styles(f"look--{role}").partial_rich_style
            assert (style.color, style.bold or None) == (fixed.style(role).color, fixed.style(role).bold), role


def test_freed_memory_goes_back_to_the_system() -> None:
    """Blocks too small for a mapping of their own, freed below one that is still in use."""
    blocks = [bytes(100_000) for _ in range(1000)]
    above = bytes(100_000)
    before = psutil.Process().memory_info().rss
    del blocks
    give_back_memory()
    assert before - psutil.Process().memory_info().rss > 50e6
    assert above


def test_what_has_settled_is_left_out_of_searches_and_what_comes_later_is_not() -> None:
    class Loop:
        """Refers to itself."""

        def __init__(self) -> None:
            self.own = self

    settled = [Loop() for _ in range(1000)]
    before = gc.get_freeze_count()
    settle()
    try:
        assert gc.get_freeze_count() - before >= len(settled)
        later = weakref.ref(Loop())
        give_back_memory()
        assert later() is None
    finally:
        gc.unfreeze()


async def test_the_terminals_answer_takes_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    app = LlmtopApp()
    answers: list[int] = []
    sent: list[events.Event] = []
    async with app.run_test():
        driver = TerminalDriver(app)
        monkeypatch.setattr(driver, "send_message", sent.append)
        driver.ask_cursor(lambda: answers.append(1))
        driver.process_message(events.CursorPosition(0, 0))
        assert (answers, sent) == ([1], [])
        key = events.Key("a", "a")
        driver.process_message(key)
        assert (answers, sent) == ([1], [key])


def test_lines_that_hold_themselves_are_freed() -> None:
    class Words(str):
        """Text that can be referred to weakly."""

    line = Strip([Segment(Words("busy"))], 4)  # Rich would keep a text that it has to measure
    words = weakref.ref(line._segments[0].text)
    line.divide([line.cell_length])
    gc.disable()
    try:
        del line
        is_held = words() is not None
        give_back_memory()
        assert (is_held, words()) == (True, None)
    finally:
        gc.enable()
