"""`llmtop report`: every format of real reports, hostile names, and outputs that must not be written."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from llmtop.analysis.kernels.stalls import PALETTE, REASONS
from llmtop.analysis.rules.registry import diagnose
from llmtop.cli import main
from llmtop.cli.report import FORMATS, report
from llmtop.cli.report_page import SCRIPT
from llmtop.cli.report_text import report_text
from llmtop.cli.text_layout import TextStyle
from llmtop.model import Issue, Origin, RuleResult, Severity, Trace, Value
from llmtop.parsers.registry import load
from tests.kernel_traces import (
    COMPUTE,
    DRAM,
    DRAM_COUNTERS,
    LADDER,
    MEMORY,
    ROOT,
    SAMPLES,
    TIMELINE,
    Launch,
    fp32_counters,
    stall_ratios,
)
from tests.kernel_traces import report as made

FEW = LADDER.with_name("few-metrics.ncu-rep.xz")
GOLDEN = Path(__file__).parent / "data" / "report_ladder_100.txt"
DOCUMENTED = ROOT / "docs" / "json-report.md"

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `llmtop report` in the project's root, 100 columns wide; returns standard output."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")

    def command(*arguments: str | Path, code: int = 0) -> str:
        assert main(["report", *map(str, arguments)]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return command


def parsed(text: str) -> dict[str, Any]:
    """Strict JSON: the words that Python adds to it are faults."""
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert isinstance(document, dict)
    return document


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    found = re.search(r"```json\n(.*?)```", DOCUMENTED.read_text(), re.DOTALL)
    assert found is not None
    Draft202012Validator.check_schema(documented := parsed(found[1]))
    return Draft202012Validator(documented)


def test_the_text_of_the_ladder_is_as_approved(run: Run) -> None:
    assert run(LADDER.relative_to(ROOT)).splitlines() == GOLDEN.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("path", [LADDER, TIMELINE], ids=lambda path: path.name)
def test_json_follows_its_documented_schema(run: Run, schema: Draft202012Validator, path: Path) -> None:
    schema.validate(parsed(run(path, "--format", "json")))


PUBLIC = sorted(
    path
    for kind in ("ncu-rep", "sqlite")
    for path in (SAMPLES / "public").glob(f"*.{kind}")
    if path.stat().st_size < 300_000
)
"""The small ones: jsonschema is slow."""


@pytest.mark.skipif(not PUBLIC, reason="the public samples are not here")
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.name)
def test_json_of_other_peoples_reports_follows_the_schema(run: Run, schema: Draft202012Validator, path: Path) -> None:
    schema.validate(parsed(run(path, "--format", "json")))


def test_the_schema_can_fail(schema: Draft202012Validator) -> None:
    document = parsed("".join(report(made(Launch("k")), "json")))
    schema.validate(document)
    document["kernels"][0]["duration_ns"] = None
    with pytest.raises(ValidationError):
        schema.validate(document)


def test_json_has_every_metric_of_every_launch_in_the_order_of_capture(run: Run) -> None:
    document, table = parsed(run(LADDER, "--format", "json")), load(LADDER).kernels
    assert table is not None
    assert table.details is not None
    assert [kernel["demangled"] for kernel in document["kernels"]] == [table.name(i) for i in range(len(table))]
    for i, kernel in enumerate(document["kernels"]):
        assert {name: metric["value"] for name, metric in kernel["metrics"].items()} == table.details.metrics(i)
        assert kernel["duration_ns"] == table.duration_ns[i]
        assert sum(kernel["stalls"].values()) == pytest.approx(1.0)


def test_json_writes_names_and_texts_of_any_kind() -> None:
    metrics: dict[str, Value] = {
        '100%s "{0}" \\0': 'say "%d"',
        "µ[/b]": 7,
        "huge": 1e300,
        "small": -5e-324,
        "zero": 0.0,
    }
    (kernel,) = parsed("".join(report(made(Launch("k", metrics=metrics)), "json")))["kernels"]
    assert {name: metric["value"] for name, metric in kernel["metrics"].items()} == metrics


def test_json_of_the_ladder_tells_its_kernels_apart(run: Run) -> None:
    kernels = {kernel["name"]: kernel for kernel in parsed(run(LADDER, "--format", "json"))["kernels"]}
    assert {name: kernel["bound"] for name, kernel in kernels.items()} == {
        "sgemm_naive": "memory",
        "sgemm_coalesced": "balanced",
        "sgemm_smem": "memory",
        "smem_conflict": "memory",
        "stream_copy": "memory",
    }
    naive = kernels["sgemm_naive"]["roofline"]
    assert naive["precision"] == "FP32"
    assert naive["flops_per_s"] * kernels["sgemm_naive"]["duration_ns"] / 1e9 == pytest.approx(2 * 2048**3, rel=0.005)
    assert kernels["stream_copy"]["roofline"] is None
    assert [missing["what"] for missing in kernels["stream_copy"]["missing"]] == ["roofline"]


def test_values_that_json_cannot_say_are_unknown() -> None:
    trace = made(Launch("k", math.nan, {"a": math.nan, "b": math.inf, "c": "text"}), gpu="")
    document = parsed("".join(report(trace, "json")))
    (kernel,) = document["kernels"]
    assert kernel["metrics"]["a"]["value"] == {
        "unknown": "the value in the report is not a finite number",
        "remedy": "",
    }
    assert kernel["metrics"]["b"]["value"]["unknown"]
    assert kernel["metrics"]["c"] == {"value": "text", "unit": ""}
    assert kernel["duration_ns"] == {"unknown": "duration not collected", "remedy": ""}
    assert kernel["bound"] == "unknown"
    assert document["source"]["gpu"]["unknown"] == "the report does not name its GPU"


def test_a_timeline_has_sums_and_gaps_in_json(run: Run) -> None:
    document = parsed(run(TIMELINE, "--format", "json"))
    assert sum(kernel["calls"] for kernel in document["kernels"]) == 1425
    (gpu,) = document["timeline"]["gpus"]
    assert gpu["short_gap_ns"] > gpu["busy_ns"] > 20_000_000
    assert document["findings"][0]["rule"] == "host-code"
    remedies = {missing["remedy"] for kernel in document["kernels"] for missing in kernel["missing"]}
    assert len(remedies) == 1
    assert remedies.pop().startswith("profile it with ncu: ")


def test_csv_has_the_times_of_launches_and_each_reason_once(run: Run) -> None:
    for row in csv.DictReader(io.StringIO(run(TIMELINE, "--format", "csv"))):
        shortest, mean, longest = (float(row[name]) for name in ("min_ns", "mean_ns", "max_ns"))
        assert shortest <= mean <= longest
        assert mean * int(row["calls"]) == pytest.approx(float(row["duration_ns"]))
        assert int(row["shared_memory_bytes"]) >= 0
        assert row["missing"].count("a timeline has no counters") == 1
        assert row["missing"].startswith("bound, occupancy, ")


def test_csv_has_one_row_a_kernel_and_empty_cells_for_the_unknown(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run(LADDER, "--format", "csv"))))
    assert [row["name"] for row in rows] == [
        "sgemm_naive", "sgemm_coalesced", "sgemm_smem", "smem_conflict", "stream_copy",
    ]  # fmt: skip
    assert float(rows[0]["duration_ns"]) == 35312896
    assert sum(float(row["time_share"]) for row in rows) == pytest.approx(1)
    assert rows[4]["intensity_flop_per_byte"] == ""
    assert rows[4]["missing"].startswith("roofline: no floating-point operations")


HOSTILE = "void f<a|b>[/b] [@click=app.quit]x</td><script>alert(1)</script> `code` \u202eabc 漢字"
HOSTILE_METRICS = {
    **DRAM_COUNTERS,
    **fp32_counters(fma=10),
    COMPUTE: 5.0,
    MEMORY: 90.0,
    DRAM: 90.0,
    **stall_ratios(wait=1.0),
}


def hostile() -> Trace:
    rule = RuleResult("R", "R", "S", (("optimization", f"see {HOSTILE}"),), (("global", 50.0),))
    trace = made(Launch(HOSTILE, 1000, HOSTILE_METRICS, rules=(rule,)), gpu=HOSTILE)
    return Trace(
        Origin("ncu-rep", f"{HOSTILE}.ncu-rep", "1", HOSTILE),
        kernels=trace.kernels,
        issues=(Issue(Severity.WARNING, "x", HOSTILE),),
    )


class Elements(HTMLParser):
    """The elements of a page and its text; fails where one is not closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not any(name.startswith("on") or name in ("href", "src") for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data


@pytest.mark.parametrize("trace", [hostile(), made(Launch("k")), made()], ids=["hostile", "bare", "empty"])
def test_html_is_whole_inert_and_has_names_as_they_are(trace: Trace) -> None:
    page = Elements()
    page.feed("".join(report(trace, "html")))
    assert page.open == []
    assert page.scripts == [SCRIPT]  # the page's policy lets no other run
    if trace.origin.gpu == HOSTILE:
        assert page.text.count("</td><script>alert(1)</script>") >= 5


@pytest.fixture(scope="module")
def ladder_page() -> str:
    return "".join(report(load(LADDER), "html"))


def test_html_of_a_real_report_draws_its_roofline(ladder_page: str) -> None:
    page = Elements()
    page.feed(ladder_page)
    assert page.open == []
    assert {"svg", "circle", "table"} <= page.seen


def test_the_policy_of_a_page_names_its_own_script_and_nothing_else(ladder_page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', ladder_page)
    script = re.search(r"<script>(.*)</script>", ladder_page, re.DOTALL)
    assert policy is not None
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert policy[1] == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@pytest.mark.parametrize("path", [LADDER, TIMELINE], ids=lambda path: path.name)
def test_a_page_begins_with_the_verdict_and_the_first_findings(path: Path) -> None:
    trace = load(path)
    page = Elements()
    page.feed("".join(report(trace, "html")))
    found = diagnose(trace).findings
    places = [page.text.index(text) for text in (found[0].message, found[0].action, "by kernel", "Kernels\n")]
    assert places == sorted(places)
    assert all(finding.next_command in page.text for finding in found)


def test_text_says_what_each_stall_reason_that_it_shows_means_and_no_other() -> None:
    waits = [
        stall_ratios(wait=6.0, barrier=3.0, drain=1.0, misc=0.01),
        stall_ratios(wait=9.0, not_selected=1.0, drain=0.0),
    ]
    trace = made(*(Launch(f"k{i}", 1000.0, metrics) for i, metrics in enumerate(waits)))
    lines = "".join(report_text(trace, TextStyle(100))).splitlines()
    shown = {"wait", "barrier", "drain", "not_selected"}
    for reason, meaning in REASONS.items():
        glosses = [line for line in lines if line.startswith(f"    {reason} ") and line.endswith(f"  {meaning}")]
        assert len(glosses) == (reason in shown), reason


def test_a_page_names_every_stall_reason_in_its_own_colour(ladder_page: str) -> None:
    for reason, (colour, shade) in PALETTE.items():
        assert f".s{colour}-{shade} " in ladder_page, reason
        if f'title="{reason} ' in ladder_page:
            assert f'class="s{colour}-{shade}"' in ladder_page
    assert PALETTE.keys() == REASONS.keys()
    assert len(set(PALETTE.values())) == len(PALETTE)


def test_markdown_cells_stay_cells() -> None:
    lines = "".join(report(hostile(), "md")).splitlines()
    table = [re.sub(r"\\.", "", line) for line in lines if line.startswith("| ")]
    assert len({line.count("|") for line in table[:3]}) == 1
    prose = re.sub(r"`+[^`]*`+|\\.", "", "\n".join(lines))
    assert "<" not in prose
    assert "[" not in prose


@pytest.mark.parametrize("path", [LADDER, TIMELINE], ids=["kernels", "timeline"])
@pytest.mark.parametrize("width", [40, 80])
def test_text_fits_its_width_but_for_commands_that_are_copied(width: int, path: Path) -> None:
    for line in "".join(report_text(load(path), TextStyle(width))).splitlines():
        assert len(line) <= width or line.startswith("    $ ") or " --section" in line or "_" in line, line


def test_ascii_text_is_ascii() -> None:
    for path in (LADDER, TIMELINE):
        assert "".join(report_text(load(path), TextStyle(100, ascii_only=True))).isascii()


def test_a_name_that_ascii_cannot_spell_is_ascii_too() -> None:
    trace = load(FEW)
    odd = replace(trace, origin=replace(trace.origin, path="积分.ncu-rep"))
    text = "".join(report_text(odd, TextStyle(100, ascii_only=True)))
    assert text.isascii()
    assert "??.ncu-rep" in text


def test_headings_are_bold_only_when_asked() -> None:
    trace = load(FEW)
    assert "\x1b" not in "".join(report_text(trace, TextStyle(100)))
    assert "\x1b[1mKernels\x1b[0m" in "".join(report_text(trace, TextStyle(100, bold=True)))


def test_a_report_without_kernels_says_so_in_every_format() -> None:
    for kind in FORMATS:
        text = "".join(report(Trace(Origin("nsys-sqlite", "x.sqlite")), kind))
        assert text
        if kind in ("text", "md", "html"):
            assert "the capture has no kernels" in text


def test_the_output_goes_to_a_file(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "report.csv"
    assert run(FEW, "--format", "csv", "-o", output) == ""
    assert output.read_text(encoding="utf-8").startswith("name,demangled,")


def test_the_input_is_never_overwritten(run: Run, tmp_path: Path) -> None:
    copy, link = tmp_path / "r.ncu-rep.xz", tmp_path / "link"
    copy.write_bytes(FEW.read_bytes())
    link.hardlink_to(copy)
    for output in (copy, link, tmp_path / "." / "r.ncu-rep.xz"):
        assert "is the report itself" in run(copy, "-o", output, code=2)
    assert copy.read_bytes() == FEW.read_bytes()


def test_an_output_that_cannot_be_written_is_one_line(run: Run, tmp_path: Path) -> None:
    message = run(FEW, "-o", tmp_path / "no" / "where.txt", code=1)
    assert message.count("\n") == 1
    assert "cannot be written" in message


@pytest.mark.parametrize(
    "content", [None, b"", b"NVR\0", b"{}", b"SQLite format 3\0"], ids=["none", "empty", "ncu", "json", "sqlite"]
)
def test_bad_input_is_one_line_and_leaves_the_output_alone(run: Run, tmp_path: Path, content: bytes | None) -> None:
    path, output = tmp_path / "bad.ncu-rep", tmp_path / "out.txt"
    output.write_text("before")
    if content is not None:
        path.write_bytes(content)
    message = run(path, "-o", output, code=1)
    assert message.count("\n") == 1
    assert str(path) in message
    assert output.read_text() == "before"


def test_no_screen_is_loaded_and_an_ascii_locale_survives() -> None:
    """In a process of its own: what this one has imported says nothing."""
    script = (
        "import sys; from llmtop.cli import main; code = main(sys.argv[1:]);"
        "loaded = {'textual', 'rich', 'pandas', 'numpy'} & set(sys.modules);"
        "print(loaded or '', file=sys.stderr); sys.exit(code)"
    )
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    command = [sys.executable, "-W", "error", "-c", script, "report", str(FEW)]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, b"")
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout
    assert b"?" not in done.stdout, "a character that the locale lacks and we do not replace"


def test_the_smaller_parts_of_idle_time_are_told_by_their_causes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["report", str(TIMELINE)]) == 0
    assert "20 smaller parts: the profiler's cost 2.01 ms, launch call 1.43 ms ..." in capsys.readouterr().out


def long_named(folder: Path) -> tuple[Path, str]:
    """A capture in a folder of a long name, whose kernel, function and operator have long ones too."""
    name = "a_kernel_that_has_" + "_".join(f"part{i}" for i in range(30))
    path = folder / ("folder_" + "of_a_long_name_" * 9) / "stacks.folded"
    path.parent.mkdir()
    path.write_text(f"main;{name} 5\nmain;other 3\n")
    return path, name


@pytest.mark.parametrize("columns", [None, "60"])
def test_what_goes_to_a_file_has_whole_names_unless_a_width_is_asked_for(
    columns: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    path, name = long_named(tmp_path)
    assert main(["report", str(path)]) == 0
    piped = capsys.readouterr().out
    assert main(["report", str(path), "-o", str(tmp_path / "report.txt")]) == 0
    for text in (piped, (tmp_path / "report.txt").read_text()):
        is_whole = columns is None
        assert (str(path) in text) == (name in text) == is_whole
        assert ("…" in text) == (not is_whole)


def test_a_table_in_a_file_has_whole_names() -> None:
    kernel = "gemm_" + "x" * 200
    trace = made(Launch(kernel), Launch("copy"))
    lines = "".join(report_text(trace, TextStyle(100, cuts=False))).splitlines()
    at = lines.index(f"  {kernel}")
    assert lines[at + 1].split()[:2] == ["50", "%"], "its numbers stand below it"
    assert max(len(line) for line in lines[at + 1 : at + 4]) <= 140, "and no other row is as wide"
    assert kernel not in "".join(report_text(trace, TextStyle(100)))
