"""What goes wrong with GPUs and their driver, through a recorder: it is said, nothing else stops, it recovers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import counter_rate, latest
from llmtop.model import NS_PER_S, MarkKind, Origin, Trace, TrackId, TrackKind, Unknown, What
from llmtop.session import Recorder
from tests.collectors.nvml_looks import Clock, nvml_collector, wait_until
from tests.fake_nvml.build import DRIVER_NOT_LOADED, NOT_SUPPORTED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from llmtop.model import Metric
    from tests.fake_nvml.build import FakeNvml

UNINITIALIZED = 1


class Watch:
    """A collector that is polled until what is waited for is so; a clock of its own goes on from poll to poll."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.collector = nvml_collector(self.clock)
        self.recorder = Recorder(Origin("live"))
        self.recorder.tell_sources([self.collector.owns])

    def start(self) -> None:
        assert self.collector.missing() is None
        self.collector.__enter__()

    def until(self, is_so: Callable[[Trace], bool]) -> Trace:
        """The first trace that is so."""

        def look() -> bool:
            self.clock.advance(0.25)
            self.recorder.append(self.collector.name, self.collector.poll())
            return is_so(self.recorder.freeze())

        wait_until(look, pause_s=0)
        return self.recorder.freeze()

    def until_all_work(self, gpus: int = 1) -> Trace:
        return self.until(lambda trace: all(now(trace, ids.gpu(i), v.GPU_DRAM) == 84.3 for i in range(gpus)))


@pytest.fixture
def watch(machine: FakeNvml) -> Iterator[Watch]:
    before, one = set(threading.enumerate()), Watch()
    yield one
    machine.clear()
    one.collector.__exit__(None, None, None)
    wait_until(lambda: not set(threading.enumerate()) - before)


def now(trace: Trace, track: TrackId, metric: Metric) -> float | str:
    """The newest value, or why there is none."""
    value = latest(trace, track, metric)
    return value.reason if isinstance(value, Unknown) else value


def kinds(trace: Trace) -> set[MarkKind]:
    return {mark.kind for mark in trace.marks}


def test_a_gpu_is_lost_and_comes_back(machine: FakeNvml, watch: Watch) -> None:
    machine.set(gpus=3)
    watch.start()
    watch.until_all_work(gpus=3)
    machine.set_gpu(1, lost=1)
    lost = watch.until(lambda trace: MarkKind.GPU_LOST in kinds(trace))
    assert now(lost, ids.gpu(1), v.GPU_POWER) == "the GPU is lost: it has fallen off the bus"
    assert [track.id for track in lost.tracks_of(TrackKind.GPU)] == ["gpu:0", "gpu:1", "gpu:2"]
    machine.set_gpu(1, lost=None)
    watch.until(lambda trace: MarkKind.GPU_BACK in kinds(trace))
    watch.until_all_work(gpus=3)


def test_every_call_is_not_supported(machine: FakeNvml, watch: Watch) -> None:
    watch.start()
    watch.until_all_work()
    machine.set(fail_everything=NOT_SUPPORTED)
    why = "the driver does not report it for this GPU"
    watch.until(lambda trace: now(trace, ids.gpu(0), v.GPU_POWER) == why and now(trace, ids.gpu(0), v.GPU_DRAM) == why)
    machine.set(fail_everything=None)
    watch.until_all_work()


@pytest.mark.parametrize("code", [UNINITIALIZED, DRIVER_NOT_LOADED, UNKNOWN])
def test_nvml_dies_and_lives_again(machine: FakeNvml, watch: Watch, code: int) -> None:
    machine.set(gpus=2)
    watch.start()
    watch.until_all_work(gpus=2)
    machine.set(fail_everything=code)
    dead = watch.until(lambda trace: trace.why_missing(What("nvml")) is not None and MarkKind.GPU_LOST in kinds(trace))
    why = dead.why_missing(What("nvml"))
    assert why is not None
    assert why.remedy
    assert now(dead, ids.gpu(1), v.GPU_MEMORY_USED) == now(dead, ids.gpu(0), v.GPU_DRAM) == why.reason
    machine.set(fail_everything=None)
    watch.until_all_work(gpus=2)


