"""The Python collector: what functions the server's threads are in, looked at from outside with py-spy, on demand."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from llmtop import ids, procfs, whats
from llmtop import vocabulary as v
from llmtop.collectors import children
from llmtop.collectors.pyspy_dump import PACKAGE, Dump, PythonThread, find_program, look
from llmtop.model import LIVE, NS_PER_S, Missing, Reading, Source, Stack, Trace, TrackId, Unknown, UnknownKind
from llmtop.remedies import install
from llmtop.vocabulary import PythonState

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector
    from llmtop.model import Target, What

OWNED = v.labelled(v.THREAD_GIL_SAMPLES, v.GIL_OWNER)
SOURCE = "py-spy"
BUDGET = 0.02
"""Share of one core that looking may take. A look costs 10 ms, and 0.4 ms for each thread: a server of few threads is
seen twice a second, one with 300 every seven."""
LOOK_AGAIN_NS = NS_PER_S // 2
"""From one look at an interpreter to the next, at the least."""
RELIST_NS = 5 * NS_PER_S
"""How often it is asked which processes run Python."""
RETRY_NS = 2 * NS_PER_S
"""After a look that failed; twice as long after each that fails again."""
LATEST_RETRY_NS = 60 * NS_PER_S
"""But never longer."""
_FOR_GOOD_NS = 1 << 62
MOST_STACKS = 1000
"""Stacks that are kept of all looks together, those seen most often."""
_NOT_ASKED = Unknown(
    "Python frames are taken on demand only", "p in the stall flame, or llmtop snapshot --python", UnknownKind.PASSING
)
_STARTING = Unknown("the interpreters are being looked at", "wait a second", UnknownKind.PASSING)
_NO_PYTHON = Unknown("no process of the server runs Python")

_Seen: TypeAlias = "tuple[TrackId, str, tuple[str, ...]]"
"""Track, state and frames of a thread in one look."""


@dataclass(slots=True)
class _Interpreter:
    """A process of the server that runs Python: when it is looked at next, and why it could not be."""

    pid: int
    due_ns: int = 0
    why: Unknown | None = None
    patience_ns: int = RETRY_NS
    counts: dict[TrackId, tuple[int, int]] = field(default_factory=dict)
    """By thread, how often it was seen, and how often it held the GIL then."""


class PySpyCollector:
    """Stacks of Python functions by thread, and who holds the GIL.

    Nothing is done until `ask` wants it. Processes take turns, and no look is made before those behind have
    been paid for out of the budget.

    Args:
        budget: Share of one core.
        inspect: Takes a process's stacks; tests give another.
    """

    name = "pyspy"
    owns = Source(name, metrics=(v.THREAD_GIL_SAMPLES,), whats=(whats.PYTHON_FRAMES,))
    period_s = 0.25

    def __init__(
        self,
        target: Target,
        *,
        budget: float = BUDGET,
        clock: Clock = time.monotonic_ns,
        inspect: Callable[[Path, int], Dump] = look,
        is_python: Callable[[int], bool] | None = None,
    ) -> None:
        self._target = target
        self._budget = budget
        self._clock = clock
        self._inspect = inspect
        self._is_python = is_python or runs_python
        self._program: Path | None = None
        self._is_wanted = False
        self._interpreters: dict[int, _Interpreter] = {}
        self._others: dict[int, int] = {}
        """Processes that run something else, with when that was found out."""
        self._relist_ns = 0
        self._paid_ns = 0
        """From when on another look is within the budget."""
        self._seen: deque[tuple[int, tuple[_Seen, ...]]] = deque()
        self._frames: dict[tuple[str, ...], tuple[str, ...]] = {}

    def ask(self, what: What, wanted: bool) -> None:
        """Begin or end to look."""
        if what == whats.PYTHON_FRAMES:
            self._is_wanted = wanted

    def missing(self) -> Unknown | None:
        return None if find_program() else Unknown("py-spy is not installed", install(PACKAGE))

    def __enter__(self) -> Self:
        self._program = find_program()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seen.clear()

    @property
    def rests_until_ns(self) -> int:
        return 0 if self._is_wanted else _FOR_GOOD_NS

    def poll(self) -> Trace:
        if self._program is None or not self._is_wanted:
            return self._resting()
        self._list_if_due()
        readings: list[Reading] = []
        looked = False
        for interpreter in sorted(self._interpreters.values(), key=lambda one: one.due_ns):
            now = self._clock()
            if now < self._paid_ns:
                break
            if now >= interpreter.due_ns:
                readings.extend(self._look_at(interpreter, self._program))
                looked = True
        now = self._clock()
        stacks = self._stacks(now) if looked else ()
        return Trace(LIVE, now, now, readings=tuple(readings), stacks=stacks, missing=tuple(self._what_is_missing()))

    def _resting(self) -> Trace:
        """Nobody wants it: what was counted ends in a gap, as nobody counts on."""
        now = self._clock()
        tracks = [track for one in self._interpreters.values() for track in one.counts]
        gaps = (
            Reading(track, metric, now, None, SOURCE) for track in tracks for metric in (v.THREAD_GIL_SAMPLES, OWNED)
        )
        readings = tuple(gaps)
        self._interpreters.clear()
        self._seen.clear()
        self._relist_ns = 0
        return Trace(LIVE, now, now, readings=readings, missing=(Missing(whats.source(self.name), _NOT_ASKED),))

    def _list_if_due(self) -> None:
        """Find the server's processes that run Python: workers come and go."""
        now = self._clock()
        if now < self._relist_ns:
            return
        self._relist_ns = now + RELIST_NS
        known = {self._target.pid, self._target.root_pid, *(one.pid for one in self._target.processes)}
        pids = known | set(procfs.family().descendants(self._target.root_pid))
        self._others = {pid: t for pid, t in self._others.items() if pid in pids and now - t < LATEST_RETRY_NS}
        running = {pid for pid in pids - self._others.keys() if _is_there(pid)}
        self._interpreters = {pid: one for pid, one in self._interpreters.items() if pid in running}
        for pid in sorted(running - self._interpreters.keys()):
            if self._is_python(pid):
                self._interpreters[pid] = _Interpreter(pid)
            else:
                self._others[pid] = now

    def _look_at(self, interpreter: _Interpreter, program: Path) -> Iterator[Reading]:
        before_ns, start_ns = time.thread_time_ns(), self._clock()
        seen = self._inspect(program, interpreter.pid)
        children.spend(seen.cpu_ns)
        now = self._clock()
        if isinstance(seen.threads, Unknown):
            self._put_off(interpreter, seen.threads, now)
        else:
            interpreter.why, interpreter.patience_ns = None, RETRY_NS
            interpreter.due_ns = now + LOOK_AGAIN_NS
            yield from self._take(interpreter, seen.threads, start_ns, now)
        cost_ns = seen.cpu_ns + time.thread_time_ns() - before_ns
        self._paid_ns = now + int(cost_ns / self._budget)

    def _put_off(self, interpreter: _Interpreter, why: Unknown, now: int) -> None:
        """Try again later, and later each time; one that has ended needs no reason."""
        if not _is_there(interpreter.pid):
            del self._interpreters[interpreter.pid]
            return
        interpreter.why = why
        interpreter.due_ns = now + interpreter.patience_ns
        interpreter.patience_ns = min(2 * interpreter.patience_ns, LATEST_RETRY_NS)

    def _take(
        self, interpreter: _Interpreter, threads: Iterable[PythonThread], start_ns: int, now: int
    ) -> Iterator[Reading]:
        """Count one look: stacks for the window, and who holds the GIL."""
        pid, tids = interpreter.pid, _outer_tids(interpreter.pid)
        seen: list[_Seen] = []
        counts: dict[TrackId, tuple[int, int]] = {}
        for thread in threads:
            track = ids.thread(pid, tids.get(thread.tid, thread.tid))
            state = PythonState.RUNNING if thread.is_running else PythonState.WAITING
            seen.append((track, state.value, self._frames.setdefault(thread.frames, thread.frames)))
            looks, owned = interpreter.counts.get(track, (0, 0))
            counts[track] = (looks + 1, owned + thread.owns_gil)
            if not looks:
                yield Reading(track, v.THREAD_GIL_SAMPLES, start_ns, 0.0, SOURCE)
                yield Reading(track, OWNED, start_ns, 0.0, SOURCE)
            yield Reading(track, v.THREAD_GIL_SAMPLES, now, float(looks + 1), SOURCE)
            yield Reading(track, OWNED, now, float(owned + thread.owns_gil), SOURCE)
        interpreter.counts = counts
        self._seen.append((now, tuple(seen)))

    def _stacks(self, now: int) -> tuple[Stack, ...]:
        """How often each stack was seen in the window, the most frequent first."""
        while self._seen and self._seen[0][0] < now - v.STACKS_WINDOW_NS:
            self._seen.popleft()
        counts: dict[_Seen, int] = {}
        for _, seen in self._seen:
            for one in seen:
                counts[one] = counts.get(one, 0) + 1
        self._frames = {frames: frames for _, _, frames in counts}
        ranked = sorted(counts.items(), key=lambda item: -item[1])[:MOST_STACKS]
        return tuple(Stack(frames, count, "samples", state, track) for (track, state, frames), count in ranked)

    def _what_is_missing(self) -> Iterator[Missing]:
        """Why nothing is known of Python, or of one process where others are."""
        if not self._interpreters:
            yield Missing(whats.source(self.name), _NO_PYTHON)
            return
        reasons = {one.pid: one.why for one in self._interpreters.values() if one.why is not None}
        if len(reasons) == len(self._interpreters):
            yield Missing(whats.source(self.name), next(iter(reasons.values())))
            return
        if not self._seen:
            yield Missing(whats.source(self.name), _STARTING)
        for pid, why in reasons.items():
            yield Missing(whats.facet(ids.process(pid), whats.Facet.PYTHON), why)


def _is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not yet waited for has no interpreter any more."""
    stat = procfs.stat(pid)
    return stat is not None and stat.state not in "ZX"


def runs_python(pid: int) -> bool:
    """Whether a process runs CPython, as its files tell; one whose files are hidden may: py-spy says why not."""
    program = procfs.read_link(f"/proc/{pid}/exe")
    if program is None:
        return True
    if program.rpartition("/")[2].startswith("python"):
        return True
    try:
        with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as mapped:
            return any("/libpython" in line for line in mapped)
    except OSError:
        return True


def _outer_tids(pid: int) -> dict[int, int]:
    """Ids of threads as llmtop sees them by those of the process's own PID namespace; empty where they are the same."""
    if procfs.innermost_pid(pid) in (pid, None):
        return {}
    inner = ((procfs.innermost_pid(tid), tid) for tid in procfs.threads(pid))
    return {number: tid for number, tid in inner if number is not None}


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry."""
    return PySpyCollector(target)
