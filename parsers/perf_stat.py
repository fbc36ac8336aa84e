"""Counts of events that `perf stat` printed: for people, as CSV or as JSON, once or every interval."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from llmtop import ids, whats
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.model import (
    NS_PER_S,
    EventCount,
    Issue,
    Metric,
    Missing,
    Origin,
    Series,
    Severity,
    Trace,
    Track,
    TrackKind,
    Unknown,
)
from llmtop.parsers.base import Content
from llmtop.parsers.perf_stat_lines import count_line, of_csv, plain_number
from llmtop.parsers.text_lines import TextLines, decoded_head
from llmtop.text import clean, redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from llmtop.model import Fact, TrackId
    from llmtop.parsers.base import Parser
    from llmtop.parsers.perf_stat_lines import CountLine

_TITLE = re.compile(r"\s*Performance counter stats for (?P<what>.+?)(?: \((?P<runs>\d{1,6}) runs\))?:\s*")
_OF_ALL = re.compile(r"(process|thread) id '(\d{1,10})'")
_INTERVALS = re.compile(r"#\s+time\s+.*\bcounts\s+unit\s+events\s*")
_JSON = re.compile(r'\s*\{.*"counter-value" ?:')
_TIMES = re.compile(r"\s*(?P<seconds>[\d.,]+)\s+(?:\+-\s+[\d.,]+\s+)?seconds (?P<what>time elapsed|user|sys)\b.*")
_CAPTURED, _RUNS = "captured", "runs"
_TIME_FACTS = {"time elapsed": "elapsed (s)", "user": "user (s)", "sys": "system (s)"}
_STARTED = re.compile(r"# started on (.+)")
_THREAD = re.compile(r"(?P<comm>.*)-(?P<tid>\d{1,10})")
_PART = re.compile(r"(?:S|N|D|CPU)\d+(?:-(?!\d+$).+)?")
_DURATION: Final = "duration_time"
"""The event that is the elapsed time."""
_SOURCE: Final = "perf stat"
_NOT_SUPPORTED = Unknown(
    "this machine has no counter for it (perf: <not supported>)",
    "count it where the processor shows its counters: a virtual machine mostly does not",
)
_NOT_COUNTED = Unknown(
    "nothing ran that it was to be counted of, or no counter was free (perf: <not counted>)",
    "count for longer, or fewer events at once",
)
_NO_KERNELS = Missing(whats.KERNELS, Unknown("perf stat counts what CPUs do"))
_WHOLE: Final = 0
"""The PID of what is counted as a whole, where perf does not say it."""


class PerfStatParser:
    """Texts that `perf stat` printed."""

    name = "perf-stat"
    title = "counts of perf stat"
    written_by = "`perf stat`, also with `-x`, `-j`, `-I`, `-r`, `-A`, `--per-thread` and `--per-core`, in any language"
    extensions: tuple[str, ...] = (".perf-stat.txt", ".perf-stat.csv", ".perf-stat.json")
    holds = frozenset({Content.COUNTS})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """Its title, the one of intervals, or a count as CSV or JSON has it."""
        return any(
            _TITLE.fullmatch(line) or _INTERVALS.fullmatch(line) or _JSON.match(line) or of_csv(line)
            for line in decoded_head(head).splitlines()
        )

    def parse(self, path: Path) -> Trace:
        """Add all intervals up, and keep the course of each event.

        Raises:
            FileError: It has no count.
        """
        lines = TextLines(path)
        counts = _Counts(lines)
        if not counts.of_event:
            raise FileError(f"{path} has no count of an event: give perf stat events (-e), and no --metric-only")
        return counts.trace(Origin(self.name, str(path), facts=counts.facts), is_ended=lines.is_ended)


PARSER: Final[Parser] = PerfStatParser()


class _Counts:
    """The counts of a text by track and event, in the order in which they came."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.of_event: dict[tuple[TrackId, str], list[CountLine]] = {}
        self.facts: dict[str, Fact] = {}
        self._tracks: dict[TrackId, Track] = {}
        self._whole = Track(ids.process(_WHOLE), TrackKind.PROCESS, "all that was counted")
        self._elapsed_s: float | None = None
        self._is_text = self._is_titled = self._in_intervals = False
        for line in lines:
            self._read(line)

    def trace(self, origin: Origin, *, is_ended: bool) -> Trace:
        """All that was read."""
        counts = tuple(self._summed())
        elapsed_s = self._elapsed()
        return Trace(
            origin,
            end_ns=round(elapsed_s * NS_PER_S),
            tracks=self._tracks,
            series=dict(self._series()) if self._in_intervals else {},
            counts=counts,
            issues=tuple(self._issues(counts, is_ended=is_ended)),
            missing=(_NO_KERNELS,),
        )

    def _read(self, line: str) -> None:
        if _TITLE.fullmatch(line) or _INTERVALS.fullmatch(line):
            self._is_text = True
            self._name(line)
        elif times := _TIMES.fullmatch(line):
            self._note(times)
        elif started := _STARTED.fullmatch(line):
            self.facts[_CAPTURED] = clean(started[1].strip())
        elif (count := count_line(line)) is not None:
            self._add(count)

    def _add(self, count: CountLine) -> None:
        """With intervals, sums that follow them (`--summary`) are the same counts once more."""
        self._in_intervals = self._in_intervals or count.time_s is not None
        if count.time_s is not None or not self._in_intervals:
            track = self._track(count)
            self.of_event.setdefault((track, clean(count.event)), []).append(count)

    def _name(self, line: str) -> None:
        """What is counted, as the title says."""
        title = _TITLE.fullmatch(line)
        if title is None:
            return
        self._is_titled = True
        what = title["what"]
        if title["runs"]:
            self.facts[_RUNS] = int(title["runs"])
        if one := _OF_ALL.fullmatch(what):
            number = int(one[2])
            is_process = one[1] == "process"
            id = ids.process(number) if is_process else ids.thread(_WHOLE, number)
            self._whole = Track(id, TrackKind.PROCESS if is_process else TrackKind.THREAD, f"{one[1]} {number}")
        elif what == "'system wide'":
            self._whole = Track(ids.HOST, TrackKind.HOST, "all CPUs")
        else:
            command = clean(redact(what.strip("'")))
            self.facts[OriginFact.COMMAND] = command
            self._whole = Track(ids.process(_WHOLE), TrackKind.PROCESS, command)

    def _note(self, times: re.Match[str]) -> None:
        seconds = plain_number(times["seconds"]) if times["seconds"].count(",") + times["seconds"].count(".") < 2 else 0
        if times["what"] == "time elapsed":
            self._elapsed_s = seconds
        self.facts[_TIME_FACTS[times["what"]]] = seconds

    def _track(self, count: CountLine) -> TrackId:
        track = self._whole if not (count.of or count.cgroup) else _track_of(count)
        self._tracks.setdefault(track.id, track)
        return track.id

    def _elapsed(self) -> float:
        """How long was counted, in seconds; 0 where nothing tells."""
        lines = [line for several in self.of_event.values() for line in several]
        if self._in_intervals:
            return max(line.time_s or 0.0 for line in lines)
        if exact := next((line.count for line in lines if line.event == _DURATION and line.count), None):
            return exact / NS_PER_S
        told = ((line.count, line.utilized) for line in lines if line.count and line.utilized)
        return self._elapsed_s or next((ns / cpus / NS_PER_S for ns, cpus in told if cpus > _TELLS), 0.0)

    def _summed(self) -> Iterator[EventCount]:
        for (track, event), lines in self.of_event.items():
            known = [line.count for line in lines if line.count is not None]
            why = _NOT_COUNTED if any(line.is_supported for line in lines) else _NOT_SUPPORTED
            shares = [line.share for line in lines if line.share is not None and line.count is not None]
            last = lines[-1]
            yield EventCount(
                track,
                event,
                math.fsum(known) if known else why,
                clean(last.unit),
                min(shares, default=None),
                last.spread if known else None,
            )

    def _series(self) -> Iterator[tuple[tuple[TrackId, str], Series]]:
        """The course of each event, as its rate in each interval."""
        ends = sorted(
            {line.time_s for several in self.of_event.values() for line in several if line.time_s is not None}
        )
        begins = dict(zip(ends, [0.0, *ends], strict=False))
        for (track, event), lines in self.of_event.items():
            metric = _rate_metric(event, lines[-1].unit)
            samples = [(round((line.time_s or 0) * NS_PER_S), _rate(line, begins)) for line in lines]
            yield (track, metric.name), Series.of(track, metric, _SOURCE, samples)

    def _issues(self, counts: Sequence[EventCount], *, is_ended: bool) -> Iterator[Issue]:
        gaps = sum(line.count is None and line.is_supported for several in self.of_event.values() for line in several)
        if self._in_intervals and gaps:
            message = "counts of an interval are not there (<not counted>): nothing ran, or no counter was free"
            yield Issue(Severity.INFO, "perf.not-counted", message, gaps)
        scaled = sum(one.counted_share is not None and one.counted_share < 1 for one in counts)
        if scaled:
            message = "counts are estimates: the event shared a counter with others, and perf scales what it counted"
            yield Issue(Severity.INFO, "perf.multiplexed", message, scaled)
        if self._is_titled and not self._in_intervals and self._elapsed_s is None:
            message = "the text ends before its elapsed time: if it was cut short, its last events are missing"
            yield Issue(Severity.WARNING, "perf.cut", message)
        elif not is_ended:
            message = "the last line has no end: if the file was cut short, its last counts are missing"
            yield Issue(Severity.INFO, "no-line-end", message)


