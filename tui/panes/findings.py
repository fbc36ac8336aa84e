"""What the rules find in a trace: a list with evidence, and a line below all panes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias

from llmtop.analysis.commands import profiling
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.analysis.timeline.longest import longest_gaps
from llmtop.analysis.views import Column
from llmtop.model import Finding, Stretch, Trace, Unknown
from llmtop.tui.panes.base import SLOW_NS, Pane
from llmtop.tui.panes.report import IN_TIME, ListPane, table_of
from llmtop.tui.render.findings import draw_findings, finding_text

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.strip import Strip

    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look

_NO_FINDINGS = Unknown(
    "no rule found anything: either all is well, or what the rules need was not collected",
    "the Session pane lists what is missing",
)
_NO_PLACE = Unknown("this finding is about neither a gap nor a step: the timeline has no one place of it")
_COLUMNS = (
    Column("severity", "severity", width=9),
    Column("subject", "subject", width=28, shrink=2),
    Column("message", "finding", width=0),
    Column("rule", "rule", width=26, shrink=3),
)


class LocatedFinding(NamedTuple):
    """A finding, and where its next command is to be run; "" where that is all the same."""

    finding: Finding
    directory: str


Findings: TypeAlias = "tuple[LocatedFinding, ...]"


class FindingsPane(ListPane[Findings]):
    """Findings, the gravest first, with evidence and what to do."""

    number = 5
    title = "Findings"
    BINDINGS: ClassVar[list[BindingType]] = [IN_TIME]

    def view(self, trace: Trace) -> Findings | Unknown:
        found = diagnose(trace).findings
        located = (LocatedFinding(one, profiling.directory_for(trace, one.next_command)) for one in found)
        return tuple(located) or _NO_FINDINGS

    def rows(self, view: Findings, trace: Trace) -> RowTable:
        rows = enumerate((f.severity.value, f.subject, f.message, f.rule) for f, _ in view)
        return table_of(_COLUMNS, dict(rows))

    def when(self, view: Findings, trace: Trace, key: int) -> Stretch | Unknown:
        finding = view[key].finding
        if finding.idle is not None:
            return longest_gaps(trace).about(finding.idle) or _NO_PLACE
        return finding.place or _NO_PLACE

    def details(self, view: Findings, trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        return finding_text(*view[key])


class FindingsLine(Pane[Diagnosis], can_focus=False):
    """The gravest findings, one a line; all of them with their evidence are on the diagnosis screen."""

    least_ns = SLOW_NS
    is_urgent = True

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
