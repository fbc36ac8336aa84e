"""A page of what a section of a profiler's report tells of a kernel: named values in parts, for panes and reports.

A view of a section is a function (trace, launch) -> `SectionPage`; drawing and printing are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown, Value
from llmtop.units import number, quantity, si

if TYPE_CHECKING:
    from collections.abc import Iterator


@frozen
class PageRow:
    """One value.

    Attributes:
        value: In `unit`.
        share: What a bar shows of it, 0 to 1; None where there is nothing that it is a share of.
        metric: The tool's own name of it; empty where it is worked out.
        says: What it means.
        advice: What to do about it, where it is much.
        samples: Where it was taken over time: in equal steps over the kernel; None where a sample is not known.
        bar: How long its bar is in a chart of bars, 0 to 1; None where it has none.
        points: Of a line what is drawn: (x, y) by x; the value is one of them.
    """

    name: str
    value: Value | Unknown
    unit: str = ""
    share: float | None = None
    metric: str = ""
    says: str = ""
    advice: str = ""
    samples: tuple[float | None, ...] = ()
    bar: float | None = None
    points: tuple[tuple[float, float], ...] = ()

    @property
    def text(self) -> str | Unknown:
        """The value as people read it."""
        if isinstance(self.value, str | Unknown):
            return self.value
        return value_text(self.value, self.unit)


_COUNTED = ("", "inst", "warp")
"""Units that the title of a part says."""
_SCALED = 10_000


def value_text(value: float, unit: str) -> str:
    """A value as people read it; what is counted in whole numbers as such.

    >>> value_text(16.0, "warp"), value_text(717488128.0, "inst"), value_text(29910.5, "cycle"), value_text(12.3, "%")
    ('16', '717 M', '29.9 k cycle', '12 %')
    """
    named = "" if unit in _COUNTED else unit
    if quantity(value, named) != f"{number(value)} {named}".rstrip():
        return quantity(value, named)
    if abs(value) < _SCALED:
        return f"{int(value) if value == int(value) else number(value)} {named}".rstrip()
    return f"{si(value)} {named}".rstrip()


@frozen
class PagePlot:
    """The axes of a part's lines.

    Attributes:
        most: Where y ends; None where it follows the values.
        mark: Where on x the kernel stands; None where that is not known.
    """

    x_label: str
    y_label: str
    most: float | None = None
    mark: float | None = None


@frozen
class PagePart:
    """Values that belong together.

    Attributes:
        says: Sentences on all of them.
        asides: What would stand here and does not, with why: for who looks at this kernel, not for a list of many.
        plot: How their points are drawn.
    """

    title: str
    rows: tuple[PageRow, ...]
    says: tuple[str, ...] = ()
    asides: tuple[str, ...] = ()
    plot: PagePlot | None = None


@frozen
class SectionPage:
    """All of a page.

    Attributes:
        parts: Without those of which nothing is known.
        source: Where the values are from.
        missing: Why some of it is not known, with the command that collects it; None where all is.
    """

    launch: int
    parts: tuple[PagePart, ...]
    source: str
    missing: Unknown | None = None

    @property
    def rows(self) -> Iterator[tuple[PagePart, PageRow]]:
        """All values with the part that each is in."""
        return ((part, row) for part in self.parts for row in part.rows)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why values are not known, with their names: a sentence for each reason."""
        names: dict[Unknown, dict[str, None]] = {}
        for _, row in self.rows:
            if isinstance(row.value, Unknown):
                names.setdefault(row.value, {})[row.name] = None
        return tuple(f"{', '.join(named)}: {why}" for why, named in names.items())


PageOf: TypeAlias = Callable[[Trace, int], SectionPage | Unknown]
"""What makes a page of a launch; why there is none."""
