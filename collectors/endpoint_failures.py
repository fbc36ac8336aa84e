"""Why a metrics endpoint gave no metrics, and what to do about it: one reason for each way to fail."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from llmtop.collectors.metrics_http import MAX_BYTES, NotHttpError, Page
from llmtop.collectors.metrics_text import names
from llmtop.collectors.server_addresses import port
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Engine, Unknown
from llmtop.text import clean, redact, shorten
from llmtop.vocabulary import EndpointAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = 256
"""Characters that tell what kind of page it is."""
_SAID = 100
"""Characters of an error's text that are shown."""
_GOES_ON = "llmtop goes on asking"
_ANOTHER_PORT = "it is no metrics port: which one does the server's log name?"
KEY_REMEDY = "give llmtop the key: LLMTOP_METRICS_TOKEN=KEY, or --metrics-header 'Name: value'"
PUBLISHED = "the port that is published here: --metrics-url http://localhost:PORT/metrics"
_GATEWAY = (502, 504)
"""Statuses of a proxy that does not reach the server behind it (RFC 9110, 15.6.3 and 15.6.5)."""


@frozen
class Failure:
    """A look at one URL that brought no metrics: what came instead (`vocabulary.ENDPOINT_ANSWER`), and why."""

    url: str
    answer: int
    why: Unknown

    @property
    def in_short(self) -> Unknown:
        """Why, where the server is known, and a URL would take the room: "nothing listens at port 8000".

        >>> url = "http://localhost:8000/metrics"
        >>> str(Failure(url, 1, Unknown(f"nothing listens at {url}")).in_short)
        'nothing listens at port 8000'
        """
        number = port(self.url)
        if not number.isdecimal():  # a Unix socket, whose name is short
            return self.why
        return replace(self.why, reason=self.why.reason.replace(shown(self.url), f"port {number}"))


def shown(url: str) -> str:
    """A URL as people write it: a Unix socket by its path.

    >>> shown("http+unix://%2Frun%2Fv.sock/metrics"), shown("http://127.0.0.1:8000/metrics")
    ('/metrics of unix:/run/v.sock', 'http://127.0.0.1:8000/metrics')
    """
    parts = urlsplit(url)
    return f"{parts.path} of unix:{clean(unquote(parts.netloc))}" if parts.scheme == "http+unix" else clean(redact(url))


def by_hand(url: str) -> str:
    """The command that asks for the same page."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return f"curl -i --unix-socket {clean(unquote(parts.netloc))} http://localhost{parts.path}"
    return f"curl {'-ki' if parts.scheme == 'https' else '-i'} {clean(redact(url))}"


def unreachable(url: str, error: OSError | http.client.HTTPException, *, has_answered: bool) -> Failure:
    """No answer at all.

    Args:
        url: What was asked.
        error: What came of it.
        has_answered: Metrics have come from there before: so it is the server's own port, and in HTTP.
    """
    at = shown(url)
    match error:
        case ConnectionRefusedError() | FileNotFoundError():
            why = f"nothing listens at {at}"
            remedy = "its log says why" if has_answered else "it may still be starting"
            return _failure(url, EndpointAnswer.REFUSED, why, f"{remedy}: {_GOES_ON}")
        case TimeoutError():
            return silent(url, 0, has_answered=has_answered)
        case ssl.SSLError():
            return _no_tls(url, clean(error.reason or str(error)))
        case PermissionError():
            return _forbidden(url)
        case ConnectionResetError() | BrokenPipeError() | http.client.RemoteDisconnected():
            why = f"{at} closes the connection without an answer"
            return _failure(url, EndpointAnswer.UNREACHABLE, why, f"its log may say why; {_GOES_ON}")
        case http.client.IncompleteRead():
            why = f"{at} breaks off its answer"
            return _failure(url, EndpointAnswer.UNREACHABLE, why, f"its log may say why; {_GOES_ON}")
        case OSError():
            why = f"{at} cannot be reached: {error.strerror or error}"
            return _failure(url, EndpointAnswer.UNREACHABLE, why, by_hand(url))
        case NotHttpError():
            why = f"{at} does not speak HTTP ({clean(redact(str(error)))})"
            return _failure(url, EndpointAnswer.NOT_HTTP, why, _ANOTHER_PORT)
        case _:
            why = f"{at} does not answer in HTTP ({type(error).__name__})"
            return _failure(url, EndpointAnswer.NOT_HTTP, why, by_hand(url))


def _no_tls(url: str, said: str) -> Failure:
    """No connection in TLS: OpenSSL's words say what for."""
    at = shown(url)
    if "CERTIFICATE_REQUIRED" in said.replace(" ", "_").upper():
        why = f"{at} wants a client's certificate, and llmtop has none"
        return _failure(url, EndpointAnswer.UNREACHABLE, why, "let /metrics through without one")
    return _failure(url, EndpointAnswer.NOT_HTTP, f"TLS with {at} fails: {said}", by_hand(url))


