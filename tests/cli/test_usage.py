"""Slips of the hand on the command line: one line says what is wrong and what is near it."""

from __future__ import annotations

import pytest

from llmtop.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["repotr", "x"], "llmtop: repotr is not a command: did you mean report? (llmtop --help)"),
        (
            ["report", "--formt", "x"],
            "llmtop report: there is no --formt: did you mean --format? (llmtop report --help)",
        ),
        (["report", "x", "--format", "jsn"], "llmtop report: argument --format: there is no 'jsn': did you mean json?"),
        (["report", "x", "--by", "kernl"], "argument --by: kernels are what a report lists anyway: leave 'kernl' out"),
        (["report", "x", "--by", "warp"], "argument --by: there is no 'warp': did you mean warps?"),
        (["report", "x", "--format", "?"], "llmtop report: argument --format: there is no '?', but text, json, md"),
        (["record", "--when", "ttft_p9 > 1s"], "there is no number 'ttft_p9': did you mean ttft_p99?"),
        (["record", "--when", "zz > 1s"], "there is no number 'zz', but output_tokens_per_s, "),
        (["record", "--when", "finding:kv_bound"], "there is no rule 'kv_bound': did you mean kv-bound?"),
    ],
)
def test_a_slip_is_told_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    try:
        code = main(arguments)
    except SystemExit as left:
        code = int(str(left.code))
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    (line,) = shown.err.splitlines()
    assert said in line
