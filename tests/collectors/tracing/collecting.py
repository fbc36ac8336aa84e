"""What the tests of the collector share: polling until something is so, and helpers that fail in a known way."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtop.collectors.tracing.bcc.collector import PROGRAM, EbpfCollector
from llmtop.model import NS_PER_S, Mark, Reading, Stack, Trace, TrackId
from tests.collectors.tracing.probes import eventually, is_awaited


def missing(trace: Trace) -> dict[str, str]:
    return {one.what: str(one.why) for one in trace.missing}


def damaged_helper(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the helper's files, to be damaged, which is run in its place from now on."""
    copy, program = a_copy(folder)
    monkeypatch.setattr(EbpfCollector, "program", program)
    return copy


def a_copy(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A copy of the files of bcc's helper, to be damaged, and the command that runs it."""
    ignored = shutil.ignore_patterns("__pycache__", "perf")
    copy = shutil.copytree(PROGRAM[-1], folder / "tracing", ignore=ignored)
    return copy / "bcc", (*PROGRAM[:-1], str(copy))


def stand_in_bcc(copy: Path, text: str = "raise ImportError('no such library')\n") -> None:
    """Have a copy of the helper find this in place of bcc."""
    replace_in(copy / "helper" / "compiler.py", "from bcc import BPF", "from .bcc import BPF")
    (copy / "helper" / "bcc.py").write_text(text)


def needs_bcc(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a copy of the helper know no compiled programs: it has to compile them with bcc."""
    shutil.rmtree(copy / "compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(copy / "cache"))
    return copy


def replace_in(path: Path, old: str, new: str) -> None:
    """Damage a file; fails when it does not hold what is to be replaced."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


class Clock:
    """The real clock, which can be put forward."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def __call__(self) -> int:
        return time.monotonic_ns() + self._ahead_ns

    def forward(self, seconds: float) -> None:
        self._ahead_ns += int(seconds * NS_PER_S)


class Watch:
    """A collector, and everything it has said."""

    def __init__(self, collector: EbpfCollector) -> None:
        self.collector = collector
        self.last: Trace = collector.poll()
        self.readings: list[Reading] = list(self.last.readings)
        self.marks: list[Mark] = list(self.last.marks)
        self.stacks: list[Stack] = list(self.last.stacks)
        self.issues = {issue.code: issue.message for issue in self.last.issues}

    def poll(self) -> Trace:
        self.last = self.collector.poll()
        self.readings += self.last.readings
        self.marks += self.last.marks
        self.stacks += self.last.stacks
        self.issues |= {issue.code: issue.message for issue in self.last.issues}
        return self.last

    def until(self, condition: Callable[[Trace], object]) -> Trace:
        """The first poll that meets a condition."""
        assert eventually(lambda: condition(self.poll())), missing(self.last)
        return self.last

    def until_ready(self) -> Trace:
        return self.until(lambda trace: "ebpf" not in missing(trace) and not is_awaited(missing(trace)))

    def values(self, track: TrackId, name: str) -> list[float | None]:
        """All values of one series, gaps included."""
        return [one.value for one in self.readings if (one.track, one.metric.name) == (track, name)]

    def value(self, track: TrackId, name: str) -> float:
        """The last value of one series."""
        value = self.values(track, name)[-1]
        assert value is not None
        return value
