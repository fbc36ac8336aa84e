"""What runs on the CPUs, looked at many times a second."""

from __future__ import annotations

from collections.abc import Iterable

from ... import wire
from ...helper.governor import HERTZ
from ...helper.kernel import attach_timer, close_all
from ...helper.symbols import Symbols
from ...helper.system import UnavailableError
from .programs import PERF_EVENT, Module, ProgramText
from .stack_table import STACK, StackTable

SOURCE = ProgramText("samples")

_CPU_CLOCK = 0
"""enum perf_sw_ids of include/uapi/linux/perf_event.h. A software clock works in every VM."""


class Samples:
    """A timer on each CPU; per-process perf events would be set anew at every switch."""

    def __init__(self, module: Module, symbols: Symbols) -> None:
        self._program = module.load("on_sample", PERF_EVENT)
        self._samples = module.table("samples", "IIii", "Q")
        self._stacks = StackTable(module.table("stacks", "I", STACK), symbols)
        self._lost = module.table("lost", "I", "Q")
        self._timers: list[int] = []
        self.is_on = False

    def set_on(self, on: bool) -> None:
        """Start or stop the timers."""
        if on == self.is_on:
            return
        if on:
            try:
                self._timers = attach_timer(_CPU_CLOCK, HERTZ, self._program)
            except OSError as error:
                raise UnavailableError(
                    f"no perf events: {error}", "sudo sysctl kernel.perf_event_paranoid=2"
                ) from error
        else:
            close_all(self._timers)
        self.is_on = on

    def read(self) -> list[wire.RunStack]:
        """Since the last look; a sample stands for the time between two."""
        period_ns = 1_000_000_000 // HERTZ
        merged: dict[tuple[int, int, tuple[str, ...]], int] = {}
        for (tid, tgid, user, kernel), (count,) in self._samples.entries(take=True):
            key = (tgid, tid, self._stacks.frames(tgid, user, kernel))
            merged[key] = merged.get(key, 0) + count * period_ns
        if self._stacks.is_full:
            self._stacks.clear()
        return [wire.RunStack(*key, ns) for key, ns in merged.items()]

    def lost(self) -> int:
        """Samples that found no room in the map."""
        return self._lost.count()

    def forget_names(self, tgids: Iterable[int]) -> None:
        """These processes ended or became other programs."""
        for tgid in tgids:
            self._stacks.forget(tgid)
