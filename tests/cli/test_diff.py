"""`llmtop diff`: what it prints of real reports, its exit codes, and files that have nothing to compare."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtop.cli import main
from tests.kernel_traces import LADDER, LLAMA, ROOT, SAMPLES, TIMELINE

Run = Callable[..., str]
PUBLIC = SAMPLES / "public"
KINETO = ROOT / "sample_traces" / "kineto" / "1" / "llama-generate.pt.trace.json.gz"


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


def test_a_file_does_not_differ_from_itself(run: Run) -> None:
    for path in (LADDER, TIMELINE):
        said = run(path, path)
        assert "\nno difference: " in said
        assert "not comparable" not in said
        assert "with care" not in said
        assert run(path, path, "--fail-above", "0") == said


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
    first = said.split("\n\n")[1]
    assert first.startswith("not comparable in time: Nsight Compute runs each kernel alone")
    assert "as measured: no difference beyond the noise" in first


def test_a_job_of_ci_fails_where_it_is_slower_beyond_the_noise(run: Run) -> None:
    fast, slow = LADDER.with_name("narrow-accesses.ncu-rep.xz"), LADDER.with_name("uncoalesced-loads.ncu-rep.xz")
    assert "B is 17 % slower" in run(fast, slow, "--fail-above", "17")
    said = run(fast, slow, "--fail-above", "16.5", code=1)
    assert said.startswith(f"llmtop: {slow} is too slow (--fail-above 16.5): B is 17 % slower over all kernels")
    assert run(slow, fast, "--fail-above", "0")
    assert "is too slow" in run(fast, slow, fast, "--fail-above", "10", code=1)


def test_what_cannot_be_compared_passes_no_job(run: Run) -> None:
    said = run(LLAMA, TIMELINE, "--fail-above", "50", code=1)
    assert said.startswith(f"llmtop: {TIMELINE} cannot be held to --fail-above: not comparable in time")


def test_the_baseline_is_the_first_unless_another_is_named(run: Run) -> None:
    fast, slow = LADDER.with_name("narrow-accesses.ncu-rep.xz"), LADDER.with_name("uncoalesced-loads.ncu-rep.xz")
    for named in ("2", str(slow), slow.name):
        assert run(fast, slow, "--baseline", named) == run(slow, fast)
    for wrong in ("0", "3", "other.ncu-rep"):
        assert "is not one of the reports: give its path, or 1 to 2" in run(fast, slow, "--baseline", wrong, code=2)


def test_what_has_nothing_to_compare_is_refused(run: Run, tmp_path: Path) -> None:
    assert "llmtop diff BEFORE AFTER" in run(LADDER, code=2)
    assert "0 or more" in run(LADDER, LADDER, "--fail-above", "-1", code=2)
    assert "is one of the reports" in run(LADDER, LADDER, "-o", LADDER, code=2)
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}')
    assert f"{empty}" in run(LADDER, empty, code=1)
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(lzma.decompress(LADDER.read_bytes())[:40])
    assert str(cut) in run(LADDER, cut, code=1)


def test_a_damaged_trace_is_compared_with_what_is_left_of_it(run: Run, tmp_path: Path) -> None:
    whole = gzip.decompress(KINETO.read_bytes())
    cut = tmp_path / "cut.pt.trace.json"
    cut.write_bytes(whole[: len(whole) * 7 // 10])
    said = collapsed(run(KINETO, cut))
    assert "with care: B is damaged: " in said


def test_it_is_written_where_it_is_told_to_be(run: Run, tmp_path: Path) -> None:
    written = tmp_path / "diff.txt"
    assert run(LADDER, LADDER, "-o", written) == ""
    assert "no difference" in written.read_text(encoding="utf-8")


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public samples are not here")
def test_other_peoples_changes_are_found(run: Run) -> None:
    ncar = PUBLIC / "NCAR__GPU_workshop__MW_Baseline.ncu-rep", PUBLIC / "NCAR__GPU_workshop__MW_DivToMult.ncu-rep"
    said = collapsed(run(*ncar))
    assert "B is 18 % faster over all kernels: 15.5 ms → 12.7 ms (-2.74 ms); -2.71 ms compute_tendencies_x_279" in said
    assert "bound compute → memory" in said
    steps = collapsed(run(*(PUBLIC / f"GindaChen__nsys-ai__mfu_2gpu_{one}.sqlite" for one in ("before", "after"))))
    assert "B is 13 % slower per step: 16.9 ms → 19.2 ms (+2.28 ms); +1.31 ms idle: host code" in steps
