"""Most of what the draft proposes is thrown away: speculation costs more than it gains."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.evidence import known, metrics_command, says
from llmtop.analysis.rules.signals import Signal
from llmtop.analysis.series.readings import counter_increase, latest, server_track
from llmtop.analysis.series.readings import source as source_of
from llmtop.analysis.server.configuration import Setting, setting
from llmtop.model import NS_PER_S, Feature, Finding, Severity, Trace, TrackId, Unknown
from llmtop.units import percent

id = "speculation-poor"
summary = "Less than half of the drafted tokens are accepted: each step verifies tokens that nobody gets."
source = "Machine Learning Systems, Performance Engineering (speculative decoding: acceptance, and batches below 16)"

_WINDOW_NS = 60 * NS_PER_S
"""In which drafted tokens are counted."""
_POOR = 0.5
"""Share of drafted tokens that are taken, below which drafting is hardly worth its time."""
_LEAST_DRAFTED = 100.0
"""Tokens, of fewer of which nothing is said."""
_LARGE_BATCH = 16.0
"""Running requests from which verifying is not free any more: the GPU has no arithmetic to spare."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """The accepted share of the last minute, and the load at which it is wasted."""
    server = server_track(trace)
    accepted = None if server is None else _accepted(trace, server.id)
    if server is None or accepted is None or accepted.value >= _POOR:
        return
    running = known(latest(trace, server.id, v.SERVER_RUNNING))
    batch = "" if running is None else f" at {running:.0f} running"
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name,
        message=f"speculation pays little: {percent(100 * accepted.value)} of the drafted tokens are accepted{batch}",
        evidence=(accepted.text, *_says_running(trace, server.id, running), *_says_setting(trace)),
        action=_action(running),
        next_command=metrics_command(server, "spec"),
        source=source,
        window_s=_WINDOW_NS / NS_PER_S,
    )


def _accepted(trace: Trace, track: TrackId) -> Signal | None:
    """By the counters of the last minute; else what the server says of itself."""
    drafted, taken = (counter_increase(trace, track, one, _WINDOW_NS) for one in (v.SERVER_DRAFTED, v.SERVER_ACCEPTED))
    if not isinstance(drafted, Unknown) and not isinstance(taken, Unknown):
        if drafted.amount < _LEAST_DRAFTED:
            return None
        where = source_of(trace, track, v.SERVER_ACCEPTED)
        counted = f"{taken.amount:.0f} of {drafted.amount:.0f} drafted tokens accepted in {drafted.seconds:.0f} s"
        return Signal(taken.amount / drafted.amount, f"{counted} ({where})")
    share = known(latest(trace, track, v.SERVER_ACCEPTANCE))
    # Servers show 0 before the first draft.
    return Signal(share, says(trace, track, v.SERVER_ACCEPTANCE, share)) if share else None


def _says_running(trace: Trace, track: TrackId, running: float | None) -> tuple[str, ...]:
    return () if running is None else (says(trace, track, v.SERVER_RUNNING, running),)


def _says_setting(trace: Trace) -> tuple[str, ...]:
    told = setting(trace, Feature.SPECULATIVE_DECODING)
    return (f"speculative decoding: {told.text} ({told.source})",) if isinstance(told, Setting) and told.is_on else ()


def _action(running: float | None) -> str:
    fewer = "draft fewer tokens at once, take a draft that fits this traffic better, or switch speculation off"
    return f"{fewer}: with a batch this large it gains little anyway" if (running or 0) >= _LARGE_BATCH else fewer
