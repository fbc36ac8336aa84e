"""speedscope's own format: profiles of one thread each, over one table of frames.

A profile is "sampled" (stacks with a weight each) or "evented" (frames that open and close). Written by py-spy
(`--format speedscope`), rbspy, dotnet-trace, and speedscope itself for all that it reads; read here as its schema says
(https://www.speedscope.app/file-format-schema.json).
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.model import Issue, Missing, Origin, Severity, Trace, Unknown
from llmtop.parsers.base import Content
from llmtop.parsers.stack_sums import StackSums, placed
from llmtop.text import clean, redact
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from llmtop.model import TrackId
    from llmtop.parsers.base import Parser

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
UNITS: Final = {
    "nanoseconds": ("ns", 1.0),
    "microseconds": ("ns", 1e3),
    "milliseconds": ("ns", 1e6),
    "seconds": ("ns", 1e9),
    "bytes": ("bytes", 1.0),
    "none": ("samples", 1.0),
}
"""Its units in ours."""
_LARGEST = 1 << 30
"""Bytes that are read at once: as objects they take several times as much."""
_PROFILE_THREAD = re.compile(r"\s*(?:Process (\d{1,10}) )?Thread (?:0x[0-9a-fA-F]+|(\d{1,10}))")
"""How py-spy names a profile."""


class SpeedscopeParser:
    """Files of speedscope's own format, whoever wrote them."""

    name = "speedscope"
    title = "speedscope profiles"
    written_by = "`py-spy record --format speedscope`, speedscope's export, `llmtop report --format speedscope`"
    extensions: tuple[str, ...] = (".speedscope.json",)
    holds = frozenset({Content.STACKS})

    def sniff(self, head: bytes, path: Path) -> bool:
        """Its schema, or its keys where that stands at the end."""
        return head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{") and (
            SCHEMA.encode() in head or (b'"shared"' in head and b'"frames"' in head)
        )

    def parse(self, path: Path) -> Trace:
        """Sum the stacks of all profiles up, each thread apart.

        Raises:
            FileError: It is no such profile, it was cut short, or no stack in it has weight.
        """
        profiles = _Profiles(_document(path))
        stacks = profiles.sums.stacks()
        if not stacks:
            raise FileError(f"{path} holds no stacks with weight: nothing was sampled; record it again")
        return Trace(
            Origin(self.name, str(path), facts={"written by": profiles.exporter} if profiles.exporter else {}),
            tracks=profiles.sums.tracks,
            stacks=stacks,
            issues=tuple(profiles.issues()),
            missing=(Missing(whats.KERNELS, Unknown("a speedscope profile tells of functions on CPUs alone")),),
        )


PARSER: Final[Parser] = SpeedscopeParser()


def _document(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise FileError(f"{path} has {binary_bytes(size)}; profiles are read to {binary_bytes(_LARGEST)}")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is no whole JSON: it was cut short or damaged ({error}); export it again") from error
    if not isinstance(document, dict) or not isinstance(document.get("profiles"), list):
        raise FileError(f"{path} is no speedscope profile: it has no list profiles; export it again")
    return document


class _Profiles:
    """The stacks of all profiles of a file; what is not as it should be is counted, and costs only itself."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.sums = StackSums()
        self.exporter = clean(str(document.get("exporter") or ""))
        self._damaged = 0
        shared = document.get("shared")
        frames = shared.get("frames") if isinstance(shared, dict) else None
        self._frames = [_frame_name(one) for one in frames] if isinstance(frames, list) else []
        for number, profile in enumerate(document["profiles"]):
            if isinstance(profile, dict):
                self._add(profile, number)
            else:
                self._damaged += 1

    def issues(self) -> Iterator[Issue]:
        """What was left out."""
        if self._damaged:
            message = "samples or events are not as the format has them: left out"
            yield Issue(Severity.WARNING, "rows-skipped", message, self._damaged)

    def _add(self, profile: dict[str, Any], number: int) -> None:
        unit, scale = UNITS.get(str(profile.get("unit")), UNITS["none"])
        track = self._thread(redact(str(profile.get("name") or "")), number)
        weighed = _sampled(profile) if profile.get("type") == "sampled" else _evented(profile)
        for stack, weight in weighed:
            frames = self._named(stack)
            if frames is None or not 0.0 <= weight * scale < math.inf:
                self._damaged += 1
            elif frames:
                self.sums.add(track, frames, weight * scale, unit)

    def _thread(self, name: str, number: int) -> TrackId:
        """The thread of a profile; where its name does not tell which, profiles are numbered."""
        found = _PROFILE_THREAD.match(name)
        pid, tid = (int(found[1] or found[2] or 0), int(found[2] or number)) if found else (0, number)
        return self.sums.thread(name, pid, tid)

    def _named(self, stack: Sequence[Any]) -> list[str] | None:
        """The names of a stack; None where one of its frames is not in the table."""
        known = range(len(self._frames))
        return [self._frames[i] for i in stack] if all(type(i) is int and i in known for i in stack) else None


def _frame_name(frame: Any) -> str:
    return placed(frame.get("name"), frame.get("file"), frame.get("line")) if isinstance(frame, dict) else ""


def _numbers(values: object) -> list[float]:
    return (
        [float(one) if isinstance(one, int | float) else math.nan for one in values] if isinstance(values, list) else []
    )


def _sampled(profile: dict[str, Any]) -> Iterator[tuple[Sequence[Any], float]]:
    samples, weights = profile.get("samples"), _numbers(profile.get("weights"))
    for i, stack in enumerate(samples if isinstance(samples, list) else ()):
        yield (stack if isinstance(stack, list) else (None,)), (weights[i] if i < len(weights) else 1.0)


def _evented(profile: dict[str, Any]) -> Iterator[tuple[Sequence[Any], float]]:
    """The time from each event to the next, for what was open meanwhile."""
    events = profile.get("events")
    stack: list[Any] = []
    last = math.nan
    for event in events if isinstance(events, list) else ():
        (at,) = _numbers([event.get("at") if isinstance(event, dict) else None])
        if stack and at != last:
            yield tuple(stack), at - last
        last = at
        if isinstance(event, dict) and event.get("type") == "O":
            stack.append(event.get("frame"))
        elif stack:
            stack.pop()
