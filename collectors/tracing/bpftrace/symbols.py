"""Names of frames as the probes' helper writes them."""

from __future__ import annotations

import re

from llmtop.collectors.tracing.bpftrace.output import Frames
from llmtop.collectors.tracing.helper.symbols import UNKNOWN, Code

_ADDRESS = re.compile(r"(?:0x)?[0-9a-f]{6,16}\Z")
_RENEW_AFTER = 10
"""Of so many looks with stacks one reads anew what processes have mapped."""


class AddressNames:
    """Puts the library in the place of an address that bpftrace has no name for, and marks the kernel's functions."""

    def __init__(self) -> None:
        self._code: dict[int, Code] = {}
        self._ticks = 0

    def frames(self, pid: int, user: Frames, kernel: Frames) -> Frames:
        """Root first: the program's functions, then the kernel's."""
        return (*(self._user(pid, frame) for frame in user), *(_kernel(frame) for frame in kernel))

    def tick(self) -> None:
        """Called at each look with stacks: processes map more libraries as time goes by."""
        self._ticks += 1
        if self._ticks % _RENEW_AFTER == 0:
            self._code.clear()

    def _user(self, pid: int, frame: str) -> str:
        if not _ADDRESS.match(frame):
            return frame
        code = self._code.get(pid)
        if code is None:
            code = self._code[pid] = Code.of(pid)
        region = code.at(int(frame, 16))
        return region.name if region else UNKNOWN


def _kernel(frame: str) -> str:
    return f"{UNKNOWN}_[k]" if _ADDRESS.match(frame) else f"{frame}_[k]"
