"""Command lines of Nsight Compute: which words are its own, and what chooses one launch of its report again."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.analysis.commands.ncu import FLAGS, SHORT, VALUED, NcuCommand, Option, parse


def told(command_line: str) -> NcuCommand:
    parsed = parse(command_line)
    assert parsed is not None
    return parsed


def text(options: tuple[Option, ...]) -> str:
    return " ".join(map(str, options))


def test_no_option_both_has_a_value_and_has_none() -> None:
    assert not FLAGS & VALUED
    assert set(SHORT.values()) <= FLAGS | VALUED


@pytest.mark.parametrize(
    ("command_line", "program"),
    [
        ("/opt/ncu/2025.3/ncu --set full --import-source on -f -o out ./ladder ", "./ladder"),
        ("ncu python3 -m vllm.server --model m", "python3 -m vllm.server --model m"),
        ("ncu -c5 -k gemm --metrics=a,b --nvtx ./p -c 7", "./p -c 7"),
        ("ncu --launch-c 5 ./p", "./p"),
        ("ncu --set full -- ./p --set mine", "./p --set mine"),
        ('"C:\\Program Files\\NVIDIA Corporation\\ncu.exe" --devices 0 ollama serve', "ollama serve"),
        ("/usr/bin/nv-nsight-cu-cli --kernel-regex gemm --units base ./p", "./p"),
        ("ncu ./p $(reboot) ; a*b", "./p '$(reboot)' ';' 'a*b'"),
        ("ncu vllm serve m --api-key [redacted]", "vllm serve m --api-key [redacted]"),
    ],
)  # fmt: skip
def test_the_program_begins_where_the_profilers_options_end(command_line: str, program: str) -> None:
    assert told(command_line).program == program


@pytest.mark.parametrize(
    "command_line",
    [
        "",
        "ncu",
        "ncu --set full",
        "ncu --set",
        "ncu --invented 5 ./p",
        "ncu --kernel 5 ./p",
        "ncu -x ./p",
        "ncu-ui ./p",
        "nsys profile ./p",
        "ncu --set full --",
        "ncu --nvtx --nvtx-include my range/ ./program",
    ],
)
def test_where_the_program_cannot_be_told_nothing_is_said(command_line: str) -> None:
    assert parse(command_line) is None


_AS_CAPTURED = "ncu --clock-control none --set full --nvtx --nvtx-include decode/ -f -o out --csv ./p"


def test_a_launch_is_found_again_under_the_same_circumstances() -> None:
    command = told(_AS_CAPTURED)
    assert text(command.circumstances) == "--clock-control none --nvtx --nvtx-include decode/"
    assert text(command.only(7, "gemm", before=2)) == "--kernel-name gemm --launch-skip 2 --launch-count 1"
    assert text(command.only(7, "gemm", before=0)) == "--kernel-name gemm --launch-count 1"


@pytest.mark.parametrize(
    ("options", "function", "chosen"),
    [
        ("--kernel-name regex:gemm", "gemm", "--kernel-name gemm --launch-skip 2 --launch-count 1"),
        ("--launch-skip-before-match 9", "k",
         "--launch-skip-before-match 9 --kernel-name k --launch-skip 2 --launch-count 1"),
        ("--launch-skip 29 --launch-count 5", "k", "--launch-skip 36 --launch-count 1"),
        ("-s 29 -k regex:ge(mm|mv) -c 60", "k", "--kernel-name 'regex:ge(mm|mv)' --launch-skip 36 --launch-count 1"),
        ("--kernel-id ::k:3", "k", "--kernel-id ::k:3 --launch-skip 7 --launch-count 1"),
        ("--filter-mode per-gpu", "k", "--filter-mode per-gpu --launch-skip 7 --launch-count 1"),
        ("--nvtx", "k<int>; reboot", "--launch-skip 7 --launch-count 1"),
    ],
)  # fmt: skip
def test_what_chose_the_launches_decides_how_one_is_chosen(options: str, function: str, chosen: str) -> None:
    assert text(told(f"ncu {options} ./p").only(7, function, before=2)) == chosen


_FOR_CONTROLS = "".join(map(chr, (*range(0x2400, 0x2420), 0x2421)))
"""What `clean` puts in place of control characters; it is written as those, which shlex cannot read: test_commands."""


@given(
    st.lists(
        st.text(
            st.characters(exclude_categories=["Cc", "Cs", "Z"], exclude_characters="/]" + _FOR_CONTROLS), min_size=1
        ),
        min_size=1,
    )
)
def test_no_word_of_the_program_is_lost_or_run_by_the_shell(words: list[str]) -> None:
    parsed = told(f"ncu --set full -- {' '.join(words)}")
    assert shlex.split(parsed.program) == [word.strip('"') if _is_quoted(word) else word for word in words]


def _is_quoted(word: str) -> bool:
    return len(word) > 1 and word[0] == word[-1] == '"' and '"' not in word[1:-1]


@given(st.text())
def test_any_text_is_taken_apart_or_refused(command_line: str) -> None:
    parsed = parse(f"ncu {command_line}")
    assert parsed is None or parsed.program
