"""Processes that llmtop has started to look with: what they cost is llmtop's own cost."""

from __future__ import annotations

_running: set[int] = set()
_spent_ns = 0


def note(pid: int) -> None:
    """A helper was started."""
    _running.add(pid)


def forget(pid: int) -> None:
    """A helper has ended."""
    _running.discard(pid)


def running() -> tuple[int, ...]:
    """PIDs of the helpers that run now."""
    return tuple(_running)


def spend(cpu_ns: int) -> None:
    """A child that no one could have seen running has taken this much processor time."""
    global _spent_ns
    _spent_ns += cpu_ns


def spent_ns() -> int:
    """Processor time of all such children."""
    return _spent_ns
