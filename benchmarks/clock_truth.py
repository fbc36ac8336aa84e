"""Does anything that needs no CUDA context tell the true SM clock? Every candidate beside clock64 over globaltimer.

    python benchmarks/clock_truth.py                       all loads, about a minute; tables
    python benchmarks/clock_truth.py --json FILE           and every number behind them
    python benchmarks/clock_truth.py --only bf16 fp32      some of the loads

Candidates are NVML's clocks, buffered samples and field values, what the driver counts as time throttled, energy, every
GPM metric, and the words of GPM's raw samples, in which the SMs' elapsed cycles must stand: percentages are made from
them. A candidate is good when its ratio to the true clock is the same under every load, whatever that ratio is.
Changes no setting of the GPU: the loads differ in what they draw. Needs a GPU with GPM (Hopper or newer) to itself, and
torch with CUDA.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pynvml as nvml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import table
from benchmarks.cuda_driver import STAMP, Kernel
from llmtop.collectors.nvml.cycles import denominators, find_words, raw_samples

SIDE, WIDE = 8192, 16384
WARM_S, WINDOW_S = 1.0, 1.5
"""The window is short enough that a 32-bit count of cycles wraps at most once."""
POLL_S = 0.05
FIELDS = 308
GPM_IDS = 333
GPM_CHUNK = 90
"""Older drivers take few metrics in one call."""
SAMPLING = {0: "power samples", 5: "SM clock samples", 6: "memory clock samples", 7: "module power samples"}
CLOCKS = ("graphics", "SM", "memory", "video")
CLOCK_IDS = ("current", "application target", "application default", "customer boost maximum")
HMMA, DRAM = 7, 10
LAST_PERCENT = 13
"""GPM metrics up to this id are percentages."""

Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Load:
    """Repeatable work on the GPU.

    Attributes:
        make: Prepares the tensors, given torch; the step and its FLOPs.
        rest: Share of the time in which the GPU rests.
    """

    name: str
    make: Callable[[Any], tuple[Step, float]]
    rest: float = 0.0


def _gemm(dtype: str, *, side: int = SIDE, fill: str = "randn") -> Callable[[Any], tuple[Step, float]]:
    def make(torch: Any) -> tuple[Step, float]:
        torch.set_float32_matmul_precision("highest")
        a, b = (getattr(torch, fill)(side, side, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out), 2.0 * side**3

    return make


def _fp8(torch: Any) -> tuple[Step, float]:
    a = torch.randn(SIDE, SIDE, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(SIDE, SIDE, device="cuda").to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16), 2.0 * SIDE**3


def _skinny(batch: int) -> Callable[[Any], tuple[Step, float]]:
    def make(torch: Any) -> tuple[Step, float]:
        weights = torch.randn(WIDE, WIDE, device="cuda", dtype=torch.bfloat16)
        rows = torch.randn(batch, WIDE, device="cuda", dtype=torch.bfloat16)
        out = torch.empty_like(rows)
        return lambda: torch.mm(rows, weights, out=out), 2.0 * batch * WIDE * WIDE

    return make


def _copy(torch: Any) -> tuple[Step, float]:
    source = torch.empty(1 << 29, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), 0.0


LOADS = (
    Load("bf16 random", _gemm("bfloat16")),
    Load("bf16 ones", _gemm("bfloat16", fill="ones")),
    Load("bf16 zeros", _gemm("bfloat16", fill="zeros")),
    Load("bf16 half the time", _gemm("bfloat16"), rest=0.5),
    Load("bf16 1/5 of the time", _gemm("bfloat16"), rest=0.8),
    Load("bf16 2048", _gemm("bfloat16", side=2048)),
    Load("fp16 random", _gemm("float16")),
    Load("fp8 random", _fp8),
    Load("bf16 batch 256", _skinny(256)),
    Load("bf16 batch 64", _skinny(64)),
    Load("bf16 batch 8", _skinny(8)),
    Load("fp32 random", _gemm("float32", side=4096)),
    Load("copy", _copy),
)


class TrueClock:
    """Each SM's cycles over the GPU's own nanoseconds, between two stamps in the stream of the work."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._sms: int = torch.cuda.get_device_properties(0).multi_processor_count
        self._kernel = Kernel(STAMP, "stamp")
        self._buffers = [torch.zeros(2 * 1024, dtype=torch.int64, device="cuda") for _ in range(2)]

    def stamp(self, which: int) -> None:
        """Note the first (0) or the second (1) moment."""
        self._kernel.launch(blocks=self._sms * 8, threads=256, buffer=self._buffers[which].data_ptr())

    def mhz(self) -> tuple[float, float, int]:
        """Median of the SMs that have both stamps, the spread between SMs as a share, and how many they are."""
        self._torch.cuda.synchronize()
        first, second = (buffer.cpu().view(-1, 2).tolist() for buffer in self._buffers)
        rates = [
            1e3 * (b[0] - a[0]) / (b[1] - a[1])
            for a, b in zip(first, second, strict=True)
            if a[1] and b[1] > a[1] and b[0] > a[0]
        ]
        middle = statistics.median(rates)
        return middle, (max(rates) - min(rates)) / middle, len(rates)


