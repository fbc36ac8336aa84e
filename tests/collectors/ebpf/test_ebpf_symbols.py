"""When the helper reads a process's symbols again; no probe is loaded here."""

from __future__ import annotations

import os
from typing import Any

import pytest

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
