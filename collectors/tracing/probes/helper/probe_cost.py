"""What a pair of probes on a library function costs a call on this machine, by having probes on functions of our own.

It differs by a factor of three between machines, and by ten between functions: see `starts_gently` of the helpers.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...helper.elf import Site
from ...helper.governor import NS_PER_HIT
from ...helper.libraries import ProbePoint
from .uprobes import Uprobes

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)

KINDS = {"library": (0, 300), "stepped_library": (16, 80)}
"""Where the function of each kind lies in the code below, and how often it is called: a millisecond or two."""
_ROUNDS, _PLACE = 5, 1
"""Of so many measurements this one, from the least: others on the machine only ever add to it."""
_MAP_FAILED = ctypes.c_void_p(-1).value
_GENTLE = bytes.fromhex("55 4889e5 5d c3")
"""push rbp; mov rbp, rsp; pop rbp; ret"""
_STEPPED = bytes.fromhex("89f8 c3")
"""mov eax, edi; ret"""
_LOOP_AT = 64
_LOOP = bytes.fromhex("53 4154 4889fb 4989f4 41ffd4 48ffcb 75f8 415c 5b c3")
"""Calls the function in the second argument as often as the first one says."""
_CODE = (_GENTLE.ljust(16, b"\xcc") + _STEPPED).ljust(_LOOP_AT, b"\xcc") + _LOOP
_FUNCTION = "cuLaunchKernel"
"""The probes take it for this one: the dearest."""


def measured(probes: Uprobes) -> Mapping[str, float]:
    """Ns a call by kind, as in `NS_PER_HIT`; these where they cannot be measured here."""
    if platform.machine() != "x86_64":
        return NS_PER_HIT
    try:
        with _mapped() as (path, address):
            return {kind: _cost(probes, path, address, *KINDS[kind]) for kind in KINDS}
    except OSError:  # no memory of ours may be run here, or nobody may probe it
        return NS_PER_HIT


@contextmanager
def _mapped() -> Iterator[tuple[str, int]]:
    """The code in a file that this process maps: the file's path, and where the code is."""
    file = os.memfd_create("probe_cost")
    try:
        os.write(file, _CODE.ljust(mmap.PAGESIZE, b"\xcc"))
        address = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), "mmap")
        try:
            yield f"/proc/self/fd/{file}", address
        finally:
            libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE))
    finally:
        os.close(file)


def _cost(probes: Uprobes, path: str, address: int, place: int, calls: int) -> float:
    loop = ctypes.CFUNCTYPE(None, ctypes.c_long, ctypes.c_void_p)(address + _LOOP_AT)

    def ns_per_call() -> float:
        start = time.thread_time_ns()
        loop(calls, address + place)
        return (time.thread_time_ns() - start) / calls

    free = sorted(ns_per_call() for _ in range(_ROUNDS))[_PLACE]
    try:
        probes.hold(os.getpid(), path, "cost", {_FUNCTION: ProbePoint((Site(place),), "library")})
        return max(1.0, sorted(ns_per_call() for _ in range(_ROUNDS))[_PLACE] - free)
    finally:
        probes.hold(os.getpid(), path, "cost", {})
