"""The data every part of llmtop speaks: frozen values with their units, and nothing else.

One container, `Trace`: what a parser returns, what a collector's poll returns (small), what the recorder
freezes a window into, what every rule and pane takes. All times in a trace are nanoseconds on one clock: the
host's monotonic clock live, the capture's clock in a file.

Text from outside (kernel names, process titles, metric labels) enters a trace only through `llmtop.text.clean`.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NewType, Protocol, TypeAlias

NS_PER_S = 1_000_000_000
TrackId = NewType("TrackId", str)
"""Made and read by `llmtop.ids`."""
What = NewType("What", str)
"""What is missing: made and read by `llmtop.whats`."""


class UnknownKind(StrEnum):
    """What sort of reason it is, of those by which something is decided."""

    OTHER = "other"
    HUNG = "hung"
    """A call into the driver does not return."""
    UNUSED = "unused"
    """It is there, and the server does not use it."""
    NOT_COUNTED = "not counted"
    """Nsight Compute has it, where it is asked for another section."""
    NOT_ASKED = "not asked"
    """The file has it, outside of what was to be looked at."""
    FAILED = "failed"
    """The program failed: no profiler tells what it would have."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Stands where a value would: why it is not known, and what would make it so.

    Attributes:
        reason: Half a sentence, without a full stop: "GPM needs Hopper or newer".
        remedy: What the user can do, as a command where there is one; empty when nothing helps.
        general: The reason without what it says of this one alone, for a line about many; empty where it says nothing
            of that sort.
    """

    reason: str
    remedy: str = ""
    kind: UnknownKind = UnknownKind.OTHER
    general: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.remedy})" if self.remedy else self.reason


Value: TypeAlias = "float | int | str"
Fact: TypeAlias = "Value | Unknown"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number means. The live ones are listed in `llmtop.vocabulary`.

    Attributes:
        name: Dotted and stable: "gpu.sm". It is the key in JSON and in recordings.
        unit: "%" (0 to 100), "ratio" (0 to 1), "bytes", "bytes/s", "W", "MHz", "s", "ns", "1" ...
        counter: It only grows (until its owner restarts); a rate is made of it, never shown raw.
        title: What a pane calls it.
    """

    name: str
    unit: str
    counter: bool = False
    title: str = ""

    def __hash__(self) -> int:
        return hash(self.name)  # a key of most tables: Python keeps a string's hash, and makes that of fields each time


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with its unit and its source, as a report or a pane shows it."""

    value: Value
    unit: str = ""
    source: str = ""


class TrackKind(StrEnum):
    """What a line of time belongs to."""

    HOST = "host"
    SELF = "self"
    GPU = "gpu"
    GPU_INSTANCE = "gpu_instance"
    """A MIG slice of a GPU."""
    GPU_PROCESS = "gpu_process"
    SERVER = "server"
    ENDPOINT = "endpoint"
    """Where a server's metrics are asked for, whether it answers or not."""
    PROCESS = "process"
    NEIGHBOUR = "neighbour"
    """A process outside the server that uses CPUs."""
    ENDED = "ended"
    """A part of the server that has ended while it was watched."""
    THREAD = "thread"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Track:
    """A GPU, a stream, a process, a thread: one line of time, with what is slow or never to change about it.

    Attributes:
        id: Unique in a trace: "gpu:0", "server:8000", "process:4242", "thread:4242/4243", "gpu:0/process:4242".
        name: What to call it on screen; already clean.
        parent: The id of the track that holds it.
        facts: Slow values by name: {"uuid": "GPU-...", "role": "EngineCore", "mig": Unknown(...)}.
    """

    id: TrackId
    kind: TrackKind
    name: str
    parent: TrackId | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(slots=True, unsafe_hash=True)
class Reading:
    """One sample. `value` is None where the source had none: history then shows a gap, never a zero.

    Held to be frozen by the type checker alone, as series are: a frozen class takes four times as long to make, and
    of both there are a thousand a second.
    """

    track: Final[TrackId]
    metric: Final[Metric]
    t_ns: Final[int]
    value: Final[float | None]
    source: Final[str]


