from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop import ids, procfs, whats
from llmtop import vocabulary as v
from llmtop.collectors import cgroups
from llmtop.collectors import proc as proc_module
from llmtop.collectors.proc import BRIEF_NS, ProcCollector
from llmtop.collectors.proc_threads import Thread, ThreadAccess
from llmtop.collectors.thread_causes import cause_of_syscall, cause_of_wchan
from llmtop.model import (
    NS_PER_S,
    Metric,
    Missing,
    ProcessEnd,
    Severity,
    Target,
    TargetProcess,
    Trace,
    TrackId,
    TrackKind,
    Unknown,
    What,
)
from llmtop.servers.registry import ENGINES
from llmtop.session import Recorder
from llmtop.vocabulary import ThreadCause
from tests.collectors.processes import Fake, eventually, python, threads, tree

WAITS = {
    "sleeper": ThreadCause.NANOSLEEP,
    "futex": ThreadCause.FUTEX,
    "pipe": ThreadCause.PIPE,
    "socket": ThreadCause.SOCKET,
    "epoll": ThreadCause.EPOLL,
    "poll": ThreadCause.POLL,
    "signal": ThreadCause.SIGNAL,
}


def target(pid: int, kind: str = "process") -> Target:
    return Target(pid, pid, kind, "a server", (TargetProcess(pid, "main", "python"),))


class Watch:
    """A collector and everything that it has said so far, as a session would keep it."""

    def __init__(self, collector: ProcCollector) -> None:
        self.collector = collector
        self.last = collector.poll()
        self.recorder = Recorder(self.last.origin)
        self.recorder.append("proc", self.last)

    def poll(self) -> Trace:
        self.last = self.collector.poll()
        self.recorder.append("proc", self.last)
        return self.recorder.freeze()

    def threads(self) -> dict[str, TrackId]:
        """Track ids by thread name."""
        return {track.name: track.id for track in self.recorder.freeze().tracks_of(TrackKind.THREAD)}


def grown(trace: Trace, track: TrackId, metric: Metric) -> float:
    """How much a counter grew over all samples."""
    series = trace.get(track, metric)
    assert series is not None
    return series.values[-1] - series.values[0]


@pytest.fixture(scope="module")
def busy() -> Iterator[subprocess.Popen[str]]:
    with threads("spinner", *WAITS) as program:
        yield program


def clocks(pid: int, tid: int) -> tuple[int, int]:
    """Time on a CPU and time queued for one, as the kernel has them."""
    on_cpu, queued, _ = Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()
    return int(on_cpu), int(queued)


def test_a_spinning_threads_clocks_are_the_kernels(busy: subprocess.Popen[str]) -> None:
    watch = Watch(ProcCollector(target(busy.pid)))
    eventually(lambda: "spinner" in watch.threads() or not watch.poll(), "the thread's name")
    spinner = watch.threads()["spinner"]
    tid = int(spinner.rpartition("/")[2])
    first = clocks(busy.pid, tid)
    eventually(lambda: clocks(busy.pid, tid)[0] > first[0] + 50_000_000, "50 ms on a CPU")
    before = clocks(busy.pid, tid)
    watch.poll()
    after = clocks(busy.pid, tid)
    told = {one.metric: one.value for one in watch.last.readings if one.track == spinner}
    assert before[0] <= (told[v.THREAD_ON_CPU] or 0) <= after[0]
    assert before[1] <= (told[v.THREAD_RUN_QUEUE] or 0) <= after[1]
    assert grown(watch.recorder.freeze(), ids.process(busy.pid), v.PROCESS_CPU) > 0


def test_waiting_threads_use_no_time_and_tell_what_they_wait_for(busy: subprocess.Popen[str]) -> None:
    watch = Watch(ProcCollector(target(busy.pid)))

    def causes() -> dict[str, str] | None:
        trace = watch.poll()
        seen = {
            track.name: str(track.facts["state"])
            for track in trace.tracks_of(TrackKind.THREAD)
            if track.name in WAITS and "state" in track.facts
        }
        return seen if seen == {name: cause.value for name, cause in WAITS.items()} else None

    eventually(causes, "the cause of every wait")
    traces = [watch.poll() for _ in range(4)]

    for name, cause in WAITS.items():
        track = watch.threads()[name]
        assert grown(traces[-1], track, v.labelled(v.THREAD_STATE_SAMPLES, cause)) >= 3
        on_cpu = [series.last for trace in traces if (series := trace.get(track, v.THREAD_ON_CPU)) is not None]
        assert on_cpu == [on_cpu[0]] * 4


