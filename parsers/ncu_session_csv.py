"""What `ncu --csv --page session` prints: the command, the machine and the GPUs, without kernels.

Tables with a title above each: "Launch Settings", "Session Info", "Processes", "Device Attributes"; of the last the
columns are GPUs.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.model import Issue, Missing, Origin, Severity, Trace, Unknown, UnknownKind
from llmtop.parsers.base import Content
from llmtop.parsers.text_lines import TextLines, decoded_head
from llmtop.text import clean, redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from llmtop.model import Fact
    from llmtop.parsers.base import Parser

_HEADER = re.compile(r'"?(Launch|Session) Attribute"?,"?Value"?')
_COMMAND, _TOOL, _CREATED, _HOST = "Profiler Command Line", "Nsight Compute Target", "Created", "Target Name"
_PROCESSES, _DEVICES, _GPU = "Process Id", "Device Attribute", "display_name"
_NO_KERNELS = Missing(
    whats.KERNELS,
    Unknown(
        "the session page has no kernels",
        "print --page raw too, or open the .ncu-rep that it was printed from",
        UnknownKind.NOT_COUNTED,
    ),
)


_CUT = Issue(
    Severity.ERROR, "ncu-session-csv-cut", "parts of it are missing: it was cut short, or it is damaged; print it again"
)


class NcuSessionCsvParser:
    """Session pages that `ncu --csv` prints."""

    name = "ncu-session-csv"
    title = "printed session pages of Nsight Compute"
    written_by = "`ncu --csv --page session`"
    extensions: tuple[str, ...] = (".session.csv",)
    holds = frozenset({Content.GPU, Content.TOOL_VERSION})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """The header of one of its first two tables, below the title."""
        return any(_HEADER.match(line) for line in decoded_head(head).splitlines()[:3])

    def parse(self, path: Path) -> Trace:
        """Read the facts of a capture.

        Raises:
            FileError: It names neither the tool nor a GPU.
        """
        lines = TextLines(path)
        tables, is_whole = _tables(lines)
        told = {row[0]: row[1] for name in ("Launch Attribute", "Session Attribute") for row in tables.get(name, ())}
        devices = {row[0]: row[1:] for row in tables.get(_DEVICES, ())}
        version, gpus = told.pop(_TOOL, ""), devices.get(_GPU, [])
        if not version and not gpus:
            raise FileError(f"{path} names neither the tool nor a GPU: it was cut short; print it again")
        processes = ", ".join(f"{name} ({pid})" for pid, name, *_ in tables.get(_PROCESSES, ()))
        origin = Origin(
            self.name,
            str(path),
            tool_version=clean(version),
            gpu=clean(", ".join(gpus)),
            facts=_facts(told, processes, {name: ", ".join(values) for name, values in devices.items()}),
        )
        issues = () if is_whole and lines.is_ended and version and gpus else (_CUT,)
        return Trace(origin, issues=issues, missing=(_NO_KERNELS,))


PARSER: Final[Parser] = NcuSessionCsvParser()


def _tables(lines: Iterable[str]) -> tuple[Mapping[str, list[list[str]]], bool]:
    """The rows of each table by the name of its first column, and whether no line was left out as it is no row."""
    is_whole = True
    tables: dict[str, list[list[str]]] = {}
    rows: list[list[str]] | None = None
    for line in lines:
        row = _row(line)
        is_whole &= bool(row) or not line.strip()
        if len(row) < 2:  # a title, or the empty line before it: a header follows
            rows = None
        elif rows is None:
            rows = tables.setdefault(row[0], [])
        else:
            rows.append(row)
    return tables, is_whole


def _row(line: str) -> list[str]:
    try:
        return next(csv.reader((line,), strict=True), [])
    except csv.Error:
        return []


def _facts(told: Mapping[str, str], processes: str, devices: Mapping[str, str]) -> dict[str, Fact]:
    """For people, under the names that a report's have; secrets are hidden."""
    renamed = {_COMMAND: OriginFact.COMMAND, _CREATED: "captured", _HOST: "host"}
    facts = {renamed.get(name, name): text.strip() for name, text in told.items()}
    facts |= {"processes": processes} | {f"device {name}": text for name, text in devices.items() if name != _GPU}
    return {clean(name): clean(redact(text)) for name, text in facts.items() if text}
