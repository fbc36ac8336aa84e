"""Reports of perf c2c, in the layouts of several versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop.errors import FileError
from llmtop.parsers.perf_c2c import PARSER
from llmtop.parsers.perf_columns import perf_columns
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace

NEW = SAMPLE_TRACES / "perf" / "6.1" / "two-counters.perf-c2c.txt"
OLD = SAMPLE_TRACES / "perf" / "4.20" / "one-socket.perf-c2c.txt"


def opened(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "said"
    path.write_text(text)
    return load(path)


def test_a_line_of_a_new_report() -> None:
    line = load(NEW).cache_lines[0]
    assert (line.address, line.node) == ("0x55d0c41e70c0", "0")
    assert line.share == pytest.approx(0.7133)
    assert (line.hitm, line.hitm_local, line.hitm_remote, line.peer) == (2267, 1003, 1264, 0)
    assert (line.loads, line.stores) == (6480, 9640)
    last = load(NEW).cache_lines[2]
    assert (last.address, last.dram_local, last.dram_remote) == ("0xffff9a0142d17e40", 18, 2)


def test_what_is_at_its_offsets() -> None:
    reader, other, writer = load(NEW).cache_lines[0].accesses
    assert (reader.offset, reader.symbol, reader.object) == (0, "Scheduler::poll_queue", "serve")
    assert (reader.place, reader.node, reader.cpus) == ("scheduler.cc:212", "0 1", 12)
    assert [reader.remote_share, reader.local_share] == pytest.approx([0.6321, 0.5842])
    assert (other.offset, writer.offset) == (8, 8)
    assert (writer.stores_share, writer.remote_share, writer.pid) == (1.0, 0.0, None)


def test_cells_longer_than_their_columns_are_read_by_what_is_between() -> None:
    writer = load(NEW).cache_lines[2].accesses[1]
    assert (writer.symbol, writer.object) == ("__update_load_avg_cfs_rq", "[kernel.kallsyms]")
    assert writer.place == "__update_load_avg_cfs_rq+48"


def test_older_columns_have_other_names() -> None:
    first, second = load(OLD).cache_lines
    assert (first.address, first.hitm_local, first.hitm_remote) == ("0x602180", 310, 0)
    assert (first.loads, first.stores, first.dram_local) == (2306, 2814, 12)
    assert [(one.offset, one.symbol, one.pid) for one in first.accesses] == [
        (8, "reader_thread", 4242),
        (16, "stats_thread", 4242),
        (32, "writer_thread", 4242),
    ]
    assert first.accesses[0].node == "0{1,3}"
    assert first.accesses[1].stores_share == pytest.approx(0.0036)
    assert [one.offset for one in second.accesses] == [24, 24]


def test_sums_are_facts() -> None:
    facts = load(NEW).origin.facts
    assert (facts["Load Operations"], facts["LLC Misses to Remote cache (HITM)"]) == (21604, "82.1 %")
    assert "Events" not in facts


ARM = """\
           Shared Data Cache Line Table
#
#        ----------- Cacheline ----------     Peer  ------- Load Peer -------    Total    Total
# Index             Address  Node  PA cnt    Snoop    Total    Local   Remote    Loads   Stores
# .....  ..................  ....  ......  .......  .......  .......  .......  .......  .......
#
      0         0x400816340   N/A   12275   27.70%     1392     1392        0    27076       12
"""


def test_of_arm_snoops_of_peers_stand_for_hitm(tmp_path: Path) -> None:
    trace = opened(tmp_path, ARM)
    (line,) = trace.cache_lines
    assert (line.peer, line.hitm, line.loads, line.stores) == (1392, 1392, 27076, 12)
    assert [issue.code for issue in trace.issues] == ["perf.no-offsets"]


def test_lines_that_are_none_are_counted(tmp_path: Path) -> None:
    trace = opened(tmp_path, f"{ARM}      1       what is this\n   serve says hello\n")
    assert len(trace.cache_lines) == 1
    assert [(issue.code, issue.count) for issue in trace.issues] == [("rows-skipped", 2), ("perf.no-offsets", 1)]


def test_hostile_names_are_made_harmless(tmp_path: Path) -> None:
    text = NEW.read_text().replace("Metrics::snapshot", "Metrics\x1b[2J:snaps")
    assert "\\x1b" not in repr(opened(tmp_path, text).cache_lines)


def test_without_a_line_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="names no cache line that is shared"):
        opened(tmp_path, ARM[: ARM.index("      0")])


def test_other_text_is_not_of_perf_c2c(tmp_path: Path) -> None:
    assert not PARSER.sniff(b"# Trace Event Information is this\n", tmp_path)


def test_what_is_between_dashes_goes_with_all_columns_below_it() -> None:
    heads = ["#        -- Load Hitm --    Total", "# Index    Lcl      Rmt   records"]
    columns = perf_columns(heads, "# .....  ......  .......  .......")
    assert columns.names == ("Index", "Load Hitm Lcl", "Load Hitm Rmt", "Total records")
    assert columns.cells("      0      12       34       56 7") == dict(
        zip(columns.names, ("0", "12", "34", "56 7"), strict=True)
    )
