"""Where a trace comes from, and how the clocks of several files became one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from llmtop.frozen import frozen
from llmtop.model.tracks import TrackId
from llmtop.model.values import Fact, Unknown


@frozen
class Origin:
    """Where a trace comes from.

    Attributes:
        kind: Of a file the name of its parser: "ncu-rep", "nsys-sqlite" ...; of what is watched see `LIVE`.
        facts: Session facts to show: command, host, GPU, driver ... Secrets are already redacted.
        utc_ns: When the clock of the trace read 0, in ns since 1970 on the clock of its host; None where nothing tells.
        rank: Of the process in its group of several that work on one thing, and `ranks` how many these are.
        host: The machine's name; empty where nothing tells.
        range_term: What people call a range that the program marks itself, of what recorded it: NVTX alone has its own.
    """

    kind: str
    path: str = ""
    tool_version: str = ""
    gpu: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    utc_ns: int | None = None
    rank: int | None = None
    ranks: int | None = None
    host: str = ""
    range_term: str = "NVTX range"

    @property
    def is_ncu(self) -> bool:
        """Whether Nsight Compute made it, in whichever of its formats."""
        return self.kind.startswith("ncu")

    @property
    def has_nvtx(self) -> bool:
        """Whether what the program marks is NVTX: then ncu finds the same ranges by their names."""
        return self.range_term.startswith("NVTX")

    @property
    def is_observed(self) -> bool:
        """Whether llmtop itself has read it of a machine, now or when it was recorded; else a tool wrote a report."""
        return self.kind in (LIVE.kind, RECORDING)


LIVE: Final = Origin("live")
"""Of all that collectors read."""
RECORDING: Final = "recording"
"""The kind of what was watched, kept to be looked at again."""
NVPROF: Final = "nvprof"
"""The kind of what nvprof wrote, the profiler before Nsight Systems."""
KINETO: Final = "kineto"
"""The kind of what PyTorch's profiler wrote."""


class ClockBasis(StrEnum):
    """What brought the clock of one rank's file onto that of the first."""

    FIRST = "the first file's own clock"
    COLLECTIVES = "collectives"
    """Operations that all ranks end together: as good as these do."""
    HOST = "one host's clock"
    """The files are of one machine: as good as the tool writes its start down."""
    UTC = "clocks of several hosts"
    """As good as these agree: milliseconds at best."""


@frozen
class ClockFit:
    """How one clock became another: t + `offset_ns` + `drift` (t - `since_ns`).

    Attributes:
        drift: By how much more the other one advances, as a share: 1e-6 is one microsecond in each second.
        residual_ns: The median distance that is left between ends of one collective; None where none was matched.
        matched: How many were.
        is_sure: Whether only one way to match them fits.
    """

    basis: ClockBasis
    offset_ns: int = 0
    drift: float = 0.0
    since_ns: int = 0
    residual_ns: float | None = None
    matched: int = 0
    is_sure: bool = True

    @property
    def is_comparable(self) -> bool:
        """Whether moments on both can be compared as near as ranks wait for each other."""
        return self.basis in (ClockBasis.FIRST, ClockBasis.COLLECTIVES)


@frozen
class RankPart:
    """One of the files that a trace of several ranks is made of.

    Attributes:
        name: What to call it: "rank 3"; of a file without a rank, by its name.
        gpus: Ids of the tracks of its GPUs.
        clock: How its clock was brought onto the first one's; why it was not.
    """

    name: str
    origin: Origin
    gpus: tuple[TrackId, ...]
    clock: ClockFit | Unknown
