"""Every file of sample_traces: opened under its name and under none, and cut short."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from llmtop.errors import FileError
from llmtop.parsers.base import Content
from llmtop.parsers.compressed import compression_of
from llmtop.parsers.registry import load, parsers
from tests.parsers.sample_reports import SAMPLE_TRACES, content

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Origin, Trace

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


def weight(trace: Trace) -> float:
    """What gets less as a file gets shorter, of whatever it holds."""
    stacks = sum(stack.weight for stack in trace.stacks)
    return sum(amounts(trace).values()) + len(trace.origin.facts) + stacks


@dataclass(frozen=True)
class Held:
    """What a file holds."""

    origin: Origin
    amounts: dict[Content, int]
    weight: float


@pytest.fixture(scope="module")
def held() -> dict[Path, Held]:
    """By file: each is read once, and no trace is kept."""
    return {path: Held(one.origin, amounts(one), weight(one)) for path, one in ((path, load(path)) for path in TRACES)}


@each_trace
def test_trace_is_small_and_described_and_opens_under_any_name(
    trace: Path, held: dict[Path, Held], tmp_path: Path
) -> None:
    assert trace.stat().st_size < MAX_BYTES
    assert f"`{trace.relative_to(SAMPLE_TRACES)}`" in (SAMPLE_TRACES / "README.md").read_text()
    unnamed = tmp_path / "unknown"
    unnamed.write_bytes(trace.read_bytes())
    opened, again = held[trace], load(unnamed)
    assert again.origin.path == str(unnamed)
    assert replace(again.origin, path="") == replace(opened.origin, path="")
    assert amounts(again) == opened.amounts


def test_there_are_traces_of_every_format(held: dict[Path, Held]) -> None:
    assert {one.origin.kind for one in held.values()} == PARSER_OF.keys()


def test_a_format_claims_what_all_of_its_files_hold(held: dict[Path, Held]) -> None:
    """One file may hold more than another: memory events, say."""
    found: dict[str, list[set[Content]]] = defaultdict(list)
    for one in held.values():
        found[one.origin.kind].append({part for part, amount in one.amounts.items() if amount})
    assert {parser.name: parser.holds for parser in parsers()} == {
        name: set.intersection(*parts) for name, parts in found.items()
    }


def test_traces_lie_where_tool_and_version_say_and_name_the_gpu_of_the_readme(held: dict[Path, Held]) -> None:
    for path, one in held.items():
        tool, version, _ = path.relative_to(SAMPLE_TRACES).parts
        origin, holds = one.origin, PARSER_OF[one.origin.kind].holds
        if Content.TOOL_VERSION in holds:
            assert origin.kind.startswith(tool), path
            assert origin.tool_version.startswith(version), path
        else:
            assert version[0].isdigit(), path
        known = ("NVIDIA H100 80GB HBM3",)
        assert origin.gpu in (known if Content.GPU in holds else ("", *known)), path
        assert "not-a-real-secret" not in repr(origin), path


@each_trace
def test_trace_cut_short_is_refused_or_shorter(trace: Path, held: dict[Path, Held], tmp_path: Path) -> None:
    whole = held[trace].weight
    path = tmp_path / trace.name
    data = content(trace)
    path.write_bytes(data)
    for tenth in (9, 3):
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
    for tenth in (1, 9):
        path.write_bytes(data[: len(data) * tenth // 10])
        if is_read:
            assert "kineto-cut" in [issue.code for issue in load(path).issues]
        else:
            with pytest.raises(FileError, match="is truncated"):
                load(path)