@dataclass(slots=True, eq=False)
class Series:
    """The samples of one metric on one track, oldest first, in columns.

    The arrays may be longer than the series: only [start, stop) belongs to it, so that freezing a window of the
    recorder copies nothing. NaN in `_values` is "the source had none".
    """

    track: Final[TrackId]
    metric: Final[Metric]
    source: Final[str]
    _times: Final[array[int]] = field(repr=False)
    _values: Final[array[float]] = field(repr=False)
    start: Final[int]
    stop: Final[int]

    @classmethod
    def of(cls, track: TrackId, metric: Metric, source: str, samples: list[tuple[int, float | None]]) -> Series:
        """Make a series from (t_ns, value) pairs, oldest first."""
        times = array("q", (t for t, _ in samples))
        values = array("d", (math.nan if v is None else v for _, v in samples))
        return cls(track, metric, source, times, values, 0, len(times))

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[tuple[int, float | None]]:
        return zip(self.times, self.samples, strict=True)

    @property
    def samples(self) -> Sequence[float | None]:
        """Sample values, a copy; None where the source had none."""
        values = self.values
        # Hundreds of graphs a frame: only where a sample is missing does Python look at each one.
        if any(map(math.isnan, values)):
            return [None if math.isnan(value) else value for value in values]
        return values

    @property
    def known(self) -> Iterator[tuple[int, float]]:
        """The samples that have a value."""
        values = self.values
        if any(map(math.isnan, values)):
            return ((t_ns, value) for t_ns, value in zip(self.times, values, strict=True) if value == value)
        return zip(self.times, values, strict=True)

    @property
    def times(self) -> array[int]:
        """Sample times in ns, a copy."""
        return self._times[self.start : self.stop]

    @property
    def values(self) -> array[float]:
        """Sample values, a copy; NaN where the source had none."""
        return self._values[self.start : self.stop]

    @property
    def last(self) -> float | None:
        """The newest value; None when there is none or the source had none."""
        if self.start == self.stop:
            return None
        value = self._values[self.stop - 1]
        return None if math.isnan(value) else value

    @property
    def last_t_ns(self) -> int | None:
        """When the newest sample was taken."""
        return self._times[self.stop - 1] if self.stop > self.start else None

    def at(self, t_ns: int) -> float | None:
        """The newest value by then, looking past samples without one; None before the first."""
        i = bisect_right(self._times, t_ns, self.start, self.stop) - 1
        while i >= self.start and math.isnan(self._values[i]):
            i -= 1
        return self._values[i] if i >= self.start else None

    def newest(self, count: int) -> Series:
        """The last samples, at most `count`; shares the columns."""
        start = max(self.start, self.stop - count)
        return Series(self.track, self.metric, self.source, self._times, self._values, start, self.stop)

    def stretch(self, start_ns: int, end_ns: int) -> tuple[array[int], array[float]]:
        """Times and values with start_ns < t <= end_ns and those of the sample before, where there is one; copies."""
        start = bisect_right(self._times, start_ns, self.start, self.stop)
        stop = bisect_right(self._times, end_ns, start, self.stop)
        start = max(self.start, start - 1)
        return self._times[start:stop], self._values[start:stop]

    def shares_columns(self, other: Series) -> bool:
        """Whether both are stretches of the same samples as they were recorded."""
        return self._times is other._times

    def from_end(self, t_ns: int) -> int:
        """How many samples back from the end the last one at or before a moment stands; more than all before the first.

        >>> hits = Series.of("t", Metric("m", "1"), "", [(1, 5.0), (2, 6.0), (3, 9.0)])
        >>> hits.from_end(3), hits.from_end(2), hits.from_end(0)
        (1, 2, 4)
        """
        return self.stop - bisect_right(self._times, t_ns, self.start, self.stop) + 1

    def step(self, first: int, first_ns: int, last: int, last_ns: int) -> float | None:
        """The difference of two values, by how far back from the end they stand.

        None where the samples there are not of these moments; NaN where one has no value.
        """
        start, stop = self.stop - first, self.stop - last
        if start < self.start or self._times[start] != first_ns or self._times[stop] != last_ns:
            return None
        return self._values[stop] - self._values[start]

    def between(self, start_ns: int, end_ns: int) -> Series:
        """The part with start_ns <= t <= end_ns; shares the columns."""
        start = bisect_left(self._times, start_ns, self.start, self.stop)
        stop = bisect_right(self._times, end_ns, self.start, self.stop)
        return Series(self.track, self.metric, self.source, self._times, self._values, start, stop)


TORCH_ALLOCATED: Final = Metric("torch.allocated", "bytes", title="allocated by PyTorch")
TORCH_RESERVED: Final = Metric("torch.reserved", "bytes", title="reserved by PyTorch")
TORCH_GROWN: Final = Metric("torch.allocated_since_start", "bytes", title="allocated since the profile began")
"""What PyTorch's allocators held, on the tracks of GPUs and processes; the last one in traces before 2022, that tell of
each allocation and not of what there was before."""

FROM_BEFORE: Final = " (from before the capture)"
NOT_GIVEN_BACK: Final = " (not given back)"
GIVING_BACK_LOST: Final = " (giving back not recorded)"
"""What the names of allocations end with of which an end is not known: the first begins with the first of all events,
the second lasts until the last one, the third until its address was got once more."""


class SpanKind(StrEnum):
    """What a span is of: the keys of `Trace.spans` and `Trace.more_spans`. First those on the tracks of GPUs."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    GRAPH = "graph"
    """Traced as a whole."""
    SYNC = "sync"
    """A wait for an event, a stream or a context, as the GPU saw it."""
    GPU_RANGE = "gpu-range"
    """A range as it ran there, from its first work to its last."""
    PAGE_FAULT = "page-fault"
    """Of unified memory."""
    ALLOCATION = "allocation"
    """From getting memory to giving it back."""
    LAUNCH = "launch"
    """Of CUDA, on the track of a thread, as all that follow."""
    CALL = "call"
    BRIEF_CALL = "brief-call"
    ALLOCATOR = "allocator"
    """Moments at which a thread asked an allocator of its program for memory, or gave it back."""
    NVTX = "nvtx"
    """A range that the program marks."""
    MARK = "mark"
    """A moment that it marks, without length."""
    OPERATOR = "operator"
    """PyTorch's, as the next one."""
    PYTHON = "python"
    REGION = "region"
    """All else that has a start, an end and a name."""
    OS = "os"
    OFF_CPU = "off-cpu"
    SAMPLE = "sample"
    OVERHEAD = "overhead"
    OTHER_OS = "other-os"
    """Of threads that never call CUDA, as the next ones."""
    OTHER_OFF_CPU = "other-off-cpu"
    OTHER_SAMPLE = "other-sample"
    CAPTURED = "captured"
    """The calls that put a kernel into a CUDA graph, one for each kernel that the graph then ran: `correlation` is the
    row of the kernel in `Trace.kernels`."""


