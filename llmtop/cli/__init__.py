"""The command line: one file per command, listed in `_COMMANDS`."""

from __future__ import annotations

import gc
import sys

_ALLOCATIONS = 500_000
"""Between two looks for garbage in cycles: more than all modules of a screen make, none of which is garbage. One look
among them takes 25 ms of the time to the first frame; the screen sets its own for its frames (`llmtop.tui.app`)."""


def main(argv: list[str] | None = None) -> int:
    """Run llmtop; the return value is the exit code."""
    gc.set_threshold(_ALLOCATIONS)
    from llmtop.cli.run import run

    return run(sys.argv[1:] if argv is None else argv)
