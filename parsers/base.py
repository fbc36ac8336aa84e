"""What a file format is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace

HEAD_BYTES = 4096
"""How much of a file `sniff` is shown."""


class Parser(Protocol):
    """One file format. Formats are told by content, never by name alone."""

    name: str
    """The `Origin.kind` it produces: "ncu-rep", "nsys-sqlite" ..."""

    priority: int
    """Lower sniffs first; unique over all parsers."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether this is such a file, judged by its first `HEAD_BYTES`."""
        ...

    def parse(self, path: Path) -> Trace:
        """Read it.

        The input is opened read-only and nothing is written beside it. Damaged rows are skipped and counted as
        issues.

        Raises:
            FileError: It is not such a file after all, or it is damaged beyond use: the message says how.
        """
        ...