GPU_WORK: Final = (SpanKind.KERNEL, SpanKind.MEMCPY, SpanKind.MEMSET, SpanKind.GRAPH)
"""What keeps a GPU busy."""
API_CALLS: Final = (SpanKind.LAUNCH, SpanKind.CALL)
"""Calls of CUDA that conclusions are drawn from."""


NOTED_FAULTS: Final = "page faults"
NOTED_ADDRESS: Final = "address"
NOTED_INSTRUCTION: Final = "CPU instruction"
"""Keys of `SpanTable.notes` of page faults and of migrations of unified memory: how many, of which page, and where."""


@dataclass(frozen=True, slots=True, eq=False)
class SpanTable:
    """Spans of one kind in columns, sorted by start; row i of every column is span i.

    Attributes:
        kind: A `SpanKind`, or one of a parser's own: it is listed under its own name.
        names: Distinct names, clean; `name_id` indexes them.
        tracks: Distinct track ids; `track_id` indexes them.
        correlation: Joins a launch to its kernel, and the call that got memory to the allocation; -1 where there is
            none.
        amount: Bytes of copies, fills, allocations and messages; NaN elsewhere.
        notes: What else is recorded of some spans, by row: {"category": "io", "Message size [bytes]": 4096}.
    """

    kind: str
    names: tuple[str, ...]
    tracks: tuple[TrackId, ...]
    name_id: array[int]
    track_id: array[int]
    start_ns: array[int]
    end_ns: array[int]
    correlation: array[int]
    amount: array[float]
    notes: Mapping[int, Mapping[str, Value]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True)
class Stack:
    """A folded stack, root first, with what it weighs ("ns", "samples") and the state it was seen in."""

    frames: tuple[str, ...]
    weight: float
    unit: str
    state: str = ""
    track: TrackId = TrackId("")


@dataclass(frozen=True, slots=True, eq=False)
class StackWindow:
    """Stacks as they stood at a moment: sums over the time before it (`vocabulary.STACKS_WINDOW_NS`)."""

    end_ns: int
    stacks: Sequence[Stack]


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What the capturing tool's own rule said of a kernel.

    Attributes:
        messages: (severity, text) pairs; severity is one of ok, warning, error, optimization.
        speedups: ("global" or "local", percent) pairs: global is of the kernel's time, local of that part.
        focus: (metric, value) pairs that the rule rests on.
        titles: Of each message what it found, in a few words ("Small Grid"), "" where it has none; () for none at all.
    """

    id: str
    name: str
    section: str
    messages: tuple[tuple[str, str], ...]
    speedups: tuple[tuple[str, float], ...] = ()
    focus: tuple[tuple[str, float], ...] = ()
    titles: tuple[str, ...] = ()

    @property
    def titled(self) -> tuple[tuple[str, str], ...]:
        """(severity, text) of each message, its title before its text."""
        titles = self.titles or ("",) * len(self.messages)
        pairs = zip(self.messages, titles, strict=True)
        return tuple((severity, f"{title}: {text}" if title else text) for (severity, text), title in pairs)

    @property
    def advised(self) -> str:
        """Its name, with the titles of what it advises where they say more: "Warp Stall (Long Scoreboard Stalls)"."""
        pairs = zip(self.messages, self.titles, strict=False)
        titles = [title for (severity, _), title in pairs if severity in ("optimization", "warning") and title]
        more = ", ".join(title for title in dict.fromkeys(titles) if title != self.name)
        return f"{self.name} ({more})" if more else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
    """A metric split by something (PC, opcode, unit): `keys[i]` has `values[i]`; keys may be absent (empty)."""

    keys: tuple[Value, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class SectionTable:
    """What a section of a profiler's report shows first: (metric, the tool's label for it) in the tool's order."""

    id: str
    title: str
    rows: tuple[tuple[str, str], ...]


