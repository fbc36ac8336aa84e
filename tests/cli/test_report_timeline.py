"""What reports of timelines print, in every format."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from textual.binding import Binding

from llmtop import whats
from llmtop.analysis.kernels.nvtx_ranges import only_range
from llmtop.analysis.timeline.capture import capture_length
from llmtop.cli import diff as diff_command
from llmtop.cli import report as report_command
from llmtop.cli.report import report
from llmtop.cli.report_text import report_text
from llmtop.cli.text_layout import TextStyle
from llmtop.model import Origin, Stack, Trace
from llmtop.parsers.registry import load
from llmtop.tui.panes.kernels import KernelsPane
from llmtop.tui.panes.memory import MemoryPane
from llmtop.tui.panes.spans import SpansPane
from llmtop.tui.panes.steps import StepsPane
from llmtop.tui.panes.timeline import TimelinePane
from tests.cli.by_tables import report_by
from tests.kernel_traces import TIMELINE, spans
from tests.nsys_capture import MS, Capture
from tests.nsys_scenes import SCENES
from tests.parsers.kineto_files import SHIPPED, kineto_traces

Made = Callable[[str], Trace]


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A scene by its name, read as a capture."""
    return lambda name: SCENES[name].make().trace(tmp_path_factory.mktemp("scene"))


def words(trace: Trace, kind: str) -> str:
    """All of a report as one line without markup."""
    if kind == "text":
        return " ".join("".join(report_text(trace, TextStyle(200))).split())
    page = re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", "".join(report(trace, kind)), flags=re.DOTALL)
    return " ".join(unescape(page).replace("\\", "").split())


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_the_length_and_what_the_kernels_time_is_added_up_over_stand_above(made: Made, kind: str) -> None:
    said = words(made("one GPU late"), kind)
    assert "800 ms of kernel time, added up over 2 GPUs" in said
    window = "the 400 ms from the first to the last GPU work or CUDA call, for one GPU"
    assert f'"of the capture" is a share of {window}' in said
    alone = words(made("sleep"), kind)
    assert "added up over" not in alone
    assert "for one GPU" not in alone


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_what_lies_before_and_after_the_cuda_work_is_said_to_be_left_out(tmp_path: Path, kind: str) -> None:
    capture = Capture()
    capture.kernel(100 * MS, 300 * MS, capture.call("cudaLaunchKernel", 95 * MS, 96 * MS))
    capture.os("open", 20 * MS, 21 * MS)
    capture.os("poll", 400 * MS, 1300 * MS)
    said = words(capture.trace(tmp_path), kind)
    share = "a share of the 205 ms from the first to the last GPU work or CUDA call"
    assert f"{share}; left out are 75.0 ms before and 1.00 s after it, with OS calls alone" in said


@pytest.mark.parametrize("width", [60, 80, 100])
def test_rows_of_the_kernel_table_can_be_told_apart_and_say_what_they_compute(width: int) -> None:
    said = "".join(report_text(load(TIMELINE), TextStyle(width))).partition("\nKernels\n")[2]
    titles, *rows = (re.split(r"\s{2,}", line.strip()) for line in said.splitlines()[:21])
    cells = [dict(zip(titles, row, strict=True)) for row in rows]
    assert len({(row["kernel"], row.get("grid"), row["block"]) for row in cells}) == 20
    assert sum("silu bf16" in row["kernel"] for row in cells) == 1
    assert any("[57344]" in row["kernel"] for row in cells) is ("grid" not in titles)
    assert ("grid" in titles) is (width >= 80)


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_a_report_of_one_range_says_so_and_asks_for_no_timeline(kind: str) -> None:
    chosen = only_range(load(TIMELINE), "decode")
    assert isinstance(chosen, Trace)
    said = words(chosen, kind)
    assert 'only the kernels launched in the NVTX range "decode"' in said
    assert "timeline:" not in said
    assert "of the capture" not in said
    assert "--nvtx --nvtx-include decode/" in said
    if kind == "text":
        assert "launch latency, idle time, communication and stacks are of a time, and not of kernels" in said
        assert "--sample=process-tree --cpuctxsw=process-tree" in said, "samples are missing, and said to be"


def test_a_report_of_one_range_has_no_stacks_of_the_whole_file() -> None:
    whole = load(TIMELINE)
    assert not only_of(whole, "decode").stacks
    lacks = only_of(replace(whole, stacks=(Stack(("main",), 1.0, "samples"),)), "decode")
    assert (lacks.stacks, lacks.why_missing(whats.STACKS)) == ((), lacks.why_missing(whats.TIMELINE))


