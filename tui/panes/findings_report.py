"""What llmtop's own rules find in a report."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from llmtop.analysis.commands import profiling
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.views import Column
from llmtop.model import Finding, Trace, Unknown
from llmtop.tui.panes.report import ListPane, table_of

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable

_NO_FINDINGS = Unknown(
    "no rule found anything: either all is well, or what the rules need was not collected",
    "the Session pane lists what is missing",
)


class FindingsReportPane(ListPane):
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
        return finding_text(self._findings[key], "" if self._trace is None else profiling.directory(self._trace))


def finding_text(finding: Finding, directory: str = "") -> tuple[tuple[str, str], ...]:
    """A finding as paragraphs, as on the live screen: what, what to do, in which directory, and how we know."""
    where = f", in {directory}" if directory else ""
    return (
        (f"{finding.subject}: {finding.message}", "title"),
        (f"do: {finding.action}", "value"),
        *(((f"next{where}: {finding.next_command}", "accent"),) if finding.next_command else ()),
        *(((f"no command: {finding.no_command}", "dim"),) if finding.no_command else ()),
        *((f"evidence: {one}", "text") for one in finding.evidence),
        (f"rule {finding.rule}; source: {finding.source or 'not named'}", "dim"),
    )


VIEW: Final = FindingsReportPane
