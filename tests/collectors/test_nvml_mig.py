"""MIG instances: tracks of their own, measured through GPM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop.model import Origin, TrackKind
from llmtop.session import Recorder
from tests.collectors.nvml_looks import Clock, doctor, nvml_collector, poll_twice, reasons, values
from tests.fake_nvml.build import NO_PERMISSION

if TYPE_CHECKING:
    from tests.fake_nvml.build import FakeNvml


@pytest.fixture
def sliced(machine: FakeNvml) -> FakeNvml:
    """Two GPUs; the first has instance 1 with one compute instance, and instance 2 with two."""
    machine.set(gpus=2)
    machine.set_gpu(0, mig=1, mig_instances="1 2 2")
    machine.set_gpu(
        0,
        **{
            "mig1.gpm.10": 41.5,
            "mig2.gpm.10": 7,
            "mig2.profile": "3g.40gb",
            "mig2.sm_count": 60,
            "mig2.memory_used": 5_000_000_000,
            "mig2.memory_total": 42_000_000_000,
        },
    )
    return machine


def test_instances_have_tracks_with_gpm_and_memory(sliced: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        collector.poll()  # the instances are found
        trace = poll_twice(collector, clock)
    assert [track.id for track in trace.tracks.values() if track.kind is TrackKind.GPU_INSTANCE] == [
        "gpu:0/mig:1",
        "gpu:0/mig:2",
    ]
    big = trace.tracks[ids.gpu_instance(ids.gpu(0), 2)]
    assert (big.parent, big.name) == ("gpu:0", "NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert big.facts == {
        "gpu_instance": 2,
        "compute_instances": 2,
        "name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "uuid": "MIG-00000000-0000-0000-0000-000000000002",
        "profile": "3g.40gb",
        "memory_total": 42_000_000_000,
        "sm_count": 60,
    }
    assert values(trace, ids.gpu_instance(ids.gpu(0), 1))["gpu.dram"] == 41.5
    assert values(trace, ids.gpu_instance(ids.gpu(0), 2))["gpu.dram"] == 7
    assert values(trace, ids.gpu_instance(ids.gpu(0), 2))["gpu.memory_used"] == 5_000_000_000
    assert values(trace, ids.gpu(1))["gpu.dram"] == 84.3


def test_mig_without_a_visible_instance_says_so(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, mig=1)
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert reasons(trace)["gpu:0/mig"] == "MIG is on, but no instance with a compute instance is visible"


def test_a_user_who_may_not_see_instances_is_told(sliced: FakeNvml, clock: Clock) -> None:
    sliced.set(**{"fail.nvmlDeviceGetMigDeviceHandleByIndex": NO_PERMISSION})
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert reasons(trace)["gpu:0/mig"] == "no permission to use the GPU"
    assert values(trace)["gpu.memory_used"] is not None


def test_toggling_mig_brings_and_ends_tracks(sliced: FakeNvml, clock: Clock) -> None:
    recorder = Recorder(Origin("live"))
    with nvml_collector(clock) as collector:

        def tracks_after(seconds: float) -> list[str]:
            clock.advance(seconds)
            recorder.append(collector.name, collector.poll())
            return [track.id for track in recorder.freeze().tracks_of(TrackKind.GPU_INSTANCE)]

        assert tracks_after(0) == ["gpu:0/mig:1", "gpu:0/mig:2"]
        sliced.set_gpu(0, mig_instances="2")
        assert tracks_after(5) == ["gpu:0/mig:2"]
        sliced.set_gpu(0, mig=0)
        assert tracks_after(5) == []
        assert recorder.freeze().tracks[ids.gpu(0)].facts["mig"] == "disabled"
        sliced.set_gpu(0, mig=1)
        assert tracks_after(5) == ["gpu:0/mig:2"]


def test_another_instance_under_an_old_number_starts_anew(sliced: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        collector.poll()
        poll_twice(collector, clock)
        sliced.set_gpu(0, mig_layout=7)
        clock.advance(5)
        trace = collector.poll()
        assert trace.tracks[ids.gpu_instance(ids.gpu(0), 1)].facts["uuid"] == "MIG-00000007-0000-0000-0000-000000000001"
        assert trace.gone == ()
        assert values(trace, ids.gpu_instance(ids.gpu(0), 1))["gpu.dram"] is None
        assert reasons(trace)["gpu:0/mig:1/gpm"] == "the first GPM window is not over yet"


def test_a_lost_gpu_ends_the_lines_of_its_instances_and_they_return(sliced: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        collector.poll()
        poll_twice(collector, clock)
        sliced.set_gpu(0, lost=1)
        clock.advance(0.25)
        lost = collector.poll()
        assert set(values(lost, ids.gpu_instance(ids.gpu(0), 2)).values()) == {None}
        assert "gpu:0/mig:2" in lost.tracks
        sliced.set_gpu(0, lost=None)
        sliced.set_gpu(0, mig_instances="2")
        clock.advance(5)
        back = collector.poll()
        assert back.gone == ("gpu:0/mig:1",)
        assert values(poll_twice(collector, clock), ids.gpu_instance(ids.gpu(0), 2))["gpu.dram"] == 7


def test_doctor_names_mig(sliced: FakeNvml) -> None:
    assert doctor()["GPU 0"].endswith(", MIG")
