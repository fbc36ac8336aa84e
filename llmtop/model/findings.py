"""What is wrong: with what was watched (`Finding`), and with the data themselves (`Issue`)."""

from __future__ import annotations

import re
from enum import StrEnum

from llmtop.frozen import frozen
from llmtop.model.tracks import TrackId


class Severity(StrEnum):
    """How much a mark, an issue or a finding matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@frozen
class Issue:
    """A fault in the data, as data: rows skipped, samples late, a collector that failed."""

    severity: Severity
    code: str
    message: str
    count: int = 1


@frozen
class Stretch:
    """From when to when something of a trace is, and on which of its tracks, where it is on one."""

    start_ns: int
    end_ns: int
    track: TrackId | None = None


@frozen
class IdleTime:
    """Idle time of a GPU that has one of some causes, each with the name of the call or range, or an empty one."""

    gpu: TrackId
    labels: tuple[tuple[str, str], ...]


@frozen
class Finding:
    """A diagnosis: what is wrong with what, how we know, and what to do next.

    Attributes:
        share: Of a cause, the share of the time (0 to 1) that it explains; None where that cannot be said.
        parts: Names of what a subject of several stands for: "7 kernels".
        next_command: What to run next; where there is none for a report, `no_command` says why.
        at_stake_ns: Time of a capture that acting on it can save at most, as far as the evidence tells: findings of a
            report are ranked by it. None where the evidence gives no such number, and live.
        idle: Of a finding about gaps, which: of the GPU that loses most.
        place: From when to when in a capture the finding shows best, where it is of one moment.
        times: Of a finding about several stretches of a capture, such as slow steps, these; none overlap.
        window_s: Of how many last seconds its shares are, live, where that is not the window of most rules.
    """

    rule: str
    severity: Severity
    subject: str
    message: str
    evidence: tuple[str, ...]
    action: str
    next_command: str = ""
    source: str = ""
    share: float | None = None
    at_stake_ns: float | None = None
    parts: tuple[str, ...] = ()
    no_command: str = ""
    idle: IdleTime | None = None
    place: Stretch | None = None
    times: tuple[Stretch, ...] = ()
    window_s: float | None = None

    def headline(self) -> str:
        """Of what and what is wrong, in a line: a message that names its subject says both."""
        is_named = re.search(rf"(?<!\w){re.escape(self.subject)}(?![\w/])", self.message)
        return self.message if is_named else f"{self.subject}: {self.message}"
