"""The collector: what it gives, and what it says when it cannot."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from llmtop import ids, programs
from llmtop.collectors import children
from llmtop.collectors.privileges import USE_SUDO, Rights
from llmtop.collectors.tracing.probes import collector as module
from llmtop.collectors.tracing.probes.collector import EbpfCollector, checks, why_not
from llmtop.collectors.tracing.switches import OFF
from llmtop.model import Missing, Unknown, What
from tests.collectors.tracing.collecting import Watch, change_programs, damaged_helper, missing, refused
from tests.collectors.tracing.probes import eventually
from tests.workloads.noise import measured_again
from tests.workloads.programs import Workload, target_of

NOBODY = Rights(1000, frozenset())


def reason(why: Unknown | None) -> str:
    assert why is not None
    assert why.remedy
    return why.reason


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OFF, "1")
    assert reason(why_not()) == f"switched off by {OFF}"


def test_an_old_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "kernel_release", lambda: (5, 4))
    assert reason(why_not()) == "Linux 5.4 is too old for the probes"


def test_an_ordinary_user_is_told_of_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.collectors.privileges.own_rights", lambda: NOBODY)
    monkeypatch.setattr(module, "own_rights", lambda: NOBODY)
    why = why_not()
    assert reason(why) == "only root may load probes"
    assert "sudo llmtop" in str(why)


def test_sudo_is_used_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("llmtop.collectors.privileges.own_rights", lambda: NOBODY)
    monkeypatch.setattr(module, "own_rights", lambda: NOBODY)
    monkeypatch.setattr(programs, "find", lambda name: f"/usr/bin/{name}")
    assert why_not() is not None
    monkeypatch.setenv(USE_SUDO, "1")
    assert why_not() is None


@pytest.mark.usefixtures("kernel_probes")
def test_doctor_loads_the_probes_for_a_moment() -> None:
    (check,) = checks()
    assert check.what == "eBPF probes"
    assert str(check.state).startswith("system calls, scheduler and stacks")
    assert children.running() == ()


@pytest.mark.usefixtures("kernel_probes")
@measured_again
def test_a_program_is_watched_from_start_to_end(workload: Path) -> None:
    with (
        Workload(workload, "nanosleep", "1") as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100) as collector,
    ):
        watch = Watch(collector)
        assert missing(watch.last) == {"ebpf": "the probes attach (wait a second)"}
        assert len(children.running()) == 1
        watch.until(lambda trace: trace.readings)
        program.start()
        account = program.account()
        before_ns = time.monotonic_ns()
        watch.until(lambda trace: any(reading.t_ns > before_ns for reading in trace.readings))
        watch.until(lambda trace: any("sleep_here" in stack.frames for stack in trace.stacks))
    assert children.running() == ()
    assert {reading.source for reading in watch.readings} == {EbpfCollector.source}
    slept = watch.value(ids.thread(program.pid, program.pid), "thread.blocked|nanosleep")
    assert slept / account["wall"] == pytest.approx(account["in_wait"] / account["wall"], abs=0.05)
    # 15 ms of sleep, 5 ms of work, by turns for a second; fewer where others take the CPUs.
    assert 5 <= watch.value(ids.process(program.pid), "syscall.count|clock_nanosleep") <= 60
    sleeping = [stack for stack in watch.stacks if "sleep_here" in stack.frames]
    assert max(sleeping, key=lambda stack: stack.weight).state == "nanosleep"


@pytest.mark.usefixtures("kernel_probes")
def test_a_refusal_of_the_helper_is_final(tmp_path: Path, workload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_programs(damaged_helper(tmp_path, monkeypatch), "lifecycle", refused("on_fork"))
    with Workload(workload, "spin") as program, EbpfCollector(target_of(program.pid)) as collector:
        assert eventually(lambda: collector.poll().missing == (_REFUSED,))
        assert eventually(lambda: collector.poll() and not children.running())
        assert collector.poll().missing == (_REFUSED,)


_REFUSED = Missing(What("ebpf"), Unknown("the kernel refuses on_fork: R0 !read_ok"))
