"""What a probe on a library function is found to cost, with probes that are made up and a clock that they move."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from llmtop.collectors.tracing.helper.governor import NS_PER_HIT
from llmtop.collectors.tracing.helper.libraries import ProbePoint
from llmtop.collectors.tracing.probes.helper import probe_cost
from llmtop.collectors.tracing.probes.helper.probe_cost import measured
from tests.collectors.tracing.recorded_maps import at

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the functions are x86-64's")

FREE_NS = 7
CALLS = {0: 300, 16: 80}
"""How often the function at each place is called in one measurement."""


class Probes:
    """Probes that cost so many ns a call, by the place of their function.

    It keeps the time too: each measurement asks for it at its beginning and its end.
    """

    def __init__(self, costs: Mapping[int, int]) -> None:
        self.costs = costs
        self.held: list[tuple[int, str, Mapping[str, ProbePoint]]] = []
        self.on: ProbePoint | None = None
        self.place = 0
        self.code = b""
        self.refuses = False
        self._asked = 0
        self._now_ns = 1000

    def hold(self, pid: int, path: str, group: str, functions: Mapping[str, ProbePoint]) -> None:
        if self.refuses and functions:
            raise OSError("refused")
        assert group == "cost"
        self.code = Path(path).read_bytes()
        self.held.append((pid, path, functions))
        self.on = next(iter(functions.values()), None)

    def thread_time_ns(self) -> int:
        self._asked += 1
        if self._asked % 2 == 0:
            measurement = (self._asked // 2 - 1) % 5
            place = 0 if self._asked <= 20 else 16
            late = (90, 0, 40, 60, 20)[measurement]
            self._now_ns += CALLS[place] * (FREE_NS + late + (self.costs[place] if self.on is not None else 0))
        return self._now_ns


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Probes]]:
    before = len(list(Path("/proc/self/fd").iterdir()))

    def make(gentle: int, stepped: int) -> Probes:
        probes = Probes({0: gentle, 16: stepped})
        monkeypatch.setattr(probe_cost, "time", probes)
        return probes

    yield make
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "the code's file is closed"


def test_a_probe_costs_what_a_call_takes_longer_with_it(made: Callable[..., Probes]) -> None:
    """The second least of five measurements: others on the machine only ever add."""
    probes = made(1600, 11_000)
    assert measured(probes) == {"library": 1600, "stepped_library": 11_000}
    functions = [functions for *_, functions in probes.held]
    assert functions == [{"cuLaunchKernel": at(0)}, {}, {"cuLaunchKernel": at(16)}, {}]
    assert {pid for pid, *_ in probes.held} == {os.getpid()}
    assert len({path for _, path, _ in probes.held}) == 1


def test_what_costs_nothing_that_can_be_measured_costs_a_little(made: Callable[..., Probes]) -> None:
    assert measured(made(0, -5)) == {"library": 1.0, "stepped_library": 1.0}


def test_the_functions_are_there_and_can_be_called(made: Callable[..., Probes]) -> None:
    """A push and a plain instruction: which of them the kernel has to step through differs by ten."""
    probes = made(1, 1)
    measured(probes)
    assert len(probes.code) == mmap.PAGESIZE
    assert (probes.code[0], probes.code[16]) == (0x55, 0x89)
    assert probes.code[6:16] == b"\xcc" * 10
    with probe_cost._mapped() as (path, address):
        assert Path(path).read_bytes() == probes.code
        stepped = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address + 16)
        assert [stepped(number) for number in (0, 42)] == [0, 42]
        line = next(one for one in Path("/proc/self/maps").read_text().splitlines() if one.startswith(f"{address:x}-"))
        assert line.split()[1] == "r-xp"
    assert f"{address:x}-" not in Path("/proc/self/maps").read_text()


def test_where_it_cannot_be_measured_it_is_what_was_measured_elsewhere(
    made: Callable[..., Probes], monkeypatch: pytest.MonkeyPatch
) -> None:
    probes = made(1, 1)
    probes.refuses = True
    assert measured(probes) is NS_PER_HIT
    assert [(pid, functions) for pid, _, functions in probes.held] == [(os.getpid(), {})], (
        "what could not be held is let go"
    )
    monkeypatch.setattr(probe_cost, "_mapped", lambda: pytest.fail("no such code here"))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert measured(probes) is NS_PER_HIT
