"""`w` on an icicle writes its stacks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.threads.folded import folded_tree
from llmtop.analysis.views import NodeKind, StackNode
from llmtop.parsers.registry import load
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.kernel_traces import LADDER
from tests.tui.test_contents import written
from tests.tui.test_explore import FOLDED, read, settle

if TYPE_CHECKING:
    from pathlib import Path

LEAF = StackNode("c;d", NodeKind.FRAME, 2.0, 2.0)
ROOT = StackNode("all", NodeKind.ROOT, 5.5, 0.0, (StackNode("a", NodeKind.FRAME, 5.5, 3.5, (LEAF,)),))


def weights(text: str) -> Counter[str]:
    """By stack, whatever the order of lines."""
    total: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, weight = line.rpartition(" ")
        total[stack] += int(float(weight) * 1e6)
    return total


def test_a_frame_has_what_is_its_own_and_its_stacks_begin_at_the_root() -> None:
    assert list(folded_tree(ROOT)) == ["a 3.500000\n", "a;c:d 2\n"]
    assert list(folded_tree(ROOT, (0, 0))) == ["a;c:d 2\n"]
    assert list(folded_tree(ROOT, (0,))) == ["a 3.500000\n", "a;c:d 2\n"]


async def test_stacks_are_written_as_they_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path))
    app = ExploreApp([read(load(FOLDED))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("w")
        await written()
        (file,) = tmp_path.iterdir()
        assert file.suffix == ".folded"
        assert weights(file.read_text()) == weights(FOLDED.read_text())
        assert load(file).stacks, "llmtop opens it too"
        file.unlink()
        await pilot.press("end", "enter", "w")
        await written()
        (file,) = tmp_path.iterdir()
        part = weights(file.read_text())
        assert 0 < len(part) < len(weights(FOLDED.read_text()))
        assert len({stack.split(";")[0] for stack in part}) == 1


async def test_an_icicle_of_stalls_is_written_and_its_bars_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path))
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        await pilot.press("w")
        await written()
        await pilot.press("f", "w")
        await written()
        by_suffix = {file.suffix: file.read_text() for file in tmp_path.iterdir()}
        assert by_suffix.keys() == {".txt", ".folded"}
        stacks = weights(by_suffix[".folded"])
        assert "sgemm_naive;lg_throttle" in stacks
        assert sum(stacks.values()) / 1e6 == pytest.approx(100, abs=0.1)
