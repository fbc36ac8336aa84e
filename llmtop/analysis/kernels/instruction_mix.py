"""What a kernel executes: its instructions by opcode, and how busy that keeps the pipes of an SM.

By the counters of Nsight Compute's sections InstructionStats and ComputeWorkloadAnalysis (Kernel Profiling Guide,
Metrics Reference: pipelines). Where opcodes were not counted, instructions that were counted one by one are added up by
the opcodes of their text, if a disassembler is there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.counters import Counters, number, quotient
from llmtop.analysis.kernels.counting import not_collected, not_counted
from llmtop.analysis.kernels.section_page import PagePart, PageRow, SectionPage
from llmtop.analysis.kernels.table import kernels_of
from llmtop.model import Instances, Unknown
from llmtop.units import si

if TYPE_CHECKING:
    from llmtop.model import KernelTable, Trace

SOURCE = "counters of Nsight Compute's instruction statistics and compute workload (InstructionStats, ...Analysis)"
_INSTRUCTIONS, _PIPES = "InstructionStats", "ComputeWorkloadAnalysis"
_OPCODES = "sass__inst_executed_per_opcode"
_CATEGORIES = "sass__inst_executed_per_opcode_category"
_BY_ADDRESS = "inst_executed"
_EXECUTED = (
    ("executed", "smsp__inst_executed.sum", "instructions of warps"),
    ("issued", "smsp__inst_issued.sum", "what was issued again counts again"),
    ("in a cycle", "sm__inst_executed.avg.per_cycle_active", "of an SM: its schedulers issue one each at most"),
    ("threads", "smsp__thread_inst_executed_per_inst_executed.ratio", "that took part in an instruction, of 32"),
    ("not switched off", "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio", "by a predicate, of these 32"),
)
_WARP = 32
_OF_PEAK = r"\.(?:avg|sum)\.pct_of_peak_sustained_active"
_BUSY = re.compile(rf"sm__pipe_(\w+?)_cycles_active{_OF_PEAK}")
_FED = re.compile(rf"sm__inst_executed_pipe_(\w+?){_OF_PEAK}")
_OF_PIPES: Mapping[str, str] = {
    "adu": "branches by address, barriers, constants by index",
    "alu": "integers, logic, comparisons",
    "cbu": "branches, convergence of a warp",
    "fma": "FP32 multiply and add, integer multiply",
    "fmaheavy": "the half of the FMA pipe that multiplies integers too",
    "fmalite": "the half of the FMA pipe for FP32 alone",
    "fp16": "FP16 outside of tensor cores",
    "fp64": "FP64 outside of tensor cores",
    "lsu": "loads, stores, atomics, shuffles",
    "shared": "what FP64, FP16 and tensor instructions share",
    "tensor": "matrix multiplications",
    "tensor_op_dmma": "matrix multiplications in FP64",
    "tensor_op_gmma": "matrix multiplications of warp groups",
    "tensor_op_hmma": "matrix multiplications in 16-bit floats and TF32",
    "tensor_op_imma": "matrix multiplications of integers",
    "tex": "textures",
    "tma": "copies of whole tiles",
    "uniform": "what is the same for all threads of a warp, once",
    "xu": "exponentials, roots, sines, conversions between types",
}
_OPCODE = re.compile(r"^\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")
"""Of the text of an instruction, which a predicate may come before."""
_ALL = 100.0


def instruction_mix(trace: Trace, launch: int) -> SectionPage | Unknown:
    """The instructions of one launch; why nothing is known of them."""
    if (why := not_counted(trace)) is not None:
        return why
    table, metrics = kernels_of(trace).table, kernels_of(trace).metrics(launch)
    mix, pipes = tuple(_mix(table, launch)), tuple(_pipes(metrics))
    sections = [*([] if mix else [_INSTRUCTIONS]), *([] if pipes else [_PIPES])]
    why = not_collected(trace, launch, "instructions by opcode, or use of pipes,", *sections) if sections else None
    parts = (*_counts(metrics), *pipes, *mix)
    return SectionPage(launch, parts, SOURCE, why) if parts or why is None else why


def _counts(metrics: Counters) -> Iterator[PagePart]:
    known = [(name, value, metric, says) for name, metric, says in _EXECUTED if (value := number(metrics, metric))]
    rows = tuple(PageRow(name, value, "", _of_warp(metric, value), metric, says) for name, value, metric, says in known)
    if rows:
        yield PagePart("Instructions", rows)


def _of_warp(metric: str, value: float) -> float | None:
    return value / _WARP if "thread" in metric else None


def _pipes(metrics: Counters) -> Iterator[PagePart]:
    for title, pattern in (("Pipes, busy", _BUSY), ("Pipes, instructions of what they take", _FED)):
        shares = {found[1]: name for name in sorted(metrics) if (found := pattern.fullmatch(name))}
        known = {pipe: (value, name) for pipe, name in shares.items() if (value := number(metrics, name))}
        rows = tuple(
            PageRow(pipe, value, "%", value / _ALL, name, _OF_PIPES.get(pipe, ""))
            for pipe, (value, name) in sorted(known.items(), key=lambda one: -one[1][0])
        )
        idle = ", ".join(sorted(shares.keys() - known.keys()))
        if shares:
            yield PagePart(f"{title} (% of active cycles)", rows, (f"unused: {idle}",) if idle else ())


def _mix(table: KernelTable, launch: int) -> Iterator[PagePart]:
    """By kind, where the report tells kinds, and by opcode."""
    for title, metric in (("Instructions by kind", _CATEGORIES), ("Instructions by opcode", _OPCODES)):
        if counts := _by_key(table, launch, metric):
            yield _ranked(title, counts, metric)
            if metric == _OPCODES:
                return
    if counts := _by_text(table, launch):
        yield _ranked("Instructions by opcode", counts, _BY_ADDRESS)


def _ranked(title: str, counts: Mapping[str, float], metric: str) -> PagePart:
    total = sum(counts.values())
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    rows = tuple(PageRow(name, count, "inst", quotient(count, total), metric) for name, count in ranked)
    return PagePart(title, rows, (f"{si(total)} instructions of warps in all",))


def _by_key(table: KernelTable, launch: int, metric: str) -> dict[str, float]:
    found = None if table.details is None else table.details.instances(launch, metric)
    if not isinstance(found, Instances):
        return {}
    pairs = zip(found.keys, found.values, strict=True) if found.keys else ()
    return {str(key): float(value) for key, value in pairs if not isinstance(value, str) and value}


def _by_text(table: KernelTable, launch: int) -> dict[str, float]:
    """By address, and what a disassembler says of that."""
    texts = Unknown("no code") if table.codes is None else table.codes.assembly(launch)
    if table.codes is None or isinstance(texts, Unknown) or _BY_ADDRESS not in table.codes.metrics(launch):
        return {}
    counts: Counter[str] = Counter()
    for address, count in table.codes.values(launch, _BY_ADDRESS).items():
        if count and (found := _OPCODE.match(texts.get(address, ""))):
            counts[found[1]] += int(count)
    return dict(counts)
