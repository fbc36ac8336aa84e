"""Does the live roofline tell the truth? Known work on a GPU, beside what llmtop says of it while it runs.

    python benchmarks/gpu_truth.py                      every workload, 45 s: a table, exit 1 where one is out of bounds
    python benchmarks/gpu_truth.py --only bf16 copy     some of them
    python benchmarks/gpu_truth.py decode --seconds 60  a target to attach to: prefill, decode and idle in turn

FLOP/s are told twice: by the true SM clock, as llmtop shows them, and by NVML's. Where llmtop does not find the true
one the first column is empty, and NVML's is what it shows.

Needs a GPU with GPM (Hopper or newer), torch with CUDA, and the GPU to itself. docs/gpu-checks.md has the procedure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmtop import vocabulary as v
from llmtop.analysis.roofline.live import live_view
from llmtop.analysis.roofline.rates import Rates, newest_rates
from llmtop.analysis.series.readings import gpu_tracks, latest
from llmtop.collectors.nvml.collector import NvmlCollector
from llmtop.model import NS_PER_S, Origin, Trace, Unknown
from llmtop.session import Session

if TYPE_CHECKING:
    from llmtop.analysis.views import RooflineView

POLL_S = 0.25
SETTLE_S = 0.6
"""From one workload to the next: the last GPM window of the one must not reach into the other."""
SIDE = 8192
WARM_S = 4.0
"""Of the first workload before it counts: the true clock is found in some seconds of load."""
WIDE = 16384
GEMM_FLOP = 2.0 * SIDE**3

Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Work:
    """One repeatable step on the GPU and what it takes; 0 where that is not counted."""

    step: Step
    flop: float = 0.0
    byte: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Known work, and the bounds of llmtop's value over the work done.

    Attributes:
        dtype: What llmtop is told that the program computes in.
        make: Prepares the tensors; given torch, so that this file imports without it.
        flops: Lowest and highest ratio of FLOP/s. An upper bound has a high second number.
        bytes: Likewise of DRAM bytes/s.
    """

    name: str
    dtype: str
    make: Callable[[Any], Work]
    flops: tuple[float, float] | None = None
    bytes: tuple[float, float] | None = None


def _gemm(dtype: str, precision: str = "highest") -> Callable[[Any], Work]:
    def make(torch: Any) -> Work:
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
        out = torch.empty_like(a)
        return Work(lambda: torch.mm(a, b, out=out), GEMM_FLOP)

    return make


def _fp8_gemm(torch: Any) -> Work:
    a = torch.randn(SIDE, SIDE, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(SIDE, SIDE, device="cuda").to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    return Work(
        lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True),
        GEMM_FLOP,
    )


