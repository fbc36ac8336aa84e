"""From a report to a `Trace`: the kernel table now, everything behind it later (`details`)."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from llmtop import whats
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.model import Issue, KernelTable, Missing, Origin, Severity, Trace, Unknown, UnknownKind
from llmtop.parsers.ncu_rep import ncu_rep_pb2 as pb
from llmtop.parsers.ncu_rep.codes import ReportCodes
from llmtop.parsers.ncu_rep.container import Extent, ReportFile, read_blocks
from llmtop.parsers.ncu_rep.details import CAPABILITY, ReportDetails, decode_kernel, launch_ranges, text, value_of
from llmtop.remedies import TIMELINE
from llmtop.text import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from llmtop.model import Fact

KIND = "ncu-rep"
_DURATIONS = ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max")
"""The first that was collected is a kernel's duration: there is one GPU, so the roll-ups agree. Nanoseconds."""
_DEVICES = ("launch__device_id", "device__attribute_device_index")
_MAX_DEVICES = 1 << 16
"""More than any machine has: an index past it is damage."""
_PLACES = 8
"""Places of a metric that are kept: a report has a few kinds of kernels, each with a list of its own."""
_TOOL = "Nsight Compute Target"


@dataclass(slots=True)
class _Contents:
    """What the block headers of a report say."""

    session: pb.Session = field(default_factory=pb.Session)
    processes: dict[int, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    sources: list[Extent] = field(default_factory=list)
    kernels: list[Extent] = field(default_factory=list)
    others: int = 0


class _MetricFinder:
    """Finds one metric in kernel after kernel, looking first where it was before: the lists are mostly alike."""

    def __init__(self, names: Sequence[str], wanted: Sequence[str]) -> None:
        self._ids = [i for name in wanted for i, known in enumerate(names) if known == name]
        self._places: list[int] = []

    def __call__(self, launch: pb.Launch) -> float | None:
        """The metric's number; None when the kernel does not have it."""
        metrics = launch.metrics
        for place in self._places:
            if place < len(metrics) and metrics[place].name == self._ids[0]:
                return _number(metrics[place])
        collected = [metric.name for metric in metrics] if self._ids else []
        for wanted in self._ids:
            if wanted in collected:
                place = collected.index(wanted)
                self._places = [place, *self._places[: _PLACES - 1]]
                return _number(metrics[place])
        return None


def _number(metric: pb.Metric) -> float | None:
    value = value_of(metric.value)
    return None if isinstance(value, str) else value


class _Columns:
    """The kernel table while it grows."""

    def __init__(self, contents: _Contents) -> None:
        devices = contents.session.devices
        # Where there is one GPU, no kernel has to be asked for it.
        self._only_device = devices[0].index if len(devices) == 1 else None
        self._duration = _MetricFinder(contents.names, _DURATIONS)
        self._device = _MetricFinder(contents.names, _DEVICES)
        self._capability = [_MetricFinder(contents.names, (name,)) for name in CAPABILITY]
        self.capabilities: dict[int, str] = {}
        """Of each device that ran a kernel, by its index."""
        self.id_by_name: dict[str, int] = {}
        self.functions: list[str] = []
        self.name_id = array("q")
        self.grid = (array("q"), array("q"), array("q"))
        self.block = (array("q"), array("q"), array("q"))
        self.duration_ns = array("d")
        self.device = array("q")
        self.stream = array("q")
        self.ranges: list[tuple[str, ...]] = []

    def add(self, launch: pb.Launch) -> None:
        """Append a kernel."""
        self.name_id.append(self._name(launch))
        for columns, has, size in (
            (self.grid, launch.HasField("grid"), launch.grid),
            (self.block, launch.HasField("block"), launch.block),
        ):
            for column, length in zip(columns, (size.x, size.y, size.z), strict=True):
                column.append(length if has else -1)
        duration = self._duration(launch)
        self.duration_ns.append(math.nan if duration is None else duration)
        device = self._device(launch) if self._only_device is None else self._only_device
        self.device.append(int(device) if device is not None and 0 <= device < _MAX_DEVICES else -1)
        if self.device[-1] not in self.capabilities:
            major, minor = (find(launch) for find in self._capability)
            is_told = major is not None and minor is not None
            self.capabilities[self.device[-1]] = f"{major:.0f}.{minor:.0f}" if is_told else ""
        self.stream.append(launch.stream if launch.HasField("stream") else -1)
        self.ranges.append(launch_ranges(launch))

    def _name(self, launch: pb.Launch) -> int:
        """The index of the kernel's name, made when it is new."""
        name = text(launch.demangled or launch.mangled or launch.function) or "(unnamed kernel)"
        if name not in self.id_by_name:
            self.id_by_name[name] = len(self.functions)
            self.functions.append(text(launch.function) or name)
        return self.id_by_name[name]

    def table(self, details: ReportDetails, codes: ReportCodes) -> KernelTable:
        """The finished table."""
        return KernelTable(
            names=tuple(self.id_by_name),
            functions=tuple(self.functions),
            name_id=self.name_id,
            grid=self.grid,
            block=self.block,
            start_ns=array("q", [-1]) * len(self.name_id),
            duration_ns=self.duration_ns,
            device=self.device,
            stream=self.stream,
            details=details,
            codes=codes,
        )


def read_report(path: Path) -> Trace:
    """Read a report. Every kernel is decoded once, so that damage shows now and not when a row is opened.

    Raises:
        FileError: The file is truncated or corrupted, or holds nothing that llmtop shows.
    """
    try:
        file = ReportFile(path)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    contents = _contents(file)
    if not contents.kernels:
        raise FileError(_why_empty(path, contents))
    columns = _Columns(contents)
    for i in range(len(contents.kernels)):
        columns.add(decode_kernel(file, contents.kernels, i))
    kernels = columns.table(
        ReportDetails(file, contents.kernels, contents.names, columns.ranges),
        ReportCodes(file, contents.kernels, contents.sources, contents.names, has_others=contents.others > 0),
    )
    return Trace(
        origin=_origin(path, contents, kernels, columns.capabilities.values()),
        kernels=kernels,
        issues=_issues(contents),
        missing=_missing(kernels),
    )


def _contents(file: ReportFile) -> _Contents:
    """Gather what the headers of all blocks say. Session facts and metric names accumulate over blocks."""
    contents = _Contents()
    for block in read_blocks(file):
        header = block.header
        contents.session.MergeFrom(header.session)
        contents.names.extend(text(name) for name in header.strings.items)
        if header.HasField("process"):
            contents.processes[header.process.id] = text(header.process.name)
        contents.sources.extend(block.sources)
        contents.kernels.extend(block.kernels)
        contents.others += block.others
    return contents


def _why_empty(path: Path, contents: _Contents) -> str:
    """Why a well-formed report has no kernels to show."""
    if contents.others:
        return (
            f"{path} holds {contents.others} range or graph results and no kernels; llmtop shows kernels: capture with"
            " --replay-mode kernel"
        )
    return f"{path} holds no kernels: none ran, or the filters of ncu matched none; capture again without --kernel-name"


def _issues(contents: _Contents) -> tuple[Issue, ...]:
    """What of the report is left out."""
    if not contents.others:
        return ()
    message = "range, command list or graph results are not shown: llmtop reads kernels"
    return (Issue(Severity.WARNING, "ncu-rep.other-results", message, contents.others),)


def _missing(kernels: KernelTable) -> tuple[Missing, ...]:
    """What no report, or not this one, has."""
    timeline = Unknown("Nsight Compute runs kernels one by one, so a report has no timeline", TIMELINE)
    missing = [Missing(whats.TIMELINE, timeline)]
    if lacking := sum(1 for duration in kernels.duration_ns if math.isnan(duration)):
        reason = f"{lacking} of {len(kernels)} kernels have no value of {_DURATIONS[0]}"
        why = Unknown(reason, "add --section SpeedOfLight", UnknownKind.NOT_COUNTED)
        missing.append(Missing(whats.told(_DURATIONS[0]), why))
    return tuple(missing)


def _origin(path: Path, contents: _Contents, kernels: KernelTable, capabilities: Iterable[str]) -> Origin:
    """The session: which tool, which GPU, which command."""
    listed_once = ", ".join(dict.fromkeys(filter(None, capabilities)))
    versions = {text(version.what): text(version.version) for version in contents.session.versions}
    return Origin(
        kind=KIND,
        path=str(path),
        tool_version=versions.get(_TOOL, ""),
        gpu=_gpu_names(contents.session, kernels),
        facts=_facts(contents, {**versions, OriginFact.COMPUTE_CAPABILITY: listed_once}),
    )


def _gpu_names(session: pb.Session, kernels: KernelTable) -> str:
    """The GPUs that ran kernels; all of the session's where kernels do not say."""
    used = set(kernels.device)
    names = Counter(text(gpu.name) for gpu in session.devices if gpu.index in used or used == {-1})
    return ", ".join(f"{count}x {name}" if count > 1 else name for name, count in names.items())


def _facts(contents: _Contents, versions: Mapping[str, str]) -> dict[str, Fact]:
    """Session facts for people; those that the file does not have are left out, secrets are hidden."""
    session = contents.session
    target = session.target if session.HasField("target") else session.host
    processes = ", ".join(f"{name} ({pid})" for pid, name in contents.processes.items() if name)
    facts: dict[str, Fact] = {
        OriginFact.COMMAND: redact(text(session.command_line)),
        "processes": redact(processes),
        "captured": _moment(session.created_s),
        "host": text(target.name),
        "os": " ".join(filter(None, (text(target.os), text(target.os_version)))),
        "cpu": text(target.cpu),
        **versions,
    }
    return {name: value for name, value in facts.items() if value}


def _moment(epoch_s: int) -> str:
    """A time as ISO 8601 in UTC; empty where there is none."""
    try:
        return datetime.fromtimestamp(epoch_s, UTC).isoformat() if epoch_s else ""
    except (OverflowError, ValueError, OSError):
        return ""
