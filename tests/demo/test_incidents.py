"""Faults begin in their time and place, incidents are undone, and the command line names them."""

from __future__ import annotations

import argparse
import os
import queue
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from llmtop.analysis.rules.live_rules import RULES
from llmtop.cli.demo import incident
from llmtop.demo import DemoServer, Options, engine
from llmtop.demo.faults import FAULTS, Faults, StagedFault, fault_spec
from llmtop.demo.incidents import HEALTHY, INCIDENTS, Staged
from tests.collectors.processes import eventually, is_running

TINY = Options(model="tiny", device="cpu", kv_blocks=64)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_fault_begins_in_its_time_and_stays_the_same() -> None:
    clock = Clock()
    faults = Faults("sleep:5", "engine", clock)
    assert type(faults.now) is StagedFault
    assert faults.due_s == 5
    clock.now_s += 5
    begun = faults.now
    assert faults.due_s is None
    assert type(begun) is FAULTS["sleep"]
    assert faults.now is begun


def test_an_engine_that_never_had_a_request_begins_to_spin_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: queue.Queue[None] = queue.Queue()
    monkeypatch.setattr("llmtop.demo.engine.os.sched_yield", lambda: looks.put(None))
    ours, control = socket.socketpair()
    idle = SimpleNamespace(scheduler=SimpleNamespace(has_work=False))
    with ours, control:
        spinning = threading.Thread(target=engine.serve, args=(idle, control, Faults("busy-wait:0.05", "engine")))
        spinning.start()
        for _ in range(100):
            looks.get(timeout=10)
        ours.close()
        spinning.join(10)
        assert not spinning.is_alive()


def test_a_fault_of_the_other_process_is_none_here() -> None:
    assert type(Faults("tokenizer:0", "engine").now) is StagedFault
    assert type(Faults("lock:0", "server").now) is StagedFault
    assert type(Faults("", "server").now) is StagedFault


@pytest.mark.parametrize("text", ["none:3", "lock", "lock:", "lock:x"])
def test_a_fault_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        fault_spec(text)


@pytest.mark.parametrize("name", ["lock", "network", "sleep"])
def test_a_fault_of_the_engine_makes_a_step_wait(name: str) -> None:
    fault = FAULTS[name]()
    eventually(lambda: step_s(fault) >= 0.05)


@pytest.mark.parametrize("name", ["disk", "page-faults", "forks"])
def test_a_fault_of_the_engine_makes_a_step_work(name: str) -> None:
    assert step_s(FAULTS[name]()) > 0.001


def test_a_hang_does_not_end() -> None:
    done = threading.Event()

    def step() -> None:
        fault = FAULTS["hang"]()
        for _ in range(20):
            fault.before_step()
        done.set()

    threading.Thread(target=step, daemon=True).start()
    assert not done.wait(0.2)


def step_s(fault: StagedFault) -> float:
    start_s = time.monotonic()
    fault.before_step()
    return time.monotonic() - start_s


def test_every_incident_is_made_of_what_there_is() -> None:
    rules = {rule.id for rule in RULES}
    for name, one in INCIDENTS.items():
        assert one.fault in {"", *FAULTS}, name
        assert {*one.verdicts, *one.beside} <= rules, name
        assert one.options(TINY, 5.0).fault.partition(":")[0] == one.fault
    assert HEALTHY.options(TINY, 5.0) == TINY
    assert incident("lock") is INCIDENTS["lock"]
    with pytest.raises(argparse.ArgumentTypeError):
        incident("bad luck")


def test_every_incident_has_a_verdict_but_those_that_are_none() -> None:
    silent = {name for name, one in INCIDENTS.items() if not one.verdicts}
    assert silent == {"healthy"}
    assert not HEALTHY.verdicts


def test_what_ends_or_answers_no_more_is_seen_before() -> None:
    """Llmtop cannot know what was there before it came, but for an engine: a page that once had metrics."""
    of_liveness = {name for name, one in INCIDENTS.items() if {*one.verdicts} & {"process-gone", "endpoint-dead"}}
    assert all(INCIDENTS[name].is_watched for name in of_liveness - {"engine-gone"})


def test_metrics_fail_when_they_are_to() -> None:
    with DemoServer(INCIDENTS["metrics-fail"].options(TINY, after_s=0.0)) as server:
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"{server.url}/metrics", timeout=10)
        raised.value.close()
        assert raised.value.code == 500


def test_a_stopped_process_goes_on_at_the_end() -> None:
    with DemoServer(TINY) as server:
        engine = psutil.Process(server.engine_pid)
        with Staged(INCIDENTS["engine-stopped"], server, after_s=0.0):
            eventually(lambda: engine.status() == psutil.STATUS_STOPPED)
        assert engine.status() != psutil.STATUS_STOPPED


def test_an_api_server_may_stay_without_its_engine() -> None:
    one = INCIDENTS["engine-killed-idle"]
    with DemoServer(one.options(TINY, after_s=0.0)) as server:
        os.kill(server.engine_pid, signal.SIGKILL)
        eventually(lambda: not is_running(server.engine_pid))
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as page:
            assert page.status == 200


def test_a_restart_comes_back_on_the_same_port() -> None:
    with DemoServer(TINY) as server:
        before = server.pid
        with Staged(INCIDENTS["restart"], server, after_s=0.0):
            eventually(lambda: not is_running(before))
            eventually(lambda: answers(server.url))


def test_neighbours_leave_with_the_incident() -> None:
    with DemoServer(TINY) as server:
        with Staged(INCIDENTS["neighbours"], server, after_s=0.0):
            eventually(lambda: len(batch_jobs()) >= len(os.sched_getaffinity(0)))
            pids = batch_jobs()
        assert not [pid for pid in pids if is_running(pid)]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as page:
            return bool(page.status == 200)
    except OSError:
        return False


def batch_jobs() -> list[int]:
    mine = psutil.Process().children(recursive=True)
    return [one.pid for one in mine if Path(f"/proc/{one.pid}/comm").read_text().strip() == "batch-job"]
