"""The data every part of llmtop speaks: frozen values with their units, and nothing else.

One container, `Trace`: what a parser returns, what a collector's poll returns (small), what the recorder
freezes a window into, what every rule and pane takes. All times in a trace are nanoseconds on one clock: the
host's monotonic clock live, the capture's clock in a file.

Text from outside (kernel names, process titles, metric labels) enters a trace only through `llmtop.text.clean`.

Each module holds one sort of thing; all of them are imported from here.
"""

from llmtop.model.counts import CacheLine, EventCount, LineAccess, MemoryAccesses, ThreadScheduling
from llmtop.model.engines import KEPT_NAME, Default, Engine, ExposedNumber, Feature, FormerDefault, Knob, Role
from llmtop.model.findings import Finding, IdleTime, Issue, Severity, Stretch
from llmtop.model.kernels import (
    ChartKind,
    Instances,
    KernelCode,
    KernelCodes,
    KernelDetails,
    KernelTable,
    RuleResult,
    SectionChart,
    SectionTable,
    SourceText,
)
from llmtop.model.marks import (
    CoreDump,
    FailedWarp,
    GpuFault,
    Mark,
    MarkKind,
    ProcessEnd,
    Restart,
    SanitizerError,
    XidReport,
)
from llmtop.model.notes import NO_NOTES, Notes
from llmtop.model.origins import KINETO, LIVE, NVPROF, RECORDING, ClockBasis, ClockFit, Origin, RankPart
from llmtop.model.series import TORCH_ALLOCATED, TORCH_GROWN, TORCH_RESERVED, Metric, Reading, Series
from llmtop.model.sources import Source, SourceLane, Sources
from llmtop.model.spans import (
    API_CALLS,
    FROM_BEFORE,
    GIVING_BACK_LOST,
    GPU_WORK,
    MIGRATED,
    NOT_GIVEN_BACK,
    NOTED_ADDRESS,
    NOTED_FAULTS,
    NOTED_INSTRUCTION,
    SpanKind,
    SpanTable,
)
from llmtop.model.stacks import Stack, StackWindow
from llmtop.model.targets import DEMO, PLAIN_PROCESS, PLAIN_ROLE, Target, TargetProcess
from llmtop.model.trace import Trace
from llmtop.model.tracks import Track, TrackId, TrackKind
from llmtop.model.values import NS_PER_S, Fact, Missing, Quantity, Unknown, UnknownKind, Value, What

__all__ = [
    "API_CALLS",
    "DEMO",
    "FROM_BEFORE",
    "GIVING_BACK_LOST",
    "GPU_WORK",
    "KEPT_NAME",
    "KINETO",
    "LIVE",
    "MIGRATED",
    "NOTED_ADDRESS",
    "NOTED_FAULTS",
    "NOTED_INSTRUCTION",
    "NOT_GIVEN_BACK",
    "NO_NOTES",
    "NS_PER_S",
    "NVPROF",
    "PLAIN_PROCESS",
    "PLAIN_ROLE",
    "RECORDING",
    "TORCH_ALLOCATED",
    "TORCH_GROWN",
    "TORCH_RESERVED",
    "CacheLine",
    "ChartKind",
    "ClockBasis",
    "ClockFit",
    "CoreDump",
    "Default",
    "Engine",
    "EventCount",
    "ExposedNumber",
    "Fact",
    "FailedWarp",
    "Feature",
    "Finding",
    "FormerDefault",
    "GpuFault",
    "IdleTime",
    "Instances",
    "Issue",
    "KernelCode",
    "KernelCodes",
    "KernelDetails",
    "KernelTable",
    "Knob",
    "LineAccess",
    "Mark",
    "MarkKind",
    "MemoryAccesses",
    "Metric",
    "Missing",
    "Notes",
    "Origin",
    "ProcessEnd",
    "Quantity",
    "RankPart",
    "Reading",
    "Restart",
    "Role",
    "RuleResult",
    "SanitizerError",
    "SectionChart",
    "SectionTable",
    "Series",
    "Severity",
    "Source",
    "SourceLane",
    "SourceText",
    "Sources",
    "SpanKind",
    "SpanTable",
    "Stack",
    "StackWindow",
    "Stretch",
    "Target",
    "TargetProcess",
    "ThreadScheduling",
    "Trace",
    "Track",
    "TrackId",
    "TrackKind",
    "Unknown",
    "UnknownKind",
    "Value",
    "What",
    "XidReport",
]
