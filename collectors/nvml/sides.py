"""What both sides of NVML's process know: llmtop loads this, and nothing else of what asks the driver."""

from __future__ import annotations

import struct

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.model import NS_PER_S, Source, TrackKind, Unknown, UnknownKind

NAME = "nvml"
"""Of the collector, on both sides."""
OWNS = Source(
    NAME,
    (TrackKind.GPU, TrackKind.GPU_INSTANCE, TrackKind.GPU_PROCESS),
    families=("gpu.", "gpu_process."),
    parts={whats.Facet.GPM: v.GPM},
)
PERIOD_S = 0.12
"""A GPM window needs 100 ms, and polls jitter."""
HUNG_NS = 2 * NS_PER_S
"""From here on a call is said to hang."""
_HUNG_REMEDY = (
    "dmesg | grep -iE 'nvrm|xid'; it goes on by itself when the call returns; a GPU that stays so needs a reset"
)
LIBRARY = "libnvidia-ml.so.1"
LENGTH = struct.Struct("<I")
"""Before each pickle, of its bytes."""


def hung(what: str) -> Unknown:
    """Why nothing is known, of a call into the driver that does not return."""
    return Unknown(f"hung: {what}", _HUNG_REMEDY, UnknownKind.HUNG)
