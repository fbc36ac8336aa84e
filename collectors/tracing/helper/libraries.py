"""Libraries that a process maps: which have functions to look at, and what a probe on one of them costs."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from .. import wire
from . import elf
from .elf import Site
from .functions import COLLECTOR, FUNCTIONS
from .interpreters import collector_sites
from .mounts import ask_first
from .system import read, regular_file


class ProbePoint(NamedTuple):
    """Where a function begins in its file, and where it ends.

    Attributes:
        begins: Mostly one place.
        hit: What a hit of probes there is among costs: a key of `NS_PER_HIT`.
        ends: Empty where that is its return.
        symbols: What its file calls it, where that is not its name here.
    """

    begins: tuple[Site, ...]
    hit: str
    ends: tuple[Site, ...] = ()
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True)
class LibraryFile:
    """A library on the disk.

    Attributes:
        identity: Its device and inode: processes share it, by whatever path they see it.
        functions: Those of the wanted functions that this version of the library has.
    """

    identity: tuple[int, int]
    functions: Mapping[str, ProbePoint]


class LibraryFiles:
    """Reads each library once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], LibraryFile | None] = {}
        self._time = elf.ReadingTime()

    def at(self, pid: int, path: str, wanted: Collection[str]) -> LibraryFile | None:
        """What lies there; None when the process through which it is seen has just ended, or it is no library."""
        try:
            ask_first(pid, path.removeprefix(f"/proc/{pid}/root"), path)
            status = os.stat(path)
            identity = (status.st_dev, status.st_ino)
            if identity not in self._known:
                with self._time.of(pid):
                    self._known[identity] = LibraryFile(identity, dict(_points(path, wanted)))
        except OSError:
            return None
        except ValueError:
            self._known[identity] = None
        return self._known[identity]


def _points(path: str, wanted: Collection[str]) -> Iterator[tuple[str, ProbePoint]]:
    """Those of the wanted functions that the file has."""
    if COLLECTOR in wanted:
        sites = collector_sites(path)
        if sites is not None:
            yield COLLECTOR, _point(path, *sites)
        return
    for name, place in elf.exported(path, wanted).items():
        yield name, _point(path, (Site(place),))


def _point(
    path: str, begins: tuple[Site, ...], ends: tuple[Site, ...] = (), symbols: tuple[str, ...] = ()
) -> ProbePoint:
    is_gentle = all(starts_gently(path, site.place) for site in (*begins, *ends))
    return ProbePoint(begins, "library" if is_gentle else "stepped_library", ends, symbols)


def starts_gently(path: str, place: int) -> bool:
    """Whether the kernel can do a function's first instruction itself, as it can for a push.

    Any other is stepped through with a trap, which costs ten microseconds in a virtual machine:
    arch/x86/kernel/uprobes.c. On other machines than x86-64 nothing is assumed.
    """
    if platform.machine() != "x86_64":
        return True
    with regular_file(path) as library:
        first = os.pread(library, 2, place)
    code = first[1:] if first[:1] == b"\x41" else first[:1]
    return b"\x50" <= code <= b"\x57" or code == b"\x90"


class Covered(NamedTuple):
    """How much of one process's library calls is seen.

    Attributes:
        observed_ns: For how long its waits for the GPU were seen; None of one that maps none of their libraries.
        uncounted: Functions of which not even a sample is counted.
        unseen: What is not known for lack of probes: see `kinds_of`.
    """

    pid: int
    observed_ns: Optional[int]
    uncounted: Sequence[str]
    unseen: Sequence[str]


def coverage(processes: Iterable[Covered]) -> wire.Sample:
    """That of all processes, as it is told."""
    several = list(processes)
    return {
        "library_observed": [
            wire.LibraryObserved(one.pid, one.observed_ns) for one in several if one.observed_ns is not None
        ],
        "uncounted": [wire.Uncounted(one.pid, one.uncounted) for one in several if one.uncounted],
        "unseen": [wire.Unseen(one.pid, one.unseen) for one in several if one.unseen],
    }


def mapped_libraries(pid: int) -> dict[str, tuple[str, ...]]:
    """The libraries a process maps that we have functions of, by their path as the process sees it."""
    found: dict[str, tuple[str, ...]] = {}
    for line in read(f"/proc/{pid}/maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/") and fields[5] not in found:
            name = fields[5].rpartition("/")[2]
            for pattern, functions in FUNCTIONS.items():
                if re.match(pattern, name):
                    found[fields[5]] = functions
    return found
