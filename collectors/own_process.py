"""How a module of this very llmtop is run as a program of its own."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_BOOT = (
    "import runpy, sys; sys.path[:] = sys.argv.pop(1).split(':');"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
"""Nothing of the current folder or of the environment's Python is seen, but what this very llmtop sees."""


def command_of(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module, by its full name."""
    paths = ":".join([str(_ROOT), *(path for path in sys.path if path)])
    return [sys.executable, "-I", "-S", "-c", _BOOT, paths, module, *arguments]
