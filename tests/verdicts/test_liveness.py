"""A real server, killed and stopped: each fault is named while it is looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler

import psutil
import pytest

from llmtop import ids
from llmtop.analysis.server.fault import Fault
from llmtop.analysis.server.liveness import liveness
from llmtop.cli.live import find, live_session
from llmtop.collectors.proc import ProcCollector
from llmtop.collectors.prometheus import PrometheusCollector
from llmtop.collectors.signal_senders import SignalSenders
from llmtop.demo.process import DemoServer
from llmtop.model import Origin, Target, Unknown
from llmtop.servers.registry import ENGINES
from llmtop.session import Session
from tests.collectors import expositions
from tests.collectors.metrics_server import Answer, metrics_server, send
from tests.collectors.processes import eventually

INTERVAL_S = 0.1


@contextmanager
def watched() -> Iterator[tuple[Session, int, int]]:
    """A session over a server of two processes, once both were seen; the API server's and the engine's PID."""
    with DemoServer() as server:
        api = server.pid
        [engine] = (child.pid for child in psutil.Process(api).children())
        session = live_session(find(api), INTERVAL_S)
        session.start()
        try:
            eventually(lambda: is_seen(session, api, engine), "the first looks")
            yield session, api, engine
        finally:
            with suppress(ProcessLookupError):
                os.kill(engine, signal.SIGCONT)
            session.stop()


def is_seen(session: Session, *pids: int) -> bool:
    trace = session.trace()
    return any(track.startswith("server:") for track in trace.tracks) and all(
        track is not None and track.facts.get("part") == 1 for track in (trace.tracks.get(ids.process(p)) for p in pids)
    )


def named(session: Session, *states: str) -> Fault:
    """The gravest fault once it is one of these."""

    def look() -> Fault | None:
        fault = liveness(session.trace()).gravest
        return fault if fault is not None and fault.state in states else None

    return eventually(look, " or ".join(states))


def test_a_stopped_engine() -> None:
    with watched() as (session, _, engine):
        assert liveness(session.trace()).faults == ()
        os.kill(engine, signal.SIGSTOP)
        fault = named(session, "ENGINE STOPPED")
        assert fault.subject == "EngineCore"


def test_a_stopped_server() -> None:
    with watched() as (session, api, engine):
        for pid in (api, engine):
            os.kill(pid, signal.SIGSTOP)
        named(session, "SERVER STOPPED")
        os.kill(api, signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_engine(number: signal.Signals) -> None:
    with watched() as (session, api, engine):
        os.kill(api, signal.SIGSTOP)  # so that it does not end too
        os.kill(engine, number)
        fault = named(session, "ENGINE DEAD")
        os.kill(api, signal.SIGCONT)
        assert f"killed by {number.name}" in fault.message


def test_a_killed_server() -> None:
    with watched() as (session, api, _):
        os.kill(api, signal.SIGKILL)
        fault = named(session, "SERVER DEAD")
        assert "killed by SIGKILL" in fault.message


def test_who_killed_an_idle_engine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its API server ends in order and at once, as it does when it ends its engine itself."""
    monkeypatch.delenv("LLMTOP_NO_EBPF")
    with watched() as (session, _, engine):
        listening = eventually(lambda: senders_of(session), "whether signals are seen")
        if isinstance(listening, Unknown):
            pytest.skip(f"needs the right to listen to signals: {listening}")
        with subprocess.Popen(["/bin/kill", "-9", f"{engine}"]) as kill:
            pass
        fault = named(session, "SERVER DEAD", "SERVER ENDED")
    assert fault.state == "SERVER DEAD"
    assert f"EngineCore (pid {engine}): killed by SIGKILL from pid {kill.pid} (kill)" in fault.message


def senders_of(session: Session) -> SignalSenders | Unknown | None:
    """Those who listen to signals, or why nobody can; None until one of both is known."""
    [collector] = (one for one in session.collectors if isinstance(one, ProcCollector))
    senders = collector._exits.senders
    assert senders is not None
    return senders if senders.is_listening else senders.unavailable


def hang(handler: BaseHTTPRequestHandler) -> None:
    threading.Event().wait(30)


def fail(handler: BaseHTTPRequestHandler) -> None:
    send(handler, b"Internal Server Error", 500)


@pytest.mark.parametrize(
    ("page", "state"),
    [
        (fail, "ENDPOINT FAILING"),
        ("<html><body>Welcome to nginx!</body></html>", "ENDPOINT FAILING"),
        ("", "ENDPOINT FAILING"),
        ('{"object": "list"}', "ENDPOINT FAILING"),
        (hang, "ENDPOINT HANGS"),
    ],
    ids=["500", "html", "empty", "json", "hangs"],
)
def test_an_endpoint_that_fails(page: str | Answer, state: str) -> None:
    with metrics_server() as server:
        server.pages["/metrics"] = expositions.vllm_v1()
        target = Target(os.getpid(), os.getpid(), "vllm", "vLLM", (), metrics_urls=(server.url,))
        session = Session((PrometheusCollector(target, ENGINES),), Origin("live"), interval_s=INTERVAL_S)
        session.start()
        try:
            eventually(lambda: f"server:{server.port}" in session.trace().tracks, "the first metrics")
            server.pages["/metrics"] = page
            fault = named(session, state)
            assert "log-stats" not in fault.action
        finally:
            session.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="how another process ended is told to root alone")
def test_a_server_that_is_told_to_end_is_not_called_dead() -> None:
    with watched() as (session, api, _):
        os.kill(api, signal.SIGTERM)
        fault = named(session, "SERVER DEAD", "SERVER ENDED")
        assert fault.state == "SERVER ENDED", fault
