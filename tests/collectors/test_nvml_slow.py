"""What NVML gives of a GPU every few seconds: temperatures, ECC, rows, links, time throttled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop.model import Unknown
from tests.collectors.nvml_looks import Clock, calls, nvml_collector, poll_twice, reasons, values
from tests.fake_nvml.build import NOT_SUPPORTED

if TYPE_CHECKING:
    from llmtop.collectors.nvml.collector import NvmlCollector
    from tests.fake_nvml.build import FakeNvml

FIELDS = {
    "field.3": 7,
    "field.4": 1,
    "field.74": 4_208_611_488,
    "field.76": 5,
    "field.82": 61,
    "field.94": 12,
    "field.142": 3,
    "field.143": 2,
    "field.269": 6,
    "field.270": 8,
    "field.271": 9,
}


def test_slow_readings_in_their_units(machine: FakeNvml, collector: NvmlCollector) -> None:
    machine.set_gpu(0, pcie_gen=4, pcie_width=8, temperature=71, power_limit_mw=650_500, **FIELDS)
    found = values(collector.poll())
    assert {name: found[name] for name in found if name not in FAST} == {
        "gpu.temperature": 71,
        "gpu.temperature_memory": 61,
        "gpu.power_limit": 650.5,
        "gpu.ecc_corrected": 7,
        "gpu.ecc_uncorrected": 1,
        "gpu.rows_corrected": 3,
        "gpu.rows_uncorrected": 2,
        "gpu.pcie_generation": 4,
        "gpu.pcie_width": 8,
        "gpu.pcie_replays": 12,
        "gpu.throttled|power_cap": 4_208_611_488,
        "gpu.throttled|sync_boost": 5,
        "gpu.throttled|software_thermal": 6,
        "gpu.throttled|hardware_thermal": 8,
        "gpu.throttled|power_brake": 9,
    }


FAST = {
    "gpu.util",
    "gpu.sm_clock",
    "gpu.memory_clock",
    "gpu.power",
    "gpu.energy",
    "gpu.clock_reasons",
    "gpu.memory_used",
}


def test_nvlinks_are_counted_where_there_are_any(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, nvlinks=18, nvlinks_down=2, nvlink_replays=3)
    with nvml_collector(clock) as collector:
        trace = collector.poll()
    assert trace.tracks[ids.gpu(0)].facts["nvlinks"] == 18
    found = values(trace)
    assert found["gpu.nvlink_active"] == 16
    assert found["gpu.nvlink_errors|replay"] == 18 * 3
    assert found["gpu.nvlink_errors|crc"] == 0
    assert found["gpu.nvlink_errors"] == 18 * 3


def test_errors_of_links_are_read_every_ten_seconds(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, nvlinks=18)
    with nvml_collector(clock) as collector:
        collector.poll()
        machine.set_gpu(0, nvlink_replays=1)
        clock.advance(9)
        assert "gpu.nvlink_errors|replay" not in values(collector.poll())
        clock.advance(1)
        assert values(collector.poll())["gpu.nvlink_errors|replay"] == 18


def test_links_that_do_not_tell_their_errors_say_so(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, nvlinks=12, **{"field.162": "na"})
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert reasons(trace)["gpu:0/gpu.nvlink_errors|recovery"] == "the driver does not report it for this GPU"
    assert reasons(trace)["gpu:0/gpu.nvlink_errors"] == "the driver does not report every kind of NVLink error"
    assert "gpu:0/gpu.nvlink_errors|replay" not in reasons(trace)


def test_a_gpu_without_nvlink_has_no_links_and_no_reasons(collector: NvmlCollector) -> None:
    trace = collector.poll()
    assert not [name for name in values(trace) if name.startswith("gpu.nvlink_")]
    assert not [what for what in reasons(trace) if "nvlink" in what]


def test_rows_and_recovery_as_facts(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    collector.poll()
    machine.set_gpu(0, **{"field.144": 1, "field.230": 4, "field.1": 0})
    clock.advance(5)
    facts = collector.poll().tracks[ids.gpu(0)].facts
    assert facts["row_remapping"] == "pending"
    assert facts["recovery_action"] == "take every process off the GPU and reset it"
    assert facts["ecc"] == "disabled"
    machine.set_gpu(0, **{"field.145": 1, "field.230": 99})
    clock.advance(5)
    facts = collector.poll().tracks[ids.gpu(0)].facts
    assert facts["row_remapping"] == "failed"
    assert facts["recovery_action"] == "action 99 of NVML's list"


def test_a_gpu_without_ecc_says_so_between_slow_polls_too(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, **{f"field.{number}": "na" for number in (1, 3, 4, 82)})
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    why = "the driver does not report it for this GPU"
    missing = reasons(trace)
    assert missing["gpu:0/gpu.ecc_corrected"] == missing["gpu:0/gpu.temperature_memory"] == why
    assert isinstance(trace.tracks[ids.gpu(0)].facts["ecc"], Unknown)


def test_a_reason_ends_when_the_value_comes(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, **{"field.82": "na"})
    assert "gpu:0/gpu.temperature_memory" in reasons(poll_twice(collector, clock))
    machine.set_gpu(0, **{"field.82": 50})
    clock.advance(5)
    trace = collector.poll()
    assert "gpu:0/gpu.temperature_memory" not in reasons(trace)
    assert values(trace)["gpu.temperature_memory"] == 50


@pytest.mark.parametrize(
    ("key", "value", "metric"),
    [
        ("power_mw", 2**31 - 1, "gpu.power"),
        ("power_mw", 4_000_000_000, "gpu.power"),
        ("energy_mj", 2**64 - 1, "gpu.energy"),
        ("sm_mhz", 2**32 - 1, "gpu.sm_clock"),
        ("util", 101, "gpu.util"),
        ("temperature", 255, "gpu.temperature"),
        ("field.82", 2**32 - 1, "gpu.temperature_memory"),
        ("field.3", 2**64 - 1, "gpu.ecc_corrected"),
        ("pcie_gen", 0, "gpu.pcie_generation"),
        ("pcie_width", 2**32 - 1, "gpu.pcie_width"),
        ("memory_used", 2**63, "gpu.memory_used"),
    ],
)
def test_what_is_no_measurement_is_unknown(machine: FakeNvml, clock: Clock, key: str, value: int, metric: str) -> None:
    machine.set_gpu(0, **{key: value})
    with nvml_collector(clock) as collector:
        trace = poll_twice(collector, clock)
    assert metric not in values(trace)
    assert reasons(trace)[f"gpu:0/{metric}"] == "the driver gives no value"


@pytest.mark.parametrize(
    ("key", "value", "metric", "shown"),
    [
        ("power_mw", 100_000_000, "gpu.power", 1e5),
        ("power_mw", 100_000_001, "gpu.power", None),
        ("util", 100, "gpu.util", 100.0),
        ("sm_mhz", 100_000, "gpu.sm_clock", 1e5),
        ("sm_mhz", 100_001, "gpu.sm_clock", None),
        ("temperature", 200, "gpu.temperature", 200.0),
        ("temperature", 201, "gpu.temperature", None),
        ("pcie_gen", 1, "gpu.pcie_generation", 1.0),
        ("pcie_width", 1, "gpu.pcie_width", 1.0),
        ("pcie_width", 0, "gpu.pcie_width", None),
        ("pcie_width", 64, "gpu.pcie_width", 64.0),
        ("pcie_width", 65, "gpu.pcie_width", None),
        *(("field.3", count, "gpu.ecc_corrected", float(count)) for count in (0, 2**31, 2**31 - 2, 2**32, 2**32 - 2)),
        *(("field.3", count, "gpu.ecc_corrected", None) for count in (2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)),
    ],
)
def test_what_may_just_be_a_measurement_is_one(
    machine: FakeNvml, clock: Clock, key: str, value: int, metric: str, shown: float | None
) -> None:
    """NVML's NVML_VALUE_NOT_AVAILABLE and the largest signed numbers are none; a count beside them is."""
    machine.set_gpu(0, **{key: value})
    with nvml_collector(clock) as collector:
        first = collector.poll()
        assert (values(first) | values(poll_twice(collector, clock))).get(metric) == shown


