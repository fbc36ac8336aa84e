"""Commands that count what kernels of a timeline do: of those that a profiler can run again by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.analysis.kernels.shown import not_shown
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import KernelTable, Trace

MEETS_OTHERS = (
    "it meets kernels of other GPUs, which come once, while a profiler of counters runs it by itself, once for each "
    "pass: it hangs, or what it waits is counted (ncu --replay-mode application and range help only where all ranks "
    "are profiled alike)"
)
"""Why there is no command for a kernel that communicates.

Nsight Compute, Kernel Profiling Guide (Replay, on mandatory concurrent kernels); ROCm Compute Profiler, Profile mode
(kernels are run one after another).
"""


def of_launch(trace: Trace, launch: int, sections: Iterable[str]) -> tuple[str, str]:
    """The command that collects sections of one launch, if it lacks any of them; else none, and why where it is ours.

    Args:
        trace: A capture with kernels.
        launch: The launch's number in it.
        sections: Names of Nsight Compute's sections.
    """
    table = trace.kernels
    if table is not None and _meets_others(trace, table.name(launch)):
        return "", MEETS_OTHERS
    return profiling.of_launch(trace, launch, sections), ""


def of_heaviest(trace: Trace) -> tuple[str, str]:
    """The command that counts the first launch of the kernel that takes most of a timeline's time; or why none does."""
    table = trace.kernels
    if table is None or not len(table):
        return "", "the capture has no kernels"
    total = _totals(trace, table)
    if not total:
        return "", MEETS_OTHERS
    return profiling.of_function(trace, table.functions[max(total, key=total.__getitem__)]), ""


def not_counted(trace: Trace) -> Unknown | None:
    """Why nothing was counted of kernels, with the command that counts the heaviest one; None where it was."""
    if (why := no_kernels(trace)) is not None:
        return why
    if trace.kernels is not None and trace.kernels.details is not None:
        return None
    command, no_command = of_heaviest(trace)
    return Unknown(f"this capture has no counters of its kernels{f': {no_command}' if no_command else ''}", command)


def not_collected(trace: Trace, launch: int, what: str, *sections: str) -> Unknown:
    """Why something of a launch is not known that sections bring, with the command that collects them.

    Of a page that does not show what was collected, with what does.
    """
    if (why := not_shown(trace, launch, sections)) is not None:
        return replace(why, reason=f"{what.rstrip(',')}: {why.reason}")
    command, no_command = of_launch(trace, launch, sections)
    return Unknown(f"{what} not collected{f': {no_command}' if no_command else ''}", command)


def _totals(trace: Trace, table: KernelTable) -> dict[int, float]:
    """The time of each name whose kernels can be run again, by its number."""
    total = {i: 0.0 for i, name in enumerate(table.names) if not _meets_others(trace, name)}
    for name, ns in zip(table.name_id, table.duration_ns, strict=True):
        if name in total:
            total[name] += ns
    return total


def _meets_others(trace: Trace, name: str) -> bool:
    """Whether it waits for other GPUs; of a report with counters it was run again, and came to its end."""
    return not trace.origin.is_ncu and kernel_kind(name).family is KernelFamily.COMMUNICATION
