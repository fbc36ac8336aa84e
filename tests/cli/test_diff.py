"""`llmtop diff`: what it prints of real reports, its exit codes, and files that have nothing to compare."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import math
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from llmtop.cli import main
from tests.kernel_traces import LADDER, LLAMA, ROOT, SAMPLES, TIMELINE, Launch, report

Run = Callable[..., str]
PUBLIC = SAMPLES / "public"
FOLDED = ROOT / "sample_traces" / "py-spy" / "0.4.3" / "demo-server.folded"
KINETO = ROOT / "sample_traces" / "kineto" / "1" / "llama-generate.pt.trace.json.gz"
EAGER = KINETO.with_name("graph-and-eager.pt.trace.json.gz")
FEW = LADDER.with_name("few-metrics.ncu-rep.xz")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `llmtop diff` 100 columns wide; returns standard output, or the one line of standard error where it fails."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")

    def command(*arguments: str | Path, code: int = 0) -> str:
        assert main(["diff", *map(str, arguments)]) == code
        captured = capsys.readouterr()
        if code == 0:
            assert captured.err == ""
            return captured.out
        assert captured.err.count("\n") == 1
        return captured.err

    return command


def collapsed(text: str) -> str:
    return " ".join(text.split())


def test_a_file_does_not_differ_from_itself(run: Run, tmp_path: Path) -> None:
    link = tmp_path / FEW.name
    link.symlink_to(FEW)
    assert "\nthe same file twice: no difference: " in run(FEW, link)
    copy = tmp_path / f"copy-{FEW.name}"
    copy.write_bytes(FEW.read_bytes())
    assert "\nno difference: " in run(FEW, copy)
    said = run(TIMELINE, TIMELINE, "--fail-above", "0")
    assert "\nthe same file twice: no difference: " in said
    assert "not comparable" not in said
    assert "with care" not in said


def test_two_reports_of_one_kernel_each_are_explained(run: Run) -> None:
    """Values by hand: the means of two calls each are 555,200 and 475,936 ns."""
    said = collapsed(
        run(LADDER.with_name("uncoalesced-loads.ncu-rep.xz"), LADDER.with_name("narrow-accesses.ncu-rep.xz"))
    )
    assert "B is 14 % faster over all kernels: 1.11 ms → 952 µs (-159 µs); -159 µs uncoalesced_loads" in said
    assert "bound memory → latency; grid 32x8192 → 2112" in said
    assert "gone: kernel-uncoalesced: uncoalesced_loads: uncoalesced global loads" in said
    assert "new: kernel-narrow-accesses: narrow_accesses: narrow accesses" in said
    assert "noise ±53.6 µs, not measured" in said
    assert "command: … cap/uncoalesced_loads ./known_causes uncoalesced_loads → … cap/narrow_accesses" in said


def test_reports_of_different_tools_say_so_first(run: Run) -> None:
    said = run(LLAMA, TIMELINE)
    first, _, verdict, *_ = said.split("\n\n")
    assert first.startswith("not comparable in time: Nsight Compute runs each kernel alone")
    assert verdict.startswith("no verdict on whether B is faster than A: ")
    assert "beyond the noise" not in verdict


def test_a_job_of_ci_fails_where_it_is_slower_beyond_the_noise(run: Run) -> None:
    fast, slow = LADDER.with_name("narrow-accesses.ncu-rep.xz"), LADDER.with_name("uncoalesced-loads.ncu-rep.xz")
    assert "B is 17 % slower" in run(fast, slow, "--fail-above", "17")
    said = run(fast, slow, "--fail-above", "16.5", code=1)
    assert said.startswith(f"llmtop: {slow} is too slow (--fail-above 16.5): B is 17 % slower over all kernels")
    assert "is too slow" in run(fast, slow, fast, "--fail-above", "10", code=1)


def test_what_is_too_noisy_for_a_limit_is_told_and_fails_no_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: of one call of 1 ms and one of 1.03 ms 5 % of 1.015 ms and 1 µs are taken, which is 5.175 %."""
    traces = report(Launch("k", 1e6)), report(Launch("k", 1.03e6))
    reports = iter(traces * 2)
    monkeypatch.setattr("llmtop.cli.diff.read_report", lambda paths, is_together: next(reports))
    assert main(["diff", "a", "b", "--fail-above", "2"]) == 0
    said = capsys.readouterr().err
    assert "cannot tell 2 %: the noise is ±5.2 %; more calls or steps" in said
    assert said.count("\n") == 1
    assert main(["diff", "a", "b", "--fail-above", "6"]) == 0
    assert capsys.readouterr().err == ""


