"""Which functions a file's stacks were in: where it was, and what it came through."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from llmtop.frozen import frozen
from llmtop.model import Stack, Trace
from llmtop.units import quantity, si

_WAIT = re.compile(
    r"(?:\w+\.)*(?:_?wait\w*|join|_?recv\w*|poll|_?poll|select|accept|acquire|sleep|get|_handle_\w+)(?:_\[p\])? "
    r"\((?:[^()]*/)?(?:threading|pool|connection|selectors|queue|queues|socket|synchronize|subprocess|popen_\w+)"
    r"\.py(?::\d+)?\)"
)
"""Functions of Python's standard library in which threads wait, with the file that they are in."""
_ROUGH = 1e6
"""From here on a sum of periods is shown with three digits. Ours."""


@frozen
class FunctionShare:
    """A function over all stacks of one unit.

    Attributes:
        own: Weight of the stacks that end in it.
        total: Weight of the stacks that it is in, however often: recursion counts once.
        own_share: Of all weight, 0 to 1.
        total_share: The same of `total`.
        waits: Whether a thread in it waits for another one, a queue or a connection: samplers of idle threads too
            count that like work.
    """

    name: str
    own: float
    total: float
    own_share: float
    total_share: float
    waits: bool = False

    @property
    def title(self) -> str:
        """Its name, and whether stacks that end in it waited."""
        return f"{self.name} (waits)" if self.waits else self.name


@frozen
class Functions:
    """What stacks of one unit add up to; stacks of several units do not add up.

    Attributes:
        weight: Of all stacks.
        shares: Functions, the one with the most weight of its own first, those that wait behind all that work.
    """

    unit: str
    stacks: int
    weight: float
    shares: tuple[FunctionShare, ...]

    @property
    def title(self) -> str:
        """How much there is of it."""
        # Of a large sum of periods no digit past the third tells anything; samples are counted.
        is_rough = self.unit == "periods" and self.weight >= _ROUGH
        weight = f"{si(self.weight, '').strip()} {self.unit}" if is_rough else quantity(self.weight, self.unit)
        return f"{weight} in {self.stacks} {'stack' if self.stacks == 1 else 'stacks'}"


def functions(trace: Trace) -> tuple[Functions, ...]:
    """The functions of a trace's stacks, by unit; nothing where it has no stacks with weight."""
    by_unit: dict[str, list[Stack]] = defaultdict(list)
    for stack in trace.stacks:
        by_unit[stack.unit].append(stack)
    return tuple(_functions(unit, stacks) for unit, stacks in by_unit.items() if any(one.weight for one in stacks))


def _functions(unit: str, stacks: list[Stack]) -> Functions:
    weight = sum(stack.weight for stack in stacks)
    return Functions(unit, len(stacks), weight, tuple(_shares(stacks, weight)))


def _shares(stacks: list[Stack], weight: float) -> Iterator[FunctionShare]:
    own: dict[str, float] = defaultdict(float)
    total: dict[str, float] = defaultdict(float)
    for stack in stacks:
        if stack.frames:  # of a thread that is watched may be known how long it waited, and not where
            own[stack.frames[-1]] += stack.weight
        for name in set(stack.frames):
            total[name] += stack.weight
    for name in sorted(total, key=lambda name: (_waits(name), -own[name], -total[name], name)):
        yield FunctionShare(name, own[name], total[name], own[name] / weight, total[name] / weight, _waits(name))


def _waits(name: str) -> bool:
    return _WAIT.match(name) is not None
