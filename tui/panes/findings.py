"""The line that says what to do, below all panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import Severity
from llmtop.tui.panes.base import CALM_NS, Pane
from llmtop.tui.render.lines import Part, cut_words, line, spelled, width_of

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Finding, Trace
    from llmtop.tui.render.look import Look

_LEAST_ACTION = 20
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
        strips.append(line(_parts(finding, max(0, hidden), width, look), width, look))
    return strips


def _parts(finding: Finding, hidden: int, width: int, look: Look) -> list[Part]:
    """What fits in whole words: without room first what to do is left out, then which key says why."""
    mark: Part = (f" {severity_mark(finding.severity, look)} ", SEVERITY_ROLES[finding.severity])
    more = f"+{hidden} more: d  " if hidden else "d: why  "
    room = width - width_of(mark[0])
    more = more if width_of(more) + width_of(finding.message) <= room else ""
    message = cut_words(spelled(finding.message, look), room - width_of(more), look)
    room -= width_of(more) + width_of(message)
    arrow = f"  {look.glyphs.arrow} "
    action = cut_words(spelled(finding.action, look), room - width_of(arrow), look)
    last = arrow + action if room > _LEAST_ACTION else ""
    return [mark, (more, "dim"), (message, "value"), (last, "text")]
