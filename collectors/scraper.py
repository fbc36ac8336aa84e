"""One look at a server's metrics: its addresses are asked until one answers, and its page is read."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Generic, TypeVar

from llmtop.collectors.endpoint_failures import Failure, likeliest, refused, silent, strange, unreachable
from llmtop.collectors.job_thread import Job, JobThread
from llmtop.collectors.metrics_http import TIMEOUT_S, NotHttpError, Page
from llmtop.collectors.pipelines import without_steps
from llmtop.collectors.scrape_pace import SLOW_NS
from llmtop.collectors.server_addresses import address
from llmtop.collectors.server_connection import ServerConnection, names_of
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.vocabulary import EndpointAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from llmtop.collectors.base import Clock
    from llmtop.collectors.metrics_http import Fetch, Fetcher
    from llmtop.collectors.metrics_text import Exposition
    from llmtop.collectors.scrape_pace import ScrapePace
    from llmtop.collectors.server_addresses import ServerAddresses
    from llmtop.collectors.slots import Slots
    from llmtop.model import Engine, Target

_T = TypeVar("_T")
SILENT_PORT_S = 1.0
"""For a port that may be none for metrics, where there are others to try."""
_UNANSWERED = (EndpointAnswer.NOT_HTTP, EndpointAnswer.UNREACHABLE, EndpointAnswer.REFUSED, EndpointAnswer.SILENT)


@frozen
class Scrape:
    """A page that was read.

    Attributes:
        t_ns: When its first byte came: its numbers are of then, however late it is read.
        took_ns: From asking for it to its last byte.
        slots: The requests that run, of a server that tells them on another page.
    """

    connection: ServerConnection
    exposition: Exposition
    t_ns: int
    took_ns: int
    slots: Slots | Unknown | None = None


class FetchThread(Generic[_T]):
    """A connection, and the thread that asks over it: one thing at a time.

    Args:
        fetch: Gets a page in the place of `fetcher`: the tests' own.
    """

    def __init__(self, fetcher: Fetcher, fetch: Fetch | None) -> None:
        self.fetcher = fetcher
        self.fetch: Fetch = fetch or fetcher
        self._thread = JobThread()
        self._job: Job[_T] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something was asked whose outcome has not been taken."""
        return self._job is not None

    def start(self, work: Callable[[], _T]) -> None:
        """Begin to ask."""
        self._job = self._thread.start(work)

    def is_done(self, timeout_s: float) -> bool:
        """Whether there is an outcome by then."""
        return self._job is not None and self._job.wait(timeout_s)

    def take(self) -> _T:
        """The outcome of what is done; what it raised is raised here."""
        if self._job is None:
            raise ValueError("nothing was asked")
        job, self._job = self._job, None
        return job.outcome

    def close(self) -> None:
        """End the thread; what it still waits for leaves the connection at its deadline."""
        self._thread.close()
        if not self.is_busy or self.is_done(0):
            self.fetcher.close()


