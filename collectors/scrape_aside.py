"""What a slow server is asked beside its metrics, over a connection of its own: its numbers need not wait for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.collectors.scrape_pace import SLOW_NS
from llmtop.model import NS_PER_S

if TYPE_CHECKING:
    from llmtop.collectors.base import Clock
    from llmtop.collectors.scrape_pace import ScrapePace
    from llmtop.collectors.scraper import FetchThread, Scrape
    from llmtop.model import Target

_SETTLED_PAGES = 5
"""So many pages are read before a slow server is asked for its version too."""


class ScrapeAside:
    """Asks a slow server what it is, not before it has given numbers, and how long it takes for next to nothing."""

    def __init__(self, target: Target, over: FetchThread[int | None], pace: ScrapePace, clock: Clock) -> None:
        self._target = target
        self._over = over
        self._pace = pace
        self._clock = clock

    def follow(self, scrape: Scrape) -> None:
        """A page came: ask what there is to ask, and take what came of it."""
        is_settled = scrape.connection.pages >= _SETTLED_PAGES and not scrape.connection.is_introduced
        if not self._over.is_busy and scrape.took_ns > SLOW_NS and (is_settled or self._pace.is_cost_open):
            self._over.start(lambda: self._ask(scrape, is_settled))
        if self._over.is_done(SLOW_NS / NS_PER_S):  # mostly it is quick
            beside_ns = self._over.take()
            if beside_ns is not None:
                self._pace.took_beside(scrape.took_ns, beside_ns)

    def _ask(self, scrape: Scrape, is_settled: bool) -> int | None:
        """How long a request for next to nothing took; None where that needs no answer any more."""
        connection, fetch = scrape.connection, self._over.fetch
        if is_settled:
            connection.introduce(self._target, scrape.exposition, fetch)
        if not self._pace.is_cost_open:
            return None
        started = self._clock()
        connection.get(connection.engine.version_path or "/health", fetch)
        return self._clock() - started