def only_of(trace: Trace, name: str) -> Trace:
    chosen = only_range(trace, name)
    assert isinstance(chosen, Trace)
    return chosen


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_each_cause_that_is_shown_is_explained(made: Made, kind: str) -> None:
    said = words(made("tiny kernels"), kind)
    assert "the next work was queued before the last one ended" in said
    assert "was in a copy" not in said, "none is shown"


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_communication_stands_in_every_format(made: Made, kind: str) -> None:
    assert "GPU 0: 160 ms in 40 kernels, 100 % exposed, 120 ms before the last GPU has come" in words(
        made("one GPU late"), kind
    )


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_kernels_of_no_family_say_so_and_how_to_have_more_of_them(made: Made, kind: str) -> None:
    trace = made("sleep")
    assert trace.kernels is not None
    own = replace(trace.kernels, names=tuple(f"simulate_{i}" for i, _ in enumerate(trace.kernels.names)))
    said = words(replace(trace, kernels=own), kind)
    assert "other: kernels with names of no library that llmtop knows" in said
    assert "mark phases with NVTX ranges" in said


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_commands_name_the_directory_or_say_what_they_lack(made: Made, kind: str) -> None:
    trace = made("not traced")
    facts = {"command": "python serve.py", "directory": "/srv/llm"}
    known = replace(trace, origin=replace(trace.origin, facts=facts))
    assert "commands are to run in /srv/llm, as the program did" in words(known, kind)
    assert "COMMAND stands for the program's command line" in words(
        replace(trace, origin=replace(trace.origin, facts={})), kind
    )
    source = json.loads("".join(report(known, "json")))["source"]
    assert source["directory"] == "/srv/llm"


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_a_finding_without_a_command_says_why(made: Made, kind: str) -> None:
    assert "no command: the GPU takes this time by itself" in words(made("tiny kernels"), kind)
    findings = json.loads("".join(report(made("tiny kernels"), "json")))["findings"]
    assert all(bool(finding["next_command"]) != bool(finding["no_command"]) for finding in findings)


def test_a_timeline_has_no_headings_of_what_only_counters_tell(made: Made) -> None:
    assert "Roofline no point" not in words(made("sleep"), "text")
    assert "## Roofline" not in "".join(report(made("sleep"), "md"))
    said = words(made("not traced"), "text")
    assert said.count("COMMAND stands for") == 1
    assert "Warp stalls" not in said
    assert "a timeline has no counters" in said


def test_a_timeline_without_cuda_work_has_its_length_too() -> None:
    trace = Trace(Origin("live"), start_ns=0, end_ns=2 * MS, spans={"other": spans("other", [(0, 2 * MS, -1)])})
    assert capture_length(trace) == '"of the capture" is a share of the 2.00 ms from the first to the last event'
    empty = replace(trace, spans={**trace.spans, "os": spans("os", [])})
    assert capture_length(empty) == capture_length(trace)


@pytest.mark.parametrize("path", kineto_traces(), ids=lambda path: path.name)
def test_what_a_pytorch_program_marks_is_never_called_nvtx(path: Path) -> None:
    """PyTorch's profiler records annotations; NVTX ranges are Nsight's."""
    trace = load(path)
    for by in ("step", "nvtx", "api"):
        assert "NVTX" not in report_by(trace, "text", by), by


def test_one_annotation_alone_is_never_called_nvtx() -> None:
    only = only_range(load(SHIPPED.with_name("graph-and-eager.pt.trace.json.gz")), "step eager")
    assert isinstance(only, Trace)
    assert only.origin.facts["range"] == "step eager"
    assert "NVTX" not in report_by(only, "text", None)


def test_what_serves_traces_of_all_tools_names_nvtx_beside_others_or_not_at_all() -> None:
    panes = (KernelsPane, StepsPane, SpansPane, TimelinePane, MemoryPane)
    told = [one.tooltip for pane in panes for one in pane.BINDINGS if isinstance(one, Binding)]
    for command in (report_command, diff_command):
        parser = ArgumentParser()
        command.add_arguments(parser)
        told += parser.format_help().split("\n  -")
    assert [one for one in told if "NVTX" in one and "record_function" not in one] == []


def test_no_command_for_ncu_looks_for_an_annotation_of_pytorch_among_nvtx_ranges() -> None:
    of_nvtx = load(TIMELINE)
    of_pytorch = replace(of_nvtx, origin=replace(of_nvtx.origin, range_term="annotation"))
    commands = [report_by(only, "text", None) for only in (_only(of_nvtx), _only(of_pytorch))]
    assert ["--nvtx-include decode" in text for text in commands] == [True, False]


def _only(trace: Trace) -> Trace:
    only = only_range(trace, "decode")
    assert isinstance(only, Trace)
    return only
