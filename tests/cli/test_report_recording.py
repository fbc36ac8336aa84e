"""`llmtop report` of a recording: the verdict first, of what and when it is, and codes in words."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.cli import main
from llmtop.cli.report import report
from llmtop.model import NS_PER_S, Fact, Metric, Missing, Series, Stack, Trace, TrackId, Unknown, What
from llmtop.parsers.registry import load
from llmtop.recording.writer import RecordingWriter
from llmtop.vocabulary import EndpointAnswer, ProcessState
from tests.live_traces import NOTHING, TARGET, live_trace

ABOUT: dict[str, Fact] = {"llmtop": "1", "host": "gpu-7", "utc_ns": 1_700_000_000 * NS_PER_S}
ROOT = ids.process(TARGET.root_pid)
COMMAND = "vllm serve meta-llama/Llama-3.1-8B"
STATES = {
    (ids.endpoint(8000), v.ENDPOINT_ANSWER): float(EndpointAnswer.METRICS),
    (ids.endpoint(8001), v.ENDPOINT_ANSWER): 503.0,
    (ROOT, v.PROCESS_STATE): float(ProcessState.STOPPED),
}

NO_GPU = Missing(What("nvml"), Unknown("there is no NVIDIA driver", "install the driver"))


def observed() -> Trace:
    """A server with a command line, stacks and codes."""
    trace = live_trace()
    root = replace(trace.tracks[ROOT], facts={"root": TARGET.root_pid, "cmdline": COMMAND})
    codes = {(track, metric.name): of(track, metric, code, trace.end_ns) for (track, metric), code in STATES.items()}
    stacks = (Stack(("main", "loop"), 1.0, "samples"),)
    return replace(
        trace, tracks={**trace.tracks, ROOT: root}, series={**trace.series, **codes}, stacks=stacks, missing=(NO_GPU,)
    )


def of(track: TrackId, metric: Metric, value: float, end_ns: int) -> Series:
    return Series.of(track, metric, "test", [(end_ns - NS_PER_S, value), (end_ns, value)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = RecordingWriter(tmp_path / "incident.llmtop", ABOUT)
    writer.write(observed(), TARGET)
    writer.close()
    return tmp_path / "incident.llmtop"


def words(path: Path, kind: str) -> str:
    text = "".join(report(load(path), kind)).replace("\\", "")
    return " ".join(re.sub(r"<(style|script).*?</\1>|<[^>]*>|\|", " ", text).split())


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_findings_stand_before_numbers_and_nothing_is_said_of_kernels(path: Path, kind: str) -> None:
    said = words(path, kind)
    finding = json.loads("".join(report(load(path), "json")))["findings"][0]["message"]
    assert said.index(finding) < said.index("APIServer state stopped")
    assert "No kernels" not in said
    assert "Not in this capture" not in said


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_the_head_names_machine_time_server_and_command(path: Path, kind: str) -> None:
    said = words(path, kind)
    assert re.search(r"of gpu-7, 00:01:29 up to 2023-11-1\d \d\d:\d\d:\d\d", said)
    assert f"pid {TARGET.root_pid}" in said
    assert f"command: {COMMAND}" in said
    assert "COMMAND stands for" not in said


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_codes_are_words_and_have_no_mean(path: Path, kind: str) -> None:
    said = words(path, kind)
    assert "metrics endpoint answers" in said
    assert "metrics endpoint HTTP 503" in said
    assert "APIServer state stopped" in said
    assert " code" not in said


def test_data_have_the_source_and_what_codes_stand_for(path: Path) -> None:
    document = json.loads("".join(report(load(path), "json")))
    source = document["source"]["observed"]
    assert source["end_utc_ns"] - source["start_utc_ns"] == source["seconds"] * NS_PER_S
    assert (source["host"], source["pid"], source["command"]) == ("gpu-7", TARGET.root_pid, COMMAND)
    (state,) = [row for row in document["by"]["rows"] if row["metric"] == v.PROCESS_STATE.name]
    assert (state["last"], state["last_said"]) == (2.0, "stopped")
    assert "unknown" in state["mean"]
    rows = csv.DictReader(io.StringIO("".join(report(load(path), "csv"))))
    assert {row["last_said"] for row in rows} == {"", "answers", "HTTP 503", "power cap", "stopped"}


def test_what_was_not_looked_at_says_what_lets_llmtop_look(path: Path) -> None:
    (missing,) = json.loads("".join(report(load(path), "json")))["missing"]
    assert missing == {"what": "nvml", "reason": "there is no NVIDIA driver", "remedy": "install the driver"}
    assert words(path, "text").endswith("Not in this recording nvml: there is no NVIDIA driver → install the driver")


def test_a_table_of_kernels_leads_to_that_of_numbers(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for by in ("occupancy", "step", "line", "api"):
        assert main(["report", str(path), "--by", by]) == 1
        said = capsys.readouterr().err
        told = "a recording has no kernels and no timeline, but numbers over time"
        assert said.endswith(f"{told} (--by budget or engine-steps or threads or series)\n")
        assert said.count("\n") == 1


def test_a_recording_without_a_machine_and_a_clock_says_so(path: Path) -> None:
    trace = load(path)
    origin = replace(trace.origin, host="", utc_ns=None)
    bare = replace(trace, origin=origin, tracks={}, series={}, missing=(), target=None)
    assert "\n  00:01:29\n" in "".join(report(bare, "text"))
    source = json.loads("".join(report(bare, "json")))["source"]["observed"]
    assert all("unknown" in source[key] for key in ("host", "start_utc_ns", "end_utc_ns", "server", "model", "pid"))
    assert not isinstance(bare.origin.host, Unknown)


def test_a_server_that_told_nothing_is_what_it_was_taken_for(path: Path) -> None:
    silent = replace(load(path), tracks={}, series={})
    source = json.loads("".join(report(silent, "json")))["source"]["observed"]
    assert (source["server"], source["model"], source["pid"]) == (TARGET.title, TARGET.model, TARGET.root_pid)


def test_a_command_line_that_is_not_told_has_a_name_in_commands(path: Path) -> None:
    trace = load(path)
    unnamed = replace(trace, tracks={id: replace(one, facts={}) for id, one in trace.tracks.items()})
    said = " ".join("".join(report(unnamed, "text")).split())
    assert "commands are to run on gpu-7; COMMAND stands for the server's command line, which the recording" in said


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_a_reason_why_several_rules_cannot_judge_is_told_once(tmp_path: Path, kind: str) -> None:
    trace = live_trace(NOTHING)
    writer = RecordingWriter(tmp_path / "incident.llmtop", ABOUT)
    writer.write(trace, TARGET)
    writer.close()
    said = words(tmp_path / "incident.llmtop", kind)
    unjudged = diagnose(load(tmp_path / "incident.llmtop")).unjudged
    reasons = {str(one.why) for one in unjudged}
    assert len(unjudged) > len(reasons) > 1
    assert said.count("no verdict of ") == len(reasons)
    assert all(one.rule in said for one in unjudged)
    assert "no verdict of engine-starved, kv-bound, queue-growth and queue-standing: 127.0.0.1:8000 refuses" in said
