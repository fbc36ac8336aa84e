"""Which version of a server is installed where a process runs, by the files of its Python package."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from llmtop import foreign, procfs
from llmtop.facts import TargetFact
from llmtop.model import Engine, Fact
from llmtop.text import clean

_PACKAGES = re.compile(r"\s(/\S*/(?:site|dist)-packages)/")


def installed(engine: Engine, pid: int, proc: Path = procfs.PROC) -> dict[str, Fact]:
    """The fact "version"; nothing where its files cannot be seen, or there are none."""
    state = procfs.stat(pid, proc)
    if not engine.package or state is None:
        return {}
    version = _version(engine.package, pid, state.start_ticks, proc)
    return {TargetFact.VERSION: version} if version else {}


@lru_cache(maxsize=64)
def _version(package: str, pid: int, start_ticks: int, proc: Path) -> str:
    """Seen with the process's eyes, in its container: the folder of a package names its version (PEP 376)."""
    named = re.compile(rf"{re.escape(package)}-(\d[\w.+!]*)\.(?:dist|egg)-info\Z")
    for folder in _folders(pid, proc):
        try:
            names = foreign.sizes(pid, folder, f"{package}-*", proc)
        except OSError:
            continue
        found = next((match[1] for name in names if (match := named.match(name))), "")
        if found:
            return clean(found)
    return ""


def _folders(pid: int, proc: Path) -> list[str]:
    """Where the libraries that it has mapped are installed, in their order."""
    try:
        with Path(f"{proc}/{pid}/maps").open(encoding="utf-8", errors="replace") as lines:
            found = [match[1] for line in lines if (match := _PACKAGES.search(line))]
    except OSError:
        return []
    return list(dict.fromkeys(found))
