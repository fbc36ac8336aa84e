"""What perf's looks add up to since the start, and what a perf that fails has to say."""

from __future__ import annotations

import resource
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from llmtop.collectors.privileges import USE_SUDO
from llmtop.collectors.tracing.perf.collector import PerfCollector
from llmtop.collectors.tracing.perf.perf_text import CallRow, ThreadCalls
from llmtop.collectors.tracing.perf.run import MOST_BYTES, Perf, PerfError, Recording, failed
from llmtop.collectors.tracing.perf.sched import SliceSums
from llmtop.collectors.tracing.perf.totals import Books
from llmtop.vocabulary import ThreadCause
from tests.collectors.perf_waits import wait_plainly
from tests.workloads.programs import target_of

SERVER, WORKER = 100, 200
OWNERS = {100: SERVER, 101: SERVER, 200: WORKER}
S, MS = 1_000_000_000, 1_000_000


def slice_of(tid: int, ns: int, *, slot: int = 3, waker: int = 7) -> SliceSums:
    return SliceSums(
        blocked={(tid, ThreadCause.FUTEX): ns},
        queued={tid: Counter({slot: 2})},
        wakes=Counter({(tid, waker): 1}),
        events=4,
    )


def test_slices_add_up_by_thread_and_by_process() -> None:
    books = Books()
    books.add_slice(slice_of(100, 5 * MS), OWNERS, S)
    told = books.add_slice(slice_of(101, 7 * MS, slot=4), OWNERS, 2 * S)
    assert told["blocked"] == [(SERVER, 100, "futex", 5 * MS), (SERVER, 101, "futex", 7 * MS)]
    assert told["queue"] == [(SERVER, {3: 2, 4: 2})]
    assert told["wakes"] == [(SERVER, 100, 7, 1), (SERVER, 101, 7, 1)]
    assert books.observed == {"calls": 0, "timed": 0, "scheduler": 3 * S}
    assert books.hits == {"switch": 8}
    again = books.add_slice(slice_of(200, MS), OWNERS, S)
    assert again["queue"] == [(WORKER, {3: 2})], "queues that stand are not told again"


def test_calls_add_up_over_the_threads_of_a_process() -> None:
    books = Books()
    tables = [
        ThreadCalls(100, (CallRow("read", 3, 1, 30), CallRow("futex", 1, 0, 5))),
        ThreadCalls(101, (CallRow("read", 4, 0, 40),)),
        ThreadCalls(999, (CallRow("read", 50, 0, 500),)),
    ]
    told = books.add_calls(tables, OWNERS, S)
    assert told["names"] == {0: "read", 1: "futex"}
    assert told["calls"] == [(SERVER, 0, 7, 1, 70, {}), (SERVER, 1, 1, 0, 5, {})]
    assert (books.hits["call"], books.lacks_errors) == (8, False)
    told = books.add_calls([ThreadCalls(200, (CallRow("read", 1, None, 9),))], OWNERS, S)
    assert told["calls"][-1] == (WORKER, 0, 1, None, 9, {})
    assert books.lacks_errors
    assert books.observed == {"calls": 2 * S, "timed": 2 * S, "scheduler": 0}


def test_what_has_ended_is_dropped_and_nothing_else() -> None:
    books = Books()
    for tid in OWNERS:
        books.add_slice(slice_of(tid, MS), OWNERS, S)
    books.add_calls([ThreadCalls(tid, (CallRow("read", 1, 0, 9),)) for tid in (100, 200)], OWNERS, S)
    books.forget({101}, {WORKER})
    told = books.add_slice(SliceSums(), OWNERS, 0) | books.add_calls([], OWNERS, 0)
    assert [row.tid for row in told["blocked"]] == [100, 200]
    assert [row.tid for row in told["wakes"]] == [100, 200]
    assert [row.pid for row in told["calls"]] == [SERVER]
    assert (books.queued[SERVER], books.queued[WORKER]) == ({3: 4}, {})


