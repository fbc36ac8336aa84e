"""System calls by process: counts, failures, time, a histogram of latencies."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .programs import RAW_TRACEPOINT, SLOTS, compile_program, load
from .system import BatchReader, UnavailableError

WITHOUT_WAIT = 0x8000
"""Set in the id of a poll that was told not to wait, as in programs/calls.c."""
_SPIN_CALLS = {
    "x86_64": {"SCHED_YIELD": 24, "POLL": 7, "PPOLL": 271, "EPOLL_WAIT": 232, "EPOLL_PWAIT": 281},
    "aarch64": {"SCHED_YIELD": 124, "PPOLL": 73, "EPOLL_PWAIT": 22},
}
_TRACEPOINTS = (("sys_enter", "on_call"), ("sys_exit", "on_return"))


@dataclass
class Total:
    """Sums of one system call of one process."""

    count: int = 0
    errors: int = 0
    ns: int = 0
    slots: list[int] = field(default_factory=lambda: [0] * SLOTS)

    def add(self, value: tuple[int, ...]) -> None:
        """Add one thread's share."""
        self.count += value[0]
        self.errors += value[1]
        self.ns += value[2]
        if value[2]:
            self.slots = [a + b for a, b in zip(self.slots, value[6:])]


class Calls:
    """The probes on system calls."""

    def __init__(self, bpf: Any) -> None:
        flags = tuple(f"-DNR_{name}={number}" for name, number in _SPIN_CALLS[platform.machine()].items())
        self._module = compile_program(bpf, "calls", flags=flags)
        for _, function in _TRACEPOINTS:
            load(self._module, function, RAW_TRACEPOINT)
        self._calls = BatchReader.of(self._module["calls"], "II", "QQQIII28I4x")
        self._ended: dict[tuple[int, int], Total] = {}
        """Sums of threads that are no more, by (tgid, call)."""
        self._ended_waits: dict[int, int] = {}
        self._sent: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._sent_waits: dict[int, int] = {}
        self._sent_spins: dict[tuple[int, str], int] = {}
        self.mode = "off"
        self._held: set[str] = set()

    def set_mode(self, mode: str) -> None:
        """Time the calls, count them, or leave them alone ("timed", "counted", "off")."""
        if mode == self.mode:
            return
        self._module["settings"][ctypes.c_int(0)] = ctypes.c_uint32(mode == "counted")
        # A call that is under way when the probes come off must not be timed until they are back.
        self._module["started"].clear()
        for tracepoint, function in _TRACEPOINTS:
            self._hold(tracepoint, function, mode == "timed" or (mode == "counted" and tracepoint == "sys_enter"))
        self.mode = mode

    def _hold(self, tracepoint: str, function: str, wanted: bool) -> None:
        """Attach or detach one of the probes, unless it is as wanted."""
        if wanted and tracepoint not in self._held:
            self._attach(tracepoint, function)
            self._held.add(tracepoint)
        elif not wanted and tracepoint in self._held:
            self._module.detach_raw_tracepoint(tracepoint)
            self._held.discard(tracepoint)

    def _attach(self, tracepoint: str, function: str) -> None:
        try:
            self._module.attach_raw_tracepoint(tracepoint, function)
        except Exception as error:  # bcc raises nothing narrower
            raise UnavailableError(f"the raw tracepoint {tracepoint} cannot be used: {error}") from error

    def read(self, ended: Iterable[tuple[int, int]], gone: Iterable[int]) -> dict[str, Any]:
        """What changed: sums since the start, by process and call."""
        dead = {tid for tid, _ in ended}
        sums: dict[tuple[int, int], Total] = {}
        spins: dict[tuple[int, int, str], int] = {}
        waits = dict(self._ended_waits)
        for (tid, call), value in self._calls.entries():
            tgid = value[3]
            if kind := spin_kind(call):
                spins[tgid, tid, kind] = spins.get((tgid, tid, kind), 0) + value[0]
            into = self._ended if tid in dead else sums
            into.setdefault((tgid, call), Total()).add(value)
            if value[5]:
                waits[tgid] = waits.get(tgid, 0) + value[5]
            if tid in dead:
                self._retire(tid, call, tgid, value[5])
        for tid in dead:
            _delete(self._module["started"], ctypes.c_uint32(tid))
        for key, total in self._ended.items():
            sums[key] = _joined(sums.get(key), total)
        changed = self._changed(sums)
        changed_waits = [[tgid, count] for tgid, count in waits.items() if self._sent_waits.get(tgid) != count]
        self._sent_waits.update(waits)
        changed_spins = self._changed_spins(spins, dead)
        self._forget(gone)
        return {"calls": changed, "switch_timeouts": changed_waits, "spins": changed_spins}

    def lost(self) -> int:
        """Events that found no room in the maps."""
        return int(self._module["lost"][ctypes.c_int(0)].value)

    def _retire(self, tid: int, call: int, tgid: int, switch_timeouts: int) -> None:
        key = self._module["calls"].Key(tid, call)
        _delete(self._module["calls"], key)
        if switch_timeouts:
            self._ended_waits[tgid] = self._ended_waits.get(tgid, 0) + switch_timeouts

    def _changed(self, sums: dict[tuple[int, int], Total]) -> list[list[Any]]:
        """[tgid, call, count, errors, ns, {slot: count}]; what was only counted has no errors and no time."""
        changed = []
        for (tgid, call), total in sums.items():
            state = (total.count, total.errors, total.ns)
            if self._sent.get((tgid, call)) != state:
                self._sent[tgid, call] = state
                slots = {slot: count for slot, count in enumerate(total.slots) if count}
                changed.append([tgid, call, total.count, total.errors, total.ns, slots])
        return changed

    def _changed_spins(self, spins: dict[tuple[int, int, str], int], dead: set[int]) -> list[list[Any]]:
        """[tgid, tid, kind, count]."""
        changed: list[list[Any]] = []
        for (tgid, tid, kind), count in spins.items():
            if self._sent_spins.get((tid, kind)) != count:
                self._sent_spins[tid, kind] = count
                changed.append([tgid, tid, kind, count])
        for place in [place for place in self._sent_spins if place[0] in dead]:
            del self._sent_spins[place]
        return changed

    def _forget(self, gone: Iterable[int]) -> None:
        dead = set(gone)
        if dead:
            self._ended = {key: total for key, total in self._ended.items() if key[0] not in dead}
            self._sent = {key: state for key, state in self._sent.items() if key[0] not in dead}
            self._ended_waits = {pid: count for pid, count in self._ended_waits.items() if pid not in dead}
            self._sent_waits = {pid: count for pid, count in self._sent_waits.items() if pid not in dead}


