"""Which of the addresses that a server's processes listen on are asked for its metrics."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from llmtop.model import Engine
from llmtop.servers import listening
from llmtop.servers.listening import Listener, worth_asking
from llmtop.servers.recognise import find_target
from llmtop.servers.registry import BY_KIND
from tests.collectors.processes import Fake, tree

VLLM = BY_KIND["vllm"]
API, CORE, TRACKER = 1, 2, 3
ZMQ, GLOO = 40001, 40002
OWN = os.getpid()


def asked(*found: Listener, engine: Engine = VLLM, told: int | None = None) -> list[listening.Address | str]:
    return worth_asking(found, engine, told, {API}, {CORE})


def at(pid: int, port: int, host: str = "127.0.0.1") -> Listener:
    return Listener(pid, (host, port))


def test_the_port_that_was_told_is_the_only_one() -> None:
    assert asked(at(API, ZMQ), at(API, 9000, "0.0.0.0"), at(CORE, GLOO), told=9000) == [("0.0.0.0", 9000)]


def test_else_the_usual_one_is() -> None:
    assert asked(at(API, ZMQ), at(API, 8000), at(CORE, GLOO)) == [("127.0.0.1", 8000)]


def test_else_what_faces_clients_is_asked() -> None:
    assert asked(at(API, 7000), at(CORE, GLOO), at(TRACKER, 7001)) == [("127.0.0.1", 7000)]


def test_the_usual_port_counts_for_nothing_where_another_was_told() -> None:
    assert asked(at(API, 8000), at(API, 7000), told=9000)[0] == ("127.0.0.1", 8000), "first, but not alone"
    assert len(asked(at(API, 8000), at(API, 7000), told=9000)) == 2


def test_an_engines_port_is_never_asked_not_even_when_it_is_the_only_one_or_the_usual_one() -> None:
    assert asked(at(CORE, GLOO)) == []
    assert asked(at(CORE, 8000)) == []


def test_a_process_of_no_known_role_is_asked_where_nothing_else_listens() -> None:
    assert asked(at(TRACKER, 7001), at(CORE, GLOO)) == [("127.0.0.1", 7001)]


def test_unix_sockets_count_where_there_is_no_port() -> None:
    zmq = Listener(API, None, "/tmp/zmq")
    assert asked(zmq, at(API, 8000)) == [("127.0.0.1", 8000)]
    assert asked(zmq, Listener(CORE, None, "/tmp/other")) == ["/tmp/zmq"]


def test_sockets_of_a_process_are_told_from_the_kernels_tables(tmp_path: Path) -> None:
    path = tmp_path / "v.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
        socket.socket(socket.AF_UNIX) as unix,
        socket.create_connection(four.getsockname()),
    ):
        unix.bind(str(path))
        unix.listen()
        found, complete = listening.listeners([OWN])

        assert complete
        for address in (("127.0.0.1", four.getsockname()[1]), ("::1", six.getsockname()[1])):
            assert Listener(OWN, address) in found
        assert Listener(OWN, None, str(path)) in found
        assert len({one for one in found if one.address and one.address[1] == four.getsockname()[1]}) == 1


def test_a_unix_socket_is_found_by_its_flag(tmp_path: Path) -> None:
    with tree(Fake("api", ("vllm", "serve", "m", "--uds", "run/v.sock"), listen=True), tmp_path) as running:
        target = find_target(running.pids["api"])

    where = str(tmp_path / "run" / "v.sock").replace("/", "%2F")
    assert target.metrics_urls == (f"http+unix://{where}/metrics",)
    assert not target.ports


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
