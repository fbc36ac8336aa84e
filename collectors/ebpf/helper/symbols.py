"""Addresses to names."""

from __future__ import annotations

import os
import sys
from bisect import bisect_left, bisect_right
from typing import Any

from .system import read

_LOOK_AFTER_TICKS = 10
_LONGEST_TICKS = 640
MOST_IDS = 6000
"""Of the 8192 places of a stack map: above, different stacks are refused for want of room."""


MOST_ADDRESSES = 20_000
"""So many addresses without a function of their own are remembered; then they are looked up anew."""

Code = tuple[frozenset[str], int]


class Functions:
    """Where the functions of a process are known to be, so that not each address in one is looked up.

    bcc takes a millisecond for an address in a library with hundreds of thousands of symbols, and code that runs is
    met at ever new ones.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """The last address known to belong to each."""
        self._names: list[str] = []

    def name(self, address: int) -> str | None:
        """The function that is known to hold an address."""
        i = bisect_right(self._starts, address) - 1
        return self._names[i] if i >= 0 and address <= self._ends[i] else None

    def learn(self, start: int, address: int, name: str) -> None:
        """A function begins at `start` and goes on at least to `address`."""
        i = bisect_left(self._starts, start)
        if i < len(self._starts) and self._starts[i] == start:
            self._ends[i] = max(self._ends[i], address)
            return
        self._starts.insert(i, start)
        self._ends.insert(i, address)
        self._names.insert(i, name)


class Symbols:
    """Names of functions by process and address, remembered.

    bcc's cache of a process does not see code that was mapped after it was made, so a process with unknown addresses is
    looked at anew when it has mapped more. That reads all its symbols again, a second of work with libtorch, so it is
    done ever more seldom: stacks walked without frame pointers hold addresses that no code has.
    """

    def __init__(self, bpf: Any) -> None:
        self._bpf = bpf
        self._functions: dict[int, Functions] = {}
        self._names: dict[tuple[int, int], str] = {}
        """Of addresses of the kernel (process -1), and of those that are in no known function."""
        self._unknown: dict[int, int] = {}
        """For how many ticks each process has had addresses without a name."""
        self._patience: dict[int, int] = {}
        self._code: dict[int, Code] = {}
        """What code each process had when its symbols were read."""

    def user(self, tgid: int, address: int) -> str:
        """A function of a process, or the library it is in, in brackets."""
        functions = self._functions.setdefault(tgid, Functions())
        return functions.name(address) or self._names.get((tgid, address)) or self._look_up(tgid, address, functions)

    def kernel(self, address: int) -> str:
        """A function of the kernel, marked as such."""
        name = self._names.get((-1, address))
        if name is None:
            found = self._bpf.ksym(address)
            name = self._names[-1, address] = found.decode("utf-8", "replace") + "_[k]"
        return name

    def _look_up(self, tgid: int, address: int, functions: Functions) -> str:
        if tgid not in self._code:
            self._code[tgid] = mapped_code(tgid)
        found, offset, module = self._bpf._sym_cache(tgid).resolve(address, True)
        if found:
            name = str(found.decode("utf-8", "replace"))
            functions.learn(address - offset, address, name)
            return name
        if module:
            name = f"[{os.path.basename(module).decode('utf-8', 'replace').strip('[]')}]"
        else:
            name = "[unknown]"
            self._unknown.setdefault(tgid, 0)
        if len(self._names) >= MOST_ADDRESSES:
            self._names.clear()
        self._names[tgid, address] = name
        return name

    def forget(self, tgid: int) -> None:
        """A process ended or became another program."""
        for book in (self._unknown, self._patience, self._code):
            book.pop(tgid, None)
        self._drop(tgid)

    def _drop(self, tgid: int) -> None:
        self._functions.pop(tgid, None)
        self._names = {key: name for key, name in self._names.items() if key[0] != tgid}
        cache = self._bpf._sym_caches.pop(tgid, None)
        if cache is not None:  # bcc itself never gives one back
            sys.modules["bcc"].lib.bcc_free_symcache(cache.cache, tgid)

    def tick(self) -> None:
        """Called once a second."""
        for tgid in list(self._unknown):
            self._unknown[tgid] += 1
            patience = self._patience.setdefault(tgid, _LOOK_AFTER_TICKS)
            if self._unknown[tgid] > patience:
                self._unknown[tgid] = 0
                if (code := mapped_code(tgid)) != self._code.get(tgid):
                    self._code[tgid] = code
                    self._patience[tgid] = min(2 * patience, _LONGEST_TICKS)
                    del self._unknown[tgid]
                    self._drop(tgid)


def mapped_code(tgid: int) -> Code:
    """The files whose code a process maps, and how long its list of generated code is (/tmp/perf-PID.map)."""
    lines = (line.split(None, 5) for line in read(f"/proc/{tgid}/maps").splitlines())
    files = frozenset(fields[5] for fields in lines if len(fields) == 6 and "x" in fields[1])
    try:
        return files, os.stat(f"/proc/{tgid}/root/tmp/perf-{tgid}.map").st_size
    except OSError:
        return files, 0


class StackTable:
    """The stacks of one BPF stack map, named."""

    def __init__(self, table: Any, symbols: Symbols) -> None:
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
        try:
            addresses = [address for address in self._table[self._table.Key(stack)].ip if address]
        except KeyError:
            return ()
        addresses.reverse()
        if tgid < 0:
            return tuple(self._symbols.kernel(address) for address in addresses)
        return tuple(self._symbols.user(tgid, address) for address in addresses)