_TELLS = 0.1
"""CPUs in use: printed with three digits behind the point, fewer tell the elapsed time by 1 % at best."""


def _track_of(count: CountLine) -> Track:
    """The track of a CPU, a core, a thread or a cgroup."""
    of = clean(count.of)
    thread = None if _PART.fullmatch(of) else _THREAD.fullmatch(of)
    if thread is not None:
        return Track(ids.thread(_WHOLE, int(thread["tid"])), TrackKind.THREAD, thread["comm"] or of)
    name = " ".join(part for part in (of, f"cgroup {clean(count.cgroup)}" if count.cgroup else "") if part)
    return Track(ids.host_part(name), TrackKind.HOST, name)


def _rate_metric(event: str, unit: str) -> Metric:
    """In each interval: of a clock how many CPUs it ran on, of all else how often a second."""
    if unit == "ns":
        return Metric(event, "cores", title=event)
    return Metric(event, "events/s" if unit == "1" else f"{clean(unit)}/s", title=event)


def _rate(line: CountLine, begins: dict[float, float]) -> float | None:
    length_s = (line.time_s or 0.0) - begins.get(line.time_s or 0.0, 0.0)
    if line.count is None or length_s <= 0:
        return None
    return line.count / length_s / (NS_PER_S if line.unit == "ns" else 1.0)
