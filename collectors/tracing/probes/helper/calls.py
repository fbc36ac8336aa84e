"""System calls by process: counts, failures, time, a histogram of latencies."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from ... import wire
from ...helper.kernel import attach_raw_tracepoint, close_all
from ...helper.syscall_numbers import SPIN_CALLS, TRAPS, call_numbers, spin_kind
from ...helper.system import UnavailableError
from .programs import RAW_TRACEPOINT, SLOTS, Module, ProgramText


def source(machine: str = platform.machine()) -> ProgramText:
    """The program for a machine, which knows the calls that may only pass the time by number."""
    numbers = {name.upper(): number for name, number in call_numbers(machine).items() if name in SPIN_CALLS}
    numbers |= TRAPS.get(machine, {})
    return ProgramText("calls", flags=tuple(f"-DNR_{name}={number}" for name, number in sorted(numbers.items())))


SOURCE = source()
_TRACEPOINTS = (("sys_enter", "on_call"), ("sys_exit", "on_return"))


class SystemCallProbes:
    """The probes on system calls."""

    def __init__(self, module: Module) -> None:
        self._programs = {function: module.load(function, RAW_TRACEPOINT) for _, function in _TRACEPOINTS}
        self._calls = module.table("calls", "II", f"QQQQ{SLOTS}Q")
        self._spins = module.table("spins", "II", "QI4x")
        self._started = module.table("started", "I", "QI4x")
        self._settings = module.table("settings", "I", "I")
        self._lost = module.table("lost", "I", "Q")
        self._ended: dict[tuple[int, int], int] = {}
        """Spins of threads that are no more, by (tgid, call)."""
        self._sent: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._sent_waits: dict[int, int] = {}
        self._left: set[int] = set()
        """Processes that ended by the last read: a call that was under way then may be counted after it."""
        self._sent_spins: dict[tuple[int, str], int] = {}
        self.mode = "off"
        self._held: dict[str, list[int]] = {}

    def set_mode(self, mode: str) -> None:
        """Time the calls, count them, or leave them alone ("timed", "counted", "off")."""
        if mode == self.mode:
            return
        self._settings.put((0,), (mode == "counted",))
        # A call that is under way when the probes come off must not be timed until they are back.
        self._started.clear()
        for tracepoint, function in _TRACEPOINTS:
            self._hold(tracepoint, function, mode == "timed" or (mode == "counted" and tracepoint == "sys_enter"))
        self.mode = mode

    def _hold(self, tracepoint: str, function: str, wanted: bool) -> None:
        """Attach or detach one of the probes, unless it is as wanted."""
        if wanted and tracepoint not in self._held:
            try:
                self._held[tracepoint] = [attach_raw_tracepoint(tracepoint, self._programs[function])]
            except OSError as error:
                raise UnavailableError(f"the raw tracepoint {tracepoint} cannot be used: {error}") from error
        elif not wanted:
            close_all(self._held.pop(tracepoint, []))

    def read(self, ended: Iterable[tuple[int, int]], gone: Iterable[int]) -> wire.Sample:
        """What changed: sums since the start, by process and call; spins by thread too."""
        dead, finished = {tid for tid, _ in ended}, set(gone)
        late, self._left = self._left, finished
        timed: list[wire.CallTotal] = []
        waits: dict[int, int] = {}
        for (tgid, call), (count, errors, ns, switch_timeouts, *slots) in self._calls.entries():
            if tgid in late:
                self._calls.remove(tgid, call)
                continue
            if self._is_news(tgid, call, (count, errors, ns)):
                timed.append(
                    wire.CallTotal(tgid, call, count, errors, ns, {slot: n for slot, n in enumerate(slots) if n})
                )
            if switch_timeouts:
                waits[tgid] = waits.get(tgid, 0) + switch_timeouts
            if tgid in finished:
                self._calls.remove(tgid, call)
        changed_waits = [
            wire.SwitchTimeouts(tgid, count) for tgid, count in waits.items() if self._sent_waits.get(tgid) != count
        ]
        self._sent_waits.update(waits)
        spun, spins = self._read_spins(dead)
        for tid in dead:
            self._started.remove(tid)
        self._forget(finished)
        return {"calls": timed + spun, "switch_timeouts": changed_waits, "spins": spins}

    def _is_news(self, tgid: int, call: int, state: tuple[int, int, int]) -> bool:
        if self._sent.get((tgid, call)) == state:
            return False
        self._sent[tgid, call] = state
        return True

    def _read_spins(self, dead: set[int]) -> tuple[list[wire.CallTotal], list[wire.SpinTotal]]:
        """By process and call, as calls that were only counted; and by thread."""
        sums, threads = dict(self._ended), dict[tuple[int, int, str], int]()
        for (tid, call), (count, tgid) in self._spins.entries():
            sums[tgid, call] = sums.get((tgid, call), 0) + count
            place = (tgid, tid, spin_kind(call))
            threads[place] = threads.get(place, 0) + count
            if tid in dead:
                self._ended[tgid, call] = self._ended.get((tgid, call), 0) + count
                self._spins.remove(tid, call)
        counted = [
            wire.CallTotal(*place, count, 0, 0, {})
            for place, count in sums.items()
            if self._is_news(*place, (count, 0, 0))
        ]
        return counted, self._changed_spins(threads, dead)

    def lost(self) -> int:
        """Events that found no room in the maps."""
        return self._lost.count()

    def _changed_spins(self, spins: dict[tuple[int, int, str], int], dead: set[int]) -> list[wire.SpinTotal]:
        changed: list[wire.SpinTotal] = []
        for (tgid, tid, kind), count in spins.items():
            if self._sent_spins.get((tid, kind)) != count:
                self._sent_spins[tid, kind] = count
                changed.append(wire.SpinTotal(tgid, tid, kind, count))
        for place in [place for place in self._sent_spins if place[0] in dead]:
            del self._sent_spins[place]
        return changed

    def _forget(self, gone: set[int]) -> None:
        if gone:
            self._ended = {key: count for key, count in self._ended.items() if key[0] not in gone}
            self._sent = {key: state for key, state in self._sent.items() if key[0] not in gone}
            self._sent_waits = {pid: count for pid, count in self._sent_waits.items() if pid not in gone}
