"""Every file of sample_traces: opened under its name and under none, and cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop.errors import FileError
from llmtop.parsers.compressed import compression_of
from llmtop.parsers.registry import PARSERS, load
from tests.parsers.sample_reports import SAMPLE_TRACES, content

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 3_000_000
TRACES = sorted(path for path in SAMPLE_TRACES.rglob("*") if path.is_file() and path.name != "README.md")

each_trace = pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)


def test_there_are_traces_of_every_format() -> None:
    tools = {path.relative_to(SAMPLE_TRACES).parts[0] for path in TRACES}
    assert {parser.name.partition("-")[0] for parser in PARSERS} <= tools


@each_trace
def test_trace_is_small_and_described(trace: Path) -> None:
    assert trace.stat().st_size < MAX_BYTES
    assert f"`{trace.relative_to(SAMPLE_TRACES)}`" in (SAMPLE_TRACES / "README.md").read_text()


@each_trace
def test_trace_opens_under_any_name(trace: Path, tmp_path: Path) -> None:
    unnamed = tmp_path / "unknown"
    unnamed.write_bytes(trace.read_bytes())
    opened, again = load(trace), load(unnamed)
    tool, version, _ = trace.relative_to(SAMPLE_TRACES).parts
    assert opened.origin.kind.startswith(tool)
    assert opened.origin.tool_version.startswith(version)
    assert "H100" in opened.origin.gpu
    assert opened.kernels is not None
    assert again.kernels is not None
    assert len(opened.kernels) == len(again.kernels) > 0
    assert again.origin.path == str(unnamed)


@each_trace
def test_trace_holds_no_secret(trace: Path) -> None:
    assert "not-a-real-secret" not in repr(load(trace).origin)


@each_trace
def test_trace_cut_short_is_refused_or_shorter(trace: Path, tmp_path: Path) -> None:
    whole = load(trace).kernels
    assert whole is not None
    path = tmp_path / trace.name
    data = content(trace)
    path.write_bytes(data)
    for tenth in range(9, 0, -1):
        with path.open("r+b") as file:
            file.truncate(len(data) * tenth // 10)
        try:
            kernels = load(path).kernels
        except FileError as error:
            refusal = str(error)
            assert str(path) in refusal
            continue
        assert kernels is not None
        assert len(kernels) < len(whole)


@each_trace
def test_packed_trace_cut_short_is_refused(trace: Path, tmp_path: Path) -> None:
    data = trace.read_bytes()
    if compression_of(data) is None:
        pytest.skip("is not compressed")
    path = tmp_path / trace.name
    for tenth in range(1, 10):
        path.write_bytes(data[: len(data) * tenth // 10])
        with pytest.raises(FileError, match="is truncated"):
            load(path)