def test_a_call_hangs_and_returns(machine: FakeNvml, watch: Watch) -> None:
    machine.set_gpu(0, **{"field.82": 50})
    watch.start()
    watch.until_all_work()
    machine.set_gpu(0, **{"hang.nvmlDeviceGetPowerUsage": 1})
    hung = watch.until(lambda trace: MarkKind.GPU_HUNG in kinds(trace))
    why = hung.why_missing(What("gpu:0"))
    assert why is not None
    assert why.reason.startswith("hung: nvmlDeviceGetPowerUsage has not returned for ")
    assert "dmesg" in why.remedy
    assert now(hung, ids.gpu(0), v.GPU_TEMPERATURE_MEMORY) == now(hung, ids.gpu(0), v.GPU_DRAM) == why.reason
    assert "gpu:0" in hung.tracks
    machine.set_gpu(0, **{"hang.nvmlDeviceGetPowerUsage": None})
    back = watch.until(lambda trace: now(trace, ids.gpu(0), v.GPU_TEMPERATURE_MEMORY) == 50)
    assert "GPU 0 answers again after" in [mark.text[:25] for mark in back.marks if mark.kind == MarkKind.GPU_BACK]
    watch.until_all_work()


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetPowerUsage", "nvmlGpmSampleGet", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetFieldValues"],
)
def test_a_gpu_that_hangs_costs_itself_only(machine: FakeNvml, watch: Watch, function: str) -> None:
    machine.set(gpus=4)
    watch.start()
    watch.until_all_work(gpus=4)
    machine.set_gpu(2, **{f"hang.{function}": 1})
    hung = watch.until(lambda trace: MarkKind.GPU_HUNG in kinds(trace))
    others = (ids.gpu(0), ids.gpu(1), ids.gpu(3))
    newest = [hung.series[track, v.GPU_DRAM.name].times[-1] for track in others]
    watch.until(lambda trace: all(trace.series[o, v.GPU_DRAM.name].times[-1] > max(newest) for o in others))
    trace = watch.until_all_work(gpus=2)
    assert trace.why_missing(What("nvml")) is None
    assert str(now(trace, ids.gpu(2), v.GPU_DRAM)).startswith("hung: nvml")
    assert [mark.track for mark in trace.marks if mark.kind == MarkKind.GPU_HUNG] == ["gpu:2"]


def test_a_gpu_that_hangs_from_the_start(machine: FakeNvml, watch: Watch) -> None:
    machine.set(gpus=2)
    machine.set_gpu(1, **{"hang.nvmlDeviceGetName": 1})
    watch.start()
    watch.until_all_work(gpus=1)
    trace = watch.until(lambda trace: MarkKind.GPU_HUNG in kinds(trace))
    assert [track.id for track in trace.tracks_of(TrackKind.GPU)] == ["gpu:0", "gpu:1"], "it has its row"
    assert now(trace, ids.gpu(0), v.GPU_DRAM) == 84.3


def test_opening_hangs_and_returns(machine: FakeNvml, watch: Watch) -> None:
    machine.set(**{"hang.nvmlInitWithFlags": 1})
    watch.start()
    said = "hung: nvmlInitWithFlags has not returned for "
    watch.until(lambda trace: any(one.what == "nvml" and one.why.reason.startswith(said) for one in trace.missing))
    machine.set(**{"hang.nvmlInitWithFlags": None})
    watch.until_all_work()


