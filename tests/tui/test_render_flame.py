"""The icicle as text at fixed sizes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llmtop.analysis.views import NodeKind, StackNode, StackTree
from llmtop.model import Unknown
from llmtop.tui.render.flame import draw_flame, node_at, place_frames, step_aside, step_down
from llmtop.tui.render.look import ASCII, Look

PLAIN = Look(ASCII)


def node(name: str, total: float, *children: StackNode) -> StackNode:
    return StackNode(name, NodeKind.KERNEL, total, total - sum(child.total for child in children), children)


ROOT = node("all", 100, node("gemm[/b]", 60, node("wait", 45), node("barrier", 15)), node("内核", 30, node("wait", 30)))
TREE = StackTree(ROOT, "%")


def drawn(width: int, height: int, **options: tuple[int, ...]) -> list[str]:
    strips = draw_flame(TREE, width, height, PLAIN, **options)  # type: ignore[arg-type]
    assert [strip.cell_length for strip in strips] == [width] * height
    return [strip.text for strip in strips]


def test_a_frame_is_as_wide_as_its_share() -> None:
    assert drawn(20, 5) == [
        "|all                ",
        "|gemm[/b]   |????   ",
        "|wait    |b~|wait   ",
        "                    ",
        "100 %  own 10 %  all",
    ]


def test_a_zoomed_frame_fills_the_width_under_what_holds_it() -> None:
    assert drawn(20, 4, zoom=(0,), selected=(0, 1)) == [
        "|all                ",
        "|gemm[/b]           ",
        "|wait          |bar~",
        "15 %  barrier       ",
    ]


def test_frames_thinner_than_a_cell_stand_together_and_are_counted() -> None:
    wide = node("all", 1e6, node("large", 1e6 - 100_000), *(node(f"f{i}", 100.0) for i in range(1000)))
    rows = place_frames(wide, 80, 3)
    assert [(frame.node.name, frame.start, frame.stop) for frame in rows[1]] == [
        ("large", 0, 72),
        ("+1000 narrower", 72, 80),
    ]
    assert rows[1][1].node.total == 100_000
    assert rows[2] == []


def test_the_narrower_ones_stand_right_of_the_wider_and_hold_the_cursor() -> None:
    mixed = node("all", 100, node("a", 4), node("b", 46), node("c", 4), node("d", 46, node("e", 46)))
    strips = draw_flame(StackTree(mixed, "%"), 20, 3, PLAIN, selected=(2,))
    assert [strip.text for strip in strips] == ["|all                ", "|b       |d       |~", "4.0 %  c    v deeper"]
    row = place_frames(mixed, 20, 3)[1]
    assert [frame.holds((2,)) for frame in row] == [False, False, True]
    assert [frame.holds((1,)) for frame in row] == [True, False, False]
    assert row[2].holds((0, 0))


def column(name: str, total: float, depth: int) -> StackNode:
    return node(name, total, *([column(f"{name}{depth}", total, depth - 1)] if depth else []))


CHAIN = StackTree(node("all", 4, node("main", 4, column("x", 2, 3), column("y", 2, 1))), "%")


def chain(height: int, **options: tuple[int, ...]) -> list[str]:
    strips = draw_flame(CHAIN, 24, height, PLAIN, **options)  # type: ignore[arg-type]
    assert [strip.cell_length for strip in strips] == [24] * height
    return [strip.text.rstrip() for strip in strips]


def test_rows_of_one_frame_become_one_where_not_all_rows_fit() -> None:
    assert chain(7)[:4] == ["|all", "|main", "|x          |y", "|x3         |y1"]
    assert chain(5) == ["|all |main", "|x          |y", "|x3         |y1", "|x32", "100 %  all      v deeper"]
    assert chain(5, zoom=(0, 0))[:3] == ["|all |main", "|x", "|x3"]


def test_rows_scroll_to_the_cursor_and_say_what_is_not_shown() -> None:
    assert chain(4, selected=(0, 0, 0, 0)) == [
        "|all |main",
        "|x3         |y1",
        "|x32",
        "50 %  x32    ^1 v deeper",
    ]


def test_the_innermost_of_them_stay_where_there_is_little_room() -> None:
    deep = StackTree(node("a" * 30, 1, node("b" * 10, 1, node("c", 1, node("d", 1), node("e", 0)))), "%")
    text = [strip.text for strip in draw_flame(deep, 20, 3, PLAIN)]
    assert text[0] == "|bbbbbbbbbb |c |d   "


def test_values_stand_where_there_is_room() -> None:
    strips = draw_flame(TREE, 20, 3, PLAIN, value_of=lambda one: f"{one.total:g} %")
    assert [strip.text for strip in strips][:2] == ["|all          100 % ", "|gemm[/b]   |????   "]


def test_labels_and_the_last_line_can_be_given() -> None:
    strips = draw_flame(
        TREE,
        20,
        3,
        PLAIN,
        label_of=lambda one: f"<{one.name[:2]}>",
        about=lambda one: [(f"{one.total:g} of {one.name}", "text")],
    )
    assert [strip.text for strip in strips] == ["|<al>               ", "|<ge>       |<???~  ", "100 of all  v deeper"]


def test_without_stacks_it_says_why() -> None:
    tree = StackTree(node("all", 0), "ns", Unknown("no stacks", "--stacks"))
    text = [strip.text.strip() for strip in draw_flame(tree, 30, 4, PLAIN)]
    assert text == ["", "no stacks", "--stacks", ""]
    assert [strip.text for strip in draw_flame(StackTree(node("all", 0), "ns"), 3, 2, PLAIN)] == ["   ", "   "]


def test_steps_stay_in_the_tree() -> None:
    assert step_down(ROOT, ()) == (0,)
    assert step_down(ROOT, (0,)) == (0, 0)
    assert step_down(ROOT, (0, 0)) == (0, 0)
    assert step_aside(ROOT, (0,), 1) == (1,)
    assert step_aside(ROOT, (1,), 1) == (1,)
    assert step_aside(ROOT, (), 1) == ()
    assert node_at(ROOT, (1, 0)).name == "wait"


trees = st.recursive(
    st.builds(lambda total: node("leaf", total), st.floats(0, 1e9)),
    lambda children: st.lists(children, max_size=4).map(lambda of: node("n", sum(one.total for one in of), *of)),
    max_leaves=20,
)


@given(trees, st.integers(1, 60), st.integers(1, 8))
def test_frames_lie_within_their_parents(root: StackNode, width: int, depth: int) -> None:
    rows = place_frames(root, width, depth)
    spans = {frame.path: (frame.start, frame.stop) for row in rows for frame in row if not frame.hidden}
    for row in rows:
        for frame in row:
            assert 0 <= frame.start < frame.stop <= width
            parent = frame.path if frame.hidden else frame.path[:-1]
            if frame.path or frame.hidden:
                assert spans[parent][0] <= frame.start
                assert frame.stop <= spans[parent][1]
        assert all(left.stop <= right.start for left, right in pairwise(row))
