"""Small kernels that follow each other write and read what could stay in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels import counters
from llmtop.analysis.kernels.fusion import Chain, fusion_chains
from llmtop.analysis.kernels.programs import COMPILED, Words
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.rules import stakes
from llmtop.model import Finding, Trace
from llmtop.units import duration, percent, si

id = "fusion-chances"
summary = "Elementwise kernels, casts, copies and norms follow each other where one kernel would do."
source = (
    "DeepSeek-OCR kernel-level profiling, V2 (fusion of small elementwise kernels); Machine Learning Systems, "
    "Performance "
    "Engineering (operator fusion)"
)

_LEAST_SHARE = 0.01
"""Of the kernels' time, that all chains together must save."""
_SHOWN = 4
"""Chains with a line of their own."""
_OF_TIMES = "in each chain all but its longest kernel"
_OF_BYTES = "the traffic between them, at the rate at which they move theirs, and a start less for each"
_OF_BOTH = f"{_OF_TIMES}; where bytes were counted, {_OF_BYTES}"


_GRAPH = "what remains costs less to launch in a CUDA graph"
_OPTIMIZER = "an optimizer that works on many tensors at once (fused=True, foreach=True), zero_grad(set_to_none=True)"
_ACTION = Words(
    pytorch="fuse them: torch.compile, the engine's fused norms, rotary embeddings and activations, or quantised "
    f"kernels that cast as they load; {_GRAPH}",
    compiled=f"fuse them ({COMPILED}): the engine's fused norms, rotary embeddings and activations, or quantised "
    f"kernels that cast as they load; {_GRAPH}",
    directives="fuse the loops that they were made of into one construct, so that what is between them stays in "
    "registers",
    other=f"fuse them: one kernel that reads the inputs and writes the outputs once, casting as it loads; {_GRAPH}",
    training=Words(
        pytorch=f"fuse them: torch.compile, also of the backward pass, {_OPTIMIZER}; {_GRAPH}",
        compiled=f"fuse them ({COMPILED}): {_OPTIMIZER}; {_GRAPH}",
        other="",
    ),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for all of them: the same switch fuses most."""
    chains = fusion_chains(trace)
    saved_ns = stakes.on_each_gpu(trace, sum(chain.saved_ns for chain in chains))
    if not chains or stakes.share(trace, saved_ns) < _LEAST_SHARE:
        return
    kernels = kernels_of(trace)
    share = sum(chain.total_ns for chain in chains) / kernels.total_ns
    times = sum(chain.times for chain in chains)
    longest = max(chains[0].run, key=kernels.table.duration_ns.__getitem__)
    yield stakes.finding(
        trace,
        saved_ns,
        f"{_basis(chains)}{stakes.mean(trace)}",
        rule=id,
        subject="small kernels",
        message=f"small kernels follow each other {_often(times)}{_on(trace)}: {percent(100 * share)} of the kernels' "
        "time",
        evidence=_evidence(trace, chains),
        action=_ACTION.of(trace),
        next_command=profiling.of_launch(trace, longest, (counters.SPEED_OF_LIGHT, counters.MEMORY)),
        source=source,
    )


def _basis(chains: Sequence[Chain]) -> str:
    """What the saved time of these is computed from."""
    counted = {chain.saved_bytes is not None for chain in chains}
    return _OF_BOTH if len(counted) > 1 else _OF_BYTES if counted == {True} else _OF_TIMES


def _on(trace: Trace) -> str:
    number = stakes.gpus(trace)
    return "" if number == 1 else f" on {number} GPUs"


def _evidence(trace: Trace, chains: tuple[Chain, ...]) -> Iterator[str]:
    """Times are those of one GPU, as the stake is."""
    where, each = _on(trace), " on each" if stakes.gpus(trace) > 1 else ""
    for chain in chains[:_SHOWN]:
        total_ns, saved_ns = (stakes.on_each_gpu(trace, ns) for ns in (chain.total_ns, chain.saved_ns))
        size = None if chain.saved_bytes is None else stakes.on_each_gpu(trace, chain.saved_bytes)
        amount = "" if size is None else f", {si(size, 'B')} written and read between them"
        yield (
            f"{chain.what}: {len(chain.titles)} kernels, {_often(chain.times)}{where}, {duration(total_ns)}{each}; "
            f"fused up to {duration(saved_ns)} less{amount}"
        )
    if len(chains) > _SHOWN:
        rest_ns = stakes.on_each_gpu(trace, sum(chain.saved_ns for chain in chains[_SHOWN:]))
        rest = len(chains) - _SHOWN
        yield f"and {rest} other chain{'s' * (rest != 1)}: up to {duration(rest_ns)} less"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"
