"""The ledger of sleeps beside an independent reckoning, and what else the helpers share, without a kernel."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import signal
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from llmtop.collectors.tracing.helper import libraries, protocol, system
from llmtop.collectors.tracing.helper.elf import exported
from llmtop.collectors.tracing.helper.functions import FUNCTIONS, duplicates, kind_of, kinds_of
from llmtop.collectors.tracing.helper.protocol import Link, StoppedError
from llmtop.collectors.tracing.helper.sleeps import Frames, Place, SleepLedger, weigh
from llmtop.collectors.tracing.helper.system import UnavailableError

PLACES: list[Place] = [(tid, call, 1) for tid in (7, 8, 9) for call in (0, 202)]
STACKS: list[Frames] = [("main", "a"), ("main", "b")]
PLACE = st.sampled_from(PLACES)


class Reckoning(RuleBasedStateMachine):
    """Sleeps that grow, stacks that are seen, threads that end: whatever comes, what is told is what was slept."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = SleepLedger()
        self.slept: Counter[Place] = Counter()
        self.owed: Counter[Place] = Counter()

    @rule(place=PLACE, ns=st.integers(0, 100))
    def sleeps(self, place: Place, ns: int) -> None:
        tid, call, state = place
        self.slept[place] += ns
        self.owed[place] += ns
        self.ledger.note(place, tid * 10, call + ns)
        rows = self.ledger.grown({place: self.slept[place]})
        assert rows == ([(tid * 10, tid, call, state, call + ns, self.slept[place])] if ns else [])

    @rule(sights=st.lists(st.tuples(PLACE, st.sampled_from(STACKS), st.integers(1, 9))))
    def is_seen(self, sights: list[tuple[Place, Frames, int]]) -> None:
        seen: dict[Place, dict[Frames, int]] = {}
        totals, weights = Counter[Place](), Counter[tuple[Place, Frames]]()
        for place, frames, ns in sights:
            weigh(seen, place, frames, ns)
            totals[place] += ns
            weights[place, frames] += ns
        told = {((row.tid, row.call, row.state), tuple(row.frames)): row.ns for row in self.ledger.shared_out(seen)}
        assert told == {
            (place, frames): self.owed[place] * weight // totals[place]
            for (place, frames), weight in weights.items()
            if self.owed[place]
        }
        for place in seen:
            self.owed.pop(place, None)

    @rule(ended=st.sets(st.sampled_from([7, 8, 9]), max_size=2))
    def ends(self, ended: set[int]) -> None:
        gone = {place for place in self.slept if place[0] in ended}
        assert self.ledger.forget(ended) == gone
        assert not self.ledger.owners.keys() & ended
        for place in gone:
            del self.slept[place]
            self.owed.pop(place, None)

    @rule()
    def owes_nothing(self) -> None:
        self.ledger.owe_nothing()
        self.owed.clear()


TestReckoning = Reckoning.TestCase


def test_a_place_that_was_never_noted_has_no_file() -> None:
    ledger = SleepLedger()
    ledger.owners[7] = 70
    assert ledger.grown({(7, 0, 1): 5}) == [(70, 7, 0, 1, 0, 5)]
    assert ledger.shared_out({(7, 0, 1): {("a",): 1}}) == [(70, 7, 0, 1, 0, ("a",), 5)]
    assert ledger.shared_out({(7, 0, 1): {("a",): 1}}) == [], "it is owed once"


def test_what_is_told_never_shrinks() -> None:
    ledger = SleepLedger()
    ledger.note((7, 0, 1), 70, 3)
    told = [len(ledger.grown({(7, 0, 1): ns})) for ns in (5, 4, 5, 6)]
    assert told == [1, 0, 0, 1]
    assert ledger.shared_out({(7, 0, 1): {("a",): 1, ("b",): 2}}) == [
        (70, 7, 0, 1, 3, ("a",), 2),
        (70, 7, 0, 1, 3, ("b",), 4),
    ]
    assert ledger.forget(()) == set()


def test_what_was_slept_unseen_waits_for_a_stack() -> None:
    ledger = SleepLedger()
    ledger.note((7, 0, 1), 70, 3)
    ledger.grown({(7, 0, 1): 5})
    assert ledger.shared_out({}) == []
    assert ledger.shared_out({(8, 0, 1): {("a",): 1}}) == [], "of another thread"
    ledger.grown({(7, 0, 1): 9})
    assert ledger.shared_out({(7, 0, 1): {("a",): 1}}) == [(70, 7, 0, 1, 3, ("a",), 9)]


