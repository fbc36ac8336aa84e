"""What has changed between two stack trees: for each frame its share of the time before and now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop.analysis.views import StackNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEAST_POINTS = 0.05
"""Changes below this, in percentage points, round to nothing."""
_CROWD = re.compile(r" ×\d+$")


@dataclass(frozen=True, slots=True)
class DiffNode(StackNode):
    """A frame of two trees: shares of all time observed, in percent.

    Its `total` and `own` are the means of both: so frames that are gone have a width too, and the widths of children
    add up within their parent as in any tree.
    """

    children: tuple[DiffNode, ...] = ()
    before: float = 0.0
    now: float = 0.0
    own_change: float = 0.0

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
    """Both trees as one, each frame with its change; the largest change first among those with one parent.

    Each tree is divided by its own total: the time observed over all threads, so windows of different lengths
    compare.
    """
    return _diff(before, now, _percent(before), _percent(now))


def moved_points(root: DiffNode) -> float:
    """How much of the time is somewhere else now, in percentage points: half the sum of all changes, 0 to 100."""
    return sum(abs(node.own_change) for node in _all(root)) / 2


def _percent(root: StackNode) -> float:
    return 100 / root.total if root.total else 0.0


def _diff(before: StackNode | None, now: StackNode | None, before_scale: float, now_scale: float) -> DiffNode:
    either = now or before
    assert either is not None
    was, own_was = (before.total * before_scale, before.own * before_scale) if before else (0.0, 0.0)
    is_, own_is = (now.total * now_scale, now.own * now_scale) if now else (0.0, 0.0)
    return DiffNode(
        either.name,
        either.kind,
        (was + is_) / 2,
        (own_was + own_is) / 2,
        tuple(_children(before, now, before_scale, now_scale)),
        was,
        is_,
        own_is - own_was,
    )


def _children(
    before: StackNode | None, now: StackNode | None, before_scale: float, now_scale: float
) -> Iterable[DiffNode]:
    was = _by_key(before.children) if before else {}
    is_ = _by_key(now.children) if now else {}
    keys = dict.fromkeys((*is_, *was))
    nodes = (_diff(was.get(key), is_.get(key), before_scale, now_scale) for key in keys)
    return sorted(nodes, key=lambda node: (-round(abs(node.change), 1), -node.total, node.name))


def _by_key(children: tuple[StackNode, ...]) -> dict[tuple[str, str], StackNode]:
    """Children by what makes them the same frame in both trees: a crowd of threads is, when one has joined it."""
    keyed = {
        (_CROWD.sub("", child.name) if child.kind == "thread" else child.name, child.kind): child for child in children
    }
    return keyed if len(keyed) == len(children) else {(child.name, child.kind): child for child in children}


def _all(root: DiffNode) -> Iterator[DiffNode]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children
