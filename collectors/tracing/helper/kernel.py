"""Maps, programs and what they are attached to, by bpf(2) and perf_event_open(2): no library is needed for that.

Everything is held by a file descriptor of this process: closed, it is gone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .elf import Site
from .system import bpf_call, libc, tracefs

_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE, _MAP_NEXT, _PROGRAM_LOAD = range(6)
_RAW_TRACEPOINT_OPEN = 17
_MAP_LOOKUP_BATCH, _MAP_LOOKUP_AND_DELETE_BATCH = 24, 25
_LINK_CREATE = 28
_ENABLE_STATS = 32
"""include/uapi/linux/bpf.h: enum bpf_cmd."""
_NOEXIST = 1
_LOG_BYTES = 1 << 20
"""For what the kernel's verifier says of a program that it refuses."""
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_TRACEPOINT, _SOFTWARE = 2, 1
_SET_BPF, _ENABLE, _SET_FILTER = 0x40042408, 0x2400, 0x40082406
"""PERF_EVENT_IOC_SET_BPF, PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_SET_FILTER."""
_MONOTONIC = 1
"""CLOCK_MONOTONIC of include/uapi/linux/time.h."""
_DISABLED, _FREQUENCY = 1 << 0, 1 << 10
_CLOSE_ON_EXEC = 8
_TOGETHER, _WHOLE_GROUP = 1 | 2 | 8, 1
"""PERF_FORMAT_TOTAL_TIME_ENABLED, _RUNNING and _GROUP; PERF_IOC_FLAG_GROUP."""
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQQQQIiQIHH")
"""struct perf_event_attr of include/uapi/linux/perf_event.h, version 5."""
_UPROBES = Path("/sys/bus/event_source/devices/uprobe")
_SEMAPHORE_BIT = 32
"""Where `config` of a uprobe has the place of a semaphore (format/ref_ctr_offset, "config:32-63")."""
_PERF_EVENT, _UPROBE_MULTI = 41, 48
"""enum bpf_attach_type."""


@dataclass(frozen=True)
class Map:
    """A BPF map: its descriptor, and how it was made."""

    descriptor: int
    kind: int
    key_size: int
    value_size: int
    capacity: int

    @classmethod
    def make(cls, kind: int, key_size: int, value_size: int, capacity: int, flags: int) -> Map:
        """A new one.

        Raises:
            OSError: The kernel refuses it.
        """
        attributes = struct.pack("=5I", kind, key_size, value_size, capacity, flags)
        return cls(_made(_MAP_CREATE, attributes, "a map"), kind, key_size, value_size, capacity)


