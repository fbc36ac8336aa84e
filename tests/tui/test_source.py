"""The view Source in the explorer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop.analysis.kernels.code_sides import CodePlace, CodeSide, CodeSides
from llmtop.analysis.kernels.source import KernelSource, kernel_source
from llmtop.model import Trace, Unknown
from llmtop.parsers.registry import load
from llmtop.parsers.source_files import with_sources
from llmtop.tui.panes.source import SourcePane
from llmtop.tui.render.look import Look
from llmtop.tui.render.source import CodeScreen, draw_code
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.kernel_traces import LADDER, LLAMA, TIMELINE, without_lines
from tests.kernel_traces import report as made
from tests.parsers.sample_reports import content
from tests.tui.test_explore import read, settle

CONFLICTS = LADDER.with_name("bank-conflicts.ncu-rep.xz")
UNFUSED = LADDER.with_name("unfused.ncu-rep.xz")
FILE = "/src/build/benchmarks/known_causes.cu"
SOURCE = str(SourcePane.number)


@pytest.fixture(autouse=True)
def texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instructions are read as their offsets, without running a program."""

    def offsets(self: KernelSource) -> Mapping[int, str]:
        pairs = zip(self.code.addresses, self.code.offsets, strict=True)
        return {address: f"OP.{offset:x} R1" for address, offset in pairs}

    monkeypatch.setattr(KernelSource, "assembly", property(offsets))


@pytest.fixture(scope="module")
def conflicts() -> Trace:
    return load(CONFLICTS)


def sides_of(trace: Trace, assembly: Mapping[int, str] | Unknown) -> CodeSides:
    source = kernel_source(trace, 0)
    assert not isinstance(source, Unknown)
    return CodeSides(source, FILE, assembly)


def drawn(screen: CodeScreen, width: int, height: int) -> list[str]:
    strips = draw_code(screen, width, height, Look())
    assert [strip.cell_length for strip in strips] == [width] * height
    return [strip.text.rstrip() for strip in strips]


def test_one_list_with_shares_reasons_and_what_is_known_of_the_row(conflicts: Trace) -> None:
    lines = drawn(CodeScreen(sides_of(conflicts, {}), CodePlace(CodeSide.SOURCE, FILE, 87)), 78, 15)
    assert lines == [
        "source: known_causes.cu",
        "            83   __shared__ float tile[32 * 32];",
        "            84   const int lane = threadIdx.x % 32, warp =…",
        "0.7 % ▏     85   for (int i = threadIdx.x; i < 32 * 32; i … mio_throttle",
        "            86   __syncthreads();",
        "            87   float sum = 0.0f;",
        " 99 % ████  88   for (int round = 0; round < rounds; ++rou… mio_throttle",
        "            89   out[blockIdx.x * size_t{blockDim.x} + thr…",
        "            90 }",
        "            91",
        "            92 // A row of 128 bytes for each warp, and wh…",
        "            93 __device__ unsigned chase(const unsigned* n…",
        "line 88 · 99 % of the kernel's waiting · mostly mio_throttle 54 % · 536,650",
        "samples · 508,860 not issued · executed 242,406,912 times · 100 % of threads ·",
        "1,107,296,256 shared wavefronts, 97 % of it excess",
    ]


