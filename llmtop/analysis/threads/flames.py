"""What a flame of stacks is, whatever they are of, and what may be asked of one of a server's threads."""

from __future__ import annotations

from enum import Enum

from llmtop.analysis.views import StackTree
from llmtop.frozen import frozen
from llmtop.model import TrackId, Unknown


class Order(Enum):
    """What stands above what, and which stacks are in it. The value says so on the screen."""

    BY_THREAD = "by thread"
    BY_STATE = "by state"
    WAITING = "waits only"
    RUNNING = "on-CPU only"
    INVERTED = "from the innermost function"


@frozen
class TreeContent:
    """What is to be in the tree.

    Attributes:
        python: Put Python functions into the stacks, where interpreters were looked at.
        detail: With line numbers, the interpreter's own frames, and how system calls and threads begin.
        without: Threads (ids of tracks) whose sleep is left out; see `stall_times.resting_threads`.
    """

    order: Order = Order.BY_THREAD
    python: bool = True
    detail: bool = False
    without: frozenset[TrackId] = frozenset()


@frozen
class FlameView:
    """What is drawn.

    Attributes:
        tree: Times, counts, or changes: then its nodes are `DiffNode`.
        notes: What the title says of it.
        lack: What of it is missing, and why: functions; Python's, where they are wanted; or times.
        resting: How many threads are left out.
        has_states: Threads and what they were in stand above the functions; else all levels are alike.
    """

    tree: StackTree
    notes: tuple[str, ...] = ()
    lack: tuple[str, Unknown] | None = None
    resting: int = 0
    has_states: bool = True
