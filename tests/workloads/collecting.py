"""An engine in Python whose garbage collections are known; run it under the interpreter that is to be looked at.

Usage: collecting.py LIBCUDA STEPS EVERY. A step is a millisecond of work, 8 launches of kernels, one of a graph and
4 ms of waiting for the GPU, in LIBCUDA (engine_stand_in.c). Every so many steps one collects all garbage before, among
enough objects that it takes long. When all are done it tells which, as ["garbage collection", end in ns]; each further
line of input is answered as in account.h: "collecting" is the time in the collector by its own callbacks
(gc.callbacks), "collections" how many there were.
"""

import ctypes
import gc
import json
import sys
import threading
import time

OBJECTS = 60_000
"""Lists in cycles: some 5 to 10 ms to look through."""


class Collections:
    """How many there were and how long they took, by the interpreter's own account."""

    def __init__(self) -> None:
        self.times = 0
        self.ns = 0
        self._since_ns = 0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        now = time.monotonic_ns()
        if phase == "start":
            self._since_ns = now
        else:
            self.times, self.ns = self.times + 1, self.ns + now - self._since_ns


def work(ns: int) -> None:
    """Be on the CPU for so long."""
    until = time.thread_time_ns() + ns
    while time.thread_time_ns() < until:
        pass


def step(cuda: ctypes.CDLL, *, collects: bool) -> None:
    """One step of the engine."""
    work(1_000_000)
    if collects:
        gc.collect()
    for _ in range(8):
        cuda.cuLaunchKernel()
    cuda.cuGraphLaunch()
    cuda.cuStreamSynchronize()


def run(cuda: ctypes.CDLL, steps: int, every: int) -> list[tuple[str, int]]:
    """All steps; those that collected, with when they ended."""
    planted = []
    for i in range(steps):
        collects = i % every == every - 1
        step(cuda, collects=collects)
        if collects:
            planted.append(("garbage collection", time.monotonic_ns()))
    return planted


def main() -> None:
    """Wait to be told, run, and answer."""
    library, steps, every = sys.argv[1], *map(int, sys.argv[2:])
    cuda = ctypes.CDLL(library)
    kept: list[list[object]] = [[] for _ in range(OBJECTS)]
    for one in kept:
        one.append(one)
    gc.disable()
    collections, started_ns = Collections(), time.monotonic_ns()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(run(cuda, steps, every)), flush=True)
    while sys.stdin.readline():
        now = time.monotonic_ns()
        main_thread = {"tid": threading.get_native_id(), "collecting": collections.ns, "collections": collections.times}
        told = {"t": now, "wall": now - started_ns, "threads": {"engine": main_thread}}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
