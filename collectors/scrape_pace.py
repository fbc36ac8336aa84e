"""How often a slow metrics page may be asked for: by what it costs the server, which is not how long it takes."""

from __future__ import annotations

from collections import deque

from llmtop.model import NS_PER_S

SLOW_NS = 50_000_000
"""A page is written by the server's front end: beyond this it takes time away from requests."""
MAX_SHARE = 0.05
"""Pages of a slow server are spread out until they take no more of its time than this ..."""
MAX_WAIT_NS = 10 * NS_PER_S
"""... but what is shown as "now" must not get older than this."""
_LOOKS = 4
"""Pages whose times are remembered, and that have to be slow before the pace changes."""
_LEAST_PAGES = 3
"""The first page of a server, or any page on a busy machine, may come late for reasons of its own."""


class ScrapePace:
    """Says when the next page may be asked for.

    A front end at its limit answers in seconds, and the page itself takes it milliseconds: it has to wait its turn like
    every request. So the cost is what the page has taken at best, or takes longer than a request for next to nothing
    does at the same time.
    """

    def __init__(self) -> None:
        self._quickest_ns: int | None = None
        self._pages = 0
        self._beyond: deque[int] = deque(maxlen=_LOOKS)

    @property
    def is_cost_open(self) -> bool:
        """Whether a request for next to nothing would tell more."""
        return self._quickest_ns is not None and self._quickest_ns > SLOW_NS and len(self._beyond) < _LOOKS

    def took(self, page_ns: int) -> None:
        """A page came."""
        self._pages += 1
        self._quickest_ns = min(page_ns, self._quickest_ns or page_ns)

    def took_beside(self, page_ns: int, nothing_ns: int) -> None:
        """A request for next to nothing took so long, right after a page."""
        self._beyond.append(max(0, page_ns - nothing_ns))

    @property
    def own_ns(self) -> int | None:
        """What pages take longer than requests for next to nothing, at least; None where those were not compared."""
        return min(self._beyond, default=None)

    @property
    def cost_ns(self) -> int:
        """What a page costs the server; 0 before the first one came."""
        return min((*self._beyond, self._quickest_ns or 0))

    @property
    def wait_ns(self) -> int:
        """For how long the server is left alone after a page."""
        if self._pages < _LEAST_PAGES or self.cost_ns <= SLOW_NS:
            return 0
        return min(int(self.cost_ns / MAX_SHARE) - self.cost_ns, MAX_WAIT_NS)
