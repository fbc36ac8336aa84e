"""Kernels with fewer blocks than the GPU takes at once."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.gpus.models import find_gpu
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.programs import COMPILED, Words
from llmtop.analysis.kernels.table import dimensions, sm_count
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import LAUNCH_NS, SLACK, WAITING, Claim, JudgedKernel, findings, heavy
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import duration

id = "kernel-small-grid"
summary = "Kernels have fewer blocks than the GPU takes at once, so most of it idles."
source = (
    "Nsight Compute, SpeedOfLight rule (latency below 60 %, grids below one wave) and LaunchConfiguration rule; "
    "DeepSeek-OCR kernel-level profiling, V2 (small elementwise kernels)"
)

_NOTABLE_SHARE = 0.05
"""Of the kernels' time, for all of them together."""
_FLOOR_NS = 2_000.0
"""What a kernel runs that does nothing to speak of; the time at stake is what is above it (the shortest of the
DeepSeek-OCR study's kernels run 2 µs)."""
ADVICE = (
    "LaunchConfiguration",
    "SOLBottleneck",
    "AchievedOccupancy",
    "CPIStall",
    "IssueSlotUtilization",
    "HighPipeUtilization",
)
_REPLAY = "replay them as a CUDA graph so that each costs no launch"
_LARGER = "train in larger batches so that grids grow"
_FUSED = Words(
    pytorch=f"fuse them (torch.compile, fused norms and activations), batch more requests so that grids grow, and "
    f"{_REPLAY}",
    compiled=f"fuse them ({COMPILED}; fused norms and activations), batch more requests so that grids grow, and "
    f"{_REPLAY}",
    directives="fuse loops into one construct, and give each more of the work so that grids grow",
    other=f"fuse them, give each more of the work so that grids grow, and {_REPLAY}",
    training=Words(
        pytorch=f"fuse them (torch.compile, fused norms and activations), {_LARGER}, and {_REPLAY}",
        compiled=f"fuse them ({COMPILED}; fused norms and activations), {_LARGER}, and {_REPLAY}",
        other="",
    ),
)
_MATRIX = (
    "give it more to do at once: a larger batch, or an algorithm that divides the sum too (split-K, stream-K; "
    "split-KV for "
    "attention)"
)
_TILED = (
    "several blocks for each SM: a larger batch, a smaller tile where it can be chosen (CUTLASS template, autotuning, "
    "the library's heuristics), or dividing the sum too (split-K, stream-K)"
)
_SHORT = (
    f"it runs for less than the {duration(LAUNCH_NS)} or more that a launch takes, and more blocks change nothing: "
    "give one launch more work, merge it into a neighbour, or replay launches as a CUDA graph"
)
_OWN = "launch more blocks: smaller tiles, fewer elements a thread, or divide the sum over blocks as well (split-K)"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for all that are told the same: what they have in common is their number and size."""
    judged = [one for one in heavy(trace, least=0.0) if one.is_small_grid and not one.is_chained]
    if sum(one.share for one in judged) < _NOTABLE_SHARE:
        return
    claims = [_claim(one) for one in judged if not is_explained(one)]
    yield from findings(id, source, claims, "latency-bound with less than one wave of blocks")


def _claim(judged: JudgedKernel) -> Claim:
    verdict = judged.verdict
    return Claim(
        judged,
        f"latency-bound with {judged.facts.waves:.2g} waves of blocks: {_blocks(judged)}"
        + (f"; {verdict.why}" if verdict else ""),
        _action(judged),
        max(0.0, (judged.row.total_ns if _is_short(judged) else judged.slack_ns) - _FLOOR_NS * judged.row.calls),
        f"{'its time' if _is_short(judged) else SLACK}, less the {duration(_FLOOR_NS)} that the shortest kernels run",
        (),
        ("LaunchStats", "Occupancy", *(WAITING if isinstance(judged.facts.stalls, Unknown) else ())),
        ADVICE,
    )


def _blocks(judged: JudgedKernel) -> str:
    """The grid and its tile, and how many SMs it leaves without a block."""
    grid, tile = dimensions(judged.kernels.grid(judged.launch)), judged.kind.tile
    blocks, sms = judged.counter(c.GRID_SIZE), sm_count(judged.metrics, find_gpu(judged.kernels.gpu))
    of_tile = f" (tile {tile})" if tile else ""
    if blocks is None or not sms or blocks >= sms:
        return f"grid {grid}{of_tile}"
    return f"grid {grid}{of_tile}, {sms - blocks:.0f} of {sms:.0f} SMs have none"


def _is_short(judged: JudgedKernel) -> bool:
    return judged.row.mean_ns < LAUNCH_NS


def _action(judged: JudgedKernel) -> str:
    kind = judged.kind
    if _is_short(judged):
        return _SHORT
    if kind.is_small_step or kind.family in (KernelFamily.REDUCTION, KernelFamily.ROUTING):
        return _FUSED.of(judged.trace)
    if kind.family is KernelFamily.GEMM and kind.tile:
        return _TILED
    if kind.library or kind.family is KernelFamily.ATTENTION:
        return _MATRIX
    return _OWN
