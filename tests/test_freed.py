from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llmtop import freed
from llmtop.model import Origin, Trace
from llmtop.tui import loading


def test_it_is_the_c_library_that_gives_back_all_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 is how much it may keep at the end of the heap, and 1 that it has given back some."""
    monkeypatch.setattr(freed, "_trim", lambda: {0: 1}.__getitem__)
    assert freed.give_back_freed()


def test_a_c_library_that_cannot_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed, "_trim", lambda: None)
    assert not freed.give_back_freed()


def test_it_is_given_back_before_a_file_that_was_read_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(loading, "give_back_freed", lambda: told.append("given back"))

    def read(path: Path) -> Trace:
        told.append(f"read {path}")
        return Trace(Origin("test"))

    (one,) = loading.start_loading([Path("a")], read)
    one.future.result(30)
    assert told == ["read a", "given back"]


def test_long_columns_go_back_when_they_are_freed() -> None:
    """In a process of its own: the C library keeps the choice."""
    code = """
from array import array
from llmtop import freed

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

freed.give_back_columns()
for mb in (24, 8, 8):  # the first one would have the C library keep those that follow
    kept = resident()
    column = array("b", bytes(mb << 20))
    above = array("b", bytes(1 << 20))
    del column
    print((resident() - kept) >> 20)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert all(int(mb) <= 2 for mb in told), told
