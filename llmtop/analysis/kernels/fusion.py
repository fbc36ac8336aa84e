"""Small kernels that follow each other on a stream, and what one kernel in their place would save.

Between two of them the result of the first is written and read again by the second. Fused, that stays in registers:
the fused kernel reads the inputs and writes the outputs once.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.counters import number
from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.analysis.kernels.table import has_counters, kernels_of
from llmtop.columns import alike, in_order, narrow, picked
from llmtop.facts import OriginFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S

if TYPE_CHECKING:
    from llmtop.analysis.kernels.family import KernelKind
    from llmtop.analysis.kernels.table import Kernels
    from llmtop.model import Trace

_STEPS = frozenset(
    {KernelFamily.ELEMENTWISE, KernelFamily.NORM, KernelFamily.CONVERSION, KernelFamily.COPY, KernelFamily.REDUCTION}
)
_FUSIBLE_REDUCTIONS = ("reduce mean", "reduce sum", "reduce max", "reduce welford", "reduce norm")
_SECTOR_BYTES = 32
_STEPS_SHOWN = 4
"""Kernels of a chain that are named; of more the first two and the last."""
_PARTS = (
    ("RMSNorm in parts", ("pow", "mean", "rsqrt")),
    ("LayerNorm in parts", ("mean", "rsqrt", "sub")),
    ("rotary embedding in parts", ("neg", "cat")),
    ("gated activation in parts", ("silu", "mul")),
    ("gated activation in parts", ("gelu", "mul")),
)
"""What chains of such steps are known as: PyTorch models write them out where no fused kernel is used."""


@frozen
class Chain:
    """Kernels that follow each other, wherever the same ones do.

    Attributes:
        what: What it is known as, or its first and last steps; no two chains have one name.
        titles: What the kernels are called, in order.
        times: How often they follow each other so.
        run: The launches of its first time; of the kernels that it names.
        launches: All of their launches, for whoever counts what is in a chain.
        total_ns: Their time.
        saved_ns: At most: all but the longest of each time, or the traffic between them where it was counted.
        saved_bytes: Written and read again between them; None where bytes were not counted.
    """

    what: str
    titles: tuple[str, ...]
    times: int
    run: tuple[int, ...]
    launches: array[int]
    total_ns: float
    saved_ns: float
    saved_bytes: float | None


@lru_cache(maxsize=8)
def fusion_chains(trace: Trace) -> tuple[Chain, ...]:
    """All chains of two and more steps, the one that would save most first.

    A report of chosen kernels does not tell what ran between them: it has no chains.
    """
    kernels = kernels_of(trace)
    if is_chosen(trace):
        return ()
    found: defaultdict[tuple[int, ...], array[int]] = defaultdict(lambda: array("q"))
    for stream in _streams(kernels):
        for run in _runs(kernels, stream):
            found[tuple(kernels.table.name_id[i] for i in run)].extend(run)
    chains = sorted((_chain(kernels, *each) for each in found.items()), key=lambda chain: -chain.saved_ns)
    return tuple(_told_apart(kernels, chains))


def _called(titles: Sequence[str]) -> str:
    words = " ".join(titles)
    known = next((title for title, steps in _PARTS if all(step in words for step in steps)), "")
    runs = [(title, len(list(same))) for title, same in groupby(titles)]
    steps = [title if times == 1 else f"{title} x {times}" for title, times in runs]
    return known or " → ".join(steps if len(steps) <= _STEPS_SHOWN else (*steps[:2], "…", steps[-1]))


def _told_apart(kernels: Kernels, chains: Sequence[Chain]) -> Iterator[Chain]:
    """Chains of one name each with a kernel that none of the others has; where there is none, counted."""
    alike: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
    steps = [tuple(dict.fromkeys(kernels.short_name(i) for i in chain.run)) for chain in chains]
    for chain, names in zip(chains, steps, strict=True):
        alike[chain.what].append(frozenset(names))
    seen: Counter[str] = Counter()
    for chain, names in zip(chains, steps, strict=True):
        same = alike[chain.what]
        seen[chain.what] += 1
        own = next((name for name in names if sum(name in other for other in same) == 1), "")
        mark = f", with {own}" if own else f", variant {seen[chain.what]}"
        yield chain if len(same) == 1 else replace(chain, what=f"{chain.what}{mark}")


@lru_cache(maxsize=8)
def chained_launches(trace: Trace) -> bytes:
    """For each launch 1 where it is a step of a chain, and 0 where it stands alone."""
    are_steps = bytearray(len(kernels_of(trace).table))
    for chain in fusion_chains(trace):
        for i in chain.launches:
            are_steps[i] = 1
    return bytes(are_steps)


def is_chosen(trace: Trace) -> bool:
    """Whether a report has only kernels that were chosen by name: what ran between them, and how often, is not told."""
    command = trace.origin.facts.get(OriginFact.COMMAND, "")
    options = ("--kernel-name", "--kernel-regex", "--kernel-id", " -k ")
    return has_counters(trace) and isinstance(command, str) and any(option in command for option in options)


def _streams(kernels: Kernels) -> Iterator[array[int]]:
    """Launches by device and stream, in the order in which they ran (of a report: were captured)."""
    table = kernels.table
    for launches in alike([table.device, table.stream]) if len(table) else ():
        yield in_order([picked(table.start_ns, launches), launches])[1]  # -1 of all keeps the order of capture


def _runs(kernels: Kernels, launches: Sequence[int]) -> Iterator[list[int]]:
    are_steps, name_ids = [is_step(kernel_kind(name)) for name in kernels.table.names], kernels.table.name_id
    run: list[int] = []
    for i in launches:
        if are_steps[name_ids[i]]:
            run.append(i)
            continue
        if _is_chain(kernels, run):
            yield run
        run = []
    if _is_chain(kernels, run):
        yield run


def _is_chain(kernels: Kernels, run: Sequence[int]) -> bool:
    """Whether one kernel could take the place of the run: not of the same one again, nor of what only moves data."""
    different = {kernels.table.name_id[i] for i in run}
    return len(different) > 1 and any(kernels.kind(i).family is not KernelFamily.COPY for i in run)


def is_step(kind: KernelKind) -> bool:
    """Whether a kernel does a little to each element, or sums over rows, and so can be a part of another."""
    if kind.family is KernelFamily.REDUCTION:
        return kind.title.startswith(_FUSIBLE_REDUCTIONS)
    return kind.family in _STEPS


def _chain(kernels: Kernels, names: Sequence[int], launches: array[int]) -> Chain:
    """The runs of kernels of these names, whose launches follow one run after the other."""
    durations, total_ns, saved_ns = kernels.table.duration_ns, 0.0, 0.0
    saved_bytes: float | None = 0.0
    for begin in range(0, len(launches), len(names)):
        run = launches[begin : begin + len(names)]
        known = [ns for i in run if (ns := durations[i]) == ns]
        between = _bytes_between(kernels, run)
        total_ns += sum(known)
        at_most_ns = math.inf if between is None else _time_between(kernels, run, between)
        saved_ns += min(sum(known) - max(known, default=0.0), at_most_ns)
        saved_bytes = None if saved_bytes is None or between is None else saved_bytes + between
    first = launches[: len(names)]
    titles = tuple(kernels.kind(i).title or kernels.table.functions[name] for i, name in zip(first, names, strict=True))
    return Chain(
        what=_called(titles),
        titles=titles,
        times=len(launches) // len(names),
        run=tuple(first),
        launches=narrow(launches),
        total_ns=total_ns,
        saved_ns=saved_ns,
        saved_bytes=saved_bytes,
    )


def _bytes_between(kernels: Kernels, run: Sequence[int]) -> float | None:
    """Of each pair, what the first stores and the second loads at most, once each way."""
    if kernels.table.details is None:
        return None
    moved = [(_moved(kernels, i, "st"), _moved(kernels, i, "ld")) for i in run]
    both = [(before[0], after[1]) for before, after in pairwise(moved)]
    pairs = [2 * min(stored, loaded) for stored, loaded in both if stored is not None and loaded is not None]
    return sum(pairs) if len(pairs) == len(both) else None


def _moved(kernels: Kernels, i: int, operation: str) -> float | None:
    sectors = number(kernels.metrics(i), f"l1tex__t_sectors_pipe_lsu_mem_global_op_{operation}.sum")
    return None if sectors is None else _SECTOR_BYTES * sectors


def _time_between(kernels: Kernels, run: Sequence[int], amount: float) -> float:
    """How long that takes at the rate at which they move all that they do; a kernel less each time costs no start."""
    loaded_and_stored = sum((_moved(kernels, i, "st") or 0.0) + (_moved(kernels, i, "ld") or 0.0) for i in run)
    ns = sum(kernels.table.duration_ns[i] for i in run)
    rate = loaded_and_stored / ns * NS_PER_S if ns else 0.0
    starts_ns = (len(run) - 1) * SHORTEST_NS
    return starts_ns + (amount / rate * NS_PER_S if rate else 0.0)


SHORTEST_NS = 2_000.0
"""What a kernel takes that does next to nothing: the shortest of the DeepSeek-OCR study (V2)."""
