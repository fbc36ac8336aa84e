"""What runs on the CPUs, looked at many times a second."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from .governor import HERTZ
from .programs import compile_program, load
from .symbols import StackTable, Symbols
from .system import BatchReader, UnavailableError

_SOFTWARE, _CPU_CLOCK = 1, 0
"""perf_type_id and perf_sw_ids of include/uapi/linux/perf_event.h. A software clock works in every VM."""


class Samples:
    """A timer on each CPU; per-process perf events would be set anew at every switch."""

    def __init__(self, bpf: Any, symbols: Symbols) -> None:
        self._module = compile_program(bpf, "samples")
        load(self._module, "on_sample", bpf.PERF_EVENT)
        self._samples = BatchReader.of(self._module["samples"], "IIii", "Q")
        self._stacks = StackTable(self._module["stacks"], symbols)
        self.is_on = False

    def set_on(self, on: bool) -> None:
        """Start or stop the timers."""
        if on == self.is_on:
            return
        if on:
            try:
                self._module.attach_perf_event(_SOFTWARE, _CPU_CLOCK, fn_name="on_sample", sample_freq=HERTZ)
            except Exception as error:  # bcc raises nothing narrower
                raise UnavailableError(
                    f"no perf events: {error}", "sudo sysctl kernel.perf_event_paranoid=2"
                ) from error
        else:
            self._module.detach_perf_event(_SOFTWARE, _CPU_CLOCK)
        self.is_on = on

    def read(self) -> list[list[Any]]:
        """[tgid, tid, frames, ns] since the last look; a sample stands for the time between two."""
        period_ns = 1_000_000_000 // HERTZ
        merged: dict[tuple[int, int, tuple[str, ...]], int] = {}
        for (tid, tgid, user, kernel), (count,) in self._samples.entries(take=True):
            key = (tgid, tid, self._stacks.frames(tgid, user, kernel))
            merged[key] = merged.get(key, 0) + count * period_ns
        if self._stacks.is_full:
            self._stacks.clear()
        return [[*key, ns] for key, ns in merged.items()]

    def lost(self) -> int:
        """Samples that found no room in the map."""
        return int(self._module["lost"][ctypes.c_int(0)].value)

    def forget_names(self, tgids: Iterable[int]) -> None:
        """These processes ended or became other programs."""
        for tgid in tgids:
            self._stacks.forget(tgid)