# -- libraries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "is_gentle"),
    [
        ("50", True),  # push rax
        ("55", True),
        ("57", True),
        ("4f", False),
        ("58", False),  # pop rax
        ("90", True),  # nop
        ("8f", False),
        ("91", False),
        ("4150", True),  # push r8
        ("4157", True),
        ("4158", False),
        ("4090", False),
        ("4190", True),
        ("f30f1efa", False),
        ("", False),
    ],
)
def test_only_a_push_needs_no_trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, is_gentle: bool) -> None:
    (tmp_path / "lib").write_bytes(b"\xcc" * 5 + bytes.fromhex(code))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert libraries.starts_gently(str(tmp_path / "lib"), 5) is is_gentle
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert libraries.starts_gently(str(tmp_path / "nowhere"), 5), "nothing is assumed"


def elf(folder: Path, symbols: list[tuple[bytes, int, int, int]], *, kind: int = 11) -> Path:
    """A library of one table of symbols (name, info, section, address), loaded 0x1000 above where it lies."""
    names, rows = b"\0", bytearray()
    for name, info, section, address in symbols:
        rows += struct.pack("<IBBHQQ", len(names), info, 0, section, address, 16)
        names += name + b"\0"
    tables_at, names_at = 0x100, 0x100 + len(rows)
    sections_at = names_at + len(names)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 1, 64, 2, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0x80, 0x1080, 0x1080, 0x2000, 0x2000, 0x1000)
    table = struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, tables_at, len(rows) + 5, 1, 0, 8, 24)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, names_at, len(names), 0, 0, 1, 0)
    path = folder / "libx.so"
    path.write_bytes((header + load).ljust(tables_at, b"\0") + bytes(rows) + names + table + strings)
    return path


def test_places_of_exported_functions(tmp_path: Path) -> None:
    """Those that it defines itself, as functions, in the table of what it exports."""
    wanted = ("shown", "imported", "a_variable", "absent", "first", "last")
    symbols = [
        (b"shown", 0x12, 5, 0x1100),
        (b"imported", 0x12, 0, 0x1100),
        (b"a_variable", 0x11, 5, 0x1100),
        (b"not_wanted", 0x12, 5, 0x1100),
        (b"first", 0x22, 5, 0x1080),
        (b"last", 0x02, 5, 0x307F),
    ]
    places = {"shown": 0x100, "first": 0x80, "last": 0x207F}
    assert exported(str(elf(tmp_path, symbols)), wanted) == places
    assert exported(str(elf(tmp_path, symbols, kind=2)), wanted) == {}
    for outside in (0x107F, 0x3080):
        with pytest.raises(ValueError, match="a function lies outside of what is loaded"):
            exported(str(elf(tmp_path, [(b"shown", 0x12, 5, outside)])), wanted)


def test_long_names_are_none_of_ours(tmp_path: Path) -> None:
    """Names that the linker made of a template's may have thousands of letters."""
    name = b"n" * 300
    assert exported(str(elf(tmp_path, [(name, 0x12, 5, 0x1100)])), (name.decode(), name[:256].decode())) == {
        name[:256].decode(): 0x100
    }


def test_only_whole_lines_of_a_process_name_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "1000-2000 r-xp 0 00:01 7\n"
        "1000-2000 r-xp 0 00:01 7 /usr/lib/libnccl.so.2\n"
        "1000-2000 r-xp 0 00:01 7 libcuda.so.1\n"
        "1000-2000 r-xp 0 00:01 7 /usr/lib/libcuda.so.1\n"
    )
    monkeypatch.setattr(libraries, "read", lambda path: said)
    assert libraries.mapped_libraries(7) == {
        "/usr/lib/libnccl.so.2": FUNCTIONS[r"libnccl\.so"],
        "/usr/lib/libcuda.so.1": FUNCTIONS[r"libcuda\.so"],
    }


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ({"cudaLaunchKernel": 23, "cuLaunchKernel": 23}, set()),
        ({"cudaLaunchKernel": 24, "cuLaunchKernel": 20}, {"cudaLaunchKernel"}),
        ({"cudaLaunchKernel": 24, "cuLaunchKernel": 19}, set()),
        ({"cudaLaunchKernel": 100, "cuLaunchKernel": 100}, {"cudaLaunchKernel"}),
        ({"cudaLaunchKernel": 116, "cuLaunchKernel": 100}, {"cudaLaunchKernel"}),
        ({"cudaLaunchKernel": 117, "cuLaunchKernel": 100}, set()),
        ({"cudaLaunchKernel": 200, "cuLaunchKernel": 100, "cuLaunchKernelEx": 84}, {"cudaLaunchKernel"}),
        ({"cudaLaunchKernelExC": 200, "cuLaunchKernel": 200}, set()),
        ({"cudaMemcpy": 200, "cuMemcpy": 200}, set()),
    ],
)
def test_which_functions_are_another_ones_alone(counts: dict[str, int], found: set[str]) -> None:
    assert duplicates(counts) == found