def _copy(torch: Any) -> Work:
    source = torch.empty(1 << 30, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    return Work(lambda: target.copy_(source), byte=2.0 * source.numel() * 4)


def _reduction(torch: Any) -> Work:
    source = torch.zeros(1 << 30, device="cuda", dtype=torch.float32)
    return Work(lambda: source.sum(), byte=4.0 * source.numel())


def _skinny(batch: int) -> Callable[[Any], Work]:
    """A decode's matrix multiplication: all weights are read for a few rows of activations."""

    def make(torch: Any) -> Work:
        weights = torch.randn(WIDE, WIDE, device="cuda", dtype=torch.bfloat16)
        rows = torch.randn(batch, WIDE, device="cuda", dtype=torch.bfloat16)
        out = torch.empty_like(rows)
        byte = 2.0 * (WIDE * WIDE + 2 * batch * WIDE)
        return Work(lambda: torch.mm(rows, weights, out=out), 2.0 * batch * WIDE * WIDE, byte)

    return make


# Bounds follow from what was measured on an H100 SXM (docs/gpu-checks.md), with 2 to 3 % added for other boards.
WORKLOADS = (
    Workload("bf16 GEMM 8192", "bfloat16", _gemm("bfloat16"), flops=(0.97, 1.04)),
    Workload("fp16 GEMM 8192", "float16", _gemm("float16"), flops=(0.97, 1.04)),
    Workload("tf32 GEMM 8192", "tf32", _gemm("float32", "high"), flops=(0.97, 1.04)),
    Workload("fp8 GEMM 8192", "fp8", _fp8_gemm, flops=(0.95, 1.04)),
    Workload("fp32 GEMM 8192", "float32", _gemm("float32"), flops=(0.98, 1.12)),
    Workload("copy 4 GiB", "bfloat16", _copy, bytes=(0.97, 1.03)),
    Workload("reduction 4 GiB", "bfloat16", _reduction, bytes=(0.97, 1.03)),
    Workload("bf16 GEMV 16384", "bfloat16", _skinny(1), flops=(1.0, 16.0), bytes=(0.97, 1.03)),
    Workload("bf16 batch 64", "bfloat16", _skinny(64), flops=(0.97, 1.08), bytes=(0.97, 1.03)),
)


@dataclass(slots=True)
class Looks:
    """What llmtop said at each poll while a workload ran: its roofline view and its rates."""

    dtype: str = ""
    gpu: str = "gpu:0"
    seen: list[tuple[int, RooflineView, Rates | Unknown, float | Unknown]] = field(default_factory=list)
    trace: Trace | None = None

    def look(self, trace: Trace) -> None:
        """Take one look; called from the collector's thread."""
        self.trace = trace
        view = live_view(trace, self.gpu, self.dtype)
        rates = newest_rates(trace, self.gpu, self.dtype)
        self.seen.append((trace.end_ns, view, rates, latest(trace, self.gpu, v.GPU_SM_CLOCK)))

    def between(self, start_ns: int, end_ns: int) -> list[tuple[RooflineView, Rates, float | Unknown]]:
        """Looks whose GPM window lies inside the span."""
        first_ns = start_ns + int(1.2 * POLL_S * NS_PER_S)
        return [
            (view, rates, nvml_mhz)
            for t_ns, view, rates, nvml_mhz in list(self.seen)
            if first_ns <= t_ns <= end_ns and not isinstance(rates, Unknown) and rates.t_ns == t_ns
        ]


@dataclass(frozen=True, slots=True)
class Row:
    """One workload: done, said, and whether that fits.

    Attributes:
        said_flops: By the true clock; by NVML's where the true one was not found.
        nvml_flops: By NVML's clock, over the same windows.
    """

    name: str
    done_flops: float = 0.0
    said_flops: float | None = None
    done_bytes: float = 0.0
    said_bytes: float | None = None
    sm_mhz: float | None = None
    quality: str = ""
    looks: int = 0
    verdict: str = ""
    nvml_flops: float | None = None
    nvml_mhz: float | None = None
    is_true_clock: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether this row fails the check; a workload that this machine cannot run does not."""
        return not self.verdict.startswith(("ok", "skipped"))

    @property
    def true_flops(self) -> float | None:
        """FLOP/s by the true clock, where it was found."""
        return self.said_flops if self.is_true_clock else None


def judge(workload: Workload, row: Row) -> str:
    """Whether what was said lies within the workload's bounds: "ok" or what is out of them.

    >>> judge(Workload("x", "bf16", lambda torch: Work(int), flops=(0.9, 1.1)), Row("x", 100.0, 120.0, looks=5))
    'FLOP/s 1.200 not in 0.9..1.1'
    """
    if row.looks < 3:
        return f"only {row.looks} looks"
    wrong = [
        f"{what} {'unknown' if said is None else f'{said / done:.3f}'} not in {bounds[0]}..{bounds[1]}"
        for what, bounds, done, said in (
            ("FLOP/s", workload.flops, row.done_flops, row.said_flops),
            ("bytes/s", workload.bytes, row.done_bytes, row.said_bytes),
        )
        if bounds is not None and not (said is not None and bounds[0] <= said / done <= bounds[1])
    ]
    return "; ".join(wrong) or "ok"


def run_workload(torch: Any, workload: Workload, looks: Looks, seconds: float) -> Row:
    """Run one workload while llmtop looks at it."""
    try:
        work = workload.make(torch)
        work.step()
        torch.cuda.synchronize()
    except (RuntimeError, AttributeError) as error:
        return Row(workload.name, verdict=f"skipped: {str(error).splitlines()[0][:60]}")
    looks.dtype = workload.dtype
    steps, start_ns, end_ns = _repeat(torch, work.step, seconds)
    time.sleep(SETTLE_S)
    elapsed = (end_ns - start_ns) / NS_PER_S
    done = Row(workload.name, work.flop * steps / elapsed, done_bytes=work.byte * steps / elapsed)
    del work
    torch.cuda.empty_cache()
    return _said(workload, done, looks.between(start_ns, end_ns))


def _repeat(torch: Any, step: Step, seconds: float) -> tuple[int, int, int]:
    """Repeat a step; (steps, start, end). Batches of about 50 ms keep the GPU busy and the clock honest."""
    once_ns = min(_timed(torch, step, 1) for _ in range(3))
    batch = max(1, 50_000_000 // max(1, once_ns))
    steps, start_ns = 0, time.monotonic_ns()
    while (now_ns := time.monotonic_ns()) - start_ns < seconds * NS_PER_S:
        _timed(torch, step, batch)
        steps += batch
    return steps, start_ns, now_ns


def _timed(torch: Any, step: Step, times: int) -> int:
    start_ns = time.monotonic_ns()
    for _ in range(times):
        step()
    torch.cuda.synchronize()
    return time.monotonic_ns() - start_ns


def _said(workload: Workload, done: Row, looks: list[tuple[RooflineView, Rates, float | Unknown]]) -> Row:
    looks = [look for look in looks if look[1].is_true_clock] or looks
    points = [view.points[0] for view, _, _ in looks if view.points]
    by_nvml = [
        (view.points[0].flops_per_s * nvml_mhz / rates.sm_mhz, nvml_mhz)
        for view, rates, nvml_mhz in looks
        if view.points and not isinstance(nvml_mhz, Unknown)
    ]
    row = Row(
        done.name,
        done.done_flops,
        statistics.fmean(point.flops_per_s for point in points) if points else None,
        done.done_bytes,
        statistics.fmean(rates.bytes_per_s for _, rates, _ in looks) if looks else None,
        statistics.fmean(rates.sm_mhz for _, rates, _ in looks) if looks else None,
        points[0].quality.value if points else "",
        len(looks),
        nvml_flops=statistics.fmean(flops for flops, _ in by_nvml) if by_nvml else None,
        nvml_mhz=statistics.fmean(mhz for _, mhz in by_nvml) if by_nvml else None,
        is_true_clock=bool(looks) and looks[0][1].is_true_clock,
    )
    return replace(row, verdict=judge(workload, row))


def run_idle(looks: Looks, seconds: float) -> Row:
    """Do nothing: there must be no point, and "idle" as the reason."""
    looks.dtype = "bfloat16"
    time.sleep(SETTLE_S)
    start_ns = time.monotonic_ns()
    time.sleep(seconds)
    seen = looks.between(start_ns, time.monotonic_ns())
    reasons = {view.why_not.reason.split(":")[0] if view.why_not else "a point" for view, _, _ in seen}
    verdict = "ok" if reasons == {"idle"} else f"expected idle, saw {', '.join(sorted(reasons)) or 'nothing'}"
    said = statistics.fmean(rates.bytes_per_s for _, rates, _ in seen) if seen else None
    return Row("idle", said_bytes=said, looks=len(seen), verdict=verdict)


class TimedCollector(NvmlCollector):
    """The collector, and how long its polls take."""

    def __init__(self) -> None:
        super().__init__()
        self.poll_ms: list[float] = []

    def poll(self) -> Trace:
        start_ns = time.monotonic_ns()
        trace = super().poll()
        self.poll_ms.append((time.monotonic_ns() - start_ns) / 1e6)
        return trace


def check(options: argparse.Namespace) -> int:
    """Run the workloads; 0 when all are within bounds."""
    torch = _torch()
    collector, looks = TimedCollector(), Looks()
    session = Session([collector], Origin("live"), interval_s=POLL_S, window_s=60)
    first = threading.Event()

    def on_news() -> None:
        looks.look(session.trace())
        first.set()

    session.on_news = on_news
    session.start()
    try:
        if not first.wait(30):
            sys.exit("NVML did not answer within 30 s")
        looks.gpu = _track_of_device(torch, session.trace())
        chosen = [
            workload
            for workload in WORKLOADS
            if not options.only or any(part in workload.name for part in options.only)
        ]
        for workload in chosen[:1]:
            run_workload(torch, workload, looks, WARM_S)
        rows = [run_workload(torch, workload, looks, options.seconds) for workload in chosen]
        if not options.only or "idle" in options.only:
            rows.append(run_idle(looks, options.seconds))
    finally:
        session.stop()
    _report(rows, looks, collector.poll_ms)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    return int(any(row.is_wrong for row in rows))


def _track_of_device(torch: Any, trace: Trace) -> str:
    """The track of torch's first device; by UUID, because CUDA_VISIBLE_DEVICES renumbers what torch sees."""
    tracks = gpu_tracks(trace)
    if not tracks:
        reasons = "; ".join(str(missing.why) for missing in trace.missing)
        sys.exit(f"llmtop sees no GPU: {reasons}")
    uuid = f"GPU-{getattr(torch.cuda.get_device_properties(0), 'uuid', '')}"
    return next((track.id for track in tracks if track.facts.get("uuid") == uuid), tracks[0].id)


def _report(rows: list[Row], looks: Looks, poll_ms: list[float]) -> None:
    trace = looks.trace
    if trace is not None:
        facts = trace.tracks[looks.gpu].facts
        print(f"{facts['name']}, driver {facts['driver']}, power limit {_watts(trace, looks.gpu)}; {looks.gpu}")
    print(
        f"{'work':<16} {'TFLOP/s':>8} {'by true':>8} {'ratio':>6} {'by NVML':>8} {'ratio':>6} {'GB/s':>7} {'llmtop':>7}"
        f" {'ratio':>6} {'true':>5} {'NVML':>5}",
        end="",
    )
    print("  quality      looks verdict")
    for row in rows:
        print(
            f"{row.name:<16} {_scaled(row.done_flops, 1e12):>8} {_scaled(row.true_flops, 1e12):>8}"
            f" {_ratio(row.true_flops, row.done_flops):>6} {_scaled(row.nvml_flops, 1e12):>8}"
            f" {_ratio(row.nvml_flops, row.done_flops):>6} {_scaled(row.done_bytes, 1e9, 0):>7}"
            f" {_scaled(row.said_bytes, 1e9, 0):>7} {_ratio(row.said_bytes, row.done_bytes):>6}"
            f" {_scaled(row.sm_mhz if row.is_true_clock else None, 1, 0):>5} {_scaled(row.nvml_mhz, 1, 0):>5}"
            f"  {row.quality:<12} {row.looks:>5} {row.verdict}"
        )
    if poll_ms:
        print(f"one poll: median {statistics.median(poll_ms):.2f} ms, longest {max(poll_ms):.2f} ms of {len(poll_ms)}")


def _watts(trace: Trace, gpu: str) -> str:
    limit = latest(trace, gpu, v.GPU_POWER_LIMIT)
    return limit.reason if isinstance(limit, Unknown) else f"{limit:.0f} W"


def _scaled(value: float | None, unit: float, digits: int = 1) -> str:
    return "-" if not value else f"{value / unit:.{digits}f}"


def _ratio(said: float | None, done: float) -> str:
    return f"{said / done:.3f}" if said is not None and done else "-"


def decode(options: argparse.Namespace) -> int:
    """Behave like an LLM server, with NVTX ranges and no network: something to attach to.

    Prints its PID first, then what each phase really did.
    """
    torch = _torch()
    layers = _layers(torch, options.layers)
    parameters = sum(weight.numel() for layer in layers for weight in layer)
    flop_per_row, weight_bytes = 2.0 * parameters, 2.0 * parameters
    print(f"pid {os.getpid()}: {weight_bytes / 2**30:.1f} GiB of bf16 weights, batch {options.batch}", flush=True)
    end = time.monotonic() + options.seconds if options.seconds else float("inf")
    with contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() < end:
            for name, rows, seconds in (("prefill", 4096, 3.0), ("decode", options.batch, 8.0)):
                seconds = min(seconds, max(0.1, end - time.monotonic()))
                steps, elapsed = _phase(torch, layers, name, rows, seconds)
                flops, traffic = flop_per_row * rows * steps / elapsed, weight_bytes * steps / elapsed
                print(f"{name:<8} {flops / 1e12:7.1f} TFLOP/s  weights {traffic / 1e9:6.0f} GB/s", flush=True)
            torch.cuda.nvtx.range_push("idle")
            time.sleep(min(3.0, max(0.0, end - time.monotonic())))
            torch.cuda.nvtx.range_pop()
    return 0


def _layers(torch: Any, number: int) -> list[list[Any]]:
    """The matrices of a Llama-3-8B-like model: attention in and out, MLP in and out."""
    shapes = ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096))
    return [[torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / 64 for shape in shapes] for _ in range(number)]


