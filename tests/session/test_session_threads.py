"""The session runs collectors side by side; a fault in one costs only its own data."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from llmtop.model import Metric, Origin, Reading, Trace, Unknown
from llmtop.session import Session

BEAT = Metric("test.beat", "1")
DEADLINE_S = 10.0


class FakeCollector:
    """Counts its polls; optionally fails, hangs or cannot run."""

    period_s = 0.0

    def __init__(
        self, name: str, *, fail: frozenset[int] = frozenset(), why: Unknown | None = None, bad_enter: bool = False
    ) -> None:
        self.name = name
        self.polls = 0
        self.entered = self.left = False
        self._fail, self._why, self._bad_enter = fail, why, bad_enter

    def missing(self) -> Unknown | None:
        return self._why

    def __enter__(self) -> Self:
        if self._bad_enter:
            raise OSError("no such device")
        self.entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.left = True

    def poll(self) -> Trace:
        self.polls += 1
        if self.polls in self._fail:
            raise ValueError("bad row")
        t = time.monotonic_ns()
        return Trace(Origin("live"), t, t, readings=(Reading(self.name, BEAT, t, float(self.polls), "fake"),))


def run_until(session: Session, news: threading.Semaphore, count: int) -> Trace:
    session.start()
    for _ in range(count):
        assert news.acquire(timeout=DEADLINE_S)
    session.stop()
    return session.trace()


def session_of(*collectors: FakeCollector) -> tuple[Session, threading.Semaphore]:
    news = threading.Semaphore(0)
    return Session(collectors, Origin("live"), interval_s=0.001, on_news=news.release), news


def test_collectors_poll_until_stopped_and_are_closed() -> None:
    one, two = FakeCollector("one"), FakeCollector("two")
    session, news = session_of(one, two)
    trace = run_until(session, news, 10)
    assert one.left
    assert two.left
    assert {key[0] for key in trace.series} == {"one", "two"}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("llmtop ")]


def test_bad_poll_becomes_an_issue_and_the_collector_goes_on() -> None:
    collector = FakeCollector("proc", fail=frozenset({2}))
    session, news = session_of(collector)
    trace = run_until(session, news, 4)
    (issue,) = trace.issues
    assert "the proc collector failed: ValueError: bad row" in issue.message
    series = trace.get("proc", BEAT)
    assert series is not None
    assert list(series.values)[:2] == [1.0, 3.0]


def test_collector_that_cannot_run_is_listed_with_its_reason() -> None:
    why = Unknown("the NVIDIA driver is not loaded", "sudo modprobe nvidia")
    collector = FakeCollector("nvml", why=why)
    session, news = session_of(collector)
    trace = run_until(session, news, 1)
    assert trace.why_missing("nvml") == why
    assert not collector.entered


def test_failure_to_start_costs_only_that_collector() -> None:
    bad, good = FakeCollector("bad", bad_enter=True), FakeCollector("good")
    session, news = session_of(bad, good)
    trace = run_until(session, news, 5)
    assert any("no such device" in issue.message for issue in trace.issues)
    assert trace.get("good", BEAT) is not None


def test_hanging_collector_does_not_hold_up_the_end() -> None:
    released = threading.Event()

    class Hanging(FakeCollector):
        def poll(self) -> Trace:
            released.wait(DEADLINE_S)
            return super().poll()

    hanging, good = Hanging("hanging"), FakeCollector("good")
    session, news = session_of(hanging, good)
    session.start()
    assert news.acquire(timeout=DEADLINE_S)
    session.stop(timeout_s=0.05)
    assert session.trace().get("good", BEAT) is not None
    released.set()
