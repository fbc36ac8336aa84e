"""What programs mark, in Nsight Systems exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop import columns
from llmtop.model import SpanTable, Trace
from llmtop.parsers.nsys import NsysSqliteParser
from tests.nsys_capture import Capture, add_table, global_id

OLD = (
    "start end eventType rangeId category color text:TEXT globalTid endGlobalTid textId domainId uint64Value "
    "int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId jsonText:TEXT"
)
NEW = f"{OLD} binaryData:TEXT"
A, B = global_id(100, 101), global_id(200, 201)
CATEGORY, MARK, PUSHED, STARTED, DOMAIN = 33, 34, 59, 60, 75


def event(
    kind: int,
    start: object,
    end: object = None,
    *,
    text: object = None,
    text_id: int | None = None,
    tid: int = A,
    domain: int | None = 0,
    end_tid: int | None = None,
) -> dict[str, object]:
    return {
        "eventType": kind, "start": start, "end": end, "text": text, "textId": text_id, "globalTid": tid,
        "domainId": domain, "endGlobalTid": end_tid,
    }  # fmt: skip


def trace(folder: Path, *events: dict[str, object], table: str = NEW) -> Trace:
    capture = Capture()
    capture.kernel(30, 40, capture.call("cudaLaunchKernel", 10, 20))
    capture.string("decode")  # its number is 3: a kernel and a call come before
    path = capture.write(folder / "capture.sqlite")
    names = [name.partition(":")[0] for name in table.split()]
    add_table(path, "NVTX_EVENTS", table, *([one.get(name) for name in names] for one in events))
    return NsysSqliteParser().parse(path)


def told(table: SpanTable) -> list[tuple[str, str, int, int]]:
    names, tracks = ([of[i] for i in ids] for of, ids in ((table.names, table.name_id), (table.tracks, table.track_id)))
    return list(zip(names, tracks, table.start_ns, table.end_ns, strict=True))


@pytest.mark.parametrize("table", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("long", [1, columns.LONG], ids=["pages", "sqlite"])
def test_ranges_are_named_by_domain_and_text(
    tmp_path: Path, table: str, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Domain 1 is another one in each process, and the default domain has no name."""
    monkeypatch.setattr(columns, "LONG", long)
    found = trace(
        tmp_path,
        event(DOMAIN, 0, text="NCCL", domain=1),
        event(DOMAIN, 0, text="CCCL", domain=1, tid=B),
        event(PUSHED, 5, 9, text_id=3, domain=1),
        event(PUSHED, 6, 9, text_id=3, domain=1, tid=B),
        event(PUSHED, 7, 9, text_id=3),
        event(PUSHED, 8, 9, text_id=3, domain=2),
        table=table,
    )
    assert told(found.spans["nvtx"]) == [
        ("NCCL:decode", "thread:100/101", 5, 9),
        ("CCCL:decode", "thread:200/201", 6, 9),
        ("decode", "thread:100/101", 7, 9),
        ("decode", "thread:100/101", 8, 9),
    ]
    assert [*found.spans["nvtx"].correlation] == [-1] * 4, "a range was launched by nothing"


def test_a_text_in_the_row_and_a_registered_one_are_the_same(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        event(DOMAIN, 0, text_id=3, domain=4),
        event(PUSHED, 7, 8, text="decode"),
        event(PUSHED, 5, 6, text_id=3),
        event(PUSHED, 9, 10, text="x", domain=4),
        event(PUSHED, 11, 12),
    )
    assert [name for name, *_ in told(found.spans["nvtx"])] == ["decode", "decode", "decode:x", "(no text)"]
    assert found.spans["nvtx"].names.count("decode") == 1


def test_a_range_that_ends_on_another_thread_is_of_the_one_that_began_it(tmp_path: Path) -> None:
    found = trace(tmp_path, event(STARTED, 5, 9, text="request", end_tid=B))
    assert told(found.spans["nvtx"]) == [("request", "thread:100/101", 5, 9)]


def test_marks_are_moments(tmp_path: Path) -> None:
    found = trace(
        tmp_path, event(DOMAIN, 0, text="vllm", domain=1), event(MARK, 7, text="preempted", domain=1),
        event(MARK, 3, text_id=3),
    )  # fmt: skip
    assert told(found.spans["mark"]) == [
        ("decode", "thread:100/101", 3, 3),
        ("vllm:preempted", "thread:100/101", 7, 7),
    ]
    assert "nvtx" not in found.spans
    assert found.issues == []


@pytest.mark.parametrize("long", [1, columns.LONG], ids=["pages", "sqlite"])
def test_ranges_that_stay_open_are_counted(tmp_path: Path, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "LONG", long)
    found = trace(
        tmp_path,
        event(PUSHED, 5, 9, text_id=3),
        event(STARTED, 6, text_id=3),
        event(PUSHED, 7, text_id=3),
        event(PUSHED, 8, 2, text_id=3),
        event(PUSHED, "soon", 9, text_id=3),
        event(CATEGORY, 1, text="c"),
    )
    assert len(found.spans["nvtx"]) == 1
    assert [(issue.code, issue.count) for issue in found.issues] == [("nsys-nvtx-open", 2), ("nsys-nvtx-times", 2)]


@pytest.mark.parametrize("junk", ["text", 1.5, b"\xff", -1, 1 << 62])
@pytest.mark.parametrize("column", ["globalTid", "textId", "domainId", "eventType", "text"])
def test_odd_values_cost_no_more_than_their_row(tmp_path: Path, junk: object, column: str) -> None:
    odd = event(PUSHED, 6, 9, text_id=3, domain=1) | {column: junk}
    found = trace(tmp_path, event(PUSHED, 5, 9, text_id=3), odd)
    assert told(found.spans["nvtx"])[0] == ("decode", "thread:100/101", 5, 9)
