"""Core dumps of GPUs that processes of the server leave: which kernel failed, where, in which thread.

Where they will be is read from the environment of each process. That folder's time of change is asked for at each look,
its names only when that has moved; a dump is read once it has stopped growing, by a process beside llmtop.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from llmtop import foreign, ids, procfs, programs, whats
from llmtop.births import Descendants
from llmtop.collectors import children
from llmtop.collectors.core_dump_places import DumpPlace, places_of
from llmtop.collectors.job_thread import Job, JobThread
from llmtop.model import (
    LIVE,
    NS_PER_S,
    CoreDump,
    Mark,
    MarkKind,
    Missing,
    Severity,
    Source,
    Trace,
    Unknown,
)
from llmtop.recording.documents import MisfitError, value_of
from llmtop.text import clean
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector
    from llmtop.model import Target

YOUNG_NS = 60 * NS_PER_S
"""For so long processes are looked for at each look: a server starts its workers then."""
RELIST_NS = 5 * NS_PER_S
"""And so often later."""
SETTLED_NS = 10 * NS_PER_S
"""A dump that has not grown for so long, and is not whole, is taken for cut, while its process lives."""
_PATIENCE_S = 125.0
"""For the process that reads one, which ends by itself before."""
_MOST_NAMES = 100_000
"""Of a folder, which the server's users may have filled."""
_READER = "llmtop.parsers.core_dump_reader"
_DEVICE = Path("/dev/nvidiactl")
"""There where a driver of NVIDIA is loaded: without one nothing is said of dumps that nobody asked for."""

ReadDump: TypeAlias = "Callable[[int], CoreDump]"
"""What a dump tells, by a descriptor of it, which is left open."""


@dataclass
class _Folder:
    """A folder in which dumps may come, held open: what a process in a container has is gone from /proc with it."""

    place: DumpPlace
    pattern: re.Pattern[str]
    opened: int
    pids: dict[int, int] = field(default_factory=dict)
    """By what the processes call themselves within their container: what llmtop calls them."""
    seen_ns: int = -1
    """The folder's time of change when its names were last read."""


@dataclass
class _Growing:
    """A dump that has come, until it is told."""

    folder: _Folder
    name: str
    pid: int | None
    size: int = -1
    changed_ns: int = 0
    """When it last grew, on the collector's clock."""
    job: Job[CoreDump] | None = None
    read_size: int = -1
    why_not: Unknown | None = None
    """Of the last reading."""


