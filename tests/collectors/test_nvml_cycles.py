"""The SMs' clock out of GPM's raw samples: found by what words do, on an H200's samples, and by nothing else."""

from __future__ import annotations

import ctypes
import json
import mmap
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from llmtop import vocabulary as v
from llmtop.collectors.nvml import cycles as nvml_cycles
from llmtop.collectors.nvml.cycles import ClockWords, SmClock, denominators, find_words, raw_samples, time_words
from llmtop.model import NS_PER_S, Unknown
from tests.collectors.nvml_looks import Clock, calls, reasons, values
from tests.fake_nvml.build import NOT_SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.collectors.nvml.collector import NvmlCollector
    from tests.fake_nvml.build import FakeNvml

CAPTURE = Path(__file__).parent / "data" / "h200_gpm_samples.jsonl"
"""Of benchmarks/clock_truth.py on an H200 (driver 580.159.04): words that are not 0, in pairs 1.5 s apart."""
LOADS = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
SMS = 132
STEP_NS = NS_PER_S // 4
METRIC = "gpu.sm_clock_true"


@dataclass
class Sample:
    """A raw sample of numbers."""

    numbers: Sequence[int]

    def words(self) -> Sequence[int]:
        return self.numbers

    def word(self, index: int) -> int:
        return self.numbers[index]


def played(load: dict[str, Any], part: float) -> Sample:
    """What the sample held at a part of the time between the captured two, or after them."""
    numbers = [0] * load["length"]
    for index, (first, second) in load["words"].items():
        numbers[int(index)] = max(0, first + round((second - first) * part))
    return Sample(numbers)


def feed(clock: SmClock, load: dict[str, Any], windows: int, start: int = 0) -> float | Unknown:
    """The last of some windows of a load."""
    first, second = load["words"]["21"]
    found: float | Unknown = Unknown("no window")
    for number in range(start, start + windows):
        before, after = (played(load, at * STEP_NS / (second - first)) for at in (number, number + 1))
        taken_ns = 5 * NS_PER_S + (number + 1) * STEP_NS
        percents = list(load["percents"].values())
        found = clock.window(before, after, percents, nvml_mhz=load["nvml_mhz"], taken_ns=taken_ns)
    return found


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load["load"])
def test_the_clock_of_an_h200_is_within_1_percent(load: dict[str, Any]) -> None:
    clock = SmClock(SMS)
    assert feed(clock, load, 24) == pytest.approx(load["true_mhz"], rel=0.01)
    assert clock.words == ClockWords(cycles=22, time=1, units=SMS)


def test_nothing_is_said_before_several_windows_agree() -> None:
    clock = SmClock(SMS)
    assert feed(clock, LOADS[0], 10) == nvml_cycles.LOOKING
    assert clock.words is None


def test_of_a_wrong_number_of_sms_no_clock_is_made() -> None:
    clock = SmClock(108)
    assert feed(clock, LOADS[0], 80) == nvml_cycles._NOT_UNDERSTOOD


def test_a_clock_that_is_not_like_nvmls_is_not_one() -> None:
    for factor in (0.8, 1.3):
        clock = SmClock(SMS)
        assert isinstance(feed(clock, LOADS[0] | {"nvml_mhz": LOADS[0]["nvml_mhz"] * factor}, 40), Unknown)


def test_a_time_that_stands_in_the_sample_once_is_not_believed() -> None:
    load = LOADS[0] | {
        "words": {index: pair for index, pair in LOADS[0]["words"].items() if index not in ("1", "2070")}
    }
    assert isinstance(feed(SmClock(SMS), load, 40), Unknown)


def test_an_idle_window_tells_no_clock_and_costs_nothing_found() -> None:
    clock = SmClock(SMS)
    feed(clock, LOADS[0], 24)
    idle = LOADS[0] | {"percents": {"2": 0.0, "10": 0.0}}
    assert feed(clock, idle, 1, start=24) == nvml_cycles.IDLE
    assert feed(clock, LOADS[0], 8, start=25) == pytest.approx(LOADS[0]["true_mhz"], rel=0.01)


def test_words_that_move_elsewhere_are_noticed() -> None:
    """A driver that is replaced beneath us, or a word that only looked like cycles for a while."""
    clock = SmClock(SMS)
    assert not isinstance(feed(clock, LOADS[0], 24), Unknown)
    moved = {"22": LOADS[0]["words"]["24"], "24": LOADS[0]["words"]["22"]}
    shifted = LOADS[0] | {"words": LOADS[0]["words"] | moved}
    assert isinstance(feed(clock, shifted, 24, start=24), Unknown)
    assert not isinstance(feed(clock, shifted, 160, start=48), Unknown)
    assert clock.words == ClockWords(cycles=24, time=1, units=SMS)


