"""NVIDIA's own command lines, as oracles: on the PATH, or below the folder that LLMTOP_NSIGHT names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def tools(name: str) -> list[Path]:
    """Every copy of a profiler that is at hand."""
    folder = os.environ.get("LLMTOP_NSIGHT", "")
    below = [path for path in Path(folder).rglob(name) if _is_program(path)] if folder else []
    on_path = shutil.which(name)
    return [*below, *([Path(on_path)] if on_path else [])]


def _is_program(path: Path) -> bool:
    """Not one of the scripts that start it: they look for it in places where it may not be unpacked."""
    if not path.is_file() or path.is_symlink() or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
