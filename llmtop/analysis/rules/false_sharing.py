"""CPUs fight for a cache line on which one reads what the other does not write: padding would end it."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.threads.cache_lines import SharedLine, Sharing, code_of, line_rows
from llmtop.model import Finding, LineAccess, Severity, Trace, Unknown
from llmtop.units import count, percent

id = "false-sharing"
summary = "Threads wait for a cache line that others write, though they use another part of it."
source = "Profiling guide, table 10 (false sharing: shared counters and flags across threads); perf-c2c(1)"

_FELT = 0.01
"""Share of all sampled loads: perf samples those that take long (30 cycles and more), of which few others come near
what a copy from another core takes. Ours."""
_FEW = 20
"""Sampled loads of which nothing can be concluded: a share of fewer is 20 % off and more (Poisson)."""
_MOST = 5
"""Lines that are told."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each such line, as many as anybody mends at once."""
    rows = line_rows(trace)
    falsely = [] if isinstance(rows, Unknown) else [row for row in rows if _is_felt(row)]
    for row in falsely[:_MOST]:
        if row.reader is not None and row.writer is not None:
            yield _finding(row, row.reader, row.writer)


def _is_felt(row: SharedLine) -> bool:
    if row.sharing is not Sharing.FALSE or isinstance(row.waiting_share, Unknown):
        return False
    return row.line.hitm >= _FEW and row.waiting_share >= _FELT


def _finding(row: SharedLine, reader: LineAccess, writer: LineAccess) -> Finding:
    line = row.line
    share = "" if isinstance(row.waiting_share, Unknown) else f" ({percent(100 * row.waiting_share)} of all)"
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=code_of(reader),
        message=f"{code_of(reader)} waits for a cache line that {code_of(writer)} writes elsewhere: {count(line.hitm)} "
        f"sampled loads{share}",
        evidence=(
            f"line {line.address}: read at {_place(reader)}, written at {_place(writer)} (perf c2c)",
            f"loads that met a modified copy: {count(line.hitm_local)} in a cache of the same socket, "
            f"{count(line.hitm_remote)} in one of another",
        ),
        action="put them on lines of their own (alignas(64), padding), or let each thread have its own and add them up",
        next_command="sudo perf c2c record -a -- sleep 5 && sudo perf c2c report --stdio --coalesce tid,iaddr",
        source=source,
    )


def _place(access: LineAccess) -> str:
    where = f", {access.place}" if access.place else ""
    return f"+{access.offset:#x} by {code_of(access)} ({access.object}{where}; {access.cpus} CPUs)"