def test_state_samples_add_up(busy: subprocess.Popen[str]) -> None:
    trace = ProcCollector(target(busy.pid)).poll()
    for track in trace.tracks_of(TrackKind.THREAD):
        samples = {r.metric.name: r.value for r in trace.readings if r.track == track.id and "samples" in r.metric.name}
        assert samples.pop("thread.state_samples") == sum(value or 0 for value in samples.values()) == 1


def test_tracks_have_roles_and_parents(busy: subprocess.Popen[str]) -> None:
    trace = ProcCollector(target(busy.pid)).poll()

    process = trace.tracks[ids.process(busy.pid)]
    assert process.kind is TrackKind.PROCESS
    assert process.facts["role"] == "main"
    main = trace.tracks[ids.thread(busy.pid, busy.pid)]
    assert (main.parent, main.facts["role"]) == (process.id, "main")
    assert trace.tracks[ids.HOST].facts["cores"] == os.cpu_count()


def test_process_numbers(busy: subprocess.Popen[str]) -> None:
    trace = ProcCollector(target(busy.pid)).poll()
    values = {r.metric: r.value for r in trace.readings if r.track == ids.process(busy.pid)}

    assert values[v.PROCESS_THREADS] == len(WAITS) + 2
    rss = values[v.PROCESS_RSS]
    assert rss is not None
    assert 5e6 < rss < 200e6


def test_cpu_time_is_what_the_kernel_counts() -> None:
    """Of this process, which has used both: as `os.times` has it, to some ticks."""
    before = os.times()
    trace = ProcCollector(target(os.getpid())).poll()
    after = os.times()
    values = {r.metric: (r.value or 0.0) / NS_PER_S for r in trace.readings if r.track == ids.process(os.getpid())}
    assert before.system - 0.05 <= values[v.PROCESS_SYSTEM] <= after.system + 0.05
    assert sum(before[:2]) - 0.05 <= values[v.PROCESS_CPU] <= sum(after[:2]) + 0.05


def test_switches_are_counted(busy: subprocess.Popen[str]) -> None:
    trace = ProcCollector(target(busy.pid)).poll()
    status = Path(f"/proc/{busy.pid}/status").read_text()
    voluntary = int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    [reading] = [
        r for r in trace.readings if r.track == ids.thread(busy.pid, busy.pid) and r.metric == v.THREAD_VOLUNTARY
    ]

    assert reading.value == voluntary


def test_the_cpus_of_before_are_told_with_since_when(busy: subprocess.Popen[str]) -> None:
    thread = Thread(ids.thread(busy.pid, busy.pid), busy.pid, busy.pid)
    usual = os.sched_getaffinity(busy.pid)
    if len(usual) < 2:
        pytest.skip("one CPU alone cannot be taken away")
    task = os.open(f"/proc/{busy.pid}/task", os.O_RDONLY)
    try:
        list(thread.switched(task, 1 * NS_PER_S))
        first = thread.news("server")
        os.sched_setaffinity(busy.pid, {min(usual)})
        thread.may_have_switched = True
        list(thread.switched(task, 5 * NS_PER_S))
        held = thread.news("server")
    finally:
        os.close(task)
        thread.close()

    assert first is not None
    assert held is not None
    assert "cpus_before" not in first.facts
    assert held.facts["cpus"] == str(min(usual))
    assert held.facts["cpus_before"] == first.facts["cpus"]
    assert held.facts["cpus_since_ns"] == 5 * NS_PER_S


def test_a_cause_seen_for_the_first_time_starts_from_zero() -> None:
    thread = Thread(ids.thread(1, 1), 1, 1)
    for now, cause in ((10, ThreadCause.FUTEX), (20, ThreadCause.EPOLL)):
        thread.cause = cause
        thread.count()
        readings = list(thread.readings(now))

    epoll = v.labelled(v.THREAD_STATE_SAMPLES, "epoll")
    assert [(r.t_ns, r.value) for r in readings if r.metric == epoll] == [(10, 0.0), (20, 1.0)]


def test_the_first_cause_of_a_thread_does_not_start_from_zero() -> None:
    """What it was at before the first look is not known."""
    thread = Thread(ids.thread(1, 1), 1, 1)
    thread.cause = ThreadCause.FUTEX
    thread.count()
    futex = v.labelled(v.THREAD_STATE_SAMPLES, "futex")
    assert [(r.t_ns, r.value) for r in thread.readings(10) if r.metric == futex] == [(10, 1.0)]


