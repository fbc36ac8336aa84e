"""All findings with their evidence, and what cannot be known here and how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from llmtop.analysis.rules.registry import diagnose
from llmtop.tui.panes.base import look_of
from llmtop.tui.panes.findings import SEVERITY_ROLES, severity_mark
from llmtop.tui.panes.keys import KeysLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.app import ComposeResult

    from llmtop.model import Finding, Issue, Missing, Trace
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Look

_INDENT = "     "


class DiagnosisScreen(Screen[None]):
    """A still picture of the moment it was opened: text that moves cannot be read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "back", key_display="Esc"),
        Binding("d", "dismiss", "back", show=False),
        Binding("q", "dismiss", "back", show=False),
    ]

    def __init__(self, trace: Trace, issues: Sequence[Issue] = ()) -> None:
        super().__init__()
        self._trace = trace
        self._issues = (*trace.issues, *issues)

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="diagnosis") as box:
            box.border_title = Content("Diagnosis")
            yield Static(id="text")
        yield KeysLine()

    def on_mount(self) -> None:
        look = look_of(self)
        text = Text.assemble(*((text, look.style(role)) for text, role in self._parts(look)))
        self.query_one("#text", Static).update(text)
        self.query_one("#diagnosis").focus()

    def _parts(self, look: Look) -> Iterator[Part]:
        findings = diagnose(self._trace)
        if not findings:
            yield "No findings: no rule saw two signals that agree.\n\n", "dim"
        for finding in findings:
            yield from _finding(finding, look)
        yield from _missing(self._trace.missing)
        yield from _faults(self._issues)


def _finding(finding: Finding, look: Look) -> Iterator[Part]:
    role = SEVERITY_ROLES[finding.severity]
    yield f" {severity_mark(finding.severity, look)} ", role
    yield f"{finding.message}", "value"
    yield f"  [{finding.subject}]\n", "dim"
    for evidence in finding.evidence:
        yield f"{_INDENT}{look.glyphs.separator} {evidence}\n", "text"
    for label, text in (("do", finding.action), ("next", finding.next_command), ("rule", _rule(finding))):
        if text:
            yield f"{_INDENT}{label:<5}", "dim"
            yield f"{text}\n", "accent" if label == "next" else "text"
    yield "\n", "text"


def _rule(finding: Finding) -> str:
    return f"{finding.rule} ({finding.source})" if finding.source else finding.rule


def _missing(missing: Sequence[Missing]) -> Iterator[Part]:
    """Each reason once: eight GPUs without GPM are one thing to know."""
    if not missing:
        return
    yield "What cannot be seen here, and how to change that\n", "title"
    whats: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        whats.setdefault((one.why.reason, one.why.remedy), []).append(one.what)
    for (reason, remedy), names in whats.items():
        yield f" {_named(names)}: ", "value"
        yield f"{reason}\n", "text"
        if remedy:
            yield f"{_INDENT}{remedy}\n", "accent"
    yield "\n", "text"


def _named(names: Sequence[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _faults(issues: Sequence[Issue]) -> Iterator[Part]:
    if not issues:
        return
    yield "Faults in the data\n", "title"
    for issue in issues:
        yield f" {issue.severity.value}: {issue.message}", "text"
        yield f" ({issue.count} times)\n" if issue.count > 1 else "\n", "dim"