def test_a_time_that_runs_otherwise_than_ours_is_noticed() -> None:
    clock = SmClock(SMS)
    feed(clock, LOADS[0], 24)
    first, second = LOADS[0]["words"]["21"]
    for number in range(24, 60):
        before, after = (played(LOADS[0], at * STEP_NS / (second - first)) for at in (number, number + 1))
        taken_ns = 5 * NS_PER_S + round((number + 1) * STEP_NS * 1.05)
        percents = list(LOADS[0]["percents"].values())
        clock.window(before, after, percents, nvml_mhz=LOADS[0]["nvml_mhz"], taken_ns=taken_ns)
    assert clock.words is None
    assert feed(clock, LOADS[0], 80, start=60) == nvml_cycles._NOT_UNDERSTOOD
    assert feed(clock, LOADS[0], 300, start=140) == pytest.approx(LOADS[0]["true_mhz"], rel=0.01)


@pytest.mark.parametrize(
    ("percents", "parts"),
    [
        ([50.0, 25.0], 2),
        ([50.0, 50.0], 0),
        ([50.0, 0.01], 0),
        ([50.0, 0.02], 2),
        ([50.0, 99.99], 0),
        ([50.0, 99.98], 2),
        ([50.0, 25.0, 0.02, 99.98, 7.0], 4),
    ],
)
def test_of_what_percentages_are_taken(percents: list[float], parts: int) -> None:
    """Of at least two that say something: not nothing of it, and not all."""
    whole = 20_000_000_000
    grown = [whole, *(round(whole * share / 100) for share in (50, 25, 0.01, 0.02, 99.99, 99.98))]
    assert denominators([7] * len(grown), [7 + one for one in grown], percents).get(0, 0) == parts


