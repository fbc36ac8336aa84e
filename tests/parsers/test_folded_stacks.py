"""Folded stacks: who writes what, what is left out and said, and whatever else is in such a file."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.analysis.threads.functions import functions
from llmtop.errors import FileError
from llmtop.model import Stack, Trace, What
from llmtop.parsers import folded_stacks
from llmtop.parsers.base import HEAD_BYTES
from llmtop.parsers.folded_stacks import PARSER
from llmtop.parsers.registry import load
from llmtop.text import clean


def read(folder: Path, content: str | bytes) -> Trace:
    path = folder / "stacks"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load(path)


def weights(trace: Trace) -> dict[str, float]:
    return {";".join(stack.frames): stack.weight for stack in trace.stacks}


def test_equal_stacks_are_one_and_the_heaviest_stands_first(tmp_path: Path) -> None:
    trace = read(tmp_path, "python3;main;step 12\npython3;main 30\npython3;main;step 20\n")
    assert trace.origin.kind == "folded-stacks"
    assert trace.stacks == (
        Stack(("python3", "main", "step"), 32.0, "samples"),
        Stack(("python3", "main"), 30.0, "samples"),
    )
    assert trace.issues == ()
    assert str(trace.why_missing(What("kernels"))) == "folded stacks tell of functions on CPUs alone"


WRITERS = {
    "stackcollapse-perf.pl --all": ("python3-4242/4243;do_syscall_64_[k];futex_wait_[k] 7", 3, "futex_wait_[k]"),
    "C++": ("srv;std::map<int, a b>::operator[](int const&);operator()(x) const 7", 3, "operator()(x) const"),
    "py-spy": ('process 1:"python -m x";thread (2): http;<module> (x.py:3) 7', 3, "<module> (x.py:3)"),
    "inferno": ("cargo;main 7.25", 2, "main"),
    "bcc profile -df": ("node;-;start_thread;-;[unknown] 7", 5, "[unknown]"),
    "Windows": ("a;b 7\r", 2, "b"),
    "an empty name": ("a;;b 7", 3, "b"),
    "tabs": ("a;b\t7", 2, "b"),
}


@pytest.mark.parametrize(("line", "depth", "innermost"), WRITERS.values(), ids=WRITERS)
def test_what_writers_differ_in(tmp_path: Path, line: str, depth: int, innermost: str) -> None:
    trace = read(tmp_path, f"# made by hand\n\n{line}\n")
    (stack,) = trace.stacks
    assert len(stack.frames) == depth
    assert stack.frames[-1] == innermost
    assert stack.weight == (7.25 if "." in line.rpartition(" ")[2] else 7)
    assert all(stack.frames)
    assert trace.issues == ()


def test_a_file_of_one_line_without_an_end_is_one(tmp_path: Path) -> None:
    assert weights(read(tmp_path, "a;b 12")) == {"a;b": 12}


def test_a_stack_of_one_function_is_one_beside_others(tmp_path: Path) -> None:
    assert weights(read(tmp_path, "swapper 5\na;b 2\n")) == {"swapper": 5, "a;b": 2}


def test_names_are_harmless_and_command_lines_without_secrets(tmp_path: Path) -> None:
    line = 'process 7:"vllm serve m --api-key sk-1";\x1b[2Jx\u202e;[red]f[/red]\xff 3\n'.encode("latin-1", "replace")
    (stack,) = read(tmp_path, line.replace(b"?", "\u202e".encode())).stacks
    assert stack.frames == (
        'process 7:"vllm serve m --api-key [redacted]',
        "␛[2Jx\ufffd",
        "[red]f[/red]\ufffd",
    )


def test_lines_that_are_no_stacks_are_counted(tmp_path: Path) -> None:
    lines = [f"a;f{i} 1" for i in range(20)]
    trace = read(tmp_path, "\n".join([*lines, "a;torn", "", "99"]) + "\n")
    assert len(trace.stacks) == 20
    (issue,) = trace.issues
    assert (issue.message, issue.count) == ("2 of 22 lines are no stack with a number: left out", 2)


def test_numbers_that_no_float_holds_are_left_out(tmp_path: Path) -> None:
    trace = read(tmp_path, f"a;b 1\na;c {'9' * 400}\na;d {'9' * 308}\na;d {'9' * 308}\na;e 2\n")
    assert set(weights(trace)) == {"a;b", "a;d", "a;e"}
    assert all(math.isfinite(stack.weight) for stack in trace.stacks)
    assert trace.issues[0].count == 2


def test_a_file_that_ends_within_a_line_says_so(tmp_path: Path) -> None:
    trace = read(tmp_path, "a;b 12\na;c 3")
    assert weights(trace) == {"a;b": 12, "a;c": 3}
    (issue,) = trace.issues
    assert issue.message == "the last line has no end: if the file was cut short, its number is too small"


def test_a_line_longer_than_any_stack_is_left_out_and_never_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folded_stacks, "_LONGEST_LINE", 64)
    long = ";".join(["f"] * 100)
    trace = read(tmp_path, "a;b 1\n" * 50 + f"{long} 5\na;c 2\n{'x' * 63}\n{long} 6")
    assert weights(trace) == {"a;b": 50, "a;c": 2}
    assert [issue.code for issue in trace.issues] == ["rows-skipped", "no-line-end"]
    assert trace.issues[0].count == 3


@pytest.mark.parametrize(("over", "read"), [(0, 2), (1, 1)])
def test_a_line_may_have_a_mebibyte_with_its_end(over: int, read: int, tmp_path: Path) -> None:
    line = b"main;" + b"f" * ((1 << 20) - len(b"main; 1\n") + over) + b" 1\n"
    path = tmp_path / "long.folded"
    path.write_bytes(b"main;g 2\n" + line)
    trace = load(path)
    assert len(trace.stacks) == read
    assert [(issue.code, issue.count) for issue in trace.issues] == [("rows-skipped", 1)] * over


def test_a_first_stack_longer_than_the_head_is_read(tmp_path: Path) -> None:
    frames = ";".join(f"f{i}" for i in range(HEAD_BYTES))
    assert weights(read(tmp_path, f"{frames} 3\n")) == {frames: 3}


def test_a_head_that_ends_within_a_line_is_judged_by_the_whole_ones(tmp_path: Path) -> None:
    line = b"a;b 1\n"
    head = (line * HEAD_BYTES)[: HEAD_BYTES - 5] + b"a;b;c"
    assert PARSER.sniff(head, tmp_path)


@pytest.mark.parametrize(("others", "is_one"), [(1, True), (2, False)])
def test_nine_lines_of_ten_are_stacks(tmp_path: Path, others: int, is_one: bool) -> None:
    assert PARSER.sniff(b"a;b 1\n" * (10 - others) + b"no stack\n" * others, tmp_path) is is_one


@pytest.mark.parametrize(
    "content",
    [
        "a b 1\n",
        "a;b\n",
        "name;size\nx;1\ny;2\n",
        "{a;b 1\n}\n" * 9,
        "int a; int b;\nreturn 0; 1\n",
        "a;b 1\n" * 9 + "\0;b 1\n",
        "12\n13\n",
    ],
)
def test_other_texts_are_none_of_its_kind(tmp_path: Path, content: str) -> None:
    with pytest.raises(FileError, match="is of no format that llmtop knows"):
        read(tmp_path, content)


def test_what_turns_out_to_be_no_stacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no stacks: no line is a stack and a number"):
        read(tmp_path, "var a=1;" * HEAD_BYTES)


def test_a_comparison_of_two_profiles_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="compares two profiles, with two numbers a line"):
        read(tmp_path, "a;b 12 14\na;c 1 0\n")


def test_a_thread_whose_name_ends_in_a_number_is_no_comparison(tmp_path: Path) -> None:
    assert weights(read(tmp_path, "a;worker 3 12\na;b 4\n")) == {"a;worker 3": 12, "a;b": 4}


FRAMES = st.text(string.ascii_letters + string.digits + "_:<>()[]{}./+-*&~ é", min_size=1).filter(
    lambda text: text == text.strip() and not text.startswith("process")
)
STACKS = st.dictionaries(
    st.lists(FRAMES.filter(lambda text: not text[-1].isdigit()), min_size=2, max_size=8).map(tuple),
    st.integers(0, 1 << 50),
    min_size=1,
    max_size=20,
)


@given(stacks=STACKS)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_folded_comes_back(tmp_path: Path, stacks: Mapping[tuple[str, ...], int]) -> None:
    trace = read(tmp_path, "".join(f"{';'.join(frames)} {weight}\n" for frames, weight in stacks.items()))
    assert {stack.frames: stack.weight for stack in trace.stacks} == stacks
    assert [stack.weight for stack in trace.stacks] == sorted(stacks.values(), reverse=True)
    assert trace.issues == ()


@given(rest=st.binary(max_size=300), cut=st.integers(0, 48))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_after_stacks_cost_at_most_themselves(tmp_path: Path, rest: bytes, cut: int) -> None:
    path = tmp_path / "stacks"
    whole = b"".join(b"main;step;f%d 10\n" % i for i in range(4))
    path.write_bytes(whole[: len(whole) - cut] + rest)
    trace = PARSER.parse(path)
    kept = (len(whole) - cut) // (len(whole) // 4)
    assert {("main", "step", f"f{i}") for i in range(kept)} <= {stack.frames for stack in trace.stacks}
    assert all(frame == clean(frame) != "" for stack in trace.stacks for frame in stack.frames)


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ("a;b 12\na;c 3\n", "15.0 samples in 2 stacks"),
        ("a;b 250000000\na;c 40250000000\n", "40.5 G periods in 2 stacks"),
        ("a;b 250000\na;c 3\n", "250003 samples in 2 stacks"),
        ("a;b 250000\n", "250000 samples in 1 stack"),
    ],
)
def test_stacks_that_are_weighed_by_period_are_no_samples(tmp_path: Path, lines: str, title: str) -> None:
    path = tmp_path / "a.folded"
    path.write_text(lines)
    assert [one.title for one in functions(load(path))] == [title]
