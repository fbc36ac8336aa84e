"""Memory that the program does not use any more, given back to the system.

The C library keeps what was freed: after the columns of a long capture were worked with, as much again as they take.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _trim() -> Any:
    """malloc_trim(3) of glibc; None of a library that has nothing like it."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back_freed() -> bool:
    """Give it back now, which takes some milliseconds; whether there was any."""
    trim = _trim()
    return trim is not None and bool(trim(0))


_M_MMAP_THRESHOLD = -3
"""Of mallopt(3): from how many bytes on a block is a mapping of its own, which goes back once it is freed."""
COLUMN_BYTES = 7 << 20
"""Less than a column of a million numbers of eight bytes takes."""


def give_back_columns() -> None:
    """From now on give long columns back as soon as they are freed; shorter blocks cost less where they are kept.

    Of its own accord glibc keeps blocks of up to 32 MiB. Where the C library has no such option nothing changes.
    """
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(_M_MMAP_THRESHOLD, COLUMN_BYTES)
