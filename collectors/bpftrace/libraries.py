"""Which library functions to look at: those of CUDA and NCCL that a process really maps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llmtop.collectors.bpftrace import elf
from llmtop.collectors.bpftrace.counts import NUMBERS
from llmtop.collectors.bpftrace.script import Function
from llmtop.collectors.ebpf.helper.functions import LAUNCHES, SYNCHRONISING
from llmtop.collectors.ebpf.helper.library import mapped_libraries, starts_gently

REST_S = 60.0
"""How long a function stays without probes that was called too often."""


@dataclass(frozen=True)
class Probed:
    """A function that can have probes, and whether the kernel has to step through its first instruction."""

    function: Function
    is_gentle: bool


class Libraries:
    """Finds the functions, and takes the costliest away when they cost too much.

    Args:
        budget_ns: What their probes may cost per second.
        ns_per_call: Of a function that begins with a push, and of any other.
    """

    def __init__(self, budget_ns: float, ns_per_call: tuple[float, float]) -> None:
        self._budget_ns = budget_ns
        self._ns_per_call = ns_per_call
        self._files: dict[tuple[int, int], tuple[Probed, ...]] = {}
        """By device and inode: processes share libraries, by whatever path they see them."""
        self._rests: dict[str, float] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self.notes: dict[str, str] = {}
        """What is not probed now and why, by function."""

    def look(self, pids: Iterable[int]) -> None:
        """Find what has been mapped since."""
        for pid in pids:
            for path, names in mapped_libraries(pid).items():
                self._add(f"/proc/{pid}/root{path}", names)

    def functions(self) -> tuple[Function, ...]:
        """Those to look at now."""
        found = (one.function for several in self._files.values() for one in several)
        return tuple(function for function in found if function.symbol not in self._rests)

    def weigh(self, counts: dict[tuple[int, str], int], elapsed_s: float, now_s: float) -> None:
        """Give the costliest functions a rest until the others fit the budget; end rests that have lasted."""
        gentle = {one.function.symbol: one.is_gentle for several in self._files.values() for one in several}
        rates: dict[str, float] = {}
        for (pid, symbol), count in counts.items():
            rates[symbol] = rates.get(symbol, 0.0) + (count - self._counts.get((pid, symbol), 0)) / elapsed_s
        self._counts = counts
        cost = {symbol: rate * self._ns_per_call[not gentle.get(symbol, True)] for symbol, rate in rates.items()}
        spent = sum(cost.values())
        for symbol in sorted(cost, key=lambda symbol: -cost[symbol]):
            if spent <= self._budget_ns:
                break
            spent -= cost[symbol]
            self._rests[symbol] = now_s + REST_S
            self.notes[symbol] = (
                f"{rates[symbol]:.0f} calls/s would cost {cost[symbol] / 1e7:.1f} % of a core: "
                "counted again in a minute"
            )
        for symbol in [symbol for symbol, until in self._rests.items() if until <= now_s]:
            del self._rests[symbol]
            self.notes.pop(symbol, None)

    def _add(self, path: str, names: tuple[str, ...]) -> None:
        try:
            status = Path(path).stat()
            file = (status.st_dev, status.st_ino)
            if file not in self._files:
                places = elf.functions(path, names)
                found = (_probed(path, symbol, place) for symbol, place in places.items())
                self._files[file] = tuple(one for one in found if one.function.can_be_written)
        except (OSError, ValueError):  # the process has ended, or this is no library
            return


def _probed(path: str, symbol: str, place: int) -> Probed:
    function = Function(path, symbol, NUMBERS[symbol], symbol in LAUNCHES, symbol in SYNCHRONISING)
    return Probed(function, starts_gently(path, place))