class Scraper:
    """Asks the addresses of a target for a page, and knows the server that answered last. Lives on a thread of its own.

    Args:
        engines: The servers known; the one of the target's kind is preferred where the names seen allow both.
        has_key: Whether a key is sent along.
    """

    def __init__(
        self,
        target: Target,
        engines: Sequence[Engine],
        addresses: ServerAddresses,
        over: FetchThread[Scrape | Failure | Unknown],
        pace: ScrapePace,
        clock: Clock,
        *,
        has_key: bool,
    ) -> None:
        self._target = target
        self._engines = tuple(engines)
        self._addresses = addresses
        self._over = over
        self._pace = pace
        self._clock = clock
        self._has_key = has_key
        self._connection: ServerConnection | None = None
        self._may_be_tls = False
        self._asked: tuple[str, int] | None = None
        """The URL that is being asked, and since when."""
        self.took_ns = 0
        """Of the last page asked for, from asking to its last byte or its failure."""

    def start(self) -> None:
        """Begin a look."""
        self._asked = None
        self._over.start(self._scrape)

    def silence(self, now: int) -> tuple[Failure, int] | None:
        """What the URL that is being asked is said to be if nothing comes, and for how long it was waited for (ns)."""
        if self._asked is None:
            return None
        url, since_ns = self._asked
        return silent(url, now - since_ns, has_answered=self._has_answered(url)), now - since_ns

    @property
    def expected(self) -> Engine | None:
        """The engine that the target was recognised as."""
        return next((engine for engine in self._engines if engine.kind == self._target.kind), None)

    def _scrape(self) -> Scrape | Failure | Unknown:
        """Try the URL that worked last, then the others; the reason given is that of the likeliest one."""
        last = None if self._connection is None else self._connection.url
        urls = self._addresses.urls(last)
        is_alone = len({address(url) for url in urls}) == 1
        problems: list[Failure] = []
        for url in urls:
            muted = self._addresses.muted(url) if url != last else None
            answer = muted or self._try(url, is_sure=is_alone or url == last)
            if isinstance(answer, Scrape):
                return answer
            if self._connection is not None and url == last:
                self._connection.counter_falls.begin_anew()
            problems.append(answer)
        return likeliest(problems) if problems else self._addresses.why_none()

    def _try(self, url: str, *, is_sure: bool) -> Scrape | Failure:
        """Ask one URL; in TLS where that is what answers. `is_sure`: it is worth a long wait."""
        self._over.fetcher.timeout_s = TIMEOUT_S if is_sure else SILENT_PORT_S
        answer = self._ask(url)
        if isinstance(answer, Scrape):
            return answer
        if url.startswith("http://") and self._may_be_tls:
            secured = self._ask(url.replace("http://", "https://", 1))
            if not isinstance(secured, Failure) or secured.answer not in _UNANSWERED:
                self._addresses.note_secure(url)
                return secured
        if answer.answer == EndpointAnswer.NOT_HTTP or (answer.answer == EndpointAnswer.SILENT and not is_sure):
            self._addresses.mute(answer)
        return answer

    def _ask(self, url: str) -> Scrape | Failure:
        started = self._clock()
        page = self._page(url)
        if isinstance(page, Failure):
            return page
        text = _unquoted(page.body.decode("utf-8", "replace"))
        read = self._read(url, text)
        if isinstance(read, Failure):
            return read
        connection, exposition = read
        slots = connection.slots(self._over.fetch)
        scrape = Scrape(connection, exposition, page.t_ns or self._clock(), self.took_ns, slots)
        self._pace.took(self._clock() - started)
        connection.pages += 1
        if scrape.took_ns <= SLOW_NS:
            connection.introduce(self._target, exposition, self._over.fetch)
        return scrape

    def _page(self, url: str) -> Page | Failure:
        self._asked = (url, self._clock())
        self._may_be_tls = False
        has_answered = self._has_answered(url)
        try:
            page = self._over.fetch(url)
        except (OSError, http.client.HTTPException) as error:
            closed = isinstance(error, ConnectionResetError | http.client.RemoteDisconnected)
            self._may_be_tls = not has_answered and (closed or (isinstance(error, NotHttpError) and error.is_tls))
            return unreachable(url, error, has_answered=has_answered)
        finally:
            self.took_ns = self._clock() - self._asked[1]
        if page.status != 200 or page.is_cut:
            return refused(url, page, self.expected, has_key=self._has_key)
        return page

    def _has_answered(self, url: str) -> bool:
        return self._connection is not None and self._connection.url == url

    def _read(self, url: str, text: str) -> tuple[ServerConnection, Exposition] | Failure:
        connection = self._connection
        if connection is None or connection.url != url:
            names = names_of(text, self._engines, self._target.kind)
            if names is None:
                return strange(url, text, self.expected)
            connection = ServerConnection(url, names.engine, names.before, names.left_out)
        exposition = without_steps(connection.engine, connection.reader.read(text))
        if not exposition:
            self._connection = None  # another server may have taken over the port: look at its names afresh
            return strange(url, text, self.expected)
        self._connection = connection
        return connection, exposition


def _unquoted(text: str) -> str:
    """Some llama-server builds sent the whole text as one JSON string."""
    if not text.startswith('"'):
        return text
    try:
        inner = json.loads(text)
    except ValueError:
        return text
    return inner if isinstance(inner, str) else text
