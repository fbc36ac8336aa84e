"""All findings with their evidence, and what cannot be known here and how to get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.rules.core_dump import newest_dump
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import NS_PER_S, Severity
from llmtop.tui.panes.bar import KeyBar
from llmtop.tui.panes.base import in_roles, look_of
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.view import DumpWanted
from llmtop.tui.render.findings import Paragraph, diagnosis, draw_diagnosis
from llmtop.tui.render.lines import line
from llmtop.tui.screens.base import FullScreen

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.model import CoreDump, Issue, Trace
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Look


_CALM_NS = 5 * NS_PER_S
"""Numbers that change more often cannot be read. Another finding is drawn at once."""


class DiagnosisPane(LinesPane["tuple[Paragraph, ...]"]):
    """All paragraphs; which moment they are of is in the border."""

    title = "Diagnosis"

    def __init__(self) -> None:
        super().__init__(id="diagnosis")
        self._state: Part = "", ""
        self._found = 0

    def take(self, paragraphs: tuple[Paragraph, ...] | None, state: Part, found: int = 0) -> None:
        """Show another text (None: the same) as that of a moment."""
        self._state = state
        if paragraphs is not None:
            self._view, self._found = paragraphs, found
        self.redraw()

    def show_fault(self, said: str) -> None:
        self._view = (Paragraph("", "text", said, "bad"),)
        super().show_fault(said)

    def lines(self, view: tuple[Paragraph, ...], width: int, look: Look) -> list[Strip]:
        return [line(parts, width, look) for parts in draw_diagnosis(view, width, look)]

    def subtitle(self, view: tuple[Paragraph, ...]) -> Content:
        said = f"{self._found} finding{'s' * (self._found != 1)}  " if self._found else ""
        search = super().subtitle(view)
        return in_roles([(said, ""), self._state], look_of(self)) + (Content("  ") + search if search else search)


class DiagnosisScreen(FullScreen):
    """All findings of the moment that the live screen shows: it goes on with it, or stands still with it.

    Args:
        trace: The moment to begin with.
        state: How the live screen names it, and the role of that: "live", "35 s ago", "paused".
        issues: Faults of the screen itself.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "back", key_display="Esc"),
        Binding("d", "dismiss", "back", show=False),
        Binding("q", "dismiss", "back", show=False),
        Binding("o", "open_dump", "core dump", tooltip="Open the newest core dump of the server's GPU"),
    ]

    def __init__(self, trace: Trace, state: Part, issues: Sequence[Issue] = ()) -> None:
        super().__init__()
        self._text = DiagnosisPane()
        self._state = state
        self._opened_on = trace, issues
        self._spoken: tuple[tuple[str, str], ...] = ()
        self._known_issues, self._trace_end_ns = 0, 0
        self._dump: CoreDump | None = None

    def compose(self) -> ComposeResult:
        yield self._text
        yield KeyBar()

    def on_mount(self) -> None:
        self._text.focus()
        trace, issues = self._opened_on
        self._read(trace, diagnose(trace), issues)

    def show_fault(self, said: str) -> None:
        self._text.show_fault(said)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._dump is not None if action == "open_dump" else super().check_action(action, parameters)

    def action_open_dump(self) -> None:
        """Open the newest core dump of the moment that is told of."""
        if self._dump is not None:
            self.app.post_message(DumpWanted(self._dump))

    def show(self, trace: Trace, state: Part, issues: Sequence[Issue] = ()) -> None:
        """Go on to another moment: at once where another finding speaks, else calmly; a new fault is scrolled to."""
        if state != self._state:
            self._state = state
            self._text.take(None, self._state)
        diagnosed = diagnose(trace)
        spoken = _spoken(diagnosed)
        is_calm = 0 <= trace.end_ns - self._trace_end_ns < _CALM_NS
        if is_calm and spoken == self._spoken and len(issues) == self._known_issues:
            return
        is_grave = any(finding.severity is Severity.ERROR for finding in diagnosed.findings[:1])
        is_new_fault = is_grave and spoken[:1] != self._spoken[:1]
        if is_new_fault:
            self._text.at = 0
        self._read(trace, diagnosed, issues)

    def _read(self, trace: Trace, diagnosed: Diagnosis, issues: Sequence[Issue]) -> None:
        self._text.take(tuple(diagnosis(trace, issues, diagnosed)), self._state, len(diagnosed.findings))
        self._spoken, self._known_issues, self._trace_end_ns = _spoken(diagnosed), len(issues), trace.end_ns
        self._dump = newest_dump(trace)
        self.refresh_bindings()


def _spoken(diagnosed: Diagnosis) -> tuple[tuple[str, str], ...]:
    """Who says something, of what: numbers in a message change all the time."""
    return tuple((finding.rule, finding.subject) for finding in diagnosed.findings)