def test_the_number_of_gpus_changes(machine: FakeNvml, watch: Watch) -> None:
    machine.set(gpus=2)
    watch.start()
    watch.until_all_work(gpus=2)
    machine.set(gpus=4)
    watch.until_all_work(gpus=4)
    machine.set(gpus=1)
    gone = watch.until(lambda trace: isinstance(now(trace, ids.gpu(3), v.GPU_DRAM), str))
    assert len(gone.tracks_of(TrackKind.GPU)) == 4, "rows stay"
    watch.until(lambda trace: now(trace, ids.gpu(3), v.GPU_DRAM) == "the driver does not list this GPU any more")
    watch.until_all_work(gpus=1)
    machine.set(gpus=4)
    watch.until_all_work(gpus=4)


def test_a_row_never_turns_into_another_gpu(machine: FakeNvml, watch: Watch) -> None:
    """After a reload the driver counts one GPU less: what was the third is now the second."""
    machine.set(gpus=3)
    watch.start()
    watch.until_all_work(gpus=3)
    uuid = "GPU-00000000-0000-0000-0000-000000000002"
    machine.set(fail_everything=DRIVER_NOT_LOADED)
    watch.until(lambda trace: trace.why_missing(What("nvml")) is not None)
    machine.set_gpu(1, uuid=uuid)
    machine.set_gpm(1, dram=33)
    machine.set(fail_everything=None, gpus=2)
    gone = "the driver does not list this GPU any more"
    trace = watch.until(
        lambda trace: now(trace, ids.gpu(2), v.GPU_DRAM) == 33 and now(trace, ids.gpu(1), v.GPU_DRAM) == gone
    )
    assert trace.tracks[ids.gpu(2)].facts["uuid"] == uuid


def test_mig_is_toggled(machine: FakeNvml, watch: Watch) -> None:
    machine.set_gpu(0, mig_instances="1 2")
    watch.start()
    watch.until_all_work()
    machine.set_gpu(0, mig=1)
    on = watch.until(lambda trace: now(trace, ids.gpu_instance(ids.gpu(0), 2), v.GPU_DRAM) == 84.3)
    assert now(on, ids.gpu(0), v.GPU_UTIL) == "NVML does not report it for a GPU in MIG mode"
    machine.set_gpu(0, mig=0)
    off = watch.until(lambda trace: not trace.tracks_of(TrackKind.GPU_INSTANCE))
    assert not [key for key in off.series if key[0].startswith("gpu:0/mig")]
    watch.until(lambda trace: now(trace, ids.gpu(0), v.GPU_UTIL) == 97)


def test_counters_go_backwards(machine: FakeNvml, watch: Watch) -> None:
    """A reset GPU counts from zero: no rate is ever negative."""
    throttled = v.labelled(v.GPU_THROTTLED, v.ThrottleReason.POWER_CAP)
    machine.set_gpu(0, energy_mj=9_000_000, **{"field.74": 5_000_000_000, "field.3": 100})
    watch.start()
    watch.until(lambda trace: now(trace, ids.gpu(0), throttled) == 5_000_000_000)
    machine.set_gpu(0, energy_mj=1_000, **{"field.74": 7, "field.3": 0})
    trace = watch.until(
        lambda trace: now(trace, ids.gpu(0), throttled) == 7 and now(trace, ids.gpu(0), v.GPU_ENERGY) == 1
    )
    for metric in (v.GPU_ENERGY, throttled, v.GPU_ECC_CORRECTED):
        rate = counter_rate(trace, ids.gpu(0), metric, 600 * NS_PER_S)
        assert isinstance(rate, Unknown) or rate >= 0


def test_sixteen_gpus_with_hostile_names(machine: FakeNvml, watch: Watch) -> None:
    machine.set(gpus=16, **{"process_name.7": "[bold]\x1b[31m[/bold]"})
    for index in range(16):
        machine.set_gpu(index, compute="7:1", name=f"[link={index}]GPU\u202e[/link]")
    watch.start()
    trace = watch.until_all_work(gpus=16)
    assert {track.name for track in trace.tracks_of(TrackKind.GPU_PROCESS)} == {"[bold]␛[31m[/bold]"}
    assert trace.tracks[ids.gpu(15)].name == "[link=15]GPU\ufffd[/link]"
