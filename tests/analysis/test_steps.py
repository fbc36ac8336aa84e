"""Steps of timelines, what each takes, and what a slow one has more of than the others."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmtop import columns
from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, breakdown, shares_of
from llmtop.analysis.kernels.breakdown.breakdown_table import account_lines, breakdown_table, spread_text, why_slow
from llmtop.analysis.kernels.breakdown.step_phases import NO_ATTENTION, NOT_TOLD
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.timeline import bulk
from llmtop.analysis.timeline.account import idle_account, idle_pieces
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.ranges import windows_by_name
from llmtop.analysis.timeline.steps import StepPhase, Steps, find_steps
from llmtop.model import Trace, Unknown
from llmtop.parsers.registry import load
from tests.kernel_traces import TIMELINE, Launch, report
from tests.nsys_capture import MS, PID, TID, US, Capture

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 20
ATTENTION, GEMM, NCCL = "flash_fwd_kernel", "ampere_sgemm_128x64", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def server(
    change: Callable[[Capture, int, int], int] = lambda made, step, at: at,
    name: Callable[[int], str] = lambda step: f"step {step}",
    *,
    attention: str = ATTENTION,
    steps: int = STEPS,
) -> Capture:
    """Steps of five kernels of 100 µs, each launched as the last one ends, and a synchronisation at the end.

    Args:
        change: What else happens in a step before its last kernel; returns when it is over.
        name: The NVTX range of a step; empty for none.
        attention: The name of its attention kernel.
        steps: How many.
    """
    made = Capture()
    made.os("write", 0, 1)
    at = MS
    for step in range(steps):
        begun = at
        for kernel in ("embedding", GEMM, attention, GEMM):
            at = launch(made, at, kernel)
        at = change(made, step, at)
        at = launch(made, at, "argmax")
        made.call("cudaStreamSynchronize", at - 80 * US, at + 5 * US)
        at += 10 * US
        if text := name(step):
            made.nvtx(text, begun, at)
    return made


def launch(
    made: Capture,
    at: int,
    kernel: str,
    runs: int = 100 * US,
    *,
    stream: int = 7,
    gpu: int = 0,
    pid: int = PID,
    tid: int = TID,
) -> int:
    """A kernel 10 µs after its launch began; when it ends."""
    call = made.call("cudaLaunchKernel", at, at + 5 * US, pid=pid, tid=tid)
    made.kernel(at + 10 * US, at + 10 * US + runs, call, kernel, stream=stream, gpu=gpu, pid=pid)
    return at + 10 * US + runs


def steps_of(trace: Trace) -> Breakdown:
    found = breakdown(trace, By.STEP)
    assert isinstance(found, Breakdown)
    return found


def found_in(trace: Trace) -> Steps:
    found = find_steps(trace)
    assert isinstance(found, Steps)
    return found


# -- how steps are found ----------------------------------------------------------------------------------------------


def test_marks_of_the_profiler_come_first(tmp_path: Path) -> None:
    made = server(name=lambda step: f"ProfilerStep#{step + 7}")
    for step in range(0, STEPS * 560, 280):
        made.nvtx("forward", MS + step * US, MS + step * US + 270 * US)
    found = found_in(made.trace(tmp_path))
    assert [one.name for one in found.windows] == [f"ProfilerStep#{step + 7}" for step in range(STEPS)]
    assert "step marks" in found.found


def test_a_range_that_recurs_over_most_of_the_work_is_the_step_and_those_around_and_within_are_not(
    tmp_path: Path,
) -> None:
    made = server()
    trace = made.trace(tmp_path)
    whole = found_in(trace).windows
    for one in whole:
        made.nvtx("attention", one.start_ns + 220 * US, one.start_ns + 320 * US)
        for half in (one.start_ns, one.start_ns + 280 * US):
            made.nvtx("half", half, half + 279 * US)
    made.nvtx("serve", 0, whole[-1].end_ns + MS)
    (tmp_path / "capture.sqlite").unlink()
    found = found_in(made.trace(tmp_path))
    assert [one.name for one in found.windows] == [f"step {step}" for step in range(STEPS)]
    assert '"step #"' in found.found
    assert "100 %" in found.found


def test_ranges_that_pytorch_makes_of_operators_are_no_steps(tmp_path: Path) -> None:
    found = found_in(server(name=lambda step: f"aten::forward, op_id = {step}, seq = {step}").trace(tmp_path))
    assert "repetition" in found.found


def test_prefill_and_decode_are_steps_together() -> None:
    found = found_in(load(TIMELINE))
    assert [one.name for one in found.windows] == ["prefill", *["decode"] * 6]
    assert [one.kernels for one in found.windows] == [182, *[207] * 6]


def test_without_ranges_kernels_that_repeat_show_steps_and_say_so(tmp_path: Path) -> None:
    found = found_in(server(name=lambda _: "").trace(tmp_path))
    assert len(found.windows) == STEPS
    assert found.sureness == 1.0
    assert "repetition" in found.found
    assert {one.kernels for one in found.windows} == {5}
    assert all(one.end_ns == after.start_ns for one, after in pairwise(found.windows))


def replica(made: Capture, gpu: int, runs: int, odd: int | None = None) -> Capture:
    """Twelve steps of four kernels on a GPU of a process of its own; an odd one has three more."""
    at = MS
    for step in range(12):
        for kernel in ("abcd", "abcdefg")[step == odd]:
            at = launch(made, at, f"{kernel}{gpu}", runs, gpu=gpu, pid=PID + gpu, tid=TID + gpu)
        at += 40 * US
    return made


@pytest.mark.parametrize("busier", [0, 1])
def test_steps_of_several_gpus_are_as_sure_as_those_of_the_least_sure_one(tmp_path: Path, busier: int) -> None:
    """They are told by the busiest, and of all of them by when they begin."""
    alone = found_in(replica(Capture(), 0, 100 * US, odd=5).trace(tmp_path)).sureness
    assert alone is not None
    assert 0.5 < alone < 0.95
    (tmp_path / "capture.sqlite").unlink()
    both = Capture()
    for gpu in (0, 1):
        replica(both, gpu, (200 if gpu == busier else 100) * US, odd=None if gpu else 5)
    found = found_in(both.trace(tmp_path))
    assert found.sureness == alone
    assert f" kernels from a{busier} on;" in found.found
    assert Counter(one.gpus for one in found.windows) == {("gpu:0",): 12, ("gpu:1",): 12}
    assert [one.start_ns for one in found.windows] == sorted(one.start_ns for one in found.windows)


def test_layers_within_a_step_are_not_taken_for_steps(tmp_path: Path) -> None:
    made, at = Capture(), MS
    for _ in range(12):
        at = launch(made, at, "embedding")
        for _ in range(32):
            for kernel in ("rms_norm", GEMM, ATTENTION, GEMM, "silu", GEMM):
                at = launch(made, at, kernel, 5 * US)
        for kernel in ("rms_norm", GEMM, "softmax", "top_k", "argmax"):
            at = launch(made, at, kernel)
        at += 300 * US
    found = found_in(made.trace(tmp_path))
    assert [one.kernels for one in found.windows] == [32 * 6 + 6] * 12
    assert "from embedding on" in found.found, "it begins after the longest pause"


def test_a_step_whose_kernels_all_recur_within_it_is_told_by_several_together(tmp_path: Path) -> None:
    made, at = Capture(), MS
    for _ in range(12):
        for kernel in "abab" + "bcca" + "ccab":
            at = launch(made, at, kernel)
    assert {one.kernels for one in found_in(made.trace(tmp_path)).windows} == {12}


def test_kernels_in_no_order_are_no_steps(tmp_path: Path) -> None:
    chance, made, at = random.Random(7), Capture(), MS
    for _ in range(400):
        at = launch(made, at, f"k{chance.randrange(9)}")
    found = find_steps(made.trace(tmp_path))
    assert isinstance(found, Unknown)
    assert "do not repeat" in found.reason
    assert all(how in found.remedy for how in ("nvtxRangePush", "step()")), "of either profiler"


def test_a_report_of_kernels_has_no_steps() -> None:
    found = breakdown(report(Launch("gemm", 1000.0)), By.STEP)
    assert isinstance(found, Unknown)
    assert "timeline" in found.reason


# -- what belongs to a step -------------------------------------------------------------------------------------------


def test_a_thread_that_runs_ahead_has_steps_as_long_as_their_work(tmp_path: Path) -> None:
    """Ten steps are asked for in 1 ms; the GPU takes 10 ms for each of them."""
    made = Capture()
    for step in range(10):
        at = step * 100 * US
        made.nvtx(f"step {step}", at, at + 90 * US)
        for i in range(10):
            call = made.call("cudaLaunchKernel", at + i * 8 * US, at + i * 8 * US + 5 * US)
            begins = 2 * MS + step * 10 * MS + i * MS
            made.kernel(begins, begins + MS, call)
    parts = steps_of(made.trace(tmp_path)).parts
    assert [part.account.wall_ns for part in parts[1:]] == [10 * MS] * 9
    assert [part.account.busy_ns for part in parts] == [10 * MS] * 10
    assert parts[0].account.wall_ns == 12 * MS, "from its own beginning"
    assert {part.cpu_ns for part in parts} == {90 * US}
    assert {part.account.kernels for part in parts} == {10}


def test_work_that_another_thread_of_the_process_asks_for_belongs_to_the_step(tmp_path: Path) -> None:
    """PyTorch launches backward passes on a thread of its own; other processes have their own steps."""
    made, at = Capture(), MS
    for step in range(6):
        begun = at
        at = launch(made, at, "forward")
        at = launch(made, at, "backward", tid=555)
        at = launch(made, at, "backward", tid=555)
        made.nvtx(f"step {step}", begun, at)
        other = launch(made, begun, "other", 20 * US, gpu=1, pid=PID + 1, tid=900)
        made.nvtx(
            "other", begun, launch(made, other, "other", 20 * US, gpu=1, pid=PID + 1, tid=900), pid=PID + 1, tid=900
        )
        at += 50 * US
    parts = steps_of(made.trace(tmp_path)).parts
    by_name = defaultdict(set)
    for part in parts:
        by_name[part.name.split()[0]].add((part.account.kernels, part.account.launches))
    assert by_name == {"step": {(3, 3)}, "other": {(2, 2)}}


def test_threads_of_one_process_that_mark_their_own_steps_have_their_own_work(tmp_path: Path) -> None:
    made, at = Capture(), MS
    for step in range(6):
        for tid, kernels in ((TID, 2), (555, 3)):
            begun = at
            for _ in range(kernels):
                at = launch(made, at, "gemm", tid=tid)
            made.nvtx(f"of {tid}: {step}", begun - 20 * US, at + 20 * US, tid=tid)
            at += 30 * US
    parts = steps_of(made.trace(tmp_path)).parts
    assert Counter((part.name.split(":")[0], part.account.kernels) for part in parts) == {
        (f"of {TID}", 2): 6,
        ("of 555", 3): 6,
    }


@pytest.mark.parametrize(
    ("asked", "gpus", "kernels"),
    [
        ([(PID, TID, 0), (PID, 555, 1), (PID + 1, 900, 1)], ["gpu:0"], 1),  # its own, and others ask for more
        ([(PID, 555, 1), (PID, 556, 0), (PID + 1, 900, 0)], ["gpu:0", "gpu:1"], 2),  # those of all that work for it
        ([(PID, 557, 1), (PID + 1, 900, 0)], ["gpu:1"], 0),  # of its process, by one that marks ranges of its own
        ([(PID + 1, 900, 0), (PID + 1, 901, 1)], ["gpu:0", "gpu:1"], 0),  # nothing tells
    ],
)
def test_whose_gpus_a_range_is_on(
    tmp_path: Path, asked: list[tuple[int, int, int]], gpus: list[str], kernels: int
) -> None:
    made = Capture()
    for pid, tid, gpu in asked:
        launch(made, MS, GEMM, gpu=gpu, pid=pid, tid=tid)
    made.nvtx("range", MS, MS + 20 * US)
    made.nvtx("another", MS, MS + 20 * US, tid=557)
    trace = made.trace(tmp_path)
    (window,) = windows_by_name(trace)["range"]
    assert (sorted(window.gpus), window.kernels, window.launches) == (gpus, kernels, kernels)


def test_a_range_within_another_of_its_name_counts_once(tmp_path: Path) -> None:
    made = Capture()
    at = launch(made, launch(made, MS, "gemm"), "gemm")
    made.nvtx("block", MS, at)
    made.nvtx("block", MS + US, at - US)
    found = breakdown(made.trace(tmp_path), By.NVTX)
    assert isinstance(found, Breakdown)
    assert [(part.times, part.account.wall_ns, part.account.kernels) for part in found.parts] == [(1, at - MS, 2)]


def test_ranges_lie_within_those_around_them_and_share_no_time_with_those_beside_them(tmp_path: Path) -> None:
    made = server()
    for part in steps_of(made.trace(tmp_path)).parts:
        middle = part.start_ns + 300 * US
        made.nvtx("first half", part.start_ns, middle)
        made.nvtx("second half", middle, part.start_ns + part.account.wall_ns)
    (tmp_path / "capture.sqlite").unlink()
    found = breakdown(made.trace(tmp_path), By.NVTX)
    assert isinstance(found, Breakdown)
    by_name = {part.name: part for part in found.parts}
    step, first, second = by_name["step #"], by_name["first half"], by_name["second half"]
    assert (step.times, first.times) == (STEPS, STEPS)
    assert step.account.wall_ns == first.account.wall_ns + second.account.wall_ns
    assert step.account.busy_ns == first.account.busy_ns + second.account.busy_ns
    assert (step.account.kernels, first.account.kernels, second.account.kernels) == (100, 60, 40)


# -- slow steps -------------------------------------------------------------------------------------------------------


def slept(made: Capture, step: int, at: int) -> int:
    if step != 9:
        return at
    made.os("clock_nanosleep", at, at + 5 * MS)
    return at + 5 * MS


def synchronised(made: Capture, step: int, at: int) -> int:
    if step != 4:
        return at
    made.call("cudaDeviceSynchronize", at - 10 * US, at + 3 * MS)
    return at + 3 * MS


def allocated(made: Capture, step: int, at: int) -> int:
    if step != 17:
        return at
    made.call("cudaMalloc", at, at + 2 * MS)
    return at + 2 * MS


def attended(made: Capture, step: int, at: int) -> int:
    return launch(made, at, ATTENTION, 4 * MS if step == 11 else 100 * US)


def exchanged(made: Capture, step: int, at: int) -> int:
    return launch(made, at, NCCL, 2 * MS if step == 5 else 50 * US, stream=9)


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "repeated"])
@pytest.mark.parametrize(
    ("change", "slow", "part", "ns", "says"),
    [
        (slept, 9, Cause.OS, 5 * MS, "idle: OS call (clock_nanosleep)"),
        (synchronised, 4, Cause.SYNC, 3 * MS, "idle: synchronisation (cudaDeviceSynchronize)"),
        (allocated, 17, Cause.ALLOCATION, 2 * MS, "idle: memory allocation (cudaMalloc)"),
        (attended, 11, KernelFamily.ATTENTION, 3900 * US, "attention kernels"),
        (exchanged, 5, KernelFamily.COMMUNICATION, 1950 * US, "communication kernels"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_slow_step_is_found_and_what_makes_it_slow(
    tmp_path: Path,
    change: Callable[[Capture, int, int], int],
    slow: int,
    part: Cause | KernelFamily,
    ns: int,
    says: str,
    *,
    marked: bool,
) -> None:
    found = steps_of(server(change, (lambda step: f"step {step}") if marked else (lambda _: "")).trace(tmp_path))
    assert [i for i, one in enumerate(found.parts) if one.is_slow] == [slow]
    first = found.parts[slow].more[0]
    assert first.part == ("kernels" if isinstance(part, KernelFamily) else "idle", part)
    assert first.ns == pytest.approx(ns, rel=0.01)
    said = why_slow(found.parts[slow], found.spreads[0])
    assert said.startswith("slow: ")
    assert says in said
    assert not any(why_slow(one, found.spreads[0]) for i, one in enumerate(found.parts) if i != slow)


def test_of_four_steps_none_is_an_outlier_and_of_one_phase_none_is_held_against_another(tmp_path: Path) -> None:
    def longer(made: Capture, step: int, at: int) -> int:
        return launch(made, at, GEMM, 9 * MS) if step < 4 else at

    found = steps_of(server(longer, lambda step: "prefill" if step < 4 else "decode").trace(tmp_path))
    assert not any(one.is_slow for one in found.parts)
    assert [(str(one.phase), len(one.steps), one.slow_from_ns is None) for one in found.spreads] == [
        ("prefill", 4, True),
        ("decode", 16, False),
    ]


def test_medians_are_those_of_the_steps_sorted_by_hand(tmp_path: Path) -> None:
    found = steps_of(server(slept).trace(tmp_path))
    walls = sorted(one.account.wall_ns for one in found.parts)
    (spread,) = found.spreads
    assert spread.median_ns == (walls[9] + walls[10]) / 2
    assert spread.p95_ns == pytest.approx(walls[18] + 0.05 * (walls[19] - walls[18]))
    assert spread.longest_ns == walls[19]
    assert spread_text(spread) == "20 steps: median 560 µs, p95 810 µs, longest 5.56 ms"


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (19, "19 steps: median 560 µs, longest 560 µs"),
        (20, "20 steps: median 560 µs, p95 560 µs, longest 560 µs"),
        (99, "99 steps: median 560 µs, p95 560 µs, longest 560 µs"),
        (100, "100 steps: median 560 µs, p95 560 µs, p99 560 µs"),
    ],
)
def test_a_quantile_is_told_of_as_many_steps_as_one_can_lie_above(steps: int, told: str, tmp_path: Path) -> None:
    (spread,) = steps_of(server(steps=steps).trace(tmp_path)).spreads
    assert spread_text(spread) == told


# -- prefill and decode -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "phase"),
    [
        ("void vllm::paged_attention_v2_kernel<bf16>", StepPhase.DECODE),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<1>", StepPhase.DECODE),
        ("void flashinfer::SinglePrefillWithKVCacheKernel<1>", StepPhase.PREFILL),
        ("flash_fwd_splitkv_kernel", NOT_TOLD),
        ("silu", NO_ATTENTION),
    ],
)
def test_without_names_only_attention_kernels_that_can_do_nothing_else_tell_the_phase(
    tmp_path: Path, kernel: str, phase: StepPhase | Unknown
) -> None:
    found = steps_of(server(attention=kernel).trace(tmp_path))
    assert {one.phase for one in found.parts} == {phase}


def test_of_an_attention_kernel_that_can_do_either_beside_one_that_decodes_nothing_is_told(tmp_path: Path) -> None:
    def either(made: Capture, step: int, at: int) -> int:
        return launch(made, at, ATTENTION)

    found = steps_of(server(either, attention="paged_attention_v2_kernel").trace(tmp_path))
    assert {one.phase for one in found.parts} == {NOT_TOLD}


def test_ranges_within_a_step_and_vllm_s_own_names_tell_the_phase(tmp_path: Path) -> None:
    names = ("execute_context_1(512)_generation_0(0)", "execute_context_0(0)_generation_8(8)")
    made = server(name=lambda step: names[step > 2])
    found = steps_of(made.trace(tmp_path))
    assert Counter(one.phase for one in found.parts) == {StepPhase.PREFILL: 3, StepPhase.DECODE: 17}
    inner = server()
    for one in found.parts[:2]:
        inner.nvtx("decode", one.start_ns + US, one.start_ns + 2 * US)
        inner.nvtx("prefill", one.start_ns + 3 * US, one.start_ns + 4 * US)
    (tmp_path / "capture.sqlite").unlink()
    assert [one.phase for one in steps_of(inner.trace(tmp_path)).parts][:3] == [
        StepPhase.MIXED,
        StepPhase.MIXED,
        NOT_TOLD,
    ]


# -- arithmetic -------------------------------------------------------------------------------------------------------


def gpu_rows(path: Path) -> list[tuple[int, int, int, bool, bool]]:
    """All GPU work of an export, read without llmtop: start, end, GPU, is a kernel, communicates."""
    rows = []
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        texts = dict(database.execute("SELECT id, value FROM StringIds"))
        name = "demangledName"
        for start, end, gpu, key in database.execute(
            f'SELECT start, "end", deviceId, {name} FROM CUPTI_ACTIVITY_KIND_KERNEL'
        ):
            rows.append((start, end, gpu, True, "nccl" in texts.get(key, "").lower()))
        for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
            if table in tables:
                found = database.execute(f'SELECT start, "end", deviceId FROM {table}')
                rows += [(start, end, gpu, False, False) for start, end, gpu in found]
    return rows


def painted(rows: list[tuple[int, int, int, bool, bool]], gpu: int, start: int, end: int) -> Counter[str]:
    """Time by what runs in it, by going from edge to edge: nothing of llmtop's arithmetic is in here."""
    own = [row for row in rows if row[2] == gpu and row[0] < end and row[1] > start]
    edges = sorted({start, end, *(edge for row in own for edge in row[:2] if start < edge < end)})
    times: Counter[str] = Counter()
    for since, until in pairwise(edges):
        there = [row for row in own if row[0] < until and row[1] > since]
        sent, computed = any(row[4] for row in there), any(row[3] and not row[4] for row in there)
        times["busy" if there else "idle"] += until - since
        times["communication"] += (until - since) * sent
        times["exposed"] += (until - since) * (sent and not computed)
        times["overlap"] += (until - since) * (sent and computed)
    return times


