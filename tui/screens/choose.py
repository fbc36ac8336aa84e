"""Which of several servers to watch."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from llmtop.model import Target, Unknown
from llmtop.tui.driver import TerminalDriver


class ChooseApp(App[Target | None]):
    """A list of servers; Enter takes one."""

    TITLE = "llmtop"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("escape", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, servers: Sequence[Target]) -> None:
        super().__init__(driver_class=TerminalDriver)
        self._servers = servers

    def compose(self) -> ComposeResult:
        """The question, the list, the keys."""
        yield Static(Content(f" llmtop: {len(self._servers)} LLM servers run here. Which one? (Enter watches it)"))
        yield OptionList(*(Option(Text(describe(server))) for server in self._servers), markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Draw all of it anew where the program goes on after it was stopped."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh())

    def action_interrupt(self) -> None:
        """Leave as from any program of a shell."""
        self.exit(return_code=128 + signal.SIGINT)

    def action_suspend_process(self) -> None:
        """Give the terminal back to the shell until it brings the program to the foreground again."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.suspend()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Leave with the chosen server."""
        self.exit(self._servers[event.option_index])


def choose_target(servers: Sequence[Target]) -> Target | None:
    """Ask; None when the user leaves without choosing.

    Raises:
        SystemExit: A signal or a hang-up ended it: 128 + its number.
    """
    app = ChooseApp(servers)
    target = app.run()
    if app.return_code:
        raise SystemExit(app.return_code)
    return target


def describe(server: Target) -> str:
    """One line: what it serves, which process, where it listens."""
    model = "model unknown" if isinstance(server.model, Unknown) else str(server.model)
    ports = ", ".join(map(str, server.ports)) or "no port"
    return f"{server.title} · {model} · pid {server.root_pid} +{len(server.processes) - 1} · port {ports}"