class KernelDetails(Protocol):
    """What a report holds beyond the columns, read when it is asked for. `i` is the row in the kernel table."""

    def metrics(self, i: int) -> Mapping[str, Value]:
        """All scalar metrics of a kernel by the tool's own names, in units that `unit` tells."""
        ...

    def unit(self, metric: str) -> str:
        """The unit of a metric; "" where it has none."""
        ...

    def instances(self, i: int, metric: str) -> Instances | Unknown:
        """The per-PC or per-unit values of one metric."""
        ...

    def rules(self, i: int) -> tuple[RuleResult, ...]:
        """What the tool's own rules said of a kernel."""
        ...

    def ranges(self, i: int) -> tuple[str, ...]:
        """NVTX ranges open at the launch, outermost first."""
        ...

    def sections(self, i: int) -> tuple[str, ...]:
        """Identifiers of the sections that were collected."""
        ...

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        """The collected sections with their tables, in the tool's order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class KernelCode:
    """The instructions of one launch in columns, by address; row i of every column is instruction i.

    Attributes:
        addresses: As the per-instruction values of the report are keyed.
        functions: The functions that they are of; `function_id` indexes them.
        offsets: Of each from the beginning of its function, in bytes.
        files: Of the source; `file_id` indexes them, -1 where no line is known.
        file_bytes: How long they were when they were compiled; 0 where that is not told.
        line: From 1 on; 0 where it is not known.
        ptx_line: The same in `ptx`.
        ptx: The intermediate code that the instructions were made from, or why there is none.
        why_no_lines: Why no instruction has a line; None where any has.
    """

    addresses: array[int]
    functions: tuple[str, ...]
    function_id: array[int]
    offsets: array[int]
    files: tuple[str, ...]
    file_bytes: tuple[int, ...]
    file_id: array[int]
    line: array[int]
    ptx_line: array[int]
    ptx: tuple[str, ...] | Unknown
    why_no_lines: Unknown | None = None

    def __len__(self) -> int:
        return len(self.addresses)


@dataclass(frozen=True, slots=True, eq=False)
class SourceText:
    """The lines of a source file, clean.

    Attributes:
        found: Where they are from: "in the report", or the path of the file.
        doubt: Why they may not be what the kernel was made from; empty where nothing says so.
    """

    lines: tuple[str, ...]
    found: str
    doubt: str = ""


class KernelCodes(Protocol):
    """The machine code behind kernels, read when it is asked for. `i` is the row in the kernel table."""

    def code(self, i: int) -> KernelCode | Unknown:
        """The instructions of a launch."""
        ...

    def metrics(self, i: int) -> frozenset[str]:
        """The metrics that a launch has by instruction."""
        ...

    def values(self, i: int, metric: str) -> Mapping[int, float]:
        """One of these by address; instructions without a value are left out."""
        ...

    def source(self, i: int, file: str) -> SourceText | Unknown:
        """A file of its source, by its name in `KernelCode.files`."""
        ...

    def assembly(self, i: int) -> Mapping[int, str] | Unknown:
        """The text of its instructions by address: may run a disassembler, for seconds."""
        ...

    def within(self, folders: Sequence[Path]) -> KernelCodes:
        """The same, which looks for source files in these folders too."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class KernelTable:
    """Kernel launches in columns, in capture order; row i of every column is launch i.

    Attributes:
        names: Distinct demangled names, clean; `name_id` indexes this and `functions`.
        functions: The short name of the same index.
        grid: Three columns, x y z; `block` alike.
        start_ns: -1 where the capture has no timeline.
        duration_ns: NaN where it was not collected.
        stream: -1 where unknown; `device` alike.
        registers: Of a thread, -1 where unknown; empty where only `details` tell. `shared_bytes`, of a block, alike.
        estimated_occupancy: % of the warps an SM can hold, as the profiler computes it from the launch; 0 and -1 where
            it does not; empty where no launch has it.
        details: Metrics and rules behind each row; None where the capture has none.
        codes: The machine code behind each row, likewise.
    """

    names: tuple[str, ...]
    functions: tuple[str, ...]
    name_id: array[int]
    grid: tuple[array[int], array[int], array[int]]
    block: tuple[array[int], array[int], array[int]]
    start_ns: array[int]
    duration_ns: array[float]
    device: array[int]
    stream: array[int]
    details: KernelDetails | None = None
    registers: array[int] = field(default_factory=lambda: array("q"))
    shared_bytes: array[int] = field(default_factory=lambda: array("q"))
    estimated_occupancy: array[int] = field(default_factory=lambda: array("q"))
    codes: KernelCodes | None = None

    def __len__(self) -> int:
        return len(self.name_id)

    def name(self, i: int) -> str:
        """The demangled name of launch i."""
        return self.names[self.name_id[i]]


class Severity(StrEnum):
    """How much a mark, an issue or a finding matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class MarkKind(StrEnum):
    """What sort of thing a mark is of, in the words of the event log."""

    PROCESS = "process"
    EXEC = "exec"
    SERVER = "server"
    XID = "xid"
    GPU_LOST = "GPU lost"
    GPU_HUNG = "GPU hangs"
    GPU_BACK = "GPU back"
    GPU_EVENT = "GPU event"
    STUCK = "collector hangs"
    TRACER = "tracer"
    PROBES_ENDED = "probes ended"
    PROBES_BACK = "probes back"


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """That a process has ended.

    Attributes:
        how: "killed by SIGKILL", "exit code 1"; Unknown where nothing tells.
        is_regular: It ended as a program does that was told to.
    """

    pid: int
    how: str | Unknown
    is_regular: bool


@dataclass(frozen=True, slots=True)
class Restart:
    """That another process has taken the place of a server's, whose PID was this."""

    old_pid: int


@dataclass(frozen=True, slots=True)
class XidReport:
    """A fault that the NVIDIA driver numbers.

    Attributes:
        meaning: What the code means, whom it hit, how often.
        action: What to do first; empty where nothing needs to be done, or the code is not known.
    """

    code: int
    meaning: str
    action: str


