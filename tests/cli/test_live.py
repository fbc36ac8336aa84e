"""What the live command makes of its arguments."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from llmtop import procfs
from llmtop.cli import live
from llmtop.cli.run import run
from llmtop.collectors.base import Aim, Endpoint, Probes
from llmtop.collectors.registry import target_collectors
from llmtop.errors import TargetError
from llmtop.model import Target
from tests.collectors.processes import Fake, eventually, tree


def test_told_dtype_counts_for_more_than_what_was_found() -> None:
    target = live.find(os.getpid())
    told = live.told_dtype(target, live.dtype("FP8_E4M3"))
    assert told is not None
    assert (told.dtype, told.pid) == ("fp8", target.pid)
    assert live.told_dtype(target, None) is target


def test_of_a_pid_of_before_a_restart_the_servers_here_are_named() -> None:
    with tree(Fake("api", ("vllm", "serve", "m"), listen=True)) as running, subprocess.Popen(["true"]) as ended:
        eventually(lambda: (stat := procfs.stat(ended.pid)) is not None and stat.state == "Z", "the zombie")
        with pytest.raises(TargetError, match=rf"{running.pids['api']} \(vLLM m") as caught:
            live.find(ended.pid)
    assert "has ended" in str(caught.value)
    if os.geteuid() == 0:  # another user's is 0 in /proc, whatever it is
        assert "exit code 0" in str(caught.value)


def test_without_a_terminal_a_process_that_is_gone_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert run(["--attach", str(ended.pid)]) == 1
    assert capsys.readouterr().err.startswith(f"llmtop: no process {ended.pid} here")
    assert run(["--attach", str(os.getpid())]) == 1
    assert "is not a terminal" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["int3", "auto", ""])
def test_dtype_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="bf16"):
        live.dtype(text)


@pytest.mark.parametrize("text", ["0", "-1", "1e99", "nan", "soon", "0.01"])
def test_interval_that_cannot_be_kept_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        live.interval(text)


@pytest.mark.parametrize("text", ["soon", "-1", "1/2/3", "nan", "", "/"])
def test_objective_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="500/200"):
        live.objective(text)


def test_objectives_that_were_told_travel_with_the_trace() -> None:
    parser = argparse.ArgumentParser()
    live.add_watch_arguments(parser)
    options = live.look_options(parser.parse_args(["--ttft-slo", "800/300"]))
    assert options.objectives == {"objective.ttft.p99": 0.8, "objective.ttft.p50": 0.3}
    session = live.live_session(None, 1.0, options)
    assert session.trace().origin.facts == options.objectives


def test_fault_of_its_own_is_one_line_unless_debugging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("llmtop.cli.doctor.run", fail)
    assert run(["doctor"]) == 1
    said = capsys.readouterr().err
    assert said == "llmtop: a fault of its own: ZeroDivisionError: two lines; LLMTOP_DEBUG=1 shows where\n"
    monkeypatch.setenv("LLMTOP_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["doctor"])


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmtop.cli.doctor.run", interrupt)
    assert run(["doctor"]) == 130


def test_how_closely_the_kernel_is_asked() -> None:
    parser = argparse.ArgumentParser()
    live.add_arguments(parser)
    for argv, probes in (([], Probes.FULL), (["--probes", "light"], Probes.LIGHT), (["--no-ebpf"], Probes.OFF)):
        assert parser.parse_args(argv).probes is probes
    with pytest.raises(SystemExit):
        parser.parse_args(["--probes", "heavy"])


def test_what_the_user_asks_for_reaches_the_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr("llmtop.collectors.tracing.collector.TracerCollector", lambda target, **more: made.append(more))
    target_collectors(Target(1, 1, "process", "", ()), Aim((), probes=Probes.LIGHT, budget=0.03))
    assert made == [{"probes": Probes.LIGHT, "budget": 0.03}]


BOTH = Fake("shell", ("bash",), tuple(Fake(key, ("vllm", "serve", key), listen=True) for key in ("a", "b")))


def test_of_several_servers_below_a_process_the_user_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    with tree(BOTH) as running:
        asked: list[Target] = []

        def choose(servers: Sequence[Target]) -> Target:
            asked.extend(servers)
            return servers[1]

        monkeypatch.setattr(live, "refuse_unfit_terminal", lambda: None)
        monkeypatch.setattr("llmtop.tui.screens.choose.choose_target", choose)
        chosen = live.find(running.pids["shell"], may_ask=True)

    assert {one.model for one in asked} == {"a", "b"}
    assert chosen is asked[1]


def test_without_a_screen_several_servers_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with tree(BOTH) as running:
        assert run(["snapshot", "-p", str(running.pids["shell"])]) == 1

    said = capsys.readouterr().err
    assert said.startswith("llmtop: 2 servers run below process")
    for key in ("a", "b"):
        assert f"{running.pids[key]} (vLLM {key} :{running.ports[key]})" in said
    assert said.count("\n") == 1


def test_what_probes_may_cost_is_told_in_per_cent_of_a_core() -> None:
    parser = argparse.ArgumentParser()
    live.add_watch_arguments(parser)
    assert live.look_options(parser.parse_args([])).budget == 0.01
    assert live.look_options(parser.parse_args(["--overhead-budget", "3"])).budget == 0.03
    for bad in ("0", "0.09", "101", "nan", "much"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"not between 0\.1 and 100"):
            live.overhead_budget(bad)


def test_the_key_of_an_endpoint_comes_from_the_environment_or_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLMTOP_METRICS_TOKEN", "k")
    parser = argparse.ArgumentParser()
    live.add_watch_arguments(parser)
    for options in (live.LookOptions(), live.look_options(parser.parse_args([]))):
        assert options.endpoint == Endpoint({"Authorization": "Bearer k"})
    told = live.look_options(parser.parse_args(["--metrics-header", "x-key: abc"]))
    assert told.endpoint.headers == {"Authorization": "Bearer k", "x-key": "abc"}
    for bad in ("no colon", "a b: c", "x: y\nz: 1"):
        with pytest.raises(argparse.ArgumentTypeError, match="no header"):
            live.header(bad)
