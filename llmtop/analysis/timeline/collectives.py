"""Operations between ranks as the program asked for them: how much they send, over which group, and how fast.

PyTorch's profiler writes it beside the kernel, or beside the operator that asks for it; NCCL says it in the NVTX ranges
of its calls. What is asked for between the begin and the end of a group of calls (ncclGroupStart) is launched at its
end: of that no kernel can be told which call it is of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.claims import OpenRanges
from llmtop.columns import rows_by_key
from llmtop.frozen import frozen
from llmtop.model import API_CALLS, SpanKind
from llmtop.units import binary_bytes, si

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import SpanTable, Trace, TrackId, Value

SOURCE = "NCCL tests, doc/PERFORMANCE.md (bus bandwidth)"
_OPERATIONS = (
    ("all-reduce", re.compile(r"all_?reduce", re.IGNORECASE)),
    ("reduce-scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all-gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all-to-all", re.compile(r"all_?to_?all", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast|bcast", re.IGNORECASE)),
    ("gather", re.compile(r"gather", re.IGNORECASE)),
    ("scatter", re.compile(r"scatter", re.IGNORECASE)),
    ("reduce", re.compile(r"reduce", re.IGNORECASE)),
    ("send", re.compile(r"send", re.IGNORECASE)),
    ("receive", re.compile(r"recv", re.IGNORECASE)),
    ("barrier", re.compile(r"barrier", re.IGNORECASE)),
)
"""By what PyTorch and NCCL call them; the first that matches."""
_DIVIDED = frozenset({"all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"})
"""Of these each rank keeps its own part: (n - 1) / n of the bytes of all ranks go over its link."""
_PER_RANK = frozenset({"all-gather", "reduce-scatter", "all-to-all"})
"""NCCL's ranges have of these the bytes of one rank."""
_OUTPUT = frozenset({"all-gather", "gather"})
"""Of these the output is what all ranks have together."""
_ELEMENT = {
    "byte": 1, "char": 1, "bool": 1, "short": 2, "half": 2, "bfloat16": 2, "int": 4, "float": 4, "long": 8, "double": 8,
    "complexhalf": 4, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
"""Bytes of an element, by PyTorch's names of types in small letters; all that begin with float8 have one."""
_IS_LIBRARY = re.compile("nccl|rccl", re.IGNORECASE)
_SIZE, _COMMUNICATOR, _RANKS = "Message size [bytes]", "NCCL communicator ID", "No. of ranks"
_ASKED_BY = (SpanKind.OPERATOR, SpanKind.NVTX)


@frozen
class Collective:
    """One operation, as it was asked for.

    Attributes:
        operation: "all-reduce" ...; the library's own word where it is none that is known.
        bytes: The size of NCCL's tests: of what is divided among ranks that of all of them; None where it is not told.
        dtype: PyTorch's name of the type; empty where it is not told.
        ranks: Of its group; None where it is not told.
        group: What tells groups apart, in the files of all ranks alike; empty where nothing does.
        group_title: What to call it.
    """

    operation: str
    bytes: int | None
    dtype: str = ""
    ranks: int | None = None
    group: str = ""
    group_title: str = ""

    @property
    def title(self) -> str:
        """Operation, size, type and group: "all-reduce 25.3 MiB Float, default_pg of 2 ranks"."""
        size = "" if self.bytes is None else f" {binary_bytes(self.bytes)}"
        dtype = f" {self.dtype}" if self.dtype else ""
        of = f" of {self.ranks} ranks" if self.ranks else ""
        group = f", {self.group_title}{of}" if self.group_title or of else ""
        return f"{self.operation}{size}{dtype}{group}"

    @property
    def factor(self) -> float | None:
        """Bus bandwidth over algorithm bandwidth; None where the number of ranks is not told."""
        if self.operation in _DIVIDED or self.operation == "all-reduce":
            once = None if not self.ranks else (self.ranks - 1) / self.ranks
            return once if once is None or self.operation != "all-reduce" else 2 * once
        return 1.0

    def bandwidths(self, ns: int) -> tuple[float | None, float | None]:
        """Algorithm and bus bandwidth in bytes/s of one that took so long; None where not all of it is told."""
        if self.bytes is None or ns <= 0:
            return None, None
        algorithm = self.bytes * 1e9 / ns
        return algorithm, None if self.factor is None else algorithm * self.factor


@lru_cache(maxsize=2)
def collectives(trace: Trace) -> Mapping[int, Collective]:
    """Those of the kernels of a trace of which it is told what they send, by the row of the kernel's span."""
    kernels = trace.spans.get(SpanKind.KERNEL)
    if kernels is None:
        return {}
    found = {row: made for row, note in kernels.notes.items() if (made := _of_note(note, "", {})) is not None}
    rest = _of_library(kernels, found)
    for kind in _ASKED_BY if rest else ():
        if (asking := trace.spans.get(kind)) is not None and asking.notes:
            asked = _asked(asking)
            found |= _by_launch(trace, kernels, [row for row in rest if row not in found], asking, asked)
    return found


def group_of_kernels(trace: Trace) -> Mapping[int, str]:
    """The group of ranks of each kernel that has one, by the row of its span."""
    return {row: one.group for row, one in collectives(trace).items() if one.group}


def speed_text(one: Collective, lengths: Iterable[int]) -> str:
    """How fast operations of one kind were, of how long each took; why that is not told.

    The time of a kernel, in which it also waits for the last rank to come.
    """
    pairs = [one.bandwidths(ns) for ns in lengths]
    algorithm = [speed for speed, _ in pairs if speed is not None]
    bus = [speed for _, speed in pairs if speed is not None]
    if not algorithm:
        return "bandwidth not known: the capture does not say how much it sends"
    said = f"{_median(algorithm)} of algorithm bandwidth"
    if not bus:
        return f"{said}; bus bandwidth not known: how many ranks the group has is not in the capture"
    return f"{_median(bus)} of bus bandwidth, {said}, waiting for other ranks included (definition: {SOURCE})"


def _median(speeds: list[float]) -> str:
    return f"{'median ' if len(speeds) > 1 else ''}{si(median(speeds), 'B/s')}"


def _of_library(kernels: SpanTable, found: Mapping[int, Collective]) -> list[int]:
    """The kernels of a library that sends, of which nothing is told yet."""
    names = {i for i, name in enumerate(kernels.names) if _IS_LIBRARY.search(name)}
    return [row for row, name in enumerate(kernels.name_id) if name in names and row not in found] if names else []


def _asked(asking: SpanTable) -> Mapping[int, Collective]:
    """What ranges or operators asked for, by their rows."""
    sizes = _sizes_of_groups(asking.notes.values())
    names = asking.names
    made = ((row, _of_note(note, names[asking.name_id[row]], sizes)) for row, note in asking.notes.items())
    return {row: one for row, one in made if one is not None}


def _sizes_of_groups(notes: Iterable[Mapping[str, Value]]) -> Mapping[Value, int]:
    """How many ranks a communicator has, which NCCL says as it makes it."""
    pairs = ((note.get(_COMMUNICATOR), note.get(_RANKS)) for note in notes)
    return {key: ranks for key, ranks in pairs if key is not None and isinstance(ranks, int) and ranks > 0}


def _by_launch(
    trace: Trace, kernels: SpanTable, rows: list[int], asking: SpanTable, asked: Mapping[int, Collective]
) -> dict[int, Collective]:
    """Of kernels, by what was open on the launching thread as it launched them, the innermost first."""
    by_thread: dict[TrackId, list[int]] = defaultdict(list)
    for row in asked:
        by_thread[asking.tracks[asking.track_id[row]]].append(row)
    opened = {thread: OpenRanges(asking, own) for thread, own in by_thread.items()}
    found = {}
    for row, thread, at in _launched(trace, kernels, rows):
        around = opened[thread].at(at) if thread in opened else []
        if around:
            found[row] = asked[around[-1]]
    return found


def _launched(trace: Trace, kernels: SpanTable, rows: list[int]) -> Iterator[tuple[int, TrackId, int]]:
    """The thread that launched each of these kernels, and when."""
    for calls in (trace.spans[kind] for kind in API_CALLS if kind in trace.spans):
        by = rows_by_key(calls.correlation, kernels.correlation)
        for row in rows:
            if (call := by[row]) >= 0:
                yield row, calls.tracks[calls.track_id[call]], calls.start_ns[call]


# -- what is written --------------------------------------------------------------------------------------------------


def _of_note(note: Mapping[str, Value], name: str, sizes: Mapping[Value, int]) -> Collective | None:
    if "Collective name" in note:
        return _of_pytorch(note)
    return _of_nccl(note, name, sizes) if _SIZE in note else None


def _operation(name: str) -> str:
    return next((known for known, pattern in _OPERATIONS if pattern.search(name)), name)


def _of_pytorch(note: Mapping[str, Value]) -> Collective:
    operation, dtype = _operation(str(note["Collective name"])), str(note.get("dtype", ""))
    sent, got = _count(note.get("In msg nelems")), _count(note.get("Out msg nelems"))
    elements = got if operation in _OUTPUT else sent if operation in _DIVIDED else _larger(sent, got)
    element = 1 if dtype.lower().startswith("float8") else _ELEMENT.get(dtype.lower())
    name, title = str(note.get("Process Group Name", "")), str(note.get("Process Group Description", ""))
    is_titled = title not in ("", "undefined")
    return Collective(
        operation,
        None if elements is None or element is None else elements * element,
        dtype,
        _count(note.get("Group size")) or None,
        f"{name} {note.get('Process Group Ranks', '')}".strip(),
        title if is_titled else f"group {name}" if name else "",
    )


def _of_nccl(note: Mapping[str, Value], name: str, sizes: Mapping[Value, int]) -> Collective:
    operation, size, group = _operation(name), _count(note[_SIZE]), note.get(_COMMUNICATOR)
    ranks = None if group is None else sizes.get(group)
    if operation in _PER_RANK and size is not None:
        size = None if ranks is None else size * ranks
    key = f"{group & _ALL_BITS:#x}" if isinstance(group, int) else str(group or "")
    return Collective(operation, size, "", ranks, key, f"communicator {key}" if key else "")


_ALL_BITS = (1 << 64) - 1
"""A signed number as the unsigned one that NCCL means."""


def _count(value: Value | None) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
