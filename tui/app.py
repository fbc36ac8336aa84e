"""What every screen of llmtop has in common: faults, colours, help, screenshots."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.widget import Widget

from llmtop.errors import LlmtopError
from llmtop.text import clean
from llmtop.tui.driver import TerminalDriver
from llmtop.tui.gate import FrameGate
from llmtop.tui.panes.base import DiffedWidget, Pane
from llmtop.tui.render.look import ASCII, MONO, ROLES, UNICODE, Look
from llmtop.tui.screens.help import HelpScreen
from llmtop.tui.terminal import color_depth, is_ascii_only, is_remote
from llmtop.tui.update import NarrowUpdate

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual import events
    from textual.await_complete import AwaitComplete
    from textual.color import Color
    from textual.screen import Screen

    from llmtop.model import Issue

_GIVE_BACK_S = 60.0
"""How often freed memory goes back to the system: a fifth of all, after half an hour without."""

# Backgrounds from the 256-colour cube's greys: 256-colour terminals turn others into navy.
_THEME = Theme(
    name="llmtop",
    primary="#5fafff",
    secondary="#87d7ff",
    accent="#ffaf5f",
    foreground="#d0d0d0",
    background="#121212",
    surface="#121212",
    panel="#303030",
    success="#87d787",
    warning="#ffd75f",
    error="#ff5f5f",
    variables={"border": "#4e4e4e", "border-blurred": "#4e4e4e", "footer-background": "#1c1c1c"},
)


class LlmtopApp(App[int]):
    """The base of the live screen and the explorer.

    Textual calls the `on_mount` of this class and of a subclass both: a subclass never calls it itself.
    """

    CSS_PATH = Path(__file__).with_name("llmtop.tcss")
    TITLE = "llmtop"
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"look--{role}" for role in ROLES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit", tooltip="Leave"),
        Binding("question_mark", "help", "help", key_display="?", tooltip="This list"),
        Binding("s", "save_screen", "screenshot", show=False, tooltip="Save the screen as SVG and as text"),
    ]

    def __init__(self) -> None:
        colors = color_depth(os.environ)
        # With native colours Textual's NO_COLOR filter removes every colour; without, it sends RGB greys.
        super().__init__(driver_class=TerminalDriver, ansi_color=True if colors == 0 else None)
        self.register_theme(_THEME)
        self.theme = "ansi-dark" if colors <= 16 else _THEME.name
        self.ascii_only = is_ascii_only(os.environ, getattr(sys.__stderr__, "encoding", None))
        self._glyphs = ASCII if self.ascii_only else MONO if colors == 0 else UNICODE
        self.issues: list[Issue] = []
        self.fault: Exception | None = None
        self.gate = FrameGate(self._ask_terminal, time.monotonic)
        self._looks: dict[Color, Look] = {}
        self.set_class(self.ascii_only, "-ascii")

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._on_theme)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh())
        self.set_interval(_GIVE_BACK_S, give_back_memory)

    def pop_screen(self) -> AwaitComplete:
        """Leave a screen, and what was drawn on it: Textual keeps that of a thousand widgets that are no more.

        https://github.com/Textualize/textual/issues/6665
        """
        for widget in self.screen.walk_children(Widget, with_self=True):
            widget._styles_cache.clear()
        return super().pop_screen()

    # -- colours -----------------------------------------------------------------------------------------------

    def look_over(self, background: Color) -> Look:
        """The styles of all roles over a background."""
        look = self._looks.get(background)
        if look is None:
            look = self._looks[background] = self._make_look(background)
        return look

    def _make_look(self, background: Color) -> Look:
        over = Style(bgcolor=background.rich_color)
        styles = {role: over + self.get_component_styles(f"look--{role}").partial_rich_style for role in ROLES}
        return Look(self._glyphs, styles)

    def _on_theme(self, _: Theme) -> None:
        self._looks.clear()
        for screen in self.screen_stack:
            for widget in screen.query("*"):
                if isinstance(widget, DiffedWidget):  # a query by class knows only the first base of a widget
                    widget.redraw()

    # -- frames ------------------------------------------------------------------------------------------------

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, NarrowUpdate.of(renderable) if isinstance(renderable, ChopsUpdate) else renderable)

    def frame_sent(self) -> None:
        """Call after all panes were shown a new trace: shuts the gate until the terminal has drawn it."""
        if not self.is_headless:
            self.call_after_refresh(self.gate.frame_sent)

    def _ask_terminal(self) -> None:
        if isinstance(self._driver, TerminalDriver):
            self._driver.ask_cursor()

    def on_cursor_position(self, _: events.CursorPosition) -> None:
        self.gate.answered()

    # -- faults ------------------------------------------------------------------------------------------------

    def on_pane_failed(self, message: Pane.Failed) -> None:
        self.issues.append(message.issue)

    def _fatal_error(self) -> None:
        """End after a fault without a page of traceback: `run_app` says it in one line."""
        self.fault = self._exception
        if os.environ.get("LLMTOP_DEBUG", "0") not in ("", "0"):
            super()._fatal_error()
        else:
            self._close_messages_no_wait()

    # -- actions -----------------------------------------------------------------------------------------------

    def action_help(self) -> None:
        """Show what every key does here."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def action_save_screen(self) -> None:
        """Write the screen as SVG and as text, never beside an input, and say where."""
        folder = Path(os.environ.get("LLMTOP_SCREENSHOTS") or Path.home())
        stem = folder / f"llmtop-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stem.with_suffix(".svg").write_text(self.export_screenshot(), encoding="utf-8")
            stem.with_suffix(".txt").write_text(self.screen_text(), encoding="utf-8")
        except OSError as error:
            self.notify(f"no screenshot: {clean(str(error))}", severity="error", markup=False)
        else:
            self.notify(f"wrote {stem}.svg and .txt", markup=False)

    def screen_text(self) -> str:
        """What the screen shows, without colours."""
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips()) + "\n"

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette's commands: Textual's own, without its screenshot (ours also writes text)."""
        hidden = {"Screenshot", "Keys"}
        return (command for command in super().get_system_commands(screen) if command.title not in hidden)


def give_back_memory() -> None:
    """Free what only refers to itself, and return freed pages to the system.

    Each line that Textual has drawn holds itself (`Strip.divide` caches it as its own only part), and Python looks
    through its oldest objects only when there are a quarter more of them: every ten minutes here. glibc keeps pages
    that lie between others in use.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # musl has none, and keeps no such pages
        trim(0)


def run_app(app: LlmtopApp, *, mouse: bool | None = None) -> int:
    """Run to the end and give the exit code; a fault is one line on stderr, after the screen is gone.

    `guard` must have passed. Without `mouse` the mouse is on, except over SSH, where each movement costs bytes and
    selecting text is what a mouse is for.
    """
    gc.freeze()  # modules and classes stay to the end: no need to look through them for garbage
    app.run(mouse=not is_remote(os.environ) if mouse is None else mouse)
    if app.fault is not None:
        sys.stderr.write(f"llmtop: {_sentence(app.fault)}\n")
        return app.fault.exit_code if isinstance(app.fault, LlmtopError) else 1
    return app.return_code or app.return_value or 0


def _sentence(fault: Exception) -> str:
    if isinstance(fault, LlmtopError):
        return str(fault)
    text = clean(" ".join(str(fault).split()))
    return f"{type(fault).__name__}: {text}; please report this (LLMTOP_DEBUG=1 shows the traceback)"
