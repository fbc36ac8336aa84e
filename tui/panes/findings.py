"""The line that says what to do, below all panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.analysis.server.liveness import liveness
from llmtop.model import Severity
from llmtop.tui.panes.base import SLOW_NS, Pane
from llmtop.tui.render.lines import Part, cut_words, line, spelled, width_of

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Finding, Trace
    from llmtop.tui.render.look import Look

_LEAST_ACTION = 20
_INDENT, _AROUND = 7, 7
"""Cells around what to do: on a line of its own, the arrow before it and the gap to which key says why; on the line of
what is wrong, its mark and the arrow."""
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
    """What is wrong and what to do about it, the gravest first; how many more there are stands at the end.

    What to do takes a second line where it does not fit behind what is wrong, as long as there are lines.
    """
    findings = diagnosis.findings
    if not findings:
        mark = look.glyphs.good if diagnosis.is_clear else " "
        return [line([(f" {mark} {diagnosis.verdict} (why: d)", "dim")], width, look)]
    rows: list[Strip] = []
    for i, finding in enumerate(findings):
        room, hidden = height - len(rows), len(findings) - i - 1
        if room <= 0:
            break
        is_in_one = _fits(finding, f"+{hidden} more: d  ", width, look)
        is_last = hidden == 0 or room == 1 or (room == 2 and not is_in_one)
        more = "" if not is_last else f"+{hidden} more: d" if hidden else "d: why"
        rows += _in_one(finding, more, width, look) if is_in_one or room == 1 else _in_two(finding, more, width, look)
    return rows


def _fits(finding: Finding, more: str, width: int, look: Look) -> bool:
    words = (more, spelled(finding.message, look), spelled(finding.action, look))
    return _AROUND + sum(width_of(one) for one in words) <= width


def _in_one(finding: Finding, more: str, width: int, look: Look) -> list[Strip]:
    return [line(_parts(finding, f"{more}  " if more else "", width, look), width, look)]


def _in_two(finding: Finding, more: str, width: int, look: Look) -> list[Strip]:
    action = cut_words(spelled(finding.action, look), width - _INDENT - width_of(more), look)
    return [
        line(_said(finding, "", width, look), width, look),
        line([(f"   {look.glyphs.arrow} {action}", "text"), (f"  {more}" if more else "", "dim")], width, look),
    ]


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
