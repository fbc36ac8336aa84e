"""What analysis makes of fixed traces, all of it: every finding and every view in full, beside the one of before.

A change that is meant is written down with `pytest tests/analysis/test_whole.py --snapshot-update`, and its
diff is read like the code's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.gpus.health import health
from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, breakdown
from llmtop.analysis.kernels.breakdown.breakdown_table import breakdown_table
from llmtop.analysis.kernels.classes import kernel_classes
from llmtop.analysis.kernels.communication import communication
from llmtop.analysis.kernels.duration_histograms import kernel_histograms
from llmtop.analysis.kernels.family_shares import family_shares, other_kinds
from llmtop.analysis.kernels.fusion import fusion_chains
from llmtop.analysis.kernels.lacking import lacking
from llmtop.analysis.kernels.nvtx_ranges import in_range, only_range, range_shares
from llmtop.analysis.kernels.table import Grouping, kernel_table, kernels_of, roofline_view, stall_bars, stall_tree
from llmtop.analysis.pages.correlate import correlations
from llmtop.analysis.pages.events import events, events_table
from llmtop.analysis.pages.gpus import gpu_processes_table, gpus_view
from llmtop.analysis.pages.header import header
from llmtop.analysis.pages.lanes import lanes_view
from llmtop.analysis.pages.report import entries, kernel_time, summary
from llmtop.analysis.roofline.efficiency import efficiency_view
from llmtop.analysis.roofline.live import live_view, mean_point
from llmtop.analysis.roofline.server import server_roofline
from llmtop.analysis.rules import report_rules
from llmtop.analysis.rules.base import Rule
from llmtop.analysis.rules.live_rules import RULES
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.summary import series_row
from llmtop.analysis.server.configuration import configuration
from llmtop.analysis.server.heatmaps import run_queue_heatmap, syscall_heatmap
from llmtop.analysis.server.history import server_history
from llmtop.analysis.server.objectives import judged_now
from llmtop.analysis.server.view import server_view
from llmtop.analysis.threads.details import thread_details
from llmtop.analysis.threads.flames import Order
from llmtop.analysis.threads.idle_causes import idle_causes
from llmtop.analysis.threads.neighbours import neighbours
from llmtop.analysis.threads.shares import ThreadsView, threads_view
from llmtop.analysis.threads.stall_tree import stall_tree as live_stall_tree
from llmtop.analysis.threads.syscalls import SyscallsView, syscalls_table, syscalls_view
from llmtop.analysis.threads.table import threads_table
from llmtop.analysis.timeline.capture import capture_length
from llmtop.analysis.timeline.idle_view import idle_view, picture
from llmtop.analysis.timeline.listed import Listed, listed
from llmtop.analysis.timeline.listed_table import listed_table
from llmtop.analysis.timeline.span_rows import span_rows
from llmtop.analysis.views import TableView
from llmtop.model import NS_PER_S, Trace, TrackKind, Unknown
from llmtop.parsers.registry import load
from tests.analysis.test_steps import GEMM, NCCL, launch, server
from tests.analysis.test_view_limits import gpu_rows
from tests.analysis.verdict_scenes import SITUATIONS
from tests.live_traces import AMPERE, NO_GPU, NOTHING, TARGET, Scene, live_trace, probed
from tests.nsys_capture import MS, PID, TID, US, Capture
from tests.nsys_scenes import SCENES
from tests.parsers.sample_reports import SAMPLE_TRACES
from tests.random_reports import random_capture, random_report
from tests.random_servers import RandomServer
from tests.whole import whole

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

REPORTS = sorted(path for path in SAMPLE_TRACES.rglob("*.*") if path.is_file() and path.suffix != ".md")
IN_FULL = ("llama-prefill-decode", "llama-generate", "llama-decode.ncu", "few-metrics", "barriers")
SCENES_IN_FULL = (
    "Python in a range",
    "one GPU launched late",
    "graphs and kernels",
    "pageable copies",
    "healthy",
    "no CPU",
)
"""Of each kind of capture; of all others the findings."""
WINDOW_NS = 60 * NS_PER_S
LIVE: dict[str, Callable[[], Trace]] = {
    "well known": lambda: probed(live_trace()),
    "four GPUs": lambda: live_trace(Scene(gpus=4)),
    "no GPM": lambda: live_trace(AMPERE),
    "no GPU": lambda: live_trace(NO_GPU),
    "nothing": lambda: live_trace(NOTHING),
    "idle": lambda: live_trace(Scene(is_idle=True)),
    **{name: SITUATIONS[name][0].trace for name in ("straggler", "engine killed")},
}


@pytest.fixture(autouse=True)
def _no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of code is the same whatever the machine has."""
    monkeypatch.setattr("llmtop.parsers.disassembly.disassemblers", lambda: iter(()))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_is_said_of_a_server(situation: str, snapshot: SnapshotAssertion) -> None:
    assert whole(diagnosis=diagnose(SITUATIONS[situation][0].trace())) == snapshot