class CoreDumpsCollector:
    """Watches the folders that processes of a server would leave core dumps of GPUs in.

    Args:
        target: The server.
        read: What reads a dump, in a thread of its own.
        device: What is there where GPUs of NVIDIA are.
        wall: Nanoseconds since the epoch, as files have them.
        told: What the server's root was started with, where llmtop has done that.
    """

    name = "core-dumps"
    owns = Source(name, whats=(whats.CORE_DUMPS,))
    period_s = 0.25

    def __init__(
        self,
        target: Target,
        proc: Path = procfs.PROC,
        clock: Clock = time.monotonic_ns,
        read: ReadDump | None = None,
        device: Path = _DEVICE,
        wall: Clock = time.time_ns,
        told: Mapping[str, str] | None = None,
    ) -> None:
        self._told_environment = told
        self._target, self._proc, self._clock, self._device, self._wall = target, proc, clock, device, wall
        self._read = read or read_beside
        self._thread = JobThread("llmtop core dump")
        self._below = Descendants(target.root_pid, proc)
        self._began_ns: int | None = None
        self._listed_ns = 0
        self._why_not: dict[int, Unknown] = {}
        """By process, the newest known ones: why no dumps of it can be seen."""
        self._known: dict[int, str] = {}
        """Processes whose places are known, and their names, which end with them."""
        self._begins: dict[int, int] = {}
        """When they began, in ticks since the machine's start."""
        self._folders: dict[tuple[str, str], _Folder] = {}
        self._growing: dict[tuple[str, str], _Growing] = {}
        self._told: dict[tuple[str, str], int] = {}
        """Dumps that are done with, by folder and name, and their times of change."""
        self._has_any = False

    def missing(self) -> Unknown | None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close()
        for folder in self._folders.values():
            os.close(folder.opened)
        self._folders.clear()
        self._growing.clear()

    @property
    def is_eager(self) -> bool:
        return bool(self._growing)

    def poll(self) -> Trace:
        now = self._clock()
        if self._began_ns is None:
            self._began_ns = now
        is_young = now - self._began_ns < YOUNG_NS
        changed = [folder for folder in self._folders.values() if self._has_changed(folder)]
        if is_young or changed or now - self._listed_ns >= RELIST_NS:
            before = set(self._folders)
            self._look_at_processes(now)
            changed += [
                self._folders[key] for key in self._folders.keys() - before if self._has_changed(self._folders[key])
            ]
        begun = [mark for folder in changed for mark in self._come(folder, now)]
        told = [mark for key in list(self._growing) for mark in self._advanced(key, now)]
        return Trace(LIVE, now, now, marks=(*begun, *told), missing=tuple(self._missing()))

    # Processes

    def _look_at_processes(self, now: int) -> None:
        self._listed_ns = now
        root = self._target.root_pid
        living = {root, *self._below.now(), *(one.pid for one in self._target.processes)}
        for pid in sorted(living - self._known.keys()):
            places = places_of(pid, root, self._proc, self._told_environment if pid == root else None)
            if isinstance(places, Unknown):
                if procfs.stat(pid, self._proc) is not None:
                    self._why_not[pid], self._known[pid] = places, ""
                continue
            self._watch(pid, places)

    def _watch(self, pid: int, places: tuple[DumpPlace, ...]) -> None:
        for place in places:
            folder = self._folders.get((place.folder, place.name)) or self._opened(pid, place)
            if folder is not None:
                folder.pids[procfs.innermost_pid(pid, self._proc) or pid] = pid
                self._known[pid] = clean(procfs.name(pid, self._proc))
                # Of one that has ended only that it is not older than this program, which has started it.
                if state := procfs.stat(pid, self._proc) or procfs.stat(os.getpid()):
                    self._begins[pid] = state.start_ticks
                self._why_not.pop(pid, None)

    def _opened(self, pid: int, place: DumpPlace) -> _Folder | None:
        try:
            opened = self._open(pid, place.folder)
        except OSError as error:
            why = f"their folder {place.shown} cannot be read: {error.strerror}"
            self._why_not[pid] = Unknown(why, "make it, or run llmtop with sudo: the driver makes no folder")
            return None
        folder = self._folders[place.folder, place.name] = _Folder(place, place.pattern(), opened)
        return folder

    def _open(self, pid: int, folder: str) -> int:
        if self._told_environment is not None and procfs.stat(pid, self._proc) is None:
            # llmtop has started it, told it this folder, and sees it by the same path.
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return foreign.opened_folder(pid, folder.removeprefix(f"{self._proc}/{pid}/root"), self._proc)

    # Files

    def _has_changed(self, folder: _Folder) -> bool:
        """Whether names came or went since they were read; always, where one name may be written again and again."""
        try:
            changed_ns = os.fstat(folder.opened).st_mtime_ns
        except OSError:  # on a file system that has gone away
            return False
        if changed_ns == folder.seen_ns and folder.place.names_process:
            return False
        folder.seen_ns = changed_ns
        return True

    def _come(self, folder: _Folder, now: int) -> Iterator[Mark]:
        """Dumps that were not there before."""
        for name in _names(folder):
            found = folder.pattern.fullmatch(name)
            key = (folder.place.folder, name)
            if found is None or key in self._growing:
                continue
            state = _state(name, folder)
            if state is None or self._told.get(key) == state.st_mtime_ns:
                continue
            inside = int(found["pid"]) if "pid" in found.groupdict() else None
            pid = folder.pids.get(inside) if inside is not None else None
            if (inside is not None and pid is None) or self._is_older(state, pid):
                self._told[key] = state.st_mtime_ns
                continue
            self._growing[key] = _Growing(folder, name, pid, changed_ns=now)
            self._has_any = True
            yield self._mark(now, pid, f"writes a core dump of its GPU: {self._path(folder, name)}")

    def _is_older(self, state: os.stat_result, pid: int | None) -> bool:
        """Whether a dump is of before the process, or of before llmtop looked where its name tells no process."""
        if pid is None:
            age_ns = self._clock() - (self._began_ns or 0)
            return state.st_mtime_ns < self._wall() - age_ns
        boot_ns = self._wall() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return state.st_mtime_ns < boot_ns + self._begins.get(pid, 0) * NS_PER_S // procfs.TICKS_PER_S

    def _advanced(self, key: tuple[str, str], now: int) -> Iterator[Mark]:
        """The mark of a dump that could be read by now, or never will be."""
        one = self._growing[key]
        state = _state(one.name, one.folder)
        if state is None:  # somebody has taken it away
            del self._growing[key]
            return
        if one.job is not None:
            if not one.job.wait(0.0):
                return
            dump, one.job = one.job.outcome, None
            one.why_not = dump.why_not
            if dump.why_not is None:
                yield from self._is_told(key, state, dump, now)
                return
        if state.st_size != one.size:
            one.size, one.changed_ns = state.st_size, now
        elif one.read_size != one.size:
            self._begin_to_read(one)
        elif now - one.changed_ns >= SETTLED_NS or not self._lives(one.pid):
            yield from self._is_told(key, state, CoreDump("", 0, why_not=one.why_not), now)

    def _begin_to_read(self, one: _Growing) -> None:
        one.read_size = one.size
        try:
            file = os.open(
                one.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=one.folder.opened
            )
        except OSError as error:
            one.why_not = Unknown(f"cannot be read: {error.strerror}", "run llmtop with sudo")
            return

        def read() -> CoreDump:
            try:
                return self._read(file)
            finally:
                os.close(file)

        one.job = self._thread.start(read)

    def _is_told(self, key: tuple[str, str], state: os.stat_result, dump: CoreDump, now: int) -> Iterator[Mark]:
        one = self._growing.pop(key)
        self._told[key] = state.st_mtime_ns
        dump = replace(dump, file=self._path(one.folder, one.name), size=state.st_size)
        left = f"left a core dump of its GPU ({binary_bytes(dump.size)})"
        if dump.why_not is not None:
            yield self._mark(now, one.pid, f"{left}, which {dump.why_not.reason}", dump)
            return
        first = dump.faults[0]
        at = "" if isinstance(first.place, Unknown) else f" at {first.place}"
        yield self._mark(now, one.pid, f"{left}: {first.exception} in {first.kernel}{at}", dump)

    def _lives(self, pid: int | None) -> bool:
        state = procfs.stat(self._target.root_pid if pid is None else pid, self._proc)
        return state is not None and state.state not in "ZX"

    # What is said

    def _mark(self, now: int, pid: int | None, said: str, dump: CoreDump | None = None) -> Mark:
        owner = self._target.root_pid if pid is None else pid
        roles = {process.pid: process.role for process in self._target.processes}
        subject = f"{roles.get(owner) or self._known.get(owner) or self._target.title} (pid {owner})"
        return Mark(now, MarkKind.CORE_DUMP, ids.process(owner), said, Severity.ERROR, subject, dump)

    @staticmethod
    def _path(folder: _Folder, name: str) -> str:
        return clean(str(Path(folder.place.shown, name)))

    def _missing(self) -> Iterator[Missing]:
        """Why there is no dump: none was asked for, none has come, or llmtop cannot see where."""
        if self._has_any:
            return
        places = [folder.place for folder in self._folders.values()]
        if places:
            where = " or ".join(dict.fromkeys(clean(str(Path(one.shown, one.name))) for one in places))
            warning = next((one.warning for one in places if one.warning), "")
            yield Missing(whats.CORE_DUMPS, Unknown(f"none has been written; one would go to {where}", warning))
        elif self._why_not and self._device.exists():
            yield Missing(whats.CORE_DUMPS, next(reversed(self._why_not.values())))


