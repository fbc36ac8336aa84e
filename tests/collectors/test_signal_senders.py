"""Who sent a signal, told by the real kernel of real processes."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtop import procfs
from llmtop.collectors import signal_senders
from llmtop.collectors.base import Probes
from llmtop.collectors.exits import Exits
from llmtop.collectors.proc import ProcCollector
from llmtop.collectors.signal_senders import ENDING, Sent, SignalSenders
from llmtop.collectors.tracing.collector import are_allowed
from llmtop.collectors.tracing.helper import kernel, system
from llmtop.model import Target, TargetProcess, Track, TrackKind, Unknown
from llmtop.servers.registry import ENGINES
from tests.collectors.processes import Fake, Running, eventually, python, tree

SLEEPER = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"
OBEDIENT = (
    "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "print('ready', flush=True)\nsignal.pause()\n"
)
DEAF = SLEEPER.replace(
    "import sys",
    "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)",  # a shell's background jobs ignore it
)
MY_NAME = procfs.name(os.getpid())
FORMAT = "".join(
    f"\tfield:int {name};\toffset:{at};\tsize:4;\tsigned:1;\n"
    for at, name in zip((12, 16, 24, 44), ("common_pid", "sig", "code", "pid"), strict=True)
)
"""What tracefs tells of the tracepoint."""


@pytest.fixture
def senders() -> Iterator[SignalSenders]:
    senders = SignalSenders()
    senders.open()
    assert senders.wait(20)
    if senders.unavailable is not None:
        senders.close()
        pytest.skip(f"needs the right to listen to signals: {senders.unavailable}")
    yield senders
    senders.close()


@pytest.fixture
def exits(senders: SignalSenders) -> Iterator[Exits]:
    exits = Exits(senders=senders)
    yield exits
    exits.close()


def ended(pid: int) -> bool:
    stat = procfs.stat(pid)
    return stat is not None and stat.state == "Z"


def test_who_ran_kill_is_named_though_it_is_gone(senders: SignalSenders) -> None:
    with python(SLEEPER) as program:
        with subprocess.Popen(["/bin/kill", "-9", f"{program.pid}"]) as kill:
            pass
        sent = eventually(lambda: senders.of(program.pid, ENDING), "the signal")
    assert (sent.number, sent.pid, sent.name, sent.is_from_kernel) == (signal.SIGKILL, kill.pid, "kill", False)
    assert sent.by(program.pid, {}) == f"pid {kill.pid} (kill)"


def test_what_is_ignored_ends_nothing(senders: SignalSenders) -> None:
    with python(DEAF) as program:
        os.kill(program.pid, signal.SIGTERM)
        os.kill(program.pid, signal.SIGINT)
        sent = eventually(lambda: senders.of(program.pid, ENDING), "the signal")
        assert sent.number == signal.SIGINT
        assert senders.of(program.pid, (signal.SIGTERM,)) is None
        assert senders.of(program.pid, ENDING, since_ns=sent.t_ns + 1) is None, "that was another of this PID"


def test_an_exit_in_order_tells_who_asked_for_it(exits: Exits) -> None:
    with python(OBEDIENT) as program:
        exits.watch(program.pid)
        os.kill(program.pid, signal.SIGTERM)
        eventually(lambda: ended(program.pid), "the zombie")
        exits.note_zombie(program.pid)
        found = exits.of(program.pid)
    assert found.how(program.pid, {}) == f"exit code 0, after SIGTERM from pid {os.getpid()} ({MY_NAME})"
    assert found.how(program.pid, {os.getpid(): "APIServer"}) == (
        f"exit code 0, after SIGTERM from the server's own APIServer (pid {os.getpid()})"
    )
    assert found.is_regular


def test_one_that_passes_its_signal_on_to_itself_was_ended_by_whoever_sent_it_first(exits: Exits) -> None:
    """As Uvicorn does once it has shut down."""
    ends_by_it = "lambda *_: (signal.signal(15, signal.SIG_DFL), signal.raise_signal(15))"
    with python(OBEDIENT.replace("lambda *_: sys.exit(0)", ends_by_it)) as program:
        exits.watch(program.pid)
        os.kill(program.pid, signal.SIGTERM)
        eventually(lambda: ended(program.pid), "the zombie")
        exits.note_zombie(program.pid)
        how = exits.of(program.pid).how(program.pid, {})
    assert how == f"killed by SIGTERM from pid {os.getpid()} ({MY_NAME})"


def test_one_that_ends_by_itself_was_sent_nothing(exits: Exits) -> None:
    with python(SLEEPER) as program:
        exits.watch(program.pid)
        assert program.stdin is not None
        program.stdin.close()
        eventually(lambda: ended(program.pid), "the zombie")
        exits.note_zombie(program.pid)
        assert exits.of(program.pid).how(program.pid, {}) == "exit code 0"


@pytest.mark.parametrize(
    ("sent", "words", "origin"),
    [
        (Sent(9, 0, 7, "python3", False), "itself", "own"),
        (Sent(9, 0, 42, "", False), "pid 42 (gone since)", "outside"),
        (Sent(9, 0, 5, "python3", True), "the kernel", "kernel"),
        (Sent(2, 0, 5, "kworker/0:1", True), "its terminal", "kernel"),
    ],
)
def test_senders_in_words(sent: Sent, words: str, origin: str) -> None:
    own = {5: "APIServer", 7: "EngineCore"}
    assert (sent.by(7, own), sent.origin(own)) == (words, origin)


def test_nothing_is_left_of_it(senders: SignalSenders) -> None:
    assert "anon_inode:[perf_event]" in open_files()
    senders.close()
    assert "anon_inode:[perf_event]" not in open_files()
    assert "signal senders" not in {thread.name for thread in threading.enumerate()}


def open_files() -> list[str]:
    return procfs.open_files(os.getpid()) or []


def test_the_doctor_says_whether_senders_are_seen(senders: SignalSenders) -> None:
    [check] = signal_senders.checks()
    assert check.state == "seen: who has killed or ended a server, by PID and name"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "who sends signals is told to root alone"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "who sends signals cannot be told: [Errno 2] No such file"),
    ],
)
def test_where_the_kernel_refuses_it_says_so_and_holds_nothing(
    error: OSError, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that shows its tracepoints and whose PIDs are ours, whatever this one does."""

    def refuse(*_: object) -> int:
        raise error

    described = tmp_path / "events" / "signal" / "signal_generate" / "format"
    described.parent.mkdir(parents=True)
    described.write_text(FORMAT)
    monkeypatch.setattr(system, "TRACEFS", tmp_path)
    monkeypatch.setattr(system, "pid_namespace", lambda: None)
    monkeypatch.setattr(kernel, "listen_to_tracepoint", refuse)
    senders = SignalSenders()
    senders.open()
    assert senders.wait(20)
    assert isinstance(senders.unavailable, Unknown)
    assert senders.unavailable.reason == reason
    assert senders.of(os.getpid(), ENDING) is None
    senders.close()