def test_children_that_come_and_go_are_marked() -> None:
    code = "import subprocess, sys\nprint('ready', flush=True)\nfor line in sys.stdin: subprocess.Popen(line.split())\n"
    with python(code) as parent:
        assert parent.stdin is not None
        now = [0]
        watch = Watch(ProcCollector(target(parent.pid), ENGINES, lambda: now[0]))
        parent.stdin.write("sleep 1000\n")
        parent.stdin.flush()
        eventually(lambda: procfs.below(parent.pid), "the child")
        watch.poll()
        now[0] += BRIEF_NS
        [started] = watch.poll().marks
        child = int(started.track.removeprefix("process:"))
        assert "started" in started.text
        assert started.track in watch.recorder.freeze().tracks

        os.kill(child, signal.SIGKILL)
        ended = eventually(lambda: [mark for mark in watch.poll().marks if "exited" in mark.text], "its end")[0]

        assert ended.track == ids.process(child)
        assert ended.severity is Severity.WARNING
        assert set(watch.last.gone) >= {ids.process(child), ids.thread(child, child)}
        assert started.track not in watch.recorder.freeze().tracks


def test_threads_that_end_are_gone() -> None:
    code = (
        "import sys, threading\nprint('ready', flush=True)\nt = threading.Thread(target=sys.stdin.readline)\n"
        "t.start()\nt.join()\nprint('ended', flush=True)\nsys.stdin.read()\n"
    )
    with python(code) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        watch = Watch(ProcCollector(target(program.pid)))
        eventually(lambda: len(watch.threads()) == 1 or len(watch.poll().tracks) > 3, "two threads")
        eventually(
            lambda: watch.poll() and len(watch.recorder.freeze().tracks_of(TrackKind.THREAD)) == 2, "two threads"
        )
        program.stdin.write("\n")
        program.stdin.flush()
        program.stdout.readline()
        eventually(lambda: watch.poll() and len(watch.recorder.freeze().tracks_of(TrackKind.THREAD)) == 1, "one thread")


def test_a_thread_that_takes_the_place_of_another_is_found_with_the_next_poll() -> None:
    code = (
        "import os, sys, threading\ndef begin():\n    t = threading.Thread(target=sys.stdin.readline)\n    t.start()\n"
        "    return t\nt = begin()\nprint('ready', flush=True)\nt.join()\n"
        "while len(os.listdir('/proc/self/task')) > 1: pass\n"
        "t = begin()\nprint('again', flush=True)\nt.join()\n"
    )
    with python(code) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        collector = ProcCollector(target(program.pid))
        before = {id for id, track in collector.poll().tracks.items() if track.kind is TrackKind.THREAD}
        collector.poll()
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "again\n"
        after = collector.poll()
        found = {id for id, track in after.tracks.items() if track.kind is TrackKind.THREAD} - before
        assert (len(before), len(found), len(set(after.gone) & before)) == (2, 1, 1)
        program.stdin.write("\n")
        program.stdin.flush()


def test_threads_are_listed_only_where_some_have_begun_or_ended(
    busy: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = ProcCollector(target(busy.pid))
    collector.poll()
    listed: list[int] = []

    def noted(pid: int, proc: Path) -> list[int]:
        listed.append(pid)
        return []

    monkeypatch.setattr(procfs, "threads", noted)
    monkeypatch.setattr(collector._births, "look", lambda at_all: ())
    collector._births.begun = range(0)
    trace = collector.poll()
    assert not listed
    assert not trace.gone
    assert {reading.track for reading in trace.readings if reading.metric is v.THREAD_ON_CPU}
    collector._births.begun = None
    collector.poll()
    assert listed == [busy.pid]


def test_the_servers_exit_is_an_error_and_polling_goes_on() -> None:
    with threads("sleeper") as program:
        collector = ProcCollector(target(program.pid))
        collector.poll()
        program.kill()
        program.wait()
        trace = collector.poll()
        after = collector.poll()

    assert [(mark.severity, mark.text) for mark in trace.marks] == [
        (Severity.ERROR, f"main (pid {program.pid}) exited: killed by SIGKILL")
    ]
    assert trace.marks[0].about == ProcessEnd(program.pid, "killed by SIGKILL", is_regular=False)
    for one in (trace, after):
        why = one.why_missing(What("proc"))
        assert why is not None
        assert "has exited" in why.reason
    assert not after.marks
    assert not [reading for reading in after.readings if reading.track.startswith(("process", "thread"))]


def test_a_server_that_is_gone_before_the_first_poll() -> None:
    with subprocess.Popen(["true"]) as program:
        pass
    why = ProcCollector(target(program.pid)).poll().why_missing(What("proc"))

    assert why is not None
    assert "has exited" in why.reason


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise ValueError('no room')", "ValueError: no room"),
        ("os.write(2, b'ValueError: no room'); os.kill(os.getpid(), 9)", None),
        ("os.write(2, b'ValueError: no room')", None),
    ],
    ids=["it failed", "it was killed", "it ended as told"],
)  # fmt: skip
def test_the_log_of_a_server_that_fails_is_read_after_its_end(tmp_path: Path, code: str, error: str | None) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        argv = [sys.executable, "-c", f"import os; input(); {code}"]
        program = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=file)
    with program, ProcCollector(target(program.pid)) as collector:
        collector.poll()
        program.communicate(b"\n", timeout=30)
        [ended] = collector.poll().tracks_of(TrackKind.ENDED)
    assert ended.facts.get("log_error") == error
    assert "log_end" not in ended.facts
    assert ended.facts.get("log_command") == (None if error is None else f"tail -n 200 {log}")


