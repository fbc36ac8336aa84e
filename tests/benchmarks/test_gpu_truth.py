"""The parts of the GPU check that need no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_truth import Looks, Row, Work, Workload, _said, judge, run_idle
from llmtop.analysis.roofline.rates import Rates
from llmtop.analysis.views import Quality, RooflinePoint, RooflineView
from llmtop.collectors.nvml.collector import NvmlCollector
from llmtop.model import Origin
from llmtop.session import Session
from tests.fake_nvml.build import FakeNvml

ROOT = Path(__file__).parents[2]
WORKLOAD = Workload("x", "bf16", lambda torch: Work(int), flops=(0.9, 1.1), bytes=(0.97, 1.03))


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("x", 100.0, 105.0, 10.0, 10.1, looks=5), "ok"),
        (Row("x", 100.0, 120.0, 10.0, 10.1, looks=5), "FLOP/s 1.200 not in 0.9..1.1"),
        (Row("x", 100.0, None, 10.0, 9.0, looks=5), "FLOP/s unknown not in 0.9..1.1; bytes/s 0.900 not in 0.97..1.03"),
        (Row("x", 100.0, 100.0, 10.0, 10.0, looks=2), "only 2 looks"),
    ],
)
def test_a_row_is_judged_by_its_bounds(row: Row, verdict: str) -> None:
    assert judge(WORKLOAD, row) == verdict


def test_work_that_the_machine_cannot_do_is_not_wrong() -> None:
    assert not Row("x", verdict="skipped: no fp8").is_wrong
    assert Row("x", verdict="only 2 looks").is_wrong


@pytest.mark.parametrize(("dram", "verdict"), [(0.0005, "ok"), (84.3, "expected idle, saw a point")])
def test_rest_must_read_as_rest(fake_nvml: FakeNvml, dram: float, verdict: str) -> None:
    busy = 17.9 if dram > 1 else 0.0
    fake_nvml.set_gpm(0, dram=dram, hmma=busy, tensor=busy)
    looks = Looks()
    session = Session([NvmlCollector()], Origin("live"), interval_s=0.13)
    session.on_news = lambda: looks.look(session.trace())
    session.start()
    row = run_idle(looks, 1.0)
    session.stop()
    assert row.verdict == verdict
    assert row.looks >= 3


def test_flops_are_told_by_both_clocks() -> None:
    done = Row("x", done_flops=660e12, done_bytes=6.4e12)
    point = RooflinePoint("now", 100.0, 640e12, 6.4e12, "bf16", "GPM", Quality.MEASURED)
    view = RooflineView("x", (), (point,))
    true, by_nvml = (Rates(1, 6.4e12, {"bf16": 640e12}, 1335.0, is_true_clock=is_true) for is_true in (True, False))
    row = _said(WORKLOAD, done, [(view, by_nvml, 1450.0), *[(view, true, 1450.0)] * 3])
    assert (row.looks, row.is_true_clock, row.true_flops) == (3, True, 640e12)
    assert row.nvml_flops == pytest.approx(640e12 * 1450 / 1335)
    assert _said(WORKLOAD, done, [(view, by_nvml, 1450.0)] * 3).true_flops is None


def test_without_torch_it_says_what_it_needs() -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; sys.modules['torch'] = None; from benchmarks.gpu_truth import main; main()",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr == "this needs torch with CUDA: pip install torch\n"
