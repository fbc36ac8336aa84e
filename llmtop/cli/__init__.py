"""The command line: one file per command, listed in `_COMMANDS`."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run llmtop; the return value is the exit code."""
    from llmtop.cli.run import run

    return run(sys.argv[1:] if argv is None else argv)