def test_c2c_is_read_where_the_gpu_has_such_a_link(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpm(0, c2c_tx=100, c2c_rx=50)
    with nvml_collector(clock) as hopper:
        assert "gpu.c2c_tx" not in values(poll_twice(hopper, clock))
    machine.set_gpu(0, name="NVIDIA GH200 480GB", **{"field.170": 10})
    with nvml_collector(clock) as grace_hopper:
        found = values(poll_twice(grace_hopper, clock))
    assert (found["gpu.c2c_tx"], found["gpu.c2c_rx"]) == (100 * 2**20, 50 * 2**20)
    assert found["gpu.dram"] == 84.3


def test_an_old_driver_without_fields_costs_only_them(machine: FakeNvml, clock: Clock) -> None:
    machine.set(**{"fail.nvmlDeviceGetFieldValues": NOT_SUPPORTED})
    with nvml_collector(clock) as collector:
        found = values(poll_twice(collector, clock))
    assert found["gpu.dram"] == 84.3
    assert not [name for name in found if name.startswith("gpu.throttled")]


def test_the_call_that_blocks_for_20_ms_is_never_made(collector: NvmlCollector, clock: Clock) -> None:
    before = calls("nvmlDeviceGetPcieThroughput")
    poll_twice(collector, clock)
    assert calls("nvmlDeviceGetPcieThroughput") == before


def test_a_look_asks_each_link_once(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, nvlinks=18)
    with nvml_collector(clock) as collector:
        collector.poll()
        before = calls("nvmlDeviceGetNvLinkState")
        clock.advance(5.1)
        assert values(collector.poll())["gpu.nvlink_active"] == 18
        assert calls("nvmlDeviceGetNvLinkState") - before == 18 + 1, "the last answer says that there are no more"
