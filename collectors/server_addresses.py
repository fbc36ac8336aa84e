"""Where a server's metrics may be: the addresses to ask, what has been found out about each, and why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from llmtop import whats
from llmtop.collectors.loading import Start
from llmtop.model import NS_PER_S, PLAIN_PROCESS, Unknown, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from llmtop.collectors.base import Clock
    from llmtop.collectors.endpoint_failures import Failure
    from llmtop.model import Target

MUTE_NS = 60 * NS_PER_S
"""For how long an address that does not speak HTTP is not asked again."""
_SURELY_UP_S = 60.0
"""Age from which on a server that takes connections has loaded its model, unless it is seen to read or compile."""
_NO_SERVER = Unknown(
    "this process is no LLM server that llmtop knows",
    "its own numbers need a server that is known by its command, as vllm serve is (docs/servers.md lists them), "
    "or to be told where they are: --metrics-url http://localhost:PORT/metrics; "
    "threads, GPUs and system calls are shown of any process",
)


class ServerAddresses:
    """The URLs of a target's metrics, as far as they are known by now.

    An address is "host:port" here: what is found out at one path counts for all of them.

    Args:
        find_urls: Where the metrics are by now, for servers that open their port late.
        last_line: The newest line of the server's output, where llmtop has it.
    """

    def __init__(
        self, target: Target, find_urls: Callable[[], Sequence[str]] | None, last_line: Callable[[], str], clock: Clock
    ) -> None:
        self._target = target
        self._find_urls = find_urls
        self._last_line = last_line
        self._clock = clock
        self._start = Start(target)
        self._urls = tuple(target.metrics_urls)
        self._secure: set[str] = set()
        self._mute: dict[str, tuple[int, Failure]] = {}
        """Until when an address is left alone, and how it failed."""

    def why_never(self) -> Unknown | None:
        """Why there will be none, however long one waits."""
        is_closed = not self._urls and self._find_urls is None
        return _NO_SERVER if is_closed and self._target.kind == PLAIN_PROCESS else None

    def look_again(self) -> None:
        """Ask where the metrics are by now."""
        if self._find_urls is not None:
            self._urls = tuple(self._find_urls()) or self._urls

    def urls(self, last: str | None) -> tuple[str, ...]:
        """What to ask, in this order: the URL that worked last, then the others, in TLS where that is spoken there."""
        urls = (url.replace("http://", "https://", 1) if address(url) in self._secure else url for url in self._urls)
        return tuple(dict.fromkeys((*(() if last is None else (last,)), *urls)))

    def note_secure(self, url: str) -> None:
        """It turned out to speak TLS."""
        self._secure.add(address(url))

    def mute(self, failure: Failure) -> None:
        """It turned out not to speak HTTP: leave it alone for a while."""
        self._mute[address(failure.url)] = (self._clock() + MUTE_NS, failure)

    def muted(self, url: str) -> Failure | None:
        """How an address failed that is left alone; None of one that is worth asking."""
        until_ns, failure = self._mute.get(address(url), (0, None))
        return failure if self._clock() < until_ns else None

    def is_overdue(self) -> bool:
        """Whether the one address there is should answer: the server is old enough, and loads nothing any more."""
        return len({address(url) for url in self._urls}) == 1 and not self._start.is_under_way(_SURELY_UP_S)

    def why_none(self) -> Unknown:
        """Why there is no URL yet."""
        unread = next((missing.why for missing in self._target.missing if missing.what == whats.TARGET_PORTS), None)
        if unread is not None:
            return unread
        doing = self._start.progress(self._last_line)
        if self._target.kind == PLAIN_PROCESS:
            not_yet = f", or not yet ({doing})" if doing and self._start.is_under_way() else ""
            return replace(_NO_SERVER, reason=_NO_SERVER.reason + not_yet + _listens(self._target.ports))
        return Unknown(
            f"{self._target.title} listens on no port yet" + (f": {doing}" if doing else ""),
            "it may still be loading its model: llmtop goes on looking",
            UnknownKind.PASSING,
        )


def address(url: str) -> str:
    """Host and port of a URL, or its Unix socket."""
    return url.split("/")[2]


def port(url: str) -> str:
    """The port of a URL, or the name of its Unix socket."""
    return unquote(address(url)).rpartition(":")[2].rpartition("/")[2]


def _listens(ports: Sequence[int]) -> str:
    """Said of what is no known server: nobody asks an unknown program for its metrics, which may cost it something."""
    named = ", ".join(f":{port}" for port in ports)
    return f"; it listens on {named}, which is not asked" if named else ""
