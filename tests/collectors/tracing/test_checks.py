"""What `llmtop doctor` makes of a helper's last word."""

from __future__ import annotations

from typing import Any, cast

import pytest

from llmtop.collectors.tracing.probes import collector
from llmtop.collectors.tracing.process import HelperProcess
from llmtop.model import Unknown


class Tried:
    """A helper that has been started to see what comes of it."""

    def __init__(self, is_at_end: bool) -> None:
        self.is_at_end = is_at_end
        self.is_closed = False

    def last_words(self) -> str:
        return "no module named tracing"

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("word", "is_at_end", "outcome"),
    [
        (None, False, Unknown(f"the probes are not loaded after {collector._CHECK_S:.0f} s")),
        (None, True, Unknown("the helper failed: no module named tracing")),
        ({"kind": "unavailable", "reason": "no\x1b", "remedy": "go"}, True, Unknown("no␛", "go")),
        ({"kind": "ready", "missing": {"samples": ["old", "new"]}}, False, Unknown("no samples: old", "new")),
        ({"kind": "ready", "missing": {}}, False, "system calls, scheduler and stacks; loaded in 0.0 s"),
    ],
)
def test_what_a_trial_says(
    monkeypatch: pytest.MonkeyPatch, word: dict[str, Any] | None, is_at_end: bool, outcome: object
) -> None:
    helper = Tried(is_at_end)
    monkeypatch.setattr(collector, "HelperProcess", lambda options, program, sudo: helper)
    monkeypatch.setattr(collector, "_first_word", lambda helper: word)
    monkeypatch.setattr(collector, "through_sudo", lambda: False)
    monkeypatch.setattr(collector, "why_not", lambda: None)
    (check,) = collector.checks()
    assert (check.state, helper.is_closed) == (outcome, True)


class Talker:
    """Says one thing a second, on a clock of its own."""

    is_at_end = False

    def __init__(self, *words: dict[str, Any]) -> None:
        self.words = list(words)
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def select(self, readers: list[Any], writers: list[Any], others: list[Any], seconds: float) -> None:
        self.now_s += min(seconds, 1.0)

    def reports(self) -> list[dict[str, Any]]:
        return [self.words.pop(0)] if self.words else []


@pytest.mark.parametrize(
    ("words", "last", "after_s"),
    [
        ([], None, collector._CHECK_S),
        ([{"kind": "ready", "missing": {}}, {"kind": "sample"}], {"kind": "ready", "missing": {}}, 1.0),
        ([{"kind": "sample", "missing": {"a": ["odd", ""]}}], {"kind": "sample", "missing": {"a": ["odd", ""]}}, 1.0),
    ],
)  # fmt: skip
def test_a_trial_waits_for_the_first_word_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, words: list[dict[str, Any]], last: dict[str, Any] | None, after_s: float
) -> None:
    talker = Talker(*words)
    monkeypatch.setattr(collector, "time", talker)
    monkeypatch.setattr(collector, "select", talker)
    assert collector._first_word(cast("HelperProcess", talker)) == last
    assert talker.now_s - 100.0 == after_s