@dataclass(frozen=True)
class Table:
    """Entries of a map, by the layouts of the C structures in it.

    Raises:
        ValueError: They are not of those sizes.
    """

    map: Map
    key: struct.Struct
    value: struct.Struct

    @classmethod
    def of(cls, map_: Map, key: str, value: str) -> Table:
        """The formats are those of the module struct."""
        table = cls(map_, struct.Struct("=" + key), struct.Struct("=" + value))
        if (map_.key_size, map_.value_size) != (table.key.size, table.value.size):
            sizes = (map_.key_size, map_.value_size)
            raise ValueError(f"layout of a map: {sizes} is not {(table.key.size, table.value.size)}")
        return table

    def get(self, *key: Any) -> tuple[Any, ...] | None:
        """One entry; None where there is none."""
        value = ctypes.create_string_buffer(self.value.size)
        return self.value.unpack(value.raw) if self._entry(_MAP_LOOKUP, key, value) else None

    def count(self) -> int:
        """The number of a map that holds but one; 0 before there is any."""
        return int((self.get(0) or (0,))[0])

    def put(self, key: tuple[Any, ...], value: tuple[Any, ...], *, only_new: bool = False) -> None:
        """Set an entry; with `only_new` unless there is one under this key already, or no room for it.

        Raises:
            OSError: There is no room.
        """
        buffer = ctypes.create_string_buffer(self.value.pack(*value), self.value.size)
        allowed = (errno.EEXIST, errno.E2BIG) if only_new else ()
        self._entry(_MAP_UPDATE, key, buffer, _NOEXIST if only_new else 0, allowed)

    def remove(self, *key: Any) -> None:
        """Remove an entry if there is one."""
        self._entry(_MAP_DELETE, key, None)

    def clear(self) -> None:
        """Remove all entries."""
        for key in list(self.keys()):
            self.remove(*key)

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """The keys there are, one by one: for maps that cannot be read as a whole."""
        following = ctypes.create_string_buffer(self.key.size)
        before = 0
        last = ctypes.create_string_buffer(self.key.size)
        while not _call(_MAP_NEXT, struct.pack("=IIQQ", self.map.descriptor, 0, before, ctypes.addressof(following))):
            yield self.key.unpack(following.raw)
            last.raw = following.raw
            before = ctypes.addressof(last)

    def entries(self, *, take: bool = False) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """All entries in one system call (Linux 5.6), to be used before the next; `take` removes them as it reads.

        Raises:
            OSError: They cannot be read.
        """
        keys, values = self._buffers
        place = ctypes.c_uint64()
        attributes = ctypes.create_string_buffer(
            struct.pack(
                "=QQQQIIQQ",
                0,
                ctypes.addressof(place),
                ctypes.addressof(keys),
                ctypes.addressof(values),
                self.map.capacity,
                self.map.descriptor,
                0,
                0,
            )
        )
        failed = bpf_call(_MAP_LOOKUP_AND_DELETE_BATCH if take else _MAP_LOOKUP_BATCH, attributes)
        if failed and ctypes.get_errno() != errno.ENOENT:  # ENOENT: that was the last bucket
            raise OSError(ctypes.get_errno(), "reading a BPF map failed")
        count = struct.unpack_from("=I", attributes, 32)[0]
        return zip(
            self.key.iter_unpack(memoryview(keys)[: count * self.key.size]),
            self.value.iter_unpack(memoryview(values)[: count * self.value.size]),
        )

    @cached_property
    def _buffers(self) -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]:
        """Room for all entries, kept: megabytes made anew at each look cost more than the look."""
        return (
            ctypes.create_string_buffer(self.map.capacity * self.key.size),
            ctypes.create_string_buffer(self.map.capacity * self.value.size),
        )

    def _entry(
        self,
        command: int,
        key: tuple[Any, ...],
        value: ctypes.Array[ctypes.c_char] | None,
        flags: int = 0,
        allowed: tuple[int, ...] = (errno.ENOENT,),
    ) -> bool:
        place = ctypes.create_string_buffer(self.key.pack(*key), self.key.size)
        at = ctypes.addressof(value) if value is not None else 0
        attributes = struct.pack("=IIQQQ", self.map.descriptor, 0, ctypes.addressof(place), at, flags)
        if not _call(command, attributes):
            return True
        if ctypes.get_errno() not in allowed:
            raise OSError(ctypes.get_errno(), "an entry of a BPF map cannot be had")
        return False


@dataclass(frozen=True)
class CpuCounters:
    """Reads a BPF array of 64-bit counters that each CPU keeps for itself."""

    descriptor: int
    cpus: int

    @classmethod
    def of(cls, map_: Map) -> CpuCounters:
        """A reader of such a map."""
        last = Path("/sys/devices/system/cpu/possible").read_text().strip().replace("-", ",").rpartition(",")[2]
        return cls(map_.descriptor, int(last) + 1)

    def sum(self, place: int) -> int:
        """One counter, over all CPUs.

        Raises:
            OSError: It cannot be read.
        """
        key, values = ctypes.c_uint32(place), (ctypes.c_uint64 * self.cpus)()
        attributes = struct.pack("=IIQQQ", self.descriptor, 0, ctypes.addressof(key), ctypes.addressof(values), 0)
        if _call(_MAP_LOOKUP, attributes):
            raise OSError(ctypes.get_errno(), "reading a BPF map failed")
        return sum(values)


class RefusedError(OSError):
    """The kernel does not load a program; `verdict` is its last word, empty where it gave none."""

    def __init__(self, number: int, verdict: str) -> None:
        super().__init__(number, os.strerror(number))
        self.verdict = verdict


