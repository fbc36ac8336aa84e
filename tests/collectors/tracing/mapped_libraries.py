"""Libraries that a process maps, without a process."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llmtop.collectors.tracing.bpftrace import libraries as libraries_module
from llmtop.collectors.tracing.bpftrace.libraries import Libraries
from llmtop.collectors.tracing.helper.elf import Site
from llmtop.collectors.tracing.helper.libraries import LibraryFile, LibraryFiles, ProbePoint

GENTLE, STEPPED = "library", "stepped_library"


def at(place: int, hit: str = GENTLE) -> ProbePoint:
    """A function that begins there."""
    return ProbePoint((Site(place),), hit)


def map_library(
    libraries: Libraries, pid: int, hits: Mapping[str, str], path: str = "/lib/libcuda.so.1", inode: int = 2
) -> None:
    """Have a process map a library with these functions, each with what a hit of its probes is."""
    file = LibraryFile((1, inode), {name: at(16, hit) for name, hit in hits.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libraries_module, "mapped_libraries", lambda one: {path: tuple(hits)} if one == pid else {})
        patch.setattr(LibraryFiles, "at", lambda files, seen, wanted: file)
        libraries.look([pid])
