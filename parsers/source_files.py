"""Source files that a report names and does not hold, looked for in folders that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from llmtop.model import SourceText, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from llmtop.model import Trace

_MOST_PARTS = 40
MAX_SOURCE = 32 << 20
"""Bytes of a file that is shown."""


def with_sources(trace: Trace, folders: Sequence[Path]) -> Trace:
    """The trace, whose kernels' source files are looked for in these folders too."""
    kernels = trace.kernels
    if not folders or kernels is None or kernels.codes is None:
        return trace
    return replace(trace, kernels=replace(kernels, codes=kernels.codes.within(folders)))


def found_source(file: str, folders: Sequence[Path], bytes_then: int) -> SourceText | Unknown:
    """A source file, in the first folder that has it.

    A path that ends alike is it, the longest such: of "/build/src/a/b.cu" the folder may hold "src/a/b.cu", "a/b.cu" or
    "b.cu". Nothing outside of the folders is opened, whatever a report names. A file that has not as
    many bytes as it had when it was compiled (0: not told) is doubted.
    """
    if not folders:
        return Unknown("the report does not hold this file", "name its folder: --source-dir DIR")
    parts = _parts(file)[-_MOST_PARTS:]
    for folder in folders:
        for i in range(len(parts)):
            path = folder.joinpath(*parts[i:])
            if _is_within(path, folder):
                return _read(path, bytes_then)
    names = ", ".join(clean(str(folder)) for folder in folders)
    return Unknown(f"no folder of --source-dir has {parts[-1] if parts else file}: {names}")


def _is_within(path: Path, folder: Path) -> bool:
    try:
        return path.is_file() and path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return False  # it may not be looked at, or its name is none


def _parts(file: str) -> list[str]:
    """The names of a path without its root and what goes up."""
    pure = PureWindowsPath(file) if "\\" in file else PurePosixPath(file)
    return [part for part in pure.parts if part not in (pure.anchor, "..", ".")]


def _read(path: Path, bytes_then: int) -> SourceText | Unknown:
    try:
        size = path.stat().st_size
        stored = path.read_bytes() if size <= MAX_SOURCE else b""
    except OSError as error:
        return Unknown(f"{clean(str(path))} cannot be read: {error.strerror}")
    if size > MAX_SOURCE:
        return Unknown(f"{clean(str(path))} is too long for a source file")
    doubt = f"changed since: {size} bytes, {bytes_then} when it was compiled" if bytes_then not in (0, size) else ""
    return SourceText(source_lines(stored), clean(str(path)), doubt)


def source_lines(stored: bytes) -> tuple[str, ...]:
    """The lines of a text as compilers count them, clean, tabs as blanks."""
    lines = stored.decode(errors="replace").removesuffix("\n").split("\n")
    return tuple(clean(line.removesuffix("\r").expandtabs(4)) for line in lines)