@pytest.mark.parametrize(("whole", "parts"), [(4_000_000, {0: 2}), (3_999_996, {})])
def test_words_that_hardly_grow_are_no_part_of_anything(whole: int, parts: dict[int, int]) -> None:
    grown = [whole, whole // 2, whole // 4]
    assert denominators([0, 0, 0], grown, [50.0, 25.0]) == parts


@pytest.mark.parametrize(
    ("off_ns", "is_time"),
    [(0, True), (251_000_000, True), (251_000_001, False), (-251_000_000, True), (-251_000_001, False)],
)
def test_a_word_of_time_is_a_quarter_of_a_second_and_a_thousandth_off_at_most(off_ns: int, is_time: bool) -> None:
    word = 7 + NS_PER_S + off_ns
    assert time_words([7, 5, 7], [word, 5, word], NS_PER_S) == ((0,) if is_time else ())
    assert time_words([7, 5, 8], [word, 5, word + 1], NS_PER_S) == (), "it stands there twice"


@pytest.mark.parametrize("units", [1, 132, 264, 528])
@pytest.mark.parametrize(("ratio", "is_clock"), [(0.84, False), (0.86, True), (1.01, True), (1.03, False)])
def test_cycles_are_those_of_one_unit_of_sms_or_of_their_parts(units: int, ratio: float, is_clock: bool) -> None:
    """By NVML's clock, to which the one found was 0.90 to 1.00 on an H200."""
    cycles = round(2 * NS_PER_S * 1.5 * ratio) * units
    before, after = [7, 0, 0, 0, 7], [7 + 2 * NS_PER_S, cycles, cycles // 2, cycles // 4, 7 + 2 * NS_PER_S]
    found = find_words((before, after), [50.0, 25.0], before, 2 * NS_PER_S, 132, 1500.0)
    assert found == (ClockWords(cycles=1, time=0, units=units) if is_clock else None)


def test_random_words_make_no_clock() -> None:
    """However they grow, with a true time among them and the driver's percentages beside: not once in a thousand."""
    dice = random.Random(0)
    accepted = sum(_accepts_random_words(dice) for _ in range(1000))
    assert accepted <= 1


def _accepts_random_words(dice: random.Random) -> bool:
    clock = SmClock(dice.choice((78, 114, 132, 148)))
    speeds = [0.0, 1.0, 1.0, *(10 ** dice.uniform(-2, 4) for _ in range(24))]
    numbers = [dice.randrange(2**48) for _ in speeds]
    numbers[2] = numbers[1]
    percents = [dice.uniform(0, 100) for _ in range(8)]
    for window in range(16):
        before = Sample(list(numbers))
        numbers = [one + round(speed * STEP_NS) for one, speed in zip(numbers, speeds, strict=True)]
        clock.window(before, Sample(list(numbers)), percents, nvml_mhz=1700, taken_ns=NS_PER_S + window * STEP_NS)
    return clock.words is not None


# The bytes


@pytest.fixture
def libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    libc.malloc_usable_size.restype = ctypes.c_size_t
    libc.malloc_usable_size.argtypes = (ctypes.c_void_p,)
    return libc


@pytest.mark.parametrize("size", [24, 32, 1000, 32968])
def test_a_sample_is_read_to_its_end_and_never_past_it(libc: ctypes.CDLL, size: int) -> None:
    addresses = [libc.malloc(size), libc.malloc(size)]
    try:
        raw = raw_samples(*(ctypes.c_void_p(address) for address in addresses))
        assert raw is not None
        for one, address in zip(raw, addresses, strict=True):
            allotted = libc.malloc_usable_size(address)
            ctypes.memset(address, 0x11, allotted)
            words = one.words()
            assert size - 16 <= len(words) * 8 <= allotted
            assert set(words) == {0x1111111111111111}
            assert one.word(0) == 0x1111111111111111
            for index in (-1, len(words)):
                with pytest.raises(IndexError):
                    one.word(index)
    finally:
        for address in addresses:
            libc.free(address)


def test_what_is_no_chunk_of_malloc_is_not_read(libc: ctypes.CDLL) -> None:
    address = libc.malloc(4096)
    ctypes.memset(address, 0xFF, 4096)
    try:
        inside, odd = ctypes.c_void_p(address + 64), ctypes.c_void_p(address + 8)
        for other in (ctypes.c_void_p(0), ctypes.c_void_p(7), ctypes.c_void_p(2**63), inside, odd):
            assert raw_samples(ctypes.c_void_p(address), other) is None
    finally:
        libc.free(address)


# Through NVML


def polled(machine: FakeNvml, collector: NvmlCollector, clock: Clock, polls: int) -> Any:
    for _ in range(polls):
        clock.advance(0.25)
        machine.set_gpu(0, raw_ms=clock.now_ns / 1e6)
        trace = collector.poll()
    return trace


def test_the_true_clock_stands_beside_nvmls(machine: FakeNvml, collector: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, sm_mhz=1700, raw_ratio=0.91)
    first = polled(machine, collector, clock, 2)
    assert reasons(first) == {f"gpu:0/{METRIC}": "the clock is being looked for in GPM's samples"}
    trace = polled(machine, collector, clock, 20)
    found = values(trace)
    assert found["gpu.sm_clock"] == 1700
    assert found[METRIC] == pytest.approx(0.91 * 1700, rel=1e-3)
    assert {one.source for one in trace.readings if one.metric is v.GPU_SM_CLOCK_TRUE} == {"GPM raw cycles"}
    assert reasons(trace) == {}


def test_nvmls_clock_is_asked_for_once_a_poll_and_its_failure_is_told_of_both(
    machine: FakeNvml, collector: NvmlCollector, clock: Clock
) -> None:
    machine.set_gpu(0, sm_mhz=1700, raw_ratio=0.91)
    polled(machine, collector, clock, 22)
    before = calls("nvmlDeviceGetClockInfo")
    polled(machine, collector, clock, 10)
    assert calls("nvmlDeviceGetClockInfo") - before == 2 * 10  # that of the SMs, and the memory's
    machine.set_gpu(0, **{"fail.nvmlDeviceGetClockInfo": NOT_SUPPORTED})
    lost = reasons(polled(machine, collector, clock, 1))
    assert lost["gpu:0/gpu.sm_clock"] == "the driver does not report it for this GPU"
    assert METRIC not in values(polled(machine, collector, clock, 1))


@pytest.mark.parametrize("changed", [{"raw_ratio": 0.7}, {"raw_ratio": 1.1}, {"raw_time_ratio": 0.5}])
def test_numbers_that_cannot_be_a_clock_are_absent_with_a_reason(
    machine: FakeNvml, collector: NvmlCollector, clock: Clock, changed: dict[str, float]
) -> None:
    machine.set_gpu(0, **changed)
    trace = polled(machine, collector, clock, 60)
    assert METRIC not in values(trace)
    assert reasons(trace) == {f"gpu:0/{METRIC}": "this driver's GPM samples are not understood"}


def test_a_sample_without_words_costs_only_the_true_clock(
    machine: FakeNvml, collector: NvmlCollector, clock: Clock
) -> None:
    for _ in range(60):
        clock.advance(0.25)
        trace = collector.poll()
    assert values(trace)["gpu.dram"] == 84.3
    assert reasons(trace) == {f"gpu:0/{METRIC}": "this driver's GPM samples are not understood"}


def test_memory_of_our_own_is_found_in_whole_pages() -> None:
    ranges = list(nvml_cycles._writable_ranges())
    own = ctypes.addressof(ctypes.create_string_buffer(64))
    assert any(start <= own < end for start, end in ranges)
    assert all(start < end and start % mmap.PAGESIZE == end % mmap.PAGESIZE == 0 for start, end in ranges)
