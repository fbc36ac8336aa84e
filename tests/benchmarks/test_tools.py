"""The benchmarks' own tools, tried on programs of a few lines and on made-up numbers."""

from __future__ import annotations

import doctest
import os
import platform
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from benchmarks import (
    attach_loss,
    bench,
    cuda_driver,
    monitor_cost,
    profiler_together,
    server_loss,
    soak,
    start_times,
    tell_apart,
    xid_fault,
)
from tests.fake_nvml.build import FakeNvml

ECHO = """
import sys, termios, time, tty
tty.setcbreak(0)
print("ready", flush=True)
while True:
    key = sys.stdin.read(1)
    if key != "n":
        print("second" if key == "2" else "got " + key, flush=True)
"""


@pytest.mark.parametrize("module", [attach_loss, bench, server_loss])
def test_examples_in_docstrings_hold(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert tried > 1
    assert failed == 0


def test_a_terminal_tells_when_the_screen_showed_something() -> None:
    with bench.TimedTerminal([sys.executable, "-c", ECHO]) as terminal:
        terminal.wait_for_output(b"ready")
        answered = terminal.response_s("2", quiet_s=0.05)
        ignored = terminal.response_s("n", timeout_s=0.1)
        end = time.perf_counter()
        assert terminal.bytes_between(terminal.started_s, end) == len(b"ready\r\nsecond\r\n")
        terminal.signal(signal.SIGKILL)
        terminal.wait_exit()
        ready, second, never = terminal.when(lambda t: "ready" in t, lambda t: "second" in t, lambda t: "third" in t)
    assert answered is not None
    assert ignored is None
    assert ready is not None
    assert second is not None
    assert ready < second < end - terminal.started_s
    assert never is None


def test_a_program_that_ended_is_told_with_its_last_words() -> None:
    with bench.TimedTerminal(["sh", "-c", "echo no such thing; exit 3"]) as terminal:
        terminal.wait_exit()
        with pytest.raises(AssertionError, match=r"exit code 3.*no such thing"):
            terminal.check_running()
        with pytest.raises(AssertionError, match="exit code 3"):
            terminal.wait_for_output(b"ready")


def test_children_count_as_children() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(flush=True)\\nwhile True: pass'])"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        start = bench.Use.of(process.pid)
        deadline = time.monotonic() + 10
        while (now := bench.Use.of(process.pid)).children_s - start.children_s < 0.1:
            assert time.monotonic() < deadline
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.kill()
    assert now.own_s - start.own_s < 0.1
    assert now.rss > 1e6


def test_the_machine_is_described_without_names() -> None:
    facts = bench.machine()
    assert re.search(r"\d+ cores, load \d", facts)
    assert platform.node() not in facts


@pytest.mark.parametrize(
    ("text", "durations", "readings"),
    [
        ("gemm   12 µs   copy  3.1 ms   fill  80 ns  ", True, False),
        ("0  97 %  62 %  18 %\n1  97 %  62 %  18 %\n2 97 %  62 %", False, True),
        ("\n".join(f"{gpu}  69  57  17  470  18{gpu}6" for gpu in range(8)), False, True),
        ("reading large.ncu-rep (77.6 MiB)", False, False),
    ],
)
def test_what_counts_as_shown(text: str, durations: bool, readings: bool) -> None:
    assert start_times.has_durations(text) == durations
    assert start_times.has_readings(text) == readings


def test_a_row_of_costs_is_of_medians() -> None:
    case = monitor_cost.Case("attached, eBPF on", 8, 0.5, {}, attached=True)
    windows = [monitor_cost.Window(cpu, 0.5, 60.0, 12.0) for cpu in (3.0, 9.0, 4.0)]
    assert monitor_cost.row(case, "llmtop", windows) == (case.name, "8", "2", "llmtop", "4.0", "0.5", "60", "12.0")


@pytest.mark.parametrize(
    ("watched", "code", "verdict"),
    [
        ([99.9, 100.1, 100.0], 0, "budget 1%: within"),
        ([90.0, 90.2, 89.8], 1, "budget 1%: beyond"),
        ([90.0, 110.0, 99.0], 0, "budget 1%: not told apart from"),
    ],
)
def test_a_loss_is_judged_by_its_interval(
    watched: list[float], code: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Still:
        pid, unit = 1, "steps/s"

        def rate(self, seconds: float) -> float:
            raise NotImplementedError

    assert attach_loss.report(Still(), [100.0, 100.1, 100.0, 100.1], watched) == code
    assert verdict in capsys.readouterr().out


def test_an_xid_is_timed_from_the_launch(fake_nvml: FakeNvml) -> None:
    def fault() -> tuple[int, str]:
        launched_ns = time.monotonic_ns()
        fake_nvml.set_gpu(0, xid=13, xid_count=1)
        return launched_ns, "cuCtxSynchronize: CUDA error 716"

    outcome = xid_fault.catch(fault, 0.15)
    assert outcome.after_s is not None
    assert 0 < outcome.after_s < xid_fault.LIMIT_S
    assert outcome.is_good
    assert outcome.text.startswith("XID 13")


def test_another_xid_is_not_the_one_waited_for(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault() -> tuple[int, str]:
        fake_nvml.set_gpu(0, xid=31, xid_count=1)
        return time.monotonic_ns(), ""

    monkeypatch.setattr(xid_fault, "PATIENCE_S", 1.0)
    outcome = xid_fault.catch(fault, 0.15)
    assert outcome.text == "no mark within 1 s"
    assert not outcome.is_good


def test_without_a_driver_the_kernel_says_so() -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is an NVIDIA driver here, and the kernel would fault")
    ran = subprocess.run([sys.executable, cuda_driver.__file__, "fault"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stdout.startswith("libcuda.so.1 not found")


def test_ways_that_cannot_run_are_listed_and_nothing_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> list[dict[str, object]]:
        raise profiler_together.UnavailableError("no GPU here")

    monkeypatch.setattr(profiler_together, "_truth", refuse)
    monkeypatch.setattr(sys, "argv", ["profiler_together.py", "--ncu", "", "--nsys", ""])
    assert profiler_together.main() == 2
    said = capsys.readouterr().out
    assert "skipped: alone: no GPU here" in said
    assert "skipped: beside ncu: ncu is not installed here" in said


def test_a_profiler_that_profiles_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ncu"
    broken.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'\n")
    broken.chmod(0o755)
    monkeypatch.setattr(profiler_together, "PATIENCE_S", 0.5)
    with (
        pytest.raises(profiler_together.UnavailableError, match="ncu profiled nothing: ==ERROR== ERR_NVGPUCTRPERM"),
        profiler_together.ncu(str(broken), tmp_path),
    ):
        pass


def test_a_number_out_of_its_tolerance_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "copy 4 GiB", "done_flops": 0.0, "said_flops": None, "done_bytes": 3.0e12, "said_bytes": 2.7e12}
    verdict = "bytes/s 0.900 not in 0.97..1.03"
    monkeypatch.setattr(profiler_together, "_truth", lambda *_: [{**row, "verdict": verdict}])
    monkeypatch.setattr(sys, "argv", ["profiler_together.py", "--ncu", "", "--nsys", ""])
    assert profiler_together.main() == 1
    assert re.search(r"alone +\| copy 4 GiB, GB/s \| 3000 \| +2700 \| 0\.900 \| bytes/s", capsys.readouterr().out)


def _look(at_s: float, *, rss: int = 60_000_000, descriptors: int = 20) -> soak.Look:
    return soak.Look(at_s, rss, 140_000_000, descriptors, 8, 9, 1, at_s / 20)


@pytest.mark.parametrize(
    ("last", "is_steady"),
    [
        ({}, True),
        ({"rss": 61_500_000}, True),
        ({"rss": 63_000_000}, False),
        ({"descriptors": 21}, False),
        ({"descriptors": 19}, True),
    ],
)
def test_growth_is_judged_after_the_recorder_is_full(last: dict[str, int], is_steady: bool) -> None:
    looks = [_look(15.0 * i, rss=10_000_000) for i in range(61)]  # while it fills, it may grow
    looks += [_look(915.0 + 15.0 * i) for i in range(6)]
    looks += [_look(1005.0 + 15.0 * i, **last) for i in range(2)]
    rows, verdict = soak.compare(looks)
    assert verdict is is_steady
    assert rows[-1] == ("cpu", "", "5.0% of a core")


def test_a_short_soak_proves_nothing() -> None:
    with pytest.raises(SystemExit, match="too short"):
        soak.compare([_look(15.0 * i) for i in range(61)])


def test_what_tells_two_loops_apart_is_of_the_busiest_thread() -> None:
    busy = {"on_cpu": 0.99, "in_cuda_sync": 0.9, "blocked": {}}
    snapshot = {
        "threads": [{"on_cpu": 0.1}, busy, {"on_cpu": {"unknown": "no samples"}}],
        "gpus": [{"sm": 85.0}],
        "findings": [{"rule": "gpu-bound"}],
    }
    assert tell_apart.said(snapshot) == {
        "SM": 85.0,
        "on CPU": 0.99,
        "in CUDA sync": 0.9,
        "blocked": {},
        "findings": ["gpu-bound"],
    }


def _turns(*losses: float, first: float | None = None) -> list[server_loss.Turn]:
    quiet = server_loss.Window(100.0, 50.0, 10.0, 99.0)

    def watched(lost: float) -> server_loss.Window:
        return server_loss.Window(100.0 * (1 - lost), 50.0, 10.0 * (1 - lost), 99.0 * (1 - lost))

    return [server_loss.Turn(quiet, None if first is None else watched(first), watched(lost), quiet) for lost in losses]


def test_a_server_that_loses_more_than_it_may_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    by_mode = {
        "light": _turns(0.0, 0.002, -0.001, 0.001, 0.3, -0.002, 0.001, 0.0, 0.002, 0.0, 0.001),
        "off": _turns(-0.03, 0.04, 0.01, -0.02, 0.03, 0.0),
        "none": _turns(0.02, 0.03, 0.02, 0.03, 0.02, 0.03),
    }
    assert server_loss.report(by_mode, 0.0, 4.0) == 0
    told = capsys.readouterr().out
    assert re.search(r"light: whole .* within", told)  # one wild window of eleven does not decide
    assert re.search(r"off: whole .* not told apart", told)
    assert re.search(r"none: whole .* beyond", told)  # nothing was there: chance, and no fault of llmtop's
    assert server_loss.report({"full": _turns(0.1, 0.09, 0.105, 0.1, 0.11)}, 0.0, 4.0) == 1
    assert re.search(r"full: whole .* beyond", capsys.readouterr().out)


def _window(first: float, last: float, *, slower: float = 1.0) -> server_loss.Window:
    """Of a batch whose token times grow with what it has made: 10 ms and 1 us for each token."""
    middle = (first + last) / 2
    return server_loss.Window(1 / ((0.010 + 1e-6 * middle) * slower), 50.0, at_tokens=middle)


def test_a_step_that_takes_longer_because_there_is_more_cache_is_no_loss() -> None:
    before, behind = _window(0, 1000), _window(9000, 10000)
    lost = server_loss.Losses()
    for watched in (_window(1000, 4000), _window(4000, 9000), _window(4000, 9000, slower=1.02)):
        lost.add(watched, server_loss.Turn(before, None, watched, behind))
    assert lost.tokens == pytest.approx([0.0, 0.0, 1 - 1 / 1.02])


def test_too_few_windows_bound_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert server_loss.report({"full": _turns(0.5, 0.5, 0.5, 0.5)}, 0.0, 4.0) == 0
    assert re.search(r"full: whole .* \? \|.* not told apart", capsys.readouterr().out)


def test_the_first_minute_is_made_of_the_first_seconds_and_the_others() -> None:
    found = server_loss.losses_by_window(_turns(*[0.0] * 6, first=0.15), 4.0)
    assert found["first"].tokens == pytest.approx([0.15] * 6)
    assert found["after"].tokens == pytest.approx([0.0] * 6)
    assert found["minute"].tokens == pytest.approx([0.01] * 6)


def test_bounds_hold_as_often_as_they_say() -> None:
    chance, missed = random.Random(7), 0
    for _ in range(400):
        values = [0.004 + chance.gauss(0, 0.01) + (0.3 if chance.random() < 0.03 else 0.0) for _ in range(12)]
        missed += server_loss.shift(values)[2] < 0.004
    assert missed <= 0.05 * 400 * 1.3  # of 400 tries, 20 are expected at the most, give or take four


def test_windows_are_made_of_looks_at_their_own_times() -> None:
    looks = [
        server_loss.Look(10.0, 1000.0, 10.0, 10.1, 5_000_000),
        server_loss.Look(11.0, 1050.0, 11.0, 11.1, 6_000_000),
        server_loss.Look(12.5, 1200.0, 14.0, 12.6, 7_500_000),
    ]
    window = server_loss.Window.of(looks)
    assert window == server_loss.Window(80.0, 1e3 / 80.0, 1.6, 50.0, at_tokens=1100.0)


def test_a_process_has_a_clock_of_its_cpu_time() -> None:
    own = time.clock_gettime_ns(server_loss.cpu_clock(os.getpid()))
    assert own <= time.process_time_ns() <= own + 1_000_000_000


def test_tokens_are_counted_by_the_names_of_engines() -> None:
    page = """
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 12.0
vllm:generation_tokens_total{engine="1",model_name="m"} 30.0
vllm:prompt_tokens_total{engine="0"} 999.0
"""
    assert [float(number) for number in server_loss._TOKENS.findall(page)] == [12.0, 30.0]