def test_places_of_fields_are_the_kernels_own() -> None:
    assert signal_senders._places(FORMAT) == {"common_pid": 12, "sig": 16, "code": 24, "pid": 44}
    with pytest.raises(ValueError, match="has no field pid"):
        signal_senders._places(FORMAT.replace("int pid;", "int tid;"))


GONE = 99_999_999
"""More than PIDs go to (`PID_MAX_LIMIT`): nobody has it."""


class Recorded:
    """A kernel that writes what it is told to into the ring of one CPU, and who reads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, begins: int = 0) -> None:
        self.page = os.sysconf("SC_PAGE_SIZE")
        file = os.memfd_create("ring")
        os.ftruncate(file, 9 * self.page)
        self.memory = mmap.mmap(file, 9 * self.page)
        self._at(1032, begins)
        self._at(1024, begins)
        self.head = begins
        monkeypatch.setattr(kernel, "listen_to_tracepoint", lambda *_: file)
        self.senders = SignalSenders()
        self.senders._places = {"common_pid": 4, "sig": 8, "code": 12, "pid": 16}
        self.ring = signal_senders._Ring(0)
        self.senders._rings.append(self.ring)

    def _at(self, place: int, value: int) -> None:
        struct.pack_into("=Q", self.memory, place, value)

    @property
    def tail(self) -> int:
        return int(struct.unpack_from("=Q", self.memory, 1032)[0])

    def write(self, kind: int, body: bytes, size: int | None = None) -> None:
        record = struct.pack("=IHH", kind, 0, 8 + len(body) if size is None else size) + body
        for offset, byte in enumerate(record):
            self.memory[self.page + (self.head + offset) % (8 * self.page)] = byte
        self.head += len(record)
        self._at(1024, self.head)

    def named(self, tid: int, name: bytes) -> None:
        self.write(3, struct.pack("=II", GONE, tid) + name.ljust(16, b"\0"))

    def sent(self, number: int, target: int, *, t_ns: int, sender: int = GONE, code: int = 0) -> None:
        raw = struct.pack("=iiiii", 0, sender, number, code, target)
        self.write(9, struct.pack("=IIQI", sender, sender, t_ns, len(raw)) + raw)

    def close(self) -> None:
        self.ring.close()
        self.memory.close()


@pytest.mark.parametrize("before_the_end", [0, 1, 7, 8, 9, 20, 60, 4000])
def test_what_the_kernel_writes_is_read_wherever_it_stands_in_its_ring(
    before_the_end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(monkeypatch, 8 * os.sysconf("SC_PAGE_SIZE") - before_the_end)
    recorded.sent(signal.SIGKILL, 7, t_ns=5)
    recorded.named(GONE, b"kill")
    recorded.sent(signal.SIGTERM, 8, t_ns=6, code=0x80)
    assert recorded.senders.of(7, ENDING) == Sent(signal.SIGKILL, 5, GONE, "kill", False), "its name came behind it"
    assert recorded.senders.of(8, ENDING) == Sent(signal.SIGTERM, 6, GONE, "kill", True)
    assert recorded.tail == recorded.head, "what was read has room again"
    recorded.sent(signal.SIGTERM, 7, t_ns=9)
    assert recorded.senders.of(7, ENDING, since_ns=9) == Sent(signal.SIGTERM, 9, GONE, "kill", False)
    assert recorded.senders.of(7, ENDING, since_ns=10) is None
    assert recorded.senders.of(7, (signal.SIGKILL,)) == Sent(signal.SIGKILL, 5, GONE, "kill", False)
    recorded.close()


def test_a_header_that_is_none_costs_what_stands_behind_it_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    recorded.sent(signal.SIGTERM, 7, t_ns=1)
    recorded.write(9, b"", size=7)
    recorded.sent(signal.SIGTERM, 8, t_ns=2)
    assert recorded.senders.of(7, ENDING) is not None
    assert recorded.senders.of(8, ENDING) is None
    recorded.write(1, b"", size=8)
    recorded.sent(signal.SIGTERM, 9, t_ns=3)
    assert recorded.senders.of(9, ENDING) is not None
    recorded.close()


@pytest.mark.parametrize(("later_s", "sender"), [(119.9, GONE), (120, 7)])
def test_a_signal_that_a_process_passes_on_to_itself_counts_as_the_first_for_two_minutes(
    later_s: float, sender: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(monkeypatch)
    recorded.sent(signal.SIGTERM, 7, t_ns=1)
    recorded.sent(signal.SIGTERM, 7, t_ns=1 + round(later_s * 1e9), sender=7)
    told = recorded.senders.of(7, ENDING)
    assert told is not None
    assert told.pid == sender
    recorded.close()


def test_names_and_signals_are_kept_up_to_a_number_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    for tid in [*range(GONE, GONE + 2048), GONE, GONE + 2048]:
        recorded.named(tid, b"n%d" % (tid - GONE))
        recorded.senders.read()
    for i, tid in enumerate((GONE, GONE + 1, GONE + 2, GONE + 2048)):
        recorded.sent(signal.SIGTERM, i, t_ns=i, sender=tid)
    told = [recorded.senders.of(i, ENDING) for i in range(4)]
    assert [one.name for one in told if one is not None] == ["n0", "", "n2", "n2048"]
    for target in range(1, 257):
        recorded.sent(signal.SIGHUP, target, t_ns=9)
        recorded.senders.read()
    assert [recorded.senders.of(target, ENDING) is not None for target in (0, 1, 256)] == [False, True, True]
    recorded.sent(signal.SIGHUP, 1, t_ns=10)
    recorded.sent(signal.SIGHUP, 300, t_ns=11)
    assert [recorded.senders.of(target, ENDING) is not None for target in (1, 2, 300)] == [True, False, True]
    recorded.close()


@pytest.mark.parametrize(
    ("tracer", "off", "probes", "allowed"),
    [
        ("", "", Probes.FULL, True),
        ("", "", Probes.LIGHT, True),
        ("", "", Probes.OFF, False),
        ("", "1", Probes.FULL, False),
        ("perf", "1", Probes.FULL, True),
        ("none", "", Probes.FULL, False),
    ],
)
def test_who_wants_no_probes_has_nobody_listen(
    tracer: str, off: str, probes: Probes, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMTOP_TRACER", tracer)
    monkeypatch.setenv("LLMTOP_NO_EBPF", off)
    assert are_allowed(probes) is allowed


# What the collector of processes makes of it

SERVER = Fake("api", ("VLLM::APIServer",), (Fake("core", ("VLLM::EngineCore",)),))


@pytest.fixture
def server(exits: Exits) -> Iterator[tuple[Running, ProcCollector]]:
    with tree(SERVER) as running:
        root = running.pids["api"]
        parts = (TargetProcess(root, "APIServer", "vllm"), TargetProcess(running.pids["core"], "EngineCore", "vllm"))
        collector = ProcCollector(Target(root, root, "vllm", "vLLM", parts), ENGINES, exits=exits)
        collector.poll()
        yield running, collector
        collector.__exit__(None, None, None)


def last_words(collector: ProcCollector, role: str) -> tuple[Track, list[str]]:
    """The track of a part that has ended, and the marks that came with it."""

    def look() -> tuple[Track, list[str]] | None:
        trace = collector.poll()
        ends = [one for one in trace.tracks.values() if one.kind is TrackKind.ENDED and one.name == role]
        return (ends[0], [mark.text for mark in trace.marks]) if ends else None

    return eventually(look, f"the end of {role}")


def test_an_engine_that_was_killed_from_outside_says_by_whom(server: tuple[Running, ProcCollector]) -> None:
    running, collector = server
    core = running.pids["core"]
    os.kill(core, signal.SIGKILL)
    track, marks = last_words(collector, "EngineCore")
    assert track.facts["how"] == f"killed by SIGKILL from pid {os.getpid()} ({MY_NAME})"
    assert track.facts["sender"] == "outside"
    assert marks == [f"EngineCore (pid {core}) exited: {track.facts['how']}"]


def test_an_engine_that_dies_with_its_server_was_ended_by_it(server: tuple[Running, ProcCollector]) -> None:
    """As PR_SET_PDEATHSIG does it, and every server that kills its own."""
    running, collector = server
    api = running.pids["api"]
    os.kill(api, signal.SIGKILL)
    track, _ = last_words(collector, "EngineCore")
    assert track.facts["how"] == f"killed by SIGKILL from the server's own APIServer (pid {api})"
    assert track.facts["sender"] == "own"
