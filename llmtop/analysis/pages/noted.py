"""What a user wrote of a report and of its kernels, in lines for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.kernels.table import kernels_of

if TYPE_CHECKING:
    from llmtop.model import Trace


def note_lines(trace: Trace) -> tuple[str, ...]:
    """The note of the report, and those of its kernels by what they are called."""
    kernels, notes = kernels_of(trace), trace.notes
    of_report = (f"note: {notes.report}",) if notes.report else ()
    short = dict(zip(kernels.table.names, kernels.short_names, strict=True))
    return of_report + tuple(f"note on {short[name]}: {note}" for name, note in sorted(notes.kernels.items()))
