"""The server's processes and threads, from plain reads of /proc: no privileges, no probes.

Times on a CPU and in the run queue are exact, counted by the kernel in schedstat. What threads wait for is
sampled: one look at each poll (`llmtop.collectors.thread_causes` has the table).
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import platform
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from llmtop import ids, procfs, settings, whats
from llmtop import vocabulary as v
from llmtop.collectors import cgroups, pyspy_dump
from llmtop.collectors.exits import Exits
from llmtop.collectors.proc_threads import Thread, Witnesses
from llmtop.model import (
    NS_PER_S,
    Engine,
    Fact,
    Mark,
    MarkKind,
    Missing,
    Origin,
    ProcessEnd,
    Reading,
    Severity,
    Source,
    Target,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
)
from llmtop.text import clean, shell_command
from llmtop.vocabulary import ProcessState

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector

MANY_THREADS = 500
"""Reading these at each poll costs 7 ms. Beyond this many, the busiest are read, and the rest by turns."""
CLOSE_LOOKS = 200
MOST_FILES = 512
"""Files of threads that are kept open, and a quarter of what the process may open: usually 1024."""
TURN_THREADS = 300
"""How many of the rest are read at one poll."""
RENEW_NS = 5 * NS_PER_S
"""How often titles are read again: engines rename their processes some seconds after the start."""
RELIST_NS = 60 * NS_PER_S
"""How often all processes are looked at afresh; in between only PIDs that are new."""
MARKS_PER_POLL = 5
_WRAPPERS = frozenset(
    {"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "sudo", "env", "tini", "dumb-init", "timeout", "tmux"}
)
"""Programs whose children come and go as they should, until one of them is the server."""
BRIEF_NS = 3 * NS_PER_S
"""A helper that ends before it is this old is no event by itself: a server that compiles starts a hundred of them."""
TOLD_EVERY_NS = 10 * NS_PER_S
"""How often the short-lived helpers are told of, together."""
MOST_ENDED = 20
"""Parts of the server that are remembered after their end."""
_NAMES_TOLD = 3
_NS_PER_TICK = NS_PER_S // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STAT = "/proc/PID/stat"
_STATUS = "/proc/PID/status"
_TOOLS = ("perf", "gdb")


@dataclass(slots=True)
class _KnownProcess:
    """What is remembered of a process."""

    pid: int
    start_ticks: int
    parent: int
    role: str
    seen_ns: int
    witnesses: Witnesses
    is_part: bool = False
    """It is one of those that make up the server, by a role that was read twice: between fork and exec a compiler that
    the engine starts has the engine's command line."""
    is_announced: bool = False
    alive_ns: int = 0
    """When it was last seen alive."""
    threads: dict[int, Thread] = field(default_factory=dict)
    shown: Track | None = None

    @property
    def id(self) -> TrackId:
        return ids.process(self.pid)


