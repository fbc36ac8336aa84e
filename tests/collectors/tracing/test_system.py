"""What /proc says of processes and threads, read from text in its formats: proc_pid_stat(5), proc_pid_syscall(5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.collectors.tracing.helper import system

PID, TID = 4242, 4243
AFTER_STATE = (
    "1 4242 4242 0 -1 4194560 4321 0 2 0 51 17 0 0 20 0 {threads} 0 {start} 12845056 2741 18446744073709551615"
)


@pytest.fixture
def proc(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files that there are, by path."""
    files: dict[str, str] = {}
    monkeypatch.setattr(system, "read", lambda path: files.get(path, ""))
    return files


@pytest.mark.parametrize(
    ("state", "threads", "started"),
    [
        ("S", 1, "8123"),
        ("R", 40, "8123"),
        ("Z", 1, ""),
        ("Z", 2, "8123"),
        ("X", 1, ""),
        ("X", 3, "8123"),
    ],
)
def test_a_process_runs_as_long_as_one_of_its_threads(
    proc: dict[str, str], state: str, threads: int, started: str
) -> None:
    """A first thread that has ended is a zombie while others run on; with none left the process is."""
    stat = AFTER_STATE.format(threads=threads, start=8123)
    proc[f"/proc/{PID}/stat"] = f"{PID} (a) S 1 (x) {state} {stat}\n"
    assert system.start_time(PID) == started


def test_one_that_is_gone_or_half_read_was_never_started(proc: dict[str, str]) -> None:
    assert system.start_time(PID) == ""
    whole = f"{PID} (vllm) S {AFTER_STATE.format(threads=1, start=8123)}"
    proc[f"/proc/{PID}/stat"] = whole[: whole.index(" 8123")]
    assert system.start_time(PID) == ""
    proc[f"/proc/{PID}/stat"] = whole[: whole.index(" 8123") + 5]
    assert system.start_time(PID) == "8123"


def test_what_a_thread_is_at(proc: dict[str, str]) -> None:
    task = f"/proc/{PID}/task/{TID}"
    proc[f"{task}/stat"] = f"{TID} (pt_main (x) D) D 1 4242"
    proc[f"{task}/schedstat"] = "123456 1000 77\n"
    proc[f"/proc/{TID}/status"] = f"Name:\tx\nTgid:\t{PID}\nPid:\t{TID}\n"
    assert system.thread_state(PID, TID) == "D"
    assert system.run_and_queued(PID, TID) == 124456
    proc[f"/proc/{PID}/task/1/schedstat"] = "123456"
    assert not system.is_process(TID)
    proc[f"/proc/{TID}/status"] = f"Name:\tx\nTgid:\t{TID}\nPid:\t{TID}\n"
    assert system.is_process(TID)
    assert (system.thread_state(PID, 1), system.run_and_queued(PID, 1), system.is_process(1)) == ("", None, False)


@pytest.mark.parametrize(
    ("said", "sleeps_in"),
    [
        ("202 0x7f0012345678 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f01", (202, 0x12345678)),
        ("0 0x3 0x7f00 0x1000 0x0 0x0 0x0 0x7ffc 0x7f01", (0, 3)),
        ("-1 0x7ffc 0x7f01", None),
        ("running", None),
        ("202", None),
        ("", None),
    ],
)
def test_the_call_that_a_thread_sleeps_in(proc: dict[str, str], said: str, sleeps_in: tuple[int, int] | None) -> None:
    proc[f"/proc/{PID}/task/{TID}/syscall"] = said
    assert system.sleeping_in(PID, TID) == sleeps_in


def test_where_in_the_kernel_it_sleeps(proc: dict[str, str]) -> None:
    lines = ("[<0>] futex_wait_queue+0x60/0x90", "[<0>] do_syscall_64.part.0+0x3b/0x90", "nonsense")
    proc[f"/proc/{PID}/task/{TID}/stack"] = "\n".join(lines)
    assert system.kernel_stack(PID, TID) == ["do_syscall_64.part.0_[k]", "futex_wait_queue_[k]"]


def test_kinds_of_programs_that_another_tracer_holds(monkeypatch: pytest.MonkeyPatch, proc: dict[str, str]) -> None:
    """A socket filter (1) runs on no event of a thread, and what is no program at all is not asked."""
    links = {"3": "anon_inode:bpf-prog", "4": "anon_inode:bpf-prog", "5": "anon_inode:bpf-prog", "6": "socket:[17]"}
    folders = {"/proc": ["self", f"{PID}", "1"], f"/proc/{PID}/fd": [*links], "/proc/1/fd": []}
    monkeypatch.setattr("os.listdir", folders.__getitem__)
    monkeypatch.setattr("os.readlink", lambda path: links[Path(path).name])
    for name, kind in (("3", 17), ("4", 2), ("5", 1), ("6", 5)):
        proc[f"/proc/{PID}/fdinfo/{name}"] = f"pos:\t0\nflags:\t02000002\nprog_type:\t{kind}\nprog_jited:\t1\n"
    proc[f"/proc/{PID}/comm"] = "bcc-offcputime\n"
    assert system.other_tracers() == [(PID, "bcc-offcputime", "kprobe, raw tracepoint")]
    for kind, name in ((5, "tracepoint"), (7, "perf event"), (26, "fentry"), (6, ""), (27, "")):
        proc[f"/proc/{PID}/fdinfo/3"] = f"prog_type:\t{kind}\n"
        ((_, _, found),) = system.other_tracers()
        assert found == ", ".join(sorted({"kprobe", name} - {""}))


@pytest.mark.parametrize(
    ("release", "numbers"), [("6.1.0-18-amd64", (6, 1)), ("5.15.167.4-microsoft", (5, 15)), ("mine", (0, 0))]
)
def test_the_release_of_the_kernel(monkeypatch: pytest.MonkeyPatch, release: str, numbers: tuple[int, int]) -> None:
    class Named:
        def __init__(self, release: str) -> None:
            self.release = release

    monkeypatch.setattr("os.uname", lambda: Named(release))
    assert system.kernel_release() == numbers
