"""Slips of the hand on the command line: one line says what is wrong and what is near it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from llmtop.cli import main
from llmtop.text import clean


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


HOSTILE = "a\x1b]52;c;cA==\x07\x9b31m\u202eb\r\nllmtop: forged"
"""What sets the clipboard, colours, turns around and begins a line of its own."""


@pytest.mark.parametrize(
    "arguments",
    [
        [HOSTILE],
        [f"--{HOSTILE}"],
        ["report", HOSTILE],
        ["report", "x", "--format", HOSTILE],
        ["report", "x", f"--{HOSTILE}"],
        ["report", "{folder}"],
        ["report", "{file}"],
        ["open", "{folder}"],
        ["diff", "{file}", "{file}"],
        ["share", "{file}", "-o", "x"],
        ["record", "-o", "{folder}/x/y", "--duration", "1"],
        ["record", "--when", HOSTILE],
        ["snapshot", "-p", HOSTILE],
    ],
)
def test_no_message_steers_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    file = folder / HOSTILE
    file.write_text("nothing")
    try:
        code = main([one.format(folder=folder, file=file) for one in arguments])
    except SystemExit as left:
        code = int(str(left.code))
    (line,) = capsys.readouterr().err.split("\n")[:-1]
    assert code in (1, 2)
    assert line.startswith("llmtop")
    assert clean(line) == line


def test_what_a_thread_dies_of_does_not_steer_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(args: object) -> int:
        sys.stderr.write(f"{HOSTILE}\n")
        raise ValueError(HOSTILE)

    monkeypatch.setattr("llmtop.cli.doctor.run", broken)
    assert main(["doctor"]) == 1
    *_, last = lines = capsys.readouterr().err.split("\n")[:-1]
    assert last.startswith("llmtop: a fault of its own: ValueError: a␛]52")
    assert [clean(line) for line in lines] == lines