@dataclass(slots=True)
class _Ended:
    """A part of the server that has ended."""

    pid: int
    start_ticks: int
    role: str
    ended_ns: int
    was_over: bool = False
    """It had ended before the first look, which is then what `ended_ns` tells."""
    alive_ns: int = 0
    shown: Track | None = None


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a process ended, and how much that matters."""

    how: str | Unknown
    is_regular: bool
    severity: Severity

    @property
    def said(self) -> str:
        return "exited" if isinstance(self.how, Unknown) else f"exited: {self.how}"


@dataclass(slots=True)
class _News:
    """What one poll has found."""

    tracks: dict[TrackId, Track] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    gone: list[TrackId] = field(default_factory=list)
    came: list[_KnownProcess] = field(default_factory=list)


class ProcCollector:
    """Watches a process and all its descendants.

    Args:
        engines: What tells the roles of processes that start later than the target was looked at.
    """

    name = "proc"
    owns = Source(
        name,
        (TrackKind.PROCESS, TrackKind.THREAD, TrackKind.ENDED, TrackKind.HOST),
        families=("cgroup.",),
        metrics=(
            *(v.PROCESS_CPU, v.PROCESS_SYSTEM, v.PROCESS_FAULTS, v.PROCESS_MAJOR_FAULTS, v.PROCESS_SWAP, v.PROCESS_RSS),
            *(v.PROCESS_THREADS, v.PROCESS_STATE, v.THREAD_ON_CPU, v.THREAD_RUN_QUEUE, v.THREAD_VOLUNTARY),
            *(v.THREAD_INVOLUNTARY, v.THREAD_STATE_SAMPLES, v.THREAD_GIL_FUTEX, v.HOST_CPU_PRESSURE, v.HOST_LOAD),
        ),
    )
    period_s = 0.1

    def __init__(
        self,
        target: Target,
        engines: Sequence[Engine] = (),
        clock: Clock = time.monotonic_ns,
        exits: Exits | None = None,
    ) -> None:
        self._target = target
        self._exits = exits or Exits()
        self._over: dict[TrackId, _Ended] = {}
        self._brief: dict[str, int] = {}
        """Helpers that ended soon after their start and were not told of yet: how many by name."""
        self._told_ns = 0
        self._freezer: Path | None = None
        # The target's own engine first: what it calls its processes is the likeliest.
        self._engines = sorted(engines, key=lambda engine: engine.kind != target.kind)
        self._clock = clock
        self._processes: dict[int, _KnownProcess] = {}
        self._files = procfs.KeptFiles(min(MOST_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._listed: set[int] = set()
        self._relisted_ns = 0
        self._renewed_ns = 0
        self._has_polled = False
        self._is_time_to_renew = True
        self._groups: dict[int, cgroups.Group | Unknown] = {}
        """By PID, of the parts of the server: the root, and those that run in another group than it."""
        self._ended = ""
        self._turn = 0
        engine = next((one for one in engines if one.kind == target.kind), None)
        self._settings = (
            settings.facts(engine, target.facts, version=target.facts.get("version")) if engine is not None else {}
        )
        """What is known of its configuration without its endpoint, which may be off, and tells more."""

    def missing(self) -> Unknown | None:
        if procfs.stat(os.getpid()) is None:
            return Unknown("/proc is not there", "mount it: mount -t proc proc /proc")
        return None

    def __enter__(self) -> Self:
        self._exits.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()
        self._files.close()

    def poll(self) -> Trace:
        start = self._clock()
        news = _News()
        self._is_time_to_renew = not self._has_polled or start - self._renewed_ns >= RENEW_NS
        self._renewed_ns = start if self._is_time_to_renew else self._renewed_ns
        self._exits.read_signals()
        self._find_processes(news, start)
        ended = [process for process in list(self._processes.values()) if not self._read_process(process, news)]
        news.marks += _marks("started", news.came, start)
        self._mark_ends(ended, news)
        self._follow_ends(news)
        self._tell_brief(news, start)
        self._read_threads(news)
        self._read_groups(news)
        _read_host(news, self._clock())
        self._say_what_is_missing(news)
        self._has_polled = True
        return Trace(
            Origin("live"),
            start,
            self._clock(),
            tracks=news.tracks,
            readings=tuple(news.readings),
            marks=tuple(news.marks),
            missing=tuple(news.missing),
            gone=tuple(news.gone),
        )

    def last_words(self) -> tuple[Mark, ...]:
        return self.poll().marks

    def _find_processes(self, news: _News, now: int) -> None:
        """Add children that are new. Of the rest of the machine only the PIDs are listed."""
        listed = set(procfs.pids())
        is_time = now - self._relisted_ns >= RELIST_NS or not self._has_polled
        fresh = listed if is_time else listed - self._listed
        self._listed = listed
        if is_time:
            self._relisted_ns = now
        if not self._has_polled:
            self._add_first()
        family = procfs.ProcessTree({pid: stat.parent for pid in fresh if (stat := procfs.stat(pid)) is not None})
        children = family.descendants(*self._processes)
        for pid in children:
            self._add(pid)
        if not self._has_polled:
            for process in self._processes.values():
                process.is_announced = True
                self._make_part(process)
            self._note_zombies(children, news)

    def _note_zombies(self, children: Iterable[int], news: _News) -> None:
        """Parts that had ended before the first look, and whose parent has not noticed.

        A zombie has no command line any more, but its name. Where another has its role it was replaced, or is a pool's.
        """
        roles = {process.role for process in self._processes.values()}
        for pid in children:
            stat = procfs.stat(pid)
            if stat is None or stat.state != "Z" or not _has_ended(stat):
                continue
            found = (engine.role_by_name(procfs.name(pid)) for engine in self._engines)
            role = clean(next((role for role in found if role is not None), ""))
            if not role or role in roles:
                continue
            self._exits.watch(pid)
            self._exits.note_zombie(pid)
            self._note_end(pid, stat.start_ticks, role, was_over=True)
            how = self._exits.of(pid).how(pid, self._own())
            said = "" if isinstance(how, Unknown) else f": {how}"
            text, who = f"had exited before llmtop came{said}", _who(role, pid)
            news.marks.append(
                Mark(self._clock(), MarkKind.PROCESS, ids.process(pid), text, Severity.WARNING, subject=who)
            )

    def _add_first(self) -> None:
        """The processes that the target was recognised by; workers that are no descendants are among them."""
        root = self._target.root_pid
        for pid in dict.fromkeys((root, *(process.pid for process in self._target.processes))):
            self._add(pid)
        if root not in self._processes:
            self._note_end(root, 0, next((one.role for one in self._target.processes if one.pid == root), "server"))

    def _add(self, pid: int) -> None:
        stat = procfs.stat(pid)
        if pid in self._processes or stat is None or _has_ended(stat):
            return
        self._processes[pid] = _KnownProcess(
            pid, stat.start_ticks, stat.parent, self._role(pid), self._clock(), Witnesses(pid)
        )

    def _role(self, pid: int) -> str:
        if (role := self._recognised(pid)) is not None:
            return role
        known = next((process.role for process in self._target.processes if process.pid == pid), None)
        return known or clean(procfs.name(pid)) or "child"

    def _recognised(self, pid: int) -> str | None:
        """The role by what an engine calls its processes; None for a helper."""
        command = procfs.command(procfs.arguments(pid))
        roles = (engine.role(command) for engine in self._engines)
        return next((clean(role) for role in roles if role is not None), None)

    def _make_part(self, process: _KnownProcess) -> None:
        """Count it among those that make up the server, and follow it to its end.

        A child with its parent's role is a fork that has not said yet what it is, or a pool. Of a server that is not
        known, all that was there at the start counts; what a shell runs one after the other does not.
        """
        parent = self._processes.get(process.parent)
        if process.pid != self._target.root_pid:
            is_whole = self._target.kind == "process" and procfs.name(self._target.root_pid) not in _WRAPPERS
            known = {one.pid for one in self._target.processes} if is_whole else set()
            is_own = self._recognised(process.pid) == process.role or process.pid in known
            if not is_own or (parent is not None and parent.role == process.role and not known):
                return
        process.is_part = True
        self._exits.watch(process.pid)

    def _read_process(self, process: _KnownProcess, news: _News) -> bool:
        """Read one process; False when it has ended."""
        stat = procfs.stat(process.pid)
        now = self._clock()
        # Another start time is another process under the same PID.
        if stat is None or stat.start_ticks != process.start_ticks or _has_ended(stat):
            self._end(process, news)
            return False
        process.alive_ns = now
        self._show(process, news)
        self._announce(process, now, news)
        for metric, value in (
            (v.PROCESS_CPU, stat.cpu_ticks * _NS_PER_TICK),
            (v.PROCESS_SYSTEM, stat.system_ticks * _NS_PER_TICK),
            (v.PROCESS_FAULTS, stat.faults),
            (v.PROCESS_MAJOR_FAULTS, stat.major_faults),
            (v.PROCESS_RSS, stat.rss_pages * _PAGE),
            (v.PROCESS_THREADS, stat.threads),
            (v.PROCESS_STATE, self._state(process, stat)),
        ):
            news.readings.append(Reading(process.id, metric, now, float(value), _STAT))
        if self._is_time_to_renew and process.is_part and (swapped := procfs.swapped_bytes(process.pid)) is not None:
            news.readings.append(Reading(process.id, v.PROCESS_SWAP, now, float(swapped), _STATUS))
        return True

    def _state(self, process: _KnownProcess, stat: procfs.ProcStat) -> ProcessState:
        if process.pid == self._target.root_pid and self._freezer is not None and cgroups.is_frozen(self._freezer):
            return ProcessState.FROZEN
        return _STATES.get(stat.state, ProcessState.ALIVE)

    def _announce(self, process: _KnownProcess, now: int, news: _News) -> None:
        """Say that it came: a part of the server once its role is sure, a helper once it has stayed for a while."""
        if process.is_announced:
            return
        if process.is_part or now - process.seen_ns >= BRIEF_NS:
            process.is_announced = True
            self._exits.watch(process.pid)
            news.came.append(process)

    def _show(self, process: _KnownProcess, news: _News) -> None:
        """Send the process's track when it is new or has changed."""
        is_new = process.shown is None
        if not is_new and process.is_announced and not self._is_time_to_renew:
            return
        before, process.role = process.role, self._role(process.pid)
        if not process.is_part and not is_new and before == process.role:
            self._make_part(process)
        facts: dict[str, Fact] = {
            "role": process.role,
            "cmdline": clean(_command(process.pid)) or Unknown("the process has no command line"),
            "part": int(process.is_part),
            "root": self._target.root_pid,
        }
        if process.pid == self._target.root_pid:
            self._freezer = cgroups.freezer_of(process.pid)
            facts |= (
                self._settings
                | {"gpus_open": self._gpus_open(), "directory": _directory(process.pid)}
                | self._core_fact(process.role, " ".join(procfs.arguments(process.pid)))
            )
        if process.is_part:
            facts |= self._group_facts(process.pid)
        track = Track(process.id, TrackKind.PROCESS, process.role, facts=facts)
        if track != process.shown:
            process.shown = news.tracks[process.id] = track

    def _core_fact(self, role: str, command: str) -> dict[str, Fact]:
        """The role of the process that must be below the root, where its command line does not say otherwise."""
        engine = next((one for one in self._engines if one.kind == self._target.kind), None)
        core = engine.cores.get(role) if engine is not None else None
        if engine is None or core is None or not command:
            return {}
        is_elsewhere = engine.core_elsewhere and re.search(engine.core_elsewhere, command)
        return {} if is_elsewhere else {"core": core}

    def _gpus_open(self) -> Fact:
        """How many GPUs the server's processes have open, where all their files can be read.

        A server that loads when it is found opens them later.
        """
        unread = (missing.why for missing in self._target.missing if missing.what == whats.TARGET_GPUS)
        opened = [procfs.open_files(pid) or () for pid in self._processes] if not self._target.gpus else []
        found = {one for files in opened for one in files if _is_gpu(one)}
        return next(unread, None) or len(self._target.gpus) or len(found)

    def _group_facts(self, pid: int) -> dict[str, Fact]:
        """The quota of its cgroup; told once of a group, with the root where that is in it."""
        group, root = cgroups.group_of(pid), self._target.root_pid
        first = next((one for one, known in self._groups.items() if known == group and one != pid), None)
        if pid != root and (first is not None or isinstance(group, Unknown)):
            self._groups.pop(pid, None)
            return {}
        if pid == root and first is not None:
            del self._groups[first]
        self._groups[pid] = group
        if isinstance(group, Unknown):
            return {"cgroup": group}
        cores = group.cores
        folder = clean(str(group.folder))
        return {
            "cgroup": clean(group.path),
            "cgroup_folder": folder,
            "cpu_quota": "none" if cores is None else f"{cores:g} cores",
        }

    def _end(self, process: _KnownProcess, news: _News) -> None:
        del self._processes[process.pid]
        self._groups.pop(process.pid, None)
        news.gone += (process.id, *(thread.id for thread in process.threads.values()))
        for thread in process.threads.values():
            thread.close()
        if process.is_part:
            self._note_end(process.pid, process.start_ticks, process.role, alive_ns=process.alive_ns)

    def _note_end(self, pid: int, start_ticks: int, role: str, *, was_over: bool = False, alive_ns: int = 0) -> None:
        exact_ns = self._exits.ended_ns(pid)
        ended_ns = self._clock() if exact_ns is None or was_over else exact_ns
        ended = _Ended(pid, start_ticks, role, ended_ns, was_over, alive_ns if exact_ns is None else exact_ns)
        self._over[ids.ended(pid, start_ticks)] = ended
        if pid == self._target.root_pid:
            self._ended = f"{self._target.title} (pid {pid}) has exited"

    def _mark_ends(self, ended: Iterable[_KnownProcess], news: _News) -> None:
        """The root's end is the server's; of helpers that came and went at once only their number is kept."""
        now = self._clock()
        groups: dict[_Ending, list[_KnownProcess]] = {}
        ends: dict[int, int] = {}
        for process in ended:
            ends[process.pid] = self._exits.ended_ns(process.pid) or now
            if not process.is_announced:
                self._brief[process.role] = self._brief.get(process.role, 0) + 1
                continue
            groups.setdefault(self._how_it_ended(process), []).append(process)
            if not process.is_part:
                self._exits.forget(process.pid)
        for ending, processes in groups.items():
            news.marks += _marks(ending.said, processes, min(ends[one.pid] for one in processes), ending)

    def _how_it_ended(self, process: _KnownProcess) -> _Ending:
        self._exits.note_zombie(process.pid)
        self._exits.read_log()
        exit = self._exits.of(process.pid)
        how = exit.how(process.pid, self._own())
        usual = Severity.INFO if exit.is_regular and not process.is_part else Severity.WARNING
        severity = Severity.ERROR if process.pid == self._target.root_pid else usual
        return _Ending(how, exit.is_regular, severity)

    def _own(self) -> dict[int, str]:
        """The roles of the server's processes by PID, of those that have ended too."""
        over = {one.pid: one.role for one in self._over.values()}
        return over | {one.pid: one.role for one in self._processes.values()}

    def _follow_ends(self, news: _News) -> None:
        """What has ended may wait for its parent; how it ended may be known only after that."""
        if self._is_time_to_renew:
            self._exits.read_log()
        for id, ended in list(self._over.items()):
            track = self._ended_track(id, ended)
            if track != ended.shown:
                ended.shown = news.tracks[id] = track
        for id in list(self._over)[:-MOST_ENDED]:
            self._exits.forget(self._over.pop(id).pid)
            news.gone.append(id)

    def _ended_track(self, id: TrackId, ended: _Ended) -> Track:
        stat = procfs.stat(ended.pid)
        is_zombie = stat is not None and stat.start_ticks == ended.start_ticks and stat.state == "Z"
        if is_zombie:
            self._exits.note_zombie(ended.pid)
        exit = self._exits.of(ended.pid)
        facts: dict[str, Fact] = {
            "pid": ended.pid,
            "role": ended.role,
            "root": self._target.root_pid,
            "ended_ns": ended.ended_ns,
            "alive_ns": ended.alive_ns,
            "how": exit.how(ended.pid, self._own()),
        }
        if exit.sent is not None:
            facts |= {"sender": exit.sent.origin(self._own()), "sent_ns": exit.sent.t_ns}
        facts |= {key: 1 for key in ("is_regular", "is_killed", "is_oom", "is_failure") if getattr(exit, key)}
        if is_zombie and stat is not None:
            facts |= {"is_zombie": 1, "parent": stat.parent}
        if ended.was_over:
            facts["was_over"] = 1
        if exit.words:
            facts["words"] = exit.words
        return Track(id, TrackKind.ENDED, ended.role, facts=facts)

    def _tell_brief(self, news: _News, now: int) -> None:
        """One mark for all the compilers and shells that came and went meanwhile."""
        if not self._brief or now - self._told_ns < TOLD_EVERY_NS:
            return
        self._told_ns = now
        count = sum(self._brief.values())
        most = sorted(self._brief.items(), key=lambda item: -item[1])
        named = ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in itertools.islice(most, _NAMES_TOLD))
        more = ", ..." if len(most) > _NAMES_TOLD else ""
        what = "short-lived helper" if count == 1 else "short-lived helpers"
        text = f"{count} {what} came and went: {named}{more}"
        news.marks.append(Mark(now, MarkKind.PROCESS, ids.process(self._target.root_pid), text))
        self._brief.clear()

    def _read_threads(self, news: _News) -> None:
        """Read all threads; of very many those that were busy when last read, and a part of the others by turns.

        Their clocks go on by themselves: what is read later is as exact, over a longer time.
        """
        least, turns, now = 0, 1, self._clock()
        threads = list(self._all_threads())
        if len(threads) > MANY_THREADS:
            least = max(1, heapq.nlargest(CLOSE_LOOKS, (thread.activity_ns for thread in threads))[-1])
            turns = max(1, math.ceil((len(threads) - CLOSE_LOOKS) / TURN_THREADS))
            reason = f"of {len(threads)} threads the busiest are read at each poll, the others once in {turns} polls"
            news.missing.append(Missing(whats.IDLE_THREADS, Unknown(reason)))
        self._turn = (self._turn + 1) % turns

        def is_due(one: Thread) -> bool:
            return not one.rests(now) and (one.activity_ns >= least or one.tid % turns == self._turn)

        for process in self._processes.values():
            self._read_threads_of(process, news, is_due)

    def _all_threads(self) -> Iterable[Thread]:
        return (thread for process in self._processes.values() for thread in process.threads.values())

    def _read_threads_of(self, process: _KnownProcess, news: _News, is_due: Callable[[Thread], bool]) -> None:
        """Read the threads that are due, and all that are new."""
        tids = procfs.threads(process.pid)
        task = procfs.open_folder(f"/proc/{process.pid}/task")
        if task is None:
            return  # it has just ended: the next poll says so
        try:
            for tid in tids:
                thread = process.threads.get(tid)
                if thread is None:
                    thread = Thread(ids.thread(process.pid, tid), process.pid, tid, files=self._files)
                elif not is_due(thread):
                    continue
                if self._read_thread(thread, task, process, news):
                    process.threads[tid] = thread
        finally:
            os.close(task)
        for tid in process.threads.keys() - set(tids):
            ended = process.threads.pop(tid)
            ended.close()
            news.gone.append(ended.id)

    def _read_thread(self, thread: Thread, task: int, process: _KnownProcess, news: _News) -> bool:
        """One thread; False when it has ended meanwhile or the kernel has no clocks."""
        if not thread.read_clocks(task):
            return False
        now = self._clock()
        thread.look(task, process.witnesses)
        thread.count()
        news.readings += thread.switched(task, now)
        if (track := thread.news(process.role)) is not None:
            news.tracks[track.id] = track
        news.readings += thread.readings(now)
        return True

    def _read_groups(self, news: _News) -> None:
        for pid, group in self._groups.items():
            process = self._processes.get(pid)
            if process is not None:
                self._read_group(process.id, group, news)

    def _read_group(self, process: TrackId, group: cgroups.Group | Unknown, news: _News) -> None:
        counters = group if isinstance(group, Unknown) else cgroups.throttling(group)
        if isinstance(counters, Unknown):
            news.missing += (
                Missing(whats.reading(process, metric), counters)
                for metric in (v.CGROUP_THROTTLED, v.CGROUP_PERIODS_THROTTLED)
            )
            return
        now = self._clock()
        news.readings.append(Reading(process, v.CGROUP_THROTTLED, now, float(counters.throttled_ns), "cpu.stat"))
        news.readings.append(Reading(process, v.CGROUP_PERIODS_THROTTLED, now, float(counters.periods), "cpu.stat"))

    def _say_what_is_missing(self, news: _News) -> None:
        if self._ended:
            news.missing.append(
                Missing(
                    whats.source(self.name), Unknown(self._ended, "start it again: llmtop follows it to its new PID")
                )
            )
        elif not any(process.threads for process in self._processes.values()):
            why = Unknown("this kernel counts no threads' times", "a kernel with CONFIG_SCHED_INFO=y is needed")
            news.missing.append(Missing(whats.kind(TrackKind.THREAD), why))
        for process in self._processes.values():
            if process.witnesses.are_silent:
                why = Unknown(
                    "neither wait channels nor system calls of this process can be read",
                    "run llmtop as the server's user, or with sudo",
                )
                news.missing.append(Missing(whats.reading(process.id, v.THREAD_STATE_SAMPLES), why))


