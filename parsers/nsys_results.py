"""What CUDA calls returned that did not succeed: an export has it of every call, as the number of its error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from llmtop.parsers.nsys_export import DAMAGE, lost
from llmtop.parsers.nsys_payloads import placed

if TYPE_CHECKING:
    from llmtop.model import SpanTable, TrackId, Value
    from llmtop.parsers.nsys_export import Capture

CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RESULT = "returnValue"
_ERRORS: Final[Mapping[int, str]] = {
    1: "invalid value",
    2: "out of memory",
    3: "not initialized",
    4: "deinitialized",
    98: "invalid device function",
    100: "no device",
    101: "invalid device",
    200: "invalid image",
    201: "invalid context",
    209: "no binary for this GPU",
    217: "peer access unsupported",
    218: "invalid PTX",
    400: "invalid handle",
    401: "illegal state",
    500: "not found",
    600: "not ready",
    700: "illegal address",
    701: "too many resources asked for",
    702: "timeout",
    704: "peer access is enabled already",
    705: "peer access is not enabled",
    709: "context destroyed",
    710: "assertion failed",
    715: "illegal instruction",
    716: "misaligned address",
    719: "launch failed",
    720: "cooperative launch too large",
    800: "not permitted",
    801: "not supported",
    900: "not while a stream is captured",
    901: "capture of a stream ended by an error",
    906: "the capturing stream would wait for the default one",
    999: "unknown error",
}
"""cudaError and CUresult, which have had the same numbers since CUDA 10.1 (cuda.h, driver_types.h)."""


def results(capture: Capture, calls: SpanTable) -> Mapping[int, Mapping[str, Value]]:
    """Of the calls that returned an error its name and number, by their rows."""
    try:
        return dict(placed(calls, _failed(capture)))
    except DAMAGE as error:
        capture.issues.append(lost("results of calls", error))
        return {}


def _failed(capture: Capture) -> Iterator[tuple[int, int, TrackId, Mapping[str, Value]]]:
    if not capture.export.has(CALLS, "start", "end", "globalTid", _RESULT):
        return
    query = f'SELECT start, "end", globalTid, {_RESULT} FROM {CALLS} WHERE {_RESULT} <> 0'
    for row in capture.export.execute(query):
        if all(isinstance(value, int) for value in row):
            start, end, thread, number = row
            yield start, end, capture.devices.thread_track(thread), {"returned": _error(number)}


def _error(number: int) -> str:
    """What an error is called, with its number.

    >>> _error(2), _error(12345)
    ('out of memory (2)', 'error 12345')
    """
    name = _ERRORS.get(number)
    return f"{name} ({number})" if name else f"error {number}"