@pytest.mark.parametrize("name", LIVE)
def test_what_is_known_of_a_server(name: str, snapshot: SnapshotAssertion) -> None:
    trace = LIVE[name]()
    assert whole(**_of_server(trace), **_of_threads(trace)) == snapshot


@pytest.mark.parametrize("seed", range(4))
def test_of_any_server_everything_can_be_asked(seed: int) -> None:
    trace = RandomServer(seed, told=(0.9, 0.7, 0.4)[seed % 3], noise=0.02 * (seed % 2)).trace()
    assert_is_told(**_of_server(trace), **_of_threads(trace), rules=_each(RULES, trace))


def assert_is_told(**views: object) -> None:
    """Every field and every property of them can be had, and none is a number that is none."""
    assert [line for line in whole(16, **views).splitlines() if re.search(r"\bnan\b", line)] == []


def _each(rules: Sequence[Rule], trace: Trace) -> dict[str, object]:
    """What every rule finds by itself, whatever others explain."""
    return {rule.id: list(rule.check(trace)) for rule in rules}


def _of_server(trace: Trace) -> dict[str, object]:
    gpus = trace.tracks_of(TrackKind.GPU)
    target = replace(TARGET, gpus=tuple(range(len(gpus))))
    rows = gpu_rows(trace, target)
    known = events(trace)
    return {
        "diagnosis": diagnose(trace),
        "header": header(trace, target),
        "server": server_view(trace),
        "settings": configuration(trace),
        "objectives": judged_now(trace),
        "gpus": gpus_view(trace, target),
        "gpu_processes": None if isinstance(rows, Unknown) else gpu_processes_table(rows),
        "health": {gpu.id: health(trace, gpu) for gpu in gpus},
        "roofline": {gpu.id: live_view(trace, gpu.id, "bfloat16") for gpu in gpus},
        "mean": {gpu.id: mean_point(trace, gpu.id, "bfloat16", WINDOW_NS) for gpu in gpus},
        "server_roofline": server_roofline(trace, target),
        "efficiency": efficiency_view(trace, target),
        "lanes": lanes_view(trace),
        "history": server_history(trace),
        "events": known,
        "events_table": events_table(known, trace.end_ns),
        "correlations": correlations(trace),
        "series": tuple(series_row(trace, series) for _, series in sorted(trace.series.items())),
    }


def _of_threads(trace: Trace) -> dict[str, object]:
    threads, calls = threads_view(trace), syscalls_view(trace)
    return {
        "threads": threads,
        "threads_table": threads_table(trace, threads) if isinstance(threads, ThreadsView) else None,
        "details": _details(trace, threads),
        "calls": calls,
        "calls_table": syscalls_table(calls) if isinstance(calls, SyscallsView) else None,
        "queues": run_queue_heatmap(trace, WINDOW_NS, 20),
        "latencies": syscall_heatmap(trace, None, WINDOW_NS, 20),
        "idle": idle_causes(trace),
        "neighbours": neighbours(trace),
        "stacks": {order: live_stall_tree(trace, order) for order in Order},
    }


def _details(trace: Trace, view: ThreadsView | Unknown) -> object:
    if isinstance(view, Unknown):
        return view
    return [thread_details(trace, [(row.pid, row.tid)]) for row in view.rows]