@pytest.mark.parametrize(("written", "end"), [(b"", ""), (b"loading\n10 %\r\x1b[1m20 %\x1b[0m\n\n", "20 %")])
def test_the_last_line_of_a_log_that_names_no_error_is_told(tmp_path: Path, written: bytes, end: str) -> None:
    with (tmp_path / "log").open("wb") as file:
        argv = [sys.executable, "-c", f"import os; input(); os.write(2, {written!r}); os._exit(3)"]
        program = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=file)
    with program, ProcCollector(target(program.pid)) as collector:
        collector.poll()
        program.communicate(b"\n", timeout=30)
        [ended] = collector.poll().tracks_of(TrackKind.ENDED)
    assert ended.facts.get("log_end") == end


def test_a_server_that_is_a_zombie_before_the_first_poll_tells_how_it_ended() -> None:
    with subprocess.Popen(["sh", "-c", "kill -KILL $$"]) as program:
        eventually(lambda: (stat := procfs.stat(program.pid)) is not None and stat.state == "Z", "the zombie")
        trace = ProcCollector(target(program.pid)).poll()
    [ended] = trace.tracks_of(TrackKind.ENDED)
    assert {key: ended.facts[key] for key in ("pid", "how", "is_zombie", "was_over", "parent")} == {
        "pid": program.pid,
        "how": "killed by SIGKILL",
        "is_zombie": 1,
        "was_over": 1,
        "parent": os.getpid(),
    }


def test_a_reused_pid_is_another_process() -> None:
    with threads("sleeper") as program:
        collector = ProcCollector(target(program.pid))
        collector.poll()
        collector._processes[program.pid].start_ticks -= 1
        trace = collector.poll()

    assert ids.process(program.pid) in trace.gone
    assert trace.marks[0].text.endswith("exited")


def test_roles_come_from_titles_and_follow_renaming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc_module, "RENEW_NS", 0)
    with tree(Fake("core", ("VLLM::EngineCore",), (Fake("w", ("VLLM::Worker_TP1",)),))) as running:
        collector = ProcCollector(target(running.pids["core"], "vllm"), ENGINES)
        tracks = collector.poll().tracks
        title = ("vllm", "serve", "m")
        monkeypatch.setattr(procfs, "arguments", lambda pid: title)
        renamed = collector.poll().tracks

    assert tracks[ids.process(running.pids["core"])].facts["role"] == "EngineCore"
    assert tracks[ids.process(running.pids["w"])].facts["role"] == "Worker_TP1"
    assert tracks[ids.thread(running.pids["w"], running.pids["w"])].facts["role"] == "Worker_TP1"
    assert renamed[ids.process(running.pids["w"])].facts["role"] == "APIServer"
    assert renamed[ids.thread(running.pids["w"], running.pids["w"])].facts["role"] == "APIServer"


def test_tracks_are_sent_again_only_when_they_change(busy: subprocess.Popen[str]) -> None:
    collector = ProcCollector(target(busy.pid))
    collector.poll()
    eventually(lambda: ids.process(busy.pid) not in collector.poll().tracks, "a poll without news of the process")

    assert len([track for track in collector.poll().tracks if track.startswith("thread")]) < len(WAITS)


def test_hostile_names_and_secrets() -> None:
    argv = ("vllm", "serve", "m", "--api-key", "sk-1", "\x1b[2J[/b]")
    with tree(Fake("api", argv, name="\x1b[31mred")) as running:
        trace = ProcCollector(target(running.pids["api"], "vllm"), ENGINES).poll()

    pid = running.pids["api"]
    assert trace.tracks[ids.thread(pid, pid)].name == "␛[31mred"
    assert trace.tracks[ids.process(pid)].facts["cmdline"] == "vllm serve m --api-key [redacted] $'\\033[2J[/b]'"


