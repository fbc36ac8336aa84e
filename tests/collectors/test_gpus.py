"""NVML in a process of its own: what it reads arrives whole, and nothing that hangs or dies there stops llmtop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from llmtop import ids, procfs
from llmtop import vocabulary as v
from llmtop.collectors import children
from llmtop.collectors.gpus import GpuCollector, Patience, checks, gpus_now
from llmtop.model import MarkKind, Trace, TrackId, Unknown, What
from tests.collectors.nvml_looks import Clock, TickingClock, doctor, values, wait_until
from tests.fake_nvml.build import HANG_LOADING, FakeNvml

if TYPE_CHECKING:
    from collections.abc import Iterator


PATIENT = Patience(start_s=60, answer_s=60, stop_s=60, killed_s=60)
IMPATIENT = Patience(start_s=0.02, answer_s=0.02, hung_s=0.02, stop_s=0.02, killed_s=60)


@pytest.fixture
def gpus(fake_nvml: FakeNvml) -> Iterator[GpuCollector]:
    collector = GpuCollector(patience=PATIENT)
    yield collector
    collector.__exit__(None, None, None)


def poll_until(gpus: GpuCollector, track: TrackId, metric: str) -> Trace:
    """The first poll that reads a metric."""
    found: list[Trace] = []

    def look() -> bool:
        found.append(gpus.poll())
        return values(found[-1], track).get(metric) is not None

    wait_until(look)
    return found[-1]


def test_what_it_reads_arrives(fake_nvml: FakeNvml, gpus: GpuCollector) -> None:
    fake_nvml.set(gpus=2)
    fake_nvml.set_gpu(1, power_mw=300_500)
    assert gpus.missing() is None
    trace = poll_until(gpus, ids.gpu(1), v.GPU_DRAM.name)
    assert values(trace, ids.gpu(1))["gpu.power"] == 300.5
    assert values(trace, ids.gpu(1))["gpu.dram"] == 84.3
    assert trace.tracks[ids.gpu(0)].name == "NVIDIA H100 80GB HBM3"
    again = gpus.poll()
    assert again.tracks == trace.tracks, "what does not change is sent once, and is still there"
    assert trace.end_ns < again.end_ns < time.monotonic_ns(), "one clock"


def test_a_process_that_was_started_ahead_is_the_one_that_is_asked(fake_nvml: FakeNvml, gpus: GpuCollector) -> None:
    gpus.prepare()
    ahead = gpus._process
    assert ahead is not None
    assert gpus.missing() is None
    assert gpus._process is ahead
    assert values(poll_until(gpus, ids.gpu(0), v.GPU_DRAM.name), ids.gpu(0))["gpu.dram"] == 84.3


def test_without_a_driver_it_says_so_and_is_gone(fake_nvml: FakeNvml, gpus: GpuCollector) -> None:
    fake_nvml.set(**{"fail.nvmlInitWithFlags": 9})
    assert gpus.missing() == Unknown(
        "the NVIDIA kernel driver is not loaded", "sudo modprobe nvidia, and look at: dmesg | grep -i nvrm"
    )
    assert children.running() == ()
    assert gpus_now(GpuCollector(patience=PATIENT)) is None


def test_loading_that_hangs_is_named(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HANG_LOADING, "100")
    clock = Clock()
    with GpuCollector(clock, IMPATIENT) as gpus:
        assert gpus.missing() is None, "it is not known that there is nothing"
        assert gpus.poll().missing == (), "it is too early to say"
        clock.advance(2)
        trace = gpus.poll()
        (missing,) = trace.missing
        assert missing.what == "nvml"
        assert missing.why.reason == "hung: loading libnvidia-ml.so.1 has not ended for 2 s"
        assert [mark.kind for mark in trace.marks] == [MarkKind.STUCK]
        assert gpus.poll().marks == (), "said once"


def test_a_process_that_dies_is_said_and_started_again(fake_nvml: FakeNvml) -> None:
    clock = Clock()
    with GpuCollector(clock, PATIENT) as gpus:
        assert gpus.missing() is None
        poll_until(gpus, ids.gpu(0), v.GPU_POWER.name)
        (pid,) = children.running()
        os.kill(pid, signal.SIGSEGV)
        traces: list[Trace] = []
        wait_until(lambda: traces.append(gpus.poll()) or traces[-1].why_missing(What("nvml")) is not None)  # type: ignore[func-returns-value]
        trace = traces[-1]
        assert str(trace.why_missing(What("nvml"))).startswith("NVML's process ended: by SIGSEGV")
        assert values(trace)["gpu.power"] is None, "its lines end"
        clock.advance(9.9)
        gpus.poll()
        assert not children.running(), "not before ten seconds are over"
        clock.advance(0.1)
        poll_until(gpus, ids.gpu(0), v.GPU_POWER.name)


@pytest.mark.parametrize("is_loading", [True, False])
def test_it_ends_with_llmtop_whatever_it_hangs_in(fake_nvml: FakeNvml, is_loading: bool) -> None:
    """Killed so that it cannot clean up, while its child hangs with every lock there is."""
    program = (
        "from llmtop.collectors import children, gpus; one = gpus.GpuCollector(patience=gpus.Patience(start_s=0.02));"
        "one.missing(); print(*children.running(), flush=True); input()"
    )
    extra = {HANG_LOADING: "100"} if is_loading else {}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **extra},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert procfs.stat(pid) is not None
        starter.kill()
    wait_until(lambda: (stat := procfs.stat(pid)) is None or stat.state == "Z")


def test_doctor_and_who_asks_once_are_told_that_loading_hangs(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HANG_LOADING, "100")
    clock = TickingClock()
    (check,) = checks(GpuCollector(clock, IMPATIENT), clock)
    assert isinstance(check.state, Unknown)
    assert check.state.reason.startswith("hung: loading libnvidia-ml.so.1")
    assert gpus_now(GpuCollector(clock, IMPATIENT), clock) is None


def test_doctor_names_the_gpu_that_hangs(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(gpus=3)
    fake_nvml.set_gpu(1, **{"hang.nvmlDeviceGetName": 1})
    states = doctor()
    fake_nvml.clear()
    wait_until(lambda: "nvml" not in [thread.name for thread in threading.enumerate()])
    assert states["GPU 1"].startswith("hung: nvmlDeviceGetName has not returned for ")
    assert states["GPU 0"] == states["GPU 2"] == "NVIDIA H100 80GB HBM3, driver 580.159.04"
