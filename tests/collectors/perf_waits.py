"""How tests and benchmarks wait for perf, which wait for nothing else meanwhile."""

from __future__ import annotations

import select
from collections.abc import Sequence


def wait_plainly(descriptors: Sequence[int], seconds: float) -> list[int]:
    """Those that are ready to be read within so many seconds."""
    return select.select(descriptors, [], [], max(0.0, seconds))[0]