@dataclass(frozen=True, slots=True)
class GpuFault:
    """A warp that failed, as a GPU's core dump has it.

    Attributes:
        exception: As cuda-gdb calls it: "Warp Illegal Address"; `code` is its number (CUDBGException_t).
        gpu: The track of its GPU; `sm` and `warp` are places on it.
        kernel: The name of its kernel, and the launch's `grid` and `block`.
        block_index: The block that the warp is of; its first thread is `thread_index`.
        lanes: How many of its threads were at the instruction.
        lane: The one of them that carried it out, by the predicate that guards it; None where several did.
        pc: The address of the instruction; None where the GPU did not keep it: then it is that of where the warp stood.
        function: What holds the instruction, at `offset` bytes from its beginning; empty where that is not known.
        place: File and line of the source; Unknown where the program was compiled without them.
        instruction: Its text, or why there is none.
        registers: Of the lane that failed, or of the first one, R0 first.
    """

    exception: str
    code: int
    gpu: TrackId
    sm: int
    warp: int
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    block_index: tuple[int, int, int]
    thread_index: tuple[int, int, int]
    lanes: int
    lane: int | None
    pc: int
    is_exact: bool
    function: str = ""
    offset: int = 0
    place: str | Unknown = Unknown("its place in the source is not known")
    instruction: str | Unknown = Unknown("its text is not known")
    registers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on the time axis: an XID, a GPU that is lost, a process that came or went.

    Attributes:
        said: What happened, in words; they follow the subject, where there is one.
        subject: Whom it happened to, where the track has gone with it or says less: "EngineCore (pid 4300)", "GPU 1:".
        about: The same as data, of what others draw conclusions from.
    """

    t_ns: int
    kind: MarkKind
    track: str
    said: str
    severity: Severity = Severity.INFO
    subject: str = ""
    about: ProcessEnd | Restart | XidReport | None = None

    @property
    def text(self) -> str:
        """The whole sentence."""
        return f"{self.subject} {self.said}" if self.subject else self.said


@dataclass(frozen=True, slots=True)
class Issue:
    """A fault in the data, as data: rows skipped, samples late, a collector that failed."""

    severity: Severity
    code: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that could not be had."""

    what: What
    why: Unknown

    @property
    def document(self) -> dict[str, str]:
        """As JSON documents have it."""
        return {"what": self.what, "reason": self.why.reason, "remedy": self.why.remedy}


@dataclass(frozen=True, slots=True)
class Stretch:
    """From when to when something of a trace is, and on which of its tracks, where it is on one."""

    start_ns: int
    end_ns: int
    track: TrackId | None = None


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of a GPU that has one of some causes, each with the name of the call or range, or an empty one."""

    gpu: TrackId
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis: what is wrong with what, how we know, and what to do next.

    Attributes:
        share: Of a cause, the share of the time (0 to 1) that it explains; None where that cannot be said.
        parts: Names of what a subject of several stands for: "7 kernels".
        next_command: What to run next; where there is none for a report, `no_command` says why.
        at_stake_ns: Time of a capture that acting on it can save at most, as far as the evidence tells: findings of a
            report are ranked by it. None where the evidence gives no such number, and live.
        idle: Of a finding about gaps, which: of the GPU that loses most.
        place: From when to when in a capture the finding shows best, where it is of one moment.
    """

    rule: str
    severity: Severity
    subject: str
    message: str
    evidence: tuple[str, ...]
    action: str
    next_command: str = ""
    source: str = ""
    share: float | None = None
    at_stake_ns: float | None = None
    parts: tuple[str, ...] = ()
    no_command: str = ""
    idle: IdleTime | None = None
    place: Stretch | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a trace comes from.

    Attributes:
        kind: Of a file the name of its parser: "ncu-rep", "nsys-sqlite" ...; of what is watched see `LIVE`.
        facts: Session facts to show: command, host, GPU, driver ... Secrets are already redacted.
        utc_ns: When the clock of the trace read 0, in ns since 1970 on the clock of its host; None where nothing tells.
        rank: Of the process in its group of several that work on one thing, and `ranks` how many these are.
        host: The machine's name; empty where nothing tells.
        range_term: What people call a range that the program marks itself, of what recorded it: NVTX alone has its own.
    """

    kind: str
    path: str = ""
    tool_version: str = ""
    gpu: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    utc_ns: int | None = None
    rank: int | None = None
    ranks: int | None = None
    host: str = ""
    range_term: str = "NVTX range"

    @property
    def is_ncu(self) -> bool:
        """Whether Nsight Compute made it, in whichever of its formats."""
        return self.kind.startswith("ncu")


LIVE: Final = Origin("live")
"""Of all that collectors read."""
RECORDING: Final = "recording"
"""The kind of what was watched, kept to be looked at again."""
KINETO: Final = "kineto"
"""The kind of what PyTorch's profiler wrote."""


class ClockBasis(StrEnum):
    """What brought the clock of one rank's file onto that of the first."""

    FIRST = "the first file's own clock"
    COLLECTIVES = "collectives"
    """Operations that all ranks end together: as good as these do."""
    HOST = "one host's clock"
    """The files are of one machine: as good as the tool writes its start down."""
    UTC = "clocks of several hosts"
    """As good as these agree: milliseconds at best."""


@dataclass(frozen=True, slots=True)
class ClockFit:
    """How one clock became another: t + `offset_ns` + `drift` (t - `since_ns`).

    Attributes:
        drift: By how much more the other one advances, as a share: 1e-6 is one microsecond in each second.
        residual_ns: The median distance that is left between ends of one collective; None where none was matched.
        matched: How many were.
        is_sure: Whether only one way to match them fits.
    """

    basis: ClockBasis
    offset_ns: int = 0
    drift: float = 0.0
    since_ns: int = 0
    residual_ns: float | None = None
    matched: int = 0
    is_sure: bool = True

    @property
    def is_comparable(self) -> bool:
        """Whether moments on both can be compared as near as ranks wait for each other."""
        return self.basis in (ClockBasis.FIRST, ClockBasis.COLLECTIVES)


