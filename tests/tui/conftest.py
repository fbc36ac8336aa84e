"""The terminal that every test of the screen believes in, whatever the tests themselves run in."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("NO_COLOR", "LLMTOP_ASCII", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
