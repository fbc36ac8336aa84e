"""All findings with their evidence, and what cannot be known here and how to get it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import NS_PER_S, Severity
from llmtop.tui.panes.bar import KeyBar
from llmtop.tui.panes.base import DiffedWidget, in_roles, look_of, retitle
from llmtop.tui.panes.findings import SEVERITY_ROLES, severity_mark
from llmtop.tui.render.lines import fill, line, prose, width_of, wrap
from llmtop.tui.screens.base import FullScreen

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.model import Finding, Issue, Missing, Trace, Unknown
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Look


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
        self._lines = _Lines()
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

    def _draw(self, *, keeps_length: bool = False) -> None:
        width, look = max(20, self.size.width - 4), look_of(self)
        lines = draw_diagnosis(self._paragraphs, width, look)
        strips = [line(parts, width, look) for parts in lines]
        # A line less leaves a blank one: of another length all of it would be sent again, each time.
        length = max(len(strips), self._lines.length) if keeps_length else len(strips)
        self._lines.show(fill(strips, width, length, look))


class _Lines(DiffedWidget):
    """A text as long as it is, in a box that scrolls: of a new one only what differs is sent."""

    @property
    def length(self) -> int:
        """Lines that it has, blank ones at its end too."""
        return len(self._strips)

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


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A mark or a label, and a text that wraps beside it."""

    label: str
    label_role: str
    text: str
    role: str = "text"
    indent: int = 0


def diagnosis(trace: Trace, issues: Sequence[Issue], diagnosed: Diagnosis) -> Iterator[Paragraph]:
    """Findings with evidence, then faults, what is missing and how to get it, and which rules could not judge."""
    if not diagnosed.findings:
        yield Paragraph("", "dim", f"{diagnosed.verdict[:1].upper()}{diagnosed.verdict[1:]}.", "value")
        yield _BLANK
    for finding in diagnosed.findings:
        yield from _finding(finding)
    yield from _faults((*trace.issues, *issues))
    yield from _missing(trace.missing)
    yield from _unjudged(diagnosed)


def draw_diagnosis(paragraphs: Sequence[Paragraph], width: int, look: Look) -> list[list[Part]]:
    """Lines of parts, wrapped beside their labels."""
    lines: list[list[Part]] = []
    for one in paragraphs:
        mark = severity_mark(Severity(one.label), look) if one.label in _SEVERITIES else one.label
        head = " " * one.indent + mark
        margin = width_of(head) + (1 if mark else 0)
        for i, row in enumerate(wrap(one.text, max(10, width - margin), look) or [""]):
            first: Part = (head + " " if mark else head, one.label_role)
            lines.append([first if i == 0 else (" " * margin, "text"), (row, one.role)])
    return lines


_SEVERITIES = frozenset(severity.value for severity in Severity)
_BLANK = Paragraph("", "text", "")


def _finding(finding: Finding) -> Iterator[Paragraph]:
    role = SEVERITY_ROLES[finding.severity]
    yield Paragraph(finding.severity.value, role, f"{finding.message}  [{finding.subject}]", "value", 1)
    yield Paragraph("do  ", "dim", finding.action, indent=3)
    if finding.next_command:
        yield Paragraph("next", "dim", finding.next_command, "accent", 3)
    for evidence in finding.evidence:
        yield Paragraph("-", "dim", evidence, indent=5)
    rule = f"{finding.rule} ({finding.source})" if finding.source else finding.rule
    yield Paragraph("rule", "dim", rule, "dim", 3)
    yield _BLANK


def _unjudged(diagnosed: Diagnosis) -> Iterator[Paragraph]:
    """Each reason once, with the rules that it keeps from judging."""
    if not diagnosed.unjudged:
        return
    yield Paragraph("", "title", "Rules that lack data: what they look for may be there unseen", "title")
    yield from _reasons([(one.rule, one.why) for one in diagnosed.unjudged], most=len(diagnosed.unjudged))


def _missing(missing: Sequence[Missing]) -> Iterator[Paragraph]:
    """Each reason once: eight GPUs without GPM are one thing to know."""
    if not missing:
        return
    yield Paragraph("", "title", "What cannot be seen here, and how to change that", "title")
    yield from _reasons([(one.what, one.why) for one in missing])


def _reasons(lacking: Sequence[tuple[str, Unknown]], most: int = 3) -> Iterator[Paragraph]:
    whats: dict[tuple[str, str], list[str]] = {}
    for what, why in lacking:
        whats.setdefault((why.reason, why.remedy), []).append(what)
    for (reason, remedy), names in whats.items():
        yield Paragraph(f"{_named(names, most)}:", "value", reason, indent=1)
        if remedy:
            yield Paragraph("", "text", remedy, "accent", 3)
    yield _BLANK


def _named(names: Sequence[str], most: int) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _faults(issues: Sequence[Issue]) -> Iterator[Paragraph]:
    if not issues:
        return
    yield Paragraph("", "title", "Faults in the data", "title")
    for issue in issues:
        times = f" ({issue.count} times)" if issue.count > 1 else ""
        role = SEVERITY_ROLES[issue.severity]
        yield Paragraph(issue.severity.value, role, issue.message + times, indent=1)
    yield _BLANK
