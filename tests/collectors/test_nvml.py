"""The NVML collector against a stand-in library that speaks NVML's own ABI through pynvml."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llmtop import ids, procfs
from llmtop import vocabulary as v
from llmtop.collectors.nvml import gpm as nvml_gpm
from llmtop.collectors.nvml.collector import NvmlCollector
from llmtop.collectors.nvml.device import NOT_SAID, Device
from llmtop.model import Mark, MarkKind, Metric, Origin, Severity, Trace, TrackKind, Unknown
from llmtop.session import Recorder, Session
from tests.collectors.nvml_looks import (
    NO_TRUE_CLOCK,
    Clock,
    calls,
    doctor,
    nvml_collector,
    poll_twice,
    reasons,
    values,
    wait_until,
)
from tests.fake_nvml.build import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    VERSION_MISMATCH,
)

if TYPE_CHECKING:
    from tests.fake_nvml.build import FakeNvml

FUNCTION_NOT_FOUND = 13


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        *((number, number) for number in (0, 1, 2**31, 2**31 - 2, 2**40)),
        *((number, NOT_SAID) for number in (-1, -(2**31), 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)),
        ("a\x1bb", "a␛b"),
        (b"caf\xff", "caf�"),
        (Unknown("no such sensor"), Unknown("no such sensor")),
    ],
)
def test_what_a_driver_answers_where_it_knows_nothing_is_no_fact(answer: object, fact: object) -> None:
    """Zero is one: of errors, of a minor number, of a link that is down."""
    device = Device(SimpleNamespace(NVMLError=RuntimeError), "handle")
    assert device.fact(lambda nvml, handle: answer) == fact


def test_facts_of_a_gpu(collector: NvmlCollector) -> None:
    track = collector.poll().tracks[ids.gpu(0)]
    assert track.kind is TrackKind.GPU
    assert track.name == "NVIDIA H100 80GB HBM3"
    assert track.facts == {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "pci_bus_id": "00000000:06:00.0",
        "driver": "580.159.04",
        "memory_total": 85520809984,
        "bus_width_bits": 5120,
        "compute_capability": "9.0",
        "sm_count": 132,
        "minor": 0,
        "pcie_max_generation": 5,
        "pcie_max_width": 16,
        "nvlinks": Unknown("the driver shows no NVLink of this GPU"),
        "ecc": "enabled",
        "row_remapping": "none",
        "recovery_action": "none",
        "max_sm_mhz": 1980,
        "max_memory_mhz": 2619,
        "max_power_w": 700.0,
        "mig": "disabled",
        "gpm": "supported",
    }


def test_readings_in_their_units(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, power_mw=697100, energy_mj=5_000_000, clock_reasons=4, sm_mhz=1395, util=97)
    machine.set_gpm(0, hmma=91.864, tensor=91.864, dram=25.471, pcie_tx=2, nvlink_rx=3)
    first = collector.poll()
    clock.advance(0.25)
    second = collector.poll()
    assert values(first)["gpu.temperature"] == 58
    assert values(first)["gpu.power_limit"] == 700
    assert values(first)["gpu.energy"] == 5000
    assert values(second) == {
        "gpu.active": 98.4,
        "gpu.util": 97,
        "gpu.sm_clock": 1395,
        "gpu.memory_clock": 2619,
        "gpu.power": pytest.approx(697.1),
        "gpu.clock_reasons": 4,
        "gpu.memory_used": 42949672960,
        "gpu.sm": 88.6,
        "gpu.occupancy": 12.5,
        "gpu.integer": 0.8,
        "gpu.tensor": 91.864,
        "gpu.tensor_hmma": 91.864,
        "gpu.tensor_imma": 0,
        "gpu.tensor_dfma": 0,
        "gpu.dram": 25.471,
        "gpu.fp64": 0,
        "gpu.fp32": 0,
        "gpu.fp16": 0,
        "gpu.pcie_tx": 2 * 2**20,
        "gpu.pcie_rx": pytest.approx(38.3 * 2**20),
        "gpu.nvlink_rx": 3 * 2**20,
        "gpu.nvlink_tx": 0,
    }
    sources = {reading.metric.name: reading.source for reading in second.readings}
    assert (sources["gpu.dram"], sources["gpu.util"]) == ("GPM", "NVML")
    assert {reading.t_ns for reading in second.readings} == {clock.now_ns}


def test_nvmls_memory_duty_cycle_is_read_by_nobody(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, util_memory=77)
    assert 77 not in values(poll_twice(collector, clock)).values()


# GPM windows


def test_the_first_poll_has_no_gpm_and_says_why(collector: NvmlCollector) -> None:
    trace = collector.poll()
    assert "gpu.dram" not in values(trace)
    assert reasons(trace) == {"gpu:0/gpm": "the first GPM window is not over yet"}


def test_a_window_shorter_than_100_ms_goes_on(collector: NvmlCollector, clock: Clock) -> None:
    poll_twice(collector, clock)
    before = calls("nvmlGpmSampleGet")
    clock.advance(0.099)
    short = collector.poll()
    assert "gpu.dram" not in values(short)
    assert reasons(short) == NO_TRUE_CLOCK
    assert calls("nvmlGpmSampleGet") == before
    clock.advance(0.001)
    assert values(collector.poll())["gpu.dram"] == 84.3


def test_the_drivers_short_window_is_not_a_false_idle(
    machine: FakeNvml, collector: NvmlCollector, clock: Clock
) -> None:
    """The real driver then gives DRAM as NaN and all else as 0.0, with success: seen at 20 ms on an H100."""
    assert values(poll_twice(collector, clock))["gpu.tensor"] == 17.9
    machine.set_gpu(None, gpm_least_window_ms=90)
    clock.advance(0.25)
    trapped = collector.poll()
    gpm = {metric.name for metric in nvml_gpm.METRICS}
    assert {value for name, value in values(trapped).items() if name in gpm} == {None}
    assert reasons(trapped) == {"gpu:0/gpm": "GPM had no DRAM value for this window, so nothing in it counts"}
    clock.advance(0.25)
    assert gpm.isdisjoint(values(collector.poll())), "a gap is told once"
    machine.set_gpu(None, gpm_least_window_ms=0)
    clock.advance(0.25)
    back = collector.poll()
    assert values(back)["gpu.tensor"] == 17.9
    assert reasons(back) == NO_TRUE_CLOCK


def test_a_metric_without_a_value_costs_only_itself(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    poll_twice(collector, clock)
    machine.set_gpu(0, **{"gpm.12": "nan", "gpm_code.60": NOT_SUPPORTED, "gpm.3": 250})
    clock.advance(0.25)
    trace = collector.poll()
    found = values(trace)
    assert found["gpu.dram"] == 84.3
    assert (found["gpu.fp32"], found["gpu.nvlink_rx"], found["gpu.occupancy"]) == (None, None, None)
    assert reasons(trace) == {
        "gpu:0/gpu.fp32": "GPM had no value for this window",
        "gpu:0/gpu.nvlink_rx": "the driver does not report it for this GPU",
        "gpu:0/gpu.occupancy": "GPM gave 250 %, which cannot be",
        **NO_TRUE_CLOCK,
    }


def test_reasons_stay_while_a_window_goes_on(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, **{"gpm_code.60": NOT_SUPPORTED})
    poll_twice(collector, clock)
    clock.advance(0.05)
    assert "gpu:0/gpu.nvlink_rx" in reasons(collector.poll())


def test_a_failing_gpm_call_costs_only_gpm(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    poll_twice(collector, clock)
    machine.set_gpu(0, **{"fail.nvmlGpmSampleGet": UNKNOWN})
    clock.advance(0.25)
    trace = collector.poll()
    assert values(trace)["gpu.util"] == 97
    assert values(trace)["gpu.dram"] is None
    assert reasons(trace)["gpu:0/gpm"].startswith("NVML says only Unknown Error")


@pytest.mark.parametrize(("minor", "is_shared"), [(1, True), (0, False)])
def test_a_gpu_without_memory_of_its_own_has_the_machines(
    machine: FakeNvml, clock: Clock, minor: int, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GB10 (DGX Spark): NVML has neither memory nor GPM of it. Of another GPU that has none nobody knows."""
    monkeypatch.setattr(procfs, "read_text", lambda path: "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n")
    functions = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
    machine.set_gpu(None, name="NVIDIA GB10", gpm=0, cc_major=12, cc_minor=minor)
    machine.set_gpu(None, **{f"fail.{function}": NOT_SUPPORTED for function in functions})
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert values(trace).get("gpu.memory_used") == (600 * 1024 if is_shared else None)
    total = trace.tracks[ids.gpu(0)].facts["memory_total"]
    assert total == 1000 * 1024 if is_shared else isinstance(total, Unknown)
    assert reasons(trace)["gpu:0/gpm"] == "this GPU has no GPM"


