"""The two commands that own processes, where there is no screen."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import urllib.request

import psutil
import pytest

from llmtop import procfs
from llmtop.cli.demo import port
from llmtop.cli.launch import ended_at_once, first_target
from llmtop.cli.run import run
from llmtop.servers.launch import Launched
from tests.collectors.processes import eventually, is_running

DEADLINE_S = 30.0


def llmtop(*arguments: str) -> subprocess.Popen[str]:
    # stdin is no terminal: the commands must not need one without a screen. A test run in the background may ignore
    # SIGINT and SIGHUP, and its children would inherit that.
    return subprocess.Popen(
        ["env", "--default-signal", sys.executable, "-m", "llmtop", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_launch_passes_output_and_exit_code_through() -> None:
    process = llmtop("launch", "--", "sh", "-c", "echo out; echo err >&2; exit 9")
    assert process.communicate(timeout=DEADLINE_S) == ("out\n", "err\n")
    assert process.returncode == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_launch_passes_signals_on(number: signal.Signals) -> None:
    # A program that answers: whether the signal came, and that its own end is what counts.
    answering = f"trap 'echo got it; exit 21' {int(number)}; echo ready; while :; do sleep 0.1; done"
    process = llmtop("launch", "--", "sh", "-c", answering)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == "got it\n"
        assert process.wait(DEADLINE_S) == 21


def test_launch_tells_a_signalled_command_as_a_shell_does() -> None:
    process = llmtop("launch", "sh", "-c", "kill -9 $$")
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 137


def test_the_commands_own_options_are_its_own() -> None:
    process = llmtop("launch", "--", "echo", "--help", "--", "-p")
    assert process.communicate(timeout=DEADLINE_S)[0] == "--help -- -p\n"


def test_launch_without_a_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch"]) == 2
    assert run(["launch", "--"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_command_that_is_not_there_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    handlers = [signal.getsignal(number) for number in signal.Signals]
    assert run(["launch", "--", "no-such-command"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(r"llmtop: cannot start no-such-command: No such file.*\n", err)
    assert [signal.getsignal(number) for number in signal.Signals] == handlers, "Ctrl+C ends whoever called it"


def test_what_a_command_said_before_it_ended_at_once_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Launched(["sh", "-c", "echo missing model >&2; exit 4"]) as launched:
        assert launched.wait(DEADLINE_S) == 4
        assert ended_at_once(launched) == 4
    assert capsys.readouterr().err == "missing model\nllmtop: sh ended at once with exit code 4\n"


def test_what_does_not_heed_the_end_is_named() -> None:
    said: list[str] = []
    with Launched(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"], grace_s=1.5) as launched:
        eventually(lambda: launched.lines(1) == ("ready",))
        launched.close(said.append)
    assert re.match(rf"sh \({launched.pid}\).* got SIGTERM and has not ended; SIGKILL follows 1.5 s", said[0])


def test_what_a_command_leaves_running_is_watched() -> None:
    with Launched(["sh", "-c", "setsid sleep 1000 & exit 0"], grace_s=0.1) as launched:
        assert launched.wait(DEADLINE_S) == 0
        target = first_target(launched)
        assert target is not None
        assert "sleep" in target.title
        os.kill(target.root_pid, signal.SIGKILL)
        eventually(lambda: first_target(launched) is None)


def test_what_has_ended_since_it_was_listed_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with Launched(["sh", "-c", "setsid sleep 1000 & exit 0"], grace_s=0.1) as launched:
        assert launched.wait(DEADLINE_S) == 0
        eventually(lambda: first_target(launched) is not None)
        left = procfs.below(launched.supervisor_pid)
        gone = subprocess.Popen(["true"])
        gone.wait(DEADLINE_S)
        monkeypatch.setattr(procfs, "below", lambda _: [gone.pid, *left])
        target = first_target(launched)
        assert target is not None
        assert "sleep" in target.title
        os.kill(target.root_pid, signal.SIGKILL)


def test_the_demo_serves_until_a_signal_and_leaves_nothing() -> None:
    process = llmtop("demo", "--server-only", "--load")
    with process:
        assert process.stdout is not None
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+) pid (\d+)\n", process.stdout.readline())
        assert found is not None
        with urllib.request.urlopen(found[1] + "/health", timeout=DEADLINE_S) as answer:
            assert answer.status == 200
        started = psutil.Process(process.pid).children(recursive=True)
        assert int(found[2]) in {child.pid for child in started}
        assert len(started) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
        eventually(lambda: not any(is_running(child.pid) for child in started))


def test_the_demo_leaves_by_itself_after_the_given_time() -> None:
    process = llmtop("demo", "--server-only", "--seconds", "0.1", "--device", "cpu")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    assert out.count("\n") == 1


def test_the_demo_says_when_its_server_dies() -> None:
    process = llmtop("demo", "--server-only")
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        os.kill(int(process.stdout.readline().split()[-1]), signal.SIGKILL)
        assert process.wait(DEADLINE_S) == 1
        assert process.stderr.read().startswith("llmtop: the demo server ended with exit code 137")


def test_the_demo_needs_a_terminal_before_it_starts_anything() -> None:
    process = llmtop("demo")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert err.startswith("llmtop: standard input is not a terminal")
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "-1", "65536", "http"])
def test_ports_are_checked(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a port"):
        port(text)


@pytest.mark.parametrize("option", [["--server-only"], ["--load"], ["--no-load"], ["--port", "1"], ["--after", "3"]])
def test_a_recorded_incident_takes_nothing_that_is_of_a_server(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--incident", "gpu-xid", *option]) == 2
    wrong = option[0].replace("--no-", "--")
    assert capsys.readouterr().err == (
        f"llmtop: {wrong} is of a server, and this incident is a recording: leave it out\n"
    )
