"""Traces of PyTorch's profiler (Kineto), and spans of other tools that write Chrome's trace format as JSON.

`torch.profiler.profile(...).export_chrome_trace("trace.json.gz")`, vLLM's and SGLang's `/start_profile`, and what
Perfetto and Chrome open. Times become nanoseconds since the first event.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from llmtop import remedies, whats
from llmtop.errors import FileError, ForeignFileError
from llmtop.facts import AMD, GpuFact, OriginFact
from llmtop.lazy import LazySequence
from llmtop.model import KINETO, Fact, Issue, Missing, Origin, Severity, SpanKind, Trace, Unknown
from llmtop.parsers.allocations import ODD_RELEASES
from llmtop.parsers.base import Content
from llmtop.parsers.kineto_json import EventColumns, EventReader
from llmtop.parsers.kineto_spans import EventSorter
from llmtop.parsers.kineto_stacks import FOLDED, folded
from llmtop.parsers.kineto_tables import Gpu, Tables
from llmtop.parsers.progress import tell
from llmtop.text import clean
from llmtop.units import count, duration

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.parsers.base import Parser

_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*[\"}]|\[\s*[{\]])")
_FLAGS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_VERSION_KEYS = ("torch_version", "pytorch_version", "PT_version", "torch")
_OF_ROCM = ("hip_", "roctracer_", "rocprofiler_")
"""Begin the names of the versions of what AMD's GPUs are driven by."""
_AMD_WARP = 64
"""Threads of a wavefront of AMD's Instinct; a warp of NVIDIA's has 32."""
_DEEP = 3
_MOST_RANKS = 1 << 20
_EPOCH_NS = 10**18
"""Later than 2001: times of the clock on the wall, not since a machine was started."""


class KinetoParser:
    """Reads PyTorch traces, whole or not, and Chrome's trace format in JSON."""

    name = KINETO
    title = "PyTorch (Kineto) and Chrome traces"
    written_by = "`torch.profiler`, vLLM and SGLang `/start_profile`; Perfetto's and other tools' JSON"
    extensions: tuple[str, ...] = (".pt.trace.json", ".json")
    holds = frozenset({Content.KERNELS, Content.TIMELINE, Content.STACKS, Content.GPU})
    reads_cut = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """Any JSON of an object, or of a list of them: whether it is a trace is known only when it is read."""
        return _JSON.match(head) is not None

    def parse(self, path: Path) -> Trace:
        """Read all events that are whole.

        Raises:
            FileError: It is JSON of something else, no event of it can be read, or nobody waits for it any more.
        """
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                reader, events = EventReader(file, lambda done: tell(path, "reading", done, size)), EventSorter()
                events.take(reader)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from error
        if not reader.found:
            fault = ForeignFileError if _is_whole(path) else FileError
            raise fault(f"{path} is {_what_else(reader.facts)}")
        tables = Tables(events, _gpus(reader.facts, _vendor(reader.facts)))
        if not (tables.spans or tables.series):
            raise FileError(f"{path} holds no events: {_why_none(reader)}")
        return Trace(
            origin=_origin(path, reader.facts, events, tables),
            start_ns=tables.start_ns,
            end_ns=tables.end_ns,
            tracks=tables.tracks,
            series=tables.series,
            spans=tables.spans,
            more_spans=tables.more_spans,
            stacks=LazySequence(partial(folded, tables.spans)) if FOLDED & tables.spans.keys() else (),
            kernels=tables.kernels,
            issues=tuple(_issues(reader, events, tables)),
            missing=tuple(_missing(events, tables, _vendor(reader.facts), is_whole=reader.left_bytes is None)),
        )


PARSER: Final[Parser] = KinetoParser()


def has_events(path: Path) -> bool:
    """Whether JSON that is not packed has any event of a trace; of a large file its beginning tells.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        first = next(iter(EventReader(file, lambda _: None)), None)
    return isinstance(first, EventColumns) or (first is not None and "ph" in first)


_END = 64
"""Bytes at the end of a file that are looked at."""


def _what_else(facts: Mapping[str, Any]) -> str:
    """What JSON without a list of events is, and how to go on."""
    if "nodes" in facts and "schema" in facts:
        return (
            "a PyTorch execution trace, which has operators without times; open the profile of the same run: "
            "prof.export_chrome_trace()"
        )
    return "JSON, but no trace: it has no list traceEvents; write one with prof.export_chrome_trace()"


def _is_whole(path: Path) -> bool:
    """Whether JSON ends as it may: what was cut may have been a trace."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END))
        return file.read().rstrip().endswith((b"}", b"]"))


def _why_none(reader: EventReader) -> str:
    if reader.broken or reader.left_bytes:
        return "what there is of them is cut or damaged; copy the file again"
    return "nothing was recorded while the profiler ran, or it is JSON of something else"


