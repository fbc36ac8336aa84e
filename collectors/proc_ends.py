"""The ends of the server's processes: when and how, also of those before the first look, and of brief helpers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop import ids, procfs
from llmtop.collectors.proc_poll import title_of
from llmtop.facts import EndedFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Mark, MarkKind, ProcessEnd, Severity, Track, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from llmtop.collectors.base import Clock
    from llmtop.collectors.exits import Exit, Exits
    from llmtop.collectors.proc_poll import KnownProcess, ProcPoll
    from llmtop.collectors.server_log import ServerLog
    from llmtop.model import Fact, Target, TrackId

MARKS_PER_POLL = 5
"""Processes that ended at once are told one by one up to so many, and of more how many there were."""
TOLD_EVERY_NS = 10 * NS_PER_S
"""How often the short-lived helpers are told of, together."""
MOST_ENDED = 20
"""Parts of the server that are remembered after their end."""
_NAMES_TOLD = 3
"""Names of these that are told then, the most frequent first."""
_LOG_COMES_NS = 5 * NS_PER_S
"""How long after a process's end the rest of its output is waited for."""


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
    log_error: str = ""
    log_end: str | Unknown | None = None
    shown: Track | None = None


@frozen
class _Ending:
    """How a process ended, and how much that matters."""

    how: str | Unknown
    is_regular: bool
    severity: Severity

    @property
    def said(self) -> str:
        return "exited" if isinstance(self.how, Unknown) else f"exited: {self.how}"


