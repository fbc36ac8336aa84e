"""Reports made of dictionaries, for tests of what is done with them."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmtop import ids
from llmtop.analysis.kernels.source import KernelSource, kernel_source
from llmtop.analysis.kernels.stalls import REASONS
from llmtop.model import (
    Instances,
    KernelTable,
    Origin,
    RuleResult,
    SectionTable,
    SpanTable,
    Trace,
    TrackId,
    Unknown,
    Value,
)
from llmtop.parsers.metric_units import unit_of

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT.parent / "shared" / "samples"
LADDER = ROOT / "sample_traces" / "ncu" / "2025.3.1" / "sgemm-ladder.ncu-rep.xz"
LLAMA = LADDER.with_name("llama-decode.ncu-rep.xz")
TIMELINE = ROOT / "sample_traces" / "nsys" / "2025.3.2" / "llama-prefill-decode.sqlite.xz"

COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAVES = "launch__waves_per_multiprocessor"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def without_lines(trace: Trace, function: str, offsets: Collection[int]) -> KernelSource:
    """The code of the first launch, as if instructions at these offsets were of a function that has no lines."""
    source = kernel_source(trace, 0)
    assert isinstance(source, KernelSource)
    code = source.code
    chosen = [offset in offsets for offset in code.offsets]
    source.code = replace(
        code,
        functions=(*code.functions, function),
        function_id=array(
            "q", [len(code.functions) if is_one else of for is_one, of in zip(chosen, code.function_id, strict=True)]
        ),
        file_id=array("q", [-1 if is_one else of for is_one, of in zip(chosen, code.file_id, strict=True)]),
        line=array("q", [0 if is_one else of for is_one, of in zip(chosen, code.line, strict=True)]),
    )
    return source


def stall_ratios(**by_reason: float) -> dict[str, Value]:
    """Counters of a whole WarpStateStats section: the reasons that are not named are zero."""
    return {STALL.format(reason): by_reason.get(reason, 0.0) for reason in {**REASONS, **by_reason}}


GHZ = 1e9
DRAM_COUNTERS: Mapping[str, float] = {
    "dram__bytes.sum.per_second": 1000 * GHZ,
    "dram__bytes.sum.peak_sustained": 1000.0,
    "dram__cycles_elapsed.avg.per_second": 2 * GHZ,
}
"""1 of 2 TB/s."""
CLOCKS: Mapping[str, float] = {
    "smsp__cycles_elapsed.avg.per_second": GHZ,
    "sm__cycles_elapsed.avg.per_second": GHZ,
}


def fp32_counters(fma: float, *, add: float = 0.0, peak: float = 20_000.0) -> dict[str, float]:
    """Counters of fused multiply-adds and additions per cycle at 1 GHz; the peak is in operations per cycle."""
    op = "smsp__sass_thread_inst_executed_op_"
    return {
        **CLOCKS,
        f"{op}fadd_pred_on.sum.per_cycle_elapsed": add,
        f"{op}fmul_pred_on.sum.per_cycle_elapsed": 0.0,
        f"derived__{op}ffma_pred_on_x2": 2 * fma,
        "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2": peak,
    }


@dataclass
class FakeDetails:
    """Counters and rule results in memory; `asked` is what was decoded."""

    values: Sequence[Mapping[str, Value]]
    results: Mapping[int, tuple[RuleResult, ...]] = field(default_factory=dict)
    collected: tuple[str, ...] = ()
    split: Mapping[int, Mapping[str, Instances]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def metrics(self, i: int) -> Mapping[str, Value]:
        self.asked.append(i)
        return self.values[i]

    def unit(self, metric: str) -> str:
        return unit_of(metric)

    def instances(self, i: int, metric: str) -> Instances | Unknown:
        return self.split.get(i, {}).get(metric, Unknown("not collected"))

    def rules(self, i: int) -> tuple[RuleResult, ...]:
        return self.results.get(i, ())

    def ranges(self, i: int) -> tuple[str, ...]:
        return ()

    def sections(self, i: int) -> tuple[str, ...]:
        return self.collected

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        return ()


@dataclass(frozen=True)
class Launch:
    """One launch of a report."""

    name: str
    ns: float = 1000.0
    metrics: Mapping[str, Value] = field(default_factory=dict)
    grid: tuple[int, int, int] = (64, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    function: str = ""
    rules: tuple[RuleResult, ...] = ()
    instances: Mapping[str, Instances] = field(default_factory=dict)


def report(
    *launches: Launch,
    gpu: str = "NVIDIA H100",
    counted: bool = True,
    sections: tuple[str, ...] = (),
    command: str = "",
) -> Trace:
    """A report of these launches; without counters if not `counted`."""
    names = tuple(dict.fromkeys(launch.name for launch in launches))
    functions = tuple(
        next(launch.function or launch.name for launch in launches if launch.name == name) for name in names
    )
    rules = {i: launch.rules for i, launch in enumerate(launches)}
    split = {i: launch.instances for i, launch in enumerate(launches)}
    details = FakeDetails([launch.metrics for launch in launches], rules, sections, split) if counted else None
    x, y, z = (array("q", (launch.grid[axis] for launch in launches)) for axis in range(3))
    bx, by, bz = (array("q", (launch.block[axis] for launch in launches)) for axis in range(3))
    unknown = array("q", [-1]) * len(launches)
    table = KernelTable(
        names,
        functions,
        array("q", (names.index(launch.name) for launch in launches)),
        (x, y, z),
        (bx, by, bz),
        unknown,
        array("d", (launch.ns for launch in launches)),
        unknown,
        unknown,
        details,
    )
    facts = {"command": command} if command else {}
    return Trace(Origin("ncu-rep", "made.ncu-rep", "2025.3", gpu, facts), kernels=table)


def decoded(trace: Trace) -> list[int]:
    """The launches whose counters were read so far."""
    assert trace.kernels is not None
    assert isinstance(trace.kernels.details, FakeDetails)
    return trace.kernels.details.asked


STREAM = ids.stream(ids.gpu(0), 1, 7)


def spans(kind: str, rows: Sequence[tuple[int, int, int]], track: TrackId = STREAM) -> SpanTable:
    """Spans of (start, end, join key) on one track."""
    zeros = array("q", [0]) * len(rows)
    start, end, join = (array("q", (row[i] for row in rows)) for i in range(3))
    return SpanTable(kind, (kind,), (track,), zeros, zeros, start, end, join, array("d", [float("nan")]) * len(rows))


def span_table(kind: str, *rows: tuple[str, TrackId, int, int, int, float]) -> SpanTable:
    """Spans of (name, track, start, end, correlation, bytes)."""
    names, tracks = tuple(dict.fromkeys(row[0] for row in rows)), tuple(dict.fromkeys(row[1] for row in rows))
    return SpanTable(
        kind,
        names,
        tracks,
        name_id=array("q", (names.index(row[0]) for row in rows)),
        track_id=array("q", (tracks.index(row[1]) for row in rows)),
        start_ns=array("q", (row[2] for row in rows)),
        end_ns=array("q", (row[3] for row in rows)),
        correlation=array("q", (row[4] for row in rows)),
        amount=array("d", (row[5] for row in rows)),
    )