def test_what_cannot_be_compared_passes_no_job(run: Run) -> None:
    said = run(FEW, TIMELINE, "--fail-above", "50", code=1)
    assert said.startswith(f"llmtop: {TIMELINE} cannot be held to --fail-above: not comparable in time")


def test_the_baseline_is_the_first_unless_another_is_named(run: Run) -> None:
    fast, slow = LADDER.with_name("narrow-accesses.ncu-rep.xz"), LADDER.with_name("uncoalesced-loads.ncu-rep.xz")
    swapped = run(slow, fast)
    for named in ("2", slow.name):
        assert run(fast, slow, "--baseline", named) == swapped
    for wrong in ("0", "3", "other.ncu-rep"):
        assert "is not one of the reports: give its path, or 1 to 2" in run(fast, slow, "--baseline", wrong, code=2)


def test_what_has_nothing_to_compare_is_refused(run: Run, tmp_path: Path) -> None:
    assert "0 or more" in run(FEW, FEW, "--fail-above", "-1", code=2)
    assert "is one of the reports" in run(FEW, FEW, "-o", FEW, code=2)
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}')
    assert f"{empty}" in run(FEW, empty, code=1)
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(lzma.decompress(FEW.read_bytes())[:40])
    assert str(cut) in run(FEW, cut, code=1)


