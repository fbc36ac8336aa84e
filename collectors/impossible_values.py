"""What a page says that cannot be: a share above 1, and a counter that falls while its server goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.collectors.endpoint_failures import by_hand
from llmtop.model import NS_PER_S, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from llmtop.collectors.exposed_values import Values
    from llmtop.model import Metric

HOLD_NS = 120 * NS_PER_S
"""So long after a fall a counter is unknown: rates are of 60 s at most, and bridge a gap as long as that."""
_SEVERAL = 2
"""Counters of different things that fall at once: the whole page is of another server than the one before."""
_ROUNDING = 1e-9
"""By so much of itself a sum of floats falls that is added up in another order."""
_ALL = 1 + _ROUNDING
_ONE_SERVER = (
    "behind a balancer ask one of its servers: --metrics-url URL; of one that began anew unseen it is known again in "
    f"{HOLD_NS // NS_PER_S} s"
)
FALLS = "counters of the server's metrics fall while it goes on answering: are they of several servers in turn?"
"""For a list of faults, where numbers that change would make one of each."""


def above_all(page: Mapping[Metric, Values], url: str) -> dict[Metric, Unknown]:
    """Why a share of the page at `url` is none: it is more than all there is."""
    return {
        metric: Unknown(f"{source} says {value * 100:.6g} %, and {metric.title} cannot be above 100 %", by_hand(url))
        for metric, values in page.items()
        for _, value, source in values
        if metric.unit == "ratio" and value is not None and value > _ALL
    }


class CounterFalls:
    """Which counters of one server fall from page to page.

    A server that starts again does not answer meanwhile, and counts from 0: that is no fall (`begin_anew`). Where no
    look has failed in between, nobody knows what was counted: from 0 on would be millions of tokens at once.
    """

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._fell: dict[Metric, tuple[int, Unknown]] = {}
        """When each fell last, and why it is unknown since."""
        self.are_falling = False
        """Whether one fell on the last page."""

    def begin_anew(self) -> None:
        """The server may be another one by the next page."""
        self._last.clear()

    def fallen(self, page: Mapping[Metric, Values], t_ns: int) -> dict[Metric, Unknown]:
        """Why those are unknown that fall, or have a short while ago."""
        fell = {metric: why for metric, values in page.items() for why in self._falls(values)}
        self.are_falling = bool(fell)
        if len(fell) >= _SEVERAL:
            why = Unknown(
                "other counters of the same page fell: it is of another server than the one before", _ONE_SERVER
            )
            fell = {metric: why for metric, values in page.items() if values[0][0].counter} | fell
        self._fell |= {metric: (t_ns, why) for metric, why in fell.items()}
        return {metric: why for metric, (since_ns, why) in self._fell.items() if t_ns - since_ns < HOLD_NS}

    def _falls(self, values: Values) -> Iterator[Unknown]:
        for metric, value, source in values:
            if metric.counter and value is not None:
                before = self._last.get(metric.name, value)
                self._last[metric.name] = value
                if value < before * (1 - _ROUNDING):
                    said = f"{source} fell from {before:,.10g} to {value:,.10g} while the server went on answering"
                    yield Unknown(said, _ONE_SERVER)