def spin_kind(call: int) -> str:
    """What kind of call that only passes the time this is; empty for all others.

    >>> spin_kind(7 | WITHOUT_WAIT), spin_kind(7)
    ('poll', '')
    """
    if call & WITHOUT_WAIT:
        return "poll"
    return "sched_yield" if call == _SPIN_CALLS[platform.machine()]["SCHED_YIELD"] else ""


def _joined(alive: Total | None, ended: Total) -> Total:
    if alive is None:
        return ended
    alive.count += ended.count
    alive.errors += ended.errors
    alive.ns += ended.ns
    alive.slots = [a + b for a, b in zip(alive.slots, ended.slots)]
    return alive


def _delete(table: Any, key: Any) -> None:
    try:
        del table[key]
    except KeyError:  # it was not there
        return


def names() -> dict[int, str]:
    """System call names by number, as far as bcc knows them.

    bcc's table is x86-64's; on other machines it asks the program ausyscall.
    """
    try:
        from bcc.syscall import syscalls
    except Exception:  # bcc raises nothing narrower when there is no ausyscall
        return {}
    table = {number: name.decode("ascii", "replace") for number, name in syscalls.items()}
    return {**_NEWER, **table}


_NEWER = {
    424: "pidfd_send_signal",
    425: "io_uring_setup",
    426: "io_uring_enter",
    427: "io_uring_register",
    434: "pidfd_open",
    435: "clone3",
    436: "close_range",
    437: "openat2",
    438: "pidfd_getfd",
    439: "faccessat2",
    440: "process_madvise",
    441: "epoll_pwait2",
    449: "futex_waitv",
    454: "futex_wake",
    455: "futex_wait",
    456: "futex_requeue",
}
"""Numbers that all machines share: scripts/syscall.tbl of Linux."""
