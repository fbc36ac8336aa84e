"""What the tests of the collector share: polling until something is so, and helpers that fail in a known way."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.probes.collector import PROGRAM, EbpfCollector
from llmtop.model import NS_PER_S, Mark, Reading, Stack, Trace, TrackId
from tests.collectors.tracing.probes import eventually


def missing(trace: Trace) -> dict[str, str]:
    return {one.what: str(one.why) for one in trace.missing}


def damaged_helper(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the helper's files, to be damaged, which is run in its place from now on."""
    copy, program = a_copy(folder)
    monkeypatch.setattr(EbpfCollector, "program", program)
    return copy


def a_copy(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A copy of the files of the probes' helper, to be damaged, and the command that runs it."""
    ignored = shutil.ignore_patterns("__pycache__", "perf")
    copy = shutil.copytree(PROGRAM[-1], folder / "tracing", ignore=ignored)
    return copy / "probes", (*PROGRAM[:-1], str(copy))


def change_programs(copy: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Damage the bytecode of a program in a copy, in all its variants."""
    paths = list((copy / "compiled").glob(f"*/{name}*.json"))
    assert paths
    for path in paths:
        unit = json.loads(path.read_text())
        change(unit)
        path.write_text(json.dumps(unit))


def with_room(table: str, entries: int) -> Callable[[dict[str, Any]], None]:
    """A change that leaves a table room for so few."""

    def change(unit: dict[str, Any]) -> None:
        unit["maps"][table][3] = entries

    return change


def refused(*functions: str) -> Callable[[dict[str, Any]], None]:
    """A change that the kernel refuses: a function ends with a result that was never set."""

    def change(unit: dict[str, Any]) -> None:
        for name in functions:
            unit["functions"][name] = {"code": "9500000000000000", "maps": [], "numbers": [], "fields": []}

    return change


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
        return self.until(lambda trace: "ebpf" not in missing(trace))

    def values(self, track: TrackId, name: str) -> list[float | None]:
        """All values of one series, gaps included."""
        return [one.value for one in self.readings if (one.track, one.metric.name) == (track, name)]

    def value(self, track: TrackId, name: str) -> float:
        """The last value of one series."""
        value = self.values(track, name)[-1]
        assert value is not None
        return value
