"""`llmtop report --format folded` and `speedscope`: stacks for flamegraph.pl, inferno, speedscope and what reads those.

The layouts are those of https://github.com/brendangregg/FlameGraph and
https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from llmtop import __version__
from llmtop.analysis.pages.taken_stacks import taken_stacks
from llmtop.analysis.threads.folded import folded_line
from llmtop.errors import FileError
from llmtop.model import Stack, Trace, Unknown
from llmtop.parsers.speedscope import SCHEMA, UNITS

_UNITS = {ours: theirs for theirs, (ours, scale) in UNITS.items() if scale == 1.0}


def report_stacks(trace: Trace, kind: str) -> Iterator[str]:
    """The stacks in one of the two formats.

    Raises:
        FileError: There are none, or the format cannot hold them.
    """
    stacks = taken_stacks(trace)
    if isinstance(stacks, Unknown):
        raise FileError(f"{trace.origin.path}: {stacks}")
    return _report_folded(trace, stacks) if kind == "folded" else _report_speedscope(trace, stacks)


def _report_folded(trace: Trace, stacks: Sequence[Stack]) -> Iterator[str]:
    """A stack a line from the root on, its thread first, and its weight; the file cannot tell units apart."""
    units = sorted({stack.unit for stack in stacks})
    if len(units) > 1:
        raise FileError(f"{trace.origin.path} has stacks in {', '.join(units)}: --format speedscope keeps them apart")
    return _folded(stacks, _threads(trace))


def _report_speedscope(trace: Trace, stacks: Sequence[Stack]) -> Iterator[str]:
    """A JSON document with a profile for each thread and unit."""
    profiles: dict[tuple[str, str], list[Stack]] = defaultdict(list)
    for stack in stacks:
        profiles[stack.track, stack.unit].append(stack)
    frames = {
        name: i for i, name in enumerate(dict.fromkeys(n for of in profiles.values() for s in of for n in s.frames))
    }
    threads = _threads(trace)
    document = {
        "$schema": SCHEMA,
        "exporter": f"llmtop@{__version__}",
        "name": trace.origin.path,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [
            _profile(threads.get(track, "all"), unit, stacks, frames) for (track, unit), stacks in profiles.items()
        ],
    }
    return iter((json.dumps(document, ensure_ascii=False), "\n"))


def _threads(trace: Trace) -> Mapping[str, str]:
    return {id: track.name for id, track in trace.tracks.items()}


def _folded(stacks: Iterable[Stack], threads: Mapping[str, str]) -> Iterator[str]:
    for stack in stacks:
        thread = [threads[stack.track]] if stack.track in threads else []
        yield folded_line((*thread, *stack.frames), stack.weight)


def _profile(name: str, unit: str, stacks: list[Stack], frames: Mapping[str, int]) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": name,
        "unit": _UNITS.get(unit, "none"),
        "startValue": 0,
        "endValue": sum(stack.weight for stack in stacks),
        "samples": [[frames[frame] for frame in stack.frames] for stack in stacks],
        "weights": [stack.weight for stack in stacks],
    }
