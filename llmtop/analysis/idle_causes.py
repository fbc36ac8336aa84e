"""The GPU's idle time by what the thread that drives it did at the same instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop.analysis.tables import RowTable
from llmtop.model import NS_PER_S, Unknown

if TYPE_CHECKING:
    from llmtop.model import Trace

WINDOW_NS = 60 * NS_PER_S


@dataclass(frozen=True, slots=True)
class IdleCause:
    """One cause of idle time.

    Attributes:
        cause: "no_request", "throttled", "run_queue", "working", "polling", "cuda_sync", "blocked:<ThreadCause>" or
            "unknown".
        thread: The thread it is about: "EngineCore"; empty where it is about none.
        title: In words: "EngineCore worked on the CPU".
        idle_s: Seconds of the GPU's time.
        of_idle: Share of all idle time, 0 to 1; `of_window` likewise of the time that was looked at.
    """

    cause: str
    thread: str
    title: str
    idle_s: float
    of_idle: float
    of_window: float


@dataclass(frozen=True, slots=True)
class IdleCauses:
    """The idle time of one GPU, split up; the rows add up to `idle_s`.

    Attributes:
        rows: The largest first.
        observed_s: Seconds of the window in which the GPU was read; all shares are of these.
        covered_s: Of these, seconds in which the thread was read too.
        sources: Who read what: "SM: GPM", "EngineCore: schedstat".
        notes: What is an estimate, and what could not be told apart.
    """

    gpu: str
    rows: tuple[IdleCause, ...]
    window_s: float
    observed_s: float
    covered_s: float
    idle_s: float
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def idle_share(self) -> float:
        """Idle time as a share of the time that was looked at."""
        return self.idle_s / self.observed_s if self.observed_s else 0.0

    @property
    def sentence(self) -> str:
        """One line: "GPU 0 idle 62 % of the last 60 s: 71 % of it EngineCore worked on the CPU, 20 % ..."."""
        return ""


def idle_causes(trace: Trace, gpu: str | None = None, window_ns: int = WINDOW_NS) -> IdleCauses | Unknown:
    """Why one GPU (a track id; the first where None) was idle; Unknown where the GPU or its thread is not read."""
    return Unknown("idle causes are not computed yet")


def idle_causes_table(causes: IdleCauses) -> RowTable:
    """One row a cause."""
    return RowTable((), (), ())
