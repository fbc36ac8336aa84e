"""The session runs collectors side by side; a fault in one costs only its own data."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from llmtop import ids
from llmtop.collectors.nvml.gpm import MIN_WINDOW_NS
from llmtop.model import NS_PER_S, MarkKind, Metric, Origin, Reading, Trace, TrackId, Unknown, What
from llmtop.session import SECOND_LOOK_S, Session

BEAT = Metric("test.beat", "1")
DEADLINE_S = 90.0


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
        return Trace(Origin("live"), t, t, readings=(Reading(TrackId(self.name), BEAT, t, float(self.polls), "fake"),))


def run_until(session: Session, news: threading.Semaphore, count: int) -> Trace:
    session.start()
    for _ in range(count):
        assert news.acquire(timeout=DEADLINE_S)
    session.stop()
    return session.trace()


def session_of(*collectors: FakeCollector) -> tuple[Session, threading.Semaphore]:
    news = threading.Semaphore(0)
    return Session(collectors, Origin("live"), interval_s=0.001, on_news=news.release), news


class Eager(FakeCollector):
    """Has its first number with the second poll."""

    @property
    def is_eager(self) -> bool:
        return self.polls == 2


def test_a_collector_with_a_first_number_is_polled_again_soon() -> None:
    eager, news = Eager("eager"), threading.Semaphore(0)
    session = Session([eager], Origin("live"), interval_s=2.0, on_news=news.release)
    trace = run_until(session, news, 3)
    series = trace.get(TrackId("eager"), BEAT)
    assert series is not None
    first, second, third = series.times
    assert max(second - first, third - second) < 1_500_000_000


def test_polls_are_further_apart_while_they_cost_too_much() -> None:
    plain, news = FakeCollector("plain"), threading.Semaphore(0)
    session = Session([plain], Origin("live"), interval_s=0.1, on_news=news.release)
    session.look_stretch = 3.0
    series = run_until(session, news, 3).get(TrackId("plain"), BEAT)
    assert series is not None
    _, second, third = series.times
    assert third - second >= 0.25 * NS_PER_S


class Aside(FakeCollector):
    """Looks in a process of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.prepared = 0

    def prepare(self) -> None:
        self.prepared += 1


def test_processes_are_started_before_the_session_and_nothing_else_is() -> None:
    aside, plain = Aside("aside"), FakeCollector("plain")
    session, _ = session_of(aside, plain)
    session.prepare()
    assert aside.prepared == 1
    assert not aside.entered
    assert not plain.entered
    assert session.unready == ("aside", "plain")


def test_a_gpm_window_fits_between_the_first_two_looks_however_late_one_is() -> None:
    """A shorter one reads idle (collectors/nvml/gpm.py): the rates that come first are to be right ones."""
    assert SECOND_LOOK_S * NS_PER_S >= 2 * MIN_WINDOW_NS


def test_collectors_poll_until_stopped_and_are_closed() -> None:
    of_others = set(threading.enumerate())
    one, two = FakeCollector("one"), FakeCollector("two")
    session, news = session_of(one, two)
    trace = run_until(session, news, 10)
    assert one.left
    assert two.left
    assert {key[0] for key in trace.series} == {"one", "two"}
    left = set(threading.enumerate()) - of_others
    assert not [thread for thread in left if thread.name.startswith("llmtop ")]


def test_bad_poll_becomes_an_issue_and_the_collector_goes_on() -> None:
    collector = FakeCollector("proc", fail=frozenset({2}))
    session, news = session_of(collector)
    trace = run_until(session, news, 4)
    (issue,) = trace.issues
    assert "the proc collector failed: ValueError: bad row" in issue.message
    series = trace.get(TrackId("proc"), BEAT)
    assert series is not None
    assert list(series.values)[:2] == [1.0, 3.0]


def test_collector_that_cannot_run_is_listed_with_its_reason() -> None:
    why = Unknown("the NVIDIA driver is not loaded", "install it")
    collector = FakeCollector("nvml", why=why)
    session, news = session_of(collector)
    trace = run_until(session, news, 1)
    assert trace.why_missing(What("nvml")) == why
    assert not collector.entered


def test_failure_to_start_costs_only_that_collector() -> None:
    bad, good = FakeCollector("bad", bad_enter=True), FakeCollector("good")
    session, news = session_of(bad, good)
    trace = run_until(session, news, 5)
    assert any("no such device" in issue.message for issue in trace.issues)
    assert trace.get(TrackId("good"), BEAT) is not None


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
    assert session.trace().get(TrackId("good"), BEAT) is not None
    released.set()


