"""When the helper reads a process's symbols again; no probe is loaded here."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.ebpf.helper import symbols
from llmtop.collectors.ebpf.helper.symbols import Symbols, mapped_code

PID = 4242


class _Bpf:
    """bcc, as far as it names addresses: none has a name."""

    def __init__(self) -> None:
        self._sym_caches: dict[int, Any] = {}

    def _sym_cache(self, tgid: int) -> _Bpf:
        return self

    def resolve(self, address: int, demangle: bool) -> tuple[None, int, None]:
        return None, 0, None


def times_read(monkeypatch: pytest.MonkeyPatch, ticks: int, grows_every: int) -> int:
    """How often symbols are dropped to be read again when a process maps more code every so many ticks."""
    now = 0
    monkeypatch.setattr(symbols, "mapped_code", lambda tgid: (frozenset(("a",)), now // grows_every))
    dropped: list[int] = []
    named = Symbols(_Bpf())
    monkeypatch.setattr(named, "_drop", dropped.append)
    for now in range(ticks):
        assert named.user(PID, 1000 + now) == "[unknown]"
        named.tick()
    return len(dropped)


def test_addresses_without_a_name_cost_nothing_while_no_code_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert times_read(monkeypatch, ticks=600, grows_every=10_000) == 0


def test_symbols_are_read_again_ever_more_seldom_where_code_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= times_read(monkeypatch, ticks=600, grows_every=1) <= 6


def test_the_code_of_a_process_is_its_files() -> None:
    files, _ = mapped_code(os.getpid())
    assert any("libc" in name for name in files)
    assert mapped_code(0)[0] == frozenset()


class _Library:
    """bcc with three functions of 100 bytes each from 1000 on, and no name for what is behind them."""

    def __init__(self) -> None:
        self._sym_caches: dict[int, Any] = {}
        self.asked: list[int] = []

    def _sym_cache(self, tgid: int) -> _Library:
        return self

    def resolve(self, address: int, demangle: bool) -> tuple[bytes | None, int, bytes]:
        self.asked.append(address)
        offset = address - 1000
        return (b"f%d" % (offset // 100) if offset < 300 else None), offset % 100, b"/usr/lib/libx.so"


def test_an_address_in_a_known_function_is_not_looked_up() -> None:
    library = _Library()
    named = Symbols(library)
    assert [named.user(PID, address) for address in (1250, 1090, 1180)] == ["f2", "f0", "f1"]
    assert [named.user(PID, address) for address in (1000, 1089, 1100, 1205)] == ["f0", "f0", "f1", "f2"]
    assert library.asked == [1250, 1090, 1180]
    assert named.user(PID, 1095) == "f0"  # further in than was known
    assert named.user(PID, 1093) == "f0"
    assert library.asked == [1250, 1090, 1180, 1095]


@given(st.lists(st.integers(1000, 1399), max_size=60))
def test_names_are_those_of_the_library_in_any_order(addresses: list[int]) -> None:
    named = Symbols(_Library())
    for address in addresses:
        expected = f"f{(address - 1000) // 100}" if address < 1300 else "[libx.so]"
        assert named.user(PID, address) == expected


def test_addresses_without_a_function_find_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "MOST_ADDRESSES", 10)
    named = Symbols(_Library())
    for address in range(1300, 1400):
        assert named.user(PID, address) == "[libx.so]"
    assert len(named._names) <= 10
