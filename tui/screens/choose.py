"""Which of several servers to watch."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from llmtop.model import Target
from llmtop.servers.recognise import in_cells
from llmtop.text import shorten
from llmtop.tui.driver import TerminalApp
from llmtop.tui.idle_keys import bind_idle_keys
from llmtop.tui.key_names import key_name
from llmtop.tui.render.lines import width_of
from llmtop.tui.screens.holding import SHORT_S

_DIGITS = 9
_WIDEST = 32
"""Cells for a cell: a model's name may be longer."""


class ChooseApp(TerminalApp[Target | None]):
    """A list of servers; Enter takes one."""

    TITLE = "llmtop"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "quit", "leave"),
        *(Binding(str(n), f"take({n})", show=False) for n in range(1, _DIGITS + 1)),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False
    CSS = "OptionList { text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, servers: Sequence[Target]) -> None:
        super().__init__()
        self._servers = servers
        bind_idle_keys(self)

    def compose(self) -> ComposeResult:
        """The question, the list, the keys."""
        yield Static(
            Content(f" llmtop: {len(self._servers)} LLM servers run here. Which one? (↑ ↓ and Enter, or its number)")
        )
        yield OptionList(*(Option(Content(text)) for text in describe(self._servers)), markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Draw all of it anew where the program goes on after it was stopped."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh())

    def action_take(self, number: int) -> None:
        """Leave with the server that has this number."""
        if number <= len(self._servers):
            self.exit(self._servers[number - 1])
        else:
            self._say(f"{number}: there are {len(self._servers)} servers")

    def action_idle_key(self, key: str) -> None:
        """Say that a key does nothing, and which do something."""
        self._say(f"{key_name(key)} does nothing here: arrows and Enter, or a number, take a server; q leaves")

    def _say(self, what: str) -> None:
        self.notify(what, severity="warning", markup=False, timeout=SHORT_S)

    def action_interrupt(self) -> None:
        """Leave as from any program of a shell."""
        self.exit(return_code=128 + signal.SIGINT)

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


def describe(servers: Sequence[Target]) -> list[str]:
    """A line each, in columns: what it serves, which process, where it listens, since when, its GPUs and container."""
    rows = [tuple(shorten(cell, _WIDEST) for cell in in_cells(server)) for server in servers]
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    cells = [[cell + " " * (width - width_of(cell)) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return [
        f"{n if n <= _DIGITS else ' '}  " + "  ".join(cell for cell in row if cell).rstrip()
        for n, row in enumerate(cells, 1)
    ]
