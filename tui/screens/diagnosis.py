"""All findings with their evidence, and what cannot be known here and how to get it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import Severity
from llmtop.tui.panes.bar import KeyBar
from llmtop.tui.panes.base import look_of
from llmtop.tui.panes.findings import SEVERITY_ROLES, severity_mark
from llmtop.tui.render.lines import width_of, wrap
from llmtop.tui.screens.base import FullScreen

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from llmtop.model import Finding, Issue, Missing, Trace, Unknown
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Look


class DiagnosisScreen(FullScreen):
    """A still picture of the moment it was opened: text that moves cannot be read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "back", key_display="Esc"),
        Binding("d", "dismiss", "back", show=False),
        Binding("q", "dismiss", "back", show=False),
    ]

    def __init__(self, trace: Trace, issues: Sequence[Issue] = ()) -> None:
        super().__init__()
        self._diagnosis = tuple(diagnosis(trace, issues))

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="diagnosis") as box:
            box.border_title = Content("Diagnosis")
            yield Static(id="text")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#diagnosis").focus()

    def on_resize(self) -> None:
        width, look = max(20, self.size.width - 4), look_of(self)
        lines = draw_diagnosis(self._diagnosis, width, look)
        self.query_one("#text", Static).update(Text("\n").join(_styled(parts, look) for parts in lines))


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A mark or a label, and a text that wraps beside it."""

    label: str
    label_role: str
    text: str
    role: str = "text"
    indent: int = 0


def diagnosis(trace: Trace, issues: Sequence[Issue] = ()) -> Iterator[Paragraph]:
    """Findings with evidence, then which rules could not judge, what is missing and why, then faults."""
    diagnosed = diagnose(trace)
    if not diagnosed.findings:
        yield Paragraph("", "dim", f"{diagnosed.verdict[:1].upper()}{diagnosed.verdict[1:]}.", "value")
        yield _BLANK
    for finding in diagnosed.findings:
        yield from _finding(finding)
    yield from _unjudged(diagnosed)
    yield from _missing(trace.missing)
    yield from _faults((*trace.issues, *issues))


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


def _styled(parts: Sequence[Part], look: Look) -> Text:
    return Text.assemble(*((text, look.style(role)) for text, role in parts))


def _finding(finding: Finding) -> Iterator[Paragraph]:
    role = SEVERITY_ROLES[finding.severity]
    yield Paragraph(finding.severity.value, role, f"{finding.message}  [{finding.subject}]", "value", 1)
    for evidence in finding.evidence:
        yield Paragraph("-", "dim", evidence, indent=5)
    yield Paragraph("do  ", "dim", finding.action, indent=3)
    if finding.next_command:
        yield Paragraph("next", "dim", finding.next_command, "accent", 3)
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