def test_gpus_before_hopper_say_what_gpm_needs(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(None, name="NVIDIA A100-SXM4-80GB", gpm=0, cores=6912, cc_major=8)
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert "gpu.dram" not in values(trace)
    assert reasons(trace) == {"gpu:0/gpm": "GPM needs a Hopper or newer GPU"}
    facts = trace.tracks[ids.gpu(0)].facts
    assert facts["sm_count"] == 108
    assert isinstance(facts["gpm"], Unknown)


@given(code=st.integers(0, 999), value=st.floats(), scale=st.sampled_from([1.0, 2.0**20]))
def test_no_gpm_answer_becomes_a_number_that_is_not_one(code: int, value: float, scale: float) -> None:
    slot = type("Slot", (), {"nvmlReturn": code, "value": value})
    window = nvml_gpm._window([slot] * len(nvml_gpm.METRICS))
    if isinstance(window, Unknown):
        assert code == 0
        assert not math.isfinite(value)
        return
    assert all(math.isfinite(number) and number >= 0 for number in window.values.values())
    assert not window.values or code == 0


# Lost and found


def two_h100(machine: FakeNvml) -> None:
    machine.set(gpus=2)
    machine.set_gpu(1, compute="4242:1000")


def test_a_lost_gpu_keeps_its_index_and_the_others_go_on(machine: FakeNvml, clock: Clock) -> None:
    two_h100(machine)
    machine.set(gpus=3)
    with nvml_collector(clock) as collector:
        poll_twice(collector, clock)
        machine.set_gpu(1, lost=1)
        clock.advance(0.25)
        trace = collector.poll()
        assert list(trace.tracks) == ["gpu:0", "gpu:1", "gpu:1/process:4242", "gpu:2"]
        assert trace.tracks[ids.gpu(1)].facts["uuid"] == "GPU-00000000-0000-0000-0000-000000000001"
        (no_clock,) = NO_TRUE_CLOCK.values()
        assert reasons(trace) == {
            "gpu:0/gpu.sm_clock_true": no_clock,
            "gpu:1": "the GPU is lost: it has fallen off the bus",
            "gpu:2/gpu.sm_clock_true": no_clock,
        }
        assert set(values(trace, ids.gpu(1)).values()) == {None}
        assert values(trace, ids.gpu_process(ids.gpu(1), 4242)) == {"gpu_process.memory": None}
        assert values(trace, ids.gpu(2))["gpu.dram"] == 84.3
        text = "the GPU is lost: it has fallen off the bus"
        assert trace.marks == (Mark(clock.now_ns, MarkKind.GPU_LOST, "gpu:1", text, Severity.ERROR, "GPU 1:"),)
        clock.advance(0.25)
        again = collector.poll()
        assert (again.marks, values(again, ids.gpu(1))) == ((), {})
        assert "gpu:1" in reasons(again)


def test_a_lost_gpu_is_found_when_it_returns(machine: FakeNvml, clock: Clock) -> None:
    two_h100(machine)
    with nvml_collector(clock) as collector:
        poll_twice(collector, clock)
        machine.set_gpu(1, lost=1)
        clock.advance(0.25)
        collector.poll()
        machine.set_gpu(1, lost=None)
        clock.advance(5)
        back = collector.poll()
        assert [(mark.kind, mark.track) for mark in back.marks] == [(MarkKind.GPU_BACK, "gpu:1")]
        assert values(back, ids.gpu(1))["gpu.util"] == 97
        assert reasons(back)["gpu:1/gpm"] == "the first GPM window is not over yet"
        clock.advance(0.25)
        assert values(collector.poll(), ids.gpu(1))["gpu.dram"] == 84.3


def test_a_gpu_that_is_found_is_read_in_full_at_once(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    collector.poll()
    clock.advance(1)
    collector.poll()
    machine.set(gpus=2)
    clock.advance(4)
    trace = collector.poll()
    assert "gpu.energy" not in values(trace, ids.gpu(0)), "not due"
    assert {"gpu.energy", "gpu.temperature"} <= set(values(trace, ids.gpu(1)))


def test_a_gpu_that_is_lost_from_the_start_has_a_track(machine: FakeNvml, clock: Clock) -> None:
    machine.set(gpus=2)
    machine.set_gpu(0, lost=1)
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert (trace.tracks[ids.gpu(0)].name, trace.tracks[ids.gpu(1)].name) == ("GPU 0", "NVIDIA H100 80GB HBM3")
    assert values(trace, ids.gpu(1))["gpu.dram"] == 84.3
    assert reasons(trace)["gpu:0"].startswith("the GPU is lost")


def test_a_loss_in_the_middle_of_a_poll_leaves_no_value_behind(machine: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        poll_twice(collector, clock)
        machine.set_gpu(0, **{"fail.nvmlDeviceGetPowerUsage": GPU_IS_LOST})
        clock.advance(0.25)
        assert set(values(collector.poll()).values()) == {None}


def test_nvml_is_opened_anew_when_every_gpu_went(machine: FakeNvml, clock: Clock) -> None:
    with nvml_collector(clock) as collector:
        poll_twice(collector, clock)
        machine.set_gpu(None, lost=1)
        machine.set(**{"fail.nvmlInitWithFlags": DRIVER_NOT_LOADED})
        clock.advance(6)
        collector.poll()
        clock.advance(6)
        assert reasons(collector.poll())["gpu:0"] == "the NVIDIA kernel driver is not loaded"
        machine.set_gpu(None, lost=None)
        machine.set(**{"fail.nvmlInitWithFlags": None})
        clock.advance(6)
        collector.poll()
        clock.advance(0.25)
        assert values(collector.poll())["gpu.dram"] == 84.3


def test_everything_is_freed_on_exit(machine: FakeNvml, clock: Clock) -> None:
    import pynvml

    machine.set(gpus=8)
    initialised, sets = pynvml.nvmlLib.fake_nvml_initialised(), pynvml.nvmlLib.fake_nvml_live_event_sets()
    with nvml_collector(clock) as collector:
        collector.missing()
        poll_twice(collector, clock)
        assert pynvml.nvmlLib.fake_nvml_live_samples() == 16
        assert pynvml.nvmlLib.fake_nvml_live_event_sets() == sets + 1
    assert pynvml.nvmlLib.fake_nvml_live_samples() == 0
    assert pynvml.nvmlLib.fake_nvml_live_event_sets() == sets
    assert pynvml.nvmlLib.fake_nvml_initialised() == initialised


# What cannot be had


@pytest.mark.parametrize(
    ("code", "reason", "remedy"),
    [
        (DRIVER_NOT_LOADED, "the NVIDIA kernel driver is not loaded", "modprobe nvidia"),
        (VERSION_MISMATCH, "driver and library differ in version", "reboot"),
        (NO_PERMISSION, "no permission to use the GPU", "ls -l /dev/nvidia*"),
        (UNKNOWN, "in a container, `systemctl daemon-reload` on the host", "restart the container"),
        (12, "libnvidia-ml.so.1 not found", "--gpus all"),
        (GPU_IS_LOST, "the GPU is lost", "dmesg"),
    ],
)
def test_why_nvml_does_not_start(machine: FakeNvml, code: int, reason: str, remedy: str) -> None:
    machine.set(**{"fail.nvmlInitWithFlags": code})
    why = NvmlCollector().missing()
    assert why is not None
    assert reason in why.reason
    assert remedy in why.remedy
    assert doctor() == {"NVIDIA GPUs (NVML)": str(why)}


def test_a_driver_without_gpus_says_so(machine: FakeNvml) -> None:
    machine.set(gpus=0)
    why = NvmlCollector().missing()
    assert why is not None
    assert why.reason == "the driver sees no GPU"


def test_without_the_library_the_reason_is_that(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    why = NvmlCollector().missing()
    assert why is not None
    assert "libnvidia-ml.so.1 not found" in why.reason


def test_a_gpu_that_supports_nothing_is_still_listed(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(None, **{f"fail.{function}": NOT_SUPPORTED for function in PER_GPU_FUNCTIONS})
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert trace.tracks[ids.gpu(0)].name == "GPU 0"
    assert values(trace) == {}
    missing = reasons(trace)
    assert missing["gpu:0/gpu.power"] == "the driver does not report it for this GPU"
    assert missing["gpu:0/processes"] == "the driver does not report it for this GPU"
    assert missing["gpu:0/gpm"] == "GPM needs a Hopper or newer GPU"


PER_GPU_FUNCTIONS = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlGpmQueryDeviceSupport",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
)


def test_other_drivers_answer_to_other_names(machine: FakeNvml, clock: Clock) -> None:
    absent = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperature")
    machine.set(**{f"fail.{function}": FUNCTION_NOT_FOUND for function in absent})
    with nvml_collector(clock) as collector:
        found = values(collector.poll())
    assert found["gpu.memory_used"] == 42949672960 + 456130560
    assert found["gpu.clock_reasons"] == 0
    assert found["gpu.temperature"] == 58


@pytest.mark.parametrize("sentinel", [{"util": 4294967295}, {"power_mw": 4294967295}])
def test_sentinels_are_not_numbers(machine: FakeNvml, clock: Clock, sentinel: dict[str, int]) -> None:
    machine.set_gpu(0, **sentinel)
    with nvml_collector(clock) as collector:
        trace = collector.poll()
    assert all(value is not None and value < 1e12 for value in values(trace).values())
    assert "the driver gives no value" in reasons(trace).values()


def test_mig_mode_is_named_as_the_reason(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, mig=1)
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert reasons(trace)["gpu:0/gpu.util"] == "NVML does not report it for a GPU in MIG mode"
    assert values(trace)["gpu.dram"] == 84.3


# Processes


def test_processes_with_their_memory(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, compute="4242:1073741824 4243:na", graphics="4242:1073741824 99:5")
    machine.set(**{"process_name.4242": "/usr/bin/python3"})
    trace = collector.poll()
    python = trace.tracks[ids.gpu_process(ids.gpu(0), 4242)]
    assert (python.kind, python.name, python.parent) == (TrackKind.GPU_PROCESS, "/usr/bin/python3", "gpu:0")
    assert python.facts == {"pid": 4242, "kind": "graphics and compute"}
    assert trace.tracks[ids.gpu_process(ids.gpu(0), 4243)].name == "pid 4243"
    assert values(trace, ids.gpu_process(ids.gpu(0), 4242)) == {"gpu_process.memory": 1073741824}
    assert values(trace, ids.gpu_process(ids.gpu(0), 99)) == {"gpu_process.memory": 5}
    assert values(trace, ids.gpu_process(ids.gpu(0), 4243)) == {}
    assert "does not say how much" in reasons(trace)["gpu:0/process:4243/gpu_process.memory"]
    machine.set_gpu(0, compute="4243:7", graphics=None)
    clock.advance(0.25)
    later = collector.poll()
    assert set(later.gone) == {"gpu:0/process:4242", "gpu:0/process:99"}
    assert list(later.tracks) == ["gpu:0", "gpu:0/process:4243"]
    assert values(later, ids.gpu_process(ids.gpu(0), 4243)) == {"gpu_process.memory": 7}


def test_names_are_cleaned_at_the_border(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, compute="1:1 2:1", name="[/b]\x1b[2J\u202egpu")
    machine.set(
        **{"process_name.1": "[@click=app.quit]\x07", "process_name.2": b"\xff\xfe".decode(errors="surrogateescape")}
    )
    with nvml_collector(clock) as collector:
        tracks = collector.poll().tracks
    assert tracks[ids.gpu(0)].name == "[/b]␛[2J\ufffdgpu"
    assert tracks[ids.gpu_process(ids.gpu(0), 1)].name == "[@click=app.quit]␇"
    assert tracks[ids.gpu_process(ids.gpu(0), 2)].name == "pid 2"


def test_a_list_that_fails_once_loses_no_process(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, compute="4242:1")
    collector.poll()
    machine.set_gpu(0, **{"fail.nvmlDeviceGetComputeRunningProcesses_v3": NO_PERMISSION})
    clock.advance(0.25)
    trace = collector.poll()
    assert trace.gone == ()
    assert "gpu:0/process:4242" in trace.tracks
    assert reasons(trace)["gpu:0/processes"] == "no permission to use the GPU"


# Pace, many GPUs, threads


def test_slow_values_are_read_every_five_seconds(collector: NvmlCollector, clock: Clock) -> None:
    collector.poll()
    before = calls("nvmlDeviceGetTemperature")
    for _ in range(19):
        clock.advance(0.25)
        collector.poll()
    assert calls("nvmlDeviceGetTemperature") == before
    clock.advance(0.25)
    assert values(collector.poll())["gpu.temperature"] == 58
    assert calls("nvmlDeviceGetTemperature") == before + 1


def test_the_costly_call_for_energy_is_made_twice_early_and_then_seldom(
    machine: FakeNvml, collector: NvmlCollector, clock: Clock
) -> None:
    seen: list[float] = []
    for step in range(48):
        if "gpu.energy" in values(collector.poll()):
            seen.append(step / 4)
        clock.advance(0.25)
    assert seen == [0, 1, 6, 11]


def test_sixteen_gpus_end_their_windows_together(machine: FakeNvml, clock: Clock) -> None:
    machine.set(gpus=16)
    for index in range(16):
        machine.set_gpm(index, dram=index * 5)
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert [values(trace, ids.gpu(index))["gpu.dram"] for index in range(16)] == [index * 5 for index in range(16)]


def test_a_call_that_hangs_does_not_keep_a_session_from_ending(fake_nvml: FakeNvml) -> None:
    session = Session([nvml_collector()], Origin("live"), interval_s=0.01)
    session.start()
    wait_until(lambda: ids.gpu(0) in session.trace().tracks)
    before = set(threads())
    fake_nvml.set_gpu(0, **{"hang.nvmlDeviceGetPowerUsage": 1})
    wait_until(lambda: bool(set(threads()) - before))  # calls go on in another thread
    session.stop(timeout_s=60)
    wait_until(lambda: [thread.name for thread in threads()] == ["nvml"])  # the one that hangs
    assert session.trace().tracks[ids.gpu(0)].name == "NVIDIA H100 80GB HBM3"
    fake_nvml.clear()
    wait_until(lambda: not threads())


def threads() -> list[threading.Thread]:
    """Those in which the collector and its calls run."""
    return [thread for thread in threading.enumerate() if thread.name in ("nvml", "llmtop nvml")]


OTHER_FUNCTIONS = (
    "nvmlGpmMetricsGet",
    "nvmlGpmMigSampleGet",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetHandleByUUID",
)
FAULTS = st.one_of(
    st.tuples(st.sampled_from(("lost", "mig", "fail_all")), st.sampled_from((None, 1, NOT_SUPPORTED, UNKNOWN))),
    st.tuples(
        st.sampled_from([f"fail.{function}" for function in (*PER_GPU_FUNCTIONS, *OTHER_FUNCTIONS)]),
        st.sampled_from((None, 2, NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, FUNCTION_NOT_FOUND, UNKNOWN)),
    ),
    st.tuples(st.sampled_from(("gpm.5", "gpm.10", "gpm.12")), st.sampled_from((None, "nan", "inf", -1, 1e300))),
    st.tuples(st.just("gpm_least_window_ms"), st.sampled_from((0, 90))),
    st.tuples(st.just("mig_instances"), st.sampled_from((None, "1", "1 2 2", "7 7"))),
    st.tuples(st.just("nvlinks"), st.sampled_from((None, 1, 18))),
    st.tuples(
        st.sampled_from(("field.82", "field.3", "field.74", "field.230")), st.sampled_from((None, "na", 2**64 - 1))
    ),
    st.tuples(st.just("shares"), st.sampled_from((None, "1:50 9:50", "2:4294967295"))),
    st.tuples(st.just("compute"), st.sampled_from((None, "1:1", "1:na 2:5", "2:7 2:7"))),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=st.lists(st.tuples(st.integers(0, 1), FAULTS), max_size=12))
@example(faults=[(0, ("gpm_least_window_ms", 0)), (0, ("fail_all", UNKNOWN))])
@example(faults=[(0, ("fail.nvmlDeviceGetGraphicsRunningProcesses_v3", FUNCTION_NOT_FOUND))])
def test_no_sequence_of_faults_ends_it_or_leaves_an_old_value(
    machine: FakeNvml, faults: list[tuple[int, tuple[str, object]]]
) -> None:
    machine.clear(gpus=2)
    machine.set_gpu(None, gpm_least_window_ms=0)
    clock, recorder = Clock(), Recorder(Origin("live"))
    with nvml_collector(clock) as collector:
        for gpu, (key, value) in [(0, ("mig", None)), *faults, (0, ("mig", None))]:
            machine.set_gpu(gpu, **{key: value})
            clock.advance(0.25 if gpu else 3)
            polled = collector.poll()
            recorder.append(collector.name, polled)
            assert {"gpu:0", "gpu:1"} <= set(polled.tracks)
            assert_unknown_is_not_shown_as_known(recorder.freeze(), polled)


def assert_unknown_is_not_shown_as_known(trace: Trace, polled: Trace) -> None:
    """What is missing has no newest value, and no number is NaN, infinite or negative."""
    missing = {one.what for one in polled.missing}
    for (track, metric), series in trace.series.items():
        gpu = track.split("/")[0]
        assert series.last is None or 0 <= series.last < math.inf
        if gpu in missing or f"{track}/{metric}" in missing:
            assert series.last is None, (track, metric, missing)
        if f"{gpu}/gpm" in missing and metric in {one.name for one in nvml_gpm.METRICS}:
            assert series.last is None, (track, metric, missing)


# doctor, and a process of its own


def test_checks_for_doctor(machine: FakeNvml) -> None:
    machine.set(gpus=2)
    machine.set_gpu(1, gpm=0, cc_major=8, **{"fail.nvmlDeviceRegisterEvents": NOT_SUPPORTED})
    state = doctor()
    assert state["GPU 0"] == "NVIDIA H100 80GB HBM3, driver 580.159.04"
    assert state["GPM (live roofline)"] == "supported on 1 of 2 GPUs; on the others: GPM needs a Hopper or newer GPU"
    assert state["GPU processes"] == "visible"
    assert state["XID events"] == "the driver does not report it for this GPU"


def test_a_real_process_finds_the_library_by_its_path(fake_nvml: FakeNvml) -> None:
    """It is found as a driver's is, and never loaded into the process that asks."""
    script = (
        "import sys\nfrom llmtop.collectors import gpus\n"
        "patient = gpus.Patience(start_s=60, answer_s=60)\n"
        "print(*(check.state for check in gpus.checks(gpus.GpuCollector(patience=patient))), sep='|')\n"
        "assert 'pynvml' not in sys.modules\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("NVIDIA H100 80GB HBM3, driver 580.159.04|supported|visible|watched|")


def test_metrics_of_gpm_are_known_to_the_vocabulary() -> None:
    known = {value.name for value in vars(v).values() if isinstance(value, Metric)}
    assert {metric.name for metric in nvml_gpm.METRICS} <= known
