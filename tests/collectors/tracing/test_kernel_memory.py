"""What is asked of the kernel, answered by one in memory that knows bpf(2) and perf_event_open(2) by their headers."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.helper import kernel, system
from llmtop.collectors.tracing.helper.elf import Site
from llmtop.collectors.tracing.helper.functions import COLLECTOR, NUMBERS
from llmtop.collectors.tracing.helper.kernel import CpuCounters, Map, RefusedError, Table
from llmtop.collectors.tracing.helper.libraries import ProbePoint
from llmtop.collectors.tracing.probes.helper import uprobes
from llmtop.collectors.tracing.probes.helper.run_time import RunTime
from llmtop.collectors.tracing.probes.helper.uprobes import LinkedUprobes, SingleUprobes, cookie_of
from tests.collectors.tracing.recorded_maps import RecordedModule, at

BPF, PERF_EVENT_OPEN, SIZE_OF_ATTRIBUTES = 321, 298, 112
U32, U64 = ctypes.c_uint32, ctypes.c_uint64

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of system calls are x86-64's")


class Make(ctypes.Structure):
    """BPF_MAP_CREATE in include/uapi/linux/bpf.h; so below."""

    _fields_ = tuple((name, U32) for name in ("type", "key_size", "value_size", "max_entries", "flags"))


class Element(ctypes.Structure):
    _fields_ = (("map_fd", U32), ("key", U64), ("value", U64), ("flags", U64))


class Batch(ctypes.Structure):
    _fields_ = (
        *((name, U64) for name in ("in_batch", "out_batch", "keys", "values")),
        *((name, U32) for name in ("count", "map_fd")),
        *((name, U64) for name in ("elem_flags", "flags")),
    )


class Program(ctypes.Structure):
    _fields_ = (
        ("type", U32), ("insn_cnt", U32), ("insns", U64), ("license", U64), ("log_level", U32), ("log_size", U32),
        ("log_buf", U64), ("kern_version", U32), ("prog_flags", U32), ("name", ctypes.c_char * 16), ("ifindex", U32),
        ("expected_attach_type", U32),
    )  # fmt: skip


class RawTracepoint(ctypes.Structure):
    _fields_ = (("name", U64), ("prog_fd", U32))


class Multi(ctypes.Structure):
    """BPF_LINK_CREATE with attach_type BPF_TRACE_UPROBE_MULTI."""

    _fields_ = (
        ("prog_fd", U32), ("target_fd", U32), ("attach_type", U32), ("flags", U32), ("path", U64), ("offsets", U64),
        ("ref_ctr_offsets", U64), ("cookies", U64), ("cnt", U32), ("uprobe_flags", U32), ("pid", U32),
    )  # fmt: skip


class Event(ctypes.Structure):
    """struct perf_event_attr; the flags are one number here."""

    _fields_ = (
        ("type", U32), ("size", U32), ("config", U64), ("period", U64), ("sample_type", U64), ("read_format", U64),
        ("flags", U64), ("wakeup_events", U32), ("bp_type", U32), ("config1", U64), ("config2", U64),
        ("branch_sample_type", U64), ("sample_regs_user", U64), ("sample_stack_user", U32), ("clockid", ctypes.c_int32),
        ("sample_regs_intr", U64), ("aux_watermark", U32), ("sample_max_stack", ctypes.c_uint16),
    )  # fmt: skip


class Kernel:
    """Maps, programs, links and events, by descriptor. `fails` names the next error of a command, 0 for none."""

    def __init__(self) -> None:
        self.maps: dict[int, tuple[Make, dict[bytes, bytes]]] = {}
        self.programs: list[tuple[int, bytes, int, bytes]] = []
        self.raw: list[tuple[str, int]] = []
        self.links: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.controls: list[tuple[int, int, Any]] = []
        self.fails: dict[int, list[int]] = {}
        self.log = b""
        self.timed: list[int] = []
        self.cpus = 1

    def syscall(self, number: int, *arguments: Any) -> int:
        if number == PERF_EVENT_OPEN:
            return self._event(*arguments)
        assert number == BPF
        command, attributes, size = arguments
        assert size == len(attributes) - 1, "the closing NUL is no part of it"
        return self._answer(command, attributes.raw[:size], ctypes.addressof(attributes))

    def ioctl(self, event: int, request: ctypes.c_ulong, argument: ctypes.c_ulong) -> int:
        if self._is_refused(request.value):
            return -1
        is_filter = request.value == 0x40082406
        told = ctypes.string_at(argument.value).decode() if is_filter else argument.value
        self.controls.append((event, request.value, told))
        return 0

    def _is_refused(self, command: int) -> bool:
        number = self.fails[command].pop(0) if self.fails.get(command) else 0
        ctypes.set_errno(number)
        return bool(number)

    def _new(self) -> int:
        return os.open(os.devnull, os.O_RDONLY)

    def _event(self, attributes: Any, pid: int, cpu: int, group: int, flags: int) -> int:
        if self._is_refused(PERF_EVENT_OPEN):
            return -1
        told = Event.from_buffer_copy(attributes)
        assert (told.size, group, flags) == (SIZE_OF_ATTRIBUTES, -1, 8), "PERF_FLAG_FD_CLOEXEC"
        event = {name: getattr(told, name) for name, *_ in Event._fields_ if name != "size"}
        self.events.append({"fd": self._new(), "pid": pid, "cpu": cpu, **event})
        return int(self.events[-1]["fd"])

    def _answer(self, command: int, told: bytes, at: int) -> int:
        if self._is_refused(command):
            return -1
        answers: dict[int, Callable[[bytes, int], int]] = {
            0: self._make, 1: self._lookup, 2: self._update, 3: self._delete, 4: self._next, 5: self._load,
            17: self._raw_tracepoint, 24: self._batch, 25: self._take, 28: self._link, 32: self._time,
        }  # fmt: skip
        return answers[command](told, at)

    def _make(self, told: bytes, at: int) -> int:
        descriptor = self._new()
        self.maps[descriptor] = (Make.from_buffer_copy(told), {})
        return descriptor

    def _element(self, told: bytes) -> tuple[Make, dict[bytes, bytes], bytes, Element]:
        one = Element.from_buffer_copy(told.ljust(ctypes.sizeof(Element), b"\0"))
        make, rows = self.maps[one.map_fd]
        return make, rows, ctypes.string_at(one.key, make.key_size) if one.key else b"", one

    def _lookup(self, told: bytes, at: int) -> int:
        _, rows, key, one = self._element(told)
        assert one.flags == 0
        return self._fail(errno.ENOENT) if key not in rows else self._copy(one.value, rows[key])

    def _update(self, told: bytes, at: int) -> int:
        make, rows, key, one = self._element(told)
        assert one.flags in (0, 1), "BPF_ANY, BPF_NOEXIST"
        if one.flags == 1 and key in rows:
            return self._fail(errno.EEXIST)
        if key not in rows and len(rows) >= make.max_entries:
            return self._fail(errno.E2BIG)
        rows[key] = ctypes.string_at(one.value, make.value_size)
        return 0

    def _delete(self, told: bytes, at: int) -> int:
        _, rows, key, one = self._element(told)
        assert (one.value, one.flags) == (0, 0)
        return self._fail(errno.ENOENT) if rows.pop(key, None) is None else 0

    def _next(self, told: bytes, at: int) -> int:
        _, rows, key, one = self._element(told)
        keys = [*rows, b""]
        following = keys[keys.index(key) + 1 if key else 0]
        return self._copy(one.value, following) if following else self._fail(errno.ENOENT)

    def _batch(self, told: bytes, at: int) -> int:
        one = Batch.from_buffer_copy(told)
        make, rows = self.maps[one.map_fd]
        assert (one.in_batch, one.elem_flags, one.flags) == (0, 0, 0)
        assert (bool(one.out_batch), one.count) == (True, make.max_entries)
        self._copy(one.keys, b"".join(rows))
        self._copy(one.values, b"".join(rows.values()))
        one.count = len(rows)
        self._copy(at, bytes(one)[: len(told)])
        return self._fail(errno.ENOENT)

    def _take(self, told: bytes, at: int) -> int:
        answer = self._batch(told, at)
        self.maps[Batch.from_buffer_copy(told).map_fd][1].clear()
        return answer

    def _load(self, told: bytes, at: int) -> int:
        one = Program.from_buffer_copy(told)
        if one.log_level:
            assert (one.log_level, one.log_size) == (1, 1 << 20)
            self._copy(one.log_buf, self.log + b"\0")
            return self._fail(errno.EACCES)
        assert (one.log_size, one.log_buf, one.kern_version, one.prog_flags, one.ifindex) == (0, 0, 0, 0, 0)
        if self.log:
            return self._fail(errno.EACCES)
        assert one.name == b"llmtop"
        code = ctypes.string_at(one.insns, one.insn_cnt * 8)
        self.programs.append((one.type, code, one.expected_attach_type, ctypes.string_at(one.license)))
        return self._new()

    def _raw_tracepoint(self, told: bytes, at: int) -> int:
        one = RawTracepoint.from_buffer_copy(told)
        self.raw.append((ctypes.string_at(one.name).decode(), one.prog_fd))
        return self._new()

    def _link(self, attributes: bytes, at: int) -> int:
        one = Multi.from_buffer_copy(attributes.ljust(ctypes.sizeof(Multi), b"\0"))
        assert (one.target_fd, one.attach_type, one.flags) == (0, 48, 0)
        assert not any(attributes[Multi.pid.offset + 4 :]), "what this kernel does not know must be 0"
        places, cookies = ((U64 * one.cnt).from_address(where)[:] for where in (one.offsets, one.cookies))
        path = ctypes.string_at(one.path).decode()
        functions = dict(zip(places, cookies, strict=True))
        told = {"program": one.prog_fd, "path": path, "pid": one.pid, "of": functions, "flags": one.uprobe_flags}
        if one.ref_ctr_offsets:
            told["semaphores"] = (U64 * one.cnt).from_address(one.ref_ctr_offsets)[:]
        self.links.append(told)
        return self._new()

    def _time(self, told: bytes, at: int) -> int:
        assert told == bytes(4), "BPF_STATS_RUN_TIME"
        self.timed.append(self._new())
        return self.timed[-1]

    def _copy(self, to: int, data: bytes) -> int:
        ctypes.memmove(to, data, len(data))
        return 0

    def _fail(self, number: int) -> int:
        ctypes.set_errno(number)
        return -1


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    one = Kernel()
    monkeypatch.setattr(system, "libc", one)
    monkeypatch.setattr(kernel, "libc", one)
    before = open_files()
    yield one
    for descriptor in open_files() - before:
        os.close(descriptor)


def open_files() -> set[int]:
    return {int(one.name) for one in Path("/proc/self/fd").iterdir() if one.exists()}


def table(linux: Kernel, key: str = "IH", value: str = "QI", capacity: int = 4) -> Table:
    sizes = {"I": 4, "H": 2, "Q": 8}
    key_size, value_size = (sum(sizes[one] for one in layout) for layout in (key, value))
    return Table.of(Map.make(1, key_size, value_size, capacity, 3), key, value)


def test_a_map_is_made_as_it_is_asked_for(linux: Kernel) -> None:
    made = Map.make(9, 6, 12, 40, 2)
    assert made == Map(made.descriptor, 9, 6, 12, 40)
    told, _ = linux.maps[made.descriptor]
    assert (told.type, told.key_size, told.value_size, told.max_entries, told.flags) == (9, 6, 12, 40, 2)
    linux.fails[0] = [errno.EPERM]
    with pytest.raises(OSError, match="a map: Operation not permitted") as raised:
        Map.make(1, 1, 1, 1, 0)
    assert raised.value.errno == errno.EPERM


def test_entries_are_put_found_and_removed(linux: Kernel) -> None:
    one = table(linux)
    one.put((7, 2), (1 << 40, 9))
    one.put((8, 2), (5, 6))
    assert (one.get(7, 2), one.get(8, 2), one.get(9, 2)) == ((1 << 40, 9), (5, 6), None)
    one.put((7, 2), (3, 4))
    assert (one.get(7, 2), list(one.keys())) == ((3, 4), [(7, 2), (8, 2)])
    one.remove(7, 2)
    one.remove(7, 2)
    assert list(one.entries()) == [((8, 2), (5, 6))]
    one.put((1, 1), (1, 1))
    one.clear()
    assert (list(one.keys()), list(one.entries())) == ([], [])


def test_what_is_there_stays_where_only_what_is_new_is_put(linux: Kernel) -> None:
    one = table(linux, capacity=2)
    one.put((1, 1), (10, 1))
    one.put((1, 1), (20, 2), only_new=True)
    one.put((2, 2), (20, 2), only_new=True)
    one.put((3, 3), (30, 3), only_new=True)
    assert list(one.entries()) == [((1, 1), (10, 1)), ((2, 2), (20, 2))], "the third found no room"
    with pytest.raises(OSError, match="an entry of a BPF map cannot be had") as raised:
        one.put((3, 3), (30, 3))
    assert raised.value.errno == errno.E2BIG


@pytest.mark.parametrize(("number", "is_said"), [(errno.ENOENT, False), (errno.EPERM, True), (errno.EEXIST, True)])
def test_only_what_is_not_there_is_passed_over(linux: Kernel, number: int, is_said: bool) -> None:
    one = table(linux)
    asks: dict[int, Callable[..., object]] = {1: one.get, 3: one.remove}
    for command, ask in asks.items():
        linux.fails[command] = [number]
        if is_said:
            with pytest.raises(OSError, match="cannot be had") as raised:
                ask(1, 1)
            assert raised.value.errno == number
        else:
            assert ask(1, 1) is None


def test_a_map_is_read_as_a_whole_and_emptied_where_that_is_wanted(linux: Kernel) -> None:
    one = table(linux)
    rows = [((1, 2), (3, 4)), ((5, 6), (7, 8)), ((9, 10), (11, 12))]
    for key, value in rows:
        one.put(key, value)
    assert list(one.entries()) == rows
    assert list(one.entries(take=True)) == rows
    assert list(one.entries()) == []
    for command, take in ((24, False), (25, True)):
        linux.fails[command] = [errno.EPERM]
        with pytest.raises(OSError, match="reading a BPF map failed") as raised:
            one.entries(take=take)
        assert raised.value.errno == errno.EPERM


def test_the_number_of_a_map_that_holds_one(linux: Kernel) -> None:
    one = table(linux, "I", "Q")
    assert one.count() == 0
    one.put((1,), (5,))
    assert one.count() == 0
    one.put((0,), (7,))
    assert one.count() == 7


@pytest.mark.parametrize(("key", "value"), [("I", "QI"), ("IH", "Q"), ("IHH", "QI")])
def test_layouts_that_are_not_the_maps_are_refused(linux: Kernel, key: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"layout of a map: \(6, 12\) is not \("):
        Table.of(Map.make(1, 6, 12, 4, 0), key, value)


@pytest.mark.parametrize(("possible", "cpus"), [("0-3\n", 4), ("0\n", 1), ("0-3,8-11", 12), ("0,2", 3)])
def test_a_counter_is_the_sum_of_all_cpus(
    linux: Kernel, monkeypatch: pytest.MonkeyPatch, possible: str, cpus: int
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: possible)
    made = Map.make(6, 4, 8 * cpus, 2, 0)
    counters = CpuCounters.of(made)
    assert counters == CpuCounters(made.descriptor, cpus)
    linux.maps[made.descriptor][1][bytes(U32(1))] = bytes((U64 * cpus)(*range(1, cpus + 1)))
    assert counters.sum(1) == cpus * (cpus + 1) // 2
    with pytest.raises(OSError, match="reading a BPF map failed"):
        counters.sum(0)


def test_a_program_is_loaded(linux: Kernel) -> None:
    code = bytes(range(24))
    assert kernel.load_program(code, 17, 48) > 0
    kernel.load_program(code[:8], 5)
    assert linux.programs == [(17, code, 48, b"GPL"), (5, code[:8], 0, b"GPL")]


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        (
            b"0: R1=ctx()\nR1 invalid mem access\nprocessed 9 insns (limit 1000000)\n\n",
            "R1 invalid mem access",
        ),
        (b"  the last word  \n   \n", "the last word"),
        (b"processed 1 insns\n", ""),
    ],
)
def test_a_program_that_is_refused_has_the_kernels_last_word(linux: Kernel, log: bytes, verdict: str) -> None:
    linux.log = log
    with pytest.raises(RefusedError) as raised:
        kernel.load_program(bytes(8), 5)
    assert raised.value.errno == errno.EACCES
    assert raised.value.verdict.startswith(verdict)
    assert bool(verdict) is bool(raised.value.verdict)
    assert raised.value.verdict == raised.value.verdict.strip()


def test_a_program_that_is_taken_the_second_time_is_loaded(linux: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    linux.fails[5] = [errno.EAGAIN]
    monkeypatch.setattr(linux, "_load", lambda told, at: 5)
    assert kernel.load_program(bytes(8), 5) == 5


@pytest.fixture
def tracefs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(system, "TRACEFS", tmp_path)
    for name, number in (("sched/sched_switch", 316), ("signal/signal_generate", 99)):
        (tmp_path / "events" / name).mkdir(parents=True)
        (tmp_path / "events" / name / "id").write_text(f"{number}\n")
    return tmp_path


QUIET = dict.fromkeys(
    ("sample_type", "read_format", "wakeup_events", "bp_type", "config1", "config2", "branch_sample_type",
     "sample_regs_user", "sample_stack_user", "sample_regs_intr", "aux_watermark", "sample_max_stack"), 0
)  # fmt: skip


def event(**fields: int) -> dict[str, Any]:
    """One that is disabled, on the monotonic clock, of all processes."""
    return {**QUIET, "pid": -1, "flags": 1, "clockid": 1, "period": 1, **fields}


def told(linux: Kernel) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name != "fd"} for one in linux.events]


def test_a_tracepoint_runs_a_program(linux: Kernel, tracefs: Path) -> None:
    held = kernel.attach_tracepoint("sched:sched_switch", 5)
    assert told(linux) == [event(type=2, config=316, cpu=0)]
    assert linux.controls == [(held, 0x40042408, 5)]
    assert held == linux.events[0]["fd"]
    with pytest.raises(FileNotFoundError):
        kernel.attach_tracepoint("sched:sched_nothing", 5)


def test_a_tracepoint_that_may_not_run_it_is_let_go(linux: Kernel, tracefs: Path) -> None:
    before = open_files()
    for command in (PERF_EVENT_OPEN, 0x40042408):
        linux.fails[command] = [errno.EACCES]
        with pytest.raises(PermissionError):
            kernel.attach_tracepoint("sched:sched_switch", 5)
    assert open_files() == before


def test_a_tracepoint_is_written_down(linux: Kernel, tracefs: Path) -> None:
    held = kernel.listen_to_tracepoint("signal:signal_generate", 3, "sig==9", 0x402, 0x40000)
    assert told(linux) == [event(type=2, config=99, cpu=3, sample_type=0x402, flags=0x40001, wakeup_events=1)]
    assert linux.controls == [(held, 0x40082406, "sig==9"), (held, 0x2400, 0)]
    before = open_files()
    for request in (0x40082406, 0x2400):
        linux.fails[request] = [errno.EINVAL]
        with pytest.raises(OSError, match="Invalid argument"):
            kernel.listen_to_tracepoint("signal:signal_generate", 3, "sig==", 1, 0)
    assert open_files() == before


def test_a_raw_tracepoint_runs_a_program(linux: Kernel) -> None:
    assert kernel.attach_raw_tracepoint("sys_enter", 6) > 0
    assert linux.raw == [("sys_enter", 6)]
    linux.fails[17] = [errno.ENOENT]
    with pytest.raises(FileNotFoundError, match="a raw tracepoint: No such file"):
        kernel.attach_raw_tracepoint("sys_enter", 6)


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"/sys/devices/system/cpu/online": "0,4-5,9\n"}
    monkeypatch.setattr(Path, "read_text", lambda path: texts[str(path)])


@pytest.mark.usefixtures("online")
def test_a_timer_runs_on_each_cpu_that_is_online(linux: Kernel) -> None:
    assert kernel.cpus_online() == [0, 4, 5, 9]
    held = kernel.attach_timer(0, 49, 8)
    assert told(linux) == [event(type=1, config=0, cpu=cpu, period=49, flags=1 | 1 << 10) for cpu in (0, 4, 5, 9)]
    assert linux.controls == [one for fd in held for one in ((fd, 0x40042408, 8), (fd, 0x2400, 0))]
    kernel.close_all(held)
    assert held == []


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("request_", [PERF_EVENT_OPEN, 0x40042408, 0x2400])
def test_timers_that_one_cpu_refuses_are_let_go(linux: Kernel, request_: int) -> None:
    before = open_files()
    linux.fails[request_] = [0, 0, errno.EACCES]
    with pytest.raises(PermissionError):
        kernel.attach_timer(0, 49, 8)
    assert {one["fd"] for one in linux.events} & open_files() <= before
    kernel.attach_timer(0, 49, 8)


def test_many_places_of_a_file_have_one_link(linux: Kernel) -> None:
    assert kernel.link_uprobes(7, 4242, "/usr/lib/libx.so", {Site(0x10): 3, Site(0x20): 4}, is_return=True) > 0
    kernel.link_uprobes(8, 4242, "/usr/lib/liby.so", {Site(0x30): 5, Site(0x40, 0x900): 6}, is_return=False)
    assert linux.links == [
        {"program": 7, "path": "/usr/lib/libx.so", "pid": 4242, "of": {0x10: 3, 0x20: 4}, "flags": 1},
        {"program": 8, "path": "/usr/lib/liby.so", "pid": 4242, "of": {0x30: 5, 0x40: 6}, "flags": 0}
        | {"semaphores": [0, 0x900]},
    ]
    linux.fails[28] = [errno.EINVAL]
    with pytest.raises(OSError, match="probes: Invalid argument"):
        kernel.link_uprobes(7, 4242, "/usr/lib/libx.so", {Site(0x10): 3}, is_return=True)


def test_what_does_not_end_with_its_return_is_linked_where_it_ends(
    linux: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = RecordedModule()
    monkeypatch.setattr(module, "load", lambda name, kind, expected: {"enter_any": 71, "leave_any": 72}[name])
    point = ProbePoint((Site(0x100, 0x900), Site(0x110, 0x900)), "library", (Site(0x180, 0x902),))
    LinkedUprobes(module.module).hold(1, "/lib", "group", {COLLECTOR: point})
    cookie = NUMBERS[COLLECTOR] | 5 << 12
    assert [(one["program"], one["of"], one["flags"], one["semaphores"]) for one in linux.links] == [
        (72, {0x180: cookie}, 0, [0x902]),
        (71, {0x100: cookie, 0x110: cookie}, 0, [0x900, 0x900]),
    ]


def test_functions_of_a_library_are_linked_returns_first_and_let_go_entries_first(
    linux: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = RecordedModule()
    loaded = {"enter_any": 71, "leave_any": 72}
    monkeypatch.setattr(module, "load", lambda name, kind, expected: loaded[name] if (kind, expected) == (2, 48) else 0)
    links = LinkedUprobes(module.module)
    places = {"cuLaunchKernel": 0x100, "cuStreamSynchronize": 0x200, "cuMemcpyAsync": 0x300}
    functions = {name: at(place) for name, place in places.items()}
    links.hold(1, "/lib", "group", functions)
    cookies = {
        0x100: NUMBERS["cuLaunchKernel"] | 1 << 8,
        0x200: NUMBERS["cuStreamSynchronize"] | 2 << 8,
        0x300: NUMBERS["cuMemcpyAsync"] | 4 << 12,
    }
    assert [(one["program"], one["of"], one["flags"]) for one in linux.links] == [(72, cookies, 1), (71, cookies, 0)]
    assert [cookie_of(name) for name in functions] == list(cookies.values())
    before = open_files()
    links.hold(1, "/lib", "another", functions)
    links.hold(2, "/lib", "group", functions)
    assert len(open_files() - before) == 4, "others of them stay"
    links.hold(1, "/lib", "group", {})
    assert len(before - open_files()) == 2
    assert len(linux.links) == 6


@pytest.mark.parametrize("have_cookies", [False, True])
def test_single_probes_of_a_group_come_and_go_as_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch, have_cookies: bool
) -> None:
    attached: list[tuple[Any, ...]] = []
    closed: list[int] = []

    def attach(path: str, site: Site, pid: int, program: int, *, is_return: bool, cookie: int | None) -> list[int]:
        attached.append((path, site.place, pid, program, is_return, cookie))
        return [len(attached)]

    monkeypatch.setattr(uprobes, "attach_uprobe", attach)
    monkeypatch.setattr(uprobes, "close_all", closed.extend)
    one = SingleUprobes({"cuMemcpy": (1, 2), "cuGraphLaunch": (3, 4)}, have_cookies=have_cookies)
    one.hold(9, "/lib", "group", {"cuMemcpy": at(0x10)})
    cookie = cookie_of("cuMemcpy") if have_cookies else None
    assert attached == [("/lib", 0x10, 9, 1, True, cookie), ("/lib", 0x10, 9, 2, False, cookie)]
    one.hold(9, "/lib", "group", {"cuMemcpy": at(0x10), "cuGraphLaunch": at(0x20)})
    assert ([row[3:5] for row in attached[2:]], closed) == ([(3, True), (4, False)], [])
    one.hold(9, "/lib", "other", {"cuMemcpy": at(0x10)})
    one.hold(9, "/lib", "group", {"cuGraphLaunch": at(0x20)})
    assert (len(attached), closed) == (6, [1, 2])
    one.hold(9, "/lib", "group", {})
    assert closed == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("release", "way", "source"),
    [
        ((5, 14), (SingleUprobes, False), "WITHOUT_COOKIES"),
        ((5, 15), (SingleUprobes, True), "WITH_COOKIES"),
        ((6, 9), (SingleUprobes, True), "WITH_COOKIES"),
        ((6, 10), (LinkedUprobes, None), "WITH_COOKIES"),
    ],
)
def test_the_best_way_that_a_kernel_has(
    monkeypatch: pytest.MonkeyPatch, release: tuple[int, int], way: tuple[type, bool | None], source: str
) -> None:
    monkeypatch.setattr(uprobes, "kernel_release", lambda: release)
    found = uprobes.source()
    assert found is getattr(uprobes, source)
    made = uprobes.make_uprobes(found, RecordedModule().module)
    assert (type(made), getattr(made, "_have_cookies", None)) == way


def test_programs_are_timed_for_a_while(linux: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = {5: 100, 6: 1000}
    texts = {f"/proc/self/fdinfo/{one}": f"prog_id:\t{one}\nrun_time_ns:\t%d\nrun_cnt:\t3\n" for one in ran}
    monkeypatch.setattr(system, "read", lambda path: texts[path] % ran[int(path[-1])] if path in texts else "")
    timed = RunTime([5, 6, 7])
    assert timed.stop() is None
    timed.start()
    ran[5] += 30
    timed.start()
    ran[6] += 4
    assert (len(linux.timed), timed.stop(), timed.stop()) == (1, 34, None)
    assert not set(linux.timed) & open_files()
    linux.fails[32] = [errno.EPERM]
    timed.start()
    assert timed.stop() is None


def test_numbers_of_system_calls_are_the_machines(linux: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """asm-generic/unistd.h has those of arm64."""
    asked: list[int] = []

    def syscall(number: int, *arguments: object) -> int:
        asked.append(number)
        return 5

    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(linux, "syscall", syscall)
    kernel.attach_raw_tracepoint("sys_enter", 6)
    kernel._perf_event(1, 0, pid=-1, cpu=0)
    assert asked == [280, 241]
