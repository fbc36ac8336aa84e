"""What a snapshot waits for before its window."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import pytest

from llmtop.cli.snapshot import patience, wait_until_ready
from llmtop.model import Missing, Origin, Trace, Unknown, What
from llmtop.session import Session


class Slow:
    """A collector that is about to look until it is let."""

    name = "slow"
    period_s = 0.01

    def __init__(self, *, may_look: bool) -> None:
        self.looks = threading.Event()
        if may_look:
            self.looks.set()

    @property
    def is_starting(self) -> bool:
        return not self.looks.is_set()

    def missing(self) -> Unknown | None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def poll(self) -> Trace:
        missing = (Missing(What("slow"), Unknown("it is being compiled", "wait a second")),) if self.is_starting else ()
        return Trace(Origin("live"), 1, 1, missing=missing)


@pytest.mark.parametrize(("may_look", "late"), [(True, ()), (False, ("slow.late",))])
def test_what_is_not_ready_in_time_is_named_with_the_limit(may_look: bool, late: tuple[str, ...]) -> None:
    session = Session([Slow(may_look=may_look)], Origin("live"), interval_s=0.01)
    session.start()
    try:
        found = wait_until_ready(session, 5.0 if may_look else 0.3)
    finally:
        session.stop()
    assert tuple(one.what for one in found) == late
    for one in found:
        assert one.why.reason == "not ready within 0.3 s: it is being compiled"
        assert "--wait 30" in one.why.remedy


def test_one_that_cannot_run_here_is_not_waited_for() -> None:
    class Nowhere(Slow):
        def missing(self) -> Unknown | None:
            return Unknown("not root")

    session = Session([Nowhere(may_look=True)], Origin("live"), interval_s=0.01)
    session.start()
    try:
        assert wait_until_ready(session, 5.0) == ()
    finally:
        session.stop()


def test_there_may_be_no_patience() -> None:
    assert (patience("0"), patience("2.5")) == (0.0, 2.5)


def test_a_stream_is_a_document_a_line_until_somebody_ends_it() -> None:
    begun = datetime.now(UTC)
    command = [sys.executable, "-m", "llmtop", "snapshot", "--interval", "0.3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        documents = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(30) == 0
    assert {one["schema"] for one in documents} == {"llmtop.snapshot/1"}
    assert all(one["window_s"] >= 0.3 for one in documents)
    times = [datetime.fromisoformat(one["time"]) for one in documents]
    assert begun < times[0] < times[1] < times[2] < datetime.now(UTC)


def test_a_stream_ends_when_the_time_is_over() -> None:
    command = [sys.executable, "-m", "llmtop", "snapshot", "--interval", "0.3", "--seconds", "1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert [json.loads(line)["schema"] for line in done.stdout.splitlines()] == ["llmtop.snapshot/1"] * 3


def test_a_stream_whose_reader_leaves_ends() -> None:
    command = [sys.executable, "-m", "llmtop", "snapshot", "--interval", "0.3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
