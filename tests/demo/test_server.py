"""The demo server over HTTP, and its processes: what they answer, what they count, and that they end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from llmtop.demo import DemoServer, Options
from llmtop.demo.model import VOCABULARY
from llmtop.demo.server import RequestError, checked
from llmtop.errors import LlmtopError
from tests.collectors.processes import eventually, is_running

DEADLINE_S = 30.0
TINY = Options(model="tiny", device="cpu", kv_blocks=24, max_num_seqs=4)
ROOMY = Options(model="tiny", device="cpu", kv_blocks=128)
"""Takes what the load asks for."""
MODEL = "llmtop-demo-tiny"
MAX_MODEL_LEN = 24 * 16


@pytest.fixture(scope="module")
def server() -> Iterator[DemoServer]:
    with DemoServer(TINY) as running:
        yield running


@contextlib.contextmanager
def connection(server: DemoServer) -> Iterator[http.client.HTTPConnection]:
    client = http.client.HTTPConnection(server.host, server.port, timeout=DEADLINE_S)
    try:
        yield client
    finally:
        client.close()


def exchange(server: DemoServer, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    with connection(server) as client:
        client.request(method, path, body)
        response = client.getresponse()
        return response.status, response.read()


def complete(server: DemoServer, **fields: Any) -> dict[str, Any]:
    status, body = exchange(server, "POST", "/v1/completions", json.dumps(fields).encode())
    assert status == 200, body
    answer: dict[str, Any] = json.loads(body)
    return answer


def stream(server: DemoServer, **fields: Any) -> list[dict[str, Any]]:
    """The events of a streamed completion; the closing mark is checked and left out."""
    status, body = exchange(server, "POST", "/v1/completions", json.dumps({**fields, "stream": True}).encode())
    assert status == 200
    *events, done, end = body.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def metrics(server: DemoServer) -> dict[str, float]:
    """Sums over labels by sample name; `name|reason` by finished_reason."""
    _, text = exchange(server, "GET", "/metrics")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            reason = sample.labels.get("finished_reason")
            for name in [sample.name, *([f"{sample.name}|{reason}"] if reason else [])]:
                found[name] = found.get(name, 0.0) + sample.value
    return found


def test_a_completion_has_openais_shape(server: DemoServer) -> None:
    answer = complete(server, prompt="hello", max_tokens=5, temperature=0)
    assert answer["object"] == "text_completion"
    assert answer["model"] == MODEL
    assert answer["choices"][0]["finish_reason"] in {"length", "stop"}
    assert answer["usage"] == {"prompt_tokens": 6, "completion_tokens": 5, "total_tokens": 11}


def test_a_stream_carries_the_same_tokens(server: DemoServer) -> None:
    ask = {"prompt": "hello there", "max_tokens": 12, "seed": 4}
    whole = complete(server, **ask)
    *events, last = stream(server, **ask, stream_options={"include_usage": True})
    assert "".join(event["choices"][0]["text"] for event in events) == whole["choices"][0]["text"]
    assert [event["choices"][0]["finish_reason"] for event in events][:-1] == [None] * (len(events) - 1)
    assert events[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]


def test_a_seed_makes_the_same_text_alone_and_in_a_crowd(server: DemoServer) -> None:
    ask = {"prompt": "once upon a time", "max_tokens": 40, "seed": 11}
    alone = complete(server, **ask)
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(complete, server, prompt=f"{i} other", max_tokens=60, seed=i) for i in range(6)]
        again = pool.submit(complete, server, **ask).result()
        assert all(other.result()["usage"]["completion_tokens"] > 0 for other in others)
    assert again["choices"] == alone["choices"]


def test_tokens_may_be_the_prompt(server: DemoServer) -> None:
    assert complete(server, prompt=[256, 104, 105], max_tokens=1)["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "JSON"),
        (b"", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[1]", "object"),
        (b"{}", "prompt"),
        (b'{"prompt": ["a"]}', "prompt"),
        (b'{"prompt": [258]}', "prompt"),
        (b'{"prompt": [true]}', "prompt"),
        (b'{"prompt": []}', "prompt"),
        (b'{"prompt": "a", "max_tokens": 0}', "max_tokens"),
        (b'{"prompt": "a", "max_tokens": "5"}', "max_tokens"),
        (b'{"prompt": "a", "max_tokens": 1.5}', "max_tokens"),
        (b'{"prompt": "a", "max_tokens": true}', "max_tokens"),
        (b'{"prompt": "a", "max_tokens": 384}', "exceed"),
        (b'{"prompt": "a", "temperature": -1}', "temperature"),
        (b'{"prompt": "a", "temperature": NaN}', "temperature"),
        (b'{"prompt": "a", "max_tokens": 1e999}', "max_tokens"),
        (b'{"prompt": "a", "max_tokens": 1' + b"0" * 400 + b"}", "max_tokens"),
        (b'{"prompt": "a", "seed": -1}', "seed"),
        (b'{"prompt": "a", "stream_options": 3}', "stream_options"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(server: DemoServer, body: bytes, word: str) -> None:
    status, answer = exchange(server, "POST", "/v1/completions", body)
    assert status == 400
    assert word in json.loads(answer)["error"]["message"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)
fields = st.sampled_from(["prompt", "max_tokens", "temperature", "seed", "stream", "stream_options"])


@given(st.binary(max_size=60) | st.dictionaries(fields, values).map(lambda asked: json.dumps(asked).encode()))
def test_any_body_is_understood_or_refused(body: bytes) -> None:
    with contextlib.suppress(RequestError):
        ask = checked(body, MAX_MODEL_LEN)
        assert 1 <= ask.max_tokens <= MAX_MODEL_LEN - len(ask.prompt)
        assert 0 <= ask.temperature <= 100
        assert all(0 <= token < VOCABULARY for token in ask.prompt)


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("POST", "/v1/chat"), ("GET", "/v1/completions")])
def test_an_unknown_route_is_404(server: DemoServer, method: str, path: str) -> None:
    status, body = exchange(server, method, path, b"{}" if method == "POST" else None)
    assert status == 404
    assert json.loads(body)["error"]["code"] == 404


def test_a_body_too_large_or_of_unknown_length_is_not_read(server: DemoServer) -> None:
    with connection(server) as client:
        client.putrequest("POST", "/v1/completions")
        client.putheader("Content-Length", str(2 << 20))
        client.endheaders()
        assert client.getresponse().status == 413
    with connection(server) as client:
        client.putrequest("POST", "/v1/completions")
        client.endheaders()
        assert client.getresponse().status == 411


def test_one_connection_serves_several_requests(server: DemoServer) -> None:
    with connection(server) as client:
        for path in ("/health", "/v1/models", "/nothing", "/metrics"):
            client.request("GET", path)
            client.getresponse().read()
            assert client.sock is not None


def test_the_model_and_health_are_told(server: DemoServer) -> None:
    assert exchange(server, "GET", "/health")[0] == 200
    _, body = exchange(server, "GET", "/v1/models")
    (model,) = json.loads(body)["data"]
    assert (model["id"], model["max_model_len"]) == (MODEL, MAX_MODEL_LEN)


def test_counters_equal_what_was_delivered(server: DemoServer) -> None:
    before = metrics(server)
    with ThreadPoolExecutor(10) as pool:
        asks = [{"prompt": "x" * 40 + str(i), "max_tokens": 50, "seed": i} for i in range(14)]
        answers = list(pool.map(lambda ask: complete(server, **ask), asks[:7]))
        streams = list(pool.map(lambda ask: stream(server, **ask), asks[7:]))
    delivered = sum(one["usage"]["completion_tokens"] for one in answers) + sum(map(len, streams))
    prompts = sum(len(str(ask["prompt"])) + 1 for ask in asks)
    after = metrics(server)
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["vllm:generation_tokens_total"] == delivered
    assert grown["vllm:prompt_tokens_total"] == prompts
    assert grown["vllm:request_success_total"] == 14
    assert grown["vllm:inter_token_latency_seconds_count"] == delivered - 14
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_prefill_time"):
        assert grown[f"vllm:{name}_seconds_count"] == 14
    parts = sum(grown[f"vllm:request_{part}_time_seconds_sum"] for part in ("queue", "prefill", "decode"))
    assert parts == pytest.approx(grown["vllm:e2e_request_latency_seconds_sum"])
    computed = grown["vllm:iteration_tokens_total_sum"]
    reused = grown["vllm:prefix_cache_hits_total"]
    preempted = grown["vllm:num_preemptions_total"]
    # Every token but each request's last is computed once, or found; preemption computes some again.
    assert computed + reused == prompts + delivered - 14 if not preempted else computed + reused > prompts
    assert grown["vllm:estimated_flops_per_gpu_total"] > 0
    assert (after["vllm:num_requests_running"], after["vllm:num_requests_waiting"]) == (0, 0)
    assert after["vllm:kv_cache_usage_perc"] == 0


def test_a_client_that_leaves_frees_its_place(server: DemoServer) -> None:
    before = metrics(server)["vllm:request_success_total|abort"]
    body = json.dumps({"prompt": "a", "max_tokens": 240, "temperature": 0, "stream": True}).encode()
    for _ in range(3):
        with socket.create_connection((server.host, server.port)) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            client.recv(100)
            # An immediate reset, as of a killed client: the server's next write fails.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    eventually(lambda: metrics(server)["vllm:request_success_total|abort"] > before)
    eventually(lambda: metrics(server)["vllm:num_requests_running"] == 0)
    assert metrics(server)["vllm:kv_cache_usage_perc"] == 0


def test_names_and_labels_are_vllms(server: DemoServer) -> None:
    _, text = exchange(server, "GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert families["vllm:num_preemptions"].type == "counter"
    assert families["vllm:iteration_tokens_total"].type == "histogram"
    (running,) = families["vllm:num_requests_running"].samples
    assert running.labels == {"model_name": MODEL, "engine": "0"}
    (info,) = families["vllm:cache_config_info"].samples
    assert (info.labels["num_gpu_blocks"], info.labels["block_size"], info.value) == ("24", "16", 1)
    assert info.labels["max_num_seqs"] == f"{server.description['max_num_seqs']}"


def test_the_processes_are_named_by_their_roles(server: DemoServer) -> None:
    front, engine = psutil.Process(server.pid), psutil.Process(server.engine_pid)
    assert (front.name(), engine.name()) == ("APIServer", "EngineCore")
    assert engine.ppid() == front.pid
    assert "llmtop.demo.server" in front.cmdline()
    assert "llmtop.demo.engine" in engine.cmdline()
    assert "--model=tiny" in front.cmdline()


def test_an_idle_server_sleeps(server: DemoServer) -> None:
    eventually(lambda: metrics(server)["vllm:num_requests_running"] == 0)
    status = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in family(server)]
    used = [sum(psutil.Process(pid).cpu_times()[:2]) for pid in family(server)]
    time.sleep(0.5)
    assert [sum(psutil.Process(pid).cpu_times()[:2]) for pid in family(server)] == pytest.approx(used, abs=0.021)
    assert set(status) == {"S"}


def family(server: DemoServer) -> list[int]:
    return [server.pid, server.engine_pid, *([server.load_pid] if server.load_pid else [])]


def test_close_ends_all_processes_at_once() -> None:
    with DemoServer(ROOMY) as server:
        server.start_load("--rate=20", "--phases=steady:60")
        eventually(lambda: metrics(server)["vllm:generation_tokens_total"] > 20)
        pids = family(server)
        assert len(pids) == 3
    assert not any(map(is_running, pids))
    assert server.poll() == 0
    server.close()


def test_nothing_is_left_when_the_starter_is_killed() -> None:
    program = (
        "from llmtop.demo import *; import time\n"
        "with DemoServer(Options(model='tiny', device='cpu')) as s:\n"
        "    s.start_load('--rate=20'); print(s.pid, s.engine_pid, s.load_pid, flush=True); time.sleep(60)"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    assert len(pids) == 3
    starter.kill()
    starter.wait()
    starter.stdout.close()
    eventually(lambda: not any(map(is_running, pids)))


def test_the_engine_ends_with_a_killed_api_server() -> None:
    with DemoServer(TINY) as server:
        engine = server.engine_pid
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait(DEADLINE_S) == 128 + signal.SIGKILL
        eventually(lambda: not is_running(engine))


def test_the_api_server_ends_with_its_engine_and_says_so() -> None:
    with DemoServer(TINY) as server, connection(server) as client:
        os.kill(server.engine_pid, signal.SIGSTOP)  # so that the request is surely unanswered when it ends
        client.request("POST", "/v1/completions", json.dumps({"prompt": "a", "stream": True}).encode())
        os.kill(server.engine_pid, signal.SIGKILL)
        assert server.wait(DEADLINE_S) == 1
        with contextlib.suppress(OSError, http.client.HTTPException):  # the connection may be cut instead
            assert b"error" in client.getresponse().read()
        eventually(lambda: "the engine has ended" in server.lines(5))  # the request's log line may come after it


def test_a_port_in_use_is_one_line(server: DemoServer) -> None:
    with pytest.raises(LlmtopError, match=f"port {server.port}: Address already in use"):
        DemoServer(TINY, port=server.port).wait_ready()


def test_an_unknown_model_is_one_line() -> None:
    with pytest.raises(LlmtopError, match="could not start: there is no model huge"):
        DemoServer(Options(model="huge")).wait_ready()


def test_a_server_that_takes_too_long_is_given_up() -> None:
    server = DemoServer(TINY)
    with pytest.raises(LlmtopError, match="took too long"):
        server.wait_ready(timeout_s=0.0)
    assert not is_running(server.pid)


def test_output_goes_to_the_buffer_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with DemoServer(TINY) as server:
        eventually(lambda: any(f"port {server.port}" in line for line in server.lines(5)))
    assert capfd.readouterr() == ("", "")
