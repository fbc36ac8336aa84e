"""Another server takes the place of the watched one: its collectors are exchanged, all else goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from llmtop import ids
from llmtop.collectors.base import Collector
from llmtop.model import (
    Mark,
    MarkKind,
    Metric,
    Missing,
    Origin,
    Reading,
    Restart,
    Stack,
    Target,
    Trace,
    Track,
    TrackKind,
    Unknown,
    What,
)
from llmtop.servers.follow import TargetChange
from llmtop.session import Session
from tests.session.test_threads import DEADLINE_S, FakeCollector

TOKENS = Metric("test.tokens", "1", counter=True)
ENDPOINT = ids.server(8000)


class OfServer(FakeCollector):
    """Reports an endpoint, a process and a stack of the server with this PID."""

    def __init__(self, pid: int) -> None:
        super().__init__("of-server")
        self.pid = pid
        self.asked: dict[str, bool] = {}

    def ask(self, what: What, wanted: bool) -> None:
        self.asked[what] = wanted

    def last_words(self) -> tuple[Mark, ...]:
        who = f"APIServer (pid {self.pid})"
        return (Mark(time.monotonic_ns(), MarkKind.PROCESS, f"process:{self.pid}", "exited: exit code 3", subject=who),)

    def poll(self) -> Trace:
        now = time.monotonic_ns()
        process, ended = ids.process(self.pid), ids.ended(self.pid, 0)
        tracks = {
            ENDPOINT: Track(ENDPOINT, TrackKind.SERVER, "vLLM"),
            process: Track(process, TrackKind.PROCESS, "APIServer"),
            ended: Track(ended, TrackKind.ENDED, "EngineCore"),
        }
        return Trace(
            Origin("live"),
            now,
            now,
            tracks=tracks,
            readings=(Reading(ENDPOINT, TOKENS, now, float(self.pid), "fake"),),
            stacks=(Stack((f"of {self.pid}",), 1.0, "ns"),),
            missing=(Missing(What(f"of {self.pid}"), Unknown("x")),),
        )


def target(pid: int) -> Target:
    return Target(pid, pid, "vllm", "vLLM", ())


@dataclass
class Following:
    """A server that begins anew when told so."""

    made: list[OfServer] = field(default_factory=list)
    moves: list[TargetChange] = field(default_factory=list)

    def look(self) -> TargetChange | None:
        return self.moves.pop() if self.moves else None

    def collectors(self, target: Target) -> Iterable[Collector]:
        self.made.append(OfServer(target.root_pid))
        return (self.made[-1],)


def until(news: threading.Semaphore, condition: object) -> None:
    assert callable(condition)
    while not condition():
        assert news.acquire(timeout=DEADLINE_S)


def test_collectors_of_the_old_server_are_exchanged_and_history_is_kept() -> None:
    news = threading.Semaphore(0)
    host, following = FakeCollector("host"), Following()
    session = Session(
        (host,), Origin("live"), interval_s=0.001, on_news=news.release, target=target(1), following=following
    )
    session.ask(What("python"), True)
    session.start()
    until(news, lambda: session.trace().get(ENDPOINT, TOKENS) is not None)
    session.retarget(TargetChange(target(2), "has been started anew: pid 1 is now pid 2", restart=Restart(1)))
    before = host.polls
    until(
        news,
        lambda: "process:2" in session.trace().tracks and len(session.trace().marks) > 1 and host.polls > before + 2,
    )
    session.stop()
    trace = session.trace()

    assert session.target == target(2)
    old, new = following.made
    assert old.left
    assert new.left
    assert host.left
    assert new.asked == {"python": True}
    series = trace.get(ENDPOINT, TOKENS)
    assert series is not None
    values = [value for _, value in series]
    assert (values[0], values[-1]) == (1.0, 2.0)
    assert None in values, "a gap, so that no rate is made across the restart"
    assert not [value for value in values[values.index(None) :] if value == 1.0], "nothing of the old one comes late"
    assert "process:1" not in trace.tracks
    assert "ended:1" not in trace.tracks, "how the old one ended is no fault of the new one"
    assert [stack.frames for stack in trace.stacks] == [("of 2",)]
    assert trace.why_missing(What("of 1")) is None
    assert sorted(mark.text for mark in trace.marks) == [
        "APIServer (pid 1) exited: exit code 3",  # which came after its last poll
        "vLLM has been started anew: pid 1 is now pid 2",
    ]
    assert [mark.about for mark in trace.marks if mark.about] == [Restart(1)]


def test_more_that_is_known_of_the_same_server_exchanges_nothing() -> None:
    following = Following()
    session = Session((), Origin("live"), target=target(1), following=following)
    known = Target(1, 1, "vllm", "vLLM", (), ports=(8000,))
    session.retarget(TargetChange(known))

    assert session.target is known
    assert len(following.made) == 1
    assert not session.trace().marks


def test_it_is_looked_for_by_itself_and_a_fault_there_is_an_issue() -> None:
    class Failing(Following):
        def look(self) -> TargetChange | None:
            if self.moves:
                return self.moves.pop()
            raise ValueError("bad")

    news = threading.Semaphore(0)
    following = Failing(moves=[TargetChange(target(2), "anew")])
    session = Session((), Origin("live"), on_news=news.release, target=target(1), following=following)
    session.start()
    until(news, lambda: session.trace().issues)
    session.stop()

    assert session.target == target(2)
    assert "the follow collector failed: ValueError: bad" in session.trace().issues[0].message
