"""Following a server: known better, begun anew, or come up later under what was launched."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtop import procfs
from llmtop.errors import SeveralServersError, TargetError
from llmtop.model import Restart, Target
from llmtop.servers.follow import SEARCH_NS, Follower, TargetChange
from llmtop.servers.launch import Launched
from llmtop.servers.recognise import find_servers, find_target
from tests.collectors.processes import Fake, eventually, tree
from tests.collectors.tracing.probes import needs_unshare

SERVE = ("/usr/bin/python3", "/opt/bin/vllm", "serve", "m")
SERVER = (
    "import socket, sys, time\n"
    "listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
    "listener.bind(('127.0.0.1', int(sys.argv[sys.argv.index('--port') + 1]))); listener.listen()\n"
    "time.sleep(1000)\n"
)


class Clock:
    """Each look comes a second after the last."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += SEARCH_NS
        return self.now


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("bin"))
    yield programs
    programs.end()


class Programs:
    """Real processes that look like servers: a script named `vllm` or `sglang`, run by Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        for name in ("vllm", "sglang"):
            (folder / name).write_text(SERVER)

    def command(self, port: int, name: str = "vllm", model: str = "m") -> list[str]:
        return [sys.executable, f"{self.folder}/{name}", "serve", model, "--port", str(port)]

    def start(self, port: int, name: str = "vllm", model: str = "m") -> int:
        self.running.append(subprocess.Popen(self.command(port, name, model)))
        pid = self.running[-1].pid
        eventually(lambda: find_target(pid).ports == (port,), "its port")
        return pid

    def end(self) -> None:
        for program in self.running:
            program.kill()
            program.wait()


def seen(follower: Follower, looks: int = 3) -> list[TargetChange]:
    return [move for _ in range(looks) if (move := follower.look()) is not None]


def test_a_restart_on_the_same_port_is_followed(programs: Programs, port: int) -> None:
    old = programs.start(port)
    follower = Follower(find_target(old), clock=Clock())
    assert not [move for move in seen(follower) if move.said]
    programs.end()
    assert not seen(follower)

    new = programs.start(port, model="another")
    [move, *_] = seen(follower)

    assert move.target.root_pid == new
    assert move.target.model == "another"
    assert f"pid {old} is now pid {new}" in move.said
    assert move.restart == Restart(old)


def test_another_kind_of_server_on_the_port_is_not_followed(programs: Programs, port: int) -> None:
    follower = Follower(find_target(programs.start(port)), clock=Clock())
    programs.end()
    programs.start(port, name="sglang")

    assert not seen(follower)


def test_a_server_elsewhere_is_not_followed(programs: Programs, port: int) -> None:
    follower = Follower(find_target(programs.start(port)), clock=Clock())
    with socket.create_server(("127.0.0.1", 0)) as other:
        elsewhere = int(other.getsockname()[1])
    programs.end()
    programs.start(elsewhere, model="another")

    assert not seen(follower)


def test_one_that_ran_before_is_not_the_next(programs: Programs, port: int) -> None:
    """Two replicas by one command: the one that goes on running is not the other one's restart."""
    with tree(Fake("other", SERVE)), tree(Fake("watched", SERVE)) as watched:
        follower = Follower(find_target(watched.pids["watched"]), clock=Clock())
        follower._alive_ticks += 10**6  # long after both were started
        os.kill(watched.pids["watched"], signal.SIGKILL)
        eventually(lambda: not follower._is_alive(), "its end")
        assert not seen(follower)


def test_the_same_command_is_followed_before_it_listens() -> None:
    with tree(Fake("old", SERVE)) as old:
        follower = Follower(find_target(old.pids["old"]), clock=Clock())
    with tree(Fake("new", SERVE)) as new:
        [move, *_] = seen(follower)
        assert move.target.root_pid == new.pids["new"]


def test_a_program_of_ones_own_is_followed_before_its_engine_is_there() -> None:
    program = ("python3", "-c", "serve()", "serve", "m")
    with tree(Fake("old", program, (Fake("core", ("VLLM::EngineCore",)),))) as old:
        follower = Follower(find_target(old.pids["core"]), clock=Clock())
    with tree(Fake("new", program)) as new:
        [move, *_] = seen(follower)
        assert (move.target.root_pid, move.target.kind) == (new.pids["new"], "vllm")
        assert not [move for move in seen(follower) if move.said]


def test_a_port_that_opens_late_is_known_at_the_next_look(programs: Programs, port: int) -> None:
    code = "import os, sys; sys.stdin.read(1); os.execv(sys.argv[1], sys.argv[1:])"
    gate = subprocess.Popen([sys.executable, "-c", code, *programs.command(port)], stdin=subprocess.PIPE)
    programs.running.append(gate)
    assert gate.stdin is not None
    follower = Follower(find_target(gate.pid), clock=lambda: 0)
    assert not follower.urls()
    gate.stdin.write(b"x")
    gate.stdin.close()

    eventually(lambda: follower.look() and follower.urls(), "its address")
    assert follower.urls() == (f"http://127.0.0.1:{port}/metrics",)


