"""Prefill and decode of language models, step by step: by the names of ranges, or by kernels that can do one alone."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.analysis.timeline.ranges import Range, ranges_by_thread
from llmtop.analysis.timeline.steps import StepPhase, phase_of_name, together
from llmtop.model import SpanKind, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.timeline.ranges import TimeWindow
    from llmtop.model import Trace, TrackId

_DECODES = re.compile(
    r"paged_attention_v[12]|(?:Batch|Single)Decode|decode_(?:att|grouped_att)|fwd_grouped_kernel_stage|"
    r"masked_multihead|\bmmha|\bxqa|kernel_mha|flash_fwd_(?:splitkv_)?mla|fwd_kvcache",
    re.IGNORECASE,
)
"""Attention kernels that take one new token of each request (vLLM's paged attention, FlashInfer's and SGLang's decode,
TensorRT-LLM's masked multi-head attention and XQA, FlashMLA). One that takes any number may do either."""
_PREFILLS = re.compile(r"SinglePrefill|PrefillWithRagged|context_att|extend_att|fwd_extend", re.IGNORECASE)
"""Those that are for prompts alone."""
NOT_TOLD = Unknown(
    "no range says prefill or decode, and its attention kernels can do either",
    "mark both with ranges that say so: torch.cuda.nvtx.range, for PyTorch's profiler record_function",
)
NO_ATTENTION = Unknown("no range says prefill or decode, and it has no attention kernel that is known by its name")


def step_phases(trace: Trace, windows: Sequence[TimeWindow]) -> list[StepPhase | Unknown]:
    """What each step does; why it is not told where nothing shows it."""
    named = _named(trace)
    begun = _attention(trace)
    return [_of_names(one, named.get(one.thread, ())) or _of_kernels(one, begun) for one in windows]


def _named(trace: Trace) -> Mapping[TrackId, Sequence[tuple[Range, StepPhase]]]:
    """Ranges that say it, by thread."""
    return {
        thread: [(one, phase) for one in ranges if (phase := phase_of_name(one.name)) is not None]
        for thread, ranges in ranges_by_thread(trace).items()
    }


def _of_names(window: TimeWindow, named: Sequence[tuple[Range, StepPhase]]) -> StepPhase | None:
    """By the name of the step, else by those of the ranges within it or around it."""
    start, end = window.cpu_start_ns, window.cpu_end_ns
    return phase_of_name(window.name) or together(
        phase for one, phase in named if one.start_ns < end and one.end_ns > start
    )


def _attention(trace: Trace) -> Mapping[tuple[TrackId, StepPhase | None], array[int]]:
    """When attention kernels began, by GPU and what they can do alone."""
    begun: dict[tuple[TrackId, StepPhase | None], array[int]] = defaultdict(lambda: array("q"))
    spans = trace.spans.get(SpanKind.KERNEL)
    if spans is None:
        return begun
    kinds = {i: _kind(name) for i, name in enumerate(spans.names) if kernel_kind(name).family is KernelFamily.ATTENTION}
    for start, name, track in zip(spans.start_ns, spans.name_id, spans.track_id, strict=True):
        if name in kinds:
            begun[ids.gpu_of(spans.tracks[track]), kinds[name]].append(start)
    return begun


def _kind(name: str) -> StepPhase | None:
    return StepPhase.DECODE if _DECODES.search(name) else StepPhase.PREFILL if _PREFILLS.search(name) else None


def _of_kernels(
    window: TimeWindow, begun: Mapping[tuple[TrackId, StepPhase | None], array[int]]
) -> StepPhase | Unknown:
    """Only of a step whose every kind of attention kernel can do one alone, or that has both."""
    there = {
        kind
        for (gpu, kind), starts in begun.items()
        if gpu in window.gpus and bisect_left(starts, window.end_ns) > bisect_left(starts, window.start_ns)
    }
    if not there:
        return NO_ATTENTION
    sure = {kind for kind in there if kind is not None}
    return (together(sure) if None not in there else None) or NOT_TOLD
