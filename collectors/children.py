"""Processes that llmtop has started to look with: what they cost is llmtop's own cost."""

from __future__ import annotations

_running: set[int] = set()


def note(pid: int) -> None:
    """A helper was started."""
    _running.add(pid)


def forget(pid: int) -> None:
    """A helper has ended."""
    _running.discard(pid)


def running() -> tuple[int, ...]:
    """PIDs of the helpers that run now."""
    return tuple(_running)
