"""What the spans of a timeline are called inside their bars, and the colours of their kinds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.analysis.kernels.names import kernel_label
from llmtop.analysis.timeline.causes import PALETTE, TITLES, Cause, cause_of_call, cause_of_os_call
from llmtop.analysis.timeline.rows import kind_of, kind_title
from llmtop.model import SpanKind
from llmtop.tui.render.lines import width_of
from llmtop.tui.render.look import STALLS, Look

_COPY = ("stall5", "copy")
_FAMILIES = {
    KernelFamily.GEMM: ("stall6", "GEMM"),
    KernelFamily.GEMV: ("stall6", "GEMM"),
    KernelFamily.CONVOLUTION: ("stall6", "GEMM"),
    KernelFamily.ATTENTION: ("stall2", "attention"),
    KernelFamily.NORM: ("stall4", "norm"),
    KernelFamily.ELEMENTWISE: ("stall3", "elementwise"),
    KernelFamily.CONVERSION: ("stall3", "elementwise"),
    KernelFamily.COPY: _COPY,
    KernelFamily.COMMUNICATION: ("stall1", "communication"),
    KernelFamily.REDUCTION: ("stall7", "reduction"),
    KernelFamily.ROUTING: ("series4", "MoE routing"),
    KernelFamily.OTHER: ("stall8", "other kernel"),
}
"""Matrix products of all shapes share a colour, and so does what reads, changes a little and writes back."""
RANGES = "NVTX"
"""What a program marks itself; other sources than NVTX have a word of their own for it (`Origin.range_term`)."""
_KINDS: Mapping[str, tuple[str, str]] = {
    SpanKind.MEMCPY: _COPY,
    SpanKind.MEMSET: _COPY,
    SpanKind.GRAPH: ("series6", "CUDA graph"),
    SpanKind.NVTX: ("band", RANGES),
    SpanKind.MARK: ("band", RANGES),
    SpanKind.GPU_RANGE: ("band", RANGES),
    SpanKind.PAGE_FAULT: ("stall1", "page fault"),
    SpanKind.OPERATOR: ("series2", "operator"),
    SpanKind.PYTHON: ("accent", "Python"),
    SpanKind.SAMPLE: ("trail", "CPU sample"),
}
_CAUSES: Mapping[str, Cause] = {
    SpanKind.LAUNCH: Cause.LAUNCH,
    SpanKind.OFF_CPU: Cause.DESCHEDULED,
    SpanKind.OVERHEAD: Cause.PROFILER,
    SpanKind.SYNC: Cause.SYNC,
    SpanKind.ALLOCATION: Cause.ALLOCATION,
}
_LETTERS = {
    "communication": "X",
    "CUDA graph": "H",
    "other kernel": "O",
    TITLES[Cause.LAUNCH]: "l",
    TITLES[Cause.SLOW_LAUNCH]: "k",
    TITLES[Cause.SYNC]: "s",
    TITLES[Cause.COPY]: "c",
    TITLES[Cause.ALLOCATION]: "a",
    TITLES[Cause.LOADING]: "d",
    TITLES[Cause.GRAPH_BUILD]: "h",
    TITLES[Cause.CALL]: "u",
    TITLES[Cause.OS]: "o",
    TITLES[Cause.DESCHEDULED]: "w",
    TITLES[Cause.PROFILER]: "p",
    TITLES[Cause.NO_WORK]: "i",
    RANGES: "n",
    "annotation": "n",
    "operator": "r",
    "Python": "y",
    "CPU sample": "m",
    "page fault": "f",
}
"""Of what does not begin with a letter of its own: kernels in capitals, what threads do in small ones."""
_LEAST_LABEL = 3
_BREAK = re.compile(r"[\s_./:(<,-]+")


@lru_cache(maxsize=65536)
def colour_of(kind: str, name: str) -> tuple[str, str]:
    """The role of a span's colour, and what all that have it are called.

    >>> colour_of("kernel", "nvjet_tst_128x64_64x6_1x2_h_bz_coopA_TNN"), colour_of("call", "cudaStreamSynchronize")
    (('stall6', 'GEMM'), ('stall1', 'synchronisation'))
    """
    if kind == SpanKind.KERNEL:
        return _FAMILIES[kernel_kind(name).family]
    kind = kind_of(kind)
    if kind in _KINDS:
        return _KINDS[kind]
    cause = _cause(kind, name)
    return ("series4", kind_title(kind)) if cause is None else (cause_role(cause), TITLES[cause])


def fill_of(title: str, look: Look) -> str:
    """What a bar is filled with: a block, or where colours may be lacking the letter of what it is called.

    >>> from llmtop.tui.render.look import ASCII
    >>> fill_of("GEMM", Look()), fill_of("GEMM", Look(ASCII)), fill_of("launch call", Look(ASCII))
    ('█', 'G', 'l')
    """
    if look.glyphs.shades:
        return look.glyphs.eighths[-1]
    return _LETTERS.get(title) or title[:1].upper()


def cause_role(cause: Cause) -> str:
    """The role of a cause of idle time: one colour, wherever it is drawn."""
    return STALLS[PALETTE[cause][0] - 1]


def _cause(kind: str, name: str) -> Cause | None:
    """What a thread does in such a span, as the account of idle time has it; None of kinds that it does not know."""
    match kind:
        case SpanKind.CALL | SpanKind.BRIEF_CALL:
            return cause_of_call(name)
        case SpanKind.OS:
            return cause_of_os_call(name)
    return _CAUSES.get(kind)


@lru_cache(maxsize=65536)
def label_of(kind: str, name: str) -> str:
    """What stands in a bar: of a kernel what it computes or its function's name, of others the name.

    >>> label_of("kernel", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)")
    'elementwise add fp32 vec4'
    """
    if kind == SpanKind.KERNEL:
        return kernel_label(name)
    return name or kind_title(kind)


@lru_cache(maxsize=65536)
def fitted(label: str, room: int, look: Look) -> str:
    """A label in so many cells: whole, or its first words and an ellipsis, or nothing.

    >>> look = Look()
    >>> fitted("GEMM 128x64 bf16", 16, look), fitted("GEMM 128x64 bf16", 13, look), fitted("elementwise", 7, look)
    ('GEMM 128x64 bf16', 'GEMM 128x64…', '')
    """
    if width_of(label) <= room:
        return label if room >= _LEAST_LABEL else ""
    ends = [found.start() for found in _BREAK.finditer(label[: 4 * room])]
    heads = [label[:end] for end in ends if end >= _LEAST_LABEL and width_of(label[:end]) < room]
    return heads[-1] + look.glyphs.ellipsis if heads else ""