def test_kinds_of_calls() -> None:
    names = ("cuGraphLaunch", "cuMemcpy", "cuMemFree_v2")
    assert [kind_of(name) for name in names] == ["graph", "wait", "other"]
    assert [kinds_of(one) for one in (names, names[:1], names[1:], names[2:])] == [
        ["launches", "sync"],
        ["launches"],
        ["sync"],
        [],
    ]


# -- the line to llmtop --------------------------------------------------------------------------------------------


class Clock:
    """Time that goes by while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.waits: list[float | None] = []
        self.ready: list[list[int]] = []
        self.input: list[bytes] = []

    def monotonic(self) -> float:
        return self.now_s

    def select(self, reading: list[int], writing: list[int], odd: list[int], left_s: float | None) -> tuple[list[int]]:
        assert (reading[0], writing, odd) == (0, [], [])
        self.waits.append(left_s)
        if self.ready:
            self.now_s += 1.0
            return (self.ready.pop(0),)
        self.now_s += left_s or 0.0
        return ([],)

    def read(self, descriptor: int, size: int) -> bytes:
        assert descriptor == 0
        return self.input.pop(0) if self.input else b""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(protocol, "time", one)
    monkeypatch.setattr(protocol, "select", one)
    monkeypatch.setattr(os, "read", one.read)
    return one


@pytest.fixture
def link(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Link]:
    """Standard output is a file, whatever it is here."""
    said = os.open(tmp_path / "said", os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(os, "dup", lambda descriptor: said if descriptor == 1 else -1)
    moved: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "dup2", lambda old, new: moved.append((old, new)))
    one = Link()
    assert moved == [(2, 1)], "what a library prints goes to standard error"
    yield one
    one._file.close()


def test_each_report_is_a_line(link: Link, tmp_path: Path) -> None:
    link.say({"kind": "looked"})
    link.say({"kind": "looking", "calls": True})
    assert (tmp_path / "said").read_text() == '{"kind":"looked"}\n{"kind":"looking","calls":true}\n'


def test_waiting_ends_with_its_time_or_with_a_descriptor(link: Link, clock: Clock) -> None:
    assert link.wait([5], 3.0) == []
    assert clock.waits == [3.0, 0.0]
    clock.ready = [[5, 6]]
    assert link.wait([5, 6], 3.0) == [5, 6]
    clock.ready, clock.input = [[0], [0, 5]], [b"x", b"y"]
    clock.waits.clear()
    assert link.wait([5]) == [5], "what it is told means nothing, but for its end"
    assert clock.waits == [None, None]
    clock.ready, clock.input, clock.waits = [[0], [0]], [b"x", b"y"], []
    assert link.wait([5], 1.5) == []
    assert clock.waits == [1.5, 0.5, 0.0]


def test_the_end_of_its_input_is_its_end(link: Link, clock: Clock) -> None:
    clock.ready = [[0, 5]]
    with pytest.raises(StoppedError):
        link.wait([5], 1.0)


def test_ticks_come_at_their_times_and_none_is_made_up_for(link: Link, clock: Clock) -> None:
    times = []
    for tick, _ in enumerate(link.ticks(0.0, 1.0, 2.0)):
        times.append(clock.now_s)
        clock.now_s += {2: 0.5, 3: 7.0}.get(tick, 0.0)
        if tick == 5:
            break
    assert times == [50.0, 51.0, 53.0, 55.0, 62.0, 64.0]


def test_the_options_of_every_helper() -> None:
    options = protocol.parser("llmtop-x").parse_args(["7", "8"])
    plain = {"pids": [7, 8], "parent": 0, "interval": 1.0, "budget": 0.01, "stacks": False, "light": False}
    assert vars(options) == plain
    given = ["7", "--parent", "5", "--interval", "0.5", "--budget", "2", "--stacks", "--light"]
    told = {"pids": [7], "parent": 5, "interval": 0.5, "budget": 2.0, "stacks": True, "light": True}
    assert vars(protocol.parser("x").parse_args(given)) == told


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, []),
        (StoppedError(), 0, []),
        (UnavailableError("no luck", "apt"), 1, [{"kind": "unavailable", "reason": "no luck", "remedy": "apt"}]),
    ],
)
def test_how_a_helper_ends(
    link: Link,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception | None,
    status: int,
    said: list[object],
) -> None:
    handled: list[tuple[int, object]] = []
    parents: list[int] = []
    monkeypatch.setattr(protocol, "Link", lambda: link)
    monkeypatch.setattr(signal, "signal", lambda *one: handled.append(one))
    monkeypatch.setattr(system, "die_with_parent", parents.append)

    def look(options: argparse.Namespace, line: Link) -> None:
        assert (options.parent in (0, 77), line) == (True, link)
        if error:
            raise error

    for options in (argparse.Namespace(parent=0), argparse.Namespace(parent=77)):
        (tmp_path / "said").write_text("")
        assert protocol.run(options, look) == status
    assert [json.loads(line) for line in (tmp_path / "said").read_text("utf-8").replace("\0", "").splitlines()] == said
    assert (handled, parents) == ([(signal.SIGINT, signal.SIG_IGN)] * 2, [77])


# -- what the kernel is asked for directly -------------------------------------------------------------------------


class Libc:
    """Keeps what it is asked; `fails` has the functions that return -1."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.fails: set[str] = set()

    def _ask(self, name: str, *arguments: object) -> int:
        self.asked.append((name, *arguments))
        return -(name in self.fails)

    def prctl(self, *arguments: object) -> int:
        return self._ask("prctl", *arguments)

    def unshare(self, *arguments: object) -> int:
        return self._ask("unshare", *arguments)

    def mount(self, source: bytes, *arguments: object) -> int:
        return self._ask(f"mount {source.decode()}", *arguments)


