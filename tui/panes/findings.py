"""The line that says what to do, below all panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import Severity
from llmtop.tui.panes.base import CALM_NS, Pane
from llmtop.tui.render.lines import Part, line

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Finding, Trace
    from llmtop.tui.render.look import Look

SEVERITY_ROLES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "good"}


class FindingsLine(Pane[Diagnosis], can_focus=False):
    """The gravest findings, one a line; all of them with their evidence are on the diagnosis screen."""

    least_ns = CALM_NS

    def view(self, trace: Trace) -> Diagnosis:
        return diagnose(trace)

    def draw(self, view: Diagnosis, width: int, height: int, look: Look) -> list[Strip]:
        return draw_findings(view, width, height, look)


def severity_mark(severity: Severity, look: Look) -> str:
    """A shape for each severity: colour is never the only signal."""
    glyphs = look.glyphs
    return {Severity.ERROR: glyphs.bad, Severity.WARNING: glyphs.warn, Severity.INFO: glyphs.good}[severity]


def draw_findings(diagnosis: Diagnosis, width: int, height: int, look: Look) -> list[Strip]:
    """What is wrong and what to do about it; how many more there are stands at the end of the last line."""
    findings = diagnosis.findings
    if not findings:
        mark = look.glyphs.good if diagnosis.is_clear else " "
        return [line([(f" {mark} {diagnosis.verdict} (why: d)", "dim")], width, look)]
    strips = []
    for i, finding in enumerate(findings[:height]):
        hidden = len(findings) - height if i == height - 1 else 0
        strips.append(line(_parts(finding, max(0, hidden), look), width, look))
    return strips


def _parts(finding: Finding, hidden: int, look: Look) -> list[Part]:
    more = f"+{hidden} more: d  " if hidden else "d: why  "
    return [
        (f" {severity_mark(finding.severity, look)} ", SEVERITY_ROLES[finding.severity]),
        (more, "dim"),
        (finding.message, "value"),
        (f"  {look.glyphs.arrow} {finding.action}", "text"),
    ]
