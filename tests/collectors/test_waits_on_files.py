"""What a descriptor is of tells what a thread waits for in read and write."""

from __future__ import annotations

import os
import pty
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtop import procfs
from llmtop.collectors.thread_causes import cause_of_file, cause_of_syscall, cause_of_wchan
from llmtop.vocabulary import ThreadCause


@pytest.fixture
def descriptors(tmp_path: Path) -> Iterator[dict[str, int]]:
    os.mkfifo(tmp_path / "log")
    (tmp_path / "file").write_text("x")
    ours, theirs = socket.socketpair()
    pipe_out, pipe_in = os.pipe()
    leader, terminal = pty.openpty()
    opened = {"fifo": os.open(tmp_path / "log", os.O_RDWR), "file": os.open(tmp_path / "file", os.O_RDONLY)}
    opened |= {"socket": ours.fileno(), "pipe": pipe_in, "terminal": terminal}
    yield opened
    ours.close()
    theirs.close()
    for one in (opened["fifo"], opened["file"], pipe_out, pipe_in, leader, terminal):
        os.close(one)


WAITS = {
    "fifo": ThreadCause.PIPE,
    "pipe": ThreadCause.PIPE,
    "socket": ThreadCause.SOCKET,
    "terminal": ThreadCause.TERMINAL,
    "file": ThreadCause.DISK,
}


@pytest.mark.parametrize("kind", WAITS)
def test_the_kind_of_file_tells_what_a_write_waits_for(kind: str, descriptors: dict[str, int]) -> None:
    line = f"1 {descriptors[kind]:#x} 0x7f 0x1 0x0 0x0 0x0 0x7f 0x7f"
    assert cause_of_syscall(line, lambda number: procfs.file_behind(os.getpid(), number), "x86_64") == WAITS[kind]


def test_a_file_of_a_network_file_system_is_not_asked_for_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "41"
    for name in ("fd", "fdinfo"):
        (folder / name).mkdir(parents=True)
    (folder / "fd" / "3").symlink_to("/models/weights")
    (folder / "fdinfo" / "3").write_text("pos:\t0\nflags:\t02\nmnt_id:\t99\n")
    (folder / "mountinfo").write_text("98 1 8:1 / / rw - ext4 /dev/sda rw\n99 98 0:9 / /models rw - nfs4 host:/m rw\n")
    monkeypatch.setattr(os, "stat", lambda path: pytest.fail(f"{path} may hang"))
    path = procfs.file_behind(41, 3, tmp_path)
    assert path == "network:/models/weights"
    assert cause_of_file(path) is ThreadCause.NETWORK_FS


def test_what_waits_of_several_kinds_have_in_common_is_no_cause() -> None:
    assert cause_of_wchan("wait_woken") is None
    assert cause_of_wchan("n_tty_write") is ThreadCause.TERMINAL
    assert cause_of_wchan("nfs4_wait_clnt_recover") is ThreadCause.NETWORK_FS
