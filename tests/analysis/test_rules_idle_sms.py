"""Kernels of timelines that leave most of the GPU without a block, and those that are meant to."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.analysis.rules import idle_sms
from llmtop.model import Severity, Trace
from tests.nsys_capture import MS, US, Capture

SMS = 56


def made(
    folder: Path, *, blocks: int = 1, runs: int = 80 * US, name: str = "tendencies_334_gpu", sms: int | None = SMS
) -> Trace:
    """Twenty kernels of a hundred blocks with one of the given kind behind each, 100 µs from start to start."""
    capture = Capture(sms=sms)
    for i in range(20):
        call = capture.call("cudaLaunchKernel", i * 100 * US, i * 100 * US + US)
        capture.kernel(i * 100 * US, i * 100 * US + 10 * US, call, "full_gpu", blocks=100)
        call = capture.call("cudaLaunchKernel", i * 100 * US + US, i * 100 * US + 2 * US)
        capture.kernel(i * 100 * US + 10 * US, i * 100 * US + 10 * US + runs, call, name, blocks=blocks)
    return capture.trace(folder)


def test_a_long_kernel_of_one_block_is_found_with_what_it_leaves_idle(tmp_path: Path) -> None:
    (finding,) = idle_sms.check(made(tmp_path))
    assert finding.severity is Severity.WARNING
    assert finding.message == "grid 1 of 128 threads: 55 of the 56 SMs have no block"
    assert finding.subject == "tendencies_334_gpu"
    assert finding.at_stake_ns == pytest.approx(20 * 70 * US * 55 / 56)
    assert "collapse all loops" in finding.action
    assert "ncu --kernel-name tendencies_334_gpu" in finding.next_command


@pytest.mark.parametrize(("blocks", "is_found"), [(28, True), (29, False), (56, False)])
def test_it_takes_blocks_for_half_of_the_sms_or_fewer(blocks: int, *, is_found: bool, tmp_path: Path) -> None:
    assert bool(list(idle_sms.check(made(tmp_path, blocks=blocks)))) is is_found


def test_where_the_file_does_not_say_how_many_sms_there_are_nothing_is_said(tmp_path: Path) -> None:
    assert not list(idle_sms.check(made(tmp_path, sms=None)))


def test_a_kernel_that_is_over_before_a_launch_is_not_too_small(tmp_path: Path) -> None:
    assert not list(idle_sms.check(made(tmp_path, runs=9 * US)))


@pytest.mark.parametrize("name", ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "spin_kernel", "waitForFlag"])
def test_kernels_that_communicate_or_wait_are_small_on_purpose(name: str, tmp_path: Path) -> None:
    assert not list(idle_sms.check(made(tmp_path, name=name)))


@pytest.mark.parametrize(("other_gpu", "is_found"), [(0, False), (1, True)])
def test_a_kernel_beside_another_one_of_its_gpu_need_not_fill_it(
    other_gpu: int, *, is_found: bool, tmp_path: Path
) -> None:
    capture = Capture(sms=SMS)
    for i in range(10):
        for gpu, stream, name in ((0, 7, "one_gpu"), (other_gpu, 8, "other_gpu")):
            call = capture.call("cudaLaunchKernel", i * MS, i * MS + US)
            capture.kernel(i * MS + stream, i * MS + 800 * US, call, name, gpu=gpu, stream=stream, blocks=1)
    assert bool(list(idle_sms.check(capture.trace(tmp_path)))) is is_found


def test_a_twentieth_of_the_kernels_time_is_worth_a_finding_and_less_is_none(tmp_path: Path) -> None:
    capture = Capture(sms=SMS)
    call = capture.call("cudaLaunchKernel", 0, US)
    capture.kernel(0, 100 * MS, call, "full_gpu", blocks=1000)
    capture.kernel(100 * MS, 104 * MS, call, "small_gpu", blocks=1)
    assert not list(idle_sms.check(capture.trace(tmp_path)))
