"""Where Python's garbage collector begins and ends in the file of an interpreter: what nobody exports.

Debian, Ubuntu and Fedora build CPython with probes of its own, `gc__start` and `gc__done` (docs.python.org,
"Instrumenting CPython with DTrace and SystemTap"), which notes in the file tell of (systemtap's
UserSpaceProbeImplementation). Where there are none, the table of symbols has the function that collects, unless the
file was stripped of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple, Optional

from .elf import Elf, ElfError, Site, functions_of
from .system import regular_file

_NOTE = 7
"""SHT_NOTE (elf.h)."""
_NOTE_HEAD = struct.Struct("<III")
_PROBE = struct.Struct("<QQQ")
_OWNER, _KIND = b"stapsdt", 3
_BEGINS, _ENDS = b"gc__start", b"gc__done"
_FUNCTIONS = tuple(
    re.compile(rb"%s(\.(constprop|isra|lto_priv)\.\d+)*\Z" % name) for name in (b"gc_collect_main", b"_PyGC_Collect")
)
"""What collects, of 3.10 to 3.13 and of every one without a GIL; and of 3.14. The second is in 3.13 too, where it calls
the first. A compiler that fits a function to its callers makes several of it."""
_MOST_BYTES = 1 << 20
"""Of notes: those of probes are a few hundred bytes."""
NO_COLLECTOR = "the interpreter has neither its own probes nor symbols: Debian's and Ubuntu's python3 have the former"


class CollectorSites(NamedTuple):
    """Where it begins, and where it ends.

    Attributes:
        ends: Empty where that is the return of what begins.
        symbols: What the file calls it then.
    """

    begins: tuple[Site, ...]
    ends: tuple[Site, ...] = ()
    symbols: tuple[str, ...] = ()


def collector_sites(path: str) -> Optional[CollectorSites]:
    """By its own probes, else by its symbols; None where it has neither.

    Raises:
        OSError: The file cannot be read.
        ElfError: It is no ELF file, or a damaged one.
    """
    with regular_file(path) as file:
        elf = Elf(file)
        probes = list(_probes(elf, file))
        begins, ends = (tuple(site for name, site in probes if name == one) for one in (_BEGINS, _ENDS))
        if begins and ends:
            return CollectorSites(begins, ends)
        functions = [one for one in functions_of(elf, file, is_exported=False) if _is_wanted(one[0])]
    for wanted in _FUNCTIONS:
        found = sorted(
            {elf.offset(address): name.decode() for name, address in functions if wanted.match(name)}.items()
        )
        if found:
            return CollectorSites(tuple(Site(place) for place, _ in found), (), tuple(name for _, name in found))
    return None


def _is_wanted(name: bytes) -> bool:
    return any(wanted.match(name) for wanted in _FUNCTIONS)


def _probes(elf: Elf, file: int) -> Iterator[tuple[bytes, Site]]:
    """The probes that CPython has of its own, by name."""
    for section in elf.sections:
        if section.kind != _NOTE or section.size > _MOST_BYTES:
            continue
        for owner, kind, text in _notes(elf.read(file, section.offset, section.size)):
            if (owner, kind) != (_OWNER, _KIND) or len(text) < _PROBE.size:
                continue
            provider, name, *_ = [*text[_PROBE.size :].split(b"\0"), b""]
            place, _, semaphore = _PROBE.unpack_from(text)
            if provider == b"python":
                yield name, Site(elf.offset(place), elf.offset(semaphore) if semaphore else 0)


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Owner, kind and text of each; both are filled up to four bytes."""
    at = 0
    while at + _NOTE_HEAD.size <= len(data):
        owner_size, size, kind = _NOTE_HEAD.unpack_from(data, at)
        begin = at + _NOTE_HEAD.size
        text = begin + -(-owner_size // 4) * 4
        if text + size > len(data):
            raise ElfError("its notes are longer than their section")
        yield data[begin : begin + owner_size].rstrip(b"\0"), kind, data[text : text + size]
        at = text + -(-size // 4) * 4