def the_time_of_each_step_is_what_going_from_edge_to_edge_gives(path: Path, trace: Trace) -> None:
    rows = gpu_rows(path)
    windows = found_in(trace).windows
    assert len(windows) >= 5
    for window, part in list(zip(windows, steps_of(trace).parts, strict=True))[:24]:
        account = part.account
        times = painted(rows, int(window.gpus[0].split(":")[1]), window.start_ns, window.end_ns)
        assert account.gpu_ns == account.wall_ns == window.end_ns - window.start_ns
        assert account.busy_ns == times["busy"]
        assert sum(ns for _, ns in account.idle) == times["idle"] == account.idle_ns
        assert (account.communication_ns, account.exposed_ns) == (times["communication"], times["exposed"])
        assert account.communication_ns - account.exposed_ns == times["overlap"]


def all_idle_pieces_together_are_the_account_of_idle_time(trace: Trace) -> None:
    for gpu in idle_account(trace).gpus:
        pieces = idle_pieces(trace)[gpu.gpu]
        by_label: Counter[tuple[Cause, str]] = Counter()
        for part in gpu.parts:
            by_label[part.cause, part.name] += part.ns
        assert pieces.within(gpu.start_ns, gpu.end_ns) == by_label
        assert all(end <= start for end, start in zip(pieces.ends, pieces.starts[1:], strict=False))


