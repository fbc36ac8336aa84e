"""How processes end, and what is known of it afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmtop import ids, procfs
from llmtop import vocabulary as v
from llmtop.collectors import cgroups, exits
from llmtop.collectors.exits import Exit, Exits
from llmtop.collectors.kernel_log import KernelLog
from llmtop.collectors.proc import RENEW_NS, ProcCollector
from llmtop.model import Target, TargetProcess, Trace, Track, TrackKind, Unknown
from llmtop.servers.registry import ENGINES
from llmtop.vocabulary import ProcessState
from tests.collectors.processes import Fake, Running, eventually, python, tree


class Log(KernelLog):
    """A kernel log with these lines to come."""

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self._lines = list(lines)

    def messages(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines


SLEEPER = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"


@pytest.mark.parametrize(
    ("number", "text", "is_regular"),
    [
        (signal.SIGKILL, "killed by SIGKILL", False),
        (signal.SIGSEGV, "killed by SIGSEGV", False),
        (signal.SIGTERM, "killed by SIGTERM", True),
    ],
)
def test_a_zombie_tells_the_signal_before_and_after_its_parent_has_noticed(
    number: signal.Signals, text: str, is_regular: bool
) -> None:
    watch = Exits()
    with python(SLEEPER) as program:
        watch.watch(program.pid)
        os.kill(program.pid, number)
        eventually(lambda: (stat := procfs.stat(program.pid)) is not None and stat.state == "Z", "the zombie")
        watch.note_zombie(program.pid)
        as_zombie = watch.of(program.pid)
        program.wait()
        reaped = watch.of(program.pid)
    watch.close()

    assert (as_zombie.text, as_zombie.is_regular) == (text, is_regular)
    assert reaped == as_zombie


def test_what_is_closed_may_be_closed_again() -> None:
    watch = Exits(log=Log())
    watch.open()
    watch.close()
    watch.close()


def test_of_one_that_nobody_followed_the_zombie_tells_or_the_kernels_log() -> None:
    with python(SLEEPER) as program:
        os.kill(program.pid, signal.SIGKILL)
        eventually(lambda: (stat := procfs.stat(program.pid)) is not None and stat.state == "Z", "the zombie")
        assert exits.how_it_ended(program.pid, Log()) == "killed by SIGKILL"
    words = f"Out of memory: Killed process {program.pid} (python3) total-vm:1kB"
    assert exits.how_it_ended(program.pid, Log("usb 1-1: new", words)) == (
        f"killed for want of memory (OOM); the kernel's log: {words}"
    )
    assert exits.how_it_ended(program.pid, Log()) == ""


def test_an_exit_code_is_told() -> None:
    watch = Exits()
    with python("import sys\nprint('ready', flush=True)\nsys.stdin.read()\nsys.exit(3)") as program:
        watch.watch(program.pid)
        assert program.stdin is not None
        program.stdin.close()
        eventually(lambda: (stat := procfs.stat(program.pid)) is not None and stat.state == "Z", "the zombie")
        watch.note_zombie(program.pid)
        assert watch.of(program.pid) == Exit("exit code 3", is_failure=True)
    watch.close()


def test_the_moment_of_an_end_is_known_without_a_look() -> None:
    watch = Exits(Log())
    watch.open()
    with python(SLEEPER) as program:
        watch.watch(program.pid)
        assert watch.ended_ns(program.pid) is None
        before_ns = time.monotonic_ns()
        os.kill(program.pid, signal.SIGKILL)
        ended_ns = eventually(lambda: watch.ended_ns(program.pid), "the end")
        assert before_ns < ended_ns < time.monotonic_ns()
        watch.forget(program.pid)
        assert watch.ended_ns(program.pid) is None
        watch.watch(program.pid)
        assert eventually(lambda: watch.ended_ns(program.pid), "the end, of one that is over") > ended_ns
    watch.close()
    assert "end times" not in {thread.name for thread in threading.enumerate()}


def test_one_that_lives_or_was_never_followed_has_no_exit() -> None:
    watch = Exits()
    watch.watch(os.getpid())
    watch.note_zombie(os.getpid())

    for pid in (os.getpid(), 4_194_305):
        assert isinstance(watch.of(pid).text, Unknown)
    watch.close()


@pytest.mark.parametrize(
    "line",
    [
        "Out of memory: Killed process {pid} (python3) total-vm:90kB, anon-rss:4kB",
        "Memory cgroup out of memory: Killed process {pid} (VLLM::EngineCor) total-vm:1kB",
    ],
)
def test_the_kernels_log_names_whom_it_killed_for_want_of_memory(line: str) -> None:
    watch = Exits(Log(line.format(pid=os.getpid()), "usb 1-1: new device"))
    watch.watch(os.getpid())
    watch.read_log()
    found = watch.of(os.getpid())
    watch.close()

    assert found.is_oom
    assert found.text == "killed for want of memory (OOM)"
    assert f"Killed process {os.getpid()}" in found.words


@pytest.mark.parametrize(
    "line",
    [
        "python3[{pid}]: segfault at 0 ip 00007f in libc.so.6[7f+1c] likely on CPU 3",
        "traps: python3[{pid}] general protection fault ip:7f sp:7f error:0 in libcuda.so",
        "NVRM: Xid (PCI:0000:2b:00): 31, pid={pid}, name=python3, MMU Fault",
    ],
)
def test_the_kernels_words_about_a_process_are_kept(line: str) -> None:
    watch = Exits(Log(line.format(pid=os.getpid())))
    watch.watch(os.getpid())
    watch.read_log()
    found = watch.of(os.getpid())
    watch.close()

    assert str(os.getpid()) in found.words
    assert not found.is_oom


def test_a_cgroup_that_lost_a_process_to_the_oom_killer_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 2\n")
    monkeypatch.setattr(cgroups, "memory_events_of", lambda pid: events)
    watch = Exits()
    with python(SLEEPER) as program:
        watch.watch(program.pid)
        program.kill()
        eventually(lambda: (stat := procfs.stat(program.pid)) is not None and stat.state == "Z", "the zombie")
        watch.note_zombie(program.pid)
        before = watch.of(program.pid)
        events.write_text("low 0\noom 4\noom_kill 3\n")
        after = watch.of(program.pid)
    watch.close()

    assert (before.is_oom, before.text) == (False, "killed by SIGKILL")
    assert (after.is_oom, after.text) == (True, "killed by SIGKILL for want of memory (OOM)")


def test_memory_and_freezer_files_of_both_versions(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "7").mkdir(parents=True)
    for mount, memberships, names in (
        (tmp_path / "v2", "0::/pod\n", ("pod/memory.events", "pod/cgroup.events")),
        (
            tmp_path / "v1",
            "4:memory:/pod\n3:freezer:/pod\n0::/\n",
            ("memory/pod/memory.oom_control", "freezer/pod/freezer.state"),
        ),
    ):
        (proc / "7" / "cgroup").write_text(memberships)
        for name in names:
            (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / names[0]).write_text("under_oom 0\noom_kill 5\n")
        (mount / names[1]).write_text("populated 1\nfrozen 1\n" if "events" in names[1] else "FROZEN\n")

        events, freezer = cgroups.memory_events_of(7, proc, mount), cgroups.freezer_of(7, proc, mount)

        assert events is not None
        assert freezer is not None
        assert cgroups.oom_kills(events) == 5
        assert cgroups.is_frozen(freezer)
        (mount / names[1]).write_text("populated 1\nfrozen 0\n" if "events" in names[1] else "THAWED\n")
        assert not cgroups.is_frozen(freezer)


# What the collector of processes makes of it

SERVER = Fake("api", ("VLLM::APIServer",), (Fake("core", ("VLLM::EngineCore",)), Fake("helper", ("/usr/bin/gcc",))))


@pytest.fixture
def server() -> Iterator[tuple[Running, ProcCollector]]:
    with tree(SERVER) as running:
        root = running.pids["api"]
        parts = (TargetProcess(root, "APIServer", "vllm"), TargetProcess(running.pids["core"], "EngineCore", "vllm"))
        with ProcCollector(Target(root, root, "vllm", "vLLM", parts), ENGINES) as collector:
            collector.poll()
            yield running, collector


def ended(trace: Trace) -> list[Track]:
    return [track for track in trace.tracks.values() if track.kind is TrackKind.ENDED]


def poll_until(collector: ProcCollector, look: Callable[[Trace], bool]) -> Trace:
    return eventually(lambda: trace if look(trace := collector.poll()) else None, "the poll that shows it")


def state(trace: Trace, pid: int) -> float | None:
    states = [r.value for r in trace.readings if r.track == f"process:{pid}" and r.metric == v.PROCESS_STATE]
    return states[0] if states else None


def test_a_part_that_ends_is_remembered_with_how_it_ended(server: tuple[Running, ProcCollector]) -> None:
    running, collector = server
    core, api = running.pids["core"], running.pids["api"]
    killed_ns = time.monotonic_ns()
    os.kill(core, signal.SIGKILL)
    trace = poll_until(collector, lambda trace: bool(ended(trace)))

    [track] = ended(trace)
    assert track.name == "EngineCore"
    assert {key: track.facts[key] for key in ("pid", "role", "root", "how")} == {
        "pid": core,
        "role": "EngineCore",
        "root": api,
        "how": "killed by SIGKILL",
    }
    assert killed_ns <= int(str(track.facts["ended_ns"])) <= trace.end_ns
    assert track.facts["is_zombie"] == 1, "this parent never looks after its children"
    assert track.facts["parent"] == api
    assert "is_regular" not in track.facts
    assert [mark.text for mark in trace.marks] == [f"EngineCore (pid {core}) exited: killed by SIGKILL"]


def test_an_end_after_the_last_poll_is_told_with_its_moment(server: tuple[Running, ProcCollector]) -> None:
    """Another server takes its place, and this one is not looked at any more."""
    running, collector = server
    before_ns = time.monotonic_ns()
    os.kill(running.pids["core"], signal.SIGKILL)
    [mark] = eventually(collector.last_words, "the mark of its end")
    assert mark.text.endswith("exited: killed by SIGKILL")
    assert before_ns < mark.t_ns < time.monotonic_ns()


def test_a_helper_that_ends_is_not(server: tuple[Running, ProcCollector]) -> None:
    running, collector = server
    os.kill(running.pids["helper"], signal.SIGKILL)
    trace = poll_until(collector, lambda trace: bool(trace.gone))

    assert not ended(trace)


def test_a_fork_that_still_looks_like_the_engine_is_no_part_of_the_server(
    server: tuple[Running, ProcCollector],
) -> None:
    """Between fork and exec a compiler has the command line of the engine that starts it."""
    running, _ = server
    core = running.pids["core"]
    parts = (TargetProcess(core, "EngineCore", "vllm"),)
    with tree(Fake("core", ("VLLM::EngineCore",), (Fake("fork", ("VLLM::EngineCore",)),))) as forked:
        root = forked.pids["core"]
        with ProcCollector(Target(root, root, "vllm", "vLLM", parts), ENGINES) as collector:
            for _ in range(3):
                collector.poll()
            os.kill(forked.pids["fork"], signal.SIGKILL)
            trace = poll_until(collector, lambda trace: bool(trace.gone))

    assert not ended(trace)


def test_the_state_of_a_process_is_read(server: tuple[Running, ProcCollector]) -> None:
    running, collector = server
    core = running.pids["core"]
    assert state(collector.poll(), core) == ProcessState.ALIVE
    os.kill(core, signal.SIGSTOP)
    poll_until(collector, lambda trace: state(trace, core) == ProcessState.STOPPED)
    os.kill(core, signal.SIGCONT)
    poll_until(collector, lambda trace: state(trace, core) == ProcessState.ALIVE)


def test_a_cgroup_that_holds_one_part_alone_is_told_of_it(
    server: tuple[Running, ProcCollector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, _ = server
    root, core = running.pids["api"], running.pids["core"]
    (tmp_path / "freezer.state").write_text("FROZEN\n")
    monkeypatch.setattr(cgroups, "freezer_of", lambda pid: tmp_path / "freezer.state" if pid == core else None)
    trace = ProcCollector(Target(root, root, "vllm", "vLLM", ()), ENGINES).poll()

    assert (state(trace, root), state(trace, core)) == (ProcessState.ALIVE, ProcessState.FROZEN)


def test_a_frozen_cgroup_is_told_of_the_root(
    server: tuple[Running, ProcCollector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, _ = server
    freezer = tmp_path / "cgroup.events"
    freezer.write_text("populated 1\nfrozen 1\n")
    monkeypatch.setattr(cgroups, "freezer_of", lambda pid: freezer)
    root = running.pids["api"]
    trace = ProcCollector(Target(root, root, "vllm", "vLLM", ()), ENGINES).poll()

    assert state(trace, root) == ProcessState.FROZEN


def test_only_so_many_ends_are_remembered(server: tuple[Running, ProcCollector]) -> None:
    _, collector = server
    for i in range(25):
        collector._ends.note(10_000_000 + i, i, "Worker")
    trace = collector.poll()

    assert len([id for id in trace.gone if id.startswith("ended:")]) == 5
    assert len(collector._ends.over) == 20


def test_the_ioctl_is_the_kernels() -> None:
    """_IOWR(0xFF, 11, 64 bytes), include/uapi/linux/pidfd.h."""
    assert exits._GET_INFO == 0xC040FF0B


WORKERS = Fake("api", ("VLLM::APIServer",), tuple(Fake(f"w{i}", (f"VLLM::Worker_TP{i}",)) for i in range(2)))


def test_when_the_part_that_tells_a_groups_quota_ends_another_one_tells_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And what is told of an end is told of its threads."""
    ahead_ns = 0
    with tree(WORKERS) as running:
        root, *workers = running.pids["api"], running.pids["w0"], running.pids["w1"]
        groups = {pid: cgroups.Group(tmp_path / "workers", "/workers", 2.0) for pid in workers}
        front = cgroups.Group(tmp_path / "front", "/front", None)
        monkeypatch.setattr(cgroups, "group_of", lambda pid: groups.get(pid, front))
        target = Target(root, root, "vllm", "vLLM", tuple(TargetProcess(pid, "", "vllm") for pid in (root, *workers)))
        with ProcCollector(target, ENGINES, lambda: time.monotonic_ns() + ahead_ns) as collector:
            first = tellers(collector.poll())
            assert [pid in workers for pid in first if pid != root] == [True]
            (teller,) = first.keys() - {root}
            os.kill(teller, signal.SIGKILL)
            trace = poll_until(collector, lambda trace: bool(ended(trace)))
            assert {ids.process(teller), ids.thread(teller, teller)} <= set(trace.gone)
            ahead_ns += RENEW_NS
            assert tellers(collector.poll()) == {pid: "/workers" for pid in workers if pid != teller}


def tellers(trace: Trace) -> dict[int, object]:
    """The groups that processes tell of, by PID."""
    processes = trace.tracks_of(TrackKind.PROCESS)
    return {ids.pid(one.id): one.facts["cgroup"] for one in processes if "cgroup" in one.facts}
