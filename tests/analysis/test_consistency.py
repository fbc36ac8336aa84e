"""No two findings of one file contradict each other, nor what the file holds: asked in `test_every_sample`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from llmtop import whats
from llmtop.analysis.gpus.capability import capability_of
from llmtop.analysis.kernels.architecture import tensor_types_used
from llmtop.analysis.kernels.programs import is_compiled
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.timeline.account import idle_account
from llmtop.capability import FIRST_OF
from llmtop.facts import OriginFact
from llmtop.model import API_CALLS, Finding, Origin, Severity, SpanKind, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def contradictions(trace: Trace, findings: Sequence[Finding]) -> Iterator[str]:
    """Sentences that cannot all be true."""
    yield from _two_limits(trace, findings)
    yield from _too_much_idle(trace, findings)
    yield from _nothing_and_something(trace)
    yield from _lacking_features(trace, findings)
    yield from _applied_remedies(trace, findings)
    for one in findings:
        shares = [float(share) for share in re.findall(r"(\d+(?:\.\d+)?) % of (?:the|its)", one.message)]
        yield from (f"{one.rule}: {share} %" for share in shares if share > 100)


LIMITS = {
    "kernel-memory-roof": "memory",
    "kernel-fits-l2": "memory",
    "kernel-compute-bound": "compute",
    "kernel-enough-warps": "compute",
    "kernel-small-grid": "latency",
    "kernel-latency-unknown": "latency",
    "kernel-low-occupancy": "latency",
    "kernel-memory-latency": "latency",
    "kernel-waits": "latency",
}
"""What rules say that a kernel is limited by."""


def _two_limits(trace: Trace, findings: Sequence[Finding]) -> Iterator[str]:
    """One kernel is bound by one thing; of kernels of one name with several grids nothing is compared."""
    limits: defaultdict[str, set[str]] = defaultdict(set)
    for one in findings:
        for name in one.parts or (one.subject,):
            if one.rule in LIMITS:
                limits[name].add(LIMITS[one.rule])
    if any(len(several) > 1 for several in limits.values()):
        kernels = kernels_of(trace)
        rows = Counter(kernels.short_name(row.launches[0]) for row in kernels.groups())
        yield from (
            f"{name} is bound by {sorted(several)}"
            for name, several in limits.items()
            if len(several) > 1 and rows[name] == 1
        )


def _too_much_idle(trace: Trace, findings: Sequence[Finding]) -> Iterator[str]:
    """Idle time is told once: together findings have no more of it than there is."""
    if not any(one.idle for one in findings):
        return
    told: Counter[str] = Counter()
    for one in findings:
        if one.idle and (found := re.search(r"idle (\d+(?:\.\d+)?) % of the capture", one.message)):
            told[one.idle.gpu] += float(found[1])  # type: ignore[assignment]
    for gpu in idle_account(trace).gpus:
        idle = 100 * gpu.idle_ns / max(1, gpu.end_ns - gpu.start_ns)
        if told[gpu.gpu] > idle + 2.0:  # each is rounded
            yield f"{gpu.gpu} idles {told[gpu.gpu]:.0f} % by its findings, and {idle:.0f} % by its account"


def _nothing_and_something(trace: Trace) -> Iterator[str]:
    has_kernels = trace.kernels is not None and len(trace.kernels) > 0
    there = {
        whats.KERNELS: has_kernels,
        whats.CUDA_CALLS: any(kind in trace.spans for kind in API_CALLS),
        whats.NVTX: SpanKind.NVTX in trace.spans,
        whats.OS_CALLS: SpanKind.OS in trace.spans,
    }
    for what, is_there in there.items():
        if is_there and (why := trace.why_missing(what)) is not None:
            yield f"{what} are there, and missing: {why}"


SINCE = {
    r"programmatic dependent launch|wgmma|FlashAttention-3": FIRST_OF["Hopper"],
    r"FlashAttention(?!-3)": FIRST_OF["Ampere"],
}
"""Words of advice, and the first compute capability that has what they name."""


def _lacking_features(trace: Trace, findings: Sequence[Finding]) -> Iterator[str]:
    types, capability = tensor_types_used(trace), capability_of(trace)
    for one in findings:
        named = {word.lower() for word in re.findall(r"\b(?:tf32|bf16|fp8|fp4)\b", one.action, re.IGNORECASE)}
        if types is not None and named - types:
            yield f"{one.rule} advises {sorted(named - types)}, and the GPU has {sorted(types)}"
        for words, since in SINCE.items():
            if capability is not None and capability < since and re.search(words, one.action):
                yield f"{one.rule} advises {words!r} below {since}"


def _has_call(part: str) -> Callable[[Trace], bool]:
    return lambda trace: any(
        part in name for kind in API_CALLS if kind in trace.spans for name in trace.spans[kind].names
    )


APPLIED: Mapping[str, Callable[[Trace], bool]] = {
    r"\((?:[^()]*[ ,])?torch\.compile[,)]": is_compiled,
    r"\(cudaMemPrefetchAsync\)": _has_call("MemPrefetch"),
    r"\(cudaMemAdvise\)": _has_call("MemAdvise"),
    r"expandable_segments": lambda trace: "expandable" in str(trace.origin.facts.get("PYTORCH_CUDA_ALLOC_CONF")),
    r"CUDA_MODULE_LOADING=EAGER": lambda trace: trace.origin.facts.get("CUDA_MODULE_LOADING") == "EAGER",
    r"add --trace=cuda\b": lambda trace: any(kind in trace.spans for kind in API_CALLS),
    r"with_stack=True": lambda trace: SpanKind.PYTHON in trace.spans,
    r"record_shapes=True": lambda trace: "record_shapes" in str(trace.origin.facts.get("recorded with")),
    r"perf record -g": lambda trace: bool(trace.stacks),
}
"""Remedies, and whether a capture shows that they were taken."""


def _applied_remedies(trace: Trace, findings: Sequence[Finding]) -> Iterator[str]:
    said = [(one.rule, one.action) for one in findings]
    said += [(str(one.what), one.why.remedy) for one in trace.missing]
    for who, remedy in said:
        for words, is_applied in APPLIED.items():
            if re.search(words, remedy) and is_applied(trace):
                yield f"{who} advises {words!r}, which was done: {remedy}"


# -- that each of these can fail --------------------------------------------------------------------------------------


def _finding(rule: str, action: str = "", subject: str = "gemm", message: str = "") -> Finding:
    return Finding(rule, Severity.INFO, subject, message, (), action)


TURING = Trace(Origin("kineto", gpu="Tesla T4", facts={OriginFact.COMPUTE_CAPABILITY: "7.5"}))


@pytest.mark.parametrize(
    "finding",
    [
        _finding("a", "use tf32"),
        _finding("a", "quantise the weights (FP8, INT4)"),
        _finding("a", "programmatic dependent launch hides it"),
        _finding("a", message="idle 120 % of the capture"),
    ],
)
def test_a_contradiction_is_seen(finding: Finding) -> None:
    assert list(contradictions(TURING, [finding]))
    assert not list(contradictions(TURING, [_finding("a", "run it in fp16")]))
