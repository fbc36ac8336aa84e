"""What has changed between two trees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.analysis.threads.flame_diff import DiffNode, diff_trees, moved_points
from llmtop.analysis.views import NodeKind, StackNode


def node(name: str, own: float, *children: StackNode, kind: NodeKind = NodeKind.FRAME) -> StackNode:
    return StackNode(name, kind, own + sum(child.total for child in children), own, children)


BEFORE = node("all", 0, node("step", 10, node("wait", 30)), node("load", 60))
NOW = node("all", 0, node("step", 20, node("wait", 100)), node("copy", 80))


def walk(root: DiffNode) -> list[DiffNode]:
    return [root, *(below for child in root.children for below in walk(child))]


def test_shares_of_each_tree_are_compared_whatever_their_length() -> None:
    found = {one.name: (one.before, one.now, one.change) for one in walk(diff_trees(BEFORE, NOW))}
    assert found == {
        "all": (100, 100, 0),
        "load": (60, 0, -60),
        "copy": (0, 40, 40),
        "step": (40, 60, 20),
        "wait": (30, 50, 20),
    }


def test_the_largest_change_stands_first() -> None:
    assert [child.name for child in diff_trees(BEFORE, NOW).children] == ["load", "copy", "step"]


def test_frames_that_are_gone_or_new_say_so() -> None:
    root = diff_trees(BEFORE, NOW)
    assert {one.name for one in walk(root) if one.is_new} == {"copy"}
    assert {one.name for one in walk(root) if one.is_gone} == {"load"}


def test_how_much_of_the_time_moved() -> None:
    assert moved_points({"a": 1, "b": 1}, {"a": 100, "b": 300}) == 25
    assert moved_points({"a": 1}, {"b": 5}) == 100
    assert moved_points({"a": 1}, {"a": 7}) == 0
    assert moved_points({}, {}) == 0


def test_a_crowd_is_the_same_when_one_has_joined_it() -> None:
    before = node("all", 0, node("http ×3", 5, kind=NodeKind.THREAD), node("a ×2", 5))
    now = node("all", 0, node("http ×4", 5, kind=NodeKind.THREAD), node("a", 5))
    assert {one.name: one.change for one in diff_trees(before, now).children} == {"a": 50, "a ×2": -50, "http ×4": 0}


def test_against_nothing_all_is_new() -> None:
    root = diff_trees(node("all", 0), NOW)
    assert all(one.is_new for one in walk(root))


weights = st.floats(0, 1e12).map(lambda value: round(value, 3))


def merged(pairs: list[tuple[str, StackNode]]) -> tuple[StackNode, ...]:
    return tuple({name: StackNode(name, one.kind, one.total, one.own, one.children) for name, one in pairs}.values())


names = st.sampled_from(["a", "b", "c", "pool ×2", "pool"])
trees = st.recursive(
    st.builds(lambda own: node("leaf", own), weights),
    lambda inner: st.builds(
        lambda own, pairs: node("n", own, *merged(pairs)), weights, st.lists(st.tuples(names, inner), max_size=4)
    ),
    max_leaves=15,
)


@given(trees)
def test_a_tree_has_not_changed_against_itself(tree: StackNode) -> None:
    root = diff_trees(tree, tree)
    assert all(one.change == 0 and one.own_change == 0 for one in walk(root))
    assert not any(one.is_new or one.is_gone for one in walk(root))


@given(trees, trees)
def test_the_other_way_round_all_signs_are_turned(before: StackNode, now: StackNode) -> None:
    def changes(root: DiffNode, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], float]:
        own = {path: root.change}
        return own | {k: value for child in root.children for k, value in changes(child, (*path, child.name)).items()}

    there, back = changes(diff_trees(before, now)), changes(diff_trees(now, before))
    assert sorted(there.values()) == pytest.approx(sorted(-value for value in back.values()), abs=1e-9)


@given(trees, trees)
def test_changes_and_widths_add_up(before: StackNode, now: StackNode) -> None:
    for one in walk(diff_trees(before, now)):
        assert one.change == pytest.approx(one.own_change + sum(child.change for child in one.children), abs=1e-6)
        assert one.total == pytest.approx(one.own + sum(child.total for child in one.children), abs=1e-6)
        assert one.total == pytest.approx((one.before + one.now) / 2)
