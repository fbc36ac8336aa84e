"""Addresses to names."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from .elf import ElfError, ElfFunctions, ReadingTime
from .mounts import ask_first
from .system import read, regular_file

VDSO = "[vdso]"
UNKNOWN = "[unknown]"
_FUNCTION_KINDS = frozenset((b"t", b"T", b"w", b"W"))
"""Kinds of symbol in /proc/kallsyms: nm(1)."""
_LOOK_AFTER_TICKS = 5
"""Seconds that an address without a name waits until it is looked whether its process has mapped more; twice as long
each time that it had."""
_LONGEST_TICKS = 640
"""But never longer."""
_LONGEST_LIST = 1 << 26
"""Characters that are read of a list of functions that a program has made."""
DEBUG_FILES = "/usr/lib/debug/.build-id"
MOST_ADDRESSES = 50_000
"""So many addresses and their names are remembered; then they are looked up anew."""


class Symbols:
    """Names of functions by process and address, remembered.

    Code that a file holds is named by the file, or by the debug file of a stripped one; what is made while the program
    runs (a just-in-time compiler's), by the program's own list. Stacks walked without frame pointers hold addresses
    that no code has, so a process with unknown addresses is looked at anew only when it has mapped more, and ever more
    seldom.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}
        """The kernel is process -1."""
        self._files: dict[str, ElfFunctions | None] = {}
        """By what /proc tells of a file: its device and inode. None is one that cannot be read."""
        self._unknown: dict[int, int] = {}
        """For how many ticks each process has had addresses without a name."""
        self._patience: dict[int, int] = {}
        self._code: dict[int, Code] = {}
        self._made: dict[int, MadeFunctions] = {}
        self._time = ReadingTime()

    @cached_property
    def _vdso(self) -> Vdso:
        return Vdso()

    @cached_property
    def _kernel(self) -> KernelFunctions:
        """Read when the first name is asked for."""
        return KernelFunctions()

    def user(self, tgid: int, address: int) -> str:
        """A function of a process, or the library it is in, in brackets."""
        name = self._names.get((tgid, address))
        if name is None:
            if len(self._names) >= MOST_ADDRESSES:
                self._names.clear()
            name = self._names[tgid, address] = self._look_up(tgid, address)
        return name

    def kernel(self, address: int) -> str:
        """A function of the kernel, marked as such."""
        name = self._names.get((-1, address))
        if name is None:
            name = self._names[-1, address] = f"{self._kernel.name(address)}_[k]"
        return name

    def _look_up(self, tgid: int, address: int) -> str:
        code = self._code.get(tgid)
        if code is None:
            code = self._code[tgid] = Code.of(tgid)
        region = code.at(address)
        if region is None:
            self._unknown.setdefault(tgid, 0)
            return UNKNOWN
        functions = self._functions(tgid, region) if region.is_file else None
        if region.path == VDSO:
            name = self._vdso.name(address - region.start)
        else:
            name = self._name_in(functions, tgid, region, address) if functions else None
        if name is None and functions is None and code.generated:
            if tgid not in self._made:
                self._made[tgid] = MadeFunctions(tgid)
            name = self._made[tgid].name(address)
        if name is None and not region.is_file:
            self._unknown.setdefault(tgid, 0)  # it may be named later
        return name or region.name

    def _functions(self, tgid: int, region: Region) -> ElfFunctions | None:
        if region.file not in self._files:
            try:
                with opened(tgid, region) as descriptor, self._time.of(tgid):
                    self._files[region.file] = ElfFunctions(descriptor, DEBUG_FILES)
            except (OSError, ElfError):
                self._files[region.file] = None
        return self._files[region.file]

    def _name_in(self, functions: ElfFunctions, tgid: int, region: Region, address: int) -> str | None:
        try:
            with opened(tgid, region) as descriptor:
                return functions.name(descriptor, address - region.start + region.offset)
        except OSError:  # the process has just ended
            return None

    def forget(self, tgid: int) -> None:
        """A process ended or became another program."""
        for book in (self._unknown, self._patience, self._code):
            book.pop(tgid, None)
        self._time.forget(tgid)
        self._drop(tgid)
        mapped = {region.file for code in self._code.values() for region in code.regions}
        self._files = {file: functions for file, functions in self._files.items() if file in mapped}

    def _drop(self, tgid: int) -> None:
        self._names = {key: name for key, name in self._names.items() if key[0] != tgid}
        self._made.pop(tgid, None)

    def tick(self) -> None:
        """Called once a second."""
        for tgid in list(self._unknown):
            self._unknown[tgid] += 1
            patience = self._patience.setdefault(tgid, _LOOK_AFTER_TICKS)
            if self._unknown[tgid] > patience:
                self._unknown[tgid] = 0
                if (code := Code.of(tgid)) != self._code.get(tgid):
                    self._code[tgid] = code
                    self._patience[tgid] = min(2 * patience, _LONGEST_TICKS)
                    del self._unknown[tgid]
                    self._drop(tgid)