@pytest.fixture
def libc(monkeypatch: pytest.MonkeyPatch) -> Libc:
    one = Libc()
    monkeypatch.setattr(system, "libc", one)
    monkeypatch.setattr(ctypes, "get_errno", lambda: 1)
    return one


def test_a_helper_is_killed_with_its_parent(libc: Libc, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(os, "getppid", lambda: 77)
    system.die_with_parent(77)
    assert (libc.asked, left) == ([("prctl", 1, signal.SIGKILL, 0, 0, 0)], []), "PR_SET_PDEATHSIG"
    system.die_with_parent(78)
    assert left == [0], "it has ended already"


def test_tracefs_is_mounted_for_the_helper_alone(libc: Libc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """unshare(CLONE_NEWNS), then / private as a slave, then the mount: MS_NOSUID, MS_NODEV, MS_NOEXEC."""
    monkeypatch.setattr(system, "TRACEFS", tmp_path)
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    system.see_tracepoints()
    mounted = ("mount tracefs", os.fsencode(tmp_path), b"tracefs", 0xE, None)
    assert libc.asked == [("unshare", 0x20000), ("mount none", b"/", None, 0x84000, None), mounted]
    for fails, said in (
        ("unshare", "is not mounted"),
        ("mount none", "is not mounted"),
        ("mount tracefs", "cannot be mounted"),
    ):
        libc.fails = {fails}
        with pytest.raises(UnavailableError) as raised:
            system.see_tracepoints()
        assert raised.value.reason == f"tracefs {said} (Operation not permitted)"
        assert raised.value.remedy == "sudo mount -t tracefs tracefs /sys/kernel/tracing"


@pytest.mark.parametrize("there", ["new", "old"])
def test_tracefs_that_is_there_is_left(libc: Libc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: str) -> None:
    old = Path("/sys/kernel/debug/tracing")
    monkeypatch.setattr(system, "TRACEFS", tmp_path)
    events = (tmp_path if there == "new" else old) / "events"
    monkeypatch.setattr(Path, "is_dir", lambda path: path == events)
    system.see_tracepoints()
    assert (libc.asked, system.tracefs()) == ([], tmp_path if there == "new" else old)


def test_cpu_time_of_a_process_is_its_clocks() -> None:
    before = system.cpu_ns(os.getpid())
    sum(range(200_000))
    assert 0 < before < system.cpu_ns(os.getpid())
    assert system.cpu_ns(1 << 22) == 0


@pytest.mark.parametrize(
    ("own", "is_of_proc", "namespace"),
    [(0xEFFFFFFC, False, (None, "")), (7, True, ((3, 7), "")), (7, False, (None, "/proc shows another one"))],
)
def test_the_pid_namespace_that_probes_are_told_of(
    own: int, is_of_proc: bool, namespace: tuple[tuple[int, int] | None, str]
) -> None:
    stat, found, refused = argparse.Namespace(st_dev=3, st_ino=own), None, ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "stat", {"/proc/self/ns/pid": stat}.__getitem__)
        patch.setattr(os, "readlink", {"/proc/self": str(os.getpid() + (not is_of_proc))}.__getitem__)
        try:
            found = system.pid_namespace()
        except UnavailableError as error:
            refused = error.reason
    assert found == namespace[0]
    assert namespace[1] in refused if namespace[1] else not refused


def test_ids_of_processes_in_our_namespace_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    inodes = {"/proc/self/ns/pid": 7, "/proc/10/ns/pid": 7, "/proc/11/ns/pid": 8}

    def stat(path: str) -> argparse.Namespace:
        if path not in inodes:
            raise FileNotFoundError(path)
        return argparse.Namespace(st_ino=inodes[path])

    monkeypatch.setattr(os, "stat", stat)
    assert [system.tells_ids_of(pid) for pid in (10, 11, 12)] == [True, False, True]
    inodes["/proc/self/ns/pid"] = 0xEFFFFFFC
    assert system.tells_ids_of(11), "the machine's own namespace sees all"