def varied(made: Capture, step: int, at: int) -> int:
    """In each step an all-reduce of two ranks, a copy, an allocation and an OS call; one lasts."""
    at = launch(made, at, NCCL, 2 * MS if step == 11 else 50 * US, stream=9)
    launch(made, at - 60 * US, GEMM, gpu=1, pid=PID + 1, tid=TID + 1)
    launch(made, at - 40 * US, NCCL, gpu=1, stream=9, pid=PID + 1, tid=TID + 1)
    made.copy(at, at + 20 * US, made.call("cudaMemcpyAsync", at, at + 10 * US))
    made.call("cudaMalloc", at, at + 30 * US)
    made.os("read", at, at + 30 * US)
    return at + 30 * US


def test_which_columns_tables_have(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    """What each is, `test_table_columns.py` tells."""
    timeline = server(varied, lambda step: "prefill" if step < 5 else "decode").trace(tmp_path)
    parts = {by: breakdown(timeline, by) for by in By}
    lists = {what: listed(timeline, what) for what in Listed}
    report = load(SAMPLE_TRACES / "nsys/2025.3.2/llama-prefill-decode.sqlite.xz")
    tables: dict[str, TableView] = {
        **{f"kernels by {grouping}": kernel_table(report, grouping) for grouping in Grouping},
        **{f"parts by {by}": breakdown_table(part) for by, part in parts.items() if isinstance(part, Breakdown)},
        **{f"{what}": listed_table(rows, what) for what, rows in lists.items() if not isinstance(rows, Unknown)},
    }
    assert len(tables) == len(Grouping) + len(By) + len(Listed)
    assert {name: ", ".join(column.key for column in table.columns) for name, table in tables.items()} == snapshot


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_what_is_said_of_a_report(path: Path, snapshot: SnapshotAssertion) -> None:
    trace = load(path)
    views = _of_report(trace) if path.name.startswith(IN_FULL) else {"diagnosis": diagnose(trace)}
    assert whole(**views).replace(str(SAMPLE_TRACES), "SAMPLES") == snapshot


@pytest.mark.parametrize("scene", SCENES)
def test_what_is_said_of_a_timeline(scene: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    trace = SCENES[scene].make().trace(tmp_path)
    views = _of_report(trace) if scene in SCENES_IN_FULL else {"diagnosis": diagnose(trace)}
    assert whole(**views).replace(str(tmp_path), "FOLDER") == snapshot


@pytest.mark.parametrize("seed", range(3))
def test_of_any_report_everything_can_be_asked(seed: int) -> None:
    trace = random_report(seed)
    assert_is_told(**_of_report(trace), rules=_each(report_rules.RULES, trace))


@pytest.mark.parametrize("seed", range(3))
def test_of_any_timeline_everything_can_be_asked(seed: int, tmp_path: Path) -> None:
    trace = random_capture(seed).trace(tmp_path)
    assert_is_told(**_of_report(trace), rules=_each(report_rules.RULES, trace))


def _of_ranges(trace: Trace) -> dict[str, object]:
    """What is left of a report when one of its ranges is chosen, by a full name or by a part of one."""
    names = [share.name for share in range_shares(trace)][:2]
    chosen = {name: only_range(trace, name) for name in (*names, *(name[:3] for name in names), "no such range")}
    return {
        name: one if isinstance(one, Unknown) else (one.origin.facts, in_range(one), len(kernels_of(one).table))
        for name, one in chosen.items()
    }


def _of_report(trace: Trace) -> dict[str, object]:
    idle = idle_view(trace)
    return {
        "diagnosis": diagnose(trace),
        "summary": summary(trace),
        "first": next(entries(trace), None),
        "kernel_time": kernel_time(trace),
        "capture": capture_length(trace),
        "kernels": {grouping: kernel_table(trace, grouping) for grouping in Grouping},
        "roofline": roofline_view(trace),
        "bars": stall_bars(trace),
        "stalls": stall_tree(trace),
        "by_reason": stall_tree(trace, reason_first=True),
        "lacking": lacking(trace),
        "families": family_shares(trace),
        "others": other_kinds(trace),
        "classes": kernel_classes(trace),
        "histograms": kernel_histograms(trace),
        "chains": fusion_chains(trace),
        "ranges": range_shares(trace),
        "each_range": range_shares(trace, each=True),
        "only": _of_ranges(trace),
        "communication": communication(trace),
        "spans": span_rows(trace),
        "each_span": span_rows(trace, each=True),
        "idle": idle,
        "pictures": [picture(gpu) for gpu in idle.gpus],
    }
