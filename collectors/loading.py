"""What a server does that is not there yet: for how long it starts, what it has read, what it compiles."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from llmtop import procfs
from llmtop.births import Descendants
from llmtop.facts import TargetFact
from llmtop.model import Target
from llmtop.text import clean, redact, shorten
from llmtop.units import quantity

_COMPILERS = frozenset(
    {"ptxas", "cicc", "nvcc", "cudafe++", "fatbinary", "nvlink", "cc1plus", "cc1", "gcc", "g++", "clang", "ninja", "ld"}
)
_LINE = 60
"""Characters of the log's last line that are told."""
_YOUNG_S = 120.0
"""A command may do other things before it starts a server: it unpacks, or downloads a little."""
_LOOK_S = 10.0
"""How often it is read how much the processes have read."""
_LOADS_BYTES = 256 << 20
"""Read within `_LOOK_S`, as weights are: 25 MiB/s is less than a network file system gives."""


class Start:
    """What a process does that may still be about to become a server. Not thread-safe.

    Args:
        target: What it belongs to.
        clock: Seconds, of any beginning.
    """

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._clock = clock
        self._below = Descendants(target.root_pid)
        self._looked_s, self._read = clock(), self._bytes_read()
        self._is_reading = False

    def progress(self, last_line: Callable[[], str] = str) -> str:
        """Half a sentence of what can be seen of it from outside; empty for a process that is gone."""
        age_s = age(self._target)
        if age_s is None:
            return ""
        parts = [f"started {age_s:.0f} s ago"]
        if read := self._bytes_read():
            weights = self._target.facts.get(TargetFact.WEIGHTS_BYTES)
            of = f" (weights: {quantity(weights, 'bytes')})" if isinstance(weights, int) and weights else ""
            parts.append(f"{quantity(read, 'bytes')} read{of}")
        compilers = Counter(name for pid in self._pids() if (name := procfs.name(pid)) in _COMPILERS)
        if compilers:
            parts.append("compiling: " + ", ".join(f"{name} x{count}" for name, count in sorted(compilers.items())))
        if line := last_line():
            parts.append(f"log: {shorten(clean(redact(line)), _LINE)}")
        return ", ".join(parts)

    def is_under_way(self, young_s: float = _YOUNG_S) -> bool:
        """It is younger than that, compiles, or reads as much as weights are."""
        age_s = age(self._target)
        if age_s is None:
            return False
        now_s = self._clock()
        if now_s - self._looked_s >= _LOOK_S:
            before, self._read, self._looked_s = self._read, self._bytes_read(), now_s
            self._is_reading = self._read - before >= _LOADS_BYTES
        names = (procfs.name(pid) for pid in self._pids())
        return age_s < young_s or self._is_reading or any(name in _COMPILERS for name in names)

    def _bytes_read(self) -> int:
        return max(map(bytes_read, self._pids()))

    def _pids(self) -> list[int]:
        return [self._target.root_pid, *self._below.now()]


def age(target: Target) -> float | None:
    """Seconds since a server's root process began; None when it is gone."""
    root = procfs.stat(target.root_pid)
    return None if root is None else time.clock_gettime(time.CLOCK_BOOTTIME) - root.start_ticks / procfs.TICKS_PER_S


def bytes_read(pid: int) -> int:
    """The most that a process can be seen to have read: by system calls, from disks, or as files mapped in memory."""
    counts = _fields(f"{procfs.PROC}/{pid}/io", 1)
    mapped = _fields(f"{procfs.PROC}/{pid}/status", 1).get("RssFile", 0) * 1024
    return max(counts.get("rchar", 0), counts.get("read_bytes", 0), mapped)


def _fields(path: str, word: int) -> dict[str, int]:
    """The numbers of a file of lines "name: number"."""
    rows = (line.split() for line in (procfs.read_text(path) or "").splitlines())
    return {row[0].rstrip(":"): int(row[word]) for row in rows if len(row) > word and row[word].isdigit()}
