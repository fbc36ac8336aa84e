"""Keeps what the probes cost under a budget: hits per second times what one hit costs.

The costs were measured with benchmarks/ebpf_overhead.py on a 2.5 GHz Xeon; they differ by some tens of percent
between machines, which is as good as a budget needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..wire import Observed
from .budget import FITS, longer_rest_s

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
"""After probes were given up, until they are tried again; twice as long each time that fails."""
LONGEST_REST_S = 1800.0
"""But never longer."""
CREDIT_S = 1.0
"""What the budget pays for in so many seconds may be overspent before anything is shed: a small burst is no reason, a
great one is within the next look, a fifth of a second later."""
MEAN_S, HIGH_S = 5.0, 30.0
"""What looking has cost on the mean, and what that was at most: half of each is forgotten after so long. What goes to
others by the second is not taken back by each burst."""
OUTSIDE_NS = 90.0
"""What a switch with its wake-up costs beside the time that the scheduler's programs run for: the way there and back.
Measured on a Xeon by benchmarks/ebpf_overhead.py (290 ns of CPU time a switch) and the kernel's own clock (200 ns)."""


@dataclass(frozen=True)
class Effort:
    """How much is looked at.

    Attributes:
        stack_every: One sleep in so many has its stack taken; 0 for none.
        calls: "timed", "counted" or "off".
        scheduler: Whether threads are followed on and off the CPU.
        sliced: That in slices of the time alone (slices.py), which keep to a budget by themselves.
    """

    stack_every: int = 1
    calls: str = "timed"
    scheduler: bool = True
    sliced: bool = False

    def __str__(self) -> str:
        stacks = f"1 stack in {self.stack_every}" if self.stack_every else "no stacks"
        scheduler = "in slices" if self.sliced else "on" if self.scheduler else "off"
        return f"{stacks}, system calls {self.calls}, scheduler {scheduler}"


LIGHT = (
    Effort(0, "counted"),
    Effort(0, "off"),
    Effort(0, "off", scheduler=False),
)
"""`--probes light`: what costs least, and what that is worth is most."""
LADDER = (
    Effort(1),
    Effort(4),
    Effort(16),
    Effort(64),
    Effort(0),
    *LIGHT,
)
"""What is shed first comes first: stacks cost the most and say the same when sampled."""


def in_slices(ladder: Sequence[Effort]) -> tuple[Effort, ...]:
    """The same ladder where the scheduler's probes come and go at once: they are never given up."""
    return tuple(one if one.scheduler else replace(one, scheduler=True, sliced=True) for one in ladder)


@dataclass(frozen=True)
class EventLoad:
    """Events per second: of the processes looked at, and of all others."""

    calls: float = 0.0
    foreign_calls: float = 0.0
    switches: float = 0.0
    foreign_switches: float = 0.0
    samples: float = 0.0

    @classmethod
    def between(cls, before: Mapping[str, int], now: Mapping[str, int], elapsed_s: float) -> EventLoad:
        """By how often each kind of probe had run at two moments."""
        calls, foreign_calls, switches, foreign_switches, samples = (
            (now.get(kind, 0) - before.get(kind, 0)) / elapsed_s
            for kind in ("call", "foreign_call", "switch", "foreign_switch", "sample")
        )
        return cls(calls, foreign_calls, switches, foreign_switches, samples)


def cost(load: EventLoad, effort: Effort, ns_per_hit: Mapping[str, float] = NS_PER_HIT) -> tuple[float, float]:
    """What an effort costs under a load, slices apart: ns per second of the processes looked at, and of all others."""
    own = load.samples * ns_per_hit["sample"]
    foreign = 0.0
    if effort.calls != "off":
        kind = "call" if effort.calls == "timed" else "counted_call"
        own += load.calls * ns_per_hit[kind]
        foreign += load.foreign_calls * ns_per_hit[f"foreign_{kind}"]
    if effort.scheduler and not effort.sliced:
        own += load.switches * ns_per_hit["switch"]
        foreign += load.foreign_switches * ns_per_hit["foreign_switch"]
        if effort.stack_every:
            own += load.switches / effort.stack_every * ns_per_hit["stack"]
    return own, foreign


def observe(observed: Observed, elapsed_ns: int, calls: str = "off", *, scheduler: bool = False) -> None:
    """Note for how long was looked at what; `calls` as of an effort."""
    observed["calls"] += elapsed_ns * (calls != "off")
    observed["timed"] += elapsed_ns * (calls == "timed")
    observed["scheduler"] += elapsed_ns * scheduler


