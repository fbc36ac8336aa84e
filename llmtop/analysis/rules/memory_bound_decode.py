"""Decode waits for DRAM: the memory roof is near and the tensor cores are not."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import ROOM_IN_KV, fewer_bytes, larger_batches
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.evidence import known, says
from llmtop.analysis.rules.gpu_limits import GpuUnit, findings
from llmtop.analysis.series.readings import latest, server_track
from llmtop.model import Finding, Trace

id = "memory-bound-decode"
summary = "The GPU spends its time reading weights and KV cache; its arithmetic units wait."
source = "Recasens et al., Mind the Memory Gap (arXiv:2503.08311); Williams et al., Roofline (2009)"


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """DRAM is at its limit while the GPU works; with little arithmetic next to it that is decode."""
    yield from findings(id, source, GpuUnit.MEMORY, _name, _action(trace), _kv_evidence(trace), trace)


def _name(dram: float, tensor: float) -> str:
    return "memory-bound decode" if tensor < dram / 2 else "memory-bound"


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