@dataclass(frozen=True, slots=True)
class Region:
    """Addresses of a process that hold code, and what they are of."""

    start: int
    end: int
    offset: int
    file: str
    path: str

    @property
    def is_file(self) -> bool:
        """Whether a file holds the code, rather than memory alone."""
        return self.path.startswith("/") and not self.path.startswith(("/dev/zero", "/memfd:"))

    @property
    def name(self) -> str:
        """What a function in it is called whose own name nobody knows."""
        return f"[{os.path.basename(self.path).strip('[]') or 'unknown'}]"


@dataclass(frozen=True)
class Code:
    """The code that a process has mapped, and how long its list of code that it has made is."""

    regions: tuple[Region, ...]
    generated: int

    @classmethod
    def of(cls, tgid: int) -> Code:
        """As it is now; without regions when the process has ended."""
        lines = (line.split(None, 5) for line in read(f"/proc/{tgid}/maps").splitlines())
        regions = tuple(_region(fields) for fields in lines if len(fields) >= 5 and "x" in fields[1])
        try:
            return cls(regions, os.lstat(_list_of_made(tgid)).st_size)
        except OSError:
            return cls(regions, 0)

    def at(self, address: int) -> Region | None:
        """What holds an address."""
        i = bisect_right(self.regions, address, key=lambda region: region.start) - 1
        return self.regions[i] if i >= 0 and address < self.regions[i].end else None


def _region(fields: list[str]) -> Region:
    start, end = (int(address, 16) for address in fields[0].split("-"))
    return Region(start, end, int(fields[2], 16), f"{fields[3]} {fields[4]}", fields[5] if len(fields) > 5 else "")


@contextmanager
def opened(tgid: int, region: Region) -> Iterator[int]:
    """The file of a region, as the process has it: replaced since or in a container, it is still that one.

    Raises:
        OSError: It cannot be opened.
    """
    mapped = f"/proc/{tgid}/map_files/{region.start:x}-{region.end:x}"
    ask_first(tgid, region.path, mapped)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(regular_file(mapped))
        except OSError:  # a capability in place of root does not open these, and mappings change
            file = stack.enter_context(regular_file(f"/proc/{tgid}/root{region.path}"))
        yield file


def _list_of_made(tgid: int) -> str:
    """Where a process lists the code that it makes, for Linux's perf: by its id in its own PID namespace.

    Raises:
        OSError: The file system of its /tmp does not answer.
    """
    ids = re.search(r"^NSpid:.*?(\d+)$", read(f"/proc/{tgid}/status"), re.MULTILINE)
    path = f"/tmp/perf-{ids.group(1) if ids else tgid}.map"
    ask_first(tgid, path, f"/proc/{tgid}/root{path}")
    return f"/proc/{tgid}/root{path}"


