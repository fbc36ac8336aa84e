from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from llmtop.demo.load import PHASES, Arrival, phases, plan, send
from llmtop.demo.options import Options, add_flags, from_flags

CYCLE = [("steady", 10.0), ("burst", 5.0), ("idle", 5.0)]


def first(count: int, seed: int = 0, rate: float = 10.0) -> list[Arrival]:
    return list(itertools.islice(plan(seed, rate, CYCLE), count))


def test_the_same_seed_makes_the_same_traffic() -> None:
    assert first(50) == first(50)
    assert first(50) != first(50, seed=1)


def test_arrivals_follow_the_phases() -> None:
    arrivals = list(itertools.takewhile(lambda arrival: arrival.at_s < 40, plan(0, 10.0, CYCLE)))
    times = [arrival.at_s for arrival in arrivals]
    assert times == sorted(times)
    by_phase = [sum(start <= t % 20 < end for t in times) for start, end in ((0, 10), (10, 15), (15, 20))]
    assert by_phase[0] == pytest.approx(200, rel=0.25)
    assert by_phase[1] == pytest.approx(600, rel=0.25)
    assert by_phase[2] == 0


def test_requests_are_mixed_and_fit_the_small_model() -> None:
    arrivals = first(300)
    assert {arrival.stream for arrival in arrivals} == {True, False}
    assert len({arrival.max_tokens for arrival in arrivals}) > 50
    assert max(len(arrival.prompt) + 1 + arrival.max_tokens for arrival in arrivals) <= 1024
    beginnings = {arrival.prompt[:60] for arrival in arrivals}
    assert len(beginnings) < 150, "most prompts share a beginning"


def test_a_load_of_nothing_but_idle_sends_nothing() -> None:
    assert list(plan(0, 5.0, [("idle", 1.0)])) == []
    assert list(plan(0, 0.0, CYCLE)) == []


def test_the_default_phases_are_valid() -> None:
    assert {name for name, _ in phases(PHASES)} == {"steady", "burst", "idle"}


@pytest.mark.parametrize("text", ["", "steady", "steady:", "steady:0", "steady:-1", "party:5", "steady:1,", "idle:nan"])
def test_phases_are_checked(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="steady"):
        phases(text)


def test_a_server_that_is_not_there_is_no_exception() -> None:
    assert send("http://127.0.0.1:9", Arrival(0, "a", 1, 0, False)) == 0


def test_it_ends_on_sigterm_in_the_middle_of_a_request() -> None:
    asked = threading.Event()
    release = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.set()
            release.wait(30)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        load = subprocess.Popen([sys.executable, "-m", "llmtop.demo.load", "--url", url, "--rate", "50"])
        try:
            assert asked.wait(30)
            load.terminate()
            assert load.wait(10) == 0
        finally:
            load.kill()
            load.wait()
            release.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "options",
    [Options(), Options(model="7b", dtype="float16", kv_blocks=5, prefix_caching=False), Options(device="cpu", seed=3)],
)
def test_options_survive_the_command_line(options: Options) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    assert from_flags(parser.parse_args(options.flags())) == options


def test_options_are_settled_where_there_is_no_choice() -> None:
    settled = Options(device="cpu").settled()
    assert (settled.model, settled.dtype, settled.device) == ("small", "float32", "cpu")
    assert Options(device="cuda").settled() == Options(device="cuda")
    assert Options().flags() == []