def _vendor(facts: Mapping[str, Any]) -> str:
    """Whose GPUs the file says that they are, where not NVIDIA's: warps of 64, a name of AMD, the versions of ROCm."""
    is_named = any(str(one.get("name", "")).startswith("AMD") for one in _devices(facts))
    is_wide = any(one.get("warpSize") == _AMD_WARP for one in _devices(facts))
    return AMD if is_named or is_wide or any(key.startswith(_OF_ROCM) for key in facts) else ""


def _devices(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    properties = facts.get("deviceProperties")
    return [one for one in properties if isinstance(one, dict)] if isinstance(properties, list) else []


def _gpus(facts: Mapping[str, Any], vendor: str) -> dict[int, Gpu]:
    """What the file says of GPUs, by their index."""
    gpus = {}
    for one in _devices(facts):
        if isinstance(one.get("id"), int):
            told = {GpuFact.SM_COUNT: one.get("numSms"), GpuFact.MEMORY_TOTAL: one.get("totalGlobalMem")}
            known: dict[str, Fact] = {key: value for key, value in told.items() if isinstance(value, int) and value > 0}
            if not vendor and all(isinstance(one.get(name), int) for name in ("computeMajor", "computeMinor")):
                known[GpuFact.COMPUTE_CAPABILITY] = f"{one['computeMajor']}.{one['computeMinor']}"
            unnamed = _unnamed(vendor, known.get(GpuFact.SM_COUNT))
            gpus[one["id"]] = Gpu(clean(str(one.get("name", "")).strip()) or unnamed, known)
    return gpus


def _unnamed(vendor: str, units: Fact | None) -> str:
    """What to call a GPU that the file has no name of; nothing where it does not say whose it is."""
    if not vendor:
        return ""
    return f"{vendor} GPU with {units} compute units" if units else f"{vendor} GPU"


def _origin(path: Path, facts: Mapping[str, Any], events: EventSorter, tables: Tables) -> Origin:
    rank, ranks = _rank(facts)
    return Origin(
        kind=KinetoParser.name,
        path=str(path),
        tool_version=_torch_version(facts, _DEEP),
        gpu=_gpu_models(facts, tables),
        facts={name: fact for name, fact in _facts(facts, events, tables) if fact},
        utc_ns=_began(facts, tables.zero_ns),
        rank=rank,
        ranks=ranks,
        range_term="annotation",
    )


def _rank(facts: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The rank in its group of processes, and how many these are."""
    group = facts.get("distributedInfo")
    told = (group.get("rank"), group.get("world_size")) if isinstance(group, dict) else (None, None)
    rank, ranks = (number if isinstance(number, int) and 0 <= number < _MOST_RANKS else None for number in told)
    return rank, ranks


def _began(facts: Mapping[str, Any], zero_ns: int) -> int | None:
    """When the first event was, in UTC; None where the file's clock is not that on the wall."""
    base = facts.get("baseTimeNanoseconds")
    at_ns = zero_ns + (base if isinstance(base, int) else 0)
    return at_ns if _EPOCH_NS < at_ns < 4 * _EPOCH_NS else None


def _gpu_models(facts: Mapping[str, Any], tables: Tables) -> str:
    """The models of the GPUs that worked; of those that there are where none did."""
    gpus = _gpus(facts, _vendor(facts))
    at_work = dict.fromkeys(tables.kernels.device)
    names = Counter(gpu.name for index, gpu in gpus.items() if gpu.name and (index in at_work or not at_work))
    return ", ".join(name if number == 1 else f"{number}x {name}" for name, number in names.items())


def _torch_version(facts: Mapping[str, Any], deep: int) -> str:
    """PyTorch's version, which some programs add to the file under one name or another."""
    for key in _VERSION_KEYS:
        if isinstance(version := facts.get(key), str) and version[:1].isdigit():
            return clean(version)
    below = (one for one in facts.values() if isinstance(one, dict)) if deep else ()
    return next((version for one in below if (version := _torch_version(one, deep - 1))), "")


def _facts(facts: Mapping[str, Any], events: EventSorter, tables: Tables) -> Iterator[tuple[str, str]]:
    """What is worth showing of the file."""
    group = facts.get("distributedInfo")
    group = group if isinstance(group, dict) else {}
    rank, ranks = _rank(facts)
    if rank is not None:
        yield "rank", str(rank) if ranks is None else f"{rank} of {ranks}"
    yield "backend", _plain(group.get("backend"))
    yield "NCCL", _plain(group.get("nccl_version"))
    yield "recorded with", ", ".join(flag for flag in _FLAGS if facts.get(flag) in (1, True))
    for key, title in (("cuda_runtime_version", "CUDA runtime"), ("cuda_driver_version", "CUDA driver")):
        yield title, _cuda_version(facts.get(key))
    yield OriginFact.GPU_VENDOR, _vendor(facts)
    yield "HIP runtime", _hip_version(facts.get("hip_runtime_version"))
    yield "recorded", duration(events.recorded_ns) if events.recorded_ns else ""
    yield "first event", _moment(facts, tables.zero_ns)
    yield "times", "to the nanosecond" if events.has_fractions else "whole microseconds"


def _plain(value: object) -> str:
    return clean(str(value)) if isinstance(value, str | int) else ""


def _cuda_version(number: object) -> str:
    """As people write it.

    >>> _cuda_version(12040), _cuda_version(None)
    ('12.4', '')
    """
    return f"{number // 1000}.{number % 1000 // 10}" if isinstance(number, int) and number >= 1000 else ""


def _hip_version(number: object) -> str:
    """As people write it.

    >>> _hip_version(70051831)
    '7.0.51831'
    """
    if not isinstance(number, int) or number < 10_000_000:
        return ""
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


def _moment(facts: Mapping[str, Any], zero_ns: int) -> str:
    """When the first event was, in UTC; empty where the file's clock is not that on the wall."""
    at_ns = _began(facts, zero_ns)
    if at_ns is None:
        return ""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_ns // 1000)
    return f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC"


def _issues(reader: EventReader, events: EventSorter, tables: Tables) -> Iterator[Issue]:
    """What is wrong with the file, and what that costs."""
    if reader.left_bytes is not None:
        whole = count(sum(map(len, tables.spans.values())))
        rest = f"what there is of another ({reader.left_bytes} B) is left out, and " if reader.left_bytes else ""
        message = (
            "the file ends before its list of events does (the program ended while it wrote, or the copy was cut "
            f"short): the {whole} spans that are whole are shown, {rest}what was to follow is not known"
        )
        yield Issue(Severity.ERROR, "kineto-cut", message)
    if reader.joined:
        message = "further traces stand behind the first one in the file: the events of all are shown as one capture's"
        yield Issue(Severity.WARNING, "kineto-joined", message, reader.joined)
    if reader.broken:
        yield Issue(Severity.ERROR, "kineto-broken", "events that are no JSON were left out", reader.broken)
    if reader.mended:
        message = "events with quotes or backslashes that the writer did not escape were read all the same"
        yield Issue(Severity.INFO, "kineto-mended", message, reader.mended)
    if events.odd:
        message = "events without a usable time, or with a beginning or an end alone, were left out"
        yield Issue(Severity.WARNING, "kineto-times", message, events.odd)
    if tables.odd_releases:
        yield Issue(Severity.INFO, "kineto-allocation-odd", ODD_RELEASES, tables.odd_releases)
    if reader.lossy_facts:
        yield Issue(Severity.INFO, "kineto-facts", "some of what stands beside the events cannot be read")
    if not events.has_fractions:
        message = "times in this file are whole microseconds: of anything as short as that only the order is known"
        yield Issue(Severity.INFO, "kineto-microseconds", message)


_CUT_OFF = Unknown("the file ends before its list of events does, and no kernel stands before that", "copy it again")
_PROFILE_AGAIN = "torch.profiler.profile(..., {})"
_MARKED = "mark parts of the program: with torch.profiler.record_function(NAME)"


def _missing(events: EventSorter, tables: Tables, vendor: str, *, is_whole: bool) -> Iterator[Missing]:
    """What was not recorded, and the setting that records it."""
    spans = tables.spans
    if not len(tables.kernels):
        activities = _PROFILE_AGAIN.format("activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]")
        why = Unknown("the trace has no kernels: the GPU was not recorded, or idle", activities)
        if SpanKind.CALL in spans and SpanKind.LAUNCH not in spans:
            reason = "the trace has no kernels: CUDA was recorded, and nothing was launched on the GPU"
            why = Unknown(reason, "move the model and its inputs to the GPU: model.to('cuda')")
        yield Missing(whats.KERNELS, why if is_whole else _CUT_OFF)
    elif SpanKind.CALL not in spans and SpanKind.LAUNCH not in spans:
        activities = _PROFILE_AGAIN.format("activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]")
        yield Missing(whats.CUDA_CALLS, Unknown("the trace has no CUDA calls: the CPU was not recorded", activities))
    if SpanKind.NVTX not in spans:
        yield Missing(whats.NVTX, Unknown("the program marks no ranges", _MARKED))
    if SpanKind.PYTHON not in spans:
        again = _PROFILE_AGAIN.format("with_stack=True")
        yield Missing(whats.PYTHON_CALLS, Unknown("recorded without Python's functions", again))
    if SpanKind.OPERATOR in spans and not events.has_shapes:
        yield Missing(whats.SHAPES, Unknown("recorded without shapes", _PROFILE_AGAIN.format("record_shapes=True")))
    if not tables.series:
        again = _PROFILE_AGAIN.format("profile_memory=True")
        yield Missing(whats.ALLOCATIONS, Unknown("recorded without allocations of memory", again))
    for what in (whats.OS_CALLS, whats.CPU_SCHEDULING, whats.CPU_SAMPLES):
        again = remedies.AMD_THREADS if vendor == AMD else remedies.TIMELINE
        yield Missing(what, Unknown(f"PyTorch's profiler records no {what}", again))
