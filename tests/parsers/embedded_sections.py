"""The charts that a report's own sections describe, with the report's own values: NVIDIA's arithmetic, not ours.

Each section of a .ncu-rep holds what the profiler's section file says of it. Charts are not in our .proto, so they are
read from the bytes (ProfilerSection.proto, as the customization guide of Nsight Compute 2025.3 describes it).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmtop.model import Value
from llmtop.parsers.ncu_rep import MAGIC
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import BlockHeader, Launch, Section
from tests.parsers.sample_reports import content

_BODY, _ITEM, _ROOFLINE = 5, 1, 6
_ROOF, _ACHIEVED = 4, 5
_WORK, _TRAFFIC, _OPTIONS = 1, 2, 3
_METRIC, _PER_CYCLE = 2, 3
_OTHERS = 7


class Message(dict[int, list[bytes]]):
    """The fields of a message that have a length, by their numbers."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        at = 0
        while at < len(data):
            key, at = _varint(data, at)
            if key & 7 == 2:
                size, at = _varint(data, at)
                self.setdefault(key >> 3, []).append(data[at : at + size])
                at += size
            else:
                at = at + {1: 8, 5: 4}[key & 7] if key & 7 else _varint(data, at)[1]

    def all(self, field: int) -> list[Message]:
        """The messages of a field."""
        return [Message(one) for one in self.get(field, [])]

    def text(self, field: int) -> str:
        """The text of a field; empty where it has none."""
        return self[field][0].decode() if field in self else ""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def stored_launches(path: Path) -> Iterator[Launch]:
    """The launches of a report, as they are stored."""
    data, at = content(path), len(MAGIC)
    _, at = _sized(data, at)
    while at < len(data):
        head, at = _sized(data, at)
        header = BlockHeader.FromString(head)
        for part in range(header.num_sources + header.num_results):
            body, at = _sized(data, at)
            if part >= header.num_sources:
                yield Launch.FromString(body)


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 4 + int.from_bytes(data[at : at + 4], "little")
    return data[at + 4 : end], end


@dataclass(frozen=True)
class Chart:
    """A roofline chart: by their labels (work, traffic) of peaks and of what was achieved, in FLOP/s and bytes/s."""

    title: str
    peaks: Mapping[str, tuple[float, float]]
    achieved: Mapping[str, tuple[float, float]]


def charts(section: Section, metrics: Mapping[str, Value]) -> Iterator[Chart]:
    """The roofline charts of a section; points of which the report lacks a metric are left out."""
    for body in Message(section.SerializeToString()).all(_BODY):
        for item in body.all(_ITEM):
            for chart in item.all(_ROOFLINE):
                yield Chart(chart.text(1), _points(chart, _ROOF, metrics), _points(chart, _ACHIEVED, metrics))


def _points(chart: Message, kind: int, metrics: Mapping[str, Value]) -> dict[str, tuple[float, float]]:
    found = {}
    for one in chart.all(kind):
        work, traffic = (_value(one.all(side)[0], metrics) for side in (_WORK, _TRAFFIC))
        if not math.isnan(work + traffic):
            found[one.all(_OPTIONS)[0].text(1)] = work, traffic
    return found


def _value(side: Message, metrics: Mapping[str, Value]) -> float:
    """A metric, or the sum of some per cycle times a clock."""
    if plain := side.all(_METRIC):
        return _metric(plain[0], metrics)
    (per_cycle,) = side.all(_PER_CYCLE)
    return sum(_metric(one, metrics) for one in per_cycle.all(1)) * _metric(per_cycle.all(2)[0], metrics)


def _metric(metric: Message, metrics: Mapping[str, Value]) -> float:
    """Of the names that it has on several chips the first that this report has; NaN without one."""
    names = [metric.text(1), *(other.text(1) for other in metric.all(_OTHERS))]
    return next((float(value) for name in names if isinstance(value := metrics.get(name), int | float)), math.nan)
