"""The demo's API server process: OpenAI-compatible completions in front of an engine process.

python -m llmtop.demo.server --port 8000

POST /v1/completions   prompt (text or tokens), max_tokens, temperature, seed, stream, stream_options
GET  /v1/models /health /metrics
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import itertools
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from llmtop import programs
from llmtop.demo.faults import Faults
from llmtop.demo.lifeline import child_environment, exit_on_signals, name_thread, terminate_at_end_of
from llmtop.demo.metrics import Metrics, Timeline
from llmtop.demo.model import VOCABULARY, encode, token_bytes
from llmtop.demo.options import Options, add_flags, from_flags
from llmtop.frozen import frozen

MAX_BODY_BYTES = 1 << 20
CLIENT_TIMEOUT_S = 60.0
ENGINE_STOP_S = 2.0


class RequestError(Exception):
    """A request that asks for what is not there: HTTP status and what is wrong."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@frozen
class Ask:
    """A checked completion request."""

    prompt: list[int]
    max_tokens: int
    temperature: float
    seed: int | None
    stream: bool
    stream_usage: bool


@dataclass(slots=True, eq=False)
class Completion:
    """A completion as it comes: (token, finish reason or "") pairs; None when the engine is gone."""

    id: str
    timeline: Timeline
    tokens: queue.SimpleQueue[tuple[int, str] | None] = field(default_factory=queue.SimpleQueue)


def checked(body: bytes, max_model_len: int) -> Ask:
    """Read a request's body.

    Raises:
        RequestError: It is no JSON object, or a field has a wrong type or value.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:  # the latter: brackets a hundred thousand deep
        raise RequestError(f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RequestError("the body is not a JSON object")
    prompt = _prompt_tokens(fields.get("prompt"))
    max_tokens = _integer(fields, "max_tokens", 16, 1, max_model_len)
    if len(prompt) + max_tokens > max_model_len:
        raise RequestError(f"{len(prompt)} prompt tokens and max_tokens {max_tokens} exceed {max_model_len}")
    stream_options = fields.get("stream_options") or {}
    if not isinstance(stream_options, dict):
        raise RequestError("stream_options is not an object")
    return Ask(
        prompt,
        max_tokens,
        _number(fields, "temperature", 1.0, 0, 100),
        None if fields.get("seed") is None else _integer(fields, "seed", 0, 0, (1 << 63) - 1),
        bool(fields.get("stream")),
        bool(stream_options.get("include_usage")),
    )


def _prompt_tokens(prompt: object) -> list[int]:
    if isinstance(prompt, str):
        return encode(prompt)
    if isinstance(prompt, list) and prompt and all(type(token) is int and 0 <= token < VOCABULARY for token in prompt):
        return prompt
    raise RequestError(f"prompt must be a text or a list of tokens from 0 to {VOCABULARY - 1}")


def _number(fields: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    value: Any = fields.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not low <= value <= high:  # a bool is an int too; NaN is not between
        raise RequestError(f"{name} must be a number from {low} to {high}")
    return float(value)


def _integer(fields: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    if type(fields.get(name)) is float:
        raise RequestError(f"{name} must be a whole number")
    value = fields.get(name)
    _number(fields, name, default, low, high)
    return default if value is None else int(value)


class EngineClient:
    """The engine process seen from the server: sends requests, hands tokens to whom they belong, keeps the metrics."""

    def __init__(self, options: Options) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = programs.start(
                [sys.executable, "-P", "-m", "llmtop.demo.engine", "--control", str(theirs.fileno()), *options.flags()],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=child_environment(),
            )
        self.is_lost = False
        """Whether the engine has ended by itself."""
        self._lock = threading.Lock()
        self._answers: dict[str, Completion] = {}
        self._numbers = itertools.count(1)
        self._messages = self._control.makefile("r")
        ready = self._messages.readline()
        if not ready:
            raise SystemExit(f"the engine ended with exit code {self._process.wait()} before it was ready")
        self.description: dict[str, Any] = json.loads(ready)["ready"]
        self.metrics = Metrics(self.description)

    def submit(self, ask: Ask) -> Completion:
        """Hand a request to the engine."""
        number = next(self._numbers)
        now = time.monotonic()
        answer = Completion(f"cmpl-{number}", Timeline(now, len(ask.prompt)))
        request = {
            "id": answer.id,
            "prompt": ask.prompt,
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "seed": number if ask.seed is None else ask.seed,
        }
        with self._lock:
            self._answers[answer.id] = answer
            self._send({"add": request})
        return answer

    def abort(self, answer: Completion) -> None:
        """Drop a request whose client has left; nothing happens when it has ended."""
        with self._lock:
            if self._answers.pop(answer.id, None) is not None:
                self.metrics.take_end(answer.timeline, "abort")
                self._send({"abort": answer.id})

    def distribute(self) -> None:
        """Receive from the engine until it is gone; runs on a thread of its own."""
        with contextlib.suppress(ConnectionResetError):  # it ended before it had read all that it was sent
            for line in self._messages:
                message = json.loads(line)
                with self._lock:
                    if "step" in message:
                        self._take_step(message["step"])
                    elif "state" in message:
                        self.metrics.take_state(message["state"])
        self.is_lost = True
        with self._lock:
            for answer in self._answers.values():
                answer.tokens.put(None)

    def bury(self) -> None:
        """Wait until the engine has ended, or for as long as it may take to end."""
        self._process.wait(ENGINE_STOP_S)

    def close(self) -> None:
        """End the engine process: it leaves at the end of its socket."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._process.terminate()
        try:
            self.bury()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _take_step(self, step: dict[str, Any]) -> None:
        now = time.monotonic()
        self.metrics.take_step(step)
        for request_id, token, reason, scheduled_s in step["outputs"]:
            answer = self._answers.get(request_id)
            if answer is None:  # aborted while the step ran
                continue
            self.metrics.take_token(answer.timeline, scheduled_s, now)
            if reason:
                del self._answers[request_id]
                self.metrics.take_end(answer.timeline, reason)
            answer.tokens.put((token, reason))

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the engine is gone: `distribute` tells everyone who waits
            self._control.sendall(json.dumps(message).encode() + b"\n")


