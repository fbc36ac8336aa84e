"""Kernels by the side that they lean to, whatever their level, and what those of a side have in common.

The classification and the table are those of the DeepSeek-OCR kernel study (V2): SM throughput less DRAM throughput,
above +5 points compute, below -5 memory, else balanced; means over kernels, not weighted by their time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.bounds import Bound
from llmtop.analysis.kernels.table import has_counters, kernels_of
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.analysis.kernels.table import KernelFacts
    from llmtop.model import Trace

_CLASSES = (Bound.COMPUTE, Bound.MEMORY, Bound.BALANCED)


@frozen
class KernelClass:
    """The kernels of one class.

    Attributes:
        name: "compute", "memory" or "balanced"; "all" for all of them together.
        kernels: Distinct by name, grid and block.
        share: Of all kernels' time, 0 to 1; None without times.
        cached_share: The part of it that is memory-bound while DRAM does not lead: caches or shared memory limit it.
        means: By column (`COLUMNS`), over the kernels of which it is known, each counted once, as in the study;
            without columns of which nothing is.
        by_time: The same weighted by the kernels' time, without "duration".
    """

    name: str
    kernels: int
    share: float | None
    cached_share: float
    means: Mapping[str, float]
    by_time: Mapping[str, float]


def _is_cached(facts: KernelFacts) -> bool:
    return facts.class_name is not Bound.MEMORY and facts.bound_name is Bound.MEMORY


def _compute(facts: KernelFacts) -> float | Unknown | None:
    return facts.bound if isinstance(facts.bound, Unknown) else facts.bound.compute


def _memory(facts: KernelFacts) -> float | Unknown | None:
    return facts.bound if isinstance(facts.bound, Unknown) else facts.bound.memory


def _dram(facts: KernelFacts) -> float | Unknown | None:
    return facts.bound if isinstance(facts.bound, Unknown) else facts.bound.dram


COLUMNS: Mapping[str, tuple[str, str, Callable[[KernelFacts], float | Unknown | None]]] = {
    "sm": ("SM", "%", _compute),
    "dram": ("DRAM", "%", _dram),
    "memory": ("memory", "%", _memory),
    "occupancy": ("occupancy", "%", lambda facts: facts.occupancy),
    "l1": ("L1 hits", "%", lambda facts: facts.l1_hits),
    "l2": ("L2 hits", "%", lambda facts: facts.l2_hits),
}
"""By key: title, unit, and what it is of one kernel. "duration" (ns) stands beside them."""
_DURATION = "duration"


def kernel_classes(trace: Trace) -> tuple[KernelClass, ...]:
    """The classes that have kernels, then all together; () where no kernel can be classified.

    Decodes one launch of each kernel.
    """
    if not has_counters(trace):
        return ()
    kernels = kernels_of(trace)
    members: defaultdict[str, list[tuple[KernelFacts, float, float]]] = defaultdict(list)
    for row in kernels.groups():
        facts = kernels.facts(kernels.middle(row))
        if facts.class_name in _CLASSES:
            members[str(facts.class_name)].append((facts, row.total_ns, row.mean_ns))
    found = [(str(name), members[str(name)]) for name in _CLASSES if members[str(name)]]
    everything = [one for _, several in found for one in several]
    both = (*found, ("all", everything)) if everything else ()
    return tuple(
        KernelClass(
            name,
            len(several),
            kernels.share(sum(ns for _, ns, _ in several)),
            kernels.share(sum(ns for facts, ns, _ in several if _is_cached(facts))) or 0.0,
            _means([(facts, mean_ns) for facts, _, mean_ns in several]),
            _means_by_time([(facts, total_ns) for facts, total_ns, _ in several]),
        )
        for name, several in both
    )


def _means(several: Iterable[tuple[KernelFacts, float]]) -> dict[str, float]:
    several = list(several)
    columns = {key: [of(facts) for facts, _ in several] for key, (_, _, of) in COLUMNS.items()}
    columns[_DURATION] = [ns for _, ns in several if ns == ns]
    known = {key: [value for value in values if isinstance(value, float)] for key, values in columns.items()}
    return {key: fmean(values) for key, values in known.items() if values}


def _means_by_time(several: Sequence[tuple[KernelFacts, float]]) -> dict[str, float]:
    means = {}
    for key, (_, _, of) in COLUMNS.items():
        known = [(value, ns) for facts, ns in several if isinstance(value := of(facts), float) and ns > 0]
        if known:
            values, weights = zip(*known, strict=True)
            means[key] = fmean(values, weights)
    return means
