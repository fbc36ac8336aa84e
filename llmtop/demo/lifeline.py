"""No process of the demo outlives the one that started it.

The starter holds the write end of a pipe and never writes: however it ends, the reader sees the end of file.
PR_SET_PDEATHSIG alone would not do: it fires when the starting *thread* ends, and is lost when the starter is gone
before the call. It is set besides where that thread is known to stay, for a process stuck in a driver call.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path

from llmtop import programs

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15


def name_thread(name: str) -> None:
    """Set the name that top and /proc/PID/task/TID/comm show; the main thread's is the process's. 15 bytes count."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def terminate_at_end_of(descriptor: int) -> None:
    """Send this process SIGTERM when the other end of a pipe is closed."""

    def watch() -> None:
        name_thread("lifeline")
        while os.read(descriptor, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def exit_on_signals() -> None:
    """Turn SIGTERM and SIGINT into SystemExit in the main thread, once: a second one must not break the clean-up."""

    def leave(_number: int, _frame: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def child_environment() -> dict[str, str]:
    """The environment of the demo's processes: this very llmtop, one BLAS thread, no buffered log."""
    # Relative ones, and empty ones, would be the current folder.
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(Path(__file__).resolve().parents[2]), *(path for path in given if path.startswith("/"))]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return programs.environment(**threads, PYTHONPATH=os.pathsep.join(paths), PYTHONUNBUFFERED="1")
