"""Who sent a signal, told by the real kernel of real processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

from llmtop import procfs
from llmtop.collectors import signal_senders
from llmtop.collectors.base import Probes
from llmtop.collectors.exits import Exits
from llmtop.collectors.proc import ProcCollector
from llmtop.collectors.signal_senders import ENDING, Sent, SignalSenders
from llmtop.collectors.tracing.collector import are_allowed
from llmtop.collectors.tracing.helper import kernel
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
    error: OSError, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise error

    monkeypatch.setattr(kernel, "listen_to_tracepoint", refuse)
    senders = SignalSenders()
    senders.open()
    assert senders.wait(20)
    assert isinstance(senders.unavailable, Unknown)
    assert senders.unavailable.reason in (reason, "tracefs is for root's eyes only")
    assert senders.of(os.getpid(), ENDING) is None
    senders.close()


def test_places_of_fields_are_the_kernels_own() -> None:
    told = "".join(
        f"\tfield:int {name};\toffset:{at};\tsize:4;\tsigned:1;\n"
        for at, name in zip((12, 16, 24, 44), ("common_pid", "sig", "code", "pid"), strict=True)
    )
    assert signal_senders._places(told) == {"common_pid": 12, "sig": 16, "code": 24, "pid": 44}
    with pytest.raises(ValueError, match="has no field pid"):
        signal_senders._places(told.replace("int pid;", "int tid;"))


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
