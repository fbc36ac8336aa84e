"""Containers by name and id, on processes that stand as a runtime leaves them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from llmtop.cli.live import process_id
from llmtop.errors import TargetError
from llmtop.servers.containers import first_process, is_name
from tests.collectors.processes import Fake, tree

ID = "878cf912ad5422dca64c7cf0c49c70f8699acd3a2816eb56ba02d67d578c0fe8"
OTHER = "878cf9ffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
SERVER = Fake("server", ("vllm", "serve", "m"), (Fake("engine", ("VLLM::EngineCore",)),))


def podman(key: str, id: str, name: str, *children: Fake) -> Fake:
    return Fake(key, ("/usr/bin/conmon", "-c", id, "-r", "/usr/bin/crun", "-n", name), children, name="conmon")


SHIM = ("/usr/bin/containerd-shim-runc-v2", "-namespace", "moby", "-id", ID, "-address", "/run/containerd.sock")


@pytest.mark.parametrize("asked", ["box-1", ID, ID[:12], ID[:4]])
def test_a_container_of_podman_has_a_name_and_an_id(asked: str) -> None:
    with tree(podman("conmon", ID, "box-1", SERVER)) as running:
        assert first_process(asked) == running.pids["server"]
        assert process_id(asked) == running.pids["server"]


def test_a_container_of_containerd_has_an_id() -> None:
    with tree(Fake("shim", SHIM, (SERVER,), name="containerd-shim")) as running:
        assert first_process(ID[:12]) == running.pids["server"]


def test_what_may_be_one_of_several_is_asked_for(no_clients: None) -> None:
    both = Fake("top", ("init",), (podman("one", ID, "a", SERVER), podman("two", OTHER, "b", Fake("sh", ("sh",)))))
    with tree(both) as running:
        with pytest.raises(TargetError, match="may be one of several") as refused:
            first_process(ID[:6])
        assert all(str(running.pids[key]) in str(refused.value) for key in ("server", "sh"))
        assert first_process(ID[:8]) == running.pids["server"]
        with pytest.raises(TargetError, match="no container box here"):
            first_process("box")


def test_by_its_cgroup(tmp_path: Path, no_clients: None) -> None:
    """A server, its worker, and a process elsewhere, in a /proc of files."""
    for pid, parent, group in ((7, 3, f"docker-{ID}.scope"), (8, 7, f"docker-{ID}.scope"), (9, 3, "ssh.service")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/system.slice/{group}\n")
        (folder / "comm").write_text("python\n")
        (folder / "stat").write_text(f"{pid} (python) S {parent} " + "0 " * 48)
    assert first_process(ID[:12], tmp_path) == 7
    with pytest.raises(TargetError):
        first_process("ssh.service", tmp_path)


@pytest.fixture
def no_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize(
    ("says", "pid", "refused"),
    [
        ("echo 4242", 4242, ""),
        ("echo 0", 0, "does not run: docker start box"),
        ("echo no; exit 1", 0, "no container box here"),
    ],
)
def test_docker_is_asked_for_its_names(says: str, pid: int, refused: str, no_clients: Path) -> None:
    docker = no_clients / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$*" = "inspect --format {{{{.State.Pid}}}} box" ] || exit 3\n{says}\n')
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    if not refused:
        assert first_process("box") == pid
        return
    with pytest.raises(TargetError, match=refused):
        first_process("box")


@pytest.mark.parametrize(("text", "is_one"), [("box_1.a-b", True), ("--help", False), ("a b", False), ("", False)])
def test_names(text: str, is_one: bool) -> None:
    assert is_name(text) is is_one
