"""Where in a process CPython keeps its global lock, so that a thread found in futex there waits for the GIL.

Threads wait for the GIL at a condition variable, with the switch interval (5 ms) as time limit (CPython,
Python/ceval_gil.c: take_gil). It is a part of `_PyRuntime`, which is among the interpreter's own static data: nothing
else there is waited for with a limit. Subinterpreters' locks lie elsewhere, and a build without GIL has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

Range = tuple[int, int]
_INTERPRETER = re.compile(r"(?:lib)?python[\d.]*[a-z]?(?:\.so[\d.]*)?\Z")


def interpreter_data(lines: Iterable[str]) -> tuple[Range, ...]:
    """The addresses of a CPython's static data, of /proc/PID/maps; none where no CPython is mapped.

    What is initialised is mapped from its file, and the rest follows without one (.bss).

    >>> interpreter_data(["00945000-00a85000 rw-p 00545000 fe:00 26 /usr/bin/python3.11",
    ... "00a85000-00aca000 rw-p 0 00:00 0 "])
    ((9719808, 11030528), (11030528, 11313152))
    """
    found: list[Range] = []
    end = None
    for line in lines:
        span, access, _, _, _, *named = line.split(None, 5)
        path = "".join(named).strip()
        start, stop = (int(edge, 16) for edge in span.split("-"))
        is_file = "/" in path and _INTERPRETER.search(path.rpartition("/")[2]) is not None
        if access.startswith("rw") and (is_file or (start == end and not path)):
            found.append((start, stop))
            end = stop
        else:
            end = None
    return tuple(found)


def read_interpreter_data(pid: int) -> tuple[Range, ...]:
    """The same of a process; none where its maps are not ours to read."""
    try:
        with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as mapped:
            return interpreter_data(mapped)
    except OSError:
        return ()