class Governor:
    """Chooses the rung of the ladder, several times a second.

    Args:
        budget: Share of one core that the probes may cost the processes looked at. All others together may lose
            that share of the whole machine.
        cpus: How many cores the machine has.
        ladder: The efforts to choose from, the greatest first.
        is_careful: Begin with what costs little, and look more closely once that has told what it would cost.
    """

    def __init__(
        self,
        budget: float,
        *,
        stacks: bool = False,
        cpus: int = 1,
        ladder: Sequence[Effort] = LADDER,
        is_careful: bool = False,
    ) -> None:
        self.budget_ns = budget * 1e9
        self._foreign_budget_ns = self.budget_ns * cpus
        self._ladder = ladder
        self._ns_per_hit = dict(NS_PER_HIT)
        """What one hit costs, until `learn` says otherwise."""
        self.stacks = stacks
        self.rung = self._least_telling() if is_careful else 0
        self._overspent_ns = 0.0
        self._mean_ns = self._high_ns = self.budget_ns
        """What looking has cost of late, in ns per second, and at most."""
        self._rest_s = 0.0 if is_careful else REST_S
        self._rested_s = 0.0

    @property
    def effort(self) -> Effort:
        """What to do now."""
        return self._as_done(self.rung)

    @property
    def shed(self) -> bool:
        """Whether anything that was asked for is not done."""
        return self.effort != self._as_done(0)

    @property
    def spare_ns(self) -> float:
        """What it leaves of its budget to others, in ns per second. Slices of the time are as many as it pays for."""
        return max(0.0, self.budget_ns - self._high_ns)

    def learn(self, kind: str, ns: float) -> None:
        """What a hit of this kind has cost here."""
        self._ns_per_hit[kind] = ns

    def learn_switches(self, load: EventLoad, ns: float) -> None:
        """What the scheduler's programs have cost here in a second of such a load, stacks apart: they ran for `ns`."""
        ratio = NS_PER_HIT["foreign_switch"] / NS_PER_HIT["switch"]
        ns_per_switch = OUTSIDE_NS + ns / (load.switches + ratio * load.foreign_switches)
        self.learn("switch", ns_per_switch)
        self.learn("foreign_switch", ratio * ns_per_switch)

    def cost_of_switches(self, load: EventLoad) -> float:
        """What it costs to follow threads all the time under a load, in ns per second; stacks apart."""
        own, foreign = cost(load, Effort(0, "off"), self._ns_per_hit)
        return max(own, foreign * self.budget_ns / self._foreign_budget_ns)

    def judge(self, load: EventLoad, elapsed_s: float) -> bool:
        """Take the load since the last time into account; whether the effort changed."""
        before = self.effort
        excess_ns = self._excess_ns(load, before)
        is_counted = before.scheduler and not before.sliced
        self._remember(self.budget_ns + excess_ns if is_counted else self.budget_ns, elapsed_s)
        self._overspent_ns = max(0.0, self._overspent_ns + excess_ns * elapsed_s)
        if excess_ns > 0:
            self._rested_s = 0.0
            if self._overspent_ns >= CREDIT_S * self.budget_ns:
                self._step_down(load)
        else:
            self._rested_s += elapsed_s
            if self.rung and self._rested_s >= self._rest_s:
                self._step_up(load)
        return self.effort != before

    def _remember(self, ns: float, elapsed_s: float) -> None:
        self._mean_ns += (ns - self._mean_ns) * (1 - 0.5 ** (elapsed_s / MEAN_S))
        self._high_ns = max(self._mean_ns, self._high_ns * 0.5 ** (elapsed_s / HIGH_S))

    def _step_down(self, load: EventLoad) -> None:
        """The first rung that fits; each fall makes the rest before the next try longer."""
        rungs = range(self.rung, len(self._ladder))
        fitting = (rung for rung in rungs if self._excess_ns(load, self._ladder[rung]) <= 0)
        self.rung = next(fitting, len(self._ladder) - 1)
        self._overspent_ns = 0.0
        self._rest_s = longer_rest_s(self._rest_s, REST_S, LONGEST_REST_S)

    def _excess_ns(self, load: EventLoad, effort: Effort, share: float = 1.0) -> float:
        """By how much an effort would be over this share of the budget, in ns per second; negative within it."""
        own, foreign = cost(load, effort if self.stacks else replace(effort, stack_every=0), self._ns_per_hit)
        scale = self.budget_ns / self._foreign_budget_ns
        return max(own, foreign * scale) - share * self.budget_ns

    def _step_up(self, load: EventLoad) -> None:
        """The greatest effort that will fit. What is not counted now is only known by trying: the next rung does."""
        now = self._ladder[self.rung]
        for rung in range(self.rung):
            wanted = self._ladder[rung]
            is_told = (now.calls != "off" or wanted.calls == "off") and now.scheduler >= wanted.scheduler
            is_next = rung == self.rung - 1 or self._as_done(rung) == self._as_done(self.rung - 1)
            if (is_told or is_next) and self._excess_ns(load, wanted, FITS) <= 0:
                self.rung = rung
                self._rested_s = 0.0
                return

    def _as_done(self, rung: int) -> Effort:
        return self._ladder[rung] if self.stacks else replace(self._ladder[rung], stack_every=0)

    def _least_telling(self) -> int:
        """The last rung that counts all that the ones above it would look at."""
        return max(rung for rung, effort in enumerate(self._ladder) if effort.calls != "off" and effort.scheduler)