@dataclass(frozen=True, slots=True)
class RankPart:
    """One of the files that a trace of several ranks is made of.

    Attributes:
        name: What to call it: "rank 3"; of a file without a rank, by its name.
        gpus: Ids of the tracks of its GPUs.
        clock: How its clock was brought onto the first one's; why it was not.
    """

    name: str
    origin: Origin
    gpus: tuple[TrackId, ...]
    clock: ClockFit | Unknown


@dataclass(frozen=True, slots=True)
class SourceLane:
    """A line that a source adds to the picture of CPU and GPU: a gauge as it is, a counter as its growth per second.

    Attributes:
        kind: Whose it is: of the GPU that is shown, of the engine's process or thread, else of the first such track.
        high: The top of its scale; None for the largest value in the window.
    """

    metric: Metric
    kind: TrackKind
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A collector and what is its own to read: why something of it is not known, it alone says.

    Attributes:
        name: The collector's. What it lists as missing under this name is so of all that it reads.
        tracks: Kinds of tracks that it adds.
        families: What the names of its metrics begin with, where all that do so are its own: "gpu.".
        metrics: Those beside them; two sources may both read one.
        parts: Metrics that are there or missing together, by the name that they are then listed under with the track.
        whats: What it gives beside metrics: stacks.
        lanes: What it adds to the picture of CPU and GPU.
    """

    name: str
    tracks: tuple[TrackKind, ...] = ()
    families: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    parts: Mapping[str, tuple[Metric, ...]] = field(default_factory=dict)
    whats: tuple[What, ...] = ()
    lanes: tuple[SourceLane, ...] = ()

    def reads(self, metric: str) -> bool:
        """Whether a metric, by its name without labels, is its own to read."""
        mine = (*self.metrics, *(lane.metric for lane in self.lanes))
        return metric.startswith(self.families) or any(one.name == metric for one in mine)


class Sources:
    """All sources that look, best first: who is asked why something is not known."""

    def __init__(self, sources: Iterable[Source] = ()) -> None:
        self.all: Final = tuple(sources)
        self._readers: dict[str, tuple[Source, ...]] = {}

    def of_kind(self, kind: TrackKind) -> tuple[Source, ...]:
        """Those that add tracks of a kind."""
        return tuple(one for one in self.all if kind in one.tracks)

    def of_what(self, *whats: What) -> tuple[Source, ...]:
        """Those that give any of what no metric tells."""
        return tuple(one for one in self.all if not set(whats).isdisjoint(one.whats))

    def of_metric(self, metric: str) -> tuple[Source, ...]:
        """Those that read a metric, by its name without labels."""
        readers = self._readers.get(metric)
        if readers is None:  # asked for each number that is not known, in each frame
            readers = self._readers[metric] = tuple(one for one in self.all if one.reads(metric))
        return readers


_NO_SOURCES = Sources()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace:
    """The one container. A collector's poll fills `readings`; the recorder and the parsers fill `series`.

    Its repr is short: a library that describes what it is given (Textual its workers) would otherwise write out
    ten minutes of thousands of series.
    """

    origin: Origin
    start_ns: int = 0
    end_ns: int = 0
    tracks: Mapping[TrackId, Track] = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    series: Mapping[tuple[TrackId, str], Series] = field(default_factory=dict)
    spans: Mapping[str, SpanTable] = field(default_factory=dict)
    """By kind. A file's parser may read a kind only when it is asked for: what there is, `in` tells at once."""
    more_spans: Mapping[str, SpanTable] = field(default_factory=dict)
    """What nothing is concluded from, by kind, read only when it is asked for: calls and threads beside those in
    `spans`. None stands in both: "brief-call" goes with "call", "other-<kind>" is of threads that never call CUDA, and
    "allocator" has the moments at which threads asked an allocator of their program for memory, or gave it back.
    """
    stacks: Sequence[Stack] = ()
    kernels: KernelTable | None = None
    marks: tuple[Mark, ...] = ()
    issues: Sequence[Issue] = ()
    """Of a file that is read as it is looked at, more may follow at its end."""
    missing: tuple[Missing, ...] = ()
    gone: tuple[TrackId, ...] = ()
    """Ids of tracks that ended since the last poll (live only)."""
    stacks_end_ns: int = 0
    """When `stacks` were summed up (live only); 0 where they have no time of their own."""
    past_stacks: tuple[StackWindow, ...] = ()
    """`stacks` as they stood at earlier moments, oldest first (live only)."""
    sources: Sources = _NO_SOURCES
    """Who reads what (live only)."""
    faults: tuple[GpuFault, ...] = ()
    """Of a core dump of a GPU: what its kernels failed with."""
    parts: tuple[RankPart, ...] = ()
    """The files that it was made of, where they are several, the one whose clock it has first."""
    _of_kind: dict[TrackKind, tuple[Track, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<Trace {self.origin.kind} {self.start_ns}..{self.end_ns} ns: {len(self.series)} series>"

    def get(self, track: TrackId, metric: Metric) -> Series | None:
        """The series of a metric on a track, or None when it was never read."""
        return self.series.get((track, metric.name))

    def why_missing(self, *whats: What) -> Unknown | None:
        """The reason given for the first of `whats` that is listed as missing."""
        reasons = {missing.what: missing.why for missing in self.missing}
        return next((reasons[what] for what in whats if what in reasons), None)

    def tracks_of(self, kind: TrackKind) -> tuple[Track, ...]:
        """Tracks of a kind, in the order they were first seen."""
        if not self._of_kind:  # asked more than a hundred times a frame, of a dozen kinds of hundreds of tracks
            by_kind: dict[TrackKind, list[Track]] = {one: [] for one in TrackKind}
            for track in self.tracks.values():
                by_kind[track.kind].append(track)
            self._of_kind.update((one, tuple(tracks)) for one, tracks in by_kind.items())
        return self._of_kind[kind]


@dataclass(frozen=True, slots=True)
class TargetProcess:
    """One process of the server under observation."""

    pid: int
    role: str
    name: str


PLAIN_PROCESS: Final = "process"
"""The kind of a target that is no server that llmtop knows."""


@dataclass(frozen=True, slots=True)
class Target:
    """What llmtop is attached to: the server a PID belongs to, and where to find its parts.

    Attributes:
        kind: The engine's key in `llmtop.servers` ("vllm", "sglang", "demo" ...), or `PLAIN_PROCESS`.
        metrics_urls: Where to try the Prometheus endpoint, best first.
    """

    pid: int
    root_pid: int
    kind: str
    title: str
    processes: tuple[TargetProcess, ...]
    ports: tuple[int, ...] = ()
    metrics_urls: tuple[str, ...] = ()
    model: Fact = Unknown("the server's model is not known yet")
    dtype: Fact = Unknown("the server's dtype is not known")
    gpus: tuple[int, ...] = ()
    """Numbers of the /dev/nvidia<N> that its processes hold open: device minors, which are mostly NVML's indices."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """What else its command line and configuration say: "quantization", "kv_cache_dtype", "command" (redacted)."""
    config: Mapping[str, Fact] = field(default_factory=dict)
    """The single values of the model's config.json, by their names there; "quantization_config.bits" is one of a group.
    Empty where it cannot be read."""
    missing: tuple[Missing, ...] = ()
    """What could not be found out about it, by "target.<field>"."""


@dataclass(frozen=True, slots=True)
class Role:
    r"""How one process of a server is told by its title or command line.

    Attributes:
        name: What the process does; back references (`\1`) take what the pattern caught: a worker's rank.
        pattern: Searched in the process's title, or in its command line as `procfs.command` writes it.
    """

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class ExposedNumber:
    """One way in which a server writes a number into its metrics.

    Attributes:
        name: The Prometheus name, with or without `_total`; of a distribution, the name without `_bucket`.
        where: Only samples whose labels have one of these values: {"finished_reason": ("error", "abort")}; a
            label that is not there counts as empty, as in PromQL.
        scale: What turns the server's unit into the metric's: 1e-3 for milliseconds.
        plus: Further names that are added where they are there: the server divides what the metric means.
        at_end: This counter moves when a request ends, by all that the request was: it tells nothing of a request
            that runs, and is never read as the metric itself but as that "of requests that ended"
            (`vocabulary.ENDED`). All other counters move as the work is done: with each step, or when a prompt is
            done.
    """

    name: str
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scale: float = 1.0
    plus: tuple[str, ...] = ()
    at_end: bool = False


class Feature(StrEnum):
    """What a server can be told and what advice depends on: the keys of `Engine.knobs`.

    The first are on or off (or say of which kind they are); those from MAX_RUNNING on are numbers.
    """

    CUDA_GRAPHS = "cuda_graphs"
    TORCH_COMPILE = "torch_compile"
    ASYNC_SCHEDULING = "async_scheduling"
    PREFIX_CACHING = "prefix_caching"
    CHUNKED_PREFILL = "chunked_prefill"
    QUANTIZATION = "quantization"
    KV_CACHE_DTYPE = "kv_cache_dtype"
    SPECULATIVE_DECODING = "speculative_decoding"
    EXPERT_PARALLEL = "expert_parallel"
    SLEEP_WHEN_IDLE = "sleep_when_idle"
    KV_OFFLOADING = "kv_offloading"
    MAX_RUNNING = "max_running"
    """Requests that run at once, at most."""
    MAX_BATCHED_TOKENS = "max_batched_tokens"
    """Tokens of one step."""
    MAX_LENGTH = "max_length"
    """Tokens of one request, prompt and output."""
    GPU_MEMORY_SHARE = "gpu_memory_share"
    KV_BLOCKS = "kv_blocks"
    KV_BLOCK_SIZE = "kv_block_size"
    TENSOR_PARALLEL = "tensor_parallel"
    PIPELINE_PARALLEL = "pipeline_parallel"
    DATA_PARALLEL = "data_parallel"
    API_SERVERS = "api_servers"
    """Processes or threads that tokenise and answer."""
    CPU_THREADS = "cpu_threads"
    """Threads of the pools that compute on the CPU: OpenMP, BLAS, compilers."""


@dataclass(frozen=True, slots=True)
class Default:
    """What a server does where it was told nothing.

    Attributes:
        since: The first version that does so; empty for all.
        unless: Where one of these is on, the server decides otherwise, and the default proves nothing.
    """

    value: Value | Unknown
    since: str = ""
    unless: tuple[Feature, ...] = ()


@dataclass(frozen=True, slots=True)
class Knob:
    """How one server is told one thing, and how it says what it was told.

    Attributes:
        flags: Flags with a value, the usual one first. "--a.b" is found in "--a.b=1" and in the JSON of "--a" too.
        switches: Flags without a value, and what each means: {"--enforce-eager": "off"}; "-O=0" is one with that value.
        variables: Variables of the environment with a value as behind `flags`.
        labels: Labels of the engine's `info` metrics that tell it.
        words: What the engine's own words mean: {"none": "off"}; compared in small letters. "true", "false" and
            "none" mean on and off without being listed.
        defaults: The newest version's first.
        change: How people change it: "--max-num-seqs", "start without --enforce-eager"; empty where they cannot.
        undo: Said in place of `change` of what was told: what is free by default and better left so.
        since: The first version that has `change`.
        until: The first version that has it no more.
    """

    flags: tuple[str, ...] = ()
    switches: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    words: Mapping[str, Value] = field(default_factory=dict)
    defaults: tuple[Default, ...] = ()
    change: str = ""
    undo: str = ""
    since: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class FormerDefault:
    """A variable with which versions before `until` do what `version` did by default."""

    variable: str
    value: str
    version: str
    until: str


KEPT_NAME = 15
"""Bytes that Linux keeps of a process's name (TASK_COMM_LEN)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What llmtop knows of one LLM server, as data: one file in `llmtop.servers` each.

    Attributes:
        kind: The key: "vllm".
        title: The name that people use: "vLLM".
        roles: The first that matches wins; a process that matches none of any engine is not a server's front.
        library: A pattern in the names of mapped files, for processes whose title says nothing.
        port: Where it listens unless told otherwise; `port_flags` and `port_variable` tell it.
        model_flags: Flags naming the model, the most telling first; a positional one stands behind `model_after`.
        metrics_paths: Where its Prometheus text is; empty when it has none. Only paths that are safe to read.
        prefixes: What its metric names begin with, ":" written as "_".
        metrics_remedy: What turns its metrics on.
        names: Where each number is; the first sample that is there wins, so newer names stand first.
        distributions: Likewise for histograms.
        means: Latencies of which only a counter of the sum and one of the number are there, in this order.
        remarks: What a number leaves out, in a few words: "aborts not counted".
        slots_path: A JSON page of the requests that run, with the tokens of each so far (llama-server's /slots), and
            what turns it on.
        replicas: Labels over which a number is repeated, not divided: the ranks of one tensor-parallel group.
        model_labels: Labels whose value is the model's name.
        info: Names whose labels tell something of the server's set-up, with the labels worth showing.
        version_path: A JSON document with its version, under `version_key`.
        package: The Python package whose installed version is its own, where no page tells it.
        backs: A pattern of the roles that face no clients: whatever they listen on is not HTTP.
        socket_flags: Flags naming a Unix socket that it listens on instead of a port.
        alias_flags: Flags naming what clients call the model.
        knobs: What it can be told; a feature that is not there is one that it does not have.
        config_flags: Flags that name a file of further flags, as "key: value" lines.
        config_wins: Whether that file counts more than the command line.
        formers: Variables that bring back the defaults of an older version.
        titles: Titles of its processes longer than the name that Linux keeps of a process, by which a zombie is told.
        cores: By the role of its root, that of the process below it that runs the model and is always there.
        core_elsewhere: A pattern of command lines of a root with which that one, or a rank, is not below it: in
            the same process, or on another node.
        preempts: Whether it may throw running requests out of its KV cache; those that give a request all its room
            before they start it never do.
    """

    kind: str
    title: str
    roles: tuple[Role, ...]
    port: int
    metrics_paths: tuple[str, ...] = ("/metrics",)
    prefixes: tuple[str, ...] = ()
    metrics_remedy: str = ""
    names: Mapping[Metric, tuple[ExposedNumber, ...]] = field(default_factory=dict)
    distributions: Mapping[Metric, tuple[ExposedNumber, ...]] = field(default_factory=dict)
    means: Mapping[Metric, tuple[ExposedNumber, ExposedNumber]] = field(default_factory=dict)
    remarks: Mapping[Metric, str] = field(default_factory=dict)
    slots_path: str = ""
    slots_remedy: str = ""
    port_flags: tuple[str, ...] = ("--port",)
    port_variable: str = ""
    model_flags: tuple[str, ...] = ("--model",)
    model_after: tuple[str, ...] = ()
    dtype_flags: tuple[str, ...] = ("--dtype",)
    library: str = ""
    replicas: tuple[str, ...] = ()
    model_labels: tuple[str, ...] = ("model_name",)
    info: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version_path: str = ""
    version_key: str = "version"
    package: str = ""
    backs: str = ""
    socket_flags: tuple[str, ...] = ("--uds", "--unix-socket")
    alias_flags: tuple[str, ...] = ()
    knobs: Mapping[Feature, Knob] = field(default_factory=dict)
    config_flags: tuple[str, ...] = ()
    config_wins: bool = False
    formers: tuple[FormerDefault, ...] = ()
    titles: tuple[str, ...] = ()
    cores: Mapping[str, str] = field(default_factory=dict)
    core_elsewhere: str = ""
    preempts: bool = True

    def role(self, command_line: str) -> str | None:
        """The role of a process with this title or command line; None when it is none of this server's."""
        for role in self.roles:
            match = re.search(role.pattern, command_line)
            if match:
                return match.expand(role.name)
        return None

    def role_by_name(self, name: str) -> str | None:
        """The role of a process that has only its short name left, as a zombie has; None when it is none of these."""
        whole = (title for title in self.titles if len(name) == KEPT_NAME and title.startswith(name))
        return self.role(next(whole, name))
