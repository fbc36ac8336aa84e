"""What a report holds of each kernel beyond the table, decoded when it is asked for."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from llmtop.errors import FileError
from llmtop.model import Instances, RuleResult, SectionTable, Unknown, Value
from llmtop.parsers.metric_units import unit_of
from llmtop.parsers.ncu_names import nvtx_range
from llmtop.parsers.ncu_rep import ncu_rep_pb2 as pb
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from llmtop.parsers.ncu_rep.container import Extent, ReportFile

_DECODED_KERNELS = 2
"""Kernels kept decoded: a kernel with per-instruction metrics takes tens of MB."""
_KNOWN_NUMBERS = 1 << 14
_LONGEST_NUMBER = 11
"""Bytes of the longest stored number: a tag and a varint of 64 bits."""
_DOUBLE = struct.Struct("<Bd")
_FLOAT64 = pb.Value.DESCRIPTOR.fields_by_name["float64"].number << 3 | 1
"""What stands before a double in a `Value`: the field's number, and wire type 1 (64 bits)."""
_SEVERITY_BY_TYPE = {2: "warning", 3: "error", 4: "optimization"}
"""Of messages of rules; all others are "ok"."""
_OF_ALL = 2
"""The type of a speedup of the whole program; others are of the kernel alone."""
CAPABILITY = ("device__attribute_compute_capability_major", "device__attribute_compute_capability_minor")
_LINK = re.compile(r"@(?:url|section|sass|source):([^@]*)@")


def text(raw: bytes) -> str:
    """Foreign bytes as safe text."""
    return clean(raw.rstrip(b"\0").decode(errors="replace"))


def value_of(value: pb.Value) -> Value | None:
    """The content of a value; None where there is none, or none that is a number (0/0 is stored as NaN)."""
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    if kind == "text":
        return text(value.text)
    number: float | int = getattr(value, kind)
    return number if math.isfinite(number) else None


def decode_kernel(file: ReportFile, extents: Sequence[Extent], i: int) -> pb.Launch:
    """Read kernel `i`.

    Raises:
        FileError: Its bytes are not a kernel.
    """
    try:
        return pb.Launch.FromString(file.read(extents[i]))
    except DecodeError as error:
        raise _not_a_kernel(file, extents, i) from error


def decode_values(file: ReportFile, extents: Sequence[Extent], names: Sequence[str], i: int) -> dict[str, Value]:
    """The values of kernel `i` by name, in the order of the report.

    Raises:
        FileError: Its bytes are not a kernel.
    """
    try:
        scalars = pb.Scalars.FromString(file.read(extents[i])).metrics
        stored = [(scalar.name, _VALUES[scalar.value]) for scalar in scalars]
    except DecodeError as error:
        raise _not_a_kernel(file, extents, i) from error
    known = len(names)
    return {names[name]: value for name, value in stored if value is not None and name < known}


class StoredValues(dict[bytes, "Value | None"]):
    """What the bytes of a `Value` hold, as `value_of`, without a protobuf object for each.

    Whole numbers and zeros are kept: they are much the same from kernel to kernel (limits of the device, sizes of the
    launch), and most of a report. Looking up bytes that are no `Value` raises `DecodeError`.
    """

    def __missing__(self, stored: bytes) -> Value | None:
        if len(stored) == _DOUBLE.size and stored[0] == _FLOAT64:
            number: float = _DOUBLE.unpack(stored)[1]
            if number:
                return number if math.isfinite(number) else None
        value = value_of(pb.Value.FromString(stored))
        if len(stored) <= _LONGEST_NUMBER and len(self) < _KNOWN_NUMBERS:
            self[stored] = value
        return value


_VALUES = StoredValues()


def _not_a_kernel(file: ReportFile, extents: Sequence[Extent], i: int) -> FileError:
    return FileError(
        f"{file.path} is corrupted: kernel {i + 1} of {len(extents)}, at byte {extents[i].offset}, does not"
        " decode; copy it again"
    )


