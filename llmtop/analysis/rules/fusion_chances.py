"""Small kernels that follow each other write and read what could stay in registers."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.fusion import Chain, fusion_chains
from llmtop.analysis.kernels import kernels_of
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
_SHOWN = 4


_BASIS = "the traffic between them where bytes were counted, else the time of all but the longest of each chain"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for all of them: the same switch fuses most."""
    chains = fusion_chains(trace)
    saved_ns = stakes.on_each_gpu(trace, sum(chain.saved_ns for chain in chains))
    if not chains or stakes.share(trace, saved_ns) < _LEAST_SHARE:
        return
    kernels = kernels_of(trace)
    share = sum(chain.total_ns for chain in chains) / kernels.total_ns
    times = sum(chain.times for chain in chains)
    yield Finding(
        rule=id,
        severity=stakes.severity(trace, saved_ns),
        subject="small kernels",
        message=f"small kernels follow each other {_often(times)}: {percent(100 * share)} of the kernels' time",
        evidence=(*_evidence(chains), stakes.in_words(trace, saved_ns, _BASIS)),
        action="fuse them: torch.compile, the engine's fused norms, rotary embeddings and activations, or quantised "
        "kernels that cast as they load; what remains costs less to launch in a CUDA graph",
        source=source,
        at_stake_ns=saved_ns,
    )


def _evidence(chains: tuple[Chain, ...]) -> Iterator[str]:
    for chain in chains[:_SHOWN]:
        amount = "" if chain.saved_bytes is None else f", {si(chain.saved_bytes, 'B')} written and read between them"
        yield (
            f"{chain.what}: {len(chain.titles)} kernels, {_often(chain.times)}, {duration(chain.total_ns)}; "
            f"fused up to {duration(chain.saved_ns)} less{amount}"
        )
    if len(chains) > _SHOWN:
        rest_ns = sum(chain.saved_ns for chain in chains[_SHOWN:])
        rest = len(chains) - _SHOWN
        yield f"and {rest} other chain{'s' * (rest != 1)}: up to {duration(rest_ns)} less"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"
