"""Samples of perf, as `perf script` prints them: a line each, and its stack below it, the innermost function first.

The layout follows from the fields that were asked for, and from the events: times, periods and CPUs may be there or
not (tools/perf/builtin-script.c, perf-script(1)). With a stack and without they look so:

    python3  4242/4243  [003] 59865.286132:   10101010 cpu-clock:pppH:
                  2ba81d visit_reachable+0x7d (/usr/lib/libpython3.11.so.1.0)

    swapper     0 [000]  1022.3:          1 sched:sched_wakeup: comm=python3 pid=4242
    python3  4242  1022.4:  250000 cycles:  ffffffff81 clear_page_erms+0x7 ([kernel.kallsyms])
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.model import Issue, Missing, Origin, Severity, Trace, Unknown
from llmtop.parsers.base import Content
from llmtop.parsers.perf_data import events, is_recording
from llmtop.parsers.perf_data import samples as samples_of
from llmtop.parsers.perf_sched import OF_SCHED, recorded_scheduling
from llmtop.parsers.stack_sums import UNNAMED, StackSums
from llmtop.parsers.text_lines import TextLines, beginning, decoded_head
from llmtop.text import clean, redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from llmtop.model import Fact
    from llmtop.parsers.base import Parser

_SAMPLE = re.compile(
    r"\s*(?P<comm>\S.*?)\s+(?P<pid>-?\d{1,10})(?:/(?P<tid>-?\d{1,10}))?\s+"
    r"(?:\[(?P<cpu>\d{1,6})\]\s+)?(?:\S{4,5}\s+)?(?:(?P<time>\d{1,12}\.\d{1,9}):\s+)?(?:(?P<period>\d{1,19})\s+)?"
    r"(?P<event>[A-Za-z][^\s:]*(?::[^\s:]+)*?):(?:[ukhpPHGDWSI]+:?)?(?:\s+(?P<rest>.*))?"
)
_FRAME = re.compile(r"\s*(?P<address>[0-9a-f]{1,16})\s+(?P<symbol>.*\S)\s+\((?P<object>[^()]*(?:\([^()]*\))?)\)\s*")
_HEADER = re.compile(r"# (?P<what>cmdline|perf version|hostname|captured on|os release|cpudesc) *: (?P<text>.*)")
_FACTS = {
    "cmdline": OriginFact.COMMAND,
    "captured on": "captured",
    "os release": "os",
    "cpudesc": "cpu",
    "hostname": "host",
}
_NANOSECONDS = frozenset({"cpu-clock", "task-clock"})
"""Events whose periods are times; of all others the event is what is counted."""
_ASKED_FOR_STACKS = re.compile(r"\s(?:-[a-z]*g|--call-graph|-g\S*)(?=[\s=]|$)")
"""The options of `perf record` that ask for stacks, in its command line; -ag is both."""
_OFFSET = re.compile(r"\+0x[0-9a-f]+\Z")
_KERNEL = "_[k]"
"""What folded stacks have behind functions of the kernel."""
_NO_KERNELS = Missing(whats.KERNELS, Unknown("samples of perf tell of functions on CPUs alone"))


class PerfParser:
    """Texts that `perf script` printed, and recordings, which it is asked to print."""

    name = "perf"
    title = "samples of perf"
    written_by = "`perf script`; `perf record -g`, where a perf is there that reads it"
    extensions: tuple[str, ...] = (".perf.txt", ".perf.data")
    holds = frozenset({Content.STACKS})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """A recording; or a sample with a function, or with its stack on the next line."""
        lines = [line for line in decoded_head(head).splitlines() if not line.startswith("#")]
        return is_recording(head) or any(
            (sample := _SAMPLE.fullmatch(line)) is not None
            and any(_FRAME.fullmatch(text) for text in (sample["rest"] or "", below))
            for line, below in pairwise((*lines, ""))
        )

    def parse(self, path: Path) -> Trace:
        """Sum the stacks up. Their weight is the period of their event, as in `perf report`.

        Raises:
            FileError: No sample has a function; of a recording, perf is not there or cannot read it.
        """
        if is_recording(beginning(path)):
            if events(path) >= OF_SCHED:
                return recorded_scheduling(path)
            samples, is_ended = _PerfSamples(samples_of(path)), True
        else:
            lines = TextLines(path)
            samples, is_ended = _PerfSamples(lines), lines.is_ended
        return samples.trace(path, is_ended=is_ended)


PARSER: Final[Parser] = PerfParser()


class _PerfSamples:
    """The samples of a text, and what is wrong with it."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._sums = StackSums()
        self._facts: dict[str, str] = {}
        self._version = ""
        self._bare = 0
        self._skipped = 0
        self._read(lines)

    def trace(self, path: Path, *, is_ended: bool) -> Trace:
        """All of them; whether the text ends with a whole line.

        Raises:
            FileError: None has a function.
        """
        stacks = self._sums.stacks()
        if not stacks:
            remedy = "record stacks (perf record -g) and print it again"
            if _ASKED_FOR_STACKS.search(self._facts.get(OriginFact.COMMAND, "")):
                remedy = "its stacks are empty though they were asked for: record with --call-graph dwarf"
            raise FileError(f"{path} holds no sample with a function: {remedy}")
        facts: dict[str, Fact] = dict(self._facts)
        return Trace(
            Origin(PARSER.name, str(path), tool_version=self._version, facts=facts, host=self._facts.get("host", "")),
            tracks=self._sums.tracks,
            stacks=stacks,
            issues=tuple(self._issues(is_ended=is_ended)),
            missing=(_NO_KERNELS,),
        )

    def _read(self, lines: Iterable[str]) -> None:
        sample: re.Match[str] | None = None
        frames: list[str] = []
        for line in lines:
            if line.startswith("#"):
                self._note(line)
            elif sample is not None and (frame := _FRAME.fullmatch(line)):
                frames.append(_function(frame))
            elif line.strip():
                self._add(sample, frames)
                sample, frames = _SAMPLE.fullmatch(line), []
                if sample is None:
                    self._skipped += 1
                elif frame := _FRAME.fullmatch(sample["rest"] or ""):
                    frames.append(_function(frame))
        self._add(sample, frames)

    def _add(self, sample: re.Match[str] | None, frames: list[str]) -> None:
        if sample is None or not frames:
            self._bare += sample is not None
            return
        pid, tid = int(sample["pid"]), int(sample["tid"] or sample["pid"])
        event, period = sample["event"], sample["period"]
        is_each_hit = ":" in event  # of a tracepoint or a probe: each has one, and nothing is sampled
        unit = "ns" if event in _NANOSECONDS else clean(event)
        if period is None and not is_each_hit:
            unit = "samples"
        thread = self._sums.thread(sample["comm"], pid, tid)
        self._sums.add(thread, frames[::-1], 1.0 if period is None else float(period), unit)

    def _note(self, line: str) -> None:
        """What `--header` has of the capture."""
        if found := _HEADER.fullmatch(line):
            text = clean(redact(found["text"].strip()))
            if found["what"] == "perf version":
                self._version = text
            else:
                self._facts[_FACTS[found["what"]]] = text

    def _issues(self, *, is_ended: bool) -> Iterator[Issue]:
        if self._bare:
            message = "samples have no function: left out"
            yield Issue(Severity.INFO, "perf.bare-samples", message, self._bare)
        if self._skipped:
            yield Issue(Severity.WARNING, "rows-skipped", "lines are no samples: left out", self._skipped)
        if not is_ended:
            message = "the last line has no end: if the file was cut short, its last samples are missing"
            yield Issue(Severity.INFO, "no-line-end", message)


def _function(frame: re.Match[str]) -> str:
    """A function as flame graphs name it; without a symbol the file that it is in."""
    symbol, file = _OFFSET.sub("", frame["symbol"]), frame["object"]
    name = file.rpartition("/")[2] if file else ""
    if symbol == UNNAMED:
        return UNNAMED if name in ("", UNNAMED, "unknown") else f"[{name.strip('[]')}]"
    return f"{symbol}{_KERNEL}" if file.startswith("[") and file not in (UNNAMED, "[vdso]", "[vsyscall]") else symbol
