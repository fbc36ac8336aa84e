"""Made-up reports for the explorer's tests."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from llmtop.model import (
    Instances,
    Issue,
    KernelTable,
    Missing,
    Origin,
    RuleResult,
    SectionTable,
    Severity,
    Trace,
    Unknown,
    Value,
    What,
)
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOSTILE = (
    "[/b]",
    "[@click=app.quit]click me[/]",
    "esc\x1b]52;c;ZXZpbA==\x07\x1b[2J",
    "\u202eevil right to left",
    "内核 matmul 행렬",
    "void at::native::<unnamed>::silu_kernel(...)::[lambda() (instance 1)]::operator ()() const",
    "long<" + "float, " * 1500 + ">",
    "$primary [red]idx[/usr/lib] \\",
)


class FakeDetails:
    """What a report holds of launch i: the same metrics, rules and sections for each."""

    def __init__(
        self, metrics: Mapping[str, tuple[Value, str]], rules: tuple[RuleResult, ...], sections: tuple[str, ...]
    ) -> None:
        self._metrics, self._rules, self._sections = metrics, rules, sections

    def metrics(self, i: int) -> Mapping[str, Value]:
        return {name: value for name, (value, _) in self._metrics.items()}

    def unit(self, metric: str) -> str:
        return self._metrics[metric][1]

    def instances(self, i: int, metric: str) -> Instances | Unknown:
        return Unknown("no instances")

    def rules(self, i: int) -> tuple[RuleResult, ...]:
        return self._rules

    def ranges(self, i: int) -> tuple[str, ...]:
        return ("step [/b]", "layer 3")

    def sections(self, i: int) -> tuple[str, ...]:
        return self._sections

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        return tuple(
            SectionTable(one, f"title of {one}", (("launch__registers_per_thread", "Registers [/b]"),))
            for one in self._sections
        )


METRICS: dict[str, tuple[Value, str]] = {
    "gpu__time_duration.sum": (1_500_000.0, "ns"),
    "launch__registers_per_thread": (168, ""),
    "made_up__[/b].ratio": (0.25, "ratio"),
    "made_up__nothing.avg": (float("nan"), "%"),
    "breakdown:made_up": ("a__b, c__d", ""),
}
RULES = (
    RuleResult(
        "SOLBottleneck",
        "Bottleneck [/b]",
        "SpeedOfLight",
        (("optimization", "This [workload] is memory-bound. Look at the Memory Workload Analysis section."),),
        (("global", 12.5), ("local", 40.0)),
        (("made_up__ratio", 0.25),),
    ),
)


def report(names: Sequence[str] = HOSTILE, *, details: bool = True) -> Trace:
    """A report with a launch of each name, the first the longest."""
    count = len(names)
    cleaned = tuple(clean(name) for name in names)
    zeros = array("q", [0] * count)
    return Trace(
        Origin("ncu-rep", "made-up[/b].ncu-rep", "2025.3.1", "NVIDIA Made-Up GPU", {"command": "./made [/b]"}),
        kernels=KernelTable(
            cleaned,
            tuple(name[:60] for name in cleaned),
            array("q", range(count)),
            (array("q", [i + 1 for i in range(count)]), array("q", [1] * count), array("q", [1] * count)),
            (array("q", [128] * count), array("q", [1] * count), array("q", [1] * count)),
            array("q", [-1] * count),
            array("d", [1e6 / (i + 1) for i in range(count)]),
            zeros,
            zeros,
            FakeDetails(METRICS, RULES, ("SpeedOfLight", "BrandNewSection")) if details else None,
        ),
        issues=(Issue(Severity.WARNING, "rows-skipped", "rows that could not be read were skipped", 3),),
        missing=(Missing(What("timeline"), Unknown("no timeline [/b]", "nsys profile COMMAND")),),
    )