def test_the_server_of_a_launched_shell_is_found_when_it_comes(programs: Programs, port: int) -> None:
    shell = f"sleep 0.2; {' '.join(programs.command(port))}; true"
    with Launched(["sh", "-c", shell], grace_s=0.1) as launched:
        target = find_target(launched.pid)
        follower = Follower(target, launched=launched, clock=Clock())
        move = eventually(follower.look, "the server")

        assert target.kind == "process"
        assert (move.target.kind, move.target.model) == ("vllm", "m")
        assert "has been started" in move.said
        assert move.target.pid == launched.pid


def test_a_launched_server_that_detaches_itself_is_found(programs: Programs, port: int) -> None:
    shell = f"setsid {' '.join(programs.command(port))} & exit 0"
    with Launched(["sh", "-c", shell], grace_s=0.1) as launched:
        command = Target(launched.pid, launched.pid, "process", "sh", ())
        follower = Follower(command, launched=launched, clock=Clock())
        move = eventually(lambda: next((one for one in seen(follower) if one.said), None), "the server")

        assert move.target.kind == "vllm"


def test_a_worker_that_outlives_a_launched_server_is_not_the_next(programs: Programs, port: int) -> None:
    shell = f"(exec -a VLLM::Worker_TP0 sleep 1000) & exec {' '.join(programs.command(port))}"
    with Launched(["bash", "-c", shell], grace_s=0.1) as launched:
        eventually(lambda: find_target(launched.pid).ports, "its port")
        worker = eventually(lambda: [one.pid for one in find_target(launched.pid).processes[1:]], "its worker")
        follower = Follower(find_target(launched.pid), launched=launched, clock=Clock())
        assert not [move for move in seen(follower) if move.said]
        os.kill(launched.pid, signal.SIGKILL)
        eventually(lambda: procfs.below(launched.supervisor_pid) == worker, "its end")

        assert [one.root_pid for one in find_servers(among=worker)] == worker
        assert seen(follower) == []


def test_servers_below_a_common_parent_are_named(programs: Programs) -> None:
    both = Fake("shell", ("bash",), (Fake("a", SERVE, listen=True), Fake("b", SERVE, listen=True)))
    with tree(both) as running:
        with pytest.raises(SeveralServersError, match="2 servers run below process") as raised:
            find_target(running.pids["shell"])
        assert {one.root_pid for one in raised.value.servers} == {running.pids["a"], running.pids["b"]}
        assert isinstance(raised.value, TargetError)
        assert find_target(running.pids["a"]).root_pid == running.pids["a"]


def test_a_replica_that_takes_any_port_is_not_followed_unless_its_starter_is_the_same() -> None:
    """Their commands are alike to the letter: only who started them tells a restart from another replica."""
    command = ("python3", "-m", "llmtop.demo.server", "--port=0")
    with tree(Fake("starter", ("sleep", "9"), (Fake("old", command),))) as old:
        follower = Follower(find_target(old.pids["old"]), clock=Clock())
    with tree(Fake("another starter", ("sleep", "9"), (Fake("new", command),))):
        assert not seen(follower)


def test_a_containers_client_that_runs_already_stands_for_what_it_has_started(
    programs: Programs, port: int, tmp_path: Path
) -> None:
    needs_unshare("--mount")
    client = tmp_path / "podman"
    client.write_text("#!/bin/sh\nread line\n")
    client.chmod(0o755)
    with subprocess.Popen([str(client), "run", "image"], stdin=subprocess.PIPE) as podman:
        programs.running.append(subprocess.Popen(["unshare", "--mount", *programs.command(port)]))
        inside = programs.running[-1]
        eventually(lambda: find_target(inside.pid).ports == (port,), "its port")
        [move] = seen(Follower(find_target(podman.pid), clock=Clock()))
    assert move.target.root_pid == inside.pid


def test_what_a_containers_client_has_started_is_in_a_file_system_of_its_own(
    programs: Programs, port: int, tmp_path: Path
) -> None:
    """The daemon starts it, not the client; a server that somebody else starts here meanwhile is another one."""
    needs_unshare("--mount")
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\nexec sleep 1000\n")
    client.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = int(listener.getsockname()[1])
    with Launched([str(client), "run", "image"]) as launched:
        follower = Follower(find_target(launched.pid), launched=launched, clock=Clock())
        programs.start(port)
        assert not seen(follower), "of this machine's own file system"
        programs.running.append(subprocess.Popen(["unshare", "--mount", *programs.command(other)]))
        inside = programs.running[-1].pid
        eventually(lambda: find_target(inside).ports == (other,), "its port")
        [move] = seen(follower)
    assert move.target.root_pid == inside
    assert move.said == f"(pid {inside}) has been started"