_STATES = {"D": ProcessState.UNINTERRUPTIBLE, "T": ProcessState.STOPPED, "t": ProcessState.TRACED}


def _is_gpu(file: str) -> bool:
    return file.startswith("/dev/nvidia") and file[len("/dev/nvidia") :].isdigit()


def _command(pid: int) -> str:
    """What it runs, as one types it; a title that it gave itself is one word with spaces."""
    words = procfs.arguments(pid)
    return shell_command(words if len(words) > 1 else " ".join(words).split())


def _directory(pid: int) -> Fact:
    """Where a process runs: its command line may name files from there."""
    unread = Unknown("where it runs cannot be read", "run llmtop as the server's user, or with sudo")
    return clean(procfs.read_link(f"/proc/{pid}/cwd") or "") or unread


def _has_ended(stat: procfs.ProcStat) -> bool:
    """A zombie whose other threads live on has lost its first thread only."""
    return stat.state == "X" or (stat.state == "Z" and stat.threads <= 1)


def _marks(said: str, processes: Sequence[_KnownProcess], now: int, ending: _Ending | None = None) -> Iterable[Mark]:
    """A mark per process; of a crowd only the number, for some servers fork for every request."""
    severity = Severity.INFO if ending is None else ending.severity
    if len(processes) > MARKS_PER_POLL:
        yield Mark(now, MarkKind.PROCESS, processes[0].id, f"{len(processes)} processes {said}", severity)
        return
    for process in processes:
        about = None if ending is None else ProcessEnd(process.pid, ending.how, ending.is_regular)
        yield Mark(now, MarkKind.PROCESS, process.id, said, severity, _who(process.role, process.pid), about)


