"""The command line: one file per command, listed in `_COMMANDS`."""

from __future__ import annotations

import gc
import sys

_ALLOCATIONS = 20_000
"""Between two looks for garbage in cycles. Python's 700 makes that a sixth of what the live screen costs: each frame
makes thousands of objects, and hardly one of them is in a cycle."""


def main(argv: list[str] | None = None) -> int:
    """Run llmtop; the return value is the exit code."""
    gc.set_threshold(_ALLOCATIONS)
    from llmtop.cli.run import run

    return run(sys.argv[1:] if argv is None else argv)
