"""Traffic for an LLM server, the same for the same seed: steady, in bursts, and none.

    python -m llmtop.demo.load --url http://127.0.0.1:8000 --rate 3 --phases steady:20,burst:6,idle:5

Requests arrive at random (a Poisson process), as independent users send them; half of them stream, most share one of a
few long beginnings, as chats with the same instructions do.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence

from llmtop.demo.lifeline import exit_on_signals, terminate_at_end_of
from llmtop.frozen import frozen

PHASES = "steady:20,burst:6,steady:14,idle:5"
RATE = 3.0
CONCURRENCY = 256
PROMPT_WORDS = 30
"""At the beginning of a prompt, which others may share; up to 30 of its own follow."""
ANSWER_TOKENS = 140
"""On average, beside 16 that all have."""
FACTORS = {"steady": 1.0, "burst": 6.0, "idle": 0.0}
"""Arrivals in a phase as a multiple of the rate. A burst is more than the small model can compute on one core."""
_WORDS = (
    "memory bandwidth token cache batch kernel prefill decode queue latency tensor attention page block stream "
    "warp stall roof sequence request scheduler thread clock power model weight"
)
_PATIENCE_S = 120.0


@frozen
class Arrival:
    """One request and when to send it, in seconds from the start."""

    at_s: float
    prompt: str
    max_tokens: int
    seed: int
    stream: bool


def phases(text: str) -> list[tuple[str, float]]:
    """An argparse type: names and durations in seconds.

    >>> phases("steady:20,idle:2.5")
    [('steady', 20.0), ('idle', 2.5)]
    """
    found = []
    for part in text.split(","):
        name, _, duration = part.partition(":")
        if name not in FACTORS or not duration.replace(".", "", 1).isdecimal() or float(duration) <= 0:
            raise argparse.ArgumentTypeError(f"{part!r} is not one of {', '.join(FACTORS)} with seconds, as steady:20")
        found.append((name, float(duration)))
    return found


def plan(
    seed: int,
    rate: float,
    cycle: Sequence[tuple[str, float]],
    prompt_words: int = PROMPT_WORDS,
    answer_tokens: int = ANSWER_TOKENS,
) -> Iterator[Arrival]:
    """All arrivals, without end: the phases come round and round. A cycle of nothing but idle has none."""
    generator = random.Random(seed)
    beginnings = [_text(generator, prompt_words) for _ in range(3)]
    start_s = 0.0
    if not any(FACTORS[name] * rate for name, _ in cycle):
        return
    for name, duration_s in itertools.cycle(cycle):
        arrivals_per_s = FACTORS[name] * rate
        at_s = start_s
        while arrivals_per_s and (at_s := at_s + generator.expovariate(arrivals_per_s)) < start_s + duration_s:
            yield _arrival(generator, at_s, beginnings, prompt_words, answer_tokens)
        start_s += duration_s


def _arrival(
    generator: random.Random, at_s: float, beginnings: Sequence[str], prompt_words: int, answer_tokens: int
) -> Arrival:
    beginning = generator.choice(beginnings) if generator.random() < 0.7 else _text(generator, prompt_words)
    prompt = f"{beginning} {_text(generator, generator.randint(2, 30))}"
    max_tokens = min(256, 16 + int(generator.expovariate(1 / answer_tokens)))  # most answers are short, some are long
    return Arrival(at_s, prompt, max_tokens, generator.randrange(1 << 31), generator.random() < 0.5)


def _text(generator: random.Random, words: int) -> str:
    return " ".join(generator.choices(_WORDS.split(), k=words))


def send(url: str, arrival: Arrival) -> int:
    """Send one request and read its answer to the end; return the HTTP status, 0 when the server is not there."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_PATIENCE_S)
    body = {
        "prompt": arrival.prompt,
        "max_tokens": arrival.max_tokens,
        "seed": arrival.seed,
        "stream": arrival.stream,
    }
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            response.read()
            return response.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def run(url: str, arrivals: Iterator[Arrival], concurrency: int) -> None:
    """Send each request when its time has come; one more than `concurrency` waits for another to end."""
    slots = threading.Semaphore(concurrency)
    start_s = time.monotonic()

    def answer(arrival: Arrival) -> None:
        with slots:
            status = send(url, arrival)
        if status != 200:
            sys.stderr.write(f"WARNING a request failed: {f'HTTP {status}' if status else 'no answer'}\n")

    for arrival in arrivals:
        time.sleep(max(0.0, start_s + arrival.at_s - time.monotonic()))
        slots.acquire()
        slots.release()
        threading.Thread(target=answer, args=(arrival,), daemon=True).start()
    threading.Event().wait()  # nothing (more) to send: stay, as a quiet load, until told to end


def main(argv: Sequence[str] | None = None) -> None:
    """Run until SIGTERM or the end of the starter."""
    parser = argparse.ArgumentParser(prog="python -m llmtop.demo.load", description="Traffic for an LLM server.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--rate", type=float, default=RATE, help=f"requests a second when steady (default {RATE:g})")
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY, help="requests on their way at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--phases", type=phases, default=phases(PHASES), help=f"name:seconds,... (default {PHASES})")
    parser.add_argument("--prompt-words", type=int, default=PROMPT_WORDS, help="at the beginning of each prompt")
    parser.add_argument("--answer-tokens", type=int, default=ANSWER_TOKENS, help="in an answer, on average")
    parser.add_argument("--lifeline", type=int, help="file descriptor of a pipe: its end ends the load")
    args = parser.parse_args(argv)
    exit_on_signals()
    if args.lifeline is not None:
        terminate_at_end_of(args.lifeline)
    run(args.url, plan(args.seed, args.rate, args.phases, args.prompt_words, args.answer_tokens), args.concurrency)


if __name__ == "__main__":
    main()
