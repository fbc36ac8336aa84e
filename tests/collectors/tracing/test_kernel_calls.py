"""What is asked of the kernel, byte by byte as its headers lay it out, without a kernel that answers."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.helper import kernel
from llmtop.collectors.tracing.helper.elf import Elf, ElfError, Site
from llmtop.collectors.tracing.helper.system import UnavailableError
from llmtop.collectors.tracing.probes.helper import programs

HEADER = "<16sHHIQQQIHHHHHH"
"""Elf64_Ehdr of elf.h."""


def elf(folder: Path, *, ident: bytes = b"\x7fELF\x02\x01\x01", segment: int = 56, section: int = 64) -> Path:
    path = folder / "file"
    path.write_bytes(struct.pack(HEADER, ident, 3, 62, 1, 0, 0, 0, 0, 64, segment, 0, section, 0, 0))
    return path


@pytest.mark.parametrize(
    ("header", "is_read"),
    [
        ({}, True),
        ({"section": 0}, True),
        ({"ident": b"\x7fELF\x01\x01\x01"}, False),
        ({"ident": b"\x7fELF\x02\x02\x01"}, False),
        ({"segment": 32}, False),
        ({"section": 40}, False),
    ],
    ids=["64 bits", "no sections", "32 bits", "big-endian", "segments of 32 bits", "sections of 32 bits"],
)
def test_files_of_other_machines_are_refused(tmp_path: Path, header: dict[str, bytes | int], is_read: bool) -> None:
    with elf(tmp_path, **header).open("rb") as file:  # type: ignore[arg-type]
        if is_read:
            assert Elf(file.fileno()).sections == []
        else:
            with pytest.raises(ElfError, match="not an ELF file of 64 bits, little-endian"):
                Elf(file.fileno())


@pytest.fixture(autouse=True)
def _tracefs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine's own is for root's eyes only."""
    monkeypatch.setattr(programs, "tracefs", lambda: tmp_path)


def test_a_program_is_loaded_with_its_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some maps are shared among programs; where the code names a map it gets that one's descriptor."""
    made: list[tuple[int, ...]] = []
    loaded: list[tuple[bytes, int, int]] = []

    def make(*layout: int) -> kernel.Map:
        made.append(layout)
        return kernel.Map(0x100 + len(made), *layout[:4])

    def load(code: bytes, kind: int, expected_attach: int) -> int:
        loaded.append((code, kind, expected_attach))
        return 7

    monkeypatch.setattr(kernel.Map, "make", make)
    monkeypatch.setattr(programs, "load_program", load)
    code = bytes(48) + bytes([0x61, 0x12, 4, 0x5A, 0, 0, 0, 0]) + bytes(16)
    loads = {
        "maps": [[0, "calls"], [16, "targets"]],
        "numbers": [[32, "NAMESPACE_INODE"], [56, "COOKIE"]],
        "fields": [[48, "sched_process_fork.child_pid"]],
    }
    functions = {"on_call": {"code": code.hex(), **loads}}
    fields = "\tfield:pid_t parent_pid;\toffset:12;\tsize:4;\n\tfield:pid_t child_pid;\toffset:300;\tsize:4;\n"
    monkeypatch.setattr(programs, "read", lambda path: fields if path.endswith("/sched_process_fork/format") else "")
    unit: Any = {"functions": functions, "maps": {"calls": [1, 4, 8, 64, 0], "targets": [1, 4, 4, 64, 0]}}
    shared: dict[str, kernel.Map] = {}
    module = programs.Module(unit, shared, {"NAMESPACE_INODE": 0x700000009})
    assert list(shared) == ["targets"]
    assert module.load("on_call", 17, COOKIE=0x55) == 7
    halves = [0x101, 0, 0x102, 0, 9, 7]
    code = b"".join(struct.pack("<4xI", half) for half in halves) + bytes([0x61, 0x12, 44, 1, 0, 0, 0, 0])
    assert loaded == [(code + struct.pack("<4xI4xI", 0x55, 0), 17, 0)]
    programs.Module(unit, shared, {"NAMESPACE_INODE": 0x700000009})
    assert made == [(1, 4, 8, 64, 0), (1, 4, 4, 64, 0), (1, 4, 8, 64, 0)], "what is shared is made once"


@pytest.mark.parametrize("told", ["", "\tfield:pid_t child_pid;\toffset:20;\tsize:8;\n"])
def test_a_tracepoint_without_a_field_is_said(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setattr(programs, "read", lambda path: told)
    with pytest.raises(UnavailableError, match="tracepoint sched_process_fork has no such field child_pid"):
        programs.place_of_field("sched_process_fork.child_pid")


def test_a_machine_that_llmtop_has_no_programs_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setattr(programs, "pid_namespace", lambda: None)
    with pytest.raises(UnavailableError, match="llmtop has no probes for riscv64"):
        programs.Programs().module(programs.ProgramText("calls"))


@pytest.mark.parametrize(
    ("lockdown", "reason", "remedy"),
    [
        (
            "none integrity [confidentiality]",
            "the kernel is locked down (confidentiality)",
            "boot with lockdown=integrity",
        ),
        ("none [integrity] confidentiality", "refused", ""),
        ("", "refused", ""),
    ],
)
def test_a_kernel_that_is_locked_down_is_told_from_a_program_at_fault(
    monkeypatch: pytest.MonkeyPatch, lockdown: str, reason: str, remedy: str
) -> None:
    files = {"/sys/kernel/security/lockdown": lockdown}
    monkeypatch.setattr(programs, "read", files.__getitem__)
    why = programs.refusal("refused")
    assert (why.reason, why.remedy) == (reason, remedy)


def test_maps_that_the_kernel_refuses_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(programs, "Module", refuse)
    monkeypatch.setattr(programs, "pid_namespace", lambda: (4, 99))
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UnavailableError, match="the kernel refuses the maps of calls: "):
        programs.Programs().module(programs.ProgramText("calls"))