class Handler(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"
    timeout = CLIENT_TIMEOUT_S
    disable_nagle_algorithm = True
    wbufsize = -1
    engine: ClassVar[EngineClient]
    faults: ClassVar[Faults]

    def do_GET(self) -> None:
        """Serve the three things there are to read."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            page = self.faults.now.metrics()
            self._reply(*page or (200, self.engine.metrics.text(), "text/plain; version=0.0.4; charset=utf-8"))
        elif path == "/health":
            self._reply(200, b"", "text/plain")
        elif path == "/v1/models":
            model = {"id": self.engine.description["model"], "object": "model", "owned_by": "llmtop"}
            limits = {"max_model_len": self.engine.description["max_model_len"]}
            self._reply_json(200, {"object": "list", "data": [model | limits]})
        else:
            self._refuse(404, f"there is no {path}")

    def do_POST(self) -> None:
        """Serve a completion."""
        try:
            body = self._body()
            if self.path.partition("?")[0] != "/v1/completions":
                raise RequestError("there is only /v1/completions", 404)
            ask = checked(body, self.engine.description["max_model_len"])
        except RequestError as error:
            self._refuse(error.status, str(error))
            return
        self.faults.now.at_request()
        answer = self.engine.submit(ask)
        try:
            (self._stream if ask.stream else self._complete)(ask, answer)
        except OSError:  # the client has left
            self.close_connection = True
        finally:
            self.engine.abort(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """One line on stderr, as a server logs; scrapes and probes are not worth one."""
        if self.command == "POST":
            super().log_message(format, *args)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.close_connection = True
            raise RequestError("Content-Length is missing", 411)
        if int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            raise RequestError(f"the body is larger than {MAX_BODY_BYTES} bytes", 413)
        return self.rfile.read(int(length))

    def _complete(self, ask: Ask, answer: Completion) -> None:
        tokens = list(received(answer))
        if not tokens or not tokens[-1][1]:
            self._refuse(500, "the engine has ended")
            return
        text = b"".join(token_bytes(token) for token, _ in tokens).decode("utf-8", "replace")
        whole = self._chunk(answer, text, tokens[-1][1]) | {"usage": usage(ask, len(tokens))}
        self._reply_json(200, whole)

    def _stream(self, ask: Ask, answer: Completion) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        decoder, count, reason = codecs.getincrementaldecoder("utf-8")("replace"), 0, ""
        for token, reason in received(answer):
            count += 1
            text = decoder.decode(token_bytes(token), final=bool(reason))
            self._send_event(self._chunk(answer, text, reason or None))
        if not reason:
            self._send_event(error_body("the engine has ended", 500))
        elif ask.stream_usage:
            self._send_event(self._chunk(answer, "", reason) | {"choices": [], "usage": usage(ask, count)})
        self._send_chunk(b"data: [DONE]\n\n")
        self._send_chunk(b"")

    def _chunk(self, answer: Completion, text: str, reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        head = {"id": answer.id, "object": "text_completion", "created": int(time.time())}
        return {**head, "model": self.engine.description["model"], "choices": [choice]}

    def _send_event(self, event: dict[str, Any]) -> None:
        self._send_chunk(f"data: {json.dumps(event)}\n\n".encode())

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _refuse(self, status: int, message: str) -> None:
        self._reply_json(status, error_body(message, status))

    def _reply_json(self, status: int, content: dict[str, Any]) -> None:
        self._reply(status, json.dumps(content).encode(), "application/json")

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def received(answer: Completion) -> Iterator[tuple[int, str]]:
    """Tokens as they arrive, to the last; cut short when the engine is gone."""
    while (one := answer.tokens.get()) is not None:
        yield one
        if one[1]:
            return


def usage(ask: Ask, completion_tokens: int) -> dict[str, int]:
    """Token counts as OpenAI's API names them."""
    counts = {"prompt_tokens": len(ask.prompt), "completion_tokens": completion_tokens}
    return counts | {"total_tokens": sum(counts.values())}


def error_body(message: str, status: int) -> dict[str, Any]:
    """An error as OpenAI's API shapes it."""
    kind = "invalid_request_error" if status < 500 else "internal_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


class DemoHttpServer(ThreadingHTTPServer):
    """A thread for each connection; threads do not hold up the end."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that resets its connection is not worth a traceback."""
        if not isinstance(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the API server process until SIGTERM, the end of its starter, or the end of its engine."""
    parser = argparse.ArgumentParser(prog="python -m llmtop.demo.server", description="The demo LLM server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free (default 8000)")
    parser.add_argument("--lifeline", type=int, help="file descriptor of a pipe: its end ends the server")
    parser.add_argument("--ready", type=int, help="file descriptor to write one JSON line to when ready")
    add_flags(parser)
    args = parser.parse_args(argv)
    name_thread("APIServer")
    exit_on_signals()
    if args.lifeline is not None:
        terminate_at_end_of(args.lifeline)
    try:
        http = DemoHttpServer((args.host, args.port), Handler)
    except OSError as error:
        raise SystemExit(f"cannot listen on {args.host} port {args.port}: {error.strerror}") from None
    with contextlib.closing(EngineClient(from_flags(args))) as engine:
        Handler.engine, Handler.faults = engine, Faults(args.fault, "server")
        try:  # all of it: the engine may end as soon as it is announced, or before
            threading.Thread(target=accept, args=(http,), name="http", daemon=True).start()
            threading.Thread(target=distribute, args=(engine, Handler.faults), name="engine", daemon=True).start()
            announce(http.server_address[1], engine.description, args.ready)
            while True:
                signal.pause()
        except SystemExit:
            if engine.is_lost:
                sys.stderr.write("the engine has ended\n")  # at once, or a request's log line may come in between
                raise SystemExit(1) from None
            raise


def accept(http: DemoHttpServer) -> None:
    """Serve connections; their threads inherit this one's name."""
    name_thread("http")
    http.serve_forever(3600.0)  # it wakes up that often to look for shutdown(), which nobody calls


def distribute(engine: EngineClient, faults: Faults) -> None:
    """Hand out tokens until the engine is gone, then end this process too: without it there is nothing to serve."""
    name_thread("engine-io")
    engine.distribute()
    if faults.now.buries_engine:
        engine.bury()
    if not faults.now.outlives_engine:
        os.kill(os.getpid(), signal.SIGTERM)


def announce(port: int, engine: dict[str, Any], ready: int | None) -> None:
    """Say that requests are welcome: on stderr as a log line, and to the starter."""
    cache = f"{engine['kv_blocks']} KV blocks of {engine['block_size']} tokens"
    sys.stderr.write(f"INFO {engine['model']} {engine['dtype']} on {engine['device']}, {cache}, port {port}\n")
    if ready is not None:
        with os.fdopen(ready, "w") as pipe:
            pipe.write(json.dumps({"port": port, "engine": engine}) + "\n")


if __name__ == "__main__":
    main()
