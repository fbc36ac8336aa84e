"""Names of addresses of processes, and when their mappings are read again; no probe is loaded here."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.helper import symbols
from llmtop.collectors.tracing.helper.symbols import Code, Region, Symbols

PID = 4242


def mapped(monkeypatch: pytest.MonkeyPatch, *regions: Region) -> None:
    monkeypatch.setattr(Code, "of", lambda tgid: Code(regions, 0))


def times_read(monkeypatch: pytest.MonkeyPatch, ticks: int, grows_every: int) -> int:
    """How often names are dropped to be looked up again when a process maps more code every so many ticks."""
    now = 0
    monkeypatch.setattr(Code, "of", lambda tgid: Code((), now // grows_every))
    dropped: list[int] = []
    named = Symbols()
    monkeypatch.setattr(named, "_drop", dropped.append)
    for now in range(ticks):
        assert named.user(PID, 1000 + now) == "[unknown]"
        named.tick()
    return len(dropped)


def test_addresses_without_a_name_cost_nothing_while_no_code_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert times_read(monkeypatch, ticks=600, grows_every=10_000) == 0


def test_mappings_are_read_again_ever_more_seldom_where_code_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= times_read(monkeypatch, ticks=600, grows_every=1) <= 7


def test_functions_of_this_process_have_their_names() -> None:
    named = Symbols()
    address = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    assert address is not None
    assert named.user(os.getpid(), address).lstrip("_").endswith("getpid")
    assert named.user(os.getpid(), 1) == "[unknown]"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: /proc/PID/map_files is for root")
def test_a_function_of_a_library_that_was_replaced_is_still_named(tmp_path: Path) -> None:
    """An upgrade under a running server: its path names another file, or none."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    libc = next(line.split()[-1] for line in maps if "/libc.so" in line or "/libc-" in line)
    copy = tmp_path / "libcopy.so"
    shutil.copy(libc, copy)
    loaded = ctypes.CDLL(str(copy))
    address = ctypes.cast(loaded.strtok, ctypes.c_void_p).value
    assert address is not None
    copy.unlink()
    assert Symbols().user(os.getpid(), address).lstrip("_") == "strtok"


def test_a_file_that_is_no_library_costs_only_its_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"MZ" * 100)
    named = Symbols()
    mapped(monkeypatch, Region(0x5000, 0x6000, 0, "fe:00 7", str(tmp_path / "odd")))
    assert named.user(os.getpid(), 0x5010) == "[odd]"
    mapped(monkeypatch, Region(0x7000, 0x8000, 0, "fe:00 8", str(tmp_path / "gone")))
    named.forget(os.getpid())
    assert named.user(os.getpid(), 0x7010) == "[gone]"


def test_the_code_of_a_process_is_its_executable_mappings() -> None:
    code = Code.of(os.getpid())
    libc = next(region for region in code.regions if "libc" in region.path)
    assert libc.is_file
    assert code.at(libc.start) == code.at(libc.end - 1) == libc
    assert code.at(0) is None
    assert Code.of(0).regions == ()


def test_names_find_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "MOST_ADDRESSES", 10)
    mapped(monkeypatch, Region(0x5000, 0x6000, 0, "00:00 0", "[vdso]"))
    named = Symbols()
    for address in range(0x5000, 0x5100):
        assert named.user(PID, address) == "[vdso]"
    assert len(named._names) <= 10


def test_files_that_no_process_maps_any_more_are_forgotten() -> None:
    named = Symbols()
    address = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    assert address is not None
    named.user(os.getpid(), address)
    assert named._files
    named.forget(os.getpid())
    assert not named._files


def test_functions_of_the_vdso_have_their_names() -> None:
    region = next(one for one in Code.of(os.getpid()).regions if one.path == symbols.VDSO)
    named = Symbols()
    names = {named.user(os.getpid(), address) for address in range(region.start, region.end, 16)}
    assert any("gettime" in name for name in names)


def test_functions_of_the_kernel_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "ffffffff81000000 T _stext\nffffffff81000100 t do_sys_poll\nffffffff81000180 D jiffies\n"
    monkeypatch.setattr(symbols, "read", lambda path: told + "ffffffffc0000000 t nv_ioctl\t[nvidia]\n")
    named = Symbols()
    addresses = (0xFFFFFFFF81000000, 0xFFFFFFFF810001FF, 0xFFFFFFFFC0000010, 0x1000)
    assert [named.kernel(one) for one in addresses] == [
        "_stext_[k]",
        "do_sys_poll_[k]",
        "nv_ioctl_[k]",
        "[unknown]_[k]",
    ]


@given(st.sets(st.integers(0xFFFFFFFF81000000, 0xFFFFFFFF81001000), min_size=1, max_size=40), st.integers(-3, 0x1100))
def test_a_function_of_the_kernel_is_the_nearest_below(starts: set[int], offset: int) -> None:
    address = 0xFFFFFFFF81000000 + offset
    lines = "".join(f"{start:016x} t f{start:x}{'_' * (start % 7)}\n" for start in sorted(starts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symbols, "read", lambda path: lines)
        told = symbols.KernelFunctions().name(address)
    below = [start for start in starts if start <= address]
    assert told.rstrip("_") == (f"f{max(below):x}" if below else "[unknown]")


def test_hidden_addresses_name_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "read", lambda path: "0000000000000000 T _stext\n0000000000000000 t do_sys_poll\n")
    assert Symbols().kernel(0xFFFFFFFF81000000) == "[unknown]_[k]"
