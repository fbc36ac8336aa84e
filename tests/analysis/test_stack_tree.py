"""The stacks of any file as one tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop.analysis.threads.stack_tree import stack_tree, why_no_stacks
from llmtop.analysis.views import StackNode
from llmtop.model import Missing, Origin, Stack, Trace, Track, TrackKind, Unknown, What

NONE = Trace(Origin("made-up"))


def told(node: StackNode, depth: int = 0) -> list[tuple[int, str, float, float]]:
    return [(depth, node.name, node.total, node.own), *(row for one in node.children for row in told(one, depth + 1))]


def tree_of(*stacks: Stack) -> StackNode:
    tree = stack_tree(replace(NONE, stacks=stacks))
    assert not isinstance(tree, Unknown)
    return tree.root


def test_stacks_are_merged_from_the_root_the_heaviest_first() -> None:
    root = tree_of(
        Stack(("main", "a"), 1.0, "samples"), Stack(("main", "b"), 3.0, "samples"), Stack(("main",), 0.5, "samples")
    )
    assert told(root) == [(0, "all", 4.5, 0.0), (1, "main", 4.5, 0.5), (2, "b", 3.0, 3.0), (2, "a", 1.0, 1.0)]
    assert (root.kind, root.children[0].kind) == ("root", "frame")


def test_a_function_that_calls_itself_is_a_frame_each_time() -> None:
    assert told(tree_of(Stack(("f", "f"), 2.0, "ns"))) == [(0, "all", 2.0, 0.0), (1, "f", 2.0, 0.0), (2, "f", 2.0, 2.0)]


def test_units_that_do_not_add_up_are_not_added_up() -> None:
    stacks = (Stack(("a",), 1.0, "samples"), Stack(("b",), 9e9, "ns"), Stack(("c",), 1.0, "samples"))
    tree = stack_tree(replace(NONE, stacks=stacks))
    assert not isinstance(tree, Unknown)
    assert (tree.unit, tree.root.total) == ("samples", 2.0)


def test_a_thread_stands_above_its_stacks() -> None:
    thread = Track(ids.thread(1, 2), TrackKind.THREAD, "worker")
    tree = stack_tree(replace(NONE, tracks={thread.id: thread}, stacks=(Stack(("a",), 1.0, "ns", track=thread.id),)))
    assert not isinstance(tree, Unknown)
    assert [name for _, name, *_ in told(tree.root)] == ["all", "worker", "a"]


def test_a_thousand_frames_and_more_are_no_recursion() -> None:
    node = tree_of(Stack(tuple(f"f{i}" for i in range(5000)), 1.0, "samples"))
    depth = 0
    while node.children:
        node, depth = node.children[0], depth + 1
    assert (node.name, depth) == ("f4999", 5000)


@pytest.mark.parametrize("missing", [(), (Missing(What("stacks"), Unknown("not sampled", "perf record -g")),)])
def test_why_there_are_none_is_said(missing: tuple[Missing, ...]) -> None:
    why = why_no_stacks(replace(NONE, missing=missing))
    assert str(why) == ("not sampled (perf record -g)" if missing else "this file has no stacks")
    assert stack_tree(replace(NONE, missing=missing)) == why
    weightless = stack_tree(replace(NONE, stacks=(Stack(("a",), 0.0, "ns"),)))
    assert not isinstance(weightless, Unknown)
    assert weightless.why_not is not None
