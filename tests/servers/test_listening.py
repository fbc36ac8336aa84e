"""Which of the addresses that a server's processes listen on are asked for its metrics."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
from pathlib import Path

from llmtop.model import Engine
from llmtop.servers import listening
from llmtop.servers.listening import Listener, for_clients, worth_asking
from llmtop.servers.recognise import find_target
from llmtop.servers.registry import BY_KIND
from tests.collectors.processes import Fake, tree

VLLM = BY_KIND["vllm"]
API, CORE, TRACKER = 1, 2, 3
ZMQ, GLOO = 40001, 40002
OWN = os.getpid()


def asked(*found: Listener, engine: Engine = VLLM, told: int | None = None) -> list[listening.Address]:
    return [one.address for one in worth_asking(found, engine, told, {API}, {CORE})]


def at(pid: int, port: int, host: str = "127.0.0.1") -> Listener:
    return Listener(pid, (host, port))


def test_the_port_that_was_told_is_the_only_one() -> None:
    assert asked(at(API, ZMQ), at(API, 9000, "0.0.0.0"), at(CORE, GLOO), told=9000) == [("0.0.0.0", 9000)]


def test_else_the_usual_one_is() -> None:
    assert asked(at(API, ZMQ), at(API, 8000), at(CORE, GLOO)) == [("127.0.0.1", 8000)]


def test_else_what_faces_clients_is_asked() -> None:
    assert asked(at(API, 7000), at(CORE, GLOO), at(TRACKER, 7001)) == [("127.0.0.1", 7000)]


def test_nothing_is_asked_before_the_port_that_was_told_is_open() -> None:
    assert asked(at(API, 8000), at(API, ZMQ), told=9000) == []


def test_an_engines_port_is_never_asked_not_even_when_it_is_the_only_one_or_the_usual_one() -> None:
    assert asked(at(CORE, GLOO)) == []
    assert asked(at(CORE, 8000)) == []


def test_a_process_of_no_known_role_is_asked_where_nothing_else_listens() -> None:
    assert asked(at(TRACKER, 7001), at(CORE, GLOO)) == [("127.0.0.1", 7001)]


def test_sockets_of_a_process_are_told_from_the_kernels_tables(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
        socket.socket(socket.AF_UNIX) as unix,
        socket.create_connection(four.getsockname()),
    ):
        unix.bind(str(tmp_path / "v.sock"))
        unix.listen()
        found, complete = listening.listeners([OWN])

        assert complete
        for address in (("127.0.0.1", four.getsockname()[1]), ("::1", six.getsockname()[1])):
            assert Listener(OWN, address) in found
        assert len({one for one in found if one.address[1] == four.getsockname()[1]}) == 1


def test_sockets_that_libraries_poll_or_the_servers_own_processes_are_connected_to_are_not_for_clients() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as http,
        socket.create_server(("127.0.0.1", 0)) as zmq,
        socket.create_server(("127.0.0.1", 0)) as store,
        socket.create_server(("127.0.0.1", 0)) as blocking,
        socket.create_connection(store.getsockname()),
    ):
        loop, library = select.epoll(), select.epoll()
        with loop, library:
            loop.register(http, select.EPOLLIN)
            _poll_under_a_pointer(library, zmq)
            ports = {one.getsockname()[1]: one for one in (http, zmq, store, blocking)}
            found = [one for one in listening.listeners([OWN])[0] if one.address[1] in ports]
            assert len(found) == 4

            assert [one.address for one in for_clients(found, [OWN])] == [http.getsockname()]
            without = [one for one in found if one.address != http.getsockname()]
            assert [one.address for one in for_clients(without, [OWN])] == [blocking.getsockname()]


def _poll_under_a_pointer(epoll: select.epoll, one: socket.socket) -> None:
    """As libzmq does, which Python's own epoll cannot."""
    event = struct.pack("=IQ", select.EPOLLIN, 0x7F3D_E000_0BC0)
    added = ctypes.CDLL(None).epoll_ctl(epoll.fileno(), 1, one.fileno(), event)
    assert added == 0


def test_a_unix_socket_is_found_by_its_flag(tmp_path: Path) -> None:
    with tree(Fake("api", ("vllm", "serve", "m", "--uds", "run/v.sock"), listen=True), tmp_path) as running:
        target = find_target(running.pids["api"])

    where = str(tmp_path / "run" / "v.sock").replace("/", "%2F")
    assert target.metrics_urls == (f"http+unix://{where}/metrics",)
    assert not target.ports


def test_llama_servers_unix_socket_is_its_host(tmp_path: Path) -> None:
    with tree(Fake("c", ("llama-server", "-m", "m.gguf", "--host", "/run/l.sock")), tmp_path) as running:
        assert find_target(running.pids["c"]).metrics_urls == ("http+unix://%2Frun%2Fl.sock/metrics",)


def test_a_port_in_a_file_of_flags_is_a_port_that_was_told(tmp_path: Path) -> None:
    (tmp_path / "vllm.yaml").write_text("port: 9\n")
    with tree(Fake("api", ("vllm", "serve", "m", "--config", "vllm.yaml"), listen=True), tmp_path) as running:
        assert find_target(running.pids["api"]).metrics_urls == (), "another one is open"


def test_tls_is_told_by_the_certificate() -> None:
    for kind, flags in (("vllm", "--ssl-certfile=c.pem"), ("llamacpp", "--ssl-cert-file=c.pem")):
        command = ("vllm", "serve", "m") if kind == "vllm" else ("llama-server", "-m", "m.gguf")
        with tree(Fake("api", (*command, flags), listen=True)) as running:
            target = find_target(running.pids["api"])
            assert target.metrics_urls == (f"https://127.0.0.1:{running.ports['api']}/metrics",)


def test_an_alias_is_what_the_model_is_called_and_its_file_still_tells_the_rest() -> None:
    command = ("llama-server", "-m", "/m/qwen-Q4_K_M.gguf", "--alias", "qwen")
    with tree(Fake("c", command)) as running:
        target = find_target(running.pids["c"])

    assert (target.model, target.dtype) == ("qwen", "q4_k_m")
    assert target.facts["model_path"] == "/m/qwen-Q4_K_M.gguf"
