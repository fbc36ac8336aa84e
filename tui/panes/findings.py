"""The line that says what to do, below all panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.liveness.view import liveness
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import Severity
from llmtop.tui.panes.base import SLOW_NS, Pane
from llmtop.tui.render.lines import Part, cut_words, line, spelled, width_of

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Finding, Trace
    from llmtop.tui.render.look import Look

_LEAST_ACTION = 20
_INDENT = 14
"""Cells around what to do, on a line of its own: the arrow before it, and which key says why."""
SEVERITY_ROLES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "good"}


class FindingsLine(Pane[Diagnosis], can_focus=False):
    """The gravest findings, one a line; all of them with their evidence are on the diagnosis screen."""

    least_ns = SLOW_NS

    def view(self, trace: Trace) -> Diagnosis:
        return diagnose(trace)

    def _is_new_enough(self, trace: Trace) -> bool:
        """A fault of the server's life is told with the next frame; causes are of many seconds and can wait."""
        return super()._is_new_enough(trace) and _faults(trace) == _faults(self._trace or trace)

    def draw(self, view: Diagnosis, width: int, height: int, look: Look) -> list[Strip]:
        return draw_findings(view, width, height, look)


def _faults(trace: Trace) -> set[tuple[str, str]]:
    return {(fault.rule, fault.subject) for fault in liveness(trace).faults}


def severity_mark(severity: Severity, look: Look) -> str:
    """A shape for each severity: colour is never the only signal."""
    glyphs = look.glyphs
    return {Severity.ERROR: glyphs.bad, Severity.WARNING: glyphs.warn, Severity.INFO: glyphs.good}[severity]


def draw_findings(diagnosis: Diagnosis, width: int, height: int, look: Look) -> list[Strip]:
    """What is wrong and what to do about it; how many more there are stands on the last line.

    One finding alone takes a second line, where there is one, for what to do.
    """
    findings = diagnosis.findings
    if not findings:
        mark = look.glyphs.good if diagnosis.is_clear else " "
        return [line([(f" {mark} {diagnosis.verdict} (why: d)", "dim")], width, look)]
    if len(findings) == 1 and height > 1:
        action = cut_words(spelled(findings[0].action, look), width - _INDENT, look)
        return [
            line(_said(findings[0], "", width, look), width, look),
            line([(f"   {look.glyphs.arrow} {action}", "text"), ("  d: why", "dim")], width, look),
        ]
    shown, hidden = findings[:height], max(0, len(findings) - height)
    mores = ["d: why  "] * (len(shown) - 1) + [f"+{hidden} more: d  " if hidden else "d: why  "]
    return [line(_parts(*one, width, look), width, look) for one in zip(shown, mores, strict=True)]


def _parts(finding: Finding, more: str, width: int, look: Look) -> list[Part]:
    """What is wrong, and what to do as far as it fits."""
    parts = _said(finding, more, width, look)
    arrow = f"  {look.glyphs.arrow} "
    room = width - sum(width_of(text) for text, _ in parts)
    action = cut_words(spelled(finding.action, look), room - width_of(arrow), look)
    return [*parts, (arrow + action if room > _LEAST_ACTION else "", "text")]


def _said(finding: Finding, more: str, width: int, look: Look) -> list[Part]:
    """What fits in whole words. Which key says why is left out first; that there are more findings never is."""
    mark: Part = (f" {severity_mark(finding.severity, look)} ", SEVERITY_ROLES[finding.severity])
    room = width - width_of(mark[0])
    if width_of(more) + width_of(finding.message) > room:
        more = more.replace(" more", "") if more.startswith("+") else ""
    return [mark, (more, "dim"), (cut_words(spelled(finding.message, look), room - width_of(more), look), "value")]
