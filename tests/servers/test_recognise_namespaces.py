"""A PID as it is called inside a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.errors import TargetError
from llmtop.model import Unknown
from llmtop.servers.recognise import find_target


def process(proc: Path, pid: int, name: str, *ids: int, parent: int = 1, command: str = "") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 99 1 5 0")
    (folder / "cmdline").write_text(command.replace(" ", "\0"))
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(f"Name:\t{name}\nTgid:\t{pid}\nNSpid:\t{pid}\t" + "\t".join(map(str, ids)) + "\n")


def test_a_pid_from_inside_a_container_is_told_by_its_name_here(tmp_path: Path) -> None:
    process(tmp_path, 4834, "vllm", 7)
    process(tmp_path, 5100, "\x1b[2J", 12, 7)
    process(tmp_path, 5200, "other", 8)
    with pytest.raises(TargetError) as caught:
        find_target(7, tmp_path)
    assert str(caught.value) == "no process 7 here (7 inside a container is here: 4834 (vllm), 5100 (␛[2J))"


def test_a_pid_that_is_nowhere_is_told_where_to_look(tmp_path: Path) -> None:
    process(tmp_path, 4834, "vllm")
    with pytest.raises(
        TargetError, match=r"^no process 7 here \(a container has PIDs of its own: `llmtop` shows all servers\)$"
    ):
        find_target(7, tmp_path)


def test_a_pid_of_a_container_that_is_a_kernel_thread_here(tmp_path: Path) -> None:
    process(tmp_path, 44, "kworker/0:1", parent=2)
    process(tmp_path, 4834, "vllm", 44)
    with pytest.raises(TargetError) as caught:
        find_target(44, tmp_path)
    assert str(caught.value) == "process 44 is a thread of the kernel (44 inside a container is here: 4834 (vllm))"


def test_a_pid_of_a_container_that_is_another_program_here(tmp_path: Path) -> None:
    process(tmp_path, 44, "cron", command="/usr/sbin/cron")
    process(tmp_path, 4834, "vllm", 44)
    target = find_target(44, tmp_path)
    assert isinstance(target.model, Unknown)
    assert target.model.remedy.endswith("; 44 inside a container is here: 4834 (vllm)")