class ProcessEnds:
    """Follows the parts of a server to their ends, and remembers the last of these.

    Args:
        target: The server.
        exits: Tells how processes ended; its owner opens and closes it, as the next.
        log: Where the server's processes write to.
        processes: Those that live, by PID, as the collector knows them at each moment.
        clock: Of the marks.
    """

    def __init__(
        self, target: Target, exits: Exits, log: ServerLog, processes: Mapping[int, KnownProcess], clock: Clock
    ) -> None:
        self._target = target
        self._exits = exits
        self._log = log
        self._processes = processes
        self._clock = clock
        self.over: dict[TrackId, _Ended] = {}
        self._brief: dict[str, int] = {}
        """Helpers that ended soon after their start and were not told of yet: how many by name."""
        self._told_ns = 0
        self.why_over = ""
        """That the server's root has ended; empty while it lives."""

    def note(self, pid: int, start_ticks: int, role: str, *, was_over: bool = False, alive_ns: int = 0) -> None:
        """A part has ended."""
        exact_ns = self._exits.ended_ns(pid)
        ended_ns = self._clock() if exact_ns is None or was_over else exact_ns
        ended = _Ended(pid, start_ticks, role, ended_ns, was_over, alive_ns if exact_ns is None else exact_ns)
        self.over[ids.ended(pid, start_ticks)] = ended
        if pid == self._target.root_pid:
            self.why_over = f"{self._target.title} (pid {pid}) has exited"

    def note_zombie(self, pid: int, start_ticks: int, role: str, news: ProcPoll) -> None:
        """A part had ended before the first look, and its parent has not noticed."""
        self._exits.watch(pid)
        self._exits.note_zombie(pid)
        self.note(pid, start_ticks, role, was_over=True)
        how = self._exits.of(pid).how(pid, self._own())
        text = f"had exited before llmtop came{'' if isinstance(how, Unknown) else f': {how}'}"
        mark = Mark(
            self._clock(), MarkKind.PROCESS, ids.process(pid), text, Severity.WARNING, subject=title_of(role, pid)
        )
        news.marks.append(mark)

    def mark(self, ended: Iterable[KnownProcess], news: ProcPoll) -> None:
        """The root's end is the server's; of helpers that came and went at once only their number is kept."""
        now = self._clock()
        groups: dict[_Ending, list[KnownProcess]] = {}
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

    def _how_it_ended(self, process: KnownProcess) -> _Ending:
        self._exits.note_zombie(process.pid)
        self._exits.read_log()
        exit = self._exits.of(process.pid)
        how = exit.how(process.pid, self._own())
        usual = Severity.INFO if exit.is_regular and not process.is_part else Severity.WARNING
        severity = Severity.ERROR if process.pid == self._target.root_pid else usual
        return _Ending(how, exit.is_regular, severity)

    def _own(self) -> dict[int, str]:
        """The roles of the server's processes by PID, of those that have ended too."""
        over = {one.pid: one.role for one in self.over.values()}
        return over | {one.pid: one.role for one in self._processes.values()}

    def follow(self, news: ProcPoll, *, reads_log: bool) -> None:
        """What has ended may wait for its parent; how it ended may be known only after that."""
        if reads_log:
            self._exits.read_log()
        for id, ended in list(self.over.items()):
            track = self._track(id, ended)
            if track != ended.shown:
                ended.shown = news.tracks[id] = track
        for id in list(self.over)[:-MOST_ENDED]:
            self._exits.forget(self.over.pop(id).pid)
            news.gone.append(id)

    def _track(self, id: TrackId, ended: _Ended) -> Track:
        stat = procfs.stat(ended.pid)
        is_zombie = stat is not None and stat.start_ticks == ended.start_ticks and stat.state == "Z"
        if is_zombie:
            self._exits.note_zombie(ended.pid)
        exit = self._exits.of(ended.pid)
        facts: dict[str, Fact] = {
            EndedFact.PID: ended.pid,
            EndedFact.ROLE: ended.role,
            EndedFact.ROOT: self._target.root_pid,
            EndedFact.ENDED_NS: ended.ended_ns,
            EndedFact.ALIVE_NS: ended.alive_ns,
            EndedFact.HOW: exit.how(ended.pid, self._own()),
        }
        if exit.sent is not None:
            facts |= {EndedFact.SENDER: exit.sent.origin(self._own()), EndedFact.SENT_NS: exit.sent.t_ns}
        holding = {
            EndedFact.IS_REGULAR: exit.is_regular,
            EndedFact.IS_KILLED: exit.is_killed,
            EndedFact.IS_OOM: exit.is_oom,
            EndedFact.IS_FAILURE: exit.is_failure,
        }
        facts |= {name: 1 for name, holds in holding.items() if holds}
        if is_zombie and stat is not None:
            facts |= {EndedFact.IS_ZOMBIE: 1, EndedFact.PARENT: stat.parent}
        if ended.was_over:
            facts[EndedFact.WAS_OVER] = 1
        if exit.words:
            facts[EndedFact.WORDS] = exit.words
        facts |= self._said(ended, exit)
        return Track(id, TrackKind.ENDED, ended.role, facts=facts)

    def _said(self, ended: _Ended, exit: Exit) -> dict[str, Fact]:
        """What the server's log says of a part that was not told to end; read for a while, for it may be late."""
        if exit.is_regular or exit.is_killed or exit.is_oom:
            return {}
        if not ended.was_over and self._clock() - ended.ended_ns < _LOG_COMES_NS:
            ended.log_error = self._log.last_error() or ended.log_error
            ended.log_end = self._log.last_line()
        said = {EndedFact.LOG_ERROR: ended.log_error, EndedFact.LOG_COMMAND: self._log.command}
        # Where a part has ended, the others go on writing: only what the root writes last has to do with its end.
        is_last = ended.pid == self._target.root_pid or isinstance(ended.log_end, Unknown)
        end = (
            {EndedFact.LOG_END: ended.log_end} if ended.log_end is not None and is_last and not ended.log_error else {}
        )
        return {**end, **{name: words for name, words in said.items() if words}}

    def tell_brief(self, news: ProcPoll, now: int) -> None:
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


def mark_starts(processes: Sequence[KnownProcess], now: int) -> Iterable[Mark]:
    """That processes have come."""
    return _marks("started", processes, now)


def _marks(said: str, processes: Sequence[KnownProcess], now: int, ending: _Ending | None = None) -> Iterable[Mark]:
    """A mark per process; of a crowd only the number, for some servers fork for every request."""
    severity = Severity.INFO if ending is None else ending.severity
    if len(processes) > MARKS_PER_POLL:
        yield Mark(now, MarkKind.PROCESS, processes[0].id, f"{len(processes)} processes {said}", severity)
        return
    for process in processes:
        about = None if ending is None else ProcessEnd(process.pid, ending.how, ending.is_regular)
        yield Mark(now, MarkKind.PROCESS, process.id, said, severity, process.title, about)
