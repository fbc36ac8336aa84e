"""Stalls down to the code: every frame is as wide as what is below it, and the whole as in the other trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from llmtop.analysis.kernels.source import KernelSource
from llmtop.analysis.kernels.source_tree import code_trees
from llmtop.analysis.kernels.stalls import stall_tree
from llmtop.analysis.kernels.table import stall_bars
from llmtop.analysis.views import NodeKind, StackNode
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, LLAMA

UNFUSED = LADDER.with_name("unfused.ncu-rep.xz")


@pytest.fixture(autouse=True)
def texts(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_one(self: KernelSource) -> Mapping[int, str]:
        return {self.code.addresses[self.hottest[0]]: "HOT R1"} if self.hottest else {}

    monkeypatch.setattr(KernelSource, "assembly", property(only_one))


def ways(node: StackNode, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Each leaf by the names of the frames above it."""
    if not node.children:
        yield (*above, node.name), node.total
    for child in node.children:
        yield from ways(child, (*above, node.name))


def test_the_widest_way_is_that_of_the_hottest_instruction() -> None:
    trace = load(UNFUSED)
    tree, by_reason = code_trees(trace, stall_bars(trace))
    way, width = max(ways(tree.root), key=lambda one: one[1])
    line = "294 if (i < count) out[i] = a[i] * b[i];"
    assert way == ("all", "elementwise_mul_kernel", "known_causes.cu", line, "00110 HOT R1", "long_scoreboard")
    other, same = max(ways(by_reason.root), key=lambda one: one[1])
    assert other == ("all", "long_scoreboard", "elementwise_mul_kernel", "known_causes.cu", line, "00110 HOT R1")
    assert same == pytest.approx(width)


def test_kernels_are_as_wide_as_in_the_tree_of_reasons() -> None:
    trace = load(UNFUSED)
    bars = stall_bars(trace)
    tree, by_reason = code_trees(trace, bars)
    plain = {node.name: node.total for node in stall_tree(bars).root.children}
    assert {node.name: pytest.approx(node.total, rel=2e-2) for node in tree.root.children} == plain
    assert by_reason.root.total == pytest.approx(tree.root.total)


def test_what_was_not_sampled_has_its_reasons_alone() -> None:
    trace = load(LLAMA)
    bars = stall_bars(trace)
    tree, _ = code_trees(trace, bars)
    for kernel in tree.root.children:
        assert kernel.kind is NodeKind.KERNEL
        assert {one.kind for one in kernel.children} == {NodeKind.REASON}
    assert tree.root.total == pytest.approx(stall_tree(bars).root.total)
