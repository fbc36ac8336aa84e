"""Names of frames as the probes' helper writes them."""

from __future__ import annotations

import re
from bisect import bisect_right

from llmtop import procfs
from llmtop.collectors.tracing.bpftrace.output import Frames

_ADDRESS = re.compile(r"(?:0x)?[0-9a-f]{6,16}\Z")
_RENEW_AFTER = 10
UNKNOWN = "[unknown]"


class Symbols:
    """Puts the library in the place of an address that bpftrace has no name for, and marks the kernel's functions."""

    def __init__(self) -> None:
        self._maps: dict[int, tuple[list[int], list[tuple[int, str]]]] = {}
        self._ticks = 0

    def frames(self, pid: int, user: Frames, kernel: Frames) -> Frames:
        """Root first: the program's functions, then the kernel's."""
        return (*(self._user(pid, frame) for frame in user), *(_kernel(frame) for frame in kernel))

    def tick(self) -> None:
        """Called at each look with stacks: processes map more libraries as time goes by."""
        self._ticks += 1
        if self._ticks % _RENEW_AFTER == 0:
            self._maps.clear()

    def _user(self, pid: int, frame: str) -> str:
        if not _ADDRESS.match(frame):
            return frame
        maps = self._maps.get(pid)
        if maps is None:
            maps = self._maps[pid] = mapped_files(procfs.read_text(f"/proc/{pid}/maps") or "")
        return _file_at(maps, int(frame, 16))


def _kernel(frame: str) -> str:
    return "[unknown]_[k]" if _ADDRESS.match(frame) else f"{frame}_[k]"


def mapped_files(text: str) -> tuple[list[int], list[tuple[int, str]]]:
    """From /proc/PID/maps: where mappings begin, and where they end and what they are."""
    starts: list[int] = []
    ends: list[tuple[int, str]] = []
    for line in text.splitlines():
        fields = line.split(None, 5)
        span = re.match(r"([0-9a-f]+)-([0-9a-f]+)\Z", fields[0]) if fields else None
        if span:
            name = fields[5].rpartition("/")[2].strip("[]") if len(fields) == 6 else "anon"
            starts.append(int(span.group(1), 16))
            ends.append((int(span.group(2), 16), f"[{name}]"))
    return starts, ends


def _file_at(maps: tuple[list[int], list[tuple[int, str]]], address: int) -> str:
    starts, ends = maps
    place = bisect_right(starts, address) - 1
    if place < 0 or address >= ends[place][0]:
        return UNKNOWN
    return ends[place][1]
