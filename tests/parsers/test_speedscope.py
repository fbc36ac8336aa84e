"""speedscope's format: what others write, what we write, and whatever else is in such a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.analysis.threads.functions import functions
from llmtop.cli import main
from llmtop.errors import FileError
from llmtop.model import Stack, Trace
from llmtop.parsers.registry import load
from llmtop.parsers.speedscope import SCHEMA
from tests.parsers.sample_reports import LADDER, SAMPLE_TRACES

PY_SPY = SAMPLE_TRACES / "py-spy" / "0.4.3" / "two-threads.speedscope.json"
PERF = SAMPLE_TRACES / "perf" / "6.1.187" / "three-threads.perf.txt"


def document(*profiles: Any, frames: Any = ("main", "step", "wait")) -> dict[str, Any]:
    shared = {"frames": [{"name": name} if isinstance(name, str) else name for name in frames]}
    return {"$schema": SCHEMA, "shared": shared, "profiles": list(profiles)}


def sampled(samples: Any, weights: Any, unit: str = "seconds", name: str = "a") -> dict[str, Any]:
    return {"type": "sampled", "name": name, "unit": unit, "samples": samples, "weights": weights}


def read(folder: Path, content: Any) -> Trace:
    path = folder / "profile"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load(path)


def weighed(trace: Trace) -> list[tuple[str, tuple[str, ...], float, str]]:
    return [(trace.tracks[one.track].name, one.frames, one.weight, one.unit) for one in trace.stacks]


def test_stacks_of_py_spy_are_those_of_its_threads() -> None:
    trace = load(PY_SPY)
    assert trace.origin.facts["written by"] == "py-spy@0.4.3"
    heaviest = trace.stacks[0]
    assert heaviest.frames[-1] == "Thread._wait_for_tstate_lock (/usr/lib/python3.11/threading.py:1139)"
    total = sum(stack.weight for stack in trace.stacks if stack.frames[-1].startswith(("wait", "square")))
    assert heaviest.unit == "ns"
    assert total == pytest.approx(3.8e9, rel=0.02), "two threads for 2 s at 50 Hz"


def test_equal_stacks_of_a_thread_are_one_and_threads_are_apart(tmp_path: Path) -> None:
    one = sampled([[0, 1], [0], [0, 1], []], [0.5, 0.25, 0.5, 9])
    other = sampled([[0, 1]], [3], "milliseconds", 'Process 42 Thread 43 "engine"')
    trace = read(tmp_path, document(one, other))
    assert weighed(trace) == [
        ("a", ("main", "step"), 1e9, "ns"),
        ("a", ("main",), 2.5e8, "ns"),
        ('Process 42 Thread 43 "engine"', ("main", "step"), 3e6, "ns"),
    ]
    assert trace.stacks[2].track == "thread:42/43"


def test_events_are_the_time_that_frames_are_open(tmp_path: Path) -> None:
    events = [("O", 0, 1.0), ("O", 1, 2.0), ("C", 1, 5.0), ("O", 2, 5.0), ("C", 2, 5.5), ("C", 0, 6.0), ("O", 0, 8.0)]
    profile = {
        "type": "evented",
        "name": "t",
        "unit": "microseconds",
        "events": [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events],
    }
    assert {frames: weight for _, frames, weight, _ in weighed(read(tmp_path, document(profile)))} == {
        ("main", "step"): 3000.0,
        ("main",): 1500.0,
        ("main", "wait"): 500.0,
    }


@pytest.mark.parametrize(
    ("unit", "ours", "weight"),
    [("none", "samples", 2.0), ("bytes", "bytes", 2.0), ("nanoseconds", "ns", 2.0), ("?", "samples", 2.0)],
)
def test_units_are_ours(unit: str, ours: str, weight: float, tmp_path: Path) -> None:
    (stack,) = read(tmp_path, document(sampled([[0]], [2], unit))).stacks
    assert (stack.unit, stack.weight) == (ours, weight)


def test_a_frame_has_its_place(tmp_path: Path) -> None:
    frames = ({"name": "f", "file": "a.py", "line": 3}, {"name": "g", "file": "b.so"}, {"name": ""}, 7)
    (stack,) = read(tmp_path, document(sampled([[0, 1, 2, 3]], [1]), frames=frames)).stacks
    assert stack.frames == ("f (a.py:3)", "g (b.so)", "[unknown]", "[unknown]")


def test_what_is_damaged_is_counted_and_left_out(tmp_path: Path) -> None:
    samples = [[0], [99], "x", [0], [0], [True], [0]]
    trace = read(tmp_path, document(sampled(samples, [1, 1, 1, -1, "x", 1, math.inf]), "no profile"))
    assert weighed(trace) == [("a", ("main",), 1e9, "ns")]
    assert [(issue.code, issue.count) for issue in trace.issues] == [("rows-skipped", 7)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (json.dumps(document(sampled([[0]], [1])))[:-9], "is no whole JSON: it was cut short or damaged"),
        ({"$schema": SCHEMA}, "is no speedscope profile: it has no list profiles; export it again"),
        (document(sampled([[0]], [0])), "holds no stacks with weight: nothing was sampled; record it again"),
        (f'{{"$schema": "{SCHEMA}", "profiles": {"[" * 100_000}', "is no whole JSON"),
    ],
    ids=["cut", "no profiles", "no weight", "deep"],
)
def test_what_is_none_says_so_in_one_line(content: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        read(tmp_path, content)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


DAMAGE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "type", "unit"]), inner),
    max_leaves=8,
)


@DAMAGE
@given(JSON, JSON, JSON)
def test_any_json_in_its_place_costs_no_more_than_a_sentence(
    tmp_path: Path, frames: Any, samples: Any, weights: Any
) -> None:
    profiles = [sampled(samples, weights), {"type": "evented", "events": samples}, frames]
    whole = {"$schema": SCHEMA, "shared": {"frames": frames}, "profiles": profiles}
    try:
        trace = read(tmp_path, whole)
    except FileError as error:
        refusal = str(error)
        assert "holds no stacks with weight" in refusal
        return
    assert all(stack.frames for stack in trace.stacks)


def report(path: Path, kind: str, output: Path) -> Path:
    assert main(["report", str(path), "--format", kind, "-o", str(output)]) == 0
    return output


@pytest.mark.parametrize("path", [PY_SPY, PERF, SAMPLE_TRACES / "py-spy" / "0.4.3" / "demo-server.folded"])
def test_what_is_written_for_speedscope_comes_back(path: Path, tmp_path: Path) -> None:
    def sums(trace: Trace) -> dict[tuple[str, tuple[str, ...], str], float]:
        names = {id: track.name for id, track in trace.tracks.items()}
        return {(names.get(one.track, "all"), one.frames, one.unit): one.weight for one in trace.stacks}

    again = load(report(path, "speedscope", tmp_path / "written"))
    assert again.origin.kind == "speedscope"
    assert sums(again) == pytest.approx(sums(load(path)))


def test_what_is_folded_comes_back_below_its_threads(tmp_path: Path) -> None:
    again = load(report(PERF, "folded", tmp_path / "written"))
    assert again.origin.kind == "folded-stacks"
    assert again.stacks[0] == Stack(("engine", "start_thread", "engine", "multiply"), 136e6, "periods")
    assert sum(stack.weight for stack in again.stacks) == 79 * 4e6


def test_what_kernels_wait_for_is_folded_by_their_code(tmp_path: Path) -> None:
    lines = report(LADDER, "folded", tmp_path / "written").read_text().splitlines()
    kernels: dict[str, float] = {}
    for line in lines:
        kernel, _, rest = line.partition(";")
        kernels[kernel] = kernels.get(kernel, 0.0) + float(rest.rpartition(" ")[2])
    assert len(kernels) == 5
    assert sum(kernels.values()) == pytest.approx(100, abs=0.5), "% of the kernels' time"
    assert max(kernels, key=lambda name: kernels[name]) == "sgemm_naive"


def test_a_file_without_stacks_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline = SAMPLE_TRACES / "nsys" / "2025.3.2" / "llama-prefill-decode.sqlite.xz"
    output = tmp_path / "written"
    assert main(["report", str(timeline), "--format", "folded", "-o", str(output)]) == 1
    assert "llama-prefill-decode.sqlite.xz: " in capsys.readouterr().err
    assert not output.exists()


def test_frames_cannot_forge_a_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, document(sampled([[0]], [1], "none", "t;u"), frames=("a;b 5\nc",)))
    assert main(["report", str(tmp_path / "profile"), "--format", "folded"]) == 0
    assert capsys.readouterr().out == "t:u;a:b 5␊c 1\n"


def test_several_units_do_not_go_into_one_folded_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, document(sampled([[0]], [1], "none"), sampled([[0]], [1], "bytes")))
    assert main(["report", str(tmp_path / "profile"), "--format", "folded"]) == 1
    assert "has stacks in bytes, samples: --format speedscope keeps them apart" in capsys.readouterr().err


def test_threads_that_wait_stand_behind_the_work(tmp_path: Path) -> None:
    """A sampler of idle threads counts three waiting ones as much as the one that works."""
    frames = [
        {"name": "_recv", "file": "multiprocessing/connection.py", "line": 379},
        {"name": "Thread.join", "file": "/usr/lib/python3.11/threading.py", "line": 1139},
        {"name": "merge", "file": "bpe.py", "line": 7},
        {"name": "wait", "file": "bpe.py", "line": 9},
    ]
    profiles = [
        {"type": "sampled", "name": f"Thread {i}", "unit": "seconds", "startValue": 0, "endValue": 6,
         "samples": [[i]], "weights": [6.0 - i]}
        for i in range(4)
    ]  # fmt: skip
    path = tmp_path / "a.speedscope.json"
    schema = "https://www.speedscope.app/file-format-schema.json"
    path.write_text(json.dumps({"$schema": schema, "shared": {"frames": frames}, "profiles": profiles}))
    (one,) = functions(load(path))
    assert [share.title for share in one.shares] == [
        "merge (bpe.py:7)",
        "wait (bpe.py:9)",
        "_recv (multiprocessing/connection.py:379) (waits)",
        "Thread.join (/usr/lib/python3.11/threading.py:1139) (waits)",
    ]