@pytest.mark.parametrize(
    ("does", "reason", "lasting"),
    [
        ("echo 'Error: No such process' >&2; exit 1", "perf record failed: Error: No such process", False),
        ("echo 'Problems finding threads of monitor' >&2; exit 1", "perf record failed: Problems finding", False),
        ("echo 'event syntax error' >&2; exit 1", "perf record failed: event syntax error", True),
        ("exit 3", "perf record ended: exit code 3", False),
        (f"echo {'x' * 299}yz >&2; exit 1", f"perf record failed: {'x' * 299}y", True),
        ("kill -SEGV $$", "perf record ended: by SIGSEGV", False),
        ("exec sleep 60", "perf record does not answer", False),
    ],
)  # fmt: skip
def test_why_a_perf_ended_that_should_not_have(does: str, reason: str, lasting: bool) -> None:
    """What would fail the same way for good is told from what a thread that has just ended brings about."""
    with closing(Perf(("sh", "-c", does))) as perf:
        assert perf.wait(wait_plainly, 0.2 if "sleep" in does else 20) is ("sleep" not in does)
        error = failed(perf, "perf record")
    assert error.why.reason.startswith(reason)
    assert len(error.why.reason) <= len("perf record failed: ") + 300
    assert str(error) == error.why.reason
    assert error.lasting is lasting


def test_a_perf_writes_no_more_than_it_may_and_leaves_no_core() -> None:
    """It may open as many files as this user is allowed, whatever a shell has made of that."""
    few = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few[1] - 1, few[1]))
    try:
        its = limits_of_a_perf()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, few)
    blocks, core, files, most_files = its
    assert int(blocks) * 512 == MOST_BYTES
    assert core in (b"0", b"1")
    assert files == most_files


def limits_of_a_perf() -> list[bytes]:
    with closing(Perf(("sh", "-c", "ulimit -f; ulimit -c; ulimit -n; ulimit -Hn"))) as perf:
        assert perf.wait(wait_plainly, 20)
        return perf.output().read().split()


def recorder(folder: Path, does: str) -> str:
    """A program in perf's place that answers the first command, and then does this."""
    program = folder / "perf"
    program.write_text(
        "#!/bin/bash\n"
        'for word in "$@"; do case $word in --control=fd:*) fds=${word#--control=fd:};; esac; done\n'
        f'if test "$1" = record; then read -u ${{fds%,*}} said; echo "$said" >&2; echo ack >&${{fds#*,}}; {does}; fi\n'
    )
    program.chmod(0o755)
    return str(program)


def test_events_that_were_lost_are_counted(tmp_path: Path) -> None:
    """Told as it records, and among the events that it prints."""
    said = "'[ perf record: Woken up 1 times ]' 'Processed 900 events and lost 7 chunks!' '' 'Check IO/CPU overload!'"
    program = recorder(tmp_path, f"printf '%s\\n' {said} >&2; exit 0")
    Path(program).write_text(
        Path(program).read_text() + "if test $1 = script; then\n"
        "echo ' 7/7  1.000000000: PERF_RECORD_LOST lost 12'; echo ' 7/7  1.000000000: PERF_RECORD_LOST lost 30'; fi\n"
    )
    with closing(Recording(program, ())) as recording:
        recording.tell("enable", wait_plainly)
        assert list(recording.samples(wait_plainly)) == []
        assert recording.lost == 7 + 12 + 30


def test_a_record_that_does_not_end_is_given_up_for_this_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.collectors.tracing.perf.run.READ_S", 0.05)
    with closing(Recording(recorder(tmp_path, "exec sleep 60"), ())) as recording:
        recording.tell("enable", wait_plainly)
        with pytest.raises(PerfError, match="perf record does not end") as error:
            list(recording.samples(wait_plainly))
    assert not error.value.lasting


def test_a_perf_that_cannot_read_its_record_is_tried_again(tmp_path: Path) -> None:
    program = recorder(tmp_path, "exit 0")
    Path(program).write_text(Path(program).read_text() + "echo broken pipe of $1 >&2; test $1 = record\n")
    with closing(Recording(program, ())) as recording:
        recording.tell("enable", wait_plainly)
        held = sorted(Path("/proc/self/fd").iterdir())
        with pytest.raises(PerfError, match="perf script failed: broken pipe of script") as error:
            list(recording.samples(wait_plainly))
        assert sorted(Path("/proc/self/fd").iterdir()) == held, "it is tried again and again"
    assert not error.value.lasting


@pytest.mark.parametrize(
    ("user", "wish", "has_sudo", "expected"),
    [(1000, "1", True, True), (0, "1", True, False), (1000, "", True, False), (1000, "1", False, False)],
)
def test_sudo_is_used_where_it_is_wanted_and_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, wish: str, has_sudo: bool, expected: bool
) -> None:
    sudo = tmp_path / "sudo"
    sudo.touch(0o755 if has_sudo else 0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(USE_SUDO, wish)
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert PerfCollector(target_of(1))._by_sudo() is expected