def test_code_without_lines_stands_below_the_lines() -> None:
    trace = load(CONFLICTS)
    sides = CodeSides(without_lines(trace, "__internal_accurate_pow", {0x3C0}), FILE, {})
    hot = sides.hot(CodeSide.SOURCE)
    assert hot[1].row == sides.count(CodeSide.SOURCE) - 1
    assert sides.rows(CodeSide.SOURCE, (0x3C0 // 16,)) == [hot[1].row]
    assert list(sides.instructions(CodeSide.SOURCE, hot[1].row)) == [0x3C0 // 16]
    lines = drawn(CodeScreen(sides, hot[1]), 78, 15)
    [row] = [" ".join(line.split()) for line in lines if line.startswith(" 31 %")]
    assert row == "31 % █▎ (no line) __internal_accurate_pow short_scoreboard"
    assert "(no line) __internal_accurate_pow · 31 % of the kernel's waiting ·" in " ".join(lines)


def test_where_there_is_room_all_three_stand_side_by_side(conflicts: Trace) -> None:
    sides = sides_of(conflicts, {})
    sides = CodeSides(sides.source, FILE, {sides.source.code.addresses[0x3C0 // 16]: "FADD R9, R9, R0"})
    lines = drawn(CodeScreen(sides, CodePlace(CodeSide.SOURCE, FILE, 87)), 118, 12)
    assert lines[0].split("│")[0].startswith("source: known_causes.cu")
    assert [part.strip() for part in lines[0].split("│")[1:]] == ["PTX", "SASS"]
    (hottest,) = [line for line in lines if "003c0" in line]
    assert "003c0 FADD R9, R9, R0" in hottest.split("│")[2]
    assert any("99 %" in line.split("│")[0] for line in lines)
    assert any("add.f32" in line.split("│")[1] and "31 %" in line for line in lines)


def test_what_has_no_text_says_why_and_what_gives_it(conflicts: Trace) -> None:
    sides = sides_of(conflicts, Unknown("this machine has no disassembler", "pip install it"))
    lines = drawn(CodeScreen(sides, CodePlace(CodeSide.SASS, FILE, 0x3C0 // 16)), 78, 20)
    assert lines[0] == "SASS: this machine has no disassembler"
    assert " 31 % █▎   003c0                                            short_scoreboard" in lines
    assert "this machine has no disassembler (pip install it)" in lines


def test_what_a_row_waits_for_comes_before_why_it_has_no_text(conflicts: Trace) -> None:
    why = Unknown("this machine has no disassembler", "pip install nvidia-cuda-nvdisasm, or put the toolkit's on PATH")
    sides = sides_of(conflicts, why)
    foot = drawn(CodeScreen(sides, CodePlace(CodeSide.SASS, FILE, 0x3C0 // 16)), 78, 18)[-3:]
    assert foot[0].startswith("003c0 of known_causes.cu:88 · 31 % of the kernel's waiting")
    assert "mostly short_scoreboard 100 %" in " ".join(foot[:2])
    assert foot[2].startswith("pip install nvidia-cuda-nvdisasm")


def test_a_line_that_is_cut_is_told_in_full(conflicts: Trace) -> None:
    text = "for (int round = 0; round < rounds; ++round) sum += tile[lane * 32 + ((warp + round) & 31)];"
    lines = drawn(CodeScreen(sides_of(conflicts, {}), CodePlace(CodeSide.SOURCE, FILE, 87)), 118, 34)
    assert text not in " ".join(lines[:-6])
    assert text in lines[-6:]
    lines = drawn(CodeScreen(sides_of(conflicts, {}), CodePlace(CodeSide.SOURCE, FILE, 88)), 260, 34)
    assert not any(line.startswith("out[blockIdx") for line in lines), "it is shown in its list"


@pytest.mark.parametrize("size", [(1, 1), (20, 3), (40, 12), (118, 9), (200, 60)])
def test_every_size_is_filled(conflicts: Trace, size: tuple[int, int]) -> None:
    for side in CodeSide:
        assert drawn(CodeScreen(sides_of(conflicts, {}), CodePlace(side, FILE, 5), "mio_throttle"), *size)


def test_hostile_texts_are_drawn_as_they_are_cleaned(conflicts: Trace) -> None:
    sides = sides_of(conflicts, {})
    sides = CodeSides(sides.source, FILE, dict.fromkeys(sides.source.code.addresses, "[red]日本語[/] [b"))
    assert any(
        "[red]日本語[/] [b" in line for line in drawn(CodeScreen(sides, CodePlace(CodeSide.SASS, FILE, 3)), 60, 10)
    )


async def test_it_opens_at_the_hottest_line_and_steps_to_the_next_and_to_its_instructions() -> None:
    app = ExploreApp([read(load(CONFLICTS))])
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press(SOURCE)
        await settle(pilot)
        text = app.screen_text()
        assert "[8 Source]" in text
        assert "line 88 · 99 % of the kernel's waiting" in text
        await pilot.press("n")
        await settle(pilot)
        assert "line 85 · 0.7 %" in app.screen_text()
        await pilot.press("h")
        await settle(pilot)
        assert "line 88 · 99 %" in app.screen_text()
        await pilot.press("N")
        await settle(pilot)
        assert "line 86 ·" in app.screen_text(), "before the hottest comes the one that waits least"
        assert "← → source/PTX/SASS" in app.screen_text(), "where one list has room the keys to the others are shown"
        await pilot.press("h", "left")
        await settle(pilot)
        text = app.screen_text()
        assert "003c0 of known_causes.cu:88 · 31 % of the kernel's waiting" in text
        assert "003c0 OP.3c0 R1" in text
        await pilot.press("left")
        await settle(pilot)
        assert "PTX line 284 · 31 %" in app.screen_text()
        await pilot.press("left")
        await settle(pilot)
        assert "line 88 · 99 %" in app.screen_text()
        await pilot.press("left", "f")
        await settle(pilot)
        text = app.screen_text()
        assert "only mio_throttle" in text
        assert "00380 of known_causes.cu:88 · 52 % of the waiting for mio_throttle" in " ".join(
            text.replace("│", "").split()
        ), "only one reason counts where one is asked for"
        assert app.issues == []


async def test_a_text_is_looked_for_in_the_list_with_the_cursor(conflicts: Trace) -> None:
    app = ExploreApp([read(conflicts)])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(SOURCE)
        await settle(pilot)
        await pilot.press("slash", *"chase", "enter")
        await settle(pilot)
        assert "line 93:" in app.screen_text()
        await pilot.press("n")
        await settle(pilot)
        assert "line 99:" in app.screen_text()
        await pilot.press("N", "N")
        await settle(pilot)
        first = app.screen_text()
        assert "/chase" in first
        await pilot.press("slash", "escape", "n")
        await settle(pilot)
        assert "line 88 · 99 %" in app.screen_text()
        await pilot.press("slash", *"nowhere", "enter")
        await settle(pilot)
        assert "not found" in app.screen_text()


async def test_the_kernel_that_was_gone_to_is_shown_and_others_are_a_key_away() -> None:
    app = ExploreApp([read(load(UNFUSED))])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("1", "down", "down")
        await settle(pilot)
        for key in ("enter", "escape"):
            await pilot.press(key)
            await settle(pilot)
        await pilot.press(SOURCE)
        await settle(pilot)
        assert "(3 of 5)" in app.screen_text()
        await pilot.press("full_stop")
        await settle(pilot)
        assert "(4 of 5)" in app.screen_text()
        await pilot.press("comma", "comma")
        await settle(pilot)
        assert "elementwise_add_kernel (2 of 5)" in app.screen_text()
        await pilot.press("1", "up", "up")
        await settle(pilot)
        await pilot.press(SOURCE)
        await settle(pilot)
        assert "(1 of 5)" in app.screen_text(), "a view that was made follows too"
        assert app.issues == []


async def test_without_lines_and_samples_the_instructions_are_shown_with_why() -> None:
    app = ExploreApp([read(load(LLAMA))])
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press(SOURCE)
        await settle(pilot)
        text = app.screen_text()
        assert "SASS" in text
        assert "the warps were not sampled (add --section SourceCounters)" in text
        assert "executed" in text


def test_only_what_nsight_compute_made_has_the_view() -> None:
    assert SourcePane.why_not(load(TIMELINE)) is not None
    trace = made()
    assert SourcePane.why_not(trace) is not None
    assert SourcePane.why_not(replace(trace, kernels=None)) is not None
    assert SourcePane.why_not(load(CONFLICTS)) is None


async def test_a_source_is_looked_for_in_the_folders_that_are_named(tmp_path: Path) -> None:
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(content(LADDER).replace(b"\x12/srv/llm/ladder.cu\x12", b"\x12/srv/llm/xadder.cu\x12"))
    (tmp_path / "ladder.cu").write_text("\n\n\n\nthe shared one\n\n\n")
    for folders, said in (((), "name its folder: --source-dir DIR"), ((tmp_path,), "the shared one")):
        app = ExploreApp([read(with_sources(load(report), folders))])
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press(SOURCE)
            await settle(pilot)
            assert said in " ".join(app.screen_text().replace("│", "").split())


async def test_stalls_go_down_to_the_code() -> None:
    app = ExploreApp([read(load(UNFUSED))])
    async with app.run_test(size=(120, 24), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("2", "f", "f", "f")
        await settle(pilot)
        text = app.screen_text()
        assert "kernel, file, line, instruction, reason" in text
        assert "294 if (i < count)" in text
        assert "00110 OP.110 R1" in text
        await pilot.press("f")
        await settle(pilot)
        text = app.screen_text()
        assert "reason, kernel, file, line, instruction" in text
        assert text.index("long_scoreboard") < text.index("elementwise_mul")
        await pilot.press("f")
        await settle(pilot)
        assert "share of each kernel's waiting" in app.screen_text()
        assert app.issues == []


def test_indentation_that_all_lines_have_is_left_out(tmp_path: Path) -> None:
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(content(LADDER).replace(b"\x12/srv/llm/ladder.cu\x12", b"\x12/srv/llm/xadder.cu\x12"))
    (tmp_path / "ladder.cu").write_text("    {\n\n      the loop\n  }\n" + 12 * "\n")
    source = kernel_source(with_sources(load(report), (tmp_path,)), 0)
    assert not isinstance(source, Unknown)
    sides = CodeSides(source, "/srv/llm/ladder.cu", {})
    assert [sides.row_text(CodeSide.SOURCE, row) for row in range(4)] == ["{", "", "the loop", "}"]
