"""All findings with their evidence, and what cannot be known here and how to get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import NS_PER_S, Severity
from llmtop.tui.contents import Contents
from llmtop.tui.panes.bar import KeyBar
from llmtop.tui.panes.base import DiffedWidget, in_roles, look_of, retitle
from llmtop.tui.render.findings import Paragraph, diagnosis, draw_diagnosis
from llmtop.tui.render.lines import fill, line, prose
from llmtop.tui.screens.base import FullScreen

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.model import Issue, Trace
    from llmtop.tui.render.lines import Part


_CALM_NS = 5 * NS_PER_S
"""Numbers that change more often cannot be read. Another finding is drawn at once."""


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
    ]

    def __init__(self, trace: Trace, state: Part, issues: Sequence[Issue] = ()) -> None:
        super().__init__()
        self._lines = _ScrolledText()
        self._state = state
        self._opened_on = trace, issues
        self._paragraphs: tuple[Paragraph, ...] = ()
        self._spoken: tuple[tuple[str, str], ...] = ()
        self._known_issues, self._trace_end_ns = 0, 0

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="diagnosis"):
            yield self._lines
        yield KeyBar()

    def on_mount(self) -> None:
        self._box.focus()
        trace, issues = self._opened_on
        self._read(trace, diagnose(trace), issues)
        self._name_state()

    def show_fault(self, said: str) -> None:
        width, look = max(20, self.size.width - 4), look_of(self)
        self._lines.show(prose(said, width, look, "bad"))

    def on_resize(self) -> None:
        self._draw()

    def show(self, trace: Trace, state: Part, issues: Sequence[Issue] = ()) -> None:
        """Go on to another moment: at once where another finding speaks, else calmly; a new fault is scrolled to."""
        if state != self._state:
            self._state = state
            self._name_state()
        diagnosed = diagnose(trace)
        spoken = _spoken(diagnosed)
        is_calm = 0 <= trace.end_ns - self._trace_end_ns < _CALM_NS
        if is_calm and spoken == self._spoken and len(issues) == self._known_issues:
            return
        is_other = spoken != self._spoken
        is_grave = any(finding.severity is Severity.ERROR for finding in diagnosed.findings[:1])
        is_new_fault = is_grave and spoken[:1] != self._spoken[:1]
        self._read(trace, diagnosed, issues)
        self._draw(keeps_length=not is_other)
        self._name_state()
        if is_new_fault:
            self._box.scroll_home(animate=False)

    def _read(self, trace: Trace, diagnosed: Diagnosis, issues: Sequence[Issue]) -> None:
        self._paragraphs = tuple(diagnosis(trace, issues, diagnosed))
        self._spoken, self._known_issues, self._trace_end_ns = _spoken(diagnosed), len(issues), trace.end_ns

    @property
    def _box(self) -> VerticalScroll:
        return self.query_one("#diagnosis", VerticalScroll)

    def _name_state(self) -> None:
        count = len(self._spoken)
        found = f"{count} finding{'s' * (count != 1)}  " if count else ""
        title = in_roles([(f"Diagnosis  {found}", ""), self._state], look_of(self))
        retitle(self._box, title)

    def contents(self) -> Contents:
        """All of the text, below the screen's edge too."""
        return Contents("Diagnosis", self._lines.text_lines())

    def _draw(self, *, keeps_length: bool = False) -> None:
        width, look = max(20, self.size.width - 4), look_of(self)
        lines = draw_diagnosis(self._paragraphs, width, look)
        strips = [line(parts, width, look) for parts in lines]
        # A line less leaves a blank one: of another length all of it would be sent again, each time.
        length = max(len(strips), self._lines.length) if keeps_length else len(strips)
        self._lines.show(fill(strips, width, length, look))


class _ScrolledText(DiffedWidget):
    """A text as long as it is, in a box that scrolls: of a new one only what differs is sent."""

    @property
    def length(self) -> int:
        """Lines that it has, blank ones at its end too."""
        return len(self._strips)

    def text_lines(self) -> list[str]:
        """The whole text."""
        return [strip.text for strip in self._strips]

    def show(self, strips: Sequence[Strip]) -> None:
        """Take a new text; one of another length is sent whole."""
        if len(strips) != len(self._strips):
            self.styles.height = max(1, len(strips))
        self.send_frame(strips)

    def redraw(self) -> None:
        """The theme has changed; the screen draws it."""
        if isinstance(self.screen, DiagnosisScreen):
            self.screen.on_resize()


def _spoken(diagnosed: Diagnosis) -> tuple[tuple[str, str], ...]:
    """Who says something, of what: numbers in a message change all the time."""
    return tuple((finding.rule, finding.subject) for finding in diagnosed.findings)
