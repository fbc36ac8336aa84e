"""Kernels of a timeline with so few blocks that most of the GPU has none, for longer than such kernels are meant to."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import prod
from typing import Final

from llmtop import ids
from llmtop.analysis.kernels.counters import LAUNCH, OCCUPANCY
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.table import dimensions, has_counters
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.facts import GpuFact
from llmtop.model import Finding, KernelTable, SpanKind, Trace, TrackId
from llmtop.units import duration

id = "idle-sms"
summary = "Kernels of a timeline that last have blocks for few of the GPU's SMs."
source = (
    "Nsight Compute, LaunchConfiguration rule (a grid of fewer blocks than multiprocessors); DeepSeek-OCR kernel-level "
    "profiling, V2 (small grids)"
)

_NOTABLE_SHARE: Final = 0.05
"""Of the kernels' time, for all of them together."""
_FILLED: Final = 0.5
"""Of the SMs: a kernel with blocks for more of them cannot become twice as fast. Ours."""
_MEANT_NS: Final = 10_000.0
"""What a launch takes on the CPU side (Machine Learning Systems: 5 to 10 µs): a shorter kernel is the last step of
another one, or prepares one, and is no slower for its few blocks than for its launch."""
_ALONE: Final = 0.9
"""Of its time: beside others a kernel need not fill the GPU."""
_WAITS: Final = re.compile(r"(?i)spin|sleep|delay|wait|barrier|signal|semaphore|notify|poll|flag")
"""Kernels that are there to pass time, by their names."""
_ACTION: Final = (
    "launch more blocks: make every iteration a thread of its own (OpenACC and OpenMP: collapse all loops of the nest, "
    "not the outermost alone; CUDA: a larger grid, fewer elements a thread), or divide sums over blocks as well "
    "(split-K, split-KV); where the work is so small, do more of it in one launch, or run it beside others on another "
    "stream"
)


def check(trace: Trace) -> Iterator[Finding]:
    """Of captures that tell how many SMs the GPU has, and how many blocks a kernel; counters tell more of each."""
    if has_counters(trace):
        return
    claims = claims_of(heavy(trace, counted=False), _claim)
    if sum(claim.judged.share for claim in claims) >= _NOTABLE_SHARE:
        yield from findings(id, source, claims, "most SMs have no block")


def _claim(judged: JudgedKernel) -> Claim | None:
    sms, blocks = _sms(judged), prod(judged.kernels.grid(judged.launch))
    is_meant = (
        judged.row.mean_ns < _MEANT_NS or judged.kind.family is KernelFamily.COMMUNICATION or _WAITS.search(judged.name)
    )
    if not sms or is_meant or not 0 < blocks <= _FILLED * sms or not _is_alone(judged):
        return None
    grid, block = (dimensions(of(judged.launch)) for of in (judged.kernels.grid, judged.kernels.block))
    return Claim(
        judged,
        f"grid {grid} of {block} threads: {sms - blocks} of the {sms} SMs have no block",
        _ACTION,
        max(0.0, (judged.row.total_ns - _MEANT_NS * judged.row.calls) * (1 - blocks / sms)),
        f"the share of the SMs without a block, of what is above {duration(_MEANT_NS)} a launch",
        sections=(LAUNCH, OCCUPANCY),
    )


def _sms(judged: JudgedKernel) -> int:
    """How many the file says that its GPU has; 0 where it does not."""
    track = judged.trace.tracks.get(_gpu(judged))
    sms = None if track is None else track.facts.get(GpuFact.SM_COUNT)
    return sms if isinstance(sms, int) else 0


def _gpu(judged: JudgedKernel) -> TrackId:
    """The GPU that it ran on; where files of several ranks are one trace, only its span tells."""
    spans = judged.trace.spans.get(SpanKind.KERNEL) if judged.trace.parts else None
    if spans is None:
        return ids.gpu(judged.kernels.table.device[judged.launch])
    return ids.gpu_of(spans.tracks[spans.track_id[judged.launch]])


def _is_alone(judged: JudgedKernel) -> bool:
    """Whether no other kernel of its GPU runs beside it for most of its time."""
    table, device = judged.kernels.table, judged.kernels.table.device[judged.launch]
    rows = sorted((i for i, own in enumerate(table.device) if own == device), key=table.start_ns.__getitem__)
    reach = array("d", accumulate(_ends(table, rows), max))
    wanted, alone_ns = set(judged.row.launches), 0.0
    for place, i in enumerate(rows):
        if i in wanted:
            after = table.start_ns[rows[place + 1]] if place + 1 < len(rows) else reach[place]
            is_clear = (place == 0 or reach[place - 1] <= table.start_ns[i]) and after >= reach[place]
            alone_ns += table.duration_ns[i] if is_clear else 0.0
    return alone_ns >= _ALONE * judged.row.total_ns


def _ends(table: KernelTable, rows: Iterable[int]) -> Iterator[float]:
    return (table.start_ns[i] + table.duration_ns[i] for i in rows)
