"""Work on exports that is done on a thread of its own."""

from __future__ import annotations

import threading

import pytest

from llmtop.parsers.nsys_export import aside


def test_nobody_who_leaves_waits_for_what_is_read_aside() -> None:
    go_on = threading.Event()
    others = set(threading.enumerate())
    found = aside(lambda: go_on.wait(30))
    (reader,) = set(threading.enumerate()) - others
    assert reader.daemon
    assert not found.done()
    go_on.set()
    assert found.result(30) is True


def test_what_goes_wrong_aside_is_told_to_who_asks_for_it() -> None:
    def fail() -> None:
        raise ValueError("cut short")

    with pytest.raises(ValueError, match="cut short"):
        aside(fail).result(30)
