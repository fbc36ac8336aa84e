"""Who uses a GPU, and how much of its time; NVML's faults filtered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop.model import TrackKind, Unknown, What
from tests.collectors.nvml_looks import Clock, calls, nvml_collector, reasons, values

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace
    from tests.fake_nvml.build import FakeNvml

SM = "gpu_process.sm"
SECOND_US = 1_000_000


@pytest.fixture
def shared_gpu(machine: FakeNvml) -> FakeNvml:
    machine.set_gpu(0, compute="4242:1000 4243:1000", shares="4242:62", shares_us=5 * SECOND_US)
    return machine


def share(trace: Trace, pid: int) -> float | str | None:
    """The share of a process in a poll, or why it has none."""
    track = ids.gpu_process(ids.gpu(0), pid)
    why = reasons(trace).get(f"{track}/{SM}")
    return why if why else values(trace, track).get(SM)


def test_shares_begin_with_the_second_look(shared_gpu: FakeNvml, clock: Clock) -> None:
    """What the driver's buffer holds at the first look may be minutes old."""
    with nvml_collector(clock) as collector:
        assert share(collector.poll(), 4242) == "the first samples of the GPU's time are not in yet"
        shared_gpu.set_gpu(0, shares="4242:62 4243:33", shares_us=8 * SECOND_US)
        clock.advance(5)
        trace = collector.poll()
        assert (share(trace, 4242), share(trace, 4243)) == (62, 33)
        clock.advance(0.25)
        assert share(collector.poll(), 4242) is None, "nothing new, and not due"


def test_samples_that_were_seen_before_do_not_count(shared_gpu: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        collector.poll()
        shared_gpu.set_gpu(0, shares_us=8 * SECOND_US)
        clock.advance(5)
        assert share(collector.poll(), 4242) == 62
        clock.advance(5)
        stale = collector.poll()
    assert values(stale, ids.gpu_process(ids.gpu(0), 4242))[SM] is None
    assert share(stale, 4242) == "NVML has no new sample of the process: idle, or too short to be seen"


@pytest.mark.parametrize("shares", ["4242:130", "4242:4294967295"])
def test_a_share_over_100_percent_is_not_one(shared_gpu: FakeNvml, clock: Clock, shares: str) -> None:
    with nvml_collector(clock) as collector:
        collector.poll()
        shared_gpu.set_gpu(0, shares=shares, shares_us=8 * SECOND_US)
        clock.advance(5)
        why = share(collector.poll(), 4242)
    assert isinstance(why, str)
    assert "which cannot be" in why


def test_samples_of_processes_that_do_not_run_are_dropped(shared_gpu: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        collector.poll()
        shared_gpu.set_gpu(0, shares="99:80 4242:20", shares_us=8 * SECOND_US)
        clock.advance(5)
        trace = collector.poll()
    assert share(trace, 4242) == 20
    assert "gpu:0/process:99" not in trace.tracks


def test_a_wall_clock_that_was_set_back_costs_half_a_minute(shared_gpu: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        collector.poll()
        shared_gpu.set_gpu(0, shares="4242:50", shares_us=1 * SECOND_US)
        for step in range(8):
            clock.advance(5)
            assert isinstance(share(collector.poll(), 4242), str), step
        shared_gpu.set_gpu(0, shares_us=2 * SECOND_US)
        clock.advance(5)
        assert share(collector.poll(), 4242) == 50


def test_mig_has_no_shares(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, mig=1, mig_instances="1", compute="4242:10:1 4242:20:2", shares="4242:50")
    with nvml_collector(clock) as collector:
        trace = collector.poll()
    assert share(trace, 4242) == "NVML does not report it for a GPU in MIG mode"
    assert values(trace, ids.gpu_process(ids.gpu(0), 4242))["gpu_process.memory"] == 30
    assert trace.tracks[ids.gpu_process(ids.gpu(0), 4242)].facts["mig"] == "1, 2"


# PID namespaces: a /proc of our own making


def make_proc(folder: Path, namespace: str, **nspid: str) -> Path:
    """A /proc whose processes are given by their NSpid line: p4242="4242 17"."""
    (folder / "self/ns").mkdir(parents=True)
    (folder / "self/ns/pid").symlink_to(f"pid:[{namespace}]")
    for name, line in nspid.items():
        process = folder / name[1:]
        (process / "fd").mkdir(parents=True)
        (process / "status").write_text(f"Name:\tpython\nTgid:\t{name[1:]}\nNSpid:\t{line}\n")
        (process / "fd/3").symlink_to("/dev/nvidia0")
    return folder


HOST, CONTAINER = "4026531836", "4026532200"


def test_a_process_in_a_container_has_the_pid_that_it_has_there(
    shared_gpu: FakeNvml, clock: Clock, tmp_path: Path
) -> None:
    proc = make_proc(tmp_path / "proc", HOST, p4242="4242 17", p4243="4243")
    with nvml_collector(clock, proc=proc) as collector:
        trace = collector.poll()
    assert trace.tracks[ids.gpu_process(ids.gpu(0), 4242)].facts["container_pid"] == 17
    assert "container_pid" not in trace.tracks[ids.gpu_process(ids.gpu(0), 4243)].facts
    assert not [what for what in reasons(trace) if what.endswith(("4242", "4243"))]


def test_in_a_container_a_host_pid_means_nothing(shared_gpu: FakeNvml, clock: Clock, tmp_path: Path) -> None:
    """4242 is nobody here; 4243 is somebody else: it has no GPU open."""
    proc = make_proc(tmp_path / "proc", CONTAINER, p4243="4243")
    (proc / "4243/fd/3").unlink()
    with nvml_collector(clock, proc=proc) as collector:
        collector.poll()
        clock.advance(0.25)
        trace = collector.poll()
    why = Unknown(
        "host PID 4242 is not visible in this PID namespace",
        "run the container with --pid=host (Kubernetes: hostPID: true)",
    )
    assert trace.why_missing(What("gpu:0/process:4242")) == why
    assert trace.tracks[ids.gpu_process(ids.gpu(0), 4242)].facts["container_pid"] == why
    assert reasons(trace)["gpu:0/process:4243"] == "host PID 4243 is not visible in this PID namespace"
    assert values(trace, ids.gpu_process(ids.gpu(0), 4242))["gpu_process.memory"] == 1000


def test_in_a_container_a_pid_that_holds_the_gpu_is_the_process(
    shared_gpu: FakeNvml, clock: Clock, tmp_path: Path
) -> None:
    proc = make_proc(tmp_path / "proc", CONTAINER, p4242="4242", p4243="4243")
    with nvml_collector(clock, proc=proc) as collector:
        assert not [what for what in reasons(collector.poll()) if what.endswith(("4242", "4243"))]


def test_the_list_of_processes_is_asked_for_once_a_look_however_many_there_are(machine: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        for count, asked in ((2, 1), (30, 2), (33, 1), (0, 1)):
            machine.set_gpu(0, compute=" ".join(f"{4000 + i}:1000" for i in range(count)))
            before = calls("nvmlDeviceGetComputeRunningProcesses_v3")
            trace = collector.poll()
            assert len(trace.tracks_of(TrackKind.GPU_PROCESS)) == count
            assert calls("nvmlDeviceGetComputeRunningProcesses_v3") - before == asked
            clock.advance(0.5)
