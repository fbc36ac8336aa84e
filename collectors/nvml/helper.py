"""The process in which NVML is loaded and asked: whatever the driver does there, llmtop itself goes on.

A library that hangs while it is loaded holds the loader's lock, and Python's with it: every thread of its process
stands still, and no signal's handler runs. So nothing of it is loaded into llmtop.

It is asked by single bytes on its standard input, one for each poll, and answers on its standard output with pickles,
each after its length. `llmtop.collectors.gpus` is the other side.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pickle
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from llmtop.collectors.nvml.sides import LENGTH, LIBRARY

if TYPE_CHECKING:
    from llmtop.model import Metric, Trace


class Packer:
    """Polls as plain data: what does not change is sent once."""

    def __init__(self) -> None:
        self._metrics: dict[str, int] = {}
        self._last: dict[str, Any] = {}

    def pack(self, trace: Trace) -> dict[str, Any]:
        """One poll."""
        new: list[Metric] = []
        readings = [
            (one.track, self._number(one.metric, new), one.t_ns, one.value, one.source) for one in trace.readings
        ]
        parts = {"tracks": dict(trace.tracks), "missing": trace.missing}
        changed = {name: part for name, part in parts.items() if self._last.get(name) != part}
        self._last |= changed
        return {
            "kind": "poll",
            "span": (trace.start_ns, trace.end_ns),
            "metrics": new,
            "readings": readings,
            "marks": trace.marks,
            "issues": trace.issues,
            "gone": trace.gone,
            **changed,
        }

    def _number(self, metric: Metric, new: list[Metric]) -> int:
        number = self._metrics.get(metric.name)
        if number is None:
            number = self._metrics[metric.name] = len(self._metrics)
            new.append(metric)
        return number


def end_with(lifeline: int) -> None:
    """Have the kernel end this process when the other end of a pipe is closed, whatever its threads hang in.

    The pipe's end raises SIGIO, whose default is to end the process; no thread of ours has to run for it.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        if os.read(lifeline, 1) == b"":
            raise SystemExit(0)  # the other side was gone before it could be noticed
    except BlockingIOError:
        return


def send(message: dict[str, Any]) -> None:
    """To llmtop."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    sys.stdout.buffer.write(LENGTH.pack(len(data)) + data)
    sys.stdout.buffer.flush()


def main() -> int:
    """Serve until the input ends."""
    end_with(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)  # typed for llmtop, which ends this process itself
    send({"kind": "loading"})
    from llmtop.collectors.nvml.collector import NvmlCollector

    with suppress(OSError):  # pynvml says so, in words that are explained
        ctypes.CDLL(LIBRARY)
    send({"kind": "loaded"})
    collector, packer = NvmlCollector(), Packer()
    why = collector.missing()
    send({"kind": "unavailable", "why": why} if why is not None else {"kind": "ready"})
    if why is not None:
        return 0
    with collector:
        while os.read(0, 1):
            send(packer.pack(collector.poll()))
    os._exit(0)  # a call that hangs must not be waited for


if __name__ == "__main__":
    raise SystemExit(main())
