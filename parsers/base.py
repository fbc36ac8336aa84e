"""What a file format is."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from llmtop.model import Severity

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace

HEAD_BYTES = 4096
"""How much of a file `sniff` is shown."""
_LOSS = re.compile(
    r"\b(?:lost|dropped|discarded|truncated|incomplete|corrupt\w*|overflow\w*|overr[au]n|(?:failed|error\b.*) "
    r"(?:to|while) (?:\w+ to )?profil\w+)\b|LaunchFailed",
    re.IGNORECASE,
)
_NO_LOSS = re.compile(r"\b(?:no|not|0|never|may|might|could)\b[^.;]*?$", re.IGNORECASE)
"""What stands before such a word where nothing was lost, or nobody knows."""


def complaint_severity(text: str) -> Severity:
    """How much something matters that a tool writes into a capture about itself.

    It is a remark, however the tool ranks it, unless it reports that data was lost: a feature that a machine does not
    have is an error to Nsight Systems, and costs nothing of what was captured.

    >>> complaint_severity("CUDA device 0: Unified Memory cannot be traced on devices without peer-to-peer transfers")
    <Severity.WARNING: 'warning'>
    >>> complaint_severity("1024 CUDA events were dropped."), complaint_severity("0 events were dropped")
    (<Severity.ERROR: 'error'>, <Severity.WARNING: 'warning'>)
    """
    is_lost = any(not _NO_LOSS.search(text[: match.start()]) for match in _LOSS.finditer(text))
    return Severity.ERROR if is_lost else Severity.WARNING


class Content(StrEnum):
    """What a file can hold. The value says so in docs/formats.md."""

    KERNELS = "kernels"
    TIMELINE = "a timeline"
    STACKS = "stacks"
    SERIES = "numbers over time"
    FAULTS = "what kernels failed with"
    COUNTS = "counts of events"
    CACHE_LINES = "cache lines that CPUs fight for"
    ACCESSES = "accesses to memory"
    SCHEDULING = "how long threads waited for a CPU"
    GPU = "the GPU's name"
    TOOL_VERSION = "the version of the tool"


class Parser(Protocol):
    """One file format. Formats are told by content, never by name alone."""

    name: str
    """The `Origin.kind` it produces: "ncu-rep", "nsys-sqlite" ..."""

    title: str
    """What its files are called, in the plural: "Nsight Compute reports"."""

    written_by: str
    """What writes them, in Markdown: "`ncu -o`"."""

    extensions: tuple[str, ...]
    """How its files are mostly named, with the dot, the usual one first. Only messages go by it, never `sniff`."""

    holds: frozenset[Content]
    """What every whole file of it has: the sample tests ask for that and nothing else."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether this is such a file, judged by its first `HEAD_BYTES`; a folder has none, and its files tell."""
        ...

    def parse(self, path: Path) -> Trace:
        """Read it.

        The input is opened read-only and nothing is written beside it. Damaged rows are skipped and counted as
        issues.

        Raises:
            FileError: It is not such a file after all, or it is damaged beyond use: the message says how.
        """
        ...


@runtime_checkable
class ReadsCut(Protocol):
    """A parser that reads what is whole of a file that was cut, and says of what it leaves out."""

    reads_cut: bool
    """False is as good as its absence."""


@runtime_checkable
class ReadsText(Protocol):
    """A parser of text: what no text has is damage, and is looked for once for all of them."""

    reads_text: bool
