r"""Maps of bpftrace whose keys have stacks (`bpftrace -f json`): counts, sums and times by kstack, ustack and names.

Each line is a JSON object; that of a map has it as text, with the parts of a key between commas and each stack on lines
of its own, the innermost function first (https://github.com/bpftrace/bpftrace/blob/master/docs/language.adoc):

    {"type": "map", "data": {"@": {"serve,42,\n    vfs_write+920\n    ksys_write+186\n": 7}}}
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.model import Issue, Missing, Origin, Severity, Trace, TrackId, Unknown
from llmtop.parsers.base import Content
from llmtop.parsers.stack_sums import UNNAMED, StackSums
from llmtop.parsers.text_lines import TextLines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from llmtop.parsers.base import Parser

_LINE = re.compile(rb'\s*\{"type": ?"(attached_probes|map|printf|time|cat|join|syscall|hist|stats|value)", ?"')
_STACK = re.compile(r"\n((?:[ \t]+\S.*\n)+)")
_FRAME = re.compile(r"\s*(?:[0-9a-f]{8,16} )?(?P<symbol>.*?)(?:\+(?:0x)?[0-9a-f]+)?(?: \((?P<object>[^()]*)\))?")
"""With the address and the file too, where stacks are asked for as perf has them (`kstack(perf)`)."""
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_ENTRY = re.compile(
    r"entry_\w+|asm_\w+|ret_from_fork\w*|el[01]\w*|do_syscall_64|secondary_startup\w*|start_secondary|\w+_idle|kthread"
)
"""Functions that kernels' stacks begin with."""
_KERNEL = "_[k]"
_NO_KERNELS = Missing(whats.KERNELS, Unknown("maps of bpftrace tell of functions on CPUs alone"))


class BpftraceParser:
    """Texts that `bpftrace -f json` printed."""

    name = "bpftrace"
    title = "maps of bpftrace"
    written_by = "`bpftrace -f json`, of programs that count by `kstack` or `ustack`"
    extensions: tuple[str, ...] = (".bpftrace.json",)
    holds = frozenset({Content.STACKS})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        return _LINE.match(head) is not None

    def parse(self, path: Path) -> Trace:
        """Sum the stacks up. Their unit is "samples", or the name of the map where several have stacks.

        Raises:
            FileError: No map has stacks.
        """
        lines = TextLines(path)
        maps = _Maps(lines)
        stacks = maps.sums.stacks()
        if not stacks:
            raise FileError(
                f"{path} has no map with stacks: count by kstack or ustack, as in @[kstack, comm] = count()"
            )
        return Trace(
            Origin(self.name, str(path)),
            tracks=maps.sums.tracks,
            stacks=stacks,
            issues=tuple(maps.issues()),
            missing=(_NO_KERNELS,),
        )


PARSER: Final[Parser] = BpftraceParser()


class _Maps:
    """The maps of a text: a later one of a name is the same one, later."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.sums = StackSums()
        self._broken = 0
        self._named: dict[str, TrackId] = {}
        by_name = dict(named for line in lines for named in self._read(line))
        with_stacks = {name: entries for name, entries in by_name.items() if any(map(_STACK.search, entries))}
        for name, entries in with_stacks.items():
            unit = "samples" if len(with_stacks) == 1 else name
            for key, value in entries.items():
                self._add(key, value, unit)

    def issues(self) -> Iterator[Issue]:
        """What was left out."""
        if self._broken:
            message = "lines are no whole JSON: left out; if the text was cut short, its last map is missing"
            yield Issue(Severity.WARNING, "rows-skipped", message, self._broken)

    def _read(self, line: str) -> Iterator[tuple[str, dict[str, float]]]:
        """Maps of numbers on a line; distributions and what the program printed are left out."""
        if not line.strip():
            return
        try:
            told: Any = json.loads(line)
        except (ValueError, RecursionError):
            self._broken += 1
            return
        data = told.get("data") if isinstance(told, dict) and told.get("type") == "map" else None
        for name, entries in data.items() if isinstance(data, dict) else ():
            if isinstance(entries, dict):
                yield name, {key: float(value) for key, value in entries.items() if _is_amount(value)}

    def _add(self, key: str, value: float, unit: str) -> None:
        stacks = [found[1].splitlines() for found in _STACK.finditer(key)]
        labels = [label for label in _STACK.sub("", key).split(",") if label.strip()]
        if stacks:
            self.sums.add(self._thread(labels), _joined(stacks), value, unit)

    def _thread(self, labels: list[str]) -> TrackId:
        """The track of what the other parts of a key say: names, and of two numbers the PID first."""
        name = ", ".join(label for label in labels if not label.isdecimal()) or ", ".join(labels)
        if not name:
            return TrackId("")
        numbers = [int(label) for label in labels if label.isdecimal() and len(label) <= _LONGEST_PID]
        key = ",".join(labels)
        if key not in self._named:
            pid = numbers[0] if numbers else 0
            tid = numbers[1] if len(numbers) > 1 else pid or len(self._named)
            self._named[key] = self.sums.thread(name, pid, tid)
        return self._named[key]


_LONGEST_PID = 10


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST


_MOST = float(1 << 63)


def _joined(stacks: list[list[str]]) -> list[str]:
    """The frames from the root on: the user's below the kernel's, whichever stands first in the key."""
    named = [[_function(frame) for frame in stack] for stack in stacks]
    of_kernel = [_ENTRY.fullmatch(stack[-1]) is not None for stack in named]
    if len(named) > 1 and not any(of_kernel):
        of_kernel[0] = True  # `kstack, ustack` is how the tools of bpftrace write it
    inner = [
        f"{name}{_KERNEL}" for stack, is_kernel in zip(named, of_kernel, strict=True) if is_kernel for name in stack
    ]
    outer = [name for stack, is_kernel in zip(named, of_kernel, strict=True) if not is_kernel for name in stack]
    return [*inner, *outer][::-1]


def _function(frame: str) -> str:
    found = _FRAME.fullmatch(frame)
    name = found["symbol"].strip() if found else frame.strip()
    return UNNAMED if not name or _ADDRESS.fullmatch(name) else name
