"""The terminal that every test of the screen believes in, whatever the tests themselves run in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from llmtop.tui.app import LlmtopApp

if TYPE_CHECKING:
    from llmtop.model import Issue


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("NO_COLOR", "LLMTOP_ASCII", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was said of faults, each once; a test that means to have some takes them out of the list."""
    found: list[str] = []

    def note(app: LlmtopApp, issue: Issue) -> None:
        known(app, issue)
        if issue.message not in found:
            found.append(issue.message)

    known = LlmtopApp._note
    monkeypatch.setattr(LlmtopApp, "_note", note)
    yield found
    assert found == []
