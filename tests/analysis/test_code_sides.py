"""The three lists of a kernel's code, beside what is said of its instructions one by one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from llmtop.analysis.kernels.code_sides import CodeSide, CodeSides
from llmtop.analysis.kernels.source import KernelSource, kernel_source, waited
from llmtop.model import Unknown
from llmtop.parsers.registry import load
from tests.analysis.test_source import CONFLICTS, POWER
from tests.kernel_traces import without_lines

PART = slice(None, None, 7)
"""Of the instructions, those that are to be of a function without lines."""


@pytest.fixture(scope="module")
def source() -> KernelSource:
    found = kernel_source(load(CONFLICTS), 0)
    assert isinstance(found, KernelSource)
    return found


@pytest.fixture(scope="module")
def sides(source: KernelSource) -> CodeSides:
    parted = without_lines(load(CONFLICTS), POWER, set(source.code.offsets[PART]))
    return CodeSides(parted, parted.lines[0].file, {})


def test_lines_stand_without_the_blanks_that_all_have() -> None:
    """Of all those that instructions are of; others may have fewer."""
    source = kernel_source(load(CONFLICTS.with_name("contended-atomics.ncu-rep.xz")), 0)
    assert isinstance(source, KernelSource)
    removed = {file: blanks_removed(source, file) for file in {one.file for one in source.lines}}
    assert {Path(file).name: blanks for file, blanks in removed.items() if blanks} == {"sm_20_atomic_functions.hpp": 2}


def blanks_removed(source: KernelSource, file: str) -> int:
    """How many there are to be, as the lines that are shown have been seen to lack."""
    text, shown = source.text(file), CodeSides(source, file, {})
    assert not isinstance(text, Unknown)
    own = [text.lines[line - 1] for name, line in source.line_places if name == file]
    blanks = min(len(line) - len(line.lstrip(" ")) for line in own if line.strip())
    assert [shown.row_text(CodeSide.SOURCE, row) for row in range(len(text.lines))] == [
        line[blanks:] if line.startswith(" " * blanks) else line.lstrip(" ") for line in text.lines
    ]
    return blanks


@pytest.mark.parametrize("reason", ["", "short_scoreboard", "mio_throttle"])
@pytest.mark.parametrize("side", CodeSide)
def test_rows_that_wait_stand_in_order_and_have_all_that_is_waited(
    sides: CodeSides, side: CodeSide, reason: str
) -> None:
    """Code without lines among them, where it stands below the lines."""
    waits = Counter({(one.file, one.row): sides.waiting(side, one.row, reason) for one in sides.hot(side, reason)})
    of_side = sides.source.code.ptx_line if side is CodeSide.PTX else [1] * len(sides.source.code)
    seen = zip(sides.source.instructions, of_side, strict=True)
    every = sum(waited(one, reason) for one, is_of_side in seen if is_of_side)
    assert [*waits.values()] == sorted(waits.values(), reverse=True)
    assert all(weight > 0 for weight in waits.values())
    assert sum(waits.values()) == every > 0


def test_code_without_lines_is_a_row_below_the_lines(sides: CodeSides) -> None:
    below = sides.count(CodeSide.SOURCE) - 1
    function = sides.lineless(CodeSide.SOURCE, below)
    assert function is not None
    assert function.instructions
    assert {*function.instructions} <= {*range(len(sides.source.code))[PART]}
    assert sides.rows(CodeSide.SOURCE, function.instructions[:1]) == [below]
    assert sides.label(CodeSide.SOURCE, below) == ""
    assert sides.row_text(CodeSide.SOURCE, below).endswith(POWER)
    assert sides.lineless(CodeSide.SOURCE, below - 1) is None