def _who(role: str, pid: int) -> str:
    return f"{role} (pid {pid})"


def _read_host(news: _News, now: int) -> None:
    news.tracks[ids.HOST] = Track(ids.HOST, TrackKind.HOST, clean(platform.node()) or "host", facts=_host_facts())
    for metric, value, source in (
        (v.HOST_CPU_PRESSURE, _pressure(), "/proc/pressure/cpu"),
        (v.HOST_LOAD, _load(), "/proc/loadavg"),
    ):
        if isinstance(value, Unknown):
            news.missing.append(Missing(whats.reading(ids.HOST, metric), value))
        else:
            news.readings.append(Reading(ids.HOST, metric, now, value, source))


@lru_cache(maxsize=1)
def _host_facts() -> dict[str, Fact]:
    """What does not change, and what advice must know: whether we are root, and which tools can be run."""
    py_spy = pyspy_dump.as_typed()
    found = [tool for tool in _TOOLS if shutil.which(tool)] + (["py-spy"] if py_spy else [])
    return {
        "cores": os.cpu_count() or 0,
        "is_root": int(os.geteuid() == 0),
        "tools": " ".join(found),
        "py_spy": py_spy,
    }


def _pressure() -> float | Unknown:
    """Share of the last 10 s in which some task waited for a CPU, in % (kernel: Documentation/accounting/psi)."""
    for line in (procfs.read_text("/proc/pressure/cpu") or "").splitlines():
        if line.startswith("some avg10="):
            return float(line.split()[1].partition("=")[2])
    return Unknown("no pressure-stall information", "boot with psi=1 (kernel with CONFIG_PSI=y)")


def _load() -> float | Unknown:
    content = procfs.read_text("/proc/loadavg")
    return float(content.split()[0]) if content else Unknown("/proc/loadavg cannot be read")


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry; who sent a signal is known where probes may look."""
    from llmtop.collectors.signal_senders import SignalSenders
    from llmtop.collectors.tracing.collector import are_allowed

    senders = SignalSenders() if are_allowed(aim.probes) else None
    return ProcCollector(target, aim.engines, exits=Exits(senders=senders))
