"""Folded stacks: a stack a line, from the root on, and how often or how long it was seen.

Written by stackcollapse-perf.pl and inferno from `perf script`, by `py-spy record --format raw`, async-profiler
(collapsed) and the tools of bcc (`-f`); read by flamegraph.pl (https://github.com/brendangregg/FlameGraph). They look
so, and no two writers say in which unit the number is:

    python3;PyObject_Call;futex_wait_[k] 12
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.model import Issue, Missing, Origin, Severity, Stack, Trace, Unknown
from llmtop.parsers.base import HEAD_BYTES, Content
from llmtop.text import clean, redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from llmtop.parsers.base import Parser

_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_COMMENT = b"#"
_MOST = 0.9
"""Of the lines that are to be stacks: names of C++ and of threads may have anything in them, a line's end too."""
_LONGEST_LINE = 1 << 20
"""Stacks of a thousand functions of C++ have some 100 kB; what is longer is something else."""
_LEAST_PERIOD = 1000
"""Of the smallest number of a file: nothing is sampled so often in each stack that was seen, so that it is of periods,
of events from one sample to the next. Ours."""
_NO_KERNELS = Missing(whats.KERNELS, Unknown("folded stacks tell of functions on CPUs alone"))
_PROCESS = re.compile(r'process \d+:"')
"""How py-spy begins a stack: with the command line of its process."""


class FoldedStacksParser:
    """Files of folded stacks, whoever wrote them."""

    name = "folded-stacks"
    title = "folded stacks"
    written_by = "`stackcollapse-perf.pl`, inferno, `py-spy record --format raw`, async-profiler, bcc's `profile -f`"
    extensions: tuple[str, ...] = (".folded", ".collapsed")
    holds = frozenset({Content.STACKS})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """Text whose lines are stacks with a number each; at least one has two functions."""
        if b";" not in head or b"\0" in head:
            return False
        *whole, last = head.split(b"\n")
        if not whole and len(head) >= HEAD_BYTES:
            return True  # its first stack is longer than that: whether it is one is known at its end
        lines = [line for line in whole or [last] if line.strip() and not line.startswith(_COMMENT)]
        stacks = [stack for line in lines if (stack := _parts(line)[0])]
        return any(b";" in stack for stack in stacks) and len(stacks) >= _MOST * len(lines)

    def parse(self, path: Path) -> Trace:
        """Sum the stacks up, the heaviest first, in whatever its writer counted.

        The unit is "samples", or "periods" where stacks weigh as much as only those do (of perf: events or ns).

        Raises:
            FileError: No line is a stack, or the file compares two profiles.
        """
        try:
            with path.open("rb") as file:
                lines = _LineReader(file)
                weights = lines.weights()
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from error
        if not weights:
            raise FileError(f"{path} holds no stacks: no line is a stack and a number; fold it again from the capture")
        if lines.compared == lines.stacks:
            raise FileError(
                f"{path} compares two profiles, with two numbers a line; open one of the two it was made of"
            )
        return Trace(
            Origin(self.name, str(path)), stacks=_stacks(weights), issues=tuple(lines.issues()), missing=(_NO_KERNELS,)
        )


PARSER: Final[Parser] = FoldedStacksParser()


def _parts(line: bytes) -> tuple[bytes, float]:
    r"""The stack and its number; an empty stack where the line is none.

    >>> _parts(b"a;b c 12\r\n"), _parts(b"a;b"), _parts(b"12")
    ((b'a;b c', 12.0), (b'', 0.0), (b'', 0.0))
    """
    stack, *number = line.rsplit(None, 1)
    return (stack.strip(), float(number[0])) if number and _NUMBER.fullmatch(number[0]) else (b"", 0.0)


class _LineReader:
    """The lines of a file, and what is wrong with them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.stacks = 0
        self.compared = 0
        """Stacks that end in a number themselves, as difffolded.pl writes them: with the counts before and after."""
        self._skipped = 0
        self._is_ended = True

    def weights(self) -> Mapping[bytes, float]:
        """Each stack once, with the sum of its numbers."""
        weights: dict[bytes, float] = {}
        for line in self._read():
            stack, weight = _parts(line)
            total = weights.get(stack, 0.0) + weight
            if not stack or not math.isfinite(total):
                self._skipped += 1
                continue
            self.stacks += 1
            self.compared += stack[-1:].isdigit() and b";" in _parts(stack)[0]
            weights[stack] = total
        return weights

    def _read(self) -> Iterator[bytes]:
        """Lines that are not empty; of a longer one than any stack only its beginning, which is none."""
        while line := self._file.readline(_LONGEST_LINE):
            self._is_ended = line.endswith(b"\n")
            if len(line) == _LONGEST_LINE and not self._is_ended:
                self._to_end_of_line()
                line = b"too long"
            if line.strip() and not line.startswith(_COMMENT):
                yield line

    def _to_end_of_line(self) -> None:
        while (more := self._file.readline(_LONGEST_LINE)) and not more.endswith(b"\n"):
            pass
        self._is_ended = bool(more)

    def issues(self) -> Iterator[Issue]:
        """What was left out, and what may be wrong."""
        if self._skipped:
            message = f"{self._skipped} of {self._skipped + self.stacks} lines are no stack with a number: left out"
            yield Issue(Severity.WARNING, "rows-skipped", message, self._skipped)
        if not self._is_ended:
            message = "the last line has no end: if the file was cut short, its number is too small"
            yield Issue(Severity.INFO, "no-line-end", message)


def _stacks(weights: Mapping[bytes, float]) -> tuple[Stack, ...]:
    names: dict[bytes, str] = {}
    heaviest_first = sorted(weights.items(), key=lambda pair: -pair[1])
    is_by_period = len(weights) > 1 and min(filter(None, weights.values()), default=0) >= _LEAST_PERIOD
    unit = "periods" if is_by_period else "samples"
    return tuple(
        Stack(tuple(_named(frame, names) for frame in stack.split(b";")), weight, unit)
        for stack, weight in heaviest_first
    )


def _named(frame: bytes, names: dict[bytes, str]) -> str:
    """A function's name, each of which most stacks share, made once; a command line without its secrets."""
    name = names.get(frame)
    if name is None:
        text = clean(frame.decode("utf-8", "replace").strip()) or "[unknown]"
        name = names[frame] = redact(text) if _PROCESS.match(text) else text
    return name
