"""Compiled programs: those that llmtop brings along, and those made here and kept in the user's cache folder.

One is taken where it was made of the same sources, and where this kernel hands out the same fields of its tracepoints
at the same places. From the cache only what this user alone can have written is taken: it runs in the kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import pwd
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ...helper.system import read, tracefs

Unit: TypeAlias = Mapping[str, Any]
"""{"maps": {name: [kind, key size, value size, capacity, flags]}, "functions": {name: {"code": hex, "maps": [[place,
name of the map]]}}, "layouts": as in `Request`}."""
HERE = Path(__file__).resolve().parent.parent
STUBS = HERE / "stub"
SHIPPED = HERE / "compiled"
"""By machine; `scripts/compile-probes` makes them."""
_CACHE = "XDG_CACHE_HOME"
_KEPT = 32
"""So many files; the oldest go first."""
_FUNCTION = re.compile(r"struct tracepoint__(\w+?)__(\w+) \*args\)(.*?)^}", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class CompileRequest:
    """A program that is to be compiled."""

    name: str
    text: str
    flags: tuple[str, ...]

    @cached_property
    def key(self) -> str:
        """Names what will be made of it: by all that it is made of."""
        headers = [path.read_text() for path in sorted(STUBS.rglob("*.h"))]
        parts = [self.name, self.text, *self.flags, *headers]
        return f"{self.name}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}"

    @cached_property
    def layouts(self) -> dict[str, list[int]]:
        """Where this kernel has the fields of tracepoints that it reads, and their sizes, by event and field."""
        return dict(self._layouts())

    def _layouts(self) -> Iterator[tuple[str, list[int]]]:
        for group, event, body in _FUNCTION.findall(self.text):
            told = read(f"{tracefs()}/events/{group}/{event}/format")
            for field in set(re.findall(r"args->(\w+)", body)):
                found = re.search(rf"\b{field}(?:\[\w*\])?;\s*offset:(\d+);\s*size:(\d+);", told)
                yield f"{event}.{field}", [int(found.group(1)), int(found.group(2))] if found else []

    def as_told(self) -> dict[str, Any]:
        """For the compiler."""
        return {"name": self.name, "text": self.text, "flags": self.flags}


def known(request: CompileRequest) -> Unit | None:
    """What was made of it before; None where nothing is known that is for this kernel and that nobody else wrote."""
    shipped = SHIPPED / platform.machine() / f"{request.key}.json"
    try:
        kept = _folder() / shipped.name
        path = shipped if shipped.exists() or not (_is_ours(kept.parent) and _is_ours(kept)) else kept
        unit = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return unit if isinstance(unit, dict) and unit.get("layouts") == request.layouts else None


def keep(request: CompileRequest, unit: Unit) -> bool:
    """Keep it for the next time; false where there is no place for it, which costs only time then."""
    folder = _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder):
            return False
        write(folder, request, unit)
        for old in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime)[:-_KEPT]:
            old.unlink()
    except OSError:
        return False
    return True


def write(folder: Path, request: CompileRequest, unit: Unit) -> None:
    """Write it down, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    draft = folder / f"{request.key}.{os.getpid()}"
    text = json.dumps({**unit, "layouts": request.layouts}, separators=(",", ":"), sort_keys=True)
    draft.write_text(f"{text}\n", encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(folder / f"{request.key}.json")


def _folder() -> Path:
    chosen = os.environ.get(_CACHE, "")
    home = Path(chosen) if chosen.startswith("/") else Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".cache"
    return home / "llmtop" / "probes"


def _is_ours(path: Path) -> bool:
    """Whether nobody else can have written it.

    Raises:
        OSError: It is not there.
    """
    found = path.lstat()
    return (
        found.st_uid == os.geteuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and not stat.S_ISLNK(found.st_mode)
    )
