"""What the stall flame costs at 10,000 frames: the tree, the comparison of two, a drawing, and a key until its frame.

Usage: python benchmarks/flame_speed.py [REPEATS]

The budget is 30 ms for a frame. Trees are made anew only when new stacks have come, every two seconds.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench import cpu_ms
from llmtop.analysis.threads.flame_diff import diff_trees
from llmtop.analysis.threads.flames import TreeContent
from llmtop.analysis.threads.stall_tree import stall_tree
from llmtop.analysis.views import StackNode, StackTree
from llmtop.model import Stack
from llmtop.tui.panes.stacks import StacksPane
from llmtop.tui.render.flame import draw_flame
from llmtop.tui.render.look import Look
from tests.live_traces import live_trace
from tests.tui.live_app import fixed_app, session_of

SIZES = ((120, 40), (200, 60))
BUDGET_MS = 30.0
STACKS, DEPTH, THREADS = 420, 30, 40
"""As many stacks as are kept of a server; 30 frames each, the first third in common."""
PYTHON_STACKS = 8
KEYS = ("down", "right", "left", "up", "f")


def made_stacks(seed: int = 0) -> tuple[Stack, ...]:
    """Native stacks that make a tree of 10,000 frames."""
    chance = random.Random(seed)
    stacks = []
    for i in range(STACKS):
        thread = i % THREADS
        common = tuple(f"frame_{depth}_of_thread_{thread}" for depth in range(DEPTH // 4))
        own = tuple(f"function_{depth}_{i}" for depth in range(DEPTH - len(common)))
        state = chance.choice(("futex", "epoll", "on-cpu"))
        stacks.append(Stack(common + own, chance.expovariate(1e-8), "ns", state, f"thread:4300/{5000 + thread}"))
    return tuple(stacks)


def looks() -> tuple[Stack, ...]:
    """Python stacks of every thread, running and waiting."""
    return tuple(
        Stack(
            tuple(f"method_{depth}_{i if depth > 6 else 0} (engine.py:{depth})" for depth in range(10)),
            3,
            "samples",
            state,
            f"thread:4300/{5000 + thread}",
        )
        for thread in range(THREADS)
        for state in ("python running", "python waiting")
        for i in range(PYTHON_STACKS // 2)
    )


def wide_tree() -> StackTree:
    """10,000 frames beside each other."""
    children = tuple(StackNode(f"function_{i}", "frame", 1e6 / (i + 1), 1e6 / (i + 1)) for i in range(10_000))
    return StackTree(StackNode("all", "root", sum(child.total for child in children), 0.0, children), "ns")


def count(node: StackNode) -> int:
    """Frames in a tree."""
    return 1 + sum(map(count, node.children))


def rows(repeats: int) -> Iterator[tuple[str, float]]:
    """(what, ms) of making and drawing."""
    trace = live_trace()
    stacks, before = made_stacks(), made_stacks(1)
    both = (*stacks, *looks())

    def fresh(several: tuple[Stack, ...]) -> StackTree:
        # Another tuple of the same stacks: a tree that is known is not made again.
        return stall_tree(replace(trace, stacks=several[::-1]), TreeContent(python=True))

    tree, joined, other = fresh(stacks), fresh(both), fresh(before)
    seen = (f"{count(tree.root)} frames", f"{count(joined.root)} frames with Python")
    for width, height in SIZES:
        for name, several in zip(seen, (stacks, both), strict=True):
            ms = cpu_ms(_first_drawing(partial(fresh, several), width, height), repeats)
            yield f"new stacks and drawing, {name}, {width}x{height}", ms

        def compared_anew() -> StackTree:
            return StackTree(diff_trees(other.root, fresh(stacks).root), "%")

        ms = cpu_ms(_first_drawing(compared_anew, width, height), repeats)
        yield f"new stacks, comparison and drawing, {width}x{height}", ms
    compared = StackTree(diff_trees(other.root, tree.root), "%")
    for width, height in SIZES:
        drawn = {"deep": tree, "with Python": joined, "wide": wide_tree(), "compared": compared}
        for name, one in drawn.items():
            yield f"drawing, {name}, {width}x{height}", cpu_ms(_drawing(one, width, height), repeats)


def _first_drawing(make: Callable[[], StackTree], width: int, height: int) -> Callable[[], object]:
    return lambda: draw_flame(make(), width, height, Look())


def _drawing(tree: StackTree, width: int, height: int) -> Callable[[], object]:
    return lambda: draw_flame(tree, width, height, Look())


async def key_rows(repeats: int) -> list[tuple[str, float]]:
    """(what, ms) from a key to its frame on the whole live screen, the flame zoomed."""
    found = []
    for width, height in SIZES:
        app = fixed_app()
        async with app.run_test(size=(width, height)) as pilot:
            session_of(app).now = replace(live_trace(), stacks=(*made_stacks(), *looks()))
            app.live.refresh_trace()
            await pilot.press("5", "z", "p")
            await pilot.pause()
            assert isinstance(app.focused, StacksPane)
            assert app.focused.wanted == TreeContent(python=True)
            for key in KEYS:
                times = []
                for _ in range(repeats):
                    start = time.process_time_ns()
                    await pilot.press(key)
                    times.append((time.process_time_ns() - start) / 1e6)
                found.append((f"key {key}, {width}x{height}", statistics.median(times)))
    return found


def main() -> None:
    """Print a table."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"{'what':<64} {'CPU ms':>8}  budget {BUDGET_MS:g} ms")
    for what, ms in [*rows(repeats), *asyncio.run(key_rows(repeats))]:
        print(f"{what:<64} {ms:8.2f}  {'over' if ms > BUDGET_MS else ''}")


if __name__ == "__main__":
    main()
