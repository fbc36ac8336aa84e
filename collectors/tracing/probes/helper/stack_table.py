"""Stacks as the kernel keeps them for our programs, named."""

from __future__ import annotations

from ...helper.kernel import Table
from ...helper.symbols import Symbols

STACK = "127Q"
"""The layout of a stack in a stack map: PERF_MAX_STACK_DEPTH addresses, the innermost first."""
MOST_IDS = 6000
"""Of the 8192 places of a stack map: above, different stacks are refused for want of room."""


class StackTable:
    """The stacks of one BPF stack map, named."""

    def __init__(self, table: Table, symbols: Symbols) -> None:
        self._table = table
        self._symbols = symbols
        self._frames: dict[tuple[int, int], tuple[str, ...]] = {}
        self._ids: set[int] = set()

    def frames(self, tgid: int, user: int, kernel: int) -> tuple[str, ...]:
        """Root first: the program's functions, then the kernel's. Negative ids are stacks that were not had."""
        return self._part(tgid, user) + self._part(-1, kernel)

    @property
    def is_full(self) -> bool:
        """Whether it is time to clear it."""
        return len(self._ids) > MOST_IDS

    def clear(self) -> None:
        """Forget all stacks; ids from before mean nothing afterwards."""
        self._table.clear()
        self._frames.clear()
        self._ids.clear()

    def forget(self, tgid: int) -> None:
        """A process ended or became another program: the same id may now name other functions."""
        self._frames = {key: frames for key, frames in self._frames.items() if key[0] != tgid}

    def _part(self, tgid: int, stack: int) -> tuple[str, ...]:
        if stack < 0:
            return ()
        frames = self._frames.get((tgid, stack))
        if frames is None:
            self._ids.add(stack)
            frames = self._frames[tgid, stack] = self._name(tgid, stack)
        return frames

    def _name(self, tgid: int, stack: int) -> tuple[str, ...]:
        addresses = [address for address in reversed(self._table.get(stack) or ()) if address]
        if tgid < 0:
            return tuple(self._symbols.kernel(address) for address in addresses)
        return tuple(self._symbols.user(tgid, address) for address in addresses)