def test_where_the_server_runs_is_known_to_start_it_again() -> None:
    with tree(Fake("api", ("vllm", "serve", "./m"))) as running:
        trace = ProcCollector(target(running.pids["api"], "vllm"), ENGINES).poll()
    assert trace.tracks[ids.process(running.pids["api"])].facts["directory"] == str(Path.cwd())


UNREAD = Unknown("which GPUs it holds cannot be read", "sudo llmtop")


@pytest.mark.parametrize(
    ("gpus", "missing", "opened", "told"),
    [
        ((0, 3), (), ["/dev/nvidia7"], 2),  # those that the target was recognised with
        (
            (),
            (),
            ["/dev/nvidia0", "/dev/nvidia12", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/x/nvidia5"],
            2,
        ),
        ((), (), ["/dev/null", "socket:[7]"], 0),
        ((), (), None, 0),
        ((), (Missing(whats.TARGET_GPUS, UNREAD),), ["/dev/nvidia0"], UNREAD),
        ((), (Missing(whats.TARGET_PORTS, UNREAD),), ["/dev/nvidia0"], 1),
    ],
)
def test_how_many_gpus_a_server_has_open_is_told_where_all_its_files_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[int, ...],
    missing: tuple[Missing, ...],
    opened: list[str] | None,
    told: object,
) -> None:
    monkeypatch.setattr(procfs, "open_files", lambda pid: opened)
    with tree(Fake("api", ("VLLM::APIServer",), (Fake("core", ("VLLM::EngineCore",)),))) as running:
        root = running.pids["api"]
        one = replace(target(root, "vllm"), gpus=gpus, missing=missing)
        assert ProcCollector(one, ENGINES).poll().tracks[ids.process(root)].facts["gpus_open"] == told


@pytest.mark.parametrize(("variable", "core"), [(None, "EngineCore"), ("VLLM_USE_V1", None)])
def test_an_engine_is_expected_below_the_root_unless_its_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, core: str | None
) -> None:
    monkeypatch.setattr(procfs, "environment", lambda pid, name: "0" if name == variable else None)
    with tree(Fake("api", ("VLLM::APIServer",))) as running:
        root = running.pids["api"]
        facts = ProcCollector(target(root, "vllm"), ENGINES).poll().tracks[ids.process(root)].facts
    assert facts.get("core") == core


def test_files_that_may_not_be_read_are_a_reason(busy: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read = procfs.read_bytes

    def read_as_stranger(path: str | Path, dir_fd: int | None = None) -> bytes | None:
        if str(path).endswith("/wchan"):
            return b"0"
        return None if str(path).endswith("/syscall") else read(path, dir_fd)

    monkeypatch.setattr(procfs, "read_bytes", read_as_stranger)
    monkeypatch.setattr(procfs.KeptFiles, "read", lambda _, path, dir_fd: read_as_stranger(path, dir_fd))
    collector = ProcCollector(target(busy.pid))
    collector.poll()
    trace = collector.poll()

    why = trace.why_missing(What(f"process:{busy.pid}/{v.THREAD_STATE_SAMPLES.name}"))
    assert why is not None
    assert "sudo" in why.remedy
    causes = {r.metric.name for r in trace.readings if r.metric.name.startswith("thread.state_samples|")}
    assert causes <= {"thread.state_samples|running"}, "no cause is made up"


def test_wait_channels_are_enough_where_calls_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"7/wchan": b"futex_wait_queue", "7/stat": b"7 (a b) S 1 2", "7/schedstat": b"1 2 3"}
    monkeypatch.setattr(procfs, "read_bytes", lambda path, dir_fd=None: files.get(str(path)))
    thread = Thread(ids.thread(1, 7), 1, 7)

    assert thread.read_clocks(0)
    thread.look(0, ThreadAccess(1))

    assert (thread.name, thread.cause, thread.wchan) == ("a b", ThreadCause.FUTEX, "futex_wait_queue")


def test_a_thread_that_ends_while_it_is_read_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "read_bytes", lambda path, dir_fd=None: None)
    thread = Thread(ids.thread(1, 7), 1, 7)

    assert not thread.read_clocks(0)
    thread.look(0, ThreadAccess(1))
    assert thread.cause is None


