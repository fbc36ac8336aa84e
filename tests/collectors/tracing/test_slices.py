"""Threads are followed in slices of the time where following them all the time would cost too much."""

from __future__ import annotations

import os
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.helper.governor import LIGHT, OUTSIDE_NS, EventLoad, Governor, cost, in_slices
from llmtop.collectors.tracing.helper.system import threads
from llmtop.collectors.tracing.probes.helper import btf
from llmtop.collectors.tracing.probes.helper.sleepers import Sleepers
from llmtop.collectors.tracing.probes.helper.slices import (
    COST_NS,
    FIRST_S,
    GAP_S,
    HELPER_NS,
    LONGEST_S,
    SHORTEST_S,
    Slices,
)
from tests.collectors.tracing.probes import Probes, eventually, probing
from tests.workloads.programs import Workload

BUDGET_NS = 5e6
SLICED = "scheduler in slices"
READ = 0
"""The number of the system call on x86-64."""


def test_with_slices_the_scheduler_is_never_given_up() -> None:
    ladder = in_slices(LIGHT)
    assert str(ladder[-1]) == f"no stacks, system calls off, {SLICED}"
    governor = Governor(0.01, ladder=ladder)
    busy = EventLoad(switches=60_000)
    governor.judge(busy, 1.0)
    assert governor.effort.sliced
    assert cost(busy, governor.effort) == (0.0, 0.0), "they keep to the budget by themselves"


def test_what_a_switch_costs_is_learned_from_how_long_the_programs_ran() -> None:
    governor = Governor(0.01, ladder=in_slices(LIGHT))
    governor.learn_switches(EventLoad(switches=10_000, foreign_switches=3_000), 2_200_000.0)
    assert governor.cost_of_switches(EventLoad(switches=10_000)) == pytest.approx(10_000 * (OUTSIDE_NS + 200))
    governor.judge(EventLoad(switches=20_000), 10.0)
    assert not governor.effort.sliced, "the usual 1050 ns would have been too much"
    governor.judge(EventLoad(switches=60_000), 10.0)
    assert governor.effort.sliced
    for _ in range(100):
        governor.judge(EventLoad(switches=20_000), 1.0)
    assert not governor.effort.sliced


def test_a_slice_is_paid_for_before_the_next_one() -> None:
    slices = Slices(BUDGET_NS, 0.0)
    assert slices.is_due(0.0)
    assert slices.length_s == FIRST_S
    slices.close(FIRST_S, FIRST_S, 4 * BUDGET_NS, 0.0)
    assert not slices.is_due(3.9)
    assert slices.is_due(4.1)


@pytest.mark.parametrize(("place", "pause_s"), [(0, GAP_S / 2), (1, 1.5 * GAP_S)])
def test_slices_come_at_no_regular_times(monkeypatch: pytest.MonkeyPatch, place: int, pause_s: float) -> None:
    """Or they would go with the steps of a server: half to one and a half of the usual pause lies between two."""
    monkeypatch.setattr("random.uniform", lambda *ends: ends[place])
    slices = Slices(BUDGET_NS, 0.0)
    slices.close(10.0, 0.1, 0.0, 0.0)
    assert not slices.is_due(10.0 + 0.99 * pause_s)
    assert slices.is_due(10.0 + 1.01 * pause_s)


def test_a_slice_is_as_long_as_what_it_may_cost() -> None:
    slices = Slices(BUDGET_NS, 0.0)
    for ns_per_s, seconds in ((1e3, LONGEST_S), (1e8, COST_NS / 1e8), (1e12, SHORTEST_S)):
        slices.close(1.0, 0.1, 0.1 * ns_per_s, 0.0)
        assert slices.length_s == pytest.approx(seconds)


def test_what_the_helper_takes_makes_slices_rarer() -> None:
    slices = Slices(BUDGET_NS, 0.0)
    slices.close(1.0, 0.1, 0.0, 5 * HELPER_NS)
    assert not slices.is_due(5.9)
    assert slices.is_due(6.1)


