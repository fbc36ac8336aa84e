"""A core dump of a GPU on standard input, read by a process of its own, for one who looks at a server meanwhile.

A dump has three sections for each thread, of a full H100 800,000: to read so many takes 4 s of a CPU and 456 MB (a file
of 328 MB, made of the sample's sections), which a live screen does not have. On standard output comes a `CoreDump` as
JSON, without what only the asker knows.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.errors import FileError
from llmtop.model import CoreDump, GpuFault, Unknown
from llmtop.parsers.registry import load
from llmtop.recording.documents import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INPUT = Path("/proc/self/fd/0")
_LIMIT_S = 120
"""The process ends after so long by itself, whatever has become of who asked."""
_NICE = 10
"""The server and the screen come first."""
_WHAT_IT_IS = "is a core dump of a GPU that "
"""As the parser begins; who asked knows that."""
_NO_FAULTS = Unknown("has no kernel that failed")


def told(path: Path) -> CoreDump:
    """What a dump tells."""
    try:
        trace = load(path)
    except FileError as error:
        said = str(error).removeprefix(str(path)).strip().removeprefix(_WHAT_IT_IS)
        reason, _, remedy = said.partition("; ")
        return CoreDump("", 0, why_not=Unknown(reason, remedy))
    if not trace.faults:
        return CoreDump("", 0, trace.origin.gpu, why_not=_NO_FAULTS)
    notes = tuple(issue.message for issue in trace.issues)
    return CoreDump("", 0, trace.origin.gpu, tuple(_thinned(trace.faults)), notes)


def _thinned(faults: Sequence[GpuFault]) -> Iterator[GpuFault]:
    """Registers of the first of each place alone, and of the first there whose thread is known."""
    known = set[tuple[str, str, int, bool]]()
    for fault in faults:
        is_of_one = fault.stood is not None and fault.stood.lane is not None
        key = (fault.exception, fault.function, fault.offset, is_of_one)
        yield replace(fault, registers=()) if key in known else fault
        known.add(key)


def main() -> None:
    """Read standard input, write to standard output."""
    signal.alarm(_LIMIT_S)
    os.nice(_NICE)
    sys.stdout.write(text_of(told(_INPUT)))


if __name__ == "__main__":
    main()
