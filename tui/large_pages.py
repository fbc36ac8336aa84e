"""The program's memory in pages of 2 MB, in place of 4 kB.

A frame comes after half a second of sleep: by then the processor has forgotten where most small pages are, and looks up
each anew, in a virtual machine twice.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGE = 2 << 20
"""Bytes of a large page of x86-64, and of arm64 with small pages of 4 kB."""
_COLLAPSE = 25
"""MADV_COLLAPSE (Linux 6.1, madvise(2)): older kernels know no such advice, and do nothing."""
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SMAPS = Path("/proc/self/smaps")
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0\s*(?:\[heap\])?\n", re.ASCII)
_RESIDENT = re.compile(r"Rss:\s+(\d+) kB", re.ASCII)
_FULL = 0.9
"""A large page is all there. Where more than a tenth is not, as of stacks, memory would be taken that is not used."""


def full_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """The large pages within this program's own data, as [start, stop), of mappings nearly all of which is there."""
    for entry in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", smaps):
        mapping, resident = _MAPPING.match(entry), _RESIDENT.search(entry)
        if mapping is None or resident is None:
            continue
        low, high = (int(address, 16) for address in mapping.groups())
        start, stop = -(-low // LARGE) * LARGE, high // LARGE * LARGE
        if start < stop and int(resident[1]) * 1024 >= _FULL * (high - low):
            yield start, stop


def use_large_pages(
    setting: Path = _SETTING, smaps: Path = _SMAPS, advise: Callable[[int, int, int], object] | None = None
) -> None:
    """Have what there is by now moved into large pages, unless the machine is set to have none.

    Args:
        setting: Where the kernel says how it is set.
        smaps: This program's mappings.
        advise: madvise(2), by default the C library's; whatever it cannot do stays as it is.
    """
    try:
        is_off, mappings = "[never]" in setting.read_text(), smaps.read_text(errors="replace")
    except OSError:  # a kernel without large pages
        return
    if is_off:
        return
    advise = advise or _madvise
    for start, stop in full_mappings(mappings):
        advise(start, stop - start, _COLLAPSE)


def _madvise(address: int, length: int, advice: int) -> int:
    done: int = ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), advice)
    return done