@pytest.mark.parametrize(
    ("wchan", "cause"),
    [
        ("futex_wait_queue_me", "futex"),
        ("do_epoll_wait", "epoll"),
        ("ep_poll", "epoll"),
        ("do_sys_poll", "poll"),
        ("poll_schedule_timeout.constprop.0", "poll"),
        ("hrtimer_nanosleep", "nanosleep"),
        ("pipe_read", "pipe"),
        ("unix_stream_read_generic", "socket"),
        ("inet_csk_accept", "socket"),
        ("io_schedule", "disk"),
        ("folio_wait_bit_common", "disk"),
        ("jbd2_log_wait_commit", "disk"),
        ("nvidia_unlocked_ioctl", "gpu_driver"),
        ("_nv012345rm", "gpu_driver"),
        ("os_acquire_semaphore", "gpu_driver"),
        ("uvm_va_range_wait", "gpu_driver"),
        ("do_wait", "child"),
        ("do_sigtimedwait", "signal"),
        ("io_cqring_wait", "io_uring"),
        ("something_new", None),
        ("", None),
    ],
)
def test_wait_channels(wchan: str, cause: str | None) -> None:
    assert cause_of_wchan(wchan) == cause


@pytest.mark.parametrize(
    ("line", "machine", "cause"),
    [
        ("202 0x7f 0x80 0x0", "x86_64", "futex"),
        ("98 0x7f 0x80 0x0", "aarch64", "futex"),
        ("281 0x5", "x86_64", "epoll"),
        ("22 0x5", "aarch64", "epoll"),
        ("0 0x3 0x0", "x86_64", "pipe"),
        ("63 0x4 0x0", "aarch64", "socket"),
        ("16 0x5 0xc020462a", "x86_64", "gpu_driver"),
        ("29 0x5 0xc020462a", "aarch64", "gpu_driver"),
        ("0 0x6 0x0", "x86_64", "disk"),
        ("0 0x63 0x0", "x86_64", "other"),
        ("999 0x0", "x86_64", None),
        ("-1 0x7ff 0x7ff", "x86_64", None),
        ("running", "x86_64", None),
        ("", "x86_64", None),
        ("202 0x0", "riscv64", None),
    ],
)
def test_system_calls(line: str, machine: str, cause: str | None) -> None:
    files = {3: "pipe:[1]", 4: "socket:[2]", 5: "/dev/nvidia0", 6: "/models/a.safetensors"}

    assert cause_of_syscall(line, files.get, machine) == cause


def make_group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def test_the_nearest_group_with_a_quota_counts_the_throttling(tmp_path: Path) -> None:
    mount, proc = tmp_path / "cgroup", tmp_path / "proc"
    make_group(proc / "7", cgroup="0::/pod/box\n")
    make_group(mount / "pod", cpu__max="600000 100000\n", cpu__stat="nr_throttled 9\nthrottled_usec 1500\n")
    make_group(mount / "pod" / "box", cpu__max="max 100000\n", cpu__stat="nr_throttled 0\nthrottled_usec 0\n")

    group = cgroups.group_of(7, proc, mount)

    assert isinstance(group, cgroups.Group)
    assert (group.path, group.cores) == ("/pod/box", 6.0)
    assert cgroups.throttling(group) == cgroups.Throttling(9, 1_500_000)