def test_of_a_damaged_file_it_is_not_said_which_is_faster(run: Run, tmp_path: Path) -> None:
    """What of a file is cut off saves no time: the first line says that it is missing, and no job passes by it."""
    whole = gzip.decompress(EAGER.read_bytes())
    cut = tmp_path / "cut.pt.trace.json"
    cut.write_bytes(whole[: len(whole) * 2 // 10])
    for paths, which in (((EAGER, cut), "the other"), ((cut, EAGER), "the baseline")):
        said = run(*paths)
        damaged = f"not comparable in time: {which} cut.pt.trace.json is damaged: the file ends before its list of"
        assert collapsed(said).startswith(damaged)
        assert "\n\nno verdict on whether B is faster than A\n" in said
    assert damaged in run(cut, EAGER, "--fail-above", "50", code=1)
    (comparison,) = parsed(run(cut, EAGER, "--format", "json"))["comparisons"]
    assert comparison["outcome"] == "unknown"


def test_steps_of_other_work_have_no_verdict(run: Run) -> None:
    first, _, verdict, *_ = run(KINETO, EAGER).split("\n\n")
    assert collapsed(first).startswith("not comparable in time: steps are ")
    assert verdict.startswith("no verdict on whether B is faster than A: a step takes 27.9 ms in A, 2.17 ms in B")


def test_columns_of_a_and_b_are_left_out_together(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [LADDER.with_name(f"{name}-loads.ncu-rep.xz") for name in ("uncoalesced", "dependent")]
    shown = set()
    for columns in (65, 95):
        monkeypatch.setenv("COLUMNS", str(columns))
        (titles,) = (line.split() for line in run(*both).splitlines() if line.startswith("  kernel "))
        assert titles.count("A") == titles.count("B")
        shown.add((titles.count("calls"), titles.count("A")))
    assert shown == {(2, 2), (0, 1)}


def test_what_is_said_of_the_third_report_is_said_by_its_name(run: Run) -> None:
    said = run(LADDER, *(LADDER.with_name(f"{name}-loads.ncu-rep.xz") for name in ("uncoalesced", "dependent")))
    assert "no verdict on whether C is faster than A" in said
    assert not re.search(r"\n  kernel .* B ", said), "it would stand below B"


def test_a_damaged_file_has_no_place_in_a_ladder(run: Run, tmp_path: Path) -> None:
    whole = gzip.decompress(EAGER.read_bytes())
    cut = tmp_path / "cut.pt.trace.json"
    cut.write_bytes(whole[: len(whole) * 7 // 10])
    said = collapsed(run(EAGER, cut, EAGER))
    damaged = "the other cut.pt.trace.json is damaged: the file ends before its list of events does"
    assert said.startswith(f"no time is compared of B cut.pt.trace.json: {damaged}")
    rungs = parsed(run(EAGER, cut, EAGER, "--format", "json"))["ladder"]
    assert rungs[1]["times_as_fast"]["unknown"].startswith(damaged)
    assert (rungs[2]["times_as_fast"], rungs[2]["of_best"]) == (1, 1)


def test_a_report_alone_says_that_it_is_one(run: Run) -> None:
    assert run(LADDER).startswith("one report: its kernels against each other\n\nA  ")
    assert run(LADDER, "--format", "md").startswith("**one report\\: its kernels against each other**\n")


def test_it_is_written_where_it_is_told_to_be(run: Run, tmp_path: Path) -> None:
    written = tmp_path / "diff.txt"
    assert run(FEW, FEW, "-o", written) == ""
    assert "no difference" in written.read_text(encoding="utf-8")


def parsed(text: str) -> dict[str, Any]:
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert isinstance(document, dict)
    return document


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    found = re.search(r"```json\n(.*?)```", (ROOT / "docs" / "diff.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    Draft202012Validator.check_schema(documented := parsed(found[1]))
    return Draft202012Validator(documented)


PAIRS = {
    "kernels": (LADDER.with_name("uncoalesced-loads.ncu-rep.xz"), LADDER.with_name("narrow-accesses.ncu-rep.xz")),
    "three": (LADDER, LADDER.with_name("barriers.ncu-rep.xz"), LADDER),
    "one": (LADDER,),
    "tools": (FEW, TIMELINE),
    "steps": (TIMELINE, TIMELINE),
    "stacks": (FOLDED, FOLDED),
}


@pytest.mark.parametrize("paths", PAIRS.values(), ids=PAIRS)
def test_json_follows_its_documented_schema(run: Run, schema: Draft202012Validator, paths: Sequence[Path]) -> None:
    document = parsed(run(*paths, "--format", "json"))
    schema.validate(document)
    assert len(document["reports"]) == len(paths)
    assert len(document["comparisons"]) == len(paths) - 1
    for one in document["comparisons"]:
        if "parts" in one["time"]:
            assert math.fsum(part["ns"] for part in one["time"]["parts"]) == pytest.approx(one["time"]["change_ns"])


def test_the_schema_can_fail(run: Run, schema: Draft202012Validator) -> None:
    document = parsed(run(FEW, FEW, "--format", "json"))
    document["comparisons"][0]["outcome"] = "better"
    with pytest.raises(ValidationError):
        schema.validate(document)


def in_csv(run: Run, pair: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run(*PAIRS[pair], "--format", "csv"))))


def test_lines_that_wait_longer_stand_in_json_and_csv_as_in_the_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    document = parsed(run(*PAIRS["kernels"], "--format", "json"))
    lines = document["comparisons"][0]["lines"]
    rows = [row for row in in_csv(run, "kernels") if row["is"] == "line"]
    monkeypatch.setenv("COLUMNS", "200")
    text = run(*PAIRS["kernels"])
    assert len(lines) == len(rows) > 0
    for line, row in zip(lines, rows, strict=True):
        assert float(row["call_change_ns"]) == line["change_ns"]
        for side, key, cost in (("before", "line_a", "mean_a_ns"), ("after", "line_b", "mean_b_ns")):
            one = line[side]
            told = ("", "") if one is None else (f"{one['file']}:{one['line']}", str(one["cost_ns"]))
            assert (row[key], row[cost]) == told
            assert one is None or f"{one['file']}:{one['line']}" in text


def test_csv_has_a_row_for_each_kernel_of_each_report(run: Run) -> None:
    """By hand: 555,376 and 475,840 ns a call, two calls each."""
    (row,) = (row for row in in_csv(run, "kernels") if row["is"] != "line")
    assert (row["report"], row["is"], row["told_by"]) == ("B", "faster", "the only kernel of each")
    assert [row[one] for one in ("calls_a", "mean_a_ns", "mean_b_ns")] == ["2", "555376.0", "475840.0"]
    assert float(row["change_ns"]) == 2 * (475_840 - 555_376)
    assert len([row for row in in_csv(run, "three") if row["is"] != "line"]) == 6 + 5
    assert run(*PAIRS["stacks"], "--format", "csv") == "report,function,unit,own_share_a,own_share_b\n"


class PageText(HTMLParser):
    """The text of a page, and its elements; fails on one that is closed and was not opened."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_markdown_and_html_say_what_the_text_says(run: Run) -> None:
    page = PageText()
    page.feed(run(*PAIRS["kernels"], "--format", "html"))
    assert page.open == []
    markdown = run(*PAIRS["kernels"], "--format", "md")
    for said in (page.text, markdown.replace("\\", "")):
        assert "B is 14 % faster over all kernels: 1.11 ms → 952 µs (-159 µs)" in said
        assert "bound memory → latency" in said
        assert "new: kernel-narrow-accesses" in said
    assert markdown.startswith("**B is 14 % faster")


def test_no_row_of_what_is_not_comparable_is_faster(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = report(Launch("k", 1e6), Launch("one", 1e6)), report(Launch("k", 2e6), Launch("two", 1), gpu="NVIDIA A100")
    reports = iter(traces * 3)
    monkeypatch.setattr("llmtop.cli.diff.read_report", lambda paths, is_together: next(reports))
    words = ["not comparable", "gone", "new"]
    assert [row["is"] for row in csv.DictReader(io.StringIO(run("a", "b", "--format", "csv")))] == words
    (comparison,) = parsed(run("a", "b", "--format", "json"))["comparisons"]
    assert [one["is"] for one in comparison["kernels"]] == words
    (line,) = [line for line in run("a", "b").splitlines() if line.startswith("  k ")]
    assert "not comparable" in line


def test_names_of_kernels_are_no_markup(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = report(Launch("<script>alert(1)</script>|`x`", 1e6)), report(Launch("<b>|*y*", 2e6))
    traces = iter(hostile * 2)
    monkeypatch.setattr("llmtop.cli.diff.read_report", lambda paths, is_together: next(traces))
    page = run("a", "b", "--format", "html")
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "\\<b\\>" in run("a", "b", "--format", "md")


def test_a_ladder_is_beside_the_baseline_and_beside_the_best(run: Run) -> None:
    """By hand: 35.3 ms, 2.73 ms and 1.84 ms are 1, 12.9 and 19.2 times as fast."""
    said = run(LADDER)
    assert "  sgemm_smem       1.84 ms  9.34 TFLOP/s      -94.8 %           19.2        100 %  memory" in said
    assert "  stream_copy       174 µs             –            –              –            –  memory" in said
    assert "  sgemm_naive      35.3 ms   487 GFLOP/s      +1195 %          0.077" in run(
        LADDER, "--baseline", "coalesced"
    )
    assert "3 kernels have it in their names" in run(LADDER, "--baseline", "sgemm", code=2)
    assert "no kernel has it in its name" in run(LADDER, "--baseline", "cublas", code=2)
    assert "has no kernels to compare with each other" in run(FOLDED, code=1)
    assert "two reports or more" in run(LADDER, "--fail-above", "3", code=2)


def test_of_three_reports_each_stands_beside_the_first_and_the_best(run: Run) -> None:
    said = run(*PAIRS["kernels"], LADDER.with_name("barriers.ncu-rep.xz"))
    assert "  A uncoalesced-loads.ncu-rep.xz  1.11 ms          0 %           1.00         47 %" in said
    assert "  C barriers.ncu-rep.xz            519 µs      -53.3 %           2.14        100 %" in said
    assert "\nB is 14 % faster" in said
    assert "\nC is 2.1 times as fast" in said


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public samples are not here")
def test_other_peoples_changes_are_found(run: Run) -> None:
    steps = collapsed(run(*(PUBLIC / f"GindaChen__nsys-ai__mfu_2gpu_{one}.sqlite" for one in ("before", "after"))))
    assert "B is 13 % slower per step: 16.9 ms → 19.2 ms (+2.28 ms); +1.31 ms idle: host code" in steps
