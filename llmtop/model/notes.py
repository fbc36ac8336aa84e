"""What a user calls kernels, and what they wrote down: kept by llmtop, and in no report."""

from __future__ import annotations

from collections.abc import Mapping

from llmtop.frozen import frozen


@frozen
class Notes:
    """Names and notes, as far as they are of a trace.

    Attributes:
        names: By the full name of a kernel what it is called.
        kernels: By the full name of a kernel what was written of it.
        report: What was written of the file; empty where nothing was.
    """

    names: Mapping[str, str]
    kernels: Mapping[str, str]
    report: str


NO_NOTES = Notes({}, {}, "")
