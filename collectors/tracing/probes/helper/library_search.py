"""When the libraries of a process are looked for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...helper.libraries import mapped_libraries

_LOOK_S, _LONGEST_LOOK_S = 5.0, 60.0
"""How often a process's list of libraries is read: they are mapped while a server starts, and seldom later. The list
of a server with torch is thousands of lines, made by the kernel while the process may not map anything."""


@dataclass
class _Search:
    """In one process."""

    look_s: float = 0.0
    patience_s: float = _LOOK_S
    paths: set[str] = field(default_factory=set)
    """What it has found."""


class LibrarySearch:
    """Finds libraries with functions of ours, in one process at a time and ever more seldom."""

    def __init__(self) -> None:
        self._searches: dict[int, _Search] = {}

    def __contains__(self, pid: int) -> bool:
        """Whether a process has been looked through, or was about to be."""
        return pid in self._searches

    def forget(self, pid: int) -> None:
        """It has ended."""
        self._searches.pop(pid, None)

    def found(self, pids: Iterable[int]) -> tuple[int, dict[str, tuple[str, ...]]] | None:
        """Where it is time to look: the process, and by path the functions of libraries that it has mapped since."""
        now_s = time.monotonic()
        for pid in pids:
            search = self._searches.setdefault(pid, _Search())
            if now_s >= search.look_s:
                return pid, self._look(pid, search, now_s)
        return None

    def _look(self, pid: int, search: _Search, now_s: float) -> dict[str, tuple[str, ...]]:
        mapped = mapped_libraries(pid)
        fresh = {path: names for path, names in mapped.items() if path not in search.paths}
        patience_s = _LOOK_S if fresh else search.patience_s  # what maps one may map more
        search.look_s, search.patience_s = now_s + patience_s, min(2 * patience_s, _LONGEST_LOOK_S)
        search.paths |= fresh.keys()
        return fresh