class ReportDetails:
    """Implements `llmtop.model.KernelDetails` over an open report.

    Args:
        file: The report; kept open.
        kernels: Where each row's message lies.
        names: The metric names, by the index that messages use.
        ranges: Of each kernel, as `launch_ranges` tells.
    """

    def __init__(
        self, file: ReportFile, kernels: Sequence[Extent], names: Sequence[str], ranges: Sequence[tuple[str, ...]]
    ) -> None:
        self._ranges = ranges
        self._id_by_name = {name: i for i, name in enumerate(names)}
        # A cache of a method would tie this object, and with it the open file, into a reference cycle.
        self._launch = lru_cache(_DECODED_KERNELS)(partial(decode_kernel, file, kernels))
        self._metric_by_id = lru_cache(_DECODED_KERNELS)(partial(_metrics_of, self._launch))
        self._values = lru_cache(_DECODED_KERNELS)(partial(decode_values, file, kernels, names))

    def metrics(self, i: int) -> Mapping[str, Value]:
        return self._values(i)

    def unit(self, metric: str) -> str:
        return unit_of(metric)

    def instances(self, i: int, metric: str) -> Instances | Unknown:
        wanted = self._id_by_name.get(metric)
        found = None if wanted is None else self._metric_by_id(i).get(wanted)
        if found is None:
            return Unknown(f"{metric} was not collected", f"add --metrics {metric}")
        return _instances(found) or Unknown(f"{metric} was not collected per instance")

    def rules(self, i: int) -> tuple[RuleResult, ...]:
        # A rule that found nothing is stored without a body.
        return tuple(_rule(rule) for rule in self._launch(i).rules if rule.body.items)

    def ranges(self, i: int) -> tuple[str, ...]:
        return self._ranges[i]

    def sections(self, i: int) -> tuple[str, ...]:
        return tuple(text(section.id) for section in self._launch(i).sections)

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        from llmtop.parsers.ncu_rep.section_bodies import CollectedMetrics, charts_of

        chosen = CollectedMetrics(partial(self._has, i), self._compute_capability(i))
        ranked = sorted(self._launch(i).sections, key=lambda section: section.order)
        return tuple(
            SectionTable(
                text(section.id),
                text(section.title),
                chosen.cells(section.header.cells),
                tuple(charts_of(section.bodies, chosen)),
            )
            for section in ranked
        )

    def _has(self, i: int, metric: str) -> bool:
        """Whether kernel i has values of a metric, whether one or many."""
        return self._id_by_name.get(metric, -1) in self._metric_by_id(i)

    def _compute_capability(self, i: int) -> int:
        """10 x major + minor; 0 where the report does not tell."""
        major, minor = (self.metrics(i).get(name, 0) for name in CAPABILITY)
        return 0 if isinstance(major, str) or isinstance(minor, str) else int(10 * major + minor)


def _metrics_of(launch: Callable[[int], pb.Launch], i: int) -> dict[int, pb.Metric]:
    """A kernel's metrics by the index of their names; of one that is there twice the first counts."""
    return {metric.name: metric for metric in reversed(launch(i).metrics)}


def _instances(metric: pb.Metric) -> Instances | None:
    """The values of a metric by key; those that are not numbers are left out with their keys."""
    pairs = [
        (value_of(item.key) if item.HasField("key") else None, value)
        for item in metric.instances
        if (value := value_of(item.value)) is not None
    ]
    if not pairs:
        return None
    keys = tuple(key for key, _ in pairs if key is not None)
    # Keys are all there or not at all; a part of them would pair up with the wrong values.
    return Instances(keys if len(keys) == len(pairs) else (), tuple(value for _, value in pairs))


def launch_ranges(launch: pb.Launch) -> tuple[str, ...]:
    """The NVTX ranges that were open at a launch, the outermost first."""
    if not launch.HasField("nvtx"):
        return ()
    domains = {domain.id: text(domain.name) for domain in launch.nvtx.domains}
    pushed = [stack for thread in launch.nvtx.threads if thread.id == launch.thread_id for stack in thread.stacks]
    # Started ranges belong to the process, so they are around what a thread has pushed.
    groups: tuple[pb.NvtxStarted | pb.NvtxStack, ...] = (*launch.nvtx.started, *pushed)
    return tuple(
        nvtx_range(domains.get(group.domain, ""), text(item.name)) for group in groups for item in group.ranges
    )


def _rule(rule: pb.Rule) -> RuleResult:
    """A rule's result, its message's links reduced to their text."""
    items = rule.body.items
    spoken = [item.message for item in items if item.message.text]
    return RuleResult(
        id=text(rule.id),
        name=text(rule.name),
        section=text(rule.section),
        messages=tuple(
            (_SEVERITY_BY_TYPE.get(message.type, "ok"), plain_message(message.text.decode(errors="replace")))
            for message in spoken
        ),
        speedups=tuple(
            ("global" if item.speedup.type == _OF_ALL else "local", item.speedup.percent)
            for item in items
            if item.HasField("speedup") and math.isfinite(item.speedup.percent)
        ),
        focus=tuple(
            (text(focus.metric), focus.value) for item in items for focus in item.focus if math.isfinite(focus.value)
        ),
        titles=tuple(text(message.title) for message in spoken),
    )


def plain_message(message: str) -> str:
    """A rule's message as one line, without its link markup.

    >>> plain_message("See the @section:SourceCounters:Source Counters@ section.")
    'See the Source Counters section.'
    >>> plain_message("the @url:guide:https://example.com/a:b@ has more")
    'the guide has more'
    """
    return clean(_LINK.sub(_link_text, " ".join(message.split())))


def _link_text(match: re.Match[str]) -> str:
    """What a link shows: urls come as text:target, the others as target:text."""
    first, _, rest = match[1].partition(":")
    return first if match[0].startswith("@url:") or not rest else rest
