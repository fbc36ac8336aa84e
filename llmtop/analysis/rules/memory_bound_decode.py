"""Decode waits for DRAM: the memory roof is near and the tensor cores are not."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import ROOM_IN_KV, fewer_bytes, larger_batches
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.evidence import BOUND_PERCENT, known, says
from llmtop.analysis.rules.gpu_limits import GpuLimit, findings
from llmtop.analysis.series.readings import latest, server_track
from llmtop.model import Finding, Trace

id = "memory-bound-decode"
summary = "The GPU spends its time reading weights and KV cache; its arithmetic units wait."
source = "Recasens et al., Mind the Memory Gap (arXiv:2503.08311); Williams et al., Roofline (2009)"

_STALLED_PERCENT = 45.0
"""Of SMs that hardly rest more than half of the warps' time goes into waiting for memory from here on: decode of small
models at their largest batch (OPT-1.3B) was measured at 48 % (Recasens et al., section 4)."""
_NEVER_RESTS_PERCENT = 80.0


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """DRAM at its limit while the GPU works, and tensor activity less than half of that."""
    yield from findings(id, source, _LIMIT, trace)


def _is_memory_bound(at_work: tuple[float, ...], sm_percent: float | None) -> bool:
    dram, tensor = at_work
    never_rests = sm_percent is not None and sm_percent >= _NEVER_RESTS_PERCENT
    return dram >= (_STALLED_PERCENT if never_rests else BOUND_PERCENT) and tensor < dram / 2


def _kv_usage(trace: Trace) -> float | None:
    server = server_track(trace)
    return None if server is None else known(latest(trace, server.id, v.SERVER_KV_USAGE))


def _kv_evidence(trace: Trace) -> tuple[str, ...]:
    server, usage = server_track(trace), _kv_usage(trace)
    return () if server is None or usage is None else (says(trace, server.id, v.SERVER_KV_USAGE, usage),)


def _action(trace: Trace) -> str:
    usage, fewer, more = _kv_usage(trace), fewer_bytes(trace), larger_batches(trace)
    if usage is not None and usage >= ROOM_IN_KV:
        return f"KV is nearly full, so only fewer bytes per token help: {fewer}"
    if not more:
        return f"ITL misses its objective, and larger batches would make it later still: {fewer}"
    if usage is None:
        return f"raise the batch until KV is full: {more}; or read fewer bytes per token: {fewer}"
    return f"raise the batch (KV is at {usage * 100:.0f} % only), more tokens per byte read: {more}"


_LIMIT = GpuLimit("memory-bound decode", (v.GPU_DRAM, v.GPU_TENSOR), _is_memory_bound, _action, _kv_evidence)