def numbers_now(handle: Any) -> dict[str, float]:
    """What NVML tells of clocks and power at this moment; what it does not have is left out."""
    found: dict[str, float] = {}
    for number, clock in enumerate(CLOCKS):
        _note(found, f"clock {clock}", partial(nvml.nvmlDeviceGetClockInfo, handle, number))
        for which, name in enumerate(CLOCK_IDS):
            _note(found, f"clock {clock}, {name}", partial(nvml.nvmlDeviceGetClock, handle, number, which))
    _note(found, "power (W)", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3)
    _note(found, "performance state", lambda: nvml.nvmlDeviceGetPerformanceState(handle))
    _note(found, "reasons", lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    _note(found, "adaptive clock", lambda: nvml.nvmlDeviceGetAdaptiveClockInfoStatus(handle))
    _note(found, "temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, 0))
    return found


def _note(found: dict[str, float], name: str, call: Callable[[], float]) -> None:
    """Keep an answer; NVML's refusals are what most candidates end with."""
    try:
        found[name] = float(call())
    except (nvml.NVMLError, AttributeError, ValueError):
        return


def texts(handle: Any) -> dict[str, str]:
    """NVML's answers in words."""
    found = {}
    for name in ("nvmlDeviceGetCurrentClockFreqs", "nvmlDeviceGetPerformanceModes"):
        try:
            found[name] = str(getattr(nvml, name)(handle))
        except (nvml.NVMLError, AttributeError) as error:
            found[name] = str(error)
    return found


def field_values(handle: Any) -> dict[str, float]:
    """Every field value that the driver has, by its number; one by one, because some fail beside others."""
    found: dict[str, float] = {}
    for number in range(1, FIELDS):
        try:
            (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [number])
        except nvml.NVMLError:
            continue
        if answer.nvmlReturn == 0 and answer.valueType < 7:
            kind = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[answer.valueType]
            found[f"field {number}"] = float(getattr(answer.value, kind))
    return found


def buffered(handle: Any, since_us: int) -> dict[str, float]:
    """Means of what the driver sampled by itself since a moment."""
    found = {}
    for kind, name in SAMPLING.items():
        try:
            value_type, samples = nvml.nvmlDeviceGetSamples(handle, kind, since_us)
        except nvml.NVMLError:
            continue
        attribute = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[value_type]
        values = [getattr(sample.sampleValue, attribute) for sample in samples if sample.timeStamp > since_us]
        if values:
            found[name] = statistics.fmean(values)
    return found


class Gpm:
    """Two samples of GPM: its metrics, and the raw words that they are made from."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
        self._taken_ns = [0, 0]

    def take(self, which: int) -> None:
        """Take the first (0) or the second (1) sample."""
        start_ns = time.monotonic_ns()
        nvml.nvmlGpmSampleGet(self._handle, self._samples[which])
        self._taken_ns[which] = (start_ns + time.monotonic_ns()) // 2

    @property
    def seconds(self) -> float:
        """Between the two."""
        return (self._taken_ns[1] - self._taken_ns[0]) / 1e9

    def metrics(self) -> dict[int, float]:
        """Every metric with a value other than 0, by id."""
        found: dict[int, float] = {}
        for first in range(1, GPM_IDS + 1, GPM_CHUNK):
            ids = range(first, min(first + GPM_CHUNK, GPM_IDS + 1))
            request = nvml.c_nvmlGpmMetricsGet_t()
            request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(ids)
            request.sample1, request.sample2 = self._samples
            for slot, gpm_id in zip(request.metrics, ids, strict=False):
                slot.metricId = gpm_id
            try:
                answers = nvml.nvmlGpmMetricsGet(request).metrics
            except nvml.NVMLError as error:
                print(f"GPM metrics {first} to {ids[-1]}: {error}")
                continue
            found |= {
                gpm_id: slot.value
                for slot, gpm_id in zip(answers, ids, strict=False)
                if slot.nvmlReturn == 0 and slot.value == slot.value and slot.value != 0
            }
        return found

    def words(self) -> tuple[list[int], list[int]]:
        """The 64-bit words of both samples. They are opaque: nothing says what stands where."""
        raw = raw_samples(*self._samples)
        return ([], []) if raw is None else (list(raw[0].words()), list(raw[1].words()))

    def free(self) -> None:
        """Give the driver its samples back."""
        for sample in self._samples:
            nvml.nvmlGpmSampleFree(sample)


def word_rates(first: Sequence[int], second: Sequence[int], seconds: float) -> dict[str, float]:
    """How fast each 64-bit word grows, and each half of it as a 32-bit counter.

    >>> word_rates([5, 0], [1_000_005, 0], 0.5)
    {'word 0': 2000000.0, 'low 0': 2000000.0}
    """
    rates = {}
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        if a == b:
            continue
        for name, delta in (
            (f"word {index}", (b - a) % 2**64),
            (f"low {index}", ((b & 0xFFFFFFFF) - (a & 0xFFFFFFFF)) % 2**32),
            (f"high {index}", ((b >> 32) - (a >> 32)) % 2**32),
        ):
            rate = delta / seconds
            if 1e3 <= rate <= 1e15:
                rates[name] = rate
    return rates


@dataclass(slots=True)
class Row:
    """One load: the true clock, the work done, and every candidate."""

    name: str
    true_mhz: float = 0.0
    spread: float = 0.0
    sms: int = 0
    flops: float = 0.0
    candidates: dict[str, float] = field(default_factory=dict)
    gpm: dict[int, float] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    seconds: float = 0.0
    skipped: str = ""


class Poller(threading.Thread):
    """Asks NVML while the work runs."""

    def __init__(self, handle: Any) -> None:
        super().__init__(daemon=True)
        self._handle = handle
        self._stop_now = threading.Event()
        self._seen: dict[str, list[float]] = defaultdict(list)

    def run(self) -> None:
        while not self._stop_now.wait(POLL_S):
            for name, value in numbers_now(self._handle).items():
                self._seen[name].append(value)

    def means(self) -> dict[str, float]:
        """End it; the mean of each number, and of the SM clock the ends too."""
        self._stop_now.set()
        self.join()
        clocks = self._seen.get("clock SM", [])
        ends = {"clock SM, lowest": min(clocks), "clock SM, highest": max(clocks)} if clocks else {}
        return {name: statistics.fmean(values) for name, values in self._seen.items()} | ends


def measure(torch: Any, load: Load, clock: TrueClock, handle: Any) -> Row:
    """Run one load; a load that this machine cannot run is a row that says so."""
    row = Row(load.name)
    try:
        step, flop = load.make(torch)
        step()
        torch.cuda.synchronize()
    except (RuntimeError, AttributeError) as error:
        row.skipped = str(error).splitlines()[0][:60]
        return row
    _repeat(torch, step, WARM_S, load.rest)
    before, since_us = field_values(handle), time.time_ns() // 1000
    gpm, poller = Gpm(handle), Poller(handle)
    poller.start()
    clock.stamp(0)
    gpm.take(0)
    steps, elapsed_s = _repeat(torch, step, WINDOW_S, load.rest)
    clock.stamp(1)
    gpm.take(1)
    row.candidates = poller.means() | buffered(handle, since_us)
    after = field_values(handle)
    row.true_mhz, row.spread, row.sms = clock.mhz()
    row.flops, row.seconds = flop * steps / elapsed_s, gpm.seconds
    row.gpm = gpm.metrics()
    row.first, row.second = gpm.words()
    gpm.free()
    row.candidates |= after | {
        f"{name} per second": (value - before[name]) / row.seconds
        for name, value in after.items()
        if name in before and value > before[name]
    }
    row.candidates |= {f"GPM {gpm_id}": value for gpm_id, value in row.gpm.items()}
    return row


def _repeat(torch: Any, step: Step, seconds: float, rest: float) -> tuple[int, float]:
    """Repeat a step, in batches of about 20 ms; how often, and in how many seconds."""
    start_ns = time.monotonic_ns()
    step()
    torch.cuda.synchronize()
    batch = max(1, 20_000_000 // max(1, time.monotonic_ns() - start_ns))
    steps, start_ns = 0, time.monotonic_ns()
    while (now_ns := time.monotonic_ns()) - start_ns < seconds * 1e9:
        for _ in range(batch):
            step()
        torch.cuda.synchronize()
        steps += batch
        if rest:
            time.sleep((time.monotonic_ns() - now_ns) / 1e9 * rest / (1 - rest))
    return steps, (now_ns - start_ns) / 1e9


def constancy(values: Sequence[float], truths: Sequence[float]) -> tuple[float, float]:
    """The mean ratio of a candidate to the truth, and how much the ratio varies, as a share of it.

    >>> constancy([20.0, 40.0], [10.0, 20.0])
    (2.0, 0.0)
    """
    ratios = [value / truth for value, truth in zip(values, truths, strict=True)]
    mean = statistics.fmean(ratios)
    return mean, (max(ratios) - min(ratios)) / abs(mean) if mean else float("inf")


def ranked(series: Mapping[str, Sequence[float]], truths: Sequence[float]) -> list[tuple[str, float, float]]:
    """Candidates with a value under every load, those whose ratio to the truth varies least first."""
    rows = [
        (name, *constancy(values, truths))
        for name, values in series.items()
        if len(values) == len(truths) and any(values)
    ]
    return sorted(rows, key=lambda row: row[2])


def by_name(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Values of each name that every row has."""
    names = set(rows[0]).intersection(*rows[1:]) if rows else set()
    return {name: [row[name] for row in rows] for name in sorted(names)}


def estimate(row: Row, sms: int) -> float | None:
    """The candidate that needs no CUDA context: elapsed cycles and time out of the raw sample, found as llmtop does.

    llmtop wants five windows to agree; here one is all there is, of 1.5 s.
    """
    said = row.candidates.get("clock SM")
    if not said:
        return None
    words = find_words((row.first, row.second), percents_of(row), row.first, round(row.seconds * 1e9), sms, said)
    if words is None:
        return None
    cycles, time_ns = (row.second[index] - row.first[index] for index in (words.cycles, words.time))
    return 1e3 * cycles / words.units / time_ns


def percents_of(row: Row) -> list[float]:
    """GPM's percentages of one window."""
    return [value for gpm_id, value in row.gpm.items() if gpm_id <= LAST_PERCENT]


def report(rows: Sequence[Row], sms: int) -> None:
    """Print what was found."""
    head = ["load", "TFLOP/s", "W", "reasons", "HMMA %", "DRAM %", "true MHz", "NVML MHz", "NVML/true", "raw samples"]
    print(table(head, [_main_row(row, sms) for row in rows]))
    good = [row for row in rows if not row.skipped]
    truths = [row.true_mhz for row in good]
    print("\nNVML and GPM: candidates by how much their ratio to the true clock varies over the loads")
    _rank(by_name([row.candidates for row in good]), truths, 25)
    print("\nWords of GPM's raw samples, likewise (growth per second over the true clock in Hz)")
    words = by_name([word_rates(row.first, row.second, row.seconds) for row in good])
    _rank(words, [truth * 1e6 for truth in truths], 25)
    print("\nDenominators of GPM's percentages, and of how many of them, by load")
    for row in good:
        found = denominators(row.first, row.second, percents_of(row))
        most = sorted(found, key=lambda i: -found[i])[:6]
        rates = ", ".join(
            f"word {i} ({found[i]}; {(row.second[i] - row.first[i]) / row.seconds / row.true_mhz / 1e6:.5g} x true)"
            for i in most
        )
        print(f"  {row.name:<22} {rates or 'none'}")


def _rank(series: Mapping[str, Sequence[float]], truths: Sequence[float], most: int) -> None:
    rows = [
        [name, f"{mean:.6g}", f"{spread:.2%}", " ".join(f"{value:.5g}" for value in series[name])]
        for name, mean, spread in ranked(series, truths)[:most]
    ]
    print(table(["candidate", "over true", "varies by", "values"], rows))


def _main_row(row: Row, sms: int) -> list[str]:
    if row.skipped:
        return [row.name, *["-"] * 8, row.skipped]
    said, own = row.candidates.get("clock SM", 0.0), estimate(row, sms)
    return [
        row.name,
        f"{row.flops / 1e12:.1f}",
        f"{row.candidates.get('power (W)', 0):.0f}",
        f"{int(row.candidates.get('reasons', 0)):#x}",
        f"{row.gpm.get(HMMA, 0):.1f}",
        f"{row.gpm.get(DRAM, 0):.1f}",
        f"{row.true_mhz:.1f}",
        f"{said:.1f}",
        f"{said / row.true_mhz:.4f}",
        "-" if own is None else f"{own:.1f} ({own / row.true_mhz:.4f})",
    ]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="loads whose name contains one of these")
    parser.add_argument("--json", help="write every number here too")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("this needs torch with CUDA: pip install torch")
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here")
    nvml.nvmlInit()
    properties = torch.cuda.get_device_properties(0)
    handle = _handle(properties)
    print(f"{properties.name}, driver {nvml.nvmlSystemGetDriverVersion()}, {properties.multi_processor_count} SMs")
    for name, text in texts(handle).items():
        print(f"{name}: {text}")
    clock, rows = TrueClock(torch), []
    for load in LOADS:
        if not options.only or any(part in load.name for part in options.only):
            rows.append(measure(torch, load, clock, handle))
            torch.cuda.empty_cache()
    report(rows, properties.multi_processor_count)
    if options.json:
        kept = {"gpu": properties.name, "pid": os.getpid(), "rows": [asdict(row) for row in rows]}
        Path(options.json).write_text(json.dumps(kept), encoding="utf-8")
    return 0


def _handle(properties: Any) -> Any:
    """NVML's handle of torch's first device; by UUID, because CUDA_VISIBLE_DEVICES renumbers what torch sees."""
    uuid = str(getattr(properties, "uuid", ""))
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByIndex(0)


if __name__ == "__main__":
    sys.exit(main())
