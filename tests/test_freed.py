from __future__ import annotations

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
