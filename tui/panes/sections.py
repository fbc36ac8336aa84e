"""What the tool collected, section by section, with what its own rules said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.analysis.kernels.absent import no_kernels, not_of_kernels
from llmtop.analysis.kernels.counting import of_heaviest
from llmtop.analysis.kernels.table import Grouping, kernels_of
from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import RuleResult, Trace, Unknown
from llmtop.tui.panes.report import KernelWanted, ListPane, table_of
from llmtop.units import number, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look


_COLUMNS = (
    Column("severity", "says", width=12, help="ok, optimization, warning, error; collected: no advice"),
    Column("speedup", "speedup", "%", width=8, shrink=2, help="the rule's estimate; local ones are of a part"),
    Column("share", "time", "%", width=6, shrink=3, help="the kernel's share of all kernels' time"),
    Column("section", "section", width=26, shrink=4),
    Column("kernel", "kernel", width=24, shrink=1),
    Column("message", "message", width=0, help="the beginning; all of it is below"),
)
_OF_TIMELINES = Unknown("a timeline has spans in place of sections")


@frozen
class SectionRow:
    """One thing a rule said of one kernel, or a section on which no rule had anything to say.

    Attributes:
        worth: The rule's estimated speedup of the whole kernel (global) or of the part (local), in %.
    """

    section: str
    kernel: str
    launch: int
    share: float | None
    severity: str
    message: str
    rule: RuleResult | None = None

    @property
    def worth(self) -> tuple[str, float] | None:
        """The largest estimate, the whole kernel's before a part's, of what is advised: a remark is worth nothing."""
        speedups = self.rule.speedups if self.rule is not None and self.severity == "optimization" else ()
        return max(speedups, key=lambda one: (one[0] == "global", one[1]), default=None)


def section_rows(trace: Trace) -> list[SectionRow]:
    """What rules said of each kernel (one launch of each name and shape), the longest kernel first."""
    return list(_section_rows(trace))


def _section_rows(trace: Trace) -> Iterator[SectionRow]:
    kernels = kernels_of(trace)
    details = kernels.table.details
    if details is None:
        return
    for row in kernels.groups(Grouping.SHAPE):
        launch = kernels.middle(row)
        share = kernels.share(row.total_ns)
        common = (kernels.short_name(launch), launch, None if share is None else share * 100)
        rules = details.rules(launch)
        for rule in rules:
            for severity, message in rule.titled:
                yield SectionRow(rule.section, *common, severity, message, rule)
        said = {rule.section for rule in rules if rule.messages}
        for section in details.sections(launch):
            if section not in said:
                yield SectionRow(section, *common, "collected", "collected; no rule had anything to say of it")


class SectionsPane(ListPane["tuple[SectionRow, ...]"]):
    """Every collected section of every kernel, advice first."""

    number = 4
    title = "Sections"

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return _OF_TIMELINES if trace.spans else not_of_kernels(trace)

    def view(self, trace: Trace) -> tuple[SectionRow, ...] | Unknown:
        if why := no_kernels(trace):
            return why
        rows = tuple(sorted(section_rows(trace), key=_urgency))
        return rows or Unknown("this capture has no sections", of_heaviest(trace)[0])

    def rows(self, view: tuple[SectionRow, ...], trace: Trace) -> RowTable:
        return table_of(_COLUMNS, dict(enumerate(map(_cells, view))))

    def opened(self, view: tuple[SectionRow, ...], trace: Trace, key: int) -> KernelWanted:
        return KernelWanted(view[key].launch)

    def details(self, view: tuple[SectionRow, ...], trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        row = view[key]
        paragraphs = [(f"{row.section}  {row.kernel}  (launch {row.launch})", "title"), (row.message, "text")]
        if row.rule is not None:
            paragraphs.append((f"rule {row.rule.id}: {row.rule.name}", "dim"))
            paragraphs += [
                (f"estimated speedup: {percent(value)} ({kind})", "value")
                for kind, value in dict.fromkeys(row.rule.speedups if row.worth is not None else ())
            ]
            paragraphs += [(f"{metric} = {number(value)}", "dim") for metric, value in row.rule.focus]
        return tuple(paragraphs)


_ADVICE = ("error", "optimization", "warning")


def _urgency(row: SectionRow) -> tuple[int, float, int]:
    """Advice first, by what it may be worth of all kernels' time; then the rest, as collected."""
    rank = 0 if row.severity in _ADVICE else 1 if row.severity != "collected" else 2
    worth = row.worth[1] if row.worth is not None and row.worth[0] == "global" else 0.0
    return rank, -worth * (row.share or 0.0), _ADVICE.index(row.severity) if rank == 0 else 0


def _cells(row: SectionRow) -> tuple[str | float | Unknown | None, ...]:
    worth = row.worth[1] if row.worth is not None else None
    share = row.share if row.share is not None else Unknown("the duration was not collected")
    return row.severity, worth, share, row.section, row.kernel, row.message


VIEW: Final = SectionsPane