def test_the_share_is_of_the_last_seconds() -> None:
    slices = Slices(BUDGET_NS, 0.0)
    assert slices.share(0.0) == 0.0
    slices.close(1.0, 0.5, 0.0, 0.0)
    assert slices.share(2.0) == pytest.approx(0.25)
    slices.close(8.0, 0.5, 0.0, 0.0)
    assert slices.share(10.0) == pytest.approx(0.1)
    assert slices.share(12.0) == pytest.approx(0.05)


def information(members: tuple[tuple[str, int], ...], kind: int = 4) -> bytes:
    """A kernel's type information of one structure, its fields at so many bits."""
    names = b"\0task_struct\0" + b"".join(name.encode() + b"\0" for name, _ in members)
    fields = b"".join(struct.pack("=3I", names.index(f"\0{name}\0".encode()) + 1, 1, bits) for name, bits in members)
    number = struct.pack("=4I", 0, 1 << 24, 4, 32)  # int
    types = number + struct.pack("=3I", 1, kind << 24 | len(members), 9000) + fields
    header = struct.pack("=HBBI", 0xEB9F, 1, 0, 24) + struct.pack("=4I", 0, len(types), len(types), len(names))
    return header + types + names


def test_the_place_of_a_field_is_read_from_the_kernels_types(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ((), (("flags", 64),), (("flags", 64), ("stack", 128))):
        told = information((*before, ("pid", 10112)))
        monkeypatch.setattr(btf, "read_bytes", lambda path, told=told: told)
        assert btf.offset_of("task_struct", "pid") == 1264
    assert btf.offset_of("task_struct", "tgid") is None
    assert btf.offset_of("mm_struct", "pid") is None
    for damaged in (b"", told[:20], b"\0" * 64, information((("flags", 64),)), information((("pid", 64),), kind=5)):
        monkeypatch.setattr(btf, "read_bytes", lambda path, damaged=damaged: damaged)
        assert btf.offset_of("task_struct", "pid") is None


def files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_threads_that_sleep_are_told_with_what_they_sleep_in(workload: Path) -> None:
    sleepers, before = Sleepers(), files()
    with Workload(workload, "futex", "0") as program:
        assert eventually(lambda: [one[1:] for one in sleepers.of(program.pid)] == [(1, READ, 0)])
        os.kill(program.pid, signal.SIGSTOP)
        program.start()
        assert files() > before
    assert list(sleepers.of(program.pid)) == []
    sleepers.forget(program.pid)
    assert files() == before


def looked_ns(report: dict[str, Any]) -> int:
    """For how long threads have been followed so far."""
    return int(report["observed"]["scheduler"])


def after_slices(probes: Probes, number: int) -> dict[str, Any]:
    """The report after so many more looks."""
    seen = {looked_ns(probes.next())}

    def are_enough(report: dict[str, Any]) -> bool:
        seen.add(looked_ns(report))
        return len(seen) > number

    return probes.until(are_enough)


@pytest.mark.usefixtures("kernel_probes")
def test_a_sleep_that_outlasts_slices_counts_in_each(workload: Path) -> None:
    """The thread that waits for a line has slept since before the probes, and goes on after the last of them."""
    with (
        Workload(workload, "mixed", "0", "100") as program,
        probing(program.pid, options=["--budget", "0.0005"]) as probes,
    ):
        program.start()
        tids = {one["tid"] for one in program.ask().threads.values()}
        probes.until(lambda report: SLICED in report.get("shed", ""))
        after_slices(probes, 1)
        (waits,) = set(threads(program.pid)) - tids
        first = probes.said[-1]
        before = probes.slept(program.pid, waits)[READ]
        last = after_slices(probes, 3)
        grown = probes.slept(program.pid, waits)[READ] - before
    assert grown == pytest.approx(looked_ns(last) - looked_ns(first), rel=0.05)
