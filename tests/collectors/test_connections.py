"""Requests without an answer are seen at the sockets of the server's port, in whichever network namespace it is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmtop import vocabulary as v
from llmtop.collectors.connections import ConnectionsCollector, connections
from llmtop.model import Target, Trace, Unknown, What
from tests.collectors.nvml_looks import wait_until as until

NETWORK = Path("/proc/thread-self/ns/net")


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        with socket.create_server((request.param, 0), family=family) as listening:
            yield listening
    except OSError as error:
        pytest.skip(f"this machine has no {request.param}: {error}")


def target(port: int, pid: int = 0) -> Target:
    pid = pid or os.getpid()
    return Target(pid, pid, "demo", "demo", (), metrics_urls=(f"http://127.0.0.1:{port}/metrics",))


def collecting(port: int, pid: int = 0, after_s: float = 0.03) -> ConnectionsCollector:
    """One that may look as often as it is asked to."""
    return ConnectionsCollector(target(port, pid), cpu_clock=lambda: 0, after_s=after_s)


def told(trace: Trace, port: int) -> dict[str, float | None]:
    return {one.metric.name: one.value for one in trace.readings if one.track == f"endpoint:{port}"}


def test_who_has_asked_and_has_no_answer_waits(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(server.getsockname()[:2])) for _ in range(4)]
        ours = [stack.enter_context(server.accept()[0]) for _ in range(3)]  # the fourth waits to be accepted
        collector = stack.enter_context(collecting(port))
        for client in (clients[0], clients[1], clients[3]):  # the third is kept open for later
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        until(lambda: told(collector.poll(), port).get(v.ENDPOINT_UNANSWERED.name) == 3)
        ours[0].recv(99)
        ours[0].sendall(b"HTTP/1.1 200 OK\r\n")
        until(lambda: told(collector.poll(), port).get(v.ENDPOINT_UNANSWERED.name) == 2)
        said = told(collector.poll(), port)
        assert said[v.ENDPOINT_CONNECTIONS.name] == 4
        longest = said[v.ENDPOINT_LONGEST_WAIT.name] or 0
        assert longest >= 0.03
        # The kernel's clock ticks each 1 to 10 ms: within one tick nobody knows what came first.
        until(lambda: (told(collector.poll(), port)[v.ENDPOINT_LONGEST_WAIT.name] or 0) > longest + 0.02)
        clients[0].sendall(b"GET / HTTP/1.1\r\n\r\n")  # the next one on the same connection
        until(lambda: told(collector.poll(), port).get(v.ENDPOINT_UNANSWERED.name) == 3)


def test_a_request_just_come_is_on_its_way(server: socket.socket) -> None:
    address = server.getsockname()[:2]
    with collecting(address[1], after_s=1000) as collector, socket.create_connection(address) as client:
        client.sendall(b"GET")
        said = told(collector.poll(), address[1])
    assert said[v.ENDPOINT_CONNECTIONS.name] == 1
    assert said[v.ENDPOINT_UNANSWERED.name] == 0


def test_a_server_without_a_port_has_no_numbers_yet() -> None:
    urls: list[str] = []
    one = Target(os.getpid(), os.getpid(), "demo", "demo", ())
    with ConnectionsCollector(one, find_urls=lambda: urls, cpu_clock=lambda: 0) as collector:
        assert not collector.poll().readings
        urls.append("http://127.0.0.1:9/metrics")
        assert told(collector.poll(), 9)[v.ENDPOINT_CONNECTIONS.name] == 0


def test_a_process_that_is_gone_is_a_reason() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    with collecting(80, done.pid) as collector:
        trace = collector.poll()
    assert isinstance(trace.why_missing(What("connections")), Unknown)
    assert not trace.readings


def test_it_is_asked_for_by_share_of_time() -> None:
    now = [1_000]
    spent = iter([0, 5_000_000, 5_000_000, 5_000_000])
    collector = ConnectionsCollector(target(80), clock=lambda: now[0], cpu_clock=lambda: next(spent))
    with collector:
        assert collector.poll().readings
        now[0] += 4_000_000_000
        assert not collector.poll().readings, "5 ms are a thousandth of 5 s"
        now[0] += 2_000_000_000
        assert collector.poll().readings


def test_a_server_in_another_network_namespace_is_seen() -> None:
    """As in a container: the port is another one there than here."""
    if os.geteuid() != 0:
        pytest.skip("only root may enter a network namespace")
    code = (
        "import socket, subprocess, sys, time\n"
        "subprocess.run(['ip', 'link', 'set', 'lo', 'up'])\n"
        "server = socket.create_server(('127.0.0.1', 8077))\n"
        "client = socket.create_connection(('127.0.0.1', 8077))\n"
        "client.sendall(b'GET')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = ["unshare", "--net", sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as there:
        assert there.stdin is not None
        assert there.stdout is not None
        if there.stdout.readline() != "ready\n":
            pytest.skip("no network namespace can be made here")
        own = NETWORK.stat().st_ino
        with collecting(8077, there.pid) as collector:
            until(lambda: told(collector.poll(), 8077).get(v.ENDPOINT_UNANSWERED.name) == 1)
        assert NETWORK.stat().st_ino == own
        there.stdin.close()


def test_an_error_of_the_kernel_is_raised() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        theirs.send((20).to_bytes(4, sys.byteorder) + (2).to_bytes(2, sys.byteorder) + bytes(10) + b"\xfe\xff\xff\xff")
        with pytest.raises(FileNotFoundError):
            list(connections(ours, 80))
