"""Stacks as lines that flame graph tools read: frames from the root on, a semicolon between them, and the weight.

The layout is that of https://github.com/brendangregg/FlameGraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmtop.analysis.views import StackNode


def folded_line(frames: Sequence[str], weight: float) -> str:
    r"""One stack, with the end of its line.

    >>> folded_line(("main", "a;b"), 2.0), folded_line(("main",), 0.25)
    ('main;a:b 2\n', 'main 0.250000\n')
    """
    # What divides frames cannot be in a name, and an exponent in no weight.
    number = f"{weight:.0f}" if float(weight).is_integer() else f"{weight:.6f}"
    return f"{';'.join(frame.replace(';', ':') for frame in frames)} {number}\n"


def stacks_of(node: StackNode, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """The stacks of a tree below a node, with what each has by itself: frames that have nothing are only on the way."""
    for child in node.children:
        frames = (*above, child.name)
        if child.own:
            yield frames, child.own
        yield from stacks_of(child, frames)


def folded_tree(root: StackNode, path: Sequence[int] = ()) -> Iterator[str]:
    """A tree, or what is below one of its frames, as lines; each begins at the root all the same."""
    above: tuple[str, ...] = ()
    for place in path:
        root = root.children[place]
        above = (*above, root.name)
    if above and root.own:
        yield folded_line(above, root.own)
    yield from (folded_line(frames, weight) for frames, weight in stacks_of(root, above))