def the_columns_of_numpy_give_the_same_pieces(path: Path, trace: Trace) -> None:
    expected = idle_pieces(trace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LONG", 1)
        patch.setattr(bulk, "_PART", 50)
        for gpu, pieces in idle_pieces(load(path)).items():
            assert _labelled(pieces) == _labelled(expected[gpu])


def _labelled(pieces: object) -> list[tuple[int, int, tuple[Cause, str]]]:
    return [
        (start, end, pieces.labels[number])  # type: ignore[attr-defined]
        for start, end, number in zip(pieces.starts, pieces.ends, pieces.numbers, strict=True)  # type: ignore[attr-defined]
    ]


# -- streams, GPUs, tables --------------------------------------------------------------------------------------------


def test_a_stream_s_time_alone_is_what_no_other_stream_of_its_gpu_covers(tmp_path: Path) -> None:
    made = Capture()
    launch(made, MS, GEMM, 400 * US)
    launch(made, MS + 200 * US, NCCL, 400 * US, stream=9)
    launch(made, MS, GEMM, 900 * US, gpu=1)
    found = breakdown(made.trace(tmp_path), By.STREAM)
    assert isinstance(found, Breakdown)
    times = {(part.owner, part.name): (part.account.busy_ns, part.alone_ns) for part in found.parts}
    assert times == {
        ("GPU 0", "stream 7"): (400 * US, 200 * US),
        ("GPU 0", "stream 9"): (400 * US, 200 * US),
        ("GPU 1", "stream 7"): (900 * US, 900 * US),
    }


def a_row_of_a_gpu_is_its_idle_account(trace: Trace) -> None:
    found = breakdown(trace, By.RANK)
    assert isinstance(found, Breakdown)
    accounts = idle_account(trace).gpus
    assert [(part.account.gpu_ns, part.account.busy_ns) for part in found.parts] == [
        (gpu.end_ns - gpu.start_ns, gpu.busy_ns) for gpu in accounts
    ]


def test_a_row_of_a_gpu_names_the_processes_that_had_work_on_it(tmp_path: Path) -> None:
    """Each once, whatever the kind of its work; those of other GPUs not."""
    made = Capture()
    for gpu, pid in ((0, PID), (1, PID + 1), (1, PID + 2), (1, PID + 1)):
        for _ in range(2):
            launch(made, MS, GEMM, gpu=gpu, pid=pid, tid=pid + 1)
    made.copy(5 * MS, 6 * MS, made.call("cudaMemcpyAsync", 5 * MS, 5 * MS + US, pid=PID + 3), gpu=1, pid=PID + 3)
    found = breakdown(made.trace(tmp_path), By.RANK)
    assert isinstance(found, Breakdown)
    owners = {part.name: [int(pid) for pid in re.findall(r"\d+", part.owner)] for part in found.parts}
    assert owners == {"GPU 0": [PID], "GPU 1": [PID + 1, PID + 2, PID + 3]}


def test_a_table_leaves_out_what_no_row_has(tmp_path: Path) -> None:
    trace = server(slept).trace(tmp_path)
    table = breakdown_table(steps_of(trace), trace.start_ns)
    keys = [column.key for column in table.columns]
    assert "communication" not in keys
    assert "copied" not in keys
    row = dict(zip(keys, table.cells(9), strict=True))
    assert (row["number"], row["name"], row["slow"], row["kernels"], row["mostly"]) == (
        10,
        "step 9",
        "slow",
        5,
        "OS call",
    )
    assert row["over"] == pytest.approx(5 * MS, rel=0.01)


@pytest.mark.parametrize(("prefills", "over"), [(2, -10 * US), (3, -20 * US)])
def test_a_step_is_held_against_the_median_of_its_group(prefills: int, over: int, tmp_path: Path) -> None:
    def longer(made: Capture, step: int, at: int) -> int:
        return at + step * 20 * US

    found = server(longer, name=lambda step: "prefill" if step < prefills else "decode").trace(tmp_path)
    table = breakdown_table(steps_of(found))
    at = [column.key for column in table.columns].index("over")
    assert table.cells(0)[at] == over


def test_kernels_that_copy_are_not_taken_for_calls_that_do(tmp_path: Path) -> None:
    """A family and a cause are both called "copy"."""

    def copied(made: Capture, step: int, at: int) -> int:
        at = launch(made, at, "copy_kernel", 700 * US)
        made.call("cudaMemcpyAsync", at, at + 30 * US)
        return at + 30 * US

    found = steps_of(server(copied).trace(tmp_path))
    shares = shares_of(found.parts[3].account)
    assert shares["kernels", KernelFamily.COPY] == 800 * US, "with the embedding"
    assert shares["idle", Cause.COPY] == 30 * US
    table = breakdown_table(found)
    keys = [column.key for column in table.columns]
    assert table.cells(3)[keys.index("mostly")] != "copy call"


def test_whose_a_step_is_has_a_column_where_steps_differ_in_that(tmp_path: Path) -> None:
    made, at = Capture(), MS
    for _ in range(8):
        for kernel in ("a", "b", "c", "d"):
            launch(made, at, kernel, gpu=1)
            at = launch(made, at, kernel)
    two = breakdown_table(steps_of(made.trace(tmp_path)))
    assert [str(cell) for cell in two.rows[0] if str(cell).startswith("GPU")] in (["GPU 0"], ["GPU 1"])
    (tmp_path / "capture.sqlite").unlink()
    one = breakdown_table(steps_of(server().trace(tmp_path)))
    assert "owner" not in {column.key for column in one.columns}


def test_the_account_of_a_step_in_sentences(tmp_path: Path) -> None:
    part = steps_of(server(slept).trace(tmp_path)).parts[9]
    said = list(account_lines(part))
    assert said[0] == "5.56 ms = at work 500 µs + idle 5.06 ms"
    assert said[1] == "  idle  5.00 ms  OS call: clock_nanosleep"
    assert said[-1] == "  asked for in it: 5 kernels by 5 launch calls"


def _layers(folder: Path, between: str) -> Trace:
    """A PyTorch trace of 24 times the same four kernels, and what is between one time and the next."""
    events: list[dict[str, object]] = []
    now = 100.0
    for layer in range(24):
        for name in ("norm", "qkv", "attention", "mlp"):
            args = {"device": 0, "stream": 7, "correlation": len(events) + 1, "grid": [8, 1, 1], "block": [32, 1, 1]}
            event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": now, "dur": 20.0}
            events.append({**event, "args": args})
            now += 21.0
        if between == "copy":
            args = {"device": 0, "stream": 7, "correlation": len(events) + 1, "bytes": 8}
            copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "pid": 0, "tid": 7}
            events.append({**copy, "ts": now, "dur": 2.0, "args": args})
            now += 3.0
        if between == "pause":
            now += 60.0
        if between == "range":
            mark = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 9, "tid": 9}
            events.append({**mark, "ts": 100.0 + layer, "dur": 0.5})
    path = folder / "made.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return load(path)


@pytest.mark.parametrize(("between", "is_step"), [("", False), ("copy", True), ("pause", True), ("range", True)])
def test_layers_of_one_pass_are_no_steps(tmp_path: Path, between: str, is_step: bool) -> None:
    found = find_steps(_layers(tmp_path, between))
    assert isinstance(found, Steps) is is_step
    assert not isinstance(found, Steps) or "repetition" in found.found
