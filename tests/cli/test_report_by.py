"""`llmtop report --by` and `--range START:END`, in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from llmtop import ids
from llmtop.analysis.kernels.breakdown.breakdown import By
from llmtop.analysis.kernels.source_table import CodeBy
from llmtop.analysis.pages.cut import moments, only_time
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.listed import Listed
from llmtop.cli import main
from llmtop.cli.report import BY, report
from llmtop.cli.report_observed import OBSERVED
from llmtop.cli.report_pages import PAGES
from llmtop.cli.report_printed import PRINTED
from llmtop.model import Metric, Origin, Series, SpanTable, Stack, Trace, Unknown
from llmtop.parsers.registry import load
from tests.cli.by_tables import report_by
from tests.cli.test_report_timeline import words
from tests.kernel_traces import LADDER, ROOT, TIMELINE, Launch
from tests.kernel_traces import report as made
from tests.nsys_capture import MS, US, Capture
from tests.parsers.kineto_files import QWEN, needs_qwen

SCHEMA = Draft202012Validator(
    json.loads(re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "json-report.md").read_text(), re.DOTALL)[0])
)
DECODE = "77.6 ms longer than the median step, with +38.9 ms idle: code loaded or compiled (cuLibraryLoadData)"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def command(*arguments: str | Path, code: int = 0) -> str:
        assert main(["report", *map(str, arguments)]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return command


def document(trace: Trace, by: str | None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report_by(trace, "json", by))
    SCHEMA.validate(found)
    return found


def test_what_can_be_asked_for_is_what_there_is() -> None:
    assert (
        *By,
        *Listed,
        "memory",
        "series",
        *OBSERVED,
        *PRINTED,
        *CodeBy,
        "occupancy",
        "traffic",
        "roofline",
        *PAGES,
    ) == BY


BUSY = Metric("gpu.sm", "%", title="SM")
SENT = Metric("net.sent", "bytes", counter=True, title="sent")
SERIES_ALONE = Trace(
    Origin("made-up", "numbers.json"),
    end_ns=2000 * MS,
    series={
        (ids.gpu(0), BUSY.name): Series.of(ids.gpu(0), BUSY, "NVML", [(0, 20.0), (1000 * MS, None), (2000 * MS, 40.0)]),
        (ids.HOST, SENT.name): Series.of(ids.HOST, SENT, "/proc", [(0, 0.0), (2000 * MS, 6e6)]),
        (ids.SELF, SENT.name): Series.of(ids.SELF, SENT, "/proc", [(0, 1.0)]),
    },
)


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_a_file_of_series_alone_is_reported_by_them(kind: str) -> None:
    said = re.sub(r"<(style|script).*?</\1>|<[^>]*>|\|", " ", "".join(report(SERIES_ALONE, kind)).replace("\\", ""))
    assert "gpu:0 SM 40 % 20 % 30 % 40 % NVML" in " ".join(said.split())
    assert "host sent 3.00 MB/s 3.00 MB/s 3.00 MB/s 3.00 MB/s /proc" in " ".join(said.split())
    mixed = replace(SERIES_ALONE, stacks=(Stack(("main",), 1.0, "samples"),))
    assert "30 %" not in "".join(report(mixed, kind)), "beside other things they are there for the asking"
    assert "30 %" in report_by(mixed, kind, "series")


def test_series_as_data_are_numbers_in_their_units_with_reasons() -> None:
    (gpu, host, own) = csv.DictReader(io.StringIO("".join(report(SERIES_ALONE, "csv"))))
    assert (gpu["of"], gpu["metric"], gpu["unit"], gpu["samples"], gpu["mean"]) == ("gpu:0", "gpu.sm", "%", "3", "30.0")
    assert (host["last"], host["unit"], host["seconds"]) == ("3000000.0", "bytes/s", "2.0")
    assert (own["last"], own["missing"].split(";")[0]) == (
        "",
        "last: a counter tells with its second sample how fast it grows",
    )
    rows = document(SERIES_ALONE, "series")["by"]["rows"]
    assert [row["least"] for row in rows[:2]] == [20.0, 3e6]
    assert rows[2]["most"] == {"unknown": "a counter tells with its second sample how fast it grows", "remedy": ""}
    without = document(replace(SERIES_ALONE, series={}), "series")["by"]
    assert without["unknown"] == "this file has no series of numbers"
    assert "llmtop record" in without["remedy"]


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_steps_and_why_one_is_slow_stand_in_every_format(kind: str) -> None:
    trace = load(TIMELINE)
    said = " ".join(report_by(trace, kind, "step").replace("\\", "").split())
    said = re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", said)
    assert "6 decode steps: median 40.7 ms, longest 118 ms" in said
    assert DECODE in said
    assert "6 decode steps: median" not in words(trace, kind), "without --by there is no such table"


@pytest.mark.parametrize("by", By)
def test_rows_of_the_document_add_up_and_follow_the_schema(by: str) -> None:
    found = document(load(TIMELINE), by)["by"]
    assert found["by"] == by
    for row in found["rows"]:
        assert row["busy_ns"] + row["idle_ns"] == row["gpu_ns"]
        assert by == "stream" or sum(part["ns"] for part in row["idle"]) == row["idle_ns"]
    assert document(load(TIMELINE), None)["by"] is None


def test_the_document_says_what_a_slow_step_has_more_of() -> None:
    found = document(load(TIMELINE), "step")["by"]
    (slow,) = [row for row in found["rows"] if row["slow"]]
    assert slow["more"][0] == {"what": "idle", "of": "code-loading", "name": "cuLibraryLoadData", "ns": 38882631.5}
    assert [(one["phase"], one["steps"]) for one in found["spreads"]] == [("prefill", 1), ("decode", 6)]
    assert {row["phase"] for row in found["rows"]} == {"prefill", "decode"}


def test_what_has_no_steps_is_unknown_in_the_document_and_no_table_of_csv(run: Callable[..., str]) -> None:
    trace = made(Launch("gemm", 1000.0))
    assert "timeline" in document(trace, "step")["by"]["unknown"]
    assert "no timeline" in run(LADDER, "--by", "step", "--format", "csv", code=1)
    for kind in ("text", "md", "html"):
        said = run(LADDER, "--by", "step", "--format", kind, code=1)
        assert "the report has no timeline (nsys profile" in said
        assert said.count("\n") == 1


def test_the_table_of_csv_has_a_column_for_each_family_and_cause(run: Callable[..., str]) -> None:
    rows = list(csv.DictReader(io.StringIO(run(TIMELINE, "--by", "step", "--format", "csv"))))
    assert [row["name"] for row in rows] == ["prefill", *["decode"] * 6]
    assert [row["slow"] for row in rows] == ["0", "1", *["0"] * 5]
    for row in rows:
        idle = sum(int(row[key]) for key in row if key.startswith("idle_") and key != "idle_ns")
        assert idle == int(row["idle_ns"])
        assert int(row["kernels_GEMM_ns"]) > 0
        assert (row["phase"], row["missing"]) == (row["name"], "")


def test_beginnings_in_csv_count_from_that_of_the_capture(run: Callable[..., str]) -> None:
    rows = csv.DictReader(io.StringIO(run(TIMELINE, "--by", "step", "--format", "csv")))
    told = document(load(TIMELINE), "step")
    zero = told["timeline"]["start_ns"]
    assert zero > 0
    assert [int(row["start_ns"]) for row in rows] == [part["start_ns"] - zero for part in told["by"]["rows"]]


def test_where_no_phase_is_told_csv_says_why(tmp_path: Path) -> None:
    capture = Capture()
    for i in range(12):
        capture.kernel(
            i * MS, i * MS + 100 * US, capture.call("cudaLaunchKernel", i * MS - 9 * US, i * MS), "ab"[i % 2]
        )
    (first, *_) = csv.DictReader(io.StringIO(report_by(capture.trace(tmp_path), "csv", "step")))
    assert first["phase"] == ""
    assert first["missing"].startswith("phase: no range says prefill or decode")


# -- calls, copies, memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_calls_by_name_stand_in_every_format(kind: str) -> None:
    trace = load(TIMELINE)
    said = report_by(trace, kind, "api")
    assert "cuLibraryLoadData" in said
    assert "3.35 ms" in said, "the mean of its 13 calls"
    assert "of wall" in said
    assert "of wall" not in "".join(report(trace, kind)), "without --by there is no such table"


@pytest.mark.parametrize("by", ["api", "copy", "os"])
def test_csv_and_the_document_say_the_same(by: str, run: Callable[..., str]) -> None:
    found = document(load(TIMELINE), by)["by"]
    rows = list(csv.DictReader(io.StringIO(run(TIMELINE, "--by", by, "--format", "csv"))))
    assert found["by"] == by
    assert len(found["rows"]) == len(rows) > 0
    for told, row in zip(found["rows"], rows, strict=True):
        assert (row["kind"], row["name"], row["count"]) == (told["kind"], told["name"], str(told["count"]))
        assert [row[f"{part}_ns"] for part in told["ns"]] == [_written(value) for value in told["ns"].values()]
        idle = told["gpu_idle_ns"]
        assert row["gpu_idle_ns"] == ("" if isinstance(idle, dict) else _written(idle))
        assert row["missing"] == (f"gpu_idle_ns: {idle['unknown']}" if isinstance(idle, dict) else "")


def _written(value: float | None) -> str:
    return "" if value is None else str(value)


def test_where_nothing_is_told_of_memory_the_formats_say_what_would_tell(run: Callable[..., str]) -> None:
    assert "--cuda-memory-usage=true" in document(load(TIMELINE), "allocation")["by"]["remedy"]
    assert "--cuda-memory-usage=true" in run(TIMELINE, "--by", "allocation", code=1)
    assert "--cuda-memory-usage=true" in run(TIMELINE, "--by", "allocation", "--format", "csv", code=1)


@pytest.mark.parametrize("kind", ["text", "md", "html"])
@needs_qwen
def test_who_held_memory_at_its_peak_stands_in_every_format(kind: str) -> None:
    said = re.sub(r"<[^>]*>", " ", report_by(load(QWEN), kind, "memory").replace("\\", ""))
    assert "Memory over time" in said
    assert "from before the capture" in said
    assert "939 MiB were held before the first event: no event tells by whom" in " ".join(said.split())


@needs_qwen
def test_memory_in_the_document_adds_up_and_csv_has_its_owners(run: Callable[..., str]) -> None:
    pool, *_ = document(load(QWEN), "memory")["by"]["rows"]
    assert (pool["track"], pool["is_all"], pool["growth"], pool["peak_bytes"]) == ("gpu:0", True, None, 2_088_508_416)
    assert sum(one["peak_bytes"] for one in pool["owners"]) + pool["untold_bytes"] == pool["peak_bytes"]
    assert len(pool["over_time_bytes"]) == 60
    assert max(pool["over_time_bytes"]) == pool["peak_bytes"]
    rows = list(csv.DictReader(io.StringIO(run(QWEN, "--by", "memory", "--format", "csv"))))
    owners = [row for row in rows if row["of"] == "GPU 0"][2:]
    assert [(row["got in"], int(row["at peak (bytes)"])) for row in owners] == [
        (one["name"], one["peak_bytes"]) for one in pool["owners"]
    ]
    assert "--cuda-memory-usage=true" in run(TIMELINE, "--by", "memory", "--format", "csv", code=1)
    assert "--cuda-memory-usage=true" in document(load(TIMELINE), "memory")["by"]["remedy"]


# -- a part of the time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2.5s:3.1s", (2_500_000_000, 3_100_000_000)),
        ("1us:2µs", (1000, 2000)),
        ("5ns:", (5, None)),
        (":.5ms", (0, 500_000)),
        (":", None),
        ("1:2", None),
        ("llm:decode", None),
        ("step 2s", None),
    ],
)
def test_moments_are_told_from_names(text: str, ns: tuple[int, int | None] | None) -> None:
    assert moments(text) == ns


def cut(trace: Trace, since: int, until: int | None) -> Trace:
    found = only_time(trace, since, until)
    assert isinstance(found, Trace)
    return found


def test_the_time_of_gpus_is_that_of_the_part_to_the_nanosecond() -> None:
    trace = load(TIMELINE)
    whole = trace.spans["kernel"]
    since, until = 20 * MS, 200 * MS
    start, end = trace.start_ns + since, trace.start_ns + until
    part = cut(trace, since, until)
    (gpu,) = idle_account(part).gpus
    assert (gpu.start_ns, gpu.end_ns) == (start, end)
    busy = bytearray(until - since)
    for kind in ("kernel", "memset"):
        for a, b in zip(trace.spans[kind].start_ns, trace.spans[kind].end_ns, strict=True):
            if a < end and b > start:
                since_a, until_b = max(a, start) - start, min(b, end) - start
                busy[since_a:until_b] = b"\1" * (until_b - since_a)
    assert gpu.busy_ns == busy.count(1)
    assert sum(one.ns for one in gpu.parts) == gpu.idle_ns == until - since - gpu.busy_ns
    assert part.kernels is not None
    assert len(part.kernels) == sum(a < end and b > start for a, b in zip(whole.start_ns, whole.end_ns, strict=True))
    assert sum(part.kernels.duration_ns) == sum(
        max(0, min(b, end) - max(a, start)) for a, b in zip(whole.start_ns, whole.end_ns, strict=True)
    )


def test_spans_are_cut_at_the_edges_and_stay_in_order_and_calls_of_work_within_stay(tmp_path: Path) -> None:
    capture = Capture()
    capture.call("cudaDeviceSynchronize", 2 * MS, 30 * MS)
    capture.copy(16 * MS, 17 * MS, capture.call("cudaMemcpyAsync", 6 * MS, 7 * MS))
    early = capture.call("cudaLaunchKernel", 4 * MS, 5 * MS)
    capture.kernel(12 * MS, 14 * MS, early)
    capture.kernel(0, MS, capture.call("cudaLaunchKernel", -US, 0))
    capture.kernel(19 * MS, 24 * MS, capture.call("cudaLaunchKernel", 15 * MS, 16 * MS))
    capture.nvtx("step", 0, 30 * MS)
    trace = capture.trace(tmp_path)
    part = cut(trace, 10 * MS, 20 * MS)
    zero = trace.start_ns
    assert spans_of(part, "kernel", zero) == [(12 * MS + US, 14 * MS + US), (19 * MS + US, 20 * MS)]
    assert spans_of(part, "nvtx", zero) == [(10 * MS, 20 * MS)]
    assert spans_of(part, "call", zero) == [(6 * MS + US, 7 * MS + US), (10 * MS, 20 * MS)]
    assert spans_of(part, "launch", zero) == [(4 * MS + US, 5 * MS + US), (15 * MS + US, 16 * MS + US)]
    (gpu,) = idle_account(part).gpus
    assert not [one for one in gpu.parts if one.name == "its launch is not in the capture"]


def spans_of(trace: Trace, kind: str, zero: int) -> list[tuple[int, int]]:
    table: SpanTable = trace.spans[kind]
    assert list(table.start_ns) == sorted(table.start_ns)
    return [(start - zero, end - zero) for start, end in zip(table.start_ns, table.end_ns, strict=True)]


def test_series_are_cut_and_stacks_of_the_whole_are_left_out() -> None:
    trace = load(TIMELINE)
    metric = Metric("gpu.sm", "%")
    samples: list[tuple[int, float | None]] = [(trace.start_ns + i * MS, float(i)) for i in range(100)]
    series = {(ids.gpu(0), metric.name): Series.of(ids.gpu(0), metric, "test", samples)}
    part = cut(replace(trace, series=series, stacks=(Stack(("main",), 1.0, "samples"),)), 10 * MS, 20 * MS)
    assert list(part.series[ids.gpu(0), metric.name].values) == [float(i) for i in range(10, 21)]
    assert part.stacks == ()
    assert any(one.what == "stacks" for one in part.missing)


def test_a_part_that_is_no_time_or_beyond_the_end_says_how_long_the_capture_is(run: Callable[..., str]) -> None:
    assert "the capture is 345 ms long" in run(TIMELINE, "--range", "2s:3s", code=1)
    reversed_ = "the end, 10.0 ms, is not after the beginning, 20.0 ms"
    assert reversed_ in run(TIMELINE, "--range", "20ms:10ms", code=1)
    assert "the end, 200 ms, is not after the beginning, 900 s" in run(TIMELINE, "--range", "900s:0.2s", code=1)
    unit = "a moment needs a unit, as in 2.5s:3.1s (ns, us, ms, s)"
    assert f"llmtop: --range 3:2: {unit}" in run(TIMELINE, "--range", "3:2", code=2)
    assert f"llmtop: --range 1:2ms: {unit}" in run(TIMELINE, "--range", "1:2ms", code=2)
    assert "no timeline" in run(LADDER, "--range", "1ms:2ms", code=1)
    assert isinstance(only_time(load(TIMELINE), 5, 5), Unknown)


def test_a_name_is_still_a_range_under_both_options(run: Callable[..., str]) -> None:
    by_name = run(TIMELINE, "--range", "prefill", "--format", "csv")
    assert by_name == run(TIMELINE, "--nvtx", "prefill", "--format", "csv")
    assert len(by_name.splitlines()) > 10


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_tables_are_cut_to_ranges_of_a_name_in_every_format(kind: str, run: Callable[..., str]) -> None:
    said = " ".join(run(TIMELINE, "--range", "decode", "--by", "step", "--format", kind).replace("\\", "").split())
    said = re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", said)
    assert "6 decode steps: median 40.7 ms" in said
    assert "1 prefill step" not in said
    calls = run(TIMELINE, "--range", "decode", "--by", "api", "--format", kind).replace("\\", "")
    assert re.search('asked for in the ranges ("|&quot;)decode("|&quot;)', calls)


@pytest.mark.parametrize("by", ["step", "nvtx", "stream", "rank"])
def test_the_time_of_ranges_is_the_same_in_every_grouping(by: str, run: Callable[..., str]) -> None:
    found = json.loads(run(TIMELINE, "--range", "decode", "--by", by, "--format", "json"))
    SCHEMA.validate(found)
    steps = [row for row in document(load(TIMELINE), "step")["by"]["rows"] if row["name"] == "decode"]
    for key in ("busy_ns", "kernels", "launches"):
        assert sum(row[key] for row in found["by"]["rows"]) == sum(row[key] for row in steps)
    rows = list(csv.DictReader(io.StringIO(run(TIMELINE, "--range", "decode", "--by", by, "--format", "csv"))))
    assert sum(int(row["busy_ns"]) for row in rows) == sum(row["busy_ns"] for row in steps)


def test_calls_of_ranges_are_those_of_each_range_added_up(run: Callable[..., str]) -> None:
    def counted(*words: str) -> dict[str, int]:
        rows = json.loads(run(TIMELINE, *words, "--by", "api", "--format", "json"))["by"]["rows"]
        return {row["name"]: row["count"] for row in rows}

    spans = load(TIMELINE).spans
    ranges = [*zip(spans["nvtx"].start_ns, spans["nvtx"].end_ns, strict=True)]
    begun = [spans["launch"].start_ns[i] for i, name in enumerate(spans["launch"].correlation) if name >= 0]
    decode, prefill, every = counted("--range", "decode"), counted("--range", "prefill"), counted()
    launched = [sum(rows.get(name, 0) for name in every if "LaunchKernel" in name) for rows in (prefill, decode)]
    assert launched == [sum(a <= t < b for t in begun for a, b in own) for own in (ranges[:1], ranges[1:])]
    assert all(decode.get(name, 0) + prefill.get(name, 0) <= every[name] for name in every)
    assert decode["cudaDeviceSynchronize"] == 6


@needs_qwen
def test_memory_in_ranges_is_that_from_the_first_to_the_last(run: Callable[..., str]) -> None:
    said = " ".join(run(QWEN, "--range", "ProfilerStep#6", "--by", "memory").split())
    assert 'from the begin of the first to the end of the last range "ProfilerStep#6"' in said


def test_ranges_that_are_not_there_are_told_with_those_that_are(run: Callable[..., str]) -> None:
    said = run(TIMELINE, "--range", "backward", "--by", "step", code=1)
    assert 'no kernel was launched in a range "backward" (there are: prefill, decode)' in said


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_a_report_of_a_part_says_of_which(kind: str) -> None:
    assert "only the capture's time from 20.0 ms to 200 ms" in words(cut(load(TIMELINE), 20 * MS, 200 * MS), kind)