def _names(folder: _Folder) -> list[str]:
    try:
        with os.scandir(folder.opened) as entries:
            return [entry.name for entry in islice(entries, _MOST_NAMES)]
    except OSError:  # on a file system that has gone away
        return []


def _state(name: str, folder: _Folder) -> os.stat_result | None:
    """Of a regular file, and nothing else: what is no file is no dump."""
    try:
        state = os.stat(name, dir_fd=folder.opened, follow_symlinks=False)
    except OSError:
        return None
    return state if stat.S_ISREG(state.st_mode) else None


def read_beside(file: int) -> CoreDump:
    """What a dump tells, read by a process of its own; waits for it."""
    try:
        process = programs.start(
            programs.module(_READER),
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl+C and the terminal's hang-up are for llmtop
        )
    except OSError as error:
        return CoreDump("", 0, why_not=Unknown(f"could not be read: {error.strerror}"))
    children.note(process.pid)
    try:
        output, _ = process.communicate(timeout=_PATIENCE_S)
        return value_of(CoreDump, json.loads(output))
    except (subprocess.TimeoutExpired, ValueError, MisfitError):
        process.kill()
        why = Unknown("could not be read beside the server", "open it: it may take a minute, or be damaged")
        return CoreDump("", 0, why_not=why)
    finally:
        process.wait()
        children.forget(process.pid)


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry."""
    return CoreDumpsCollector(target, told=aim.environment)
