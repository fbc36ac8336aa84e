"""Kernels that do nothing but change a type."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels import counters
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.family_shares import family_shares
from llmtop.analysis.kernels.fusion import chained_launches, is_chosen
from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.rules import stakes
from llmtop.model import Finding, Trace
from llmtop.units import duration, percent

id = "type-conversions"
summary = "Casts and quantisation in kernels of their own take a part of the time."
source = "DeepSeek-OCR kernel-level profiling, V2 (6 % of the time in conversions)"

_NOTABLE_SHARE = 0.03
"""Of the kernels' time, of those that stand alone. Ours."""
_SHOWN = 3
"""Kernels with a line of their own."""
_FEWEST_LAUNCHES = 10
"""With fewer a share says what was captured, not what runs."""


_AS_IT_LOADS = "or let the kernel before or after convert as it stores or loads"
_ACTION = Words(
    pytorch="keep one type from layer to layer (load weights in the type that is computed in, no fp32 between bf16 "
    f"layers), {_AS_IT_LOADS}",
    other=f"keep one type from kernel to kernel, {_AS_IT_LOADS}",
)


def check(trace: Trace) -> Iterator[Finding]:
    """Those that are no part of a chain of small kernels, which another finding is about."""
    kernels = kernels_of(trace)
    if is_chosen(trace) or len(kernels.table) < _FEWEST_LAUNCHES:
        return
    chained = chained_launches(trace)
    durations = kernels.table.duration_ns
    conversions = (
        row.launches for row in kernels.groups() if kernels.kind(row.launches[0]).family is KernelFamily.CONVERSION
    )
    alone = array(
        "q", (i for launches in conversions for i in launches if not chained[i] and durations[i] == durations[i])
    )
    alone_ns = sum(durations[i] for i in alone)
    share = kernels.share(alone_ns) or 0.0
    if share < _NOTABLE_SHARE:
        return
    longest = max(alone, key=durations.__getitem__)
    yield stakes.finding(
        trace,
        stakes.on_each_gpu(trace, alone_ns),
        f"all of their time{stakes.mean(trace)}",
        rule=id,
        subject="conversions",
        message=f"{len(alone)} kernels only change a type: {percent(100 * share)} of the kernels' time",
        evidence=_evidence(trace, alone),
        action=_ACTION.of(trace),
        next_command=profiling.of_launch(trace, longest, (counters.SPEED_OF_LIGHT, counters.MEMORY)),
        source=source,
    )


def _evidence(trace: Trace, alone: Sequence[int]) -> Iterator[str]:
    kernels = kernels_of(trace)
    spent: Counter[str] = Counter()
    for i in alone:
        spent[kernels.short_name(i)] += round(kernels.table.duration_ns[i])
    for name, ns in spent.most_common(_SHOWN):
        yield f"{name}: {duration(ns)}"
    (all_of_them,) = (one for one in family_shares(trace) if one.family is KernelFamily.CONVERSION)
    if rest := all_of_them.launches - len(alone):
        yield f"{rest} more stand in chains of small kernels, which another finding is about"