def test_version_one_groups(tmp_path: Path) -> None:
    mount, proc = tmp_path / "cgroup", tmp_path / "proc"
    make_group(proc / "7", cgroup="5:cpu,cpuacct:/docker/x\n0::/\n")
    stat = "nr_periods 10\nnr_throttled 4\nthrottled_time 77\n"
    quota = {"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}
    make_group(mount / "cpu,cpuacct" / "docker" / "x", cpu__stat=stat, **quota)

    group = cgroups.group_of(7, proc, mount)

    assert isinstance(group, cgroups.Group)
    assert group.cores == 1.5
    assert cgroups.throttling(group) == cgroups.Throttling(4, 77)


@pytest.mark.parametrize(
    ("membership", "files", "told"),
    [
        (
            "5:cpu:/pods/x\n",
            {"cpu/pods/cpu.shares": "2\n", "cpu/pods/x/cpu.shares": "1024\n"},
            (2 / 1024, "cpu.shares 2"),
        ),
        ("0::/pods/x\n", {"pods/cpu.weight": "100\n", "pods/x/cpu.weight": "1\n"}, (0.01, "cpu.weight 1")),
        ("0::/pods/x\n", {"pods/cpu.idle": "1\n", "pods/x/cpu.weight": "100\n"}, (0.0, "cpu.idle 1")),
        ("0::/pods/x\n", {"pods/cpu.weight": "100\n", "pods/x/cpu.weight": "60\n"}, None),
    ],
)
def test_the_least_weight_of_a_group_and_those_above(
    membership: str, files: dict[str, str], told: tuple[float, str] | None, tmp_path: Path
) -> None:
    mount, proc = tmp_path / "cgroup", tmp_path / "proc"
    make_group(proc / "7", cgroup=membership)
    for name, content in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(content)
    weight = cgroups.weight_of(7, proc, mount)
    assert (weight and (weight.share, weight.text.partition(" in ")[0])) == told


def test_no_group_and_no_quota_are_reasons(tmp_path: Path) -> None:
    mount, proc = tmp_path / "cgroup", tmp_path / "proc"
    assert isinstance(cgroups.group_of(7, proc, mount), Unknown)
    make_group(proc / "7", cgroup="0::/\n")
    make_group(mount, cpu__stat="usage_usec 5\n")
    group = cgroups.group_of(7, proc, mount)
    assert isinstance(group, cgroups.Group)
    assert group.cores is None
    assert isinstance(cgroups.throttling(group), Unknown)


def test_pressure_and_load_are_read_or_missing(busy: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    trace = ProcCollector(target(busy.pid)).poll()
    read = {r.metric for r in trace.readings if r.track == "host"}
    missing = {missing.what for missing in trace.missing}
    assert v.HOST_LOAD in read
    assert (v.HOST_CPU_PRESSURE in read) != ("host/host.cpu_pressure" in missing)

    monkeypatch.setattr(procfs, "read_text", lambda path: None)
    why = ProcCollector(target(busy.pid)).poll().why_missing(What("host/host.cpu_pressure"))
    assert why is not None
    assert "psi=1" in why.remedy


def test_what_a_shell_runs_in_turn_is_no_part_that_is_missed() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000; sleep 1000"]) as shell:
        try:
            child = eventually(lambda: procfs.below(shell.pid), "its child")[0]
            parts = (TargetProcess(shell.pid, "main", "sh"), TargetProcess(child, "child", "sleep"))
            collector = ProcCollector(Target(shell.pid, shell.pid, "process", "sh", parts))
            collector.poll()
            os.kill(child, signal.SIGTERM)
            eventually(lambda: child not in procfs.below(shell.pid), "its end")
            trace = collector.poll()
            assert ids.process(child) in trace.gone
            assert not trace.tracks_of(TrackKind.ENDED)
        finally:
            os.kill(shell.pid, signal.SIGSTOP)  # or it would start the next one
            for pid in (*procfs.below(shell.pid), shell.pid):
                os.kill(pid, signal.SIGKILL)


DEAD_CHILDREN = """
import ctypes, os, signal, sys
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME, of which Linux keeps 15 bytes
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # this one: those before it are left dead and would do for any
print('ready', flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("title", ["VLLM::EngineCore", "VLLM::Worker_TP0", "sglang::scheduler_TP0"])
def test_a_part_that_had_died_before_the_first_look_is_told(title: str) -> None:
    role = {"VLLM::EngineCore": "EngineCore", "VLLM::Worker_TP0": "Worker_TP"}.get(title, "scheduler")
    with python(DEAD_CHILDREN, title) as program:
        trace = ProcCollector(target(program.pid), ENGINES).poll()

    [ended] = trace.tracks_of(TrackKind.ENDED)
    assert (ended.name, ended.facts["how"]) == (role, "killed by SIGKILL")
    assert (ended.facts["is_zombie"], ended.facts["was_over"], ended.facts["parent"]) == (1, 1, program.pid)
    [mark] = trace.marks
    assert mark.text == f"{role} (pid {ended.facts['pid']}) had exited before llmtop came: killed by SIGKILL"


def test_a_zombie_of_no_role_and_one_that_was_replaced_are_no_parts_that_are_missed() -> None:
    with python(DEAD_CHILDREN, "sh", "VLLM::APIServer") as program:
        front = TargetProcess(program.pid, "APIServer", "python")
        trace = ProcCollector(Target(program.pid, program.pid, "vllm", "vLLM", (front,)), ENGINES).poll()

    assert not trace.tracks_of(TrackKind.ENDED)
    assert not trace.marks


def test_a_part_in_a_group_of_its_own_has_its_quota_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of all that are in one group it is told once: with the root, where that is in it."""
    groups = {
        10: cgroups.Group(tmp_path / "front", "/front", None),
        11: cgroups.Group(tmp_path / "front", "/front", None),
        12: cgroups.Group(tmp_path / "worker", "/worker", 2.0),
        13: cgroups.Group(tmp_path / "worker", "/worker", 2.0),
    }
    monkeypatch.setattr(cgroups, "group_of", groups.__getitem__)
    collector = ProcCollector(Target(10, 10, "vllm", "vLLM", ()))
    told = {pid: collector._quotas.facts(pid).get("cgroup") for pid in (11, 12, 10, 13, 11)}
    assert told == {11: None, 12: "/worker", 10: "/front", 13: None}
    assert {*collector._quotas.groups} == {10, 12}


HERD = """
import threading
def compute():
    while True:
        sum(range(1000))
for _ in range(3):
    threading.Thread(target=compute, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""
IN_FUTEX = v.labelled(v.THREAD_STATE_SAMPLES, "futex")
WAITS_WITH_A_LIMIT = "import threading; print('ready', flush=True); threading.Event().wait(3600)"


def at_gil(trace: Trace) -> dict[str, float]:
    return {one.track: one.value or 0.0 for one in trace.readings if one.metric is v.THREAD_GIL_FUTEX}


def test_threads_are_found_at_their_interpreters_lock() -> None:
    with python(HERD) as herd:
        collector, seen = ProcCollector(target(herd.pid)), dict[str, float]()
        while sum(seen.values()) < 10:
            seen |= at_gil(collector.poll())
    assert {track.partition("/")[0] for track in seen} == {f"thread:{herd.pid}"}


def test_a_wait_with_a_limit_at_another_lock_is_not_the_interpreters() -> None:
    with python(WAITS_WITH_A_LIMIT) as waits:
        collector, looks = ProcCollector(target(waits.pid)), 0.0
        while looks < 3:
            trace = collector.poll()
            looks = max((one.value or 0.0 for one in trace.readings if one.metric is IN_FUTEX), default=0.0)
            assert not at_gil(trace)


def _open_here() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


def test_files_of_threads_stay_open_up_to_a_limit_and_are_let_go_of(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("1")
    folder = os.open(tmp_path, os.O_RDONLY)
    before = _open_here()
    files = procfs.KeptFiles(most=2)
    try:
        assert [files.read(name, folder) for name in ("a", "b", "c", "d")] == [b"1", b"1", b"1", None]
        assert len(_open_here() - before) == 2
        (tmp_path / "a").write_text("22")
        assert files.read("a", folder) == b"22", "what it says now"
        files.close("a", "c")
        assert len(_open_here() - before) == 1
    finally:
        files.close()
        assert _open_here() == before
        os.close(folder)


def _held(tid: int) -> list[str]:
    return [link for link in procfs.open_files(os.getpid()) or () if f"/task/{tid}/" in link]


def test_the_files_of_threads_that_end_are_closed() -> None:
    code = "import sys, threading; t = threading.Thread(target=sys.stdin.readline); t.start(); t.join(); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        try:
            eventually(lambda: len(procfs.threads(process.pid)) == 2, "its thread")
            with ProcCollector(target(process.pid)) as collector:
                collector.poll()
                (other,) = set(procfs.threads(process.pid)) - {process.pid}
                assert _held(other)
                process.stdin.write("\n")
                process.stdin.flush()
                eventually(lambda: len(procfs.threads(process.pid)) == 1, "the thread's end")
                collector.poll()
                assert not _held(other)
                assert _held(process.pid)
            assert not _held(process.pid)
        finally:
            process.kill()


PAGED_OUT = """
import mmap, os, sys, tempfile
with tempfile.TemporaryFile(dir="/var/tmp") as file:  # which is on a disk, as /tmp often is not
    file.write(os.urandom(64 * mmap.PAGESIZE))
    file.flush()
    os.fsync(file.fileno())
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    memory.madvise(mmap.MADV_RANDOM)
    print("ready", flush=True)
    for _ in sys.stdin:
        memory.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        sum(memory[i] for i in range(0, len(memory), mmap.PAGESIZE))
        print("read", flush=True)
"""


def test_pages_that_are_read_from_a_disk_and_swap_are_counted() -> None:
    with python(PAGED_OUT) as paged:
        watch = Watch(ProcCollector(target(paged.pid)))
        assert paged.stdin is not None
        assert paged.stdout is not None
        paged.stdin.write("again\n")
        paged.stdin.flush()
        paged.stdout.readline()
        trace = watch.poll()
    faults = int(grown(trace, ids.process(paged.pid), v.PROCESS_MAJOR_FAULTS))
    if not faults:
        pytest.skip("this machine keeps pages of /var/tmp that it was told to drop")
    assert faults >= 32
    assert trace.get(ids.process(paged.pid), v.PROCESS_SWAP) is not None


def test_files_that_are_open_are_counted_below_the_limit(busy: subprocess.Popen[str]) -> None:
    limits = resource.prlimit(busy.pid, resource.RLIMIT_NOFILE)
    opened = len(procfs.open_files(busy.pid) or ())
    resource.prlimit(busy.pid, resource.RLIMIT_NOFILE, (2, limits[1]))
    read = {one.metric: one.value for one in ProcCollector(target(busy.pid)).poll().readings}
    assert opened > 2
    assert (read[v.PROCESS_FILES], read[v.PROCESS_FILES_LIMIT]) == (2, 2), "what is above the limit does not count"
