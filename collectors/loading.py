"""What a server does that is not there yet: for how long it starts, what it has read, what it compiles."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable

from llmtop import procfs
from llmtop.model import Target
from llmtop.text import clean, shorten
from llmtop.units import quantity

_COMPILERS = frozenset(
    {"ptxas", "cicc", "nvcc", "cudafe++", "fatbinary", "nvlink", "cc1plus", "cc1", "gcc", "g++", "clang", "ninja", "ld"}
)
_LINE = 60
_TICKS = os.sysconf("SC_CLK_TCK")


def progress(target: Target, last_line: Callable[[], str] = str) -> str:
    """Half a sentence of what can be seen of a server's start from outside; empty for a process that is gone."""
    age_s = age(target)
    if age_s is None:
        return ""
    pids = [target.root_pid, *procfs.below(target.root_pid)]
    parts = [f"started {age_s:.0f} s ago"]
    if read := max((bytes_read(pid) for pid in pids), default=0):
        weights = target.facts.get("weights_bytes")
        of = f" (weights: {quantity(weights, 'bytes')})" if isinstance(weights, int) and weights else ""
        parts.append(f"{quantity(read, 'bytes')} read{of}")
    compilers = Counter(name for pid in pids if (name := procfs.name(pid)) in _COMPILERS)
    if compilers:
        parts.append("compiling: " + ", ".join(f"{name} x{count}" for name, count in sorted(compilers.items())))
    if line := last_line():
        parts.append(f"log: {shorten(clean(line), _LINE)}")
    return ", ".join(parts)


def age(target: Target) -> float | None:
    """Seconds since a server's root process began; None when it is gone."""
    root = procfs.stat(target.root_pid)
    return None if root is None else time.clock_gettime(time.CLOCK_BOOTTIME) - root.start_ticks / _TICKS


def bytes_read(pid: int) -> int:
    """The most that a process can be seen to have read: by system calls, from disks, or as files mapped in memory."""
    counts = _fields(f"{procfs.PROC}/{pid}/io", 1)
    mapped = _fields(f"{procfs.PROC}/{pid}/status", 1).get("RssFile", 0) * 1024
    return max(counts.get("rchar", 0), counts.get("read_bytes", 0), mapped)


def _fields(path: str, word: int) -> dict[str, int]:
    """The numbers of a file of lines "name: number"."""
    rows = (line.split() for line in (procfs.read_text(path) or "").splitlines())
    return {row[0].rstrip(":"): int(row[word]) for row in rows if len(row) > word and row[word].isdigit()}
