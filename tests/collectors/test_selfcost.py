from __future__ import annotations

import os

import psutil
import pytest

from llmtop import ids, procfs
from llmtop.collectors import host_checks
from llmtop.collectors.base import DoctorCheck
from llmtop.collectors.selfcost import SelfCostCollector
from llmtop.model import Metric, Trace, TrackKind, Unknown
from llmtop.vocabulary import SELF_CPU, SELF_HELPERS, SELF_RSS
from tests.collectors.processes import eventually, threads


def value(trace: Trace, metric: Metric) -> float:
    [reading] = [reading for reading in trace.readings if reading.metric == metric]
    assert reading.value is not None
    return reading.value


def test_own_time_grows_and_memory_is_there() -> None:
    collector = SelfCostCollector()
    first = collector.poll()
    here = psutil.Process().memory_info().rss
    grown = eventually(lambda: value(collector.poll(), SELF_CPU) > value(first, SELF_CPU), "more processor time")

    assert grown
    assert value(first, SELF_RSS) == pytest.approx(here, rel=0.1)
    assert first.tracks[ids.SELF].kind is TrackKind.SELF


def test_helpers_are_counted_and_not_forgotten_when_they_end() -> None:
    running: list[int] = []
    with threads("spinner") as program:
        collector = SelfCostCollector(helpers=lambda: running)
        alone = value(collector.poll(), SELF_RSS)
        running.append(program.pid)
        assert value(collector.poll(), SELF_RSS) > alone
        eventually(lambda: (procfs.stat(program.pid) or pytest.fail("it ended")).cpu_ticks > 5, "time of the helper")
        before = value(collector.poll(), SELF_CPU)
        assert 0 < value(collector.poll(), SELF_HELPERS) < before
    after = value(collector.poll(), SELF_CPU)

    assert after >= before
    assert value(collector.poll(), SELF_RSS) < alone * 2


def test_children_that_come_and_go_are_counted() -> None:
    spent = [0]
    collector = SelfCostCollector(clock=lambda: 1, brief_ns=lambda: spent[0])
    before = value(collector.poll(), SELF_CPU)
    spent[0] = 10**15
    assert value(collector.poll(), SELF_CPU) - before >= 10**15


def test_every_check_has_a_state_or_a_reason() -> None:
    checks = host_checks.checks()

    assert len({check.what for check in checks}) == len(checks)
    for check in checks:
        assert isinstance(check.state, Unknown) or check.state


def state(what: str, checks: tuple[DoctorCheck, ...]) -> str | Unknown:
    return next(check.state for check in checks if check.what.startswith(what))


def test_refusals_name_the_command_that_changes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/1/wchan": "0",
        "/proc/sys/kernel/yama/ptrace_scope": "2\n",
        "/proc/sys/kernel/perf_event_paranoid": "4\n",
        "/proc/mounts": "proc /proc proc rw,hidepid=2 0 0\n",
    }
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(procfs, "read_text", lambda path: files.get(str(path)))
    monkeypatch.setattr(procfs, "read_bytes", lambda path: None)
    monkeypatch.setattr("llmtop.programs.find", lambda name, **_: None)

    checks = host_checks.checks()

    remedies = {check.what.split(" ")[0]: check.state.remedy for check in checks if isinstance(check.state, Unknown)}
    assert remedies["ptrace"] == "sudo sysctl kernel.yama.ptrace_scope=0, or sudo llmtop ..."
    assert remedies["perf_event_paranoid"] == "sudo sysctl kernel.perf_event_paranoid=1"
    assert remedies["other"] == "sudo mount -o remount,hidepid=0 /proc"
    assert remedies["perf"] == "sudo apt install linux-perf"
    assert remedies["CPU"].startswith("boot with psi=1")
