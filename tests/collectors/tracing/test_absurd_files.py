"""Files that a process maps to take llmtop's time, its memory, or to stop it: they cost that process its names."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from llmtop.collectors.tracing.helper import elf, mounts
from llmtop.collectors.tracing.helper.elf import ElfError, ElfFunctions, ReadingTime
from llmtop.collectors.tracing.helper.libraries import LibraryFiles
from llmtop.collectors.tracing.helper.system import regular_file
from tests.hung_files import hung

NAME = "cuLaunchKernel"
AT = 1 << 13
SYMBOL = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0x1000, 16)


def library(path: Path, tables: int, table_bytes: int, names_bytes: int = 64) -> Path:
    """One whose tables of what it exports are all the same: it begins with one function, and goes on as a hole."""
    end = AT + max(table_bytes, names_bytes)
    counts = (64, 56, 1, 64, tables + 1, 0)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, end, 0, *counts)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 40, 1 << 40, 4096)
    names = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 4096, names_bytes, 0, 0, 1, 0)
    table = struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, AT, table_bytes, 0, 0, 8, 24)
    with path.open("wb") as file:
        file.write(header + load)
        for place, data in ((4096, b"\0" + NAME.encode() + b"\0"), (AT, SYMBOL), (end, names + table * tables)):
            file.seek(place)
            file.write(data)
    return path


def test_each_table_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = library(tmp_path / "libcuda.so.1", 1000, 24 << 10)
    read: list[int] = []
    plain = elf.Elf.read

    def counted(one: elf.Elf, file: int, at: int, size: int) -> bytes:
        read.append(size)
        return plain(one, file, at, size)

    monkeypatch.setattr(elf.Elf, "read", counted)
    assert elf.exported(str(path), [NAME]) == {NAME: 0x1000}
    assert sum(read) < 200_000


@pytest.mark.parametrize(
    ("tables", "table_bytes", "names_bytes"),
    [(60_000, 24, 64), (1, 1 << 40, 64), (1, 24, 1 << 40)],
    ids=["sections", "table", "names"],
)
def test_a_hole_in_a_file_takes_no_memory(tmp_path: Path, tables: int, table_bytes: int, names_bytes: int) -> None:
    path = library(tmp_path / "libcuda.so.1", tables, table_bytes, names_bytes)
    with pytest.raises(ElfError, match="than a library"):
        elf.exported(str(path), [NAME])
    assert LibraryFiles().at(1, str(path), [NAME]) is None
    if names_bytes == 64:
        with path.open("rb") as file, pytest.raises(ElfError, match="than a library"):
            ElfFunctions(file.fileno())


def test_files_of_a_process_take_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100, 6))
    monkeypatch.setattr("time.thread_time", lambda: next(clock))
    spent = ReadingTime()
    for _ in range(2):
        with spent.of(7):
            pass
    with pytest.raises(ElfError, match="too long"), spent.of(7):
        pass
    with spent.of(8):
        pass
    spent.forget(7)
    with spent.of(7):
        pass


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "libcuda.so.1"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(OSError, match="no regular file"), regular_file(str(path)):
        pass
    assert LibraryFiles().at(1, str(path), [NAME]) is None


def test_a_name_that_stands_for_gigabytes_is_not_written_out() -> None:
    """f(pair<int, int>, pair<both>, pair<both> ...): each argument is twice as long as the one before."""
    letters = ["", *"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    doubled = "".join(f"S_IS{letters[i]}_S{letters[i]}_E" for i in range(1, 34))
    if elf._cxa_demangle is None:
        pytest.skip("no libstdc++ here")
    assert elf.demangled(f"_Z1fSt4pairIiiE{doubled}".encode()) is None
    few = elf.demangled(b"_Z1fSt4pairIiiES_IS0_S0_E")
    assert few == b"f(std::pair<int, int>, std::pair<std::pair<int, int>, std::pair<int, int> >)"


def test_a_file_system_that_hangs_holds_up_no_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_PATIENCE_S", 0.1)
    asked: list[str] = []
    answers = mounts._answers

    def noted(file: str) -> bool:
        asked.append(file)
        return answers(file)

    monkeypatch.setattr(mounts, "_answers", noted)
    with hung(tmp_path / "mount") as folder:
        for name in ("a.so", "b.so"):
            with pytest.raises(OSError, match="does not answer"):
                mounts.ask_first(os.getpid(), f"{folder}/{name}", f"{folder}/{name}")
    assert asked == [f"{folder}/a.so"]


def test_files_of_other_machines_are_asked_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:4 / /srv\\040a rw shared:1 - nfs4 host:/ rw\n"
        "3 2 8:2 / /srv\\040a/b rw - xfs x rw\n"
    )
    monkeypatch.setattr(mounts, "read", lambda path: table)
    asked: list[str] = []

    def noted(file: str) -> bool:
        asked.append(file)
        return True

    monkeypatch.setattr(mounts, "_answers", noted)
    for path in ("/usr/a.so", "/srv a/c/a.so", "/srv a/b/a.so", "/srv ab/a.so"):
        mounts.ask_first(7, path, path)
    assert asked == ["/srv a/c/a.so"]
