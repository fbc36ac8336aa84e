"""The keys that copy and write what has the focus: the same ones on every screen, for every view."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding, BindingType

from llmtop.files import new_stem, write_whole
from llmtop.model import Unknown
from llmtop.text import clean, hide_keys
from llmtop.tui.aside import Analysed, analyse_on_thread
from llmtop.tui.contents import Contents, Holder, lines_of, row_lines
from llmtop.tui.faults import FaultBorder, fault_text
from llmtop.tui.panes.base import look_of
from llmtop.tui.panes.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORT_S: Final = 2.5
"""How long it is said what a key has done, or why nothing."""
WRITING_THREAD: Final = "llmtop writes"
MOST_COPIED: Final = 74_000
"""Characters: xterm, hterm and tmux take OSC 52 of so many bytes or a few more, and drop longer ones without a word."""


class HoldingScreen(FaultBorder):
    """The keys that copy and write what has the focus. It stands behind Textual's own class among the bases."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy_row", "copy", show=False, tooltip="Copy the row with its details; of a drawing, its text"),
        Binding("Y", "copy_view", "copy all", show=False, tooltip="Copy the view: all its rows as CSV, or its text"),
        Binding("w", "write_view", "write", show=False, tooltip="Write the view to a file: CSV of rows, or its text"),
    ]

    _copied: Contents | None = None
    """What is being made a text of on a thread, to be copied."""

    def contents(self) -> Contents | Unknown:
        """What the part of the screen that has the focus holds."""
        focused = self.screen.focused
        around = [] if focused is None else focused.ancestors_with_self
        holders = [one for one in around if isinstance(one, Holder) and not isinstance(one, HoldingScreen)]
        # The outermost: a table with the details of its rows rather than the table.
        return holders[-1].contents() if holders else Unknown("nothing here has the focus", "Tab gives it to a pane")

    def all_views(self) -> Iterable[View[Any] | type[View[Any]]]:
        """All that it can show."""
        return self.screen.query("*").results(View)

    def action_copy_row(self) -> None:
        """Copy the row under the cursor, or the text of what has none."""
        contents = self._known_contents()
        if contents is None:
            return
        table, at = contents.table, contents.at
        if table is not None and at is not None and at < len(table):
            self._copy("\n".join([*row_lines(table, at, look_of(self)), *contents.lines]), "the row")
        else:
            self._copy(_short_text(Contents(contents.title, contents.lines)), contents.title)

    def action_copy_view(self) -> None:
        """Copy all of the view: its text is made on a thread, as rows may be decoded from a report for it."""
        self._copied = self._known_contents()
        if self._copied is not None:
            analyse_on_thread(self.screen, self._copied, _short_text)

    def on_analysed(self, message: Analysed) -> None:
        """Copy the text that was made, unless something else was to be copied meanwhile."""
        if message.of is not self._copied or self._copied is None:
            return
        title, self._copied = self._copied.title, None
        if isinstance(message.result, Exception):
            self._refuse(fault_text(message.result, "view"))
        else:
            self._copy(message.result, title)

    def action_write_view(self) -> None:
        """Write the view on a thread: a table of a large report takes seconds."""
        contents = self._known_contents()
        if contents is not None:
            threading.Thread(target=self._write, args=(contents,), name=WRITING_THREAD, daemon=True).start()

    def _known_contents(self) -> Contents | None:
        """What is in focus; where there is nothing, that is said."""
        contents = self.contents()
        if isinstance(contents, Unknown):
            self._refuse(str(contents))
            return None
        return contents

    def _copy(self, text: str | None, what: str) -> None:
        if text is None or len(text.encode()) > MOST_COPIED:
            self._refuse(f"{what} is too long for a terminal's clipboard; w writes it to a file")
        elif not text.strip():
            self._refuse(f"{what} is empty: nothing was copied")
        else:
            self.app.copy_to_clipboard(text)
            lines = text.count("\n") + (not text.endswith("\n"))
            self.notify(f"copied {what}: {lines} line{'s' * (lines != 1)}", markup=False, timeout=SHORT_S)

    def _write(self, contents: Contents) -> None:
        """On a thread of its own: may only post."""
        try:
            path = new_stem(contents.title).with_suffix(contents.suffix)
            write_whole({path: hide_keys("".join(contents.written()))}, is_new=True)
            failure = ""
        except OSError as error:
            failure = f"not written: {clean(str(error))}"
        except Exception as error:  # the border of the thread
            failure = fault_text(error, "view")
        if self.is_running:
            self.app.notify(failure or f"wrote {path}", severity="error" if failure else "information", markup=False)

    def _refuse(self, why: str) -> None:
        self.notify(why, severity="warning", markup=False)


def _short_text(contents: Contents) -> str | None:
    """All of it; None where it is too long to be copied: no more of it is made than tells."""
    lines: list[str] = []
    size = 0
    for line in lines_of(contents):
        lines.append(line)
        size += len(line.encode())
        if size > MOST_COPIED:
            return None
    return "".join(lines)
