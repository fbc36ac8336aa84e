"""The stalls of kernels as trees that go down to their code: kernel, file, line, instruction, reason; or by reason."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from llmtop.analysis.kernels.source import KernelSource, kernel_source
from llmtop.analysis.kernels.stalls import StallBar
from llmtop.analysis.views import NodeKind, StackNode, StackTree
from llmtop.model import Trace, Unknown
from llmtop.text import shorten

_LEAST_SHARE = 0.02
"""Of the time: kernels with less are too narrow to be looked into."""
_MOST_KERNELS = 12
"""Kernels whose code is told apart in the flame, those first that wait longest."""
_LEAST_WIDTH = 1e-4
"""Of a kernel's waiting: instructions with less are left out of its frames."""
_LONGEST_LINE = 60
"""Characters of a source line that are in a frame."""
Step: TypeAlias = "tuple[str, NodeKind]"
"""A frame: its name and its kind."""
Weighed: TypeAlias = "tuple[tuple[Step, ...], float]"
"""The frames of a leaf from the root on, and its width."""


def code_trees(trace: Trace, bars: Sequence[StallBar]) -> tuple[StackTree, StackTree]:
    """By kernel and by reason first; a frame's width is its share of the kernels' time, in %.

    Of a kernel that was not sampled by instruction, or has little of the time, only the reasons are known or looked
    at. Reads their code, and runs a disassembler.
    """
    leaves = [leaf for i, bar in enumerate(bars) for leaf in _leaves(trace, bar, is_wide=i < _MOST_KERNELS)]
    by_reason = [((steps[-1], *steps[:-1]), width) for steps, width in leaves]
    return _tree(leaves), _tree(by_reason)


def _leaves(trace: Trace, bar: StallBar, *, is_wide: bool) -> Iterator[Weighed]:
    kernel: Step = (bar.kernel, NodeKind.KERNEL)
    source = kernel_source(trace, bar.launch) if is_wide and bar.total >= _LEAST_SHARE else None
    if isinstance(source, KernelSource) and source.total.stalls:
        for steps, share in _of_code(source):
            yield (kernel, *steps), 100 * bar.total * share
        return
    for reason, share in bar.shares:
        yield (kernel, (reason, NodeKind.REASON)), 100 * bar.total * share


def _of_code(source: KernelSource) -> Iterator[Weighed]:
    """File, line, instruction and reason, each with its share of the kernel's waiting."""
    stalls, texts, code = source.total.stalls, source.assembly, source.code
    for i, spent in enumerate(source.instructions):
        if spent.stalls < _LEAST_WIDTH * stalls:
            continue
        text = "" if isinstance(texts, Unknown) else texts.get(code.addresses[i], "")
        instruction: Step = (f"{code.offsets[i]:05x} {text}".rstrip(), NodeKind.FRAME)
        for reason, count in spent.waiting:
            yield (*_place(source, i), instruction, (reason, NodeKind.REASON)), count / stalls


def _place(source: KernelSource, i: int) -> tuple[Step, ...]:
    """The file and the line that an instruction was made from; its function where that is not known."""
    code = source.code
    if code.file_id[i] < 0:
        function = code.functions[code.function_id[i]]
        return ((function, NodeKind.FRAME),) if function else ()
    file, line = code.files[code.file_id[i]], code.line[i]
    text = source.line_text(file, line)
    said = "" if isinstance(text, Unknown) else f" {shorten(text, _LONGEST_LINE)}"
    return (posixpath.basename(file), NodeKind.FRAME), (f"{line}{said}", NodeKind.FRAME)


def _tree(leaves: Iterable[Weighed]) -> StackTree:
    return StackTree(_node(("all", NodeKind.ROOT), leaves), "%")


def _node(step: Step, leaves: Iterable[Weighed]) -> StackNode:
    """A frame with all that is below it, the widest first."""
    inner: dict[Step, list[Weighed]] = {}
    own = 0.0
    for steps, width in leaves:
        if steps:
            inner.setdefault(steps[0], []).append((steps[1:], width))
        else:
            own += width
    children = sorted((_node(one, below) for one, below in inner.items()), key=lambda node: -node.total)
    return StackNode(*step, own + sum(child.total for child in children), own, tuple(children))
