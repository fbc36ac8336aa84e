"""What NVIDIA's own `nsys stats` says of exports, as tests ask it, and what llmtop reads of the same."""

from __future__ import annotations

import csv
import io
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

from llmtop.model import SpanTable, Trace
from llmtop.parsers.registry import load
from tests.nvidia_tools import tools
from tests.parsers.sample_reports import OTHERS, SAMPLE_TRACES, content

EXPORTS = sorted(SAMPLE_TRACES.rglob("*.sqlite*")) + sorted(OTHERS.rglob("*.sqlite"))
VERSION = re.compile(r"_v\d+$")
"""Of a call, which llmtop takes as one with the others."""
Row: TypeAlias = dict[str, str]


@pytest.fixture(scope="module")
def nsys() -> Path:
    found = tools("nsys")
    if not found:
        pytest.skip("needs Nsight Systems' command line (nsys) on PATH, or below the folder that LLMTOP_NSIGHT names")
    return next((program for program in found if "2023.4.4" in str(program)), found[0])


@pytest.fixture(params=EXPORTS, ids=lambda path: path.name, scope="module")
def export(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: nsys reads no .xz, and would write beside its input."""
    copied = tmp_path_factory.mktemp("stats") / "export.sqlite"
    copied.write_bytes(content(request.param))
    return copied


@cache
def read(export: Path) -> Trace:
    return load(export)


def stats(nsys: Path, report: str, export: Path) -> list[Row]:
    """The rows of a report; none where nsys says that the export lacks what it takes."""
    command = [str(nsys), "stats", "-r", report, "--format", "csv", "--force-export=false", str(export)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in said.splitlines() if line]
    if any(line.startswith("SKIPPED") for line in lines):
        pytest.skip(next(line for line in lines if line.startswith("SKIPPED"))[:200].replace(str(export), "it"))
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("Processing")) + 1 :]
    return list(csv.DictReader(io.StringIO("\n".join(table))))


def tables(trace: Trace, *kinds: str) -> Iterator[SpanTable]:
    for kind in kinds:
        for spans in (trace.spans, trace.more_spans):
            if kind in spans:
                yield spans[kind]
