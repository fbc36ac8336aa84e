"""What one look at /proc finds, and what is remembered of a process from one look to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmtop import ids

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.collectors.proc_threads import Thread, ThreadAccess
    from llmtop.model import Mark, Missing, Reading, Track, TrackId


@dataclass(slots=True)
class KnownProcess:
    """What is remembered of a process.

    Attributes:
        is_part: It is one of those that make up the server, by a role that was read twice: between fork and exec a
            compiler that the engine starts has the engine's command line.
        is_announced: It was said that it came.
        alive_ns: When it was last seen alive.
        thread_count: How many threads it had then.
        shown: Its track as it was last sent.
        files_limit: How many files it may have open.
        freezer: The file that says whether its cgroup is frozen.
    """

    pid: int
    start_ticks: int
    parent: int
    role: str
    seen_ns: int
    access: ThreadAccess
    is_part: bool = False
    is_announced: bool = False
    alive_ns: int = 0
    thread_count: int = 0
    threads: dict[int, Thread] = field(default_factory=dict)
    shown: Track | None = None
    files_limit: int | None = None
    freezer: Path | None = None

    @property
    def id(self) -> TrackId:
        """Of its track."""
        return ids.process(self.pid)

    @property
    def title(self) -> str:
        """What people call it: "EngineCore (pid 4300)"."""
        return title_of(self.role, self.pid)


def title_of(role: str, pid: int) -> str:
    """The same of one that is not known any more."""
    return f"{role} (pid {pid})"


@dataclass(slots=True)
class ProcPoll:
    """What one poll has found."""

    tracks: dict[TrackId, Track] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    gone: list[TrackId] = field(default_factory=list)
    came: list[KnownProcess] = field(default_factory=list)
