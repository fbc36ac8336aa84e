"""What every screen of llmtop has in common: faults, colours, help, screenshots."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from textual.actions import ActionParseResult
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.widget import Widget

from llmtop.errors import LlmtopError, print_message
from llmtop.files import new_stem, write_whole
from llmtop.model import Issue, Severity
from llmtop.text import clean, hide_keys
from llmtop.tui.driver import TerminalApp, TerminalDriver
from llmtop.tui.faults import FaultBorder, border_around, fault_text
from llmtop.tui.gate import FrameGate
from llmtop.tui.idle_keys import bind_idle_keys, why_idle
from llmtop.tui.key_names import key_name
from llmtop.tui.large_pages import use_large_pages
from llmtop.tui.panes.base import DiffedWidget, Pane
from llmtop.tui.render.look import ASCII, MONO, ROLES, UNICODE, Look
from llmtop.tui.screens.help import HelpScreen
from llmtop.tui.screens.holding import SHORT_S, HoldingScreen
from llmtop.tui.terminal import color_depth, drawn_on, is_ascii_only, is_remote
from llmtop.tui.textual_private import bindings_of, forget_lines, screen_strips

if TYPE_CHECKING:
    from textual.await_complete import AwaitComplete
    from textual.color import Color
    from textual.dom import DOMNode
    from textual.notifications import SeverityLevel
    from textual.screen import Screen


_GIVE_BACK_S = 60.0
"""How often freed memory goes back to the system: a fifth of all, after half an hour without."""
_GARBAGE = (20_000, 20, 20)
"""After how many new objects Python looks for cycles among them (gc.set_threshold). A frame makes thousands that are
freed without: at the usual 700 an eighth of the screen's time was spent looking, and the largest frame makes 15,000."""

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


