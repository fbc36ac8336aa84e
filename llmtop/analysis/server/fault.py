"""What is said of a server, or of a part of it, that does not live."""

from __future__ import annotations

from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Severity


@frozen
class Fault:
    """Something is dead, stopped, hung or failing.

    Attributes:
        rule: The id of the rule that says it.
        state: Two or three words for the header: "ENGINE DEAD".
        since_ns: When it was first seen so.
        is_whole: No request can be served: why it is slow is no question any more.
    """

    rule: str
    state: str
    subject: str
    message: str
    evidence: tuple[str, ...]
    action: str
    next_command: str
    since_ns: int
    is_whole: bool = True
    severity: Severity = Severity.ERROR


def for_s(since_ns: int, now_ns: int) -> str:
    """How long ago, as people say it.

    >>> for_s(0, 400_000_000), for_s(0, 12 * NS_PER_S), for_s(0, 200 * NS_PER_S)
    ('a moment', '12 s', '3 min')
    """
    seconds = max(0, now_ns - since_ns) / NS_PER_S
    if seconds < 1:
        return "a moment"
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_S else f"{seconds / 60:.0f} min"


_MINUTES_FROM_S = 120
"""From which time on it is told in minutes."""


def said_of(fault: Fault, now_ns: int) -> str:
    """The header's words: "ENGINE DEAD 12 s"."""
    return f"{fault.state} {for_s(fault.since_ns, now_ns)}" if now_ns - fault.since_ns >= NS_PER_S else fault.state
