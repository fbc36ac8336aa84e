"""Does llmtop name what was planted on a real llama-server without a GPU, and nothing false beside it?

    sudo .venv/bin/python benchmarks/llama_causes.py LLAMA_SERVER MODEL.gguf [--only queue threads]

LLAMA_SERVER is the path of the program, MODEL.gguf a small model (a step of 10 to 50 ms on this machine); nothing is
built or fetched. For each cause the server is started on 127.0.0.1 with a bounded load, the cause is planted, and
`llmtop snapshot` looks for 15 s. Printed is what it says, in order, and whether the cause is the first of it that is
not true of the machine itself: on one that other programs share, that CPUs are short is true beside every cause, and
what they took is printed with it. Some two minutes for all causes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench import LLMTOP, ROOT, machine, table

PORT = 18_090
CLIENTS = 2
SETTLE_S = 5.0
LOOK_S = 15
START_S = 60.0
SHORT_OF_CPU = "run-queue-starvation"


@dataclass(frozen=True)
class Cause:
    """What is planted, and how.

    Attributes:
        wanted: The rules of which the first says it; empty where nothing but information is to be said.
        server: More options of the server; of an option that is given twice the last counts.
        before: A command before the server's.
        load: Clients, words of their prompts and tokens of their answers, several kinds beside each other.
        sent: A signal to the server after the first half of the look.
    """

    planted: str
    wanted: tuple[str, ...]
    server: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    load: tuple[tuple[int, int, int], ...] = ((CLIENTS, 20, 200),)
    beside: tuple[str, ...] = ()
    sent: signal.Signals | None = None


BUSY = (sys.executable, "-c", "while True: pass")
CAUSES = {
    "nothing": Cause("nothing", ()),
    "one CPU": Cause("pinned to CPU 0 beside a busy loop", (SHORT_OF_CPU,), before=("taskset", "-c", "0"), beside=BUSY),
    "threads": Cause("four threads for each CPU", (SHORT_OF_CPU,), ("-t", str(4 * (os.cpu_count() or 1)))),
    "prompts": Cause("long prompts among decodes", ("cpu-bound",), load=((CLIENTS, 20, 200), (1, 300, 5))),
    "queue": Cause("8 clients for 2 slots", ("queue-standing",), ("-np", "2"), load=((8, 20, 100),)),
    "context": Cause("answers longer than the context", ("context-filled",), ("-c", "1024"), load=((2, 20, 2000),)),
    "stopped": Cause("SIGSTOP", ("process-stopped",), sent=signal.SIGSTOP),
    "killed": Cause("SIGKILL", ("process-gone",), sent=signal.SIGKILL),
}


class Load:
    """Clients that stream, each with its next request when it has its answer, until they are told to end."""

    def __init__(self, kinds: Sequence[tuple[int, int, int]]) -> None:
        self._over = threading.Event()
        kinds = [kind for kind in kinds for _ in range(kind[0])]
        self._threads = [threading.Thread(target=self._ask, args=kind[1:], daemon=True) for kind in kinds]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(5)

    def _ask(self, words: int, tokens: int) -> None:
        body = {"prompt": "ba ce di fo gu " * (words // 5), "n_predict": tokens, "stream": True, "ignore_eos": True}
        text = json.dumps({**body, "cache_prompt": False})
        while not self._over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):  # the server may be stopped or killed
                self._read(text)
            self._over.wait(0.05)

    def _read(self, text: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
        try:
            connection.request("POST", "/completion", text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            while not self._over.is_set() and answer.readline():
                pass
        finally:
            connection.close()


@contextlib.contextmanager
def started(argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program without a word, ended in the end."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_it_answers() -> None:
    """Until the model is loaded."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=1)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        connection.close()
        time.sleep(0.2)
    sys.exit("the server did not start")


def look(cause: Cause, program: str, model: str) -> dict[str, Any]:
    """Plant a cause, and take a snapshot of it."""
    options = ("--host", "127.0.0.1", "--port", str(PORT), "--metrics", "-np", "4", "-c", "8192", "-t", "1")
    with (
        started((*cause.before, program, "-m", model, *options, *cause.server)) as server,
        contextlib.ExitStack() as all_,
    ):
        wait_until_it_answers()
        if cause.beside:
            all_.enter_context(started((*cause.before, *cause.beside)))
        all_.enter_context(Load(cause.load))
        time.sleep(SETTLE_S)
        if cause.sent is not None:
            timer = threading.Timer(LOOK_S / 2 + SETTLE_S, server.send_signal, (cause.sent,))
            timer.start()
            all_.callback(timer.join)
        command = [*LLMTOP, "snapshot", "--attach", str(server.pid), "--seconds", str(LOOK_S)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    return dict(json.loads(done.stdout))


def row(name: str, cause: Cause, document: dict[str, Any]) -> tuple[str, ...]:
    """What was planted, whether it is what is said, and all that is said."""
    said = [one["rule"] for one in document["findings"] if one["severity"] != "info"]
    own = [rule for rule in said if rule != SHORT_OF_CPU or SHORT_OF_CPU in cause.wanted]
    is_right = own[:1] == [*cause.wanted][:1]
    others = sum(one["cores"] for one in document["host"].get("cpu_consumers", ()))
    first = document["verdict"]["text"]
    return (name, cause.planted, "right" if is_right else "wrong", ", ".join(said) or "–", f"{others:.2f}", first)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", help="the program llama-server")
    parser.add_argument("model", help="a small model, as .gguf")
    parser.add_argument("--only", nargs="+", choices=CAUSES, default=list(CAUSES), help="of the causes, these")
    asked = parser.parse_args()
    rows = [row(name, CAUSES[name], look(CAUSES[name], asked.server, asked.model)) for name in asked.only]
    print(machine())
    print(table(("cause", "planted", "", "said", "others, cores", "first"), rows))


if __name__ == "__main__":
    main()