def load_program(code: bytes, kind: int, expected_attach: int = 0) -> int:
    """The descriptor of a program.

    Raises:
        RefusedError: The kernel does not load it.
    """
    text, license_ = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")

    def load(log: ctypes.Array[ctypes.c_char] | None) -> int:
        size, at = (len(log), ctypes.addressof(log)) if log is not None else (0, 0)
        attributes = struct.pack(
            "=IIQQIIQII16sII",
            kind,
            len(code) // 8,
            ctypes.addressof(text),
            ctypes.addressof(license_),
            log is not None,
            size,
            at,
            0,
            0,
            b"llmtop",
            0,
            expected_attach,
        )
        return _call(_PROGRAM_LOAD, attributes)

    descriptor = load(None)
    if descriptor >= 0:
        return descriptor
    number, log = ctypes.get_errno(), ctypes.create_string_buffer(_LOG_BYTES)
    descriptor = load(log)
    if descriptor >= 0:
        return descriptor
    lines = log.value.decode("utf-8", "replace").splitlines()
    words = [line.strip() for line in lines if line.strip() and not line.startswith("processed ")]
    raise RefusedError(number, words[-1] if words else "")


def attach_tracepoint(name: str, program: int) -> int:
    """Have a program run at a tracepoint (`group:event`), on all CPUs.

    The event itself stays disabled: the program runs all the same, and the kernel has nothing to hand out after it.

    Raises:
        OSError: There is no such tracepoint, or it is not ours to use.
    """
    event = _perf_event(_TRACEPOINT, _number_of(name), pid=-1, cpu=0)
    return _with_program(event, program)


def listen_to_tracepoint(name: str, cpu: int, only: str, sampled: int, flags: int) -> int:
    """Have a tracepoint on one CPU written down, where the kernel's filter `only` lets it through; to be mapped.

    `sampled` is what of each is told, and `flags` what else: perf_event_open(2).

    Raises:
        OSError: There is no such tracepoint, or it is not ours to use.
    """
    event = _perf_event(_TRACEPOINT, _number_of(name), pid=-1, cpu=cpu, flags=flags, sampled=sampled)
    text = ctypes.create_string_buffer(only.encode())
    try:
        _control(event, _SET_FILTER, ctypes.addressof(text))
        _control(event, _ENABLE, 0)
    except OSError:
        os.close(event)
        raise
    return event


def _number_of(tracepoint: str) -> int:
    return int((tracefs() / "events" / tracepoint.replace(":", "/") / "id").read_text())


def attach_raw_tracepoint(name: str, program: int) -> int:
    """Likewise, at a raw tracepoint.

    Raises:
        OSError: Likewise.
    """
    text = ctypes.create_string_buffer(name.encode())
    return _made(_RAW_TRACEPOINT_OPEN, struct.pack("=QII", ctypes.addressof(text), program, 0), "a raw tracepoint")


def attach_timer(event: int, hertz: int, program: int) -> list[int]:
    """Have a program run so many times a second on each CPU that is online, by a software event.

    Raises:
        OSError: Timers are not ours to use.
    """
    timers: list[int] = []
    try:
        for cpu in cpus_online():
            timer = _perf_event(_SOFTWARE, event, pid=-1, cpu=cpu, period=hertz, flags=_FREQUENCY)
            timers.append(_with_program(timer, program))
            _control(timers[-1], _ENABLE, 0)
    except OSError:
        close_all(timers)
        raise
    return timers


def attach_uprobe(
    path: str, site: Site, pid: int, program: int, *, is_return: bool, cookie: int | None = None
) -> list[int]:
    """Have a program run where a process comes to a place in a file that it maps, or returns from there.

    With a `cookie` (Linux 5.15) the program can ask for that number. The descriptors are what holds it, and the site's
    semaphore (Linux 4.20), which the kernel counts up in the process and down again by itself.

    Raises:
        OSError: It cannot be probed.
    """
    kind = int((_UPROBES / "type").read_text())
    bit = int((_UPROBES / "format" / "retprobe").read_text().rpartition(":")[2])
    config = is_return << bit | site.semaphore << _SEMAPHORE_BIT
    file = ctypes.create_string_buffer(os.fsencode(path))
    event = _perf_event(kind, config, pid=pid, cpu=-1, extra=(ctypes.addressof(file), site.place))
    if cookie is None:
        return [_with_program(event, program)]
    attributes = struct.pack("=IIIIQ16x", program, event, _PERF_EVENT, 0, cookie)
    try:
        return [event, _made(_LINK_CREATE, attributes, "a probe")]
    except OSError:
        os.close(event)
        raise


