"""`llmtop diff` of recordings: what changed between two moments, and why some cannot be held beside each other."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.observed_diff import Amount, ChangedNumber, observed_diff
from llmtop.analysis.series.readings import as_of
from llmtop.cli import main
from llmtop.model import NS_PER_S, RECORDING, Series, Stack, Trace, Unknown
from llmtop.recording.writer import RecordingWriter
from tests.live_traces import TARGET, Scene, live_trace

BUSY, IDLE = live_trace(Scene(gpus=2)), live_trace(Scene(gpus=2, is_idle=True))

STACKS = (Stack(("a", "b"), 1.0, "samples"),)


def write(path: Path, traces: Iterable[Trace], host: str = "gpu-7") -> Path:
    writer = RecordingWriter(path, {"host": host, "utc_ns": 5})
    for trace in traces:
        writer.write(trace, TARGET)
    writer.close()
    return path


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    moments = [as_of(BUSY, BUSY.start_ns + s * NS_PER_S) for s in (30, 60)]
    return write(tmp_path / "busy.llmtop", [*moments, replace(BUSY, stacks=STACKS, stacks_end_ns=BUSY.end_ns)])


@pytest.fixture
def idle(tmp_path: Path) -> Path:
    return write(tmp_path / "idle.llmtop", [IDLE])


def diff(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    assert main(["diff", *map(str, arguments)]) == code
    said = capsys.readouterr()
    return said.out if code == 0 else said.err


def compared(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(diff(capsys, *arguments, "--format", "json"))
    assert found["schema"] == "llmtop.diff-recordings/1"
    return found


def between(*bounds: tuple[float, float]) -> ChangedNumber:
    """A quantile that lies between bounds, at both moments."""
    return ChangedNumber("server", "x", "x", "s", *(Amount(Unknown("between"), "", one) for one in bounds))


def number(before: float | Unknown, after: float | Unknown, unit: str = "tok/s") -> ChangedNumber:
    both = (Amount(one, str(one), None if isinstance(one, Unknown) else (one, one)) for one in (before, after))
    return ChangedNumber("server", "x", "x", unit, *both)


@pytest.mark.parametrize(
    ("one", "change", "said", "is_notable"),
    [
        (number(100.0, 150.0), 0.5, "+50 %", True),
        (number(100.0, 105.0), 0.05, "+5.0 %", False),
        (number(100.0, 100.0), 0.0, "0 %", False),
        (number(0.5, 0.3, "ratio"), -0.2, "-20 points", True),
        (number(50.0, 47.0, "%"), -3.0, "-3.0 points", True),
        (number(0.0, 7.0), None, "more", True),
        (number(1.0, 99.0), 98.0, "99.0 times", True),
        (number(1.0, 1500.0), 1499.0, "from almost 0", True),
        (number(0.0099, 0.66, "cores"), 0.66 / 0.0099 - 1, "from almost 0", True),
        (number(0.01, 0.66, "cores"), 65.0, "66.0 times", True),
        (number(0.0001, 0.0099, "cores"), 98.0, "", True),
        (number(0.66, 0.0001, "cores"), 0.0001 / 0.66 - 1, "-100 %", True),
        (number(7.0, 0.0), -1.0, "-100 %", True),
        (number(Unknown("why"), 7.0), None, "", False),
        (between((1, 2), (3, 4)), None, "more", True),
        (between((3, 4), (1, 2)), None, "less", True),
        (between((3, 5), (2, 4)), None, "", False),
        (between((25, 50), (50, 75)), None, "more", True),
        (between((50, 75), (25, 50)), None, "less", True),
        (between((25, 50), (25, 50)), None, "", False),
    ],
)
def test_a_change_is_what_both_moments_tell(
    one: ChangedNumber, change: float | None, said: str, is_notable: bool
) -> None:
    assert one.change == (None if change is None else pytest.approx(change))
    assert (one.change_said, one.is_notable) == (said, is_notable)


def test_what_became_of_the_server_stands_first(capsys: pytest.CaptureFixture[str], busy: Path, idle: Path) -> None:
    said = diff(capsys, busy, idle)
    verdict = said.split("\n\n")[1]
    assert verdict.startswith("over 89 s: output ")
    assert " → 0 tok/s" in verdict
    assert "; in the last 15 s new: " in verdict.replace("\n ", "")
    assert "Findings, of the last 15 s of each" in said
    order = ["Findings", "Server, over", "GPU 0, over", "GPU 1, over", "Threads, over", "What threads were in"]
    places = [said.index(title) for title in order]
    assert places == sorted(places)
    assert "of gpu-7, 00:01:29 up to " in " ".join(said.split())
    assert "of the roof" in said


def test_what_stands_at_a_level_is_the_mean_of_the_window() -> None:
    """A queue that grew and fell, and is as long at both ends: its last reading hides that."""
    server = ids.server(8000)

    def queued(*lengths: float) -> Trace:
        times = (IDLE.end_ns - (len(lengths) - 1 - i) * NS_PER_S for i in range(len(lengths)))
        series = Series.of(server, v.SERVER_WAITING, "vLLM", [*zip(times, lengths, strict=True)])
        return replace(
            IDLE, start_ns=IDLE.end_ns - 20 * NS_PER_S, series={**IDLE.series, (server, v.SERVER_WAITING.name): series}
        )

    found = observed_diff(queued(*[0.0] * 10, *[66.0] * 11), queued(*[90.0] * 10, *[66.0] * 11))
    (waiting,) = (one for one in found.numbers if one.key == "waiting")
    assert (waiting.before.text, waiting.after.text) == ("34.6 requests", "77.4 requests")
    assert waiting.direction == 1


def test_data_have_both_values_and_why_one_is_not_there(
    capsys: pytest.CaptureFixture[str], busy: Path, idle: Path
) -> None:
    (found,) = compared(capsys, busy, idle)["comparisons"]
    numbers = {(one["part"], one["number"]): one for one in found["numbers"]}
    output = numbers["server", "output_tokens_per_s"]
    assert (output["after"], output["change"], output["unit"]) == (0.0, -1.0, "tok/s")
    assert numbers["GPU 0", "gpu.sm"]["before"] > numbers["GPU 0", "gpu.sm"]["after"]
    stack = numbers["stacks", "b"]
    assert stack["before"] == 1.0
    assert stack["after"] == {"unknown": "it is not in this recording", "remedy": ""}
    assert stack["change"] is None
    assert found["not_comparable"] is None
    rows = list(csv.DictReader(io.StringIO(diff(capsys, busy, idle, "--format", "csv"))))
    assert len(rows) == len(numbers)
    assert rows[0]["report"] == "B"


def test_a_recording_beside_itself_has_changed_nowhere(capsys: pytest.CaptureFixture[str], busy: Path) -> None:
    (found,) = compared(capsys, busy, busy)["comparisons"]
    assert {one["change"] for one in found["numbers"]} <= {0.0, None}
    assert found["verdict"] == "nothing of the server's changed by more than 10 %"
    assert (found["findings"]["came"], found["findings"]["went"], found["setup"]) == ([], [], [])
    assert found["cautions"] == ["they are the same moment of one recording"]


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_two_moments_of_one_recording(capsys: pytest.CaptureFixture[str], busy: Path, kind: str) -> None:
    said = diff(capsys, busy, "--at", "0:00,0:59", "--format", kind).replace("\\", "")
    assert "at 0:00" in said
    assert "at 0:59" in said
    assert "over 30 s" in said
    assert "script" not in said or kind == "html"


def test_what_both_windows_would_hold_is_in_neither(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    at = [as_of(BUSY, BUSY.start_ns + s * NS_PER_S) for s in (40, 45, 55)]
    moments = write(tmp_path / "moments", at)
    (apart,) = compared(capsys, moments, "--at", "0:00,0:15")["comparisons"]
    (back,) = compared(capsys, moments, "--at", "0:15,0:00")["comparisons"]
    (near,) = compared(capsys, moments, "--at", "0:00,0:05")["comparisons"]
    (same,) = compared(capsys, moments, "--at", "0:05,0:05")["comparisons"]
    (other,) = compared(capsys, moments, write(tmp_path / "other", at[:2], host="gpu-8"))["comparisons"]
    assert [one["window_s"] for one in (apart, back, near, same, other)] == [15.0, 15.0, 5.0, 45.0, 45.0]
    assert near["not_comparable"].startswith("5 s lie between them, and rates and latencies need 10 s")
    assert apart["not_comparable"] is None


@pytest.mark.parametrize("host", ["gpu-7", ""], ids=["the same", "not told"])
def test_machines_that_may_be_one_are_no_caution(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, busy: Path, host: str
) -> None:
    (found,) = compared(capsys, busy, write(tmp_path / "other", [BUSY], host=host))["comparisons"]
    assert not [one for one in found["cautions"] if "machines" in one]


def test_what_keeps_them_apart_is_said_before_all_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = live_trace(Scene(gpus=1))
    server = ids.server(8000)
    facts = {**other.tracks[server].facts, "engine": "SGLang", "model": "other"}
    renamed = replace(other, tracks={**other.tracks, server: replace(other.tracks[server], facts=facts)})
    mine = replace(BUSY.tracks[server], facts={**BUSY.tracks[server].facts, "engine": "vLLM", "model": "one"})
    first = write(tmp_path / "a", [replace(BUSY, tracks={**BUSY.tracks, server: mine})])
    second = write(tmp_path / "b", [replace(renamed, start_ns=renamed.end_ns - 4 * NS_PER_S)], host="gpu-8")
    (found,) = compared(capsys, first, second)["comparisons"]
    reasons = found["not_comparable"]
    for said in ("has 4 s, and rates", "another server: vLLM and SGLang", "another model: one and other", "2 x H100"):
        assert said in reasons
    assert any("two machines: gpu-7 and gpu-8" in one for one in found["cautions"])
    assert diff(capsys, first, second).startswith("not comparable: ")


def test_findings_come_and_go(capsys: pytest.CaptureFixture[str], busy: Path, idle: Path) -> None:
    (found,) = compared(capsys, busy, idle)["comparisons"]
    (back,) = compared(capsys, idle, busy)["comparisons"]
    assert [one["rule"] for one in found["findings"]["came"]] == [one["rule"] for one in back["findings"]["went"]]
    assert found["findings"]["went"]
    assert found["findings"]["kept"] == len(found["findings"]["stayed"])
    assert found["findings"]["window_s"] == {"before": 15.0, "after": 15.0}


@pytest.mark.parametrize(
    ("at", "shared"),
    [
        ("0:00,0:05", "5 s lie between: 10 s are in both"),
        ("0:05,0:00", "5 s lie between: 10 s are in both"),
        ("0:00,0:15", ""),
    ],
)
def test_ends_that_findings_share_are_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, at: str, shared: str
) -> None:
    moments = write(tmp_path / "moments", [as_of(BUSY, BUSY.start_ns + s * NS_PER_S) for s in (40, 45, 55)])
    (found,) = compared(capsys, moments, "--at", at)["comparisons"]
    said = [one for one in found["cautions"] if one.startswith("findings are of the last 15 s of each")]
    assert said == ([f"findings are of the last 15 s of each, and {shared}"] if shared else [])


def test_findings_of_both_are_named(capsys: pytest.CaptureFixture[str], busy: Path) -> None:
    (found,) = compared(capsys, busy, busy)["comparisons"]
    stayed = [one["message"] for one in found["findings"]["stayed"]]
    assert stayed
    said = " ".join(diff(capsys, busy, busy).split())
    assert "came: none went: none in both: " in said
    assert all(message in said for message in stayed)


@pytest.mark.parametrize(("first", "who"), [(8, "they have 8 s each"), (30, "one of them has 8 s")])
def test_of_recordings_that_are_too_short_it_is_not_said_that_nothing_changed(first: int, who: str) -> None:
    before, after = (live_trace(ticks=seconds + 1) for seconds in (first, 8))
    other = replace(after, origin=replace(after.origin, host="another"))
    found = observed_diff(before, other)
    assert found.cannot == (f"{who}, and rates and latencies need 10 s",)
    quiet = replace(found, numbers=(), came=(), went=())
    assert quiet.verdict == "what changed is not told"


def test_without_a_server_in_both_it_is_not_said_that_nothing_of_it_changed() -> None:
    trace = live_trace(ticks=31)
    found = observed_diff(trace, trace)
    rest = tuple(one for one in found.numbers if one.part != "server")
    verdict = replace(found, numbers=rest, came=(), went=()).verdict
    assert verdict == "no number of a server is in both, and the findings are the same"


def test_findings_of_a_short_recording_are_of_as_much_as_it_has() -> None:
    short, long = live_trace(ticks=9), live_trace()
    assert observed_diff(short, long).judged == "8 and 15 s"
    assert observed_diff(long, long).judged == "15 s"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["busy.llmtop"], 2, "--at 2:00,12:00 takes two moments"),
        (["busy.llmtop", "idle.llmtop", "--at", "0:10"], 2, "give a moment of each recording"),
        (["busy.llmtop", "--at", "0:10,soon"], 2, "--at soon: a moment is 90, 2:00"),
        (["busy.llmtop", "--at", "0:10,9:00"], 2, "--at 9:00 is outside of"),
        (["busy.llmtop", "--at=-9:00,0:10"], 2, "--at -9:00 is outside of"),
        (["busy.llmtop", "report"], 1, "recordings are compared with recordings alone"),
        (["busy.llmtop", "idle.llmtop", "--fail-above", "3"], 2, "recordings have no kernels"),
        (["report", "report", "--at", "0:10,0:20"], 2, "--at takes moments of recordings, and there is none"),
    ],
)
def test_faults_say_how_to_go_on(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    busy: Path,
    idle: Path,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(busy.parent)
    (busy.parent / "report").write_text("a;b 1\n")
    error = diff(capsys, *arguments, code=code)
    assert said in error
    assert error.count("\n") == 1


def test_hostile_text_stays_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hostile = write(tmp_path / "hostile", [live_trace(Scene(hostile="[bold]\x1b[2J<script>x</script>"))])
    assert "\x1b" not in diff(capsys, hostile, hostile)
    assert "<script>x" not in diff(capsys, hostile, hostile, "--format", "html")


def test_a_trace_without_anything_is_compared_all_the_same() -> None:
    bare = replace(BUSY, tracks={}, series={}, stacks=(), origin=replace(BUSY.origin, kind=RECORDING))
    found = observed_diff(bare, bare)
    assert (found.numbers, found.came, found.went) == ((), (), ())