class MadeFunctions:
    """Functions that a program has made while it runs, from its own list: a line each, "start size name", in hex.

    Another user may have put anything there, so only a regular file is read, and not all of a very long one.
    """

    def __init__(self, tgid: int) -> None:
        self._functions: dict[int, tuple[int, str]] = {}
        """Size and name by start: what is made in the place of another comes later in the list."""
        for line in _listed_lines(tgid):
            try:
                start, size, name = line.split(None, 2)
                self._functions[int(start, 16)] = (int(size, 16), name.rstrip())
            except ValueError:
                continue
        self._starts = sorted(self._functions)

    def name(self, address: int) -> str | None:
        """The function at an address; None where none is known."""
        i = bisect_right(self._starts, address) - 1
        if i < 0:
            return None
        size, name = self._functions[self._starts[i]]
        return name if address < self._starts[i] + size else None


def _listed_lines(tgid: int) -> list[str]:
    try:
        with regular_file(_list_of_made(tgid), follow=False) as descriptor:
            return open(descriptor, errors="replace", closefd=False).read(_LONGEST_LIST).splitlines()
    except OSError:
        return []


class Vdso:
    """The functions that the kernel puts into every process: the same for all, so that ours tell them."""

    def __init__(self) -> None:
        self._file = os.memfd_create("vdso")
        self._functions: ElfFunctions | None = None
        try:
            region = next(one for one in Code.of(os.getpid()).regions if one.path == VDSO)
            with open("/proc/self/mem", "rb", buffering=0) as memory:
                os.write(self._file, os.pread(memory.fileno(), region.end - region.start, region.start))
            self._functions = ElfFunctions(self._file)
        except (StopIteration, OSError, ElfError):  # this kernel has none, or none that can be read: it has no names
            return

    def name(self, offset: int) -> str | None:
        """The function at so many bytes from its start."""
        return self._functions.name(self._file, offset) if self._functions else None


class KernelFunctions:
    """The kernel's functions, from /proc/kallsyms: addresses are 0 there for those who may not see them.

    Its own are in the order of their addresses, 120,000 lines and more, and are looked for where they stand: to take
    all of them in takes half a second. Those of modules follow, in no order.
    """

    def __init__(self) -> None:
        self._text = read("/proc/kallsyms").encode()
        first = self._text.find(b"\t[")
        self._own = self._text.rfind(b"\n", 0, first) + 1 if first >= 0 else len(self._text)

    def name(self, address: int) -> str:
        """The function at an address."""
        found = self._nearest(address)
        if found is None or address >= self._last:
            i = bisect_right(self._modules, address, key=lambda one: one[0]) - 1
            found = self._modules[i] if i >= 0 else found
        return found[1] if found and found[0] else UNKNOWN

    def _nearest(self, address: int) -> tuple[int, str] | None:
        """The last of the kernel's own functions at or below an address, by halving the text."""
        low, high = 0, self._own
        while low < high:
            start = self._text.rfind(b"\n", low, (low + high) // 2) + 1 or low
            end = self._text.find(b"\n", start, self._own) + 1 or self._own
            if int(self._text[start:end].split()[0], 16) > address:
                high = start
            else:
                low = end
        while low:
            start = self._text.rfind(b"\n", 0, low - 1) + 1
            value, kind, name = self._text[start:low].split()[:3]
            if kind in _FUNCTION_KINDS:
                return int(value, 16), name.decode("utf-8", "replace")
            low = start
        return None

    @cached_property
    def _last(self) -> int:
        """Where the last of the kernel's own begins."""
        line = self._text[: self._own].rstrip(b"\n").rpartition(b"\n")[2].split()
        return int(line[0], 16) if line else 0

    @cached_property
    def _modules(self) -> list[tuple[int, str]]:
        lines = (line.split() for line in self._text[self._own :].splitlines())
        return sorted(
            (int(line[0], 16), line[2].decode("utf-8", "replace")) for line in lines if line[1] in _FUNCTION_KINDS
        )