def link_uprobes(program: int, pid: int, path: str, cookies: Mapping[Site, int], *, is_return: bool) -> int:
    """Have a program run at many places of a file (Linux 6.6), each with a number that the program can ask for.

    Raises:
        OSError: They cannot be probed.
    """
    file = ctypes.create_string_buffer(os.fsencode(path))
    places, semaphores = ((ctypes.c_uint64 * len(cookies))(*one) for one in zip(*cookies))
    numbers = (ctypes.c_uint64 * len(cookies))(*cookies.values())
    attributes = struct.pack(
        "=IIIIQQQQIIII",
        program,
        0,
        _UPROBE_MULTI,
        0,
        ctypes.addressof(file),
        ctypes.addressof(places),
        ctypes.addressof(semaphores) if any(semaphores) else 0,
        ctypes.addressof(numbers),
        len(cookies),
        int(is_return),
        pid,
        0,
    )
    return _made(_LINK_CREATE, attributes, "probes")


def time_programs() -> int | None:
    """Have the kernel time all runs of programs, as long as the descriptor is open; None where it does not let us."""
    descriptor = _call(_ENABLE_STATS, struct.pack("=I", 0))
    return descriptor if descriptor >= 0 else None


def close_all(descriptors: list[int]) -> None:
    """Let go of what they hold."""
    while descriptors:
        os.close(descriptors.pop())


def cpus_online() -> list[int]:
    """Their numbers.

    Raises:
        OSError: They cannot be told.
    """
    cpus: list[int] = []
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def _perf_event(
    kind: int,
    config: int,
    *,
    pid: int,
    cpu: int,
    period: int = 1,
    flags: int = 0,
    extra: tuple[int, int] = (0, 0),
    sampled: int = 0,
    layout: int = 0,
    leader: int = -1,
) -> int:
    """One that is disabled; `layout` is of what is read of it, `leader` another one of its group."""
    wakes_after = 1 if sampled else 0
    what = (kind, _ATTRIBUTES.size, config, period, sampled, layout, flags | _DISABLED, wakes_after, 0, *extra)
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.pack(*what, 0, 0, 0, _MONOTONIC, 0, 0, 0, 0))
    number = _PERF_EVENT_OPEN[platform.machine()]
    event = int(libc.syscall(number, attributes, pid, cpu, leader, _CLOSE_ON_EXEC))
    if event < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return event


def scaled_up(values: Sequence[int], enabled_ns: int, running_ns: int) -> tuple[int, ...] | None:
    """Counts of a part of the time as counts of all of it: a processor has few counters, and groups take turns at them.

    >>> scaled_up([10, 3], 100, 50), scaled_up([10], 100, 100), scaled_up([0], 100, 0), scaled_up([0], 0, 0)
    ((20, 6), (10,), None, (0,))
    """
    if not running_ns:
        return None if enabled_ns else tuple(values)
    return tuple(value * enabled_ns // running_ns for value in values)


class CounterGroup:
    """Events of one thread that are counted and read together, from now on; none of them interrupts anything.

    Args:
        events: The type and the number of each (enum perf_type_id and what follows it).
        tid: The thread.

    Raises:
        OSError: The kernel refuses one of them (perf_event_open(2)), or has no such event; then none is held.
    """

    def __init__(self, events: Sequence[tuple[int, int]], tid: int) -> None:
        self._descriptors: list[int] = []
        try:
            for kind, number in events:
                leader = self._descriptors[0] if self._descriptors else -1
                event = _perf_event(kind, number, pid=tid, cpu=-1, period=0, layout=_TOGETHER, leader=leader)
                self._descriptors.append(event)
            _control(self._descriptors[0], _ENABLE, _WHOLE_GROUP)
        except OSError:
            self.close()
            raise
        self._layout = struct.Struct(f"={3 + len(events)}Q")

    def read(self) -> tuple[int, ...] | None:
        """What was counted of each; None while the processor has not counted them yet."""
        _, enabled, running, *values = self._layout.unpack(os.read(self._descriptors[0], self._layout.size))
        return scaled_up(values, enabled, running)

    def close(self) -> None:
        """Let go of them: with the last of their descriptors they are gone."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def _with_program(event: int, program: int) -> int:
    try:
        _control(event, _SET_BPF, program)
    except OSError:
        os.close(event)
        raise
    return event


def _control(event: int, request: int, argument: int) -> None:
    if libc.ioctl(event, ctypes.c_ulong(request), ctypes.c_ulong(argument)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _call(command: int, attributes: bytes) -> int:
    return bpf_call(command, ctypes.create_string_buffer(attributes))


def _made(command: int, attributes: bytes, what: str) -> int:
    descriptor = _call(command, attributes)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return descriptor