class LlmtopApp(TerminalApp[int]):
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
        # Before all screens, and before fields that take text.
        Binding(
            "ctrl+c", "interrupt", "leave", show=False, priority=True, tooltip="Copy what is marked, or else leave"
        ),
        Binding(
            "ctrl+z", "suspend_process", "stop", show=False, priority=True, tooltip="Stop; fg in the shell goes on"
        ),
    ]

    def __init__(self) -> None:
        colors = color_depth(os.environ)
        # With native colours Textual's NO_COLOR filter removes every colour; without, it sends RGB greys.
        super().__init__(ansi_color=True if colors == 0 else None)
        bind_idle_keys(self)
        self.register_theme(_THEME)
        self.theme = "ansi-dark" if colors <= 16 else _THEME.name
        stream = drawn_on(sys.__stdout__, sys.__stderr__) or sys.__stderr__
        self.ascii_only = is_ascii_only(os.environ, getattr(stream, "encoding", None))
        self._glyphs = ASCII if self.ascii_only else MONO if colors == 0 else UNICODE
        self.issues: list[Issue] = []
        self._notices: dict[str, float] = {}
        self.gate = FrameGate(self._ask_terminal, time.monotonic)
        self._looks: dict[Color, Look] = {}
        self.set_class(self.ascii_only, "-ascii")

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._on_theme)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh())
        self.set_interval(_GIVE_BACK_S, give_back_memory)

    def pop_screen(self) -> AwaitComplete:
        """Leave a screen, and what was drawn on it."""
        for widget in self.screen.walk_children(Widget, with_self=True):
            forget_lines(widget)
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

    def frame_drawn(self, *, is_sent: bool) -> None:
        """Call after all panes were shown a new trace: shuts the gate until the terminal has drawn it.

        Args:
            is_sent: It is on its way already; else it will be with Textual's next refresh.
        """
        if self.is_headless:
            return
        if is_sent:
            self.gate.frame_sent()
        else:
            self.call_after_refresh(self.gate.frame_sent)

    def _ask_terminal(self) -> None:
        if isinstance(self.driver, TerminalDriver):
            self.driver.ask_cursor(self.gate.answered)

    # -- faults ------------------------------------------------------------------------------------------------

    def on_fault_border_failed(self, message: FaultBorder.Failed) -> None:
        self._note(message.issue)

    def _note(self, issue: Issue) -> None:
        """Keep a fault; the same again is counted."""
        at = next((i for i, known in enumerate(self.issues) if replace(known, count=1) == issue), None)
        if at is None:
            self.issues.append(issue)
        else:
            self.issues[at] = replace(issue, count=self.issues[at].count + 1)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do what a key stands for; a fault in it costs the key."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except Exception as error:  # the border: what is shown stays as it is
            self.key_failed(default_namespace, error)
            return True

    def key_failed(self, node: DOMNode | None, error: Exception) -> None:
        """Say once that a key of a part of the screen has failed."""
        said = fault_text(error, "key")
        issue = Issue(Severity.ERROR, f"key-{type(border_around(node) or self).__name__.lower()}", said)
        if issue not in (replace(known, count=1) for known in self.issues):
            self.notify(said, severity="error", markup=False)
        self._note(issue)

    def clear_notifications(self) -> None:
        """Take away all that is said, which may then be said again."""
        self._notices.clear()
        super().clear_notifications()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Say something, once as long as it stands there: a key that is held would cover the view with it."""
        now = time.monotonic()
        self._notices = {said: until for said, until in self._notices.items() if until > now}
        if message not in self._notices:
            self._notices[message] = now + (self.NOTIFICATION_TIMEOUT if timeout is None else timeout)
            super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def take_fault(self, pump: object, error: Exception) -> bool:
        """Faults outside of a message's dispatch have a border too."""
        if isinstance(pump, FaultBorder):
            pump.fail(error)
            return True
        return False

    @property
    def shows_traceback(self) -> bool:
        """Whether it ends with a page about its fault; `run_app` says it in one line."""
        return os.environ.get("LLMTOP_DEBUG", "0") not in ("", "0")

    # -- actions -----------------------------------------------------------------------------------------------

    def action_help(self) -> None:
        """Show what every key does here."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def action_idle_key(self, key: str) -> None:
        """Say why a key does nothing."""
        if isinstance(self.screen, HoldingScreen):
            said = why_idle(key, self.screen.contents(), self.screen.all_views())
            self.notify(said, severity="warning", markup=False, timeout=SHORT_S)

    def action_interrupt(self) -> None:
        """Copy what the mouse has marked; where nothing is marked, leave as from any program of a shell."""
        marked = self.screen.get_selected_text()
        if marked:
            self.copy_to_clipboard(marked)
            self.screen.clear_selection()
        else:
            self.exit(return_code=128 + signal.SIGINT)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy without keys: what is copied is pasted anywhere."""
        super().copy_to_clipboard(hide_keys(text))

    def action_save_screen(self) -> None:
        """Write the screen as SVG and as text, never beside an input, and say where."""
        try:
            stem = new_stem()
            write_whole(
                {
                    stem.with_suffix(".svg"): hide_keys(self.export_screenshot()),
                    stem.with_suffix(".txt"): hide_keys(self.screen_text()),
                },
                is_new=True,
            )
        except OSError as error:
            self.notify(f"no screenshot: {clean(str(error))}", severity="error", markup=False)
        else:
            self.notify(f"wrote {stem}.svg and .txt", markup=False)

    def screen_text(self) -> str:
        """What the screen shows, without colours."""
        return "\n".join(strip.text.rstrip() for strip in screen_strips(self.screen)) + "\n"

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette's commands: all that a key does on the screen, by pane, and Textual's colours."""
        found: dict[str, SystemCommand] = {}
        for active in screen.active_bindings.values():
            if active.enabled:
                self._add_command(found, "", active.binding, active.node)
        for pane in screen.query("*"):
            if isinstance(pane, Pane) and pane.number:
                for binding in bindings_of(pane):
                    self._add_command(found, f"{pane.number} {pane.title}: ", binding, pane)
        yield from found.values()
        yield from (one for one in super().get_system_commands(screen) if one.title == "Theme")

    def _add_command(self, found: dict[str, SystemCommand], head: str, binding: Binding, node: DOMNode) -> None:
        text = binding.tooltip or binding.description
        title = f"{head}{text}"
        if text and not any(known == title or (head and known == text) for known in found):
            found[title] = SystemCommand(title, f"key: {key_name(binding.key)}", self._runner(binding.action, node))

    def _runner(self, action: str, node: DOMNode) -> Callable[[], Awaitable[bool]]:
        def run() -> Awaitable[bool]:
            if isinstance(node, Pane):
                node.focus()
            return self.run_action(action, node)

        return run


def settle() -> None:
    """Leave what there is by now out of all later searches for garbage, and move it into large pages.

    To go through all of the live screen takes as long as five frames. Once only: what of it comes to refer only to
    itself, such as a screen that was open then, is never freed. To move it takes 0.1 s of the processor in all, and
    Python goes on meanwhile.
    """
    gc.collect()
    gc.freeze()
    threading.Thread(target=use_large_pages, name="large pages", daemon=True).start()


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
    gc.set_threshold(*_GARBAGE)
    app.run(mouse=not is_remote(os.environ) if mouse is None else mouse)
    if app.fault is not None:
        print_message(_sentence(app.fault))
        return app.fault.exit_code if isinstance(app.fault, LlmtopError) else 1
    return app.return_code or app.return_value or 0


def _sentence(fault: Exception) -> str:
    if isinstance(fault, LlmtopError):
        return str(fault)
    return f"{type(fault).__name__}: {fault}; please report this (LLMTOP_DEBUG=1 shows the traceback)"
