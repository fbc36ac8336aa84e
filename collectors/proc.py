"""The server's processes and threads, from plain reads of /proc: no privileges, no probes.

Times on a CPU and in the run queue are exact, counted by the kernel in schedstat. What threads wait for is
sampled: one look at each poll (`llmtop.collectors.thread_causes` has the table).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from llmtop import procfs, settings, whats
from llmtop import vocabulary as v
from llmtop.births import Births
from llmtop.collectors import cgroups
from llmtop.collectors.exits import Exits
from llmtop.collectors.proc_ends import ProcessEnds, mark_starts
from llmtop.collectors.proc_groups import CpuQuotas, NodeMemory
from llmtop.collectors.proc_host import read_host
from llmtop.collectors.proc_poll import KnownProcess, ProcPoll
from llmtop.collectors.proc_threads import ThreadAccess
from llmtop.collectors.server_log import ServerLog
from llmtop.collectors.thread_reader import ThreadReader
from llmtop.facts import ProcessFact, TargetFact
from llmtop.model import (
    LIVE,
    NS_PER_S,
    PLAIN_PROCESS,
    Engine,
    Fact,
    Mark,
    Missing,
    Reading,
    Source,
    Target,
    Trace,
    Track,
    TrackKind,
    Unknown,
    UnknownKind,
)
from llmtop.text import clean, shell_command
from llmtop.vocabulary import ProcessState

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector

RENEW_NS = 5 * NS_PER_S
"""How often titles are read again: engines rename their processes some seconds after the start."""
RELIST_NS = 60 * NS_PER_S
"""How often all processes are looked at afresh; in between only PIDs that are new."""
_WRAPPERS = frozenset(
    {"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "sudo", "env", "tini", "dumb-init", "timeout", "tmux"}
)
"""Programs whose children come and go as they should, until one of them is the server."""
BRIEF_NS = 3 * NS_PER_S
"""A helper that ends before it is this old is no event by itself: a server that compiles starts a hundred of them."""
_NS_PER_TICK = NS_PER_S // os.sysconf("SC_CLK_TCK")
_STAT = "/proc/PID/stat"
_STATUS = "/proc/PID/status"


class ProcCollector:
    """Watches a process and all its descendants.

    Args:
        engines: What tells the roles of processes that start later than the target was looked at.
        exits: How processes end.
        log: Where the server writes to.
    """

    name = "proc"
    owns = Source(
        name,
        (TrackKind.PROCESS, TrackKind.THREAD, TrackKind.ENDED, TrackKind.HOST),
        families=("cgroup.",),
        metrics=(
            *(v.PROCESS_CPU, v.PROCESS_SYSTEM, v.PROCESS_FAULTS, v.PROCESS_MAJOR_FAULTS, v.PROCESS_SWAP, v.PROCESS_RSS),
            *(v.PROCESS_FILES, v.PROCESS_FILES_LIMIT),
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
        log: ServerLog | None = None,
    ) -> None:
        self._target = target
        self._exits = exits or Exits()
        # The target's own engine first: what it calls its processes is the likeliest.
        self._engines = sorted(engines, key=lambda engine: engine.kind != target.kind)
        self._clock = clock
        self._processes: dict[int, KnownProcess] = {}
        self._threads = ThreadReader(clock)
        self._log = log or ServerLog()
        self._ends = ProcessEnds(target, self._exits, self._log, self._processes, clock)
        self._quotas = CpuQuotas(target.root_pid, clock)
        self._node_memory = NodeMemory(target.root_pid, clock)
        self._births = Births()
        self._relisted_ns = 0
        self._renewed_ns = 0
        self._has_polled = False
        self._is_time_to_renew = True
        engine = next((one for one in engines if one.kind == target.kind), None)
        self._settings = (
            settings.facts(engine, target.facts, version=target.facts.get(TargetFact.VERSION))
            if engine is not None
            else {}
        )
        """What is known of its configuration without its endpoint, which may be off, and tells more."""

    def missing(self) -> Unknown | None:
        if procfs.stat(os.getpid()) is None:
            return Unknown("/proc is not there", "mount it: mount -t proc proc /proc")
        return None

    def __enter__(self) -> Self:
        self._exits.open()
        self._log.open(self._target.root_pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()
        self._log.close()
        self._threads.close()

    def poll(self) -> Trace:
        start = self._clock()
        news = ProcPoll()
        self._is_time_to_renew = not self._has_polled or start - self._renewed_ns >= RENEW_NS
        self._renewed_ns = start if self._is_time_to_renew else self._renewed_ns
        self._exits.read_signals()
        self._find_processes(news, start)
        ended = [process for process in list(self._processes.values()) if not self._read_process(process, news)]
        news.marks += mark_starts(news.came, start)
        self._ends.mark(ended, news)
        self._ends.follow(news, reads_log=self._is_time_to_renew)
        self._ends.tell_brief(news, start)
        self._threads.read(self._processes.values(), news, self._births.begun)
        self._quotas.read(self._processes, news)
        self._node_memory.read(news)
        read_host(news, self._clock())
        self._say_what_is_missing(news)
        self._has_polled = True
        return Trace(
            LIVE,
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

    def _find_processes(self, news: ProcPoll, now: int) -> None:
        """Add children that are new. Of the rest of the machine only parents are read, and once of each process."""
        is_time = now - self._relisted_ns >= RELIST_NS or not self._has_polled
        fresh = self._births.look(at_all=is_time)
        if is_time:
            self._relisted_ns = now
        if not self._has_polled:
            self._add_first()
        family = procfs.ProcessTree({pid: stat.parent for pid in fresh if (stat := procfs.stat(pid)) is not None})
        children = self._births.leaders(family.descendants(*self._processes))
        for pid in children:
            self._add(pid)
        if not self._has_polled:
            for process in self._processes.values():
                process.is_announced = True
                self._make_part(process)
            self._note_zombies(children, news)

    def _note_zombies(self, children: Iterable[int], news: ProcPoll) -> None:
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
            self._ends.note_zombie(pid, stat.start_ticks, role, news)

    def _add_first(self) -> None:
        """The processes that the target was recognised by; workers that are no descendants are among them."""
        root = self._target.root_pid
        for pid in dict.fromkeys((root, *(process.pid for process in self._target.processes))):
            self._add(pid)
        if root not in self._processes:
            stat = procfs.stat(root)
            self._exits.watch(root)
            role = next((one.role for one in self._target.processes if one.pid == root), "server")
            self._ends.note(root, 0 if stat is None else stat.start_ticks, role, was_over=True)

    def _add(self, pid: int) -> None:
        stat = procfs.stat(pid)
        if pid in self._processes or stat is None or _has_ended(stat):
            return
        self._processes[pid] = KnownProcess(
            pid, stat.start_ticks, stat.parent, self._role(pid), self._clock(), ThreadAccess(pid)
        )

    def _role(self, pid: int) -> str:
        if (role := self._recognised(pid)) is not None:
            return role
        known = next((process.role for process in self._target.processes if process.pid == pid), None)
        return procfs.job_rank(pid) or known or clean(procfs.name(pid)) or "child"

    def _recognised(self, pid: int) -> str | None:
        """The role by what an engine calls its processes; None for a helper."""
        command = procfs.command(procfs.arguments(pid))
        roles = (engine.role(command) for engine in self._engines)
        return next((clean(role) for role in roles if role is not None), None)

    def _make_part(self, process: KnownProcess) -> None:
        """Count it among those that make up the server, and follow it to its end.

        A child with its parent's role is a fork that has not said yet what it is, or a pool. Of a server that is not
        known, all that was there at the start counts; what a shell runs one after the other does not.
        """
        parent = self._processes.get(process.parent)
        if process.pid != self._target.root_pid:
            is_whole = self._target.kind == PLAIN_PROCESS and procfs.name(self._target.root_pid) not in _WRAPPERS
            known = {one.pid for one in self._target.processes} if is_whole else set()
            is_own = self._recognised(process.pid) == process.role or process.pid in known
            if not is_own or (parent is not None and parent.role == process.role and not known):
                return
        process.is_part = True
        self._exits.watch(process.pid)

    def _read_process(self, process: KnownProcess, news: ProcPoll) -> bool:
        """Read one process; False when it has ended."""
        stat = procfs.stat(process.pid)
        now = self._clock()
        # Another start time is another process under the same PID.
        if stat is None or stat.start_ticks != process.start_ticks or _has_ended(stat):
            self._end(process, news)
            return False
        process.alive_ns, process.thread_count = now, stat.threads
        self._show(process, stat.nice, news)
        self._announce(process, now, news)
        for metric, value in (
            (v.PROCESS_CPU, stat.cpu_ticks * _NS_PER_TICK),
            (v.PROCESS_SYSTEM, stat.system_ticks * _NS_PER_TICK),
            (v.PROCESS_FAULTS, stat.faults),
            (v.PROCESS_MAJOR_FAULTS, stat.major_faults),
            (v.PROCESS_RSS, stat.rss_pages * procfs.PAGE_BYTES),
            (v.PROCESS_THREADS, stat.threads),
            (v.PROCESS_STATE, self._state(process, stat)),
        ):
            news.readings.append(Reading(process.id, metric, now, float(value), _STAT))
        if process.is_part:
            self._read_files(process, now, news)
        if self._is_time_to_renew and process.is_part and (swapped := procfs.swapped_bytes(process.pid)) is not None:
            news.readings.append(Reading(process.id, v.PROCESS_SWAP, now, float(swapped), _STATUS))
        return True

    def _read_files(self, process: KnownProcess, now: int, news: ProcPoll) -> None:
        """How many files it has open, and may have."""
        if self._is_time_to_renew or process.files_limit is None:
            process.files_limit = procfs.open_files_limit(process.pid)
        if process.files_limit is None:
            return
        count = procfs.open_file_numbers(process.pid, process.files_limit)
        if count is not None:
            limit = Reading(process.id, v.PROCESS_FILES_LIMIT, now, float(process.files_limit), "/proc/PID/limits")
            news.readings += (Reading(process.id, v.PROCESS_FILES, now, float(count), "/proc/PID/fd"), limit)

    def _state(self, process: KnownProcess, stat: procfs.ProcStat) -> ProcessState:
        if process.freezer is not None and cgroups.is_frozen(process.freezer):
            return ProcessState.FROZEN
        return _STATES.get(stat.state, ProcessState.ALIVE)

    def _announce(self, process: KnownProcess, now: int, news: ProcPoll) -> None:
        """Say that it came: a part of the server once its role is sure, a helper once it has stayed for a while."""
        if process.is_announced:
            return
        if process.is_part or now - process.seen_ns >= BRIEF_NS:
            process.is_announced = True
            self._exits.watch(process.pid)
            news.came.append(process)

    def _show(self, process: KnownProcess, nice: int, news: ProcPoll) -> None:
        """Send the process's track when it is new or has changed."""
        is_new = process.shown is None
        if not is_new and process.is_announced and not self._is_time_to_renew:
            return
        before, process.role = process.role, self._role(process.pid)
        if not process.is_part and not is_new and before == process.role:
            self._make_part(process)
        facts: dict[str, Fact] = {
            ProcessFact.ROLE: process.role,
            ProcessFact.COMMAND: clean(_command(process.pid)) or Unknown("the process has no command line"),
            ProcessFact.IS_PART: int(process.is_part),
            ProcessFact.ROOT: self._target.root_pid,
        }
        if process.pid == self._target.root_pid:
            facts |= (
                self._settings
                | {ProcessFact.GPUS_OPEN: self._gpus_open(), ProcessFact.DIRECTORY: _directory(process.pid)}
                | self._core_fact(process.role, " ".join(procfs.arguments(process.pid)))
            )
        if process.is_part:
            process.freezer = cgroups.freezer_of(process.pid)
            facts |= {ProcessFact.NICE: nice} if nice > 0 else {}
            facts |= self._quotas.facts(process.pid)
        track = Track(process.id, TrackKind.PROCESS, process.role, facts=facts)
        if track != process.shown:
            process.shown = news.tracks[process.id] = track

    def _core_fact(self, role: str, command: str) -> dict[str, Fact]:
        """The role of the process that must be below the root, unless command line or environment say otherwise."""
        engine = next((one for one in self._engines if one.kind == self._target.kind), None)
        core = engine.cores.get(role) if engine is not None else None
        if engine is None or core is None or not command:
            return {}
        variables = engine.core_elsewhere_with.items()
        is_elsewhere = any(procfs.environment(self._target.root_pid, name) == value for name, value in variables)
        if is_elsewhere or (engine.core_elsewhere and re.search(engine.core_elsewhere, command)):
            return {}
        return {ProcessFact.CORE: core, ProcessFact.CORE_SINCE: engine.core_since}

    def _gpus_open(self) -> Fact:
        """How many GPUs the server's processes have open, where all their files can be read.

        A server that loads when it is found opens them later.
        """
        unread = (missing.why for missing in self._target.missing if missing.what == whats.TARGET_GPUS)
        opened = [procfs.open_files(pid) or () for pid in self._processes] if not self._target.gpus else []
        found = {one for files in opened for one in files if _is_gpu(one)}
        return next(unread, None) or len(self._target.gpus) or len(found)

    def _end(self, process: KnownProcess, news: ProcPoll) -> None:
        del self._processes[process.pid]
        self._quotas.forget(process.pid)
        news.gone += (process.id, *(thread.id for thread in process.threads.values()))
        for thread in process.threads.values():
            thread.close()
        if process.is_part:
            self._ends.note(process.pid, process.start_ticks, process.role, alive_ns=process.alive_ns)

    def _say_what_is_missing(self, news: ProcPoll) -> None:
        if self._ends.why_over:
            news.missing.append(
                Missing(
                    whats.source(self.name),
                    Unknown(
                        self._ends.why_over, "start it again: llmtop follows it to its new PID", UnknownKind.PASSING
                    ),
                )
            )
        elif not any(process.threads for process in self._processes.values()):
            why = Unknown("this kernel counts no threads' times", "a kernel with CONFIG_SCHED_INFO=y is needed")
            news.missing.append(Missing(whats.kind(TrackKind.THREAD), why))
        for process in self._processes.values():
            if process.access.are_silent:
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


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry; who sent a signal is known where probes may look."""
    from llmtop.collectors.signal_senders import SignalSenders
    from llmtop.collectors.tracing.collector import are_allowed

    senders = SignalSenders() if are_allowed(aim.probes) else None
    return ProcCollector(target, aim.engines, exits=Exits(senders=senders), log=ServerLog(aim.output))
