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