def _phase(torch: Any, layers: list[list[Any]], name: str, rows: int, seconds: float) -> tuple[int, float]:
    """Push rows through all layers again and again; (steps, seconds)."""
    hidden = torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16)
    wide = torch.randn(rows, 14336, device="cuda", dtype=torch.bfloat16)
    steps, start = 0, time.monotonic()
    torch.cuda.nvtx.range_push(name)
    while time.monotonic() - start < seconds:
        for attention_in, attention_out, mlp_in, mlp_out in layers:
            for rows_in, weight in ((hidden, attention_in), (hidden, attention_out), (hidden, mlp_in), (wide, mlp_out)):
                torch.mm(rows_in, weight)
        torch.cuda.synchronize()
        steps += 1
    torch.cuda.nvtx.range_pop()
    return steps, time.monotonic() - start


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        sys.exit("this needs torch with CUDA: pip install torch")
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here")
    return torch


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("check", "decode"), default="check")
    parser.add_argument("--seconds", type=float, help="per workload (2.5), or of the decode loop (endless)")
    parser.add_argument("--only", nargs="+", default=[], help="workloads whose name contains one of these")
    parser.add_argument("--json", help="write the rows here too")
    parser.add_argument("--batch", type=int, default=16, help="rows of a decode step")
    parser.add_argument("--layers", type=int, default=32, help="layers of the decode loop's model")
    options = parser.parse_args()
    if options.mode == "decode":
        return decode(options)
    options.seconds = options.seconds or 2.5
    return check(options)


if __name__ == "__main__":
    sys.exit(main())
