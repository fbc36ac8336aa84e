"""The recordings of a GPU that ship: each shows what it is said to show, and nothing of where it was made."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import ExitStack, closing
from statistics import median

import pytest

from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.server.engine_steps import engine_loops
from llmtop.cli.demo import incident
from llmtop.demo.incidents import INCIDENTS
from llmtop.demo.replays import REPLAYS, DemoReplay
from llmtop.model import NS_PER_S, MarkKind, Unknown
from llmtop.parsers.registry import plain_recording, recording_at
from llmtop.recording.reader import RecordingReader
from tests.e2e.terminal import Terminal

MOST_BYTES = 300_000


def recording(replay: DemoReplay) -> RecordingReader:
    found = recording_at(replay.path)
    assert found is not None
    return found


every = pytest.mark.parametrize("replay", REPLAYS.values(), ids=REPLAYS)


@every
def test_each_shows_what_is_said_of_it(replay: DemoReplay) -> None:
    shown = recording(replay)
    assert not shown.issues
    found = {finding.rule for t_ns in shown.times[8::8] for finding in diagnose(shown.trace(t_ns)).findings}
    assert found >= set(replay.verdicts)


@every
def test_each_is_small_and_names_no_machine(replay: DemoReplay) -> None:
    assert replay.path.stat().st_size < MOST_BYTES
    with ExitStack() as stack:
        plain = plain_recording(replay.path, stack)
        assert plain is not None
        with closing(sqlite3.connect(f"file:{plain}?mode=ro", uri=True)) as base:
            texts = [data for (data,) in base.execute("SELECT data FROM part") if isinstance(data, str)]
    assert texts
    assert not [text for text in texts if any(f"/{place}" in text for place in ("tmp/", "home/", "root/", "work"))]


@pytest.mark.parametrize(
    ("name", "start_s", "end_s", "leads"),
    [
        ("gpu-decode", 13, 34, {"cpu-bound"}),
        ("gpu-kv-exhaustion", 2, 43, {"kv-bound"}),
        ("gpu-starved", 3, 8, {"memory-bound-decode", ""}),
        ("gpu-starved", 9, 35, {"run-queue-starvation"}),
        ("gpu-long-prompts", 7, 19, {"step-tail", "objective-missed", "cpu-bound"}),
        ("gpu-long-prompts", 21, 39, {"step-tail"}),
        ("gpu-steps", 2, 20, {"memory-bound-decode", "gpu-bound", "cpu-bound", ""}),
        ("gpu-steps", 23, 28, {"step-tail"}),
        ("gpu-power-cap", 2, 8, {"cpu-bound"}),
        ("gpu-power-cap", 10, 12, {"step-tail"}),
        ("gpu-power-cap", 13, 16, {"objective-missed"}),
        ("gpu-power-cap", 17, 29, {"queue-standing"}),
        ("gpu-xid", 2, 5, {"memory-bound-decode", "gpu-bound"}),
        ("gpu-xid", 7, 17, {"xid"}),
    ],
)
def test_what_leads_at_each_moment_is_what_was_staged(name: str, start_s: int, end_s: int, leads: set[str]) -> None:
    """As sample_traces/README.md has it: a healthy server makes no warning, and an incident is named while it lasts."""
    shown = recording(REPLAYS[name])
    said = {}
    for second in range(start_s, end_s + 1, 4):
        findings = diagnose(shown.trace(shown.times[0] + second * NS_PER_S)).findings
        said[second] = findings[0].rule if findings else ""
    assert {second: rule for second, rule in said.items() if rule not in leads} == {}


def test_the_tail_of_steps_is_put_down_to_the_prompts_that_were_sent() -> None:
    shown = recording(REPLAYS["gpu-steps"])
    first = diagnose(shown.trace(shown.times[-1])).findings[0]
    assert first.message.startswith("slow steps hold up every token, mostly prefill in the batch: ")
    assert "--max-num-batched-tokens" in first.action


def test_an_engine_that_was_let_go_is_judged_by_the_cpus_that_it_had() -> None:
    shown = recording(REPLAYS["gpu-starved"])
    first, *others = diagnose(shown.trace(shown.times[-1])).findings
    assert "it could run on CPU 3 only, until 6 s ago, and others were free" in first.message
    assert first.action.startswith("its CPUs were changed since")
    assert "cpu-bound" not in {one.rule for one in others}


def test_a_power_cap_is_named_with_what_it_costs_where_the_limit_is_the_highest() -> None:
    shown = recording(REPLAYS["gpu-power-cap"])
    findings = diagnose(shown.trace(shown.times[0] + 25 * NS_PER_S)).findings
    (cap,) = (one for one in findings if one.rule == "clocks-capped")
    assert cap.message.startswith("power cap: 69")
    assert cap.message.endswith(" of 1980 MHz")
    assert cap.action.startswith("arithmetic, which limits it, is 2")
    assert "its power limit is the highest it has (700 W): use a lower precision" in cap.action


def test_latencies_of_single_seconds_are_named_with_when_they_were() -> None:
    shown = recording(REPLAYS["gpu-long-prompts"])
    first, *others = diagnose(shown.trace(shown.times[0] + 30 * NS_PER_S)).findings
    assert first.message == "prompts held up every token 14 to 9 s ago: ITL p99 50 to 75 ms (50 ms)"
    assert [one.message for one in others if one.rule == "objective-missed"] == [
        "ITL missed its objective 26 to 20 s and 14 to 9 s ago: p99 100 to 150 ms (50 ms)"
    ]


def test_steps_of_one_are_told_by_their_rhythm() -> None:
    """Three waits for the GPU a step: 4.2 ms each, as the server counts 200 steps a second between prompts."""
    shown = recording(REPLAYS["gpu-steps"])
    loops = engine_loops(shown.trace(shown.times[-1]))
    assert not isinstance(loops, Unknown)
    assert 4.0 < median(step.time_ns for step in loops[0].steps) / 1e6 < 4.4


def test_the_fault_of_another_program_is_an_event() -> None:
    (mark,) = (mark for mark in recording(REPLAYS["gpu-xid"]).marks if mark.kind is MarkKind.XID)
    assert mark.said.startswith("XID 13: ")


def test_staged_and_recorded_ones_have_one_list_of_names() -> None:
    assert not INCIDENTS.keys() & REPLAYS.keys()
    assert incident("gpu-xid") is REPLAYS["gpu-xid"]
    assert incident("lock") is INCIDENTS["lock"]


def test_a_recorded_one_is_played_from_its_beginning() -> None:
    argv = [sys.executable, "-m", "llmtop", "demo", "--incident", "gpu-kv-exhaustion"]
    with Terminal(argv, columns=120, lines=40) as terminal:
        terminal.wait_for("KV-bound")
        assert "playing" in terminal.screen_lines()[0]
        terminal.press("q")
        assert terminal.wait_exit() == 0
