"""Names and notes that a user gave kernels and reports: in one file of llmtop's own state, never in or beside a report.

Kernels are known by their full names, in whichever report they are; reports by a digest, wherever they lie. The file is
read anew before each change, so that two explorers keep each other's, and what llmtop does not know in it stays.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from llmtop.errors import FileError
from llmtop.files import own_folder, read_own, write_whole
from llmtop.model import NO_NOTES, Issue, Notes, Severity
from llmtop.state import state_folder
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from llmtop.model import Trace

SCHEMA = "llmtop.notes/1"
LONGEST = 400
"""Letters of a name or a note: what has room in a few lines. Ours."""
_READ = 1 << 20
"""Bytes of the beginning, and of the end, that tell a report from others beside its size: all may take seconds."""


class NoteKind(StrEnum):
    """What is kept: the key of its table in the file."""

    NAME = "names"
    KERNEL = "kernels"
    REPORT = "reports"


def digest_of(path: Path) -> str:
    """What a report is known by: of its size, its beginning and its end; empty where it is no file that can be read."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.blake2b(f"{size} ".encode() + file.read(_READ), digest_size=16)
            file.seek(max(0, size - _READ))
            digest.update(file.read(_READ))
    except OSError:
        return ""
    return digest.hexdigest()


def noted(trace: Trace, digest: str = "") -> Trace:
    """The trace with what is kept of its kernels and of it; a file that cannot be read is an issue, and stays as it is.

    Args:
        trace: A report, with earlier names and notes or without.
        digest: Its file's; empty where it has none.
    """
    try:
        kept = _tables(_document())
    except FileError as error:
        issue = Issue(Severity.WARNING, "notes", str(error))
        return trace if issue in trace.issues else replace(trace, issues=(*trace.issues, issue))
    if not any(kept.values()) and trace.notes is NO_NOTES:
        return trace
    own = frozenset(() if trace.kernels is None else trace.kernels.names)
    names, kernels = ({one: kept[kind][one] for one in own & kept[kind].keys()} for kind in _OF_KERNELS)
    return replace(trace, notes=Notes(names, kernels, kept[NoteKind.REPORT].get(digest, "")))


_OF_KERNELS = (NoteKind.NAME, NoteKind.KERNEL)


def keep(kind: NoteKind, key: str, text: str) -> None:
    """Keep a name or a note; an empty one is taken out.

    Args:
        kind: What it is.
        key: The kernel's full name, or the report's digest.
        text: What the user typed.

    Raises:
        FileError: The file is not one of llmtop's: nothing of it is touched.
        OSError: It cannot be written; what was kept before is still there.
    """
    document = _document()
    _tables(document)
    said = clean(text).strip()[:LONGEST]
    table = document.setdefault(kind, {})
    if said:
        table[key] = said
    else:
        table.pop(key, None)
    _write({"schema": SCHEMA, **document})


def _file() -> Path:
    return state_folder() / "notes.json"


def _document() -> dict[str, Any]:
    """What is in the file; nothing where there is none.

    Raises:
        FileError: It cannot be read, or is not one of llmtop's.
    """
    file = _file()
    try:
        document = json.loads(read_own(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"names and notes are not read: {file}: {clean(str(error))}; {_AWAY}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise FileError(f"names and notes are not read: {file} is not of this version of llmtop ({SCHEMA}); {_AWAY}")
    return document


_AWAY = "it is left as it is: mend it, or move it away to begin anew"


def _tables(document: Mapping[str, Any]) -> dict[NoteKind, dict[str, str]]:
    """What is kept, each text clean.

    Raises:
        FileError: A table is none.
    """
    found: dict[NoteKind, dict[str, str]] = {}
    for kind in NoteKind:
        table = document.get(kind, {})
        if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
            raise FileError(f'names and notes are not read: "{kind}" in {_file()} is no table of texts; {_AWAY}')
        found[kind] = {key: clean(text)[:LONGEST] for key, text in table.items()}
    return found


def _write(document: Mapping[str, Any]) -> None:
    """In place of the file before at once: a full disk, or a kill, leaves that as it was."""
    file = _file()
    own_folder(file.parent)
    write_whole({file: json.dumps(document, indent=1, ensure_ascii=False) + "\n"})
