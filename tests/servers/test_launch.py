from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.errors import TargetError
from llmtop.servers.launch import Launched
from llmtop.servers.supervise import descendants, exit_code
from tests.collectors.processes import eventually, is_running

DEADLINE_S = 20.0
TRAP = "trap '' TERM; echo ready; while :; do sleep 60 & wait $!; done"


@contextmanager
def launched(*argv: str, grace_s: float = 5.0, capture: bool = True) -> Iterator[Launched]:
    with Launched(argv, grace_s=grace_s, capture=capture) as command:
        yield command


def test_output_of_both_streams_is_kept_and_the_exit_code_told() -> None:
    with launched("sh", "-c", "echo one; echo two >&2; exit 3") as command:
        assert command.wait(DEADLINE_S) == 3
        eventually(lambda: len(command.lines(99)) == 2)
        assert command.lines(10) == ("one", "two")
        assert command.lines(1) == ("two",)
        assert command.lines(0) == ()
        assert command.poll() == 3


def test_a_signal_reaches_the_whole_group_and_becomes_128_plus_its_number() -> None:
    with launched("sh", "-c", "sleep 61 & echo $!; wait") as command:
        eventually(lambda: len(command.lines(99)) == 1)
        (child,) = command.lines(1)
        assert command.poll() is None
        command.send_signal(signal.SIGKILL)
        assert command.wait(DEADLINE_S) == 128 + signal.SIGKILL
        eventually(lambda: not is_running(int(child)))


def test_signalling_an_ended_command_does_nothing() -> None:
    with launched("true") as command:
        assert command.wait(DEADLINE_S) == 0
        command.send_signal(signal.SIGTERM)
    command.send_signal(signal.SIGTERM)
    command.close()


def test_wait_gives_up_in_time() -> None:
    with launched("sleep", "60") as command:
        assert command.wait(0.01) is None


def test_close_kills_what_does_not_obey_and_what_has_detached_itself() -> None:
    detached = f"setsid sh -c 'echo $$; {TRAP.replace(chr(39), chr(34))}' & "
    with launched("sh", "-c", detached + "echo $$; " + TRAP, grace_s=0.3) as command:
        eventually(lambda: len(command.lines(99)) == 4)
        pids = [int(line) for line in command.lines(4) if line.isdecimal()]
        assert len(pids) == 2
        assert all(map(is_running, pids))
    assert command.poll() == 128 + signal.SIGKILL
    assert not any(map(is_running, pids))


def test_what_a_finished_command_leaves_behind_ends_on_close() -> None:
    with launched("sh", "-c", "setsid sleep 62 & echo $!") as command:
        assert command.wait(DEADLINE_S) == 0
        eventually(lambda: len(command.lines(99)) == 1)
        left_behind = int(command.lines(1)[0])
        assert is_running(left_behind)
    assert not is_running(left_behind)


def test_a_stopped_command_can_be_closed() -> None:
    with launched("sleep", "63") as command:
        os.kill(command.pid, signal.SIGSTOP)
        eventually(lambda: psutil.Process(command.pid).status() == psutil.STATUS_STOPPED)
    assert command.poll() == 128 + signal.SIGTERM


@pytest.mark.parametrize("trap", [f"sh -c {TRAP!r}", "sleep 64"])
def test_nothing_is_orphaned_when_llmtop_is_killed(trap: str) -> None:
    program = (
        "from llmtop.servers.launch import Launched; import time\n"
        f"command = Launched(['sh', '-c', 'exec setsid -w ' + {trap!r}], grace_s=0.2)\n"
        "print(command.pid, command._supervisor.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, supervisor = map(int, owner.stdout.readline().split())
    eventually(lambda: list(descendants(pid)))
    family = [pid, supervisor, *descendants(pid)]
    owner.kill()
    owner.wait()
    owner.stdout.close()
    eventually(lambda: not any(map(is_running, family)))


def test_the_command_dies_with_its_supervisor() -> None:
    with launched("sleep", "65") as command:
        (parent,) = [psutil.Process(command.pid).parent()]
        assert parent is not None
        parent.kill()
        assert command.wait(DEADLINE_S) == 137
        eventually(lambda: not is_running(command.pid))


def test_the_supervisor_ends_everything_on_sigterm() -> None:
    with launched("sleep", "66") as command:
        supervisor = psutil.Process(command.pid).parent()
        assert supervisor is not None
        supervisor.terminate()
        assert command.wait(DEADLINE_S) is not None
        eventually(lambda: not is_running(command.pid))


def test_the_supervisor_is_not_taken_for_the_server() -> None:
    with launched("sleep", "67") as command:
        parent = psutil.Process(command.pid).parent()
        assert parent is not None
        assert "67" not in parent.cmdline()


@pytest.mark.parametrize(
    ("name", "reason"), [("no-such-command-here", "No such file"), ("/etc/passwd", "denied"), ("/tmp", "denied")]
)
def test_a_command_that_cannot_start_is_one_line(name: str, reason: str) -> None:
    with pytest.raises(TargetError, match=reason) as raised:
        Launched([name, "argument"])
    assert "\n" not in str(raised.value)
    assert name in str(raised.value)


def test_a_command_without_a_known_format_is_refused(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x7fELFgarbage")
    garbage.chmod(0o755)
    with pytest.raises(TargetError, match="Exec format"):
        Launched([str(garbage)])


def test_uncaptured_output_goes_where_llmtops_goes(capfd: pytest.CaptureFixture[str]) -> None:
    with launched("sh", "-c", "echo out; echo err >&2", capture=False) as command:
        assert command.wait(DEADLINE_S) == 0
        assert command.lines(5) == ()
    assert capfd.readouterr() == ("out\n", "err\n")


def test_the_environment_is_the_given_one() -> None:
    with Launched(["sh", "-c", "echo $LLMTOP_TEST$HOME"], env={"LLMTOP_TEST": "yes", "PATH": os.environ["PATH"]}) as c:
        assert c.wait(DEADLINE_S) == 0
        eventually(lambda: len(c.lines(99)) == 1)
        assert c.lines(1) == ("yes",)


@given(st.integers(0, 255))
def test_exit_codes_follow_the_shell(code: int) -> None:
    assert exit_code(code << 8) == code
    assert exit_code(9) == 137
