"""What programs in the kernel have cost, by the kernel's own clock around each run of them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from ...helper import system
from ...helper.kernel import time_programs


class RunTime:
    """Has the kernel time some programs for a while: all the time it would cost some nanoseconds a run.

    Args:
        programs: Their descriptors.
    """

    def __init__(self, programs: Collection[int]) -> None:
        self._programs = programs
        self._clock: int | None = None
        self._before_ns: int

    def start(self) -> None:
        """From now on; where the kernel does not let us (CAP_SYS_ADMIN), nothing is timed."""
        if self._clock is None and (clock := time_programs()) is not None:
            self._clock, self._before_ns = clock, self._ns()

    def stop(self) -> int | None:
        """For how long they have run since then, in ns; None where that was not timed."""
        if self._clock is None:
            return None
        os.close(self._clock)
        self._clock = None
        return self._ns() - self._before_ns

    def _ns(self) -> int:
        told = (system.read(f"/proc/self/fdinfo/{one}") for one in self._programs)
        found = (re.search(r"^run_time_ns:\s*(\d+)", one, re.MULTILINE) for one in told)
        return sum(int(one.group(1)) for one in found if one)
