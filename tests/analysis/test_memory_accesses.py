"""Sampled accesses to memory: who answers them, and the finding on other NUMA nodes."""

from __future__ import annotations

import pytest

from llmtop.analysis.rules import remote_memory
from llmtop.analysis.threads.memory_accesses import accesses_of, accesses_table, level_shares, said_of_accesses
from llmtop.model import MemoryAccesses, Origin, Trace, Unknown
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

FAR, NEAR, CACHE = "Remote RAM (1 hop) or RAM hit", "Local RAM or RAM hit", "L1 or L1 hit"


def trace_of(**shares: float) -> Trace:
    levels = {"far": FAR, "near": NEAR, "cache": CACHE}
    rows = (
        MemoryAccesses("e", share, 1, 1, levels[name], "f", "", "", "", "", "", "") for name, share in shares.items()
    )
    return Trace(Origin("perf-mem"), accesses=tuple(rows))


@pytest.mark.parametrize(
    ("shares", "is_told"),
    [
        ({"far": 0.25, "near": 0.75}, True),
        ({"far": 0.24, "near": 0.76}, False),
        ({"far": 0.1, "cache": 0.9}, True),
        ({"far": 0.09, "cache": 0.91}, False),
        ({"near": 1.0}, False),
        ({}, False),
    ],
)
def test_limits(shares: dict[str, float], is_told: bool) -> None:
    assert bool(list(remote_memory.check(trace_of(**shares)))) is is_told


def test_the_finding_of_the_sample() -> None:
    trace = load(SAMPLE_TRACES / "perf" / "6.1" / "two-nodes.perf-mem.txt")
    (found,) = remote_memory.check(trace)
    assert found.message == "51 % of what memory answered came from another NUMA node"
    assert found.evidence == (
        "cpu/mem-loads,ldlat=30/P, of the weight of all: Remote RAM (1 hop) or RAM hit 31 %, "
        "Local RAM or RAM hit 30 % (perf mem)",
    )


def test_levels_of_each_event_add_up() -> None:
    rows = load(SAMPLE_TRACES / "perf" / "6.1" / "two-nodes.perf-mem.txt").accesses
    loads, stores = level_shares(rows).values()
    assert list(loads)[:2] == [FAR, NEAR]
    assert sum(loads.values()) == pytest.approx(1.0)
    assert stores == {CACHE: 0.7115, "L1 or L1 miss": pytest.approx(0.2885)}
    assert said_of_accesses(rows)[1] == "cpu/mem-stores/P, of their weight: L1 or L1 hit 71 %, L1 or L1 miss 29 %"


def test_columns_that_say_nothing_are_not_there() -> None:
    rows = accesses_of(trace_of(far=0.5))
    assert not isinstance(rows, Unknown)
    table = accesses_table(rows)
    assert [column.key for column in table.columns] == ["name", "share", "samples", "weight", "level", "event"]
    assert list(table.cells(0)) == ["f", 0.5, 1, 1, FAR, "e"]
    assert isinstance(accesses_of(Trace(Origin("perf-mem"))), Unknown)