def _forbidden(url: str) -> Failure:
    """The kernel lets this user not get there: a socket's owner, or another network namespace."""
    if urlsplit(url).scheme == "http+unix":
        why = f"the socket of {shown(url)} belongs to another user"
        return _failure(url, EndpointAnswer.UNREACHABLE, why, "run llmtop as the server's user, or with sudo")
    why = "the server has a network of its own (a container), which only root may enter"
    return _failure(url, EndpointAnswer.UNREACHABLE, why, f"run llmtop with sudo, or name {PUBLISHED}")


def silent(url: str, waited_ns: int, *, has_answered: bool) -> Failure:
    """Connected or not, nothing came; `waited_ns` is 0 where the time was up."""
    said = f"has not answered for {waited_ns / NS_PER_S:.0f} s" if waited_ns else "did not answer in time"
    remedy = (
        "its front end is stuck or has more to do than it can: see the API server's threads"
        if has_answered
        else f"it may be starting, stuck, or no HTTP port: {_GOES_ON}"
    )
    return _failure(url, EndpointAnswer.SILENT, f"{shown(url)} {said}", remedy)


def refused(url: str, page: Page, engine: Engine | None, *, has_key: bool) -> Failure:
    """An answer that is no page of metrics by its status or size."""
    at, title = shown(url), engine.title if engine is not None else "the server"
    if page.is_cut:
        why = f"{at} is longer than {MAX_BYTES >> 20} MiB, which no server's metrics are"
        return _failure(url, EndpointAnswer.STRANGE, why, by_hand(url))
    status = page.status
    if page.location:
        why = f"{at} sends us elsewhere, to {clean(redact(page.location))}"
        remedy = "llmtop talks to the server only: where its metrics are there, --metrics-url URL says so"
    elif status in (404, 501):  # llama-server answers 501 without --metrics
        why = f"{title} serves no metrics at {at} ({status})"
        remedy = engine.metrics_remedy if engine is not None else by_hand(url)
    elif status in (401, 403):
        why = f"{at} refuses the key that llmtop was given ({status})" if has_key else f"{at} wants a key ({status})"
        remedy = KEY_REMEDY
    elif status == 503:
        why = f"{at} is not ready (503){_first_line(page)}"
        remedy = f"it may still be loading its model, or be overloaded: {_GOES_ON}"
    elif status in _GATEWAY:
        why = f"a proxy answers at {at}, and cannot reach the server ({status})"
        remedy = "attach to a process of the server itself; is it alive?"
    else:
        why = f"{at} answers with status {status}{_first_line(page)}"
        remedy = f"its log says why: {by_hand(url)}"
    return _failure(url, status, why, remedy)


def strange(url: str, text: str, engine: Engine | None) -> Failure:
    """Status 200 and no metrics: only a page of foreign metrics may mean that the server's own are off."""
    at, seen = shown(url), ", ".join(names(text))
    if seen:
        remedy = engine.metrics_remedy if engine is not None else by_hand(url)
        why = f"{at} has none of the names that llmtop knows, but {seen}"
        return _failure(url, EndpointAnswer.STRANGE, why, remedy or by_hand(url))
    start = text[:_HEAD].lstrip().lower()
    if not start:
        what, remedy = (
            "the page is empty",
            "no metric is registered: can the server write to PROMETHEUS_MULTIPROC_DIR?",
        )
    elif start.startswith(("<!doctype", "<html", "<?xml")):
        what, remedy = "a web page (HTML)", "a proxy or another program has this port: attach to the server itself"
    elif start[0] in "{[":
        what, remedy = "JSON", f"an API answers here, not the metrics: {by_hand(url)}"
    else:
        what, remedy = "nothing that is a metric", f"see what comes: {by_hand(url)}"
    return _failure(url, EndpointAnswer.STRANGE, f"{at} has none of the names that llmtop knows, but {what}", remedy)


def likeliest(problems: Sequence[Failure]) -> Failure:
    """The one that tells most: an answer in HTTP before a silence, a silence before a refusal."""
    return min(problems, key=lambda one: (one.answer < 100, one.answer == EndpointAnswer.NOT_HTTP))


def _first_line(page: Page) -> str:
    text = page.body.decode("utf-8", "replace").strip()
    first = text.split("\n", 1)[0] if not text.startswith("<") else ""
    return f": {shorten(clean(redact(first)), _SAID)}" if first else ""


def _failure(url: str, answer: int, reason: str, remedy: str) -> Failure:
    return Failure(url, answer, Unknown(reason, remedy))
