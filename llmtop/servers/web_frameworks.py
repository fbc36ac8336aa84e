"""Requests by HTTP status, as the web frameworks in front of Python's engines count them.

Names read in the sources of prometheus-fastapi-instrumentator 7 (vLLM) and SGLang 0.5.
"""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import ExposedNumber, Metric

_GENERATES = ("*/completions", "*/responses", "*/messages", "/generate", "*/v1/generate")
"""Paths whose answers are an engine's tokens, and nothing else (those of vLLM and SGLang)."""


def _by_status(name: str, path: str, status: str) -> dict[Metric, ExposedNumber]:
    """Pages are fetched with GET; what clients want of a model they send with POST."""

    def counted(code: str, *paths: str) -> ExposedNumber:
        where = {"method": ("POST",), status: (code,)}
        return ExposedNumber(name, where | {path: paths} if paths else where, from_zero=True)

    return {
        v.SERVER_HTTP_DONE: counted("2*"),
        v.SERVER_HTTP_REFUSED: counted("4*"),
        v.SERVER_HTTP_FAILED: counted("5*"),
        v.SERVER_HTTP_GENERATED: counted("2*", *_GENERATES),
    }


FASTAPI = {metric: (number,) for metric, number in _by_status("http_requests", "handler", "status").items()}
SGLANG = {
    metric: (number, *FASTAPI[metric])
    for metric, number in _by_status("sglang_http_responses", "endpoint", "status_code").items()
}