class Kernel:
    """Keeps what it is asked, and answers with an open file."""

    def __init__(self) -> None:
        self.events: list[tuple[bytes, int, int, int, int]] = []
        self.controls: list[tuple[int, int]] = []
        self.bpf: list[tuple[int, bytes]] = []

    def syscall(self, number: int, attributes: ctypes.Array[ctypes.c_char], *rest: int) -> int:
        self.events.append((attributes.raw, *rest))  # type: ignore[arg-type]
        return os.open(os.devnull, os.O_RDONLY)

    def ioctl(self, event: int, request: ctypes.c_ulong, argument: ctypes.c_ulong) -> int:
        self.controls.append((request.value, argument.value))
        return 0

    def bpf_call(self, command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
        self.bpf.append((command, attributes.raw))
        return os.open(os.devnull, os.O_RDONLY)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    found = Kernel()
    monkeypatch.setattr(kernel, "libc", found)
    monkeypatch.setattr(kernel, "bpf_call", found.bpf_call)
    return found


@pytest.mark.parametrize("is_return", [False, True])
@pytest.mark.parametrize("cookie", [None, 99])
def test_a_probe_on_a_place_of_a_file(
    asked: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_return: bool, cookie: int | None
) -> None:
    """Struct perf_event_attr of include/uapi/linux/perf_event.h; which bit means a return the kernel tells."""
    (tmp_path / "format").mkdir()
    (tmp_path / "type").write_text("9\n")
    (tmp_path / "format" / "retprobe").write_text("config:3\n")
    monkeypatch.setattr(kernel, "_UPROBES", tmp_path)
    site = Site(0x1234, 0 if is_return else 0x77)
    held = kernel.attach_uprobe("/usr/lib/libx.so", site, 77, 5, is_return=is_return, cookie=cookie)
    for descriptor in held:
        os.close(descriptor)
    ((attributes, pid, cpu, group, flags),) = asked.events
    kind, size, config, period, *sampled, path, place, branches, registers, stack, clock = struct.unpack_from(
        "=IIQQQQQIIQQQQIi", attributes
    )
    assert (kind, config, period) == (9, 8 if is_return else 0x77 << 32, 1), "a semaphore is in the upper half"
    assert size == len(attributes) - 1, "without the closing NUL"
    assert sampled == [0, 0, 1, 0, 0], "nothing is sampled, and the event is disabled at first"
    assert path != 0
    assert (branches, registers, stack, clock) == (0, 0, 0, 1), "CLOCK_MONOTONIC"
    assert (place, pid, cpu, group) == (0x1234, 77, -1, -1)
    assert flags == 8, "PERF_FLAG_FD_CLOEXEC"
    if cookie is None:
        assert (len(held), asked.bpf) == (1, [])
        assert asked.controls == [(0x40042408, 5)], "PERF_EVENT_IOC_SET_BPF"
    else:
        ((command, link),) = asked.bpf
        program, event, attach_type, nothing, told = struct.unpack_from("=IIIIQ", link)
        assert (command, program, event, attach_type, nothing, told) == (28, 5, held[0], 41, 0, cookie)
        assert len(held) == 2


@pytest.mark.parametrize(("take", "command"), [(False, 24), (True, 25)])
def test_a_map_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch, take: bool, command: int) -> None:
    """BPF_MAP_LOOKUP_BATCH and BPF_MAP_LOOKUP_AND_DELETE_BATCH of include/uapi/linux/bpf.h."""
    asked = []

    def answer(number: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
        before, after, keys, values, count, descriptor, *flags = struct.unpack_from("=QQQQIIQQ", attributes)
        asked.append((number, before, count, descriptor, flags))
        assert after != 0
        ctypes.memmove(keys, struct.pack("=4I", 1, 2, 3, 4), 16)
        ctypes.memmove(values, struct.pack("=2Q", 50, 60), 16)
        struct.pack_into("=I", attributes, 32, 2)
        return 0

    monkeypatch.setattr(kernel, "bpf_call", answer)
    table = kernel.Table.of(kernel.Map(9, 1, 8, 8, 64), "II", "Q")
    assert list(table.entries(take=take)) == [((1, 2), (50,)), ((3, 4), (60,))]
    assert asked == [(command, 0, 64, 9, [0, 0])]


def test_a_map_without_an_entry_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "bpf_call", lambda number, attributes: -1)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.ENOENT)
    table = kernel.Table.of(kernel.Map(9, 1, 4, 8, 1), "I", "Q")
    assert (table.get(0), table.count()) == (None, 0)
    with pytest.raises(ValueError, match="layout of a map"):
        kernel.Table.of(kernel.Map(9, 1, 4, 4, 1), "I", "Q")
