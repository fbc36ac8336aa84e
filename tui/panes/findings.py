"""What the rules find in a trace: a list with evidence, and a line below all panes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from llmtop.analysis.commands import profiling
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.analysis.views import Column
from llmtop.model import Finding, Trace, Unknown
from llmtop.tui.panes.base import SLOW_NS, Pane
from llmtop.tui.panes.report import ListPane, table_of
from llmtop.tui.render.findings import draw_findings, finding_text

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.tables import RowTable
    from llmtop.tui.render.look import Look

_NO_FINDINGS = Unknown(
    "no rule found anything: either all is well, or what the rules need was not collected",
    "the Session pane lists what is missing",
)


class FindingsPane(ListPane):
    """Findings, the gravest first, with evidence and what to do."""

    number = 5
    title = "Findings"
    COLUMNS = (
        Column("severity", "severity", width=9),
        Column("subject", "subject", width=28, shrink=2),
        Column("message", "finding", width=0),
        Column("rule", "rule", width=26, shrink=3),
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._findings: dict[Hashable, Finding] = {}

    def analyse(self, trace: Trace) -> RowTable | Unknown:
        self._findings = dict(enumerate(diagnose(trace).findings))
        if not self._findings:
            return _NO_FINDINGS
        rows = {key: (f.severity.value, f.subject, f.message, f.rule) for key, f in self._findings.items()}
        return table_of(self.COLUMNS, rows)

    def details(self, key: Hashable) -> tuple[tuple[str, str], ...]:
        finding = self._findings[key]
        trace = self._trace
        return finding_text(finding, "" if trace is None else profiling.directory_for(trace, finding.next_command))


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
    # Not above: a file has no server, and what judges the life of one is not loaded for it.
    from llmtop.analysis.server.liveness import liveness

    return {(fault.rule, fault.subject) for fault in liveness(trace).faults}


VIEW: Final = FindingsPane
