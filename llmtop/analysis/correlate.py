"""Which series of the CPU side move with the GPU's idle time, by how much later, and whether that can be chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop.model import NS_PER_S, Unknown

if TYPE_CHECKING:
    from llmtop.model import Trace

WINDOW_NS = 120 * NS_PER_S
SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Correlation:
    """How one series moves with the GPU's idle share.

    Attributes:
        lag_ns: Positive: the GPU's idle time follows the series by so much. Known to `resolution_ns`.
        r: Spearman's rank correlation at that lag.
        p: How likely chance alone gives as strong a one, corrected for all lags and series that were tried.
        n_effective: As how many independent samples the `samples` count.
        is_control: The series is an effect of a busy GPU, not a cause of an idle one (tokens).
    """

    title: str
    source: str
    lag_ns: int
    resolution_ns: int
    r: float
    p: float
    n_effective: float
    samples: int
    is_control: bool = False

    @property
    def is_significant(self) -> bool:
        """Whether chance alone is unlikely (`SIGNIFICANT`)."""
        return self.p < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Correlations:
    """All series of the window against the GPU's idle share, the surest first; Unknown says why one cannot be judged.

    Attributes:
        against: "GPU 0 idle (100 - SM, GPM)".
        rows: (title, correlation) pairs.
    """

    against: str
    window_s: float
    step_s: float
    rows: tuple[tuple[str, Correlation | Unknown], ...]


def correlations(trace: Trace, gpu: str | None = None, window_ns: int = WINDOW_NS) -> Correlations | Unknown:
    """Every series of the CPU side against the idle share of one GPU (a track id; the first where None)."""
    return Unknown("correlations are not computed yet")
