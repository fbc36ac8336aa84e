"""Reports of perf mem: whichever columns there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop.errors import FileError
from llmtop.parsers.perf_mem import PARSER
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace

SAMPLE = SAMPLE_TRACES / "perf" / "6.1" / "two-nodes.perf-mem.txt"
FEW = """\
# Overhead  Local Weight  Memory access  Symbol
# ........  ............  .............  .......................
    55,56%  0             N/A            [k] 0xffffffff81a00ae7
"""


def opened(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "said"
    path.write_text(text)
    return load(path)


def test_accesses_of_both_events() -> None:
    accesses = load(SAMPLE).accesses
    assert [one.event for one in accesses] == 7 * ["cpu/mem-loads,ldlat=30/P"] + 2 * ["cpu/mem-stores/P"]
    first = accesses[0]
    assert first.share == pytest.approx(0.3142)
    assert (first.samples, first.weight, first.level) == (141, 709, "Remote RAM (1 hop) or RAM hit")
    assert (first.symbol, first.object) == ("PagedCache::copy_block", "serve")
    assert (first.data_symbol, first.data_object) == ("0x00007f3a1c2400c0", "anon")
    assert (first.snoop, first.tlb, first.locked) == ("Miss", "L1 or L2 hit", "No")
    assert (accesses[-1].snoop, accesses[-1].tlb) == ("", "")


def test_columns_that_are_not_there_are_not_known(tmp_path: Path) -> None:
    (one,) = opened(tmp_path, FEW).accesses
    assert one.share == pytest.approx(0.5556)
    assert (one.event, one.samples, one.weight, one.level) == ("", None, 0, "unknown")
    assert (one.symbol, one.object, one.data_symbol) == ("0xffffffff81a00ae7", "", "")


def test_lines_that_are_none_are_counted(tmp_path: Path) -> None:
    trace = opened(tmp_path, f"{FEW}    serve says hello\n    1.0")
    assert [(issue.code, issue.count) for issue in trace.issues] == [("rows-skipped", 2), ("no-line-end", 1)]


def test_hostile_names_are_made_harmless(tmp_path: Path) -> None:
    trace = opened(tmp_path, FEW.replace("0xffffffff81a00ae7", "a\x1b[2Jb"))
    assert "\\x1b" not in repr(trace.accesses)


def test_without_an_access_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no access to memory"):
        opened(tmp_path, FEW[: FEW.index("    55")])


def test_a_report_of_samples_is_another(tmp_path: Path) -> None:
    assert not PARSER.sniff(b"# Overhead  Command  Shared Object  Symbol\n", tmp_path)
