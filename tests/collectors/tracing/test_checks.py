"""What `llmtop doctor` makes of a helper's last word."""

from __future__ import annotations

from typing import Any

import pytest

from llmtop.collectors.tracing.bcc import collector
from llmtop.model import Unknown


class Tried:
    """A helper that has been started to see what comes of it."""

    def __init__(self, is_at_end: bool) -> None:
        self.is_at_end = is_at_end
        self.is_closed = False

    def last_words(self) -> str:
        return "no module named bcc"

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("word", "is_at_end", "outcome"),
    [
        (None, False, Unknown(f"the probes are not compiled after {collector._CHECK_S:.0f} s")),
        (None, True, Unknown("the helper failed: no module named bcc")),
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
    monkeypatch.setattr(collector, "_last_word", lambda helper: word)
    monkeypatch.setattr(collector, "through_sudo", lambda: False)
    monkeypatch.setattr(collector, "why_not", lambda: None)
    (check,) = collector.checks()
    assert (check.state, helper.is_closed) == (outcome, True)