class Clock:
    """Time that moves only when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * NS_PER_S

    def __call__(self) -> int:
        return self.now_ns


class Slow(FakeCollector):
    """Answers once, then hangs in its next poll until it is released."""

    def __init__(self, clock: Clock, hang_in: str = "poll") -> None:
        super().__init__("nvml")
        self.period_s = 2.0 if hang_in == "missing" else 0.0
        self.clock = clock
        self.hang_in = hang_in
        self.is_hanging = threading.Event()
        self.released = threading.Event()

    def missing(self) -> Unknown | None:
        self._wait("missing")
        return None

    def poll(self) -> Trace:
        if self.polls:
            self._wait("poll")
        self.polls += 1
        t = self.clock()
        return Trace(Origin("live"), t, t, readings=(Reading(ids.gpu(0), BEAT, t, float(self.polls), "fake"),))

    def _wait(self, where: str) -> None:
        if self.hang_in == where and not self.released.is_set():
            self.is_hanging.set()
            assert self.released.wait(DEADLINE_S)


def hanging(collector: Slow, clock: Clock) -> tuple[Session, threading.Semaphore]:
    news = threading.Semaphore(0)
    session = Session([collector], Origin("live"), interval_s=0.001, on_news=news.release, clock=clock)
    session.start()
    if collector.hang_in == "poll":
        assert news.acquire(timeout=DEADLINE_S)
    assert collector.is_hanging.wait(DEADLINE_S)
    return session, news


def test_a_collector_that_hangs_is_said_to_and_its_last_reading_is_over() -> None:
    clock = Clock()
    collector = Slow(clock)
    session, news = hanging(collector, clock)
    clock.now_ns += 3 * NS_PER_S
    assert session.trace().missing == ()
    clock.now_ns += 1 * NS_PER_S
    trace = session.trace()
    why = trace.why_missing(What("nvml"))
    assert why is not None
    assert why.reason == "the nvml collector has not answered for 4 s"
    series = trace.get(ids.gpu(0), BEAT)
    assert series is not None
    assert [value for _, value in series] == [1.0, None]
    assert series.last_t_ns == trace.end_ns == clock.now_ns
    assert [mark.kind for mark in session.trace().marks] == [MarkKind.STUCK], "said once"
    collector.released.set()
    assert news.acquire(timeout=DEADLINE_S)
    session.stop()
    back = session.trace()
    assert back.missing == ()
    assert [mark.text for mark in back.marks][1:] == ["the nvml collector answers again after 4 s"]


def test_a_slow_collector_that_hangs_while_it_starts_has_three_periods() -> None:
    clock = Clock()
    collector = Slow(clock, hang_in="missing")
    session, news = hanging(collector, clock)
    clock.now_ns += 6 * NS_PER_S
    assert session.trace().missing == ()
    clock.now_ns += 1 * NS_PER_S
    assert session.trace().why_missing(What("nvml")) is not None
    collector.released.set()
    assert news.acquire(timeout=DEADLINE_S)
    session.stop()
    assert session.trace().missing == ()


class UnsureCollector(FakeCollector):
    def missing(self) -> Unknown | None:
        raise OSError("no /proc")


def test_a_collector_that_fails_to_say_whether_it_can_run_costs_only_itself() -> None:
    session, news = session_of(UnsureCollector("unsure"))
    trace = run_until(session, news, 1)
    (issue,) = trace.issues
    assert "the unsure collector failed: OSError: no /proc" in issue.message


class OnDemandCollector(FakeCollector):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[tuple[str, bool]] = []

    def ask(self, what: What, wanted: bool) -> None:
        self.asked.append((what, wanted))


def test_what_is_asked_for_reaches_the_collectors_that_take_requests() -> None:
    plain, willing = FakeCollector("plain"), OnDemandCollector("willing")
    session, _ = session_of(plain, willing)
    session.ask(What("stacks"), True)
    session.ask(What("stacks"), False)
    assert willing.asked == [("stacks", True), ("stacks", False)]


class RestingCollector(OnDemandCollector):
    """Has nothing to do for an hour after a poll, or for as long as it is told."""

    rest_s = 3600.0

    @property
    def rests_until_ns(self) -> int:
        return time.monotonic_ns() + int(self.rest_s * NS_PER_S)


def test_a_collector_that_rests_is_not_polled_until_it_is_asked_and_ends_at_once() -> None:
    resting, busy = RestingCollector("resting"), FakeCollector("busy")
    session, news = session_of(resting, busy)
    session.start()
    for _ in range(50):
        assert news.acquire(timeout=DEADLINE_S)
    assert (resting.polls, busy.polls > 20) == (1, True)
    session.ask(What("stacks"), True)
    while resting.polls < 2:
        assert news.acquire(timeout=DEADLINE_S)
    session.stop(timeout_s=DEADLINE_S)
    assert (resting.polls, resting.left) == (2, True)


class BriefRest(FakeCollector):
    """Rests, and takes no requests."""

    def __init__(self, name: str, rest_ns: int) -> None:
        super().__init__(name)
        self.moments: list[int] = []
        self.rests_until_ns, self._rest_ns = 0, rest_ns

    def poll(self) -> Trace:
        self.moments.append(time.monotonic_ns())
        self.rests_until_ns = self.moments[-1] + self._rest_ns
        return super().poll()


def test_a_rest_ends_at_its_moment() -> None:
    brief = BriefRest("brief", NS_PER_S // 20)
    session, news = session_of(brief)
    run_until(session, news, 3)
    first, second, third = brief.moments[:3]
    assert min(second - first, third - second) >= NS_PER_S // 20
