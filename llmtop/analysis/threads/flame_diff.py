"""What has changed between two stack trees: for each frame its share of the time before and now."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from llmtop.analysis.views import NodeKind, StackNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

K = TypeVar("K")

LEAST_POINTS = 0.05
"""Changes below this, in percentage points, round to nothing."""
_CROWD = re.compile(r" ×\d+$")


class DiffNode(StackNode):
    """A frame of two trees: shares of all time observed, in percent. Its children are made when they are looked at.

    `total` and `own` are the means of both: so frames that are gone have a width too, and the widths of children add
    up within their parent as in any tree.

    Attributes:
        before, now: Its share in either tree.
        own_change: Of the frame alone, without those below it, in percentage points.
    """

    __slots__ = ("_made", "_scales", "_trees", "before", "now", "own_change")

    before: float
    now: float
    own_change: float
    _trees: tuple[StackNode | None, StackNode | None]
    _scales: tuple[float, float]
    _made: tuple[DiffNode, ...] | None

    def __init__(self, before: StackNode | None, now: StackNode | None, scales: tuple[float, float]) -> None:
        shown = now or before
        assert shown is not None
        was, own_was = _shares(before, scales[0])
        is_, own_is = _shares(now, scales[1])
        for name, value in (
            ("name", shown.name),
            ("kind", shown.kind),
            ("total", (was + is_) / 2),
            ("own", (own_was + own_is) / 2),
            ("before", was),
            ("now", is_),
            ("own_change", own_is - own_was),
            ("_trees", (before, now)),
            ("_scales", scales),
            ("_made", None),
        ):
            object.__setattr__(self, name, value)

    @property
    def children(self) -> tuple[DiffNode, ...]:
        """The largest change first."""
        made = self._made
        if made is None:
            made = tuple(sorted(self._parts(), key=lambda one: (-round(abs(one.change), 1), -one.total, one.name)))
            object.__setattr__(self, "_made", made)
        return made

    def _parts(self) -> Iterator[DiffNode]:
        was, is_ = (_by_key(tree.children) if tree else {} for tree in self._trees)
        for key in dict.fromkeys((*is_, *was)):
            yield DiffNode(was.get(key), is_.get(key), self._scales)

    @property
    def change(self) -> float:
        """In percentage points; positive where its share has grown."""
        return self.now - self.before

    @property
    def is_new(self) -> bool:
        """Whether it was not there before."""
        return self.before == 0 < self.now

    @property
    def is_gone(self) -> bool:
        """Whether it is not there any more."""
        return self.now == 0 < self.before


def diff_trees(before: StackNode, now: StackNode) -> DiffNode:
    """Both trees as one, each frame with its change.

    Each tree is divided by its own total: the time observed over all threads, so windows of different lengths
    compare.
    """
    return DiffNode(before, now, (_percent(before.total), _percent(now.total)))


def moved_points(before: Mapping[K, float], now: Mapping[K, float]) -> float:
    """How much of the time is in other stacks now, in percentage points: half the sum of all changes, 0 to 100.

    >>> moved_points({"wait": 3.0, "run": 1.0}, {"wait": 1.0, "run": 1.0})
    25.0
    """
    was, is_ = _percent(sum(before.values())), _percent(sum(now.values()))
    changes = (now.get(key, 0.0) * is_ - before.get(key, 0.0) * was for key in before.keys() | now.keys())
    return sum(map(abs, changes)) / 2


def _percent(total: float) -> float:
    return 100 / total if total else 0.0


def _shares(node: StackNode | None, scale: float) -> tuple[float, float]:
    return (node.total * scale, node.own * scale) if node else (0.0, 0.0)


def _by_key(children: tuple[StackNode, ...]) -> dict[tuple[str, NodeKind], StackNode]:
    """Children by what makes them the same frame in both trees: a crowd of threads is, when one has joined it."""
    names = (_CROWD.sub("", child.name) if child.kind is NodeKind.THREAD else child.name for child in children)
    keyed = {(name, child.kind): child for name, child in zip(names, children, strict=True)}
    return keyed if len(keyed) == len(children) else {(child.name, child.kind): child for child in children}
