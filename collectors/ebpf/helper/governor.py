"""Keeps what the probes cost under a budget: hits per second times what one hit costs.

The costs were measured with benchmarks/ebpf_overhead.py on a 2.5 GHz Xeon; they differ by some tens of percent
between machines, which is as good as a budget needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

NS_PER_HIT = {
    "call": 330.0,
    "counted_call": 165.0,
    "foreign_call": 150.0,
    "foreign_counted_call": 80.0,
    "switch": 1050.0,
    "foreign_switch": 350.0,
    "stack": 2750.0,
    "sample": 4000.0,
    "library": 1600.0,
    "stepped_library": 11000.0,
}
HERTZ = 49
"""How often the stacks of what runs are taken, on each CPU. Odd, so as to go with no timer."""
REST_S = 30.0
LONGEST_REST_S = 300.0
PATIENCE = 2
"""Seconds over budget in a row before anything is shed: a burst is no reason."""


@dataclass(frozen=True)
class Effort:
    """How much is looked at.

    Attributes:
        stack_every: One sleep in so many has its stack taken; 0 for none.
        calls: "timed", "counted" or "off".
        scheduler: Whether threads are followed on and off the CPU.
    """

    stack_every: int = 1
    calls: str = "timed"
    scheduler: bool = True

    def __str__(self) -> str:
        stacks = f"1 stack in {self.stack_every}" if self.stack_every else "no stacks"
        return f"{stacks}, system calls {self.calls}, scheduler {'on' if self.scheduler else 'off'}"


LADDER = (
    Effort(1),
    Effort(4),
    Effort(16),
    Effort(64),
    Effort(0),
    Effort(0, "counted"),
    Effort(0, "off"),
    Effort(0, "off", scheduler=False),
)
"""What is shed first comes first: stacks cost the most and say the same when sampled."""


@dataclass(frozen=True)
class Load:
    """Events per second: of the processes looked at, and of all others."""

    calls: float = 0.0
    foreign_calls: float = 0.0
    switches: float = 0.0
    foreign_switches: float = 0.0
    samples: float = 0.0
    library: float = 0.0


def cost(load: Load, effort: Effort, ns_per_hit: Mapping[str, float] = NS_PER_HIT) -> tuple[float, float]:
    """What an effort costs under a load: ns per second of the processes looked at, and of all others."""
    own = load.samples * ns_per_hit["sample"] + load.library * ns_per_hit["library"]
    foreign = 0.0
    if effort.calls != "off":
        kind = "call" if effort.calls == "timed" else "counted_call"
        own += load.calls * ns_per_hit[kind]
        foreign += load.foreign_calls * ns_per_hit[f"foreign_{kind}"]
    if effort.scheduler:
        own += load.switches * ns_per_hit["switch"]
        foreign += load.foreign_switches * ns_per_hit["foreign_switch"]
        if effort.stack_every:
            own += load.switches / effort.stack_every * ns_per_hit["stack"]
    return own, foreign


class Governor:
    """Chooses the rung of the ladder, second by second.

    Args:
        budget: Share of one core that the probes may cost the processes looked at. All others together may lose
            that share of the whole machine.
        cpus: How many cores the machine has.
        ladder: The efforts to choose from, the greatest first.
        ns_per_hit: What one hit costs: other tracers' probes do the same at another price.
    """

    def __init__(
        self,
        budget: float,
        *,
        stacks: bool = False,
        cpus: int = 1,
        ladder: Sequence[Effort] = LADDER,
        ns_per_hit: Mapping[str, float] = NS_PER_HIT,
    ) -> None:
        self.budget_ns = budget * 1e9
        self._foreign_budget_ns = self.budget_ns * cpus
        self._ladder = ladder
        self._ns_per_hit = ns_per_hit
        self.stacks = stacks
        self.rung = 0
        self._seconds_over = 0
        self._rest_s = REST_S
        self._rested_s = 0.0

    @property
    def effort(self) -> Effort:
        """What to do now."""
        wanted = self._ladder[self.rung]
        return wanted if self.stacks else replace(wanted, stack_every=0)

    @property
    def shed(self) -> bool:
        """Whether anything that was asked for is not done."""
        return self.effort != (self._ladder[0] if self.stacks else replace(self._ladder[0], stack_every=0))

    def judge(self, load: Load, elapsed_s: float) -> bool:
        """Take the last second's load into account; whether the effort changed."""
        before = self.effort
        if not self._fits(load, before):
            self._rested_s = 0.0
            self._seconds_over += 1
            if self._seconds_over >= PATIENCE:
                self._step_down(load)
        else:
            self._seconds_over = 0
            self._rested_s += elapsed_s
            if self.rung and self._rested_s >= self._rest_s:
                self._step_up()
        return self.effort != before

    def _step_down(self, load: Load) -> None:
        """The first rung that fits; a second fall right after coming back makes the next rest longer."""
        rungs = range(self.rung, len(self._ladder))
        self.rung = next((rung for rung in rungs if self._fits(load, self._ladder[rung])), len(self._ladder) - 1)
        self._seconds_over = 0
        self._rest_s = min(self._rest_s * 2, LONGEST_REST_S)

    def _fits(self, load: Load, effort: Effort) -> bool:
        own, foreign = cost(load, effort if self.stacks else replace(effort, stack_every=0), self._ns_per_hit)
        return own <= self.budget_ns and foreign <= self._foreign_budget_ns

    def _step_up(self) -> None:
        """Try the next rung that differs: what it costs is only known by doing it."""
        before = self.effort
        while self.rung and self.effort == before:
            self.rung -= 1
        self._rested_s = 0.0
