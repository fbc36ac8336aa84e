"""Every file of sample_traces: opened under its name and under none, and cut short."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from llmtop.errors import FileError
from llmtop.parsers.base import Content
from llmtop.parsers.compressed import compression_of
from llmtop.parsers.registry import load, parsers
from tests.parsers.sample_reports import SAMPLE_TRACES, content

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace
    from llmtop.parsers.base import Parser

MAX_BYTES = 3_000_000
TRACES = sorted(path for path in SAMPLE_TRACES.rglob("*") if path.is_file() and path.name != "README.md")

each_trace = pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)


PARSER_OF = {parser.name: parser for parser in parsers()}


def amounts(trace: Trace) -> dict[Content, int]:
    """How much of each part is there."""
    return {
        Content.KERNELS: 0 if trace.kernels is None else len(trace.kernels),
        Content.TIMELINE: sum(map(len, trace.spans.values())),
        Content.STACKS: len(trace.stacks),
        Content.SERIES: sum(map(len, trace.series.values())),
        Content.FAULTS: len(trace.faults) + len(trace.sanitizer),
        Content.COUNTS: len(trace.counts),
        Content.CACHE_LINES: sum(1 + len(line.accesses) for line in trace.cache_lines),
        Content.ACCESSES: len(trace.accesses),
        Content.SCHEDULING: len(trace.scheduling),
        Content.GPU: len(trace.origin.gpu),
        Content.TOOL_VERSION: len(trace.origin.tool_version),
    }


@each_trace
def test_trace_is_small_and_described(trace: Path) -> None:
    assert trace.stat().st_size < MAX_BYTES
    assert f"`{trace.relative_to(SAMPLE_TRACES)}`" in (SAMPLE_TRACES / "README.md").read_text()


@each_trace
def test_trace_opens_under_any_name(trace: Path, tmp_path: Path) -> None:
    unnamed = tmp_path / "unknown"
    unnamed.write_bytes(trace.read_bytes())
    opened, again = load(trace), load(unnamed)
    assert again.origin.path == str(unnamed)
    assert replace(again.origin, path="") == replace(opened.origin, path="")
    assert amounts(again) == amounts(opened)


@pytest.fixture(scope="module")
def held() -> dict[str, list[set[Content]]]:
    """What each file of a format holds, by format."""
    found: dict[str, list[set[Content]]] = defaultdict(list)
    for opened in map(load, TRACES):
        found[opened.origin.kind].append({part for part, amount in amounts(opened).items() if amount})
    return found


def test_there_are_traces_of_every_format(held: dict[str, list[set[Content]]]) -> None:
    assert held.keys() == PARSER_OF.keys()


@pytest.mark.parametrize("parser", parsers(), ids=lambda parser: parser.name)
def test_a_format_claims_what_all_of_its_files_hold(parser: Parser, held: dict[str, list[set[Content]]]) -> None:
    """One file may hold more than another: memory events, say."""
    assert parser.holds
    assert parser.holds == set.intersection(*held[parser.name])


@each_trace
def test_trace_lies_where_its_tool_and_version_say(trace: Path) -> None:
    tool, version, _ = trace.relative_to(SAMPLE_TRACES).parts
    origin = load(trace).origin
    if Content.TOOL_VERSION in PARSER_OF[origin.kind].holds:
        assert origin.kind.startswith(tool)
        assert origin.tool_version.startswith(version)
    else:
        assert version[0].isdigit()


@each_trace
def test_trace_of_a_gpu_is_of_the_one_that_the_readme_names(trace: Path) -> None:
    origin = load(trace).origin
    known = ("NVIDIA H100 80GB HBM3",)
    assert origin.gpu in (known if Content.GPU in PARSER_OF[origin.kind].holds else ("", *known))


@each_trace
def test_trace_holds_no_secret(trace: Path) -> None:
    assert "not-a-real-secret" not in repr(load(trace).origin)


def weight(trace: Trace) -> float:
    """What gets less as a file gets shorter, of whatever it holds."""
    stacks = sum(stack.weight for stack in trace.stacks)
    return sum(amounts(trace).values()) + len(trace.origin.facts) + stacks


@each_trace
def test_trace_cut_short_is_refused_or_shorter(trace: Path, tmp_path: Path) -> None:
    whole = weight(load(trace))
    path = tmp_path / trace.name
    data = content(trace)
    path.write_bytes(data)
    for tenth in range(9, 0, -1):
        with path.open("r+b") as file:
            file.truncate(len(data) * tenth // 10)
        try:
            rest = weight(load(path))
        except FileError as error:
            refusal = str(error)
            assert str(path) in refusal
            continue
        assert 0 < rest < whole


@each_trace
def test_packed_trace_cut_short_is_refused_or_says_so(trace: Path, tmp_path: Path) -> None:
    """Of a PyTorch trace the events before the cut are read."""
    data = trace.read_bytes()
    if compression_of(data) is None:
        pytest.skip("is not compressed")
    path, is_read = tmp_path / trace.name, ".pt.trace.json" in trace.name
    for tenth in range(1, 10):
        path.write_bytes(data[: len(data) * tenth // 10])
        if is_read:
            assert "kineto-cut" in [issue.code for issue in load(path).issues]
        else:
            with pytest.raises(FileError, match="is truncated"):
                load(path)
