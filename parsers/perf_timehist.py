"""Lines of `perf sched timehist`: stretches of threads on CPUs, and what they did before each.

A line is a stretch on a CPU, told when it ends, with how long the thread had been off a CPU before, and for how much of
that it was ready to run: from its wake-up on. One that was put off its CPU is ready all the time, and has no wake-up:
only its state tells, which stands last with `--state`: R (tools/perf/builtin-sched.c, timehist_print_sample). With
`--wakeups` and `--migrations` there are lines of those too.

            time    cpu  task name                       wait time  sch delay   run time  state
     3292.384161 [0000]  mypy[7933]                          2.312      0.000      4.027      R
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from llmtop import ids
from llmtop.model import NS_PER_S, SpanKind, SpanTable, ThreadScheduling, Track, TrackKind
from llmtop.text import clean
from llmtop.vocabulary import OffCpu

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import TrackId

HEAD: Final = re.compile(r"\s*time\s+cpu\s.*task name\s+.*wait time\s+sch delay\s+.*run time.*")
TASK: Final = r"(?P<comm>\S.*?)\[(?P<tid>\d{1,10})(?:/(?P<pid>\d{1,10}))?\]"
NO_PID: Final = 0
"""Of a thread that leads its process, and of one of which perf did not see whose it is, the TID stands alone."""
_WHEN = r"\s*(?P<end>\d{1,10})\.(?P<fraction>\d{6,9}) \[(?P<cpu>\d{1,6})\]\s"
_ROW = re.compile(
    rf"{_WHEN}\s*(?:[si. ]+\s\s)?(?:{TASK}|<idle>)\s+(?:-?\d+\s+)?"
    r"(?P<times>\d+\.\d{3}(?:\s+\d+\.\d{3}){2,3})(?:\s+(?P<state>[A-Za-z]\+?)(?=\s|$))?.*"
)
_MOVED = re.compile(rf"{_WHEN}.*\smigrated: {TASK} cpu \d+ => \d+\s*")
_NAMES = re.compile(r"wait time|sch delay|pre-mig time|run time")
_NS_PER_MS = 1e6
_UNSEEN: Final = "off its CPU"
"""The name of a wait of which nothing tells whether the thread was ready to run."""
_PUT_OFF: Final = "R"
_STATES: Final = {"D": OffCpu.UNINTERRUPTIBLE.value}


@dataclass(slots=True)
class _Thread:
    """What its lines add up to; `state` is that in which it left its last CPU, empty where nothing tells."""

    track: Track
    ran_ns: float = 0.0
    switches: int = 0
    queued_ns: float = 0.0
    longest_ns: float = 0.0
    longest_at_ns: int | None = None
    moved: int = 0
    state: str = ""


class Timehist:
    """The lines of a text, read one by one.

    Attributes:
        has_states: Whether lines tell how threads left their CPUs.
    """

    def __init__(self) -> None:
        self.has_states = self._has_moves = False
        self._order = ["wait time", "sch delay", "run time"]
        self._threads: dict[int, _Thread] = {}
        self._spans: dict[str, list[tuple[int, int, str, TrackId]]] = {
            SpanKind.ON_CPU.value: [],
            SpanKind.OFF_CPU.value: [],
        }

    def read(self, line: str) -> bool:
        """Whether a line is of this table."""
        if HEAD.fullmatch(line):
            self._order = _NAMES.findall(line)
            self.has_states = line.rstrip().endswith("state")
        elif row := _ROW.fullmatch(line):
            if row["tid"]:
                self._add(self._thread(row), row)
        elif moved := _MOVED.fullmatch(line):
            self._has_moves = True
            self._thread(moved).moved += 1
        else:
            return False
        return True

    @property
    def tracks(self) -> dict[TrackId, Track]:
        """Those of all threads that ran."""
        return {one.track.id: one.track for one in self._threads.values() if one.switches}

    def scheduling(self) -> Iterator[ThreadScheduling]:
        """What the lines of each thread add up to."""
        for one in self._threads.values():
            if one.switches:
                yield ThreadScheduling(
                    one.track.id,
                    one.ran_ns,
                    one.switches,
                    one.queued_ns / one.switches,
                    one.longest_ns,
                    one.longest_at_ns,
                    migrations=one.moved if self._has_moves else None,
                )

    def spans(self) -> dict[str, SpanTable]:
        """On CPUs, and between."""
        return {kind: _table(kind, sorted(spans)) for kind, spans in self._spans.items() if spans}

    def _thread(self, told: re.Match[str]) -> _Thread:
        tid = int(told["tid"])
        if tid not in self._threads:
            id = ids.thread(int(told["pid"] or NO_PID), tid)
            self._threads[tid] = _Thread(Track(id, TrackKind.THREAD, clean(told["comm"].strip())))
        return self._threads[tid]

    def _add(self, thread: _Thread, row: re.Match[str]) -> None:
        times = dict(zip(self._order, map(float, row["times"].split()), strict=False))
        end = int(row["end"]) * NS_PER_S + int(row["fraction"].ljust(9, "0"))
        begin = end - round(times.get("run time", 0.0) * _NS_PER_MS)
        away, ready = (round(times.get(name, 0.0) * _NS_PER_MS) for name in ("wait time", "sch delay"))
        queued = away if thread.state.startswith(_PUT_OFF) else ready
        thread.ran_ns += end - begin
        thread.switches += 1
        thread.queued_ns += queued
        if queued > thread.longest_ns:
            thread.longest_ns, thread.longest_at_ns = queued, begin - queued
        self._keep(thread, begin, away, queued)
        if end > begin:
            self._spans[SpanKind.ON_CPU.value].append((begin, end, f"CPU {int(row['cpu'])}", thread.track.id))
        thread.state = (row["state"] or "") if self.has_states else ""

    def _keep(self, thread: _Thread, begin: int, away: int, queued: int) -> None:
        """The stretches before it came onto its CPU."""
        off = self._spans[SpanKind.OFF_CPU.value]
        if away > queued:
            known = _STATES.get(thread.state[:1], OffCpu.BLOCKED.value) if thread.state or queued else _UNSEEN
            off.append((begin - away, begin - queued, known, thread.track.id))
        if queued:
            off.append((begin - queued, begin, OffCpu.RUNNABLE.value, thread.track.id))


def _table(kind: str, spans: list[tuple[int, int, str, TrackId]]) -> SpanTable:
    names, tracks = tuple(dict.fromkeys(one[2] for one in spans)), tuple(dict.fromkeys(one[3] for one in spans))
    name_ids, track_ids = {one: i for i, one in enumerate(names)}, {one: i for i, one in enumerate(tracks)}
    return SpanTable(
        kind,
        names,
        tracks,
        array("q", (name_ids[one[2]] for one in spans)),
        array("q", (track_ids[one[3]] for one in spans)),
        array("q", (one[0] for one in spans)),
        array("q", (one[1] for one in spans)),
        array("q", [-1]) * len(spans),
        array("d", [float("nan")]) * len(spans),
    )
