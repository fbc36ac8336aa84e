"""What `perf sched latency` and `perf sched timehist` print: how long threads ran, and how long they waited for a CPU.

    Task            |   Runtime ms  | Switches | Avg delay ms    | Max delay ms    | Max delay start   | Max delay end
    mypy:7933       |    221.305 ms |       65 | avg:  14.377 ms | max:  37.182 ms | max start: 93.4 s | max end: 93.5 s

Before perf 5.12 one moment stood in place of the last two: that at which the longest delay ended ("max at"). Threads of
one name are one line, `python:(6)`, but with `-p` (tools/perf/builtin-sched.c). Lines of timehist: `perf_timehist`; its
summary has a line for each thread too, with its delays where `--state` was given.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from llmtop import ids, whats
from llmtop.errors import FileError
from llmtop.model import (
    NS_PER_S,
    Issue,
    Missing,
    Origin,
    Severity,
    ThreadScheduling,
    Trace,
    Track,
    TrackKind,
    Unknown,
)
from llmtop.parsers.base import Content
from llmtop.parsers.perf_data import printed
from llmtop.parsers.perf_stat_lines import plain_number
from llmtop.parsers.perf_timehist import HEAD, NO_PID, TASK, Timehist
from llmtop.parsers.text_lines import TextLines, decoded_head
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from llmtop.model import Fact, TrackId
    from llmtop.parsers.base import Parser

OF_SCHED: Final = frozenset({"sched:sched_switch", "sched:sched_stat_runtime", "sched:sched_migrate_task"})
"""What `perf sched record` records in all its versions; who records stacks at switches alone wants these."""
_LATENCY_HEAD = re.compile(r"\s*Task\s+\|\s+Runtime ms\s+\|\s+Switches\s+\|.*")
_SUMMARY_HEAD = re.compile(r"\s*(Runtime|Wait-time) summary\s*")
_MS = r"\d{1,12}[.,]\d{1,6}"
_LATENCY = re.compile(
    rf"\s*(?P<task>\S.*?):(?:\((?P<several>\d{{1,7}})\)|(?P<tid>\d{{1,10}}))\s*\|\s*(?P<ran>{_MS}) ms\s*"
    rf"\|\s*(?P<switches>\d{{1,12}})\s*\|\s*avg:\s*(?P<mean>{_MS}) ms\s*\|\s*max:\s*(?P<most>{_MS}) ms\s*"
    r"(?:\|\s*max (?P<which>at|start):\s*(?P<when>\d{1,12}[.,]\d{1,9}) s\b.*|\|.*)?"
)
_TOTAL = re.compile(rf"\s*TOTAL:\s*\|\s*(?P<ran>{_MS}) ms\s*\|\s*(?P<switches>\d{{1,12}})\s*\|.*")
_SUMMED = re.compile(
    rf"\s*{TASK}\s+-?\d{{1,10}}\s+(?P<switches>\d{{1,12}})\s+(?P<times>\d+\.\d{{3}}(?:\s+\d+(?:\.\d+)?){{4,5}})\s*"
)
_WAITS: Final = ("ran", "sleep", "iowait", "preempt", "delay")
"""What the times of a summary with states are, one behind the other; without states the first and the last of theirs
alone mean something here: how long it ran, and how often it changed its CPU."""
_NS_PER_MS = 1e6
_ALL_RAN, _ALL_SWITCHES = "ran in all (ms)", "switches in all"
_NO_LONGEST = Unknown("the summary tells no longest delay", "perf sched latency -p tells it, and when it was")
_NO_DELAYS = Unknown(
    "this summary tells no delays", "perf sched timehist --state --summary does, or perf sched latency -p"
)
_NO_KERNELS = Missing(whats.KERNELS, Unknown("perf sched tells of CPUs alone"))


class PerfSchedParser:
    """Texts that `perf sched latency` and `perf sched timehist` printed."""

    name = "perf-sched"
    title = "scheduling as perf prints it"
    written_by = (
        "`perf sched latency` and `perf sched timehist`, with or without `-p`, `--state`, `--summary`, `-M`, `-V`; "
        "`perf sched record`, where a perf is there that reads it"
    )
    extensions: tuple[str, ...] = (".perf-sched.txt",)
    holds = frozenset({Content.SCHEDULING})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """The head of one of its tables."""
        heads = (_LATENCY_HEAD, HEAD, _SUMMARY_HEAD)
        return any(one.fullmatch(line) for line in decoded_head(head).splitlines() for one in heads)

    def parse(self, path: Path) -> Trace:
        """Read all tables; a summary below lines that it sums up tells nothing new.

        Raises:
            FileError: It has no thread.
        """
        lines = TextLines(path)
        tables = _Tables(lines)
        return tables.trace(path, is_ended=lines.is_ended)


PARSER: Final[Parser] = PerfSchedParser()


def recorded_scheduling(path: Path) -> Trace:
    """What the perf that is here prints of a recording of `perf sched record`.

    Raises:
        FileError: There is no perf, it cannot read the file, or nothing ran meanwhile.
    """
    return _Tables(printed(path, "sched", "timehist", "--state", "--migrations")).trace(path, is_ended=True)


class _Tables:
    """The tables of a text."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._timehist = Timehist()
        self._told: dict[TrackId, ThreadScheduling] = {}
        self._tracks: dict[TrackId, Track] = {}
        self._has_waits = self._has_latency = False
        self._facts: dict[str, Fact] = {}
        for line in lines:
            self._read(line)

    def trace(self, path: Path, *, is_ended: bool) -> Trace:
        """All of them; whether the text ends with a whole line.

        Raises:
            FileError: None has a thread.
        """
        rows = tuple(self._timehist.scheduling())
        scheduling = rows or tuple(self._told.values())
        if not scheduling:
            raise FileError(f"{path} names no thread that ran: record while it works (perf sched record -- sleep 5)")
        spans = self._timehist.spans()
        begins = [table.start_ns[0] for table in spans.values()]
        return Trace(
            Origin(PARSER.name, str(path), facts=self._facts),
            start_ns=min(begins, default=0),
            end_ns=max((max(table.end_ns) for table in spans.values()), default=0),
            tracks=self._timehist.tracks if rows else self._tracks,
            spans=spans,
            scheduling=scheduling,
            issues=tuple(self._issues(is_ended=is_ended, has_rows=bool(rows))),
            missing=(_NO_KERNELS,),
        )

    def _read(self, line: str) -> None:
        if self._timehist.read(line):
            return
        if heading := _SUMMARY_HEAD.fullmatch(line):
            self._has_waits = heading[1] != "Runtime"
        elif latency := _LATENCY.fullmatch(line):
            self._add_latency(latency)
        elif total := _TOTAL.fullmatch(line):
            self._facts |= {_ALL_RAN: plain_number(total["ran"]), _ALL_SWITCHES: int(total["switches"])}
        elif summed := _SUMMED.fullmatch(line):
            self._add_summary(summed)

    def _add_latency(self, told: re.Match[str]) -> None:
        self._has_latency = True
        name, several = clean(told["task"]), int(told["several"] or 1)
        id = ids.thread(NO_PID, int(told["tid"])) if told["tid"] else ids.host_part(name)
        kind = TrackKind.THREAD if told["tid"] else TrackKind.HOST
        self._tracks[id] = Track(id, kind, name)
        ran, mean, longest = (plain_number(told[part]) * _NS_PER_MS for part in ("ran", "mean", "most"))
        when = round(plain_number(told["when"] or "0") * NS_PER_S)
        began = when - round(longest) if told["which"] == "at" else when
        at = began if longest and when else None
        self._told[id] = ThreadScheduling(id, ran, int(told["switches"]), mean, longest, at, threads=several)

    def _add_summary(self, told: re.Match[str]) -> None:
        id = ids.thread(int(told["pid"] or NO_PID), int(told["tid"]))
        self._tracks[id] = Track(id, TrackKind.THREAD, clean(told["comm"]))
        numbers, switches = [float(one) for one in told["times"].split()], int(told["switches"])
        mean: float | Unknown = _NO_DELAYS
        moved = None
        if self._has_waits:
            times = dict(zip(_WAITS, numbers, strict=False))
            mean = (times["preempt"] + times["delay"]) * _NS_PER_MS / max(1, switches)
        else:
            moved = int(numbers[-1])
        self._told[id] = ThreadScheduling(
            id, numbers[0] * _NS_PER_MS, switches, mean, _NO_LONGEST, None, migrations=moved
        )

    def _issues(self, *, is_ended: bool, has_rows: bool) -> Iterator[Issue]:
        if has_rows and not self._timehist.has_states:
            message = "without states (--state) a thread that was put off its CPU is not known to wait for one"
            yield Issue(Severity.INFO, "perf.no-states", message)
        if self._has_latency and not self._facts:
            message = "there is no total: if the text was cut short, its last threads are missing"
            yield Issue(Severity.WARNING, "perf.cut", message)
        elif not is_ended:
            message = "the last line has no end: if the file was cut short, its last threads are missing"
            yield Issue(Severity.INFO, "no-line-end", message)
