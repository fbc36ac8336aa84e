"""How much is read: at each limit, and one beyond it. What is larger is damage, or was made to fill the memory."""

from __future__ import annotations

import gzip
import json
import math
import struct
import zipfile
from typing import TYPE_CHECKING, Any, cast

import pytest

from llmtop import ids
from llmtop.errors import FileError
from llmtop.model import SourceText, Unknown, What
from llmtop.parsers.compressed import within_measure
from llmtop.parsers.kineto_json import DECODER, EventReader
from llmtop.parsers.kineto_repair import mended
from llmtop.parsers.ncu_rep import MAGIC
from llmtop.parsers.ncu_rep.container import Extent, ReportFile
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import BlockHeader, Device, Session
from llmtop.parsers.ncu_rep.sources import stored_code, stored_fields
from llmtop.parsers.registry import load
from llmtop.parsers.source_files import found_source
from llmtop.parsers.text_lines import TextLines, decoded_head
from tests.nsys_capture import Capture, add_table
from tests.parsers.kineto_files import allocator_event, few_events, span, written
from tests.parsers.sample_reports import SAMPLE_TRACES, kernel, message, metric, report

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import BinaryIO

    from llmtop.model import Trace

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
at_the_limit = pytest.mark.parametrize("more", [0, 1], ids=["at the limit", "one more"])


def opened(folder: Path, content: bytes) -> Trace:
    path = folder / "file"
    path.write_bytes(content)
    return load(path)


def refused(folder: Path, content: bytes) -> str:
    with pytest.raises(FileError) as caught:
        opened(folder, content)
    return str(caught.value)


@at_the_limit
@pytest.mark.parametrize(
    ("unpacked", "packed"), [(8 * GIB, GIB), (64 * MIB, 1), (500 * MIB, MIB)], ids=["all", "any ratio", "ratio"]
)
def test_what_a_file_may_unpack_to(unpacked: int, packed: int, more: int, tmp_path: Path) -> None:
    pieces = cast("Iterable[bytes]", [range(unpacked + more)])  # only how long they are is looked at
    if more:
        with pytest.raises(FileError, match="which no report does"):
            list(within_measure(tmp_path, pieces, packed))
    else:
        assert len(list(within_measure(tmp_path, pieces, packed))) == 1


@at_the_limit
def test_how_many_files_an_archive_may_have(more: int, tmp_path: Path) -> None:
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for i in range(4096 + more):
            packed.writestr(str(i), b"")
    with pytest.raises(FileError, match="more than 4096 files" if more else "an archive without a report"):
        load(path)


@at_the_limit
def test_the_longest_line_of_a_text(more: int, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"x" * (16 * MIB - 1 + more) + b"yz\nlast\n")
    first, last = TextLines(path)
    assert (len(first), first[-1], last) == (16 * MIB, "xy"[not more], "last")


@at_the_limit
def test_the_longest_line_of_folded_stacks(more: int, tmp_path: Path) -> None:
    stack = b"a;" + b"b" * (MIB - 5 + more) + b" 1\n"
    trace = opened(tmp_path, b"a;c 1\n" * 20 + stack)
    assert (len(trace.stacks), len(trace.issues)) == ((1, 1) if more else (2, 0))


@at_the_limit
def test_a_format_is_told_by_the_first_four_kilobytes(more: int, tmp_path: Path) -> None:
    banner, summary = b"========= COMPUTE-SANITIZER", b"\n========= ERROR SUMMARY: 0 errors\n"
    content = b"x" * (4 * KIB - len(banner) - 1 + more) + b"\n" + banner + summary
    if more:
        assert "of no format that llmtop knows" in refused(tmp_path, content)
    else:
        assert opened(tmp_path, content).origin.kind == "compute-sanitizer"


@at_the_limit
def test_a_stream_of_nsys_is_told_by_its_mark(more: int, tmp_path: Path) -> None:
    mark = b"NVIDIA Nsight Systems Stream"
    said = refused(tmp_path, b"\1" * (64 - len(mark) + more) + mark)
    assert ("an unfinished Nsight Systems capture" in said) == (not more)


@pytest.mark.parametrize(("zeros", "is_wide"), [(21, False), (22, True)])
def test_text_of_two_bytes_a_letter_has_a_third_of_them_zero(zeros: int, is_wide: bool) -> None:
    """Of the first 64 bytes: what follows does not count."""
    head = b"a\0" * zeros + b"ab" * (32 - zeros) + (b"ab" if is_wide else b"a\0") * 99
    assert decoded_head(head).startswith("a" * zeros) == is_wide


@at_the_limit
def test_how_many_reports_of_the_sanitizer_are_told(more: int, tmp_path: Path) -> None:
    said = "========= COMPUTE-SANITIZER\n" + "========= Leaked 1 bytes at 0x1\n" * (20_000 + more)
    trace = opened(tmp_path, f"{said}========= ERROR SUMMARY: many\n".encode())
    assert len(trace.sanitizer) == 20_000
    assert [issue.message for issue in trace.issues] == ["more than 20000 reports: the first ones are told"] * more


@at_the_limit
def test_how_many_faults_of_a_core_dump_are_told(more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of sections comes once more behind the file, with the warp that failed in it so many times."""
    monkeypatch.setattr("llmtop.parsers.disassembly.disassemblers", lambda: iter(()))
    dump = gzip.decompress((SAMPLE_TRACES / "cuda-core" / "13.0" / "misaligned-store.nvcudmp.gz").read_bytes())
    (table,), (size, count) = struct.unpack_from("<Q", dump, 40), struct.unpack_from("<HH", dump, 58)
    sections = [dump[table + i * size : table + (i + 1) * size] for i in range(count)]
    for one in sections:
        kind, at = struct.unpack_from("<I", one, 4)[0], struct.unpack_from("<Q", one, 24)[0]
        if kind == 0x8000_000F and any(dump[at + 32 : at + 36]):
            sections += [one] * (255 + more)
            break
    head = dump[:40] + struct.pack("<Q", len(dump)) + dump[48:60] + struct.pack("<H", len(sections)) + dump[62:64]
    trace = opened(tmp_path, head + dump[64:] + b"".join(sections))
    assert (len(trace.faults), len(trace.issues)) == (256, more)


# -- JSON -------------------------------------------------------------------------------------------------------------


class Pieces:
    """A file that gives its pieces one by one, however much is asked for."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = [*pieces]

    def read(self, size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def tell(self) -> int:
        return 0


def reader_of(*pieces: bytes) -> EventReader:
    """All that is read of such a file."""
    reader = EventReader(cast("BinaryIO", Pieces(*pieces)), lambda done: None)
    list(reader)
    return reader


@at_the_limit
@pytest.mark.parametrize("begin", [b'{"name": "', b'{"args": {}, "name": "'], ids=["plain", "behind a brace"])
def test_the_longest_event(begin: bytes, more: int) -> None:
    event = begin + b"x" * (16 * MIB - len(begin) + more)
    reader = reader_of(b'{"traceEvents": [', event)
    assert (reader.broken, reader.left_bytes) == ((1, 0) if more else (0, 16 * MIB))


@at_the_limit
def test_how_far_events_may_begin(more: int) -> None:
    head = b'{"a": "' + b"x" * (64 * MIB - 11 + more) + b'", '
    assert reader_of(head, b'"traceEvents": []}').found == (not more)


@at_the_limit
def test_the_longest_event_that_is_mended(more: int) -> None:
    begin, end = '{"ph": "X", "name": "load "C', '""}'
    event = mended(begin + "x" * (MIB - len(begin + end) + more) + end, DECODER)
    assert (event is None) == bool(more)


@pytest.mark.parametrize(("rank", "told"), [(0, 0), (MIB - 1, MIB - 1), (MIB, None), (-1, None)])
def test_how_many_ranks_there_may_be(rank: int, told: int | None, tmp_path: Path) -> None:
    trace = opened(tmp_path, written(few_events(), distributedInfo={"rank": rank}))
    assert trace.origin.rank == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, 0), (7, 7), ((1 << 62) - 1, (1 << 62) - 1), (1 << 62, -1), (-1, -1), (2.5, -1), ("7", -1), (None, -1)],
)
def test_what_a_kernel_and_a_copy_may_count(value: object, told: int, tmp_path: Path) -> None:
    """Below 0 is what is not told."""
    sizes = {"grid": [value, value, value], "block": [1, 1, value]}
    more = {"registers per thread": value, "shared memory": value, "correlation": value, **sizes}
    on_gpu = {"device": 3, "stream": 7}
    copied = span("gpu_memcpy", "Memcpy DtoH", 9, 1, 0, **on_gpu, bytes=value)
    trace = opened(tmp_path, written([span("kernel", "step", 1, 5, 0, **on_gpu, **more), copied], None))
    table, kernels, copies = trace.kernels, trace.spans["kernel"], trace.spans["memcpy"]
    assert table is not None
    assert (table.registers[0], table.shared_bytes[0], table.grid[0][0], table.grid[2][0]) == (told,) * 4
    assert [sizes[0] for sizes in table.block] == [1, 1, told]
    assert list(kernels.correlation) == [told or -1]
    assert [*copies.amount] == pytest.approx([told if told >= 0 else math.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("device", "stream", "track"),
    [
        (0, 0, "gpu:0"), (3, 7, "gpu:3"), (None, 7, "gpu:0"), (-1, 7, "gpu:0"), (1 << 62, 7, "gpu:0"),
        (3, -1, "gpu:3"), (3, None, "gpu:3"),
    ],
)  # fmt: skip
def test_a_kernel_is_on_the_first_gpu_unless_it_tells_another(
    device: int | None, stream: int | None, track: str, tmp_path: Path
) -> None:
    """And on a stream, unless it says that it is on none."""
    told = {key: value for key, value in (("device", device), ("stream", stream)) if value is not None}
    trace = opened(tmp_path, written([span("kernel", "step", 1, 5, 0, tid=9, correlation=4, **told)], None))
    (on,) = trace.spans["kernel"].tracks
    number = 9 if stream is None else stream
    assert (ids.gpu_of(on), on == track) == (track, number < 0)
    assert [one.name for one in trace.tracks.values() if one.id == on] == [
        "NVIDIA X" if on == "gpu:0" else "GPU 3" if number < 0 else f"stream {number}"
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, 0), ((1 << 62) - 1, float(1 << 62)), (1 << 62, None), (-1, None), (2.5, None), ("7", None)],
)
def test_how_much_memory_may_be_held(value: object, told: float | None, tmp_path: Path) -> None:
    told_first = {"Device Type": 1, "Device Id": -1, "Total Allocated": value, "Total Reserved": value}
    events = [allocator_event(at, args) for at, args in ((1, told_first), (2, told_first | {"Total Allocated": 5}))]
    series = opened(tmp_path, written([*few_events(), *events], None)).series
    assert [one for _, one in series[ids.gpu(0), "torch.allocated"]] == [told, 5]
    assert [one for _, one in series[ids.gpu(0), "torch.reserved"]] == [told, told]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, 0),
        (-5, -5),
        (1 - (1 << 62), -float(1 << 62)),
        (-(1 << 62), 0),
        ((1 << 62) - 1, float(1 << 62)),
        (1 << 62, 0),
    ],
)
def test_how_much_memory_may_be_given_back(value: int, told: float, tmp_path: Path) -> None:
    """What is beyond it counts nothing."""
    event = allocator_event(1, {"Device Type": 0, "Bytes": value})
    series = opened(tmp_path, written([*few_events(), event], None)).series
    assert [one for _, one in series[ids.process(10), "torch.allocated_since_start"]] == [told]


@at_the_limit
def test_how_deep_a_version_is_looked_for(more: int, tmp_path: Path) -> None:
    facts: dict[str, Any] = {"torch": "2.11.0"}
    for _ in range(3 + more):
        facts = {"inside": facts}
    assert opened(tmp_path, written(few_events(), **facts)).origin.tool_version == ("" if more else "2.11.0")


@at_the_limit
def test_how_many_operators_are_looked_at_for_shapes(more: int, tmp_path: Path) -> None:
    events = [span("cpu_op", "aten::mm", 10 * i, 5) for i in range(99 + more)]
    trace = opened(tmp_path, written([*events, span("cpu_op", "aten::mm", 9999, 5, **{"Input Dims": [[1]]})], None))
    assert (trace.why_missing(What("shapes")) is None) == (not more)


@pytest.mark.parametrize(("count", "is_told"), [(2.0**63 - 1024, True), (2.0**63, False), (1e-9, True), (0, False)])
def test_what_bpftrace_may_count(count: float, is_told: bool, tmp_path: Path) -> None:
    told = {"type": "map", "data": {"@x": {"\n    main+1\n": count, "\n    other+1\n": 1}}}
    trace = opened(tmp_path, json.dumps(told).encode())
    assert (("main",) in {stack.frames for stack in trace.stacks}) == is_told


@pytest.mark.parametrize(("digits", "thread"), [(10, "thread:1111111111/1111111111"), (11, "thread:0/0")])
def test_the_longest_pid_of_bpftrace(digits: int, thread: str, tmp_path: Path) -> None:
    told = {"type": "map", "data": {"@x": {f"{'1' * digits},serve,\n    main+1\n": 1}}}
    assert [*opened(tmp_path, json.dumps(told).encode()).tracks] == [thread]


@pytest.mark.parametrize(
    ("pid", "tid", "thread"),
    [
        (0, 0, "thread:0/0"),
        (42, None, "thread:42/1"),
        (-1, -1, "thread:0/1"),
        ((1 << 62) - 1, (1 << 62) - 1, f"thread:{(1 << 62) - 1}/{(1 << 62) - 1}"),
        (1 << 62, 1 << 62, "thread:0/1"),
        ("42", 43.0, "thread:0/1"),
    ],
)
def test_the_longest_pid_of_py_spy(pid: object, tid: object, thread: str, tmp_path: Path) -> None:
    """What is no number of a thread is told by the place in the list."""
    frames: list[dict[str, Any]] = [{"name": "step"}]
    threads = [{"pid": 1, "thread_id": 7, "frames": []}, {"pid": pid, "os_thread_id": tid, "frames": frames}]
    assert [*opened(tmp_path, json.dumps(threads).encode()).tracks] == [thread]


# -- Nsight Systems ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "rank"),
    [
        ("RANK=0", 0), ("RANK=999999", 999_999), ("RANK=1000000", None), ("RANK=-1", None), ("RANK=1.0", None),
        ("RANK=\u00b2", None), ("RANK=", None), ("PMI_RANK=7", 7), ("NO_RANK=7", None),
    ],
)  # fmt: skip
def test_a_rank_is_told_by_up_to_six_digits(variable: str, rank: int | None, tmp_path: Path) -> None:
    made = Capture()
    made.kernel(30, 40, made.call("cudaLaunchKernel", 10, 20))
    path = made.write(tmp_path / "rank.sqlite")
    name, _, value = variable.partition("=")
    told = ("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')
    add_table(path, "META_DATA_CAPTURE", "name:TEXT value:TEXT", told)
    assert load(path).origin.rank == rank


# -- Nsight Compute ---------------------------------------------------------------------------------------------------


@at_the_limit
def test_how_much_a_block_of_a_report_may_claim(more: int, tmp_path: Path) -> None:
    said = ["corrupted", "truncated"][not more]
    header = BlockHeader(payload_size=(1 << 40) + more).SerializeToString()
    assert f"is {said}: " in refused(tmp_path, MAGIC + message(b"") + message(header))
    assert f"is {said}: " in refused(tmp_path, MAGIC + struct.pack("<I", 256 * MIB + more))


@pytest.mark.parametrize(("index", "device"), [(65_535, 65_535), (65_536, -1)])
def test_how_many_gpus_there_may_be(index: int, device: int, tmp_path: Path) -> None:
    session = Session(devices=[Device(index=0, name=b"X"), Device(index=1, name=b"X")])
    data = report(kernel(metrics=[metric(0, uint64=index)]), names=[b"launch__device_id"], session=session)
    kernels = opened(tmp_path, data).kernels
    assert kernels is not None
    assert list(kernels.device) == [device]


def stored(folder: Path, content: bytes, size: int | None = None) -> tuple[ReportFile, Extent]:
    """Bytes in a file, and zeros behind them up to a size."""
    path = folder / "stored"
    path.write_bytes(content)
    with path.open("r+b") as file:
        file.truncate(size or len(content))
    return ReportFile(path), Extent(0, size or len(content))


def leb(number: int, size: int = 0) -> bytes:
    """A number of seven bits a byte, of so many bytes at least."""
    found = b""
    while number > 127 or len(found) + 1 < size:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return leb(number << 3 | 2) + leb(len(content)) + content


@at_the_limit
def test_how_many_fields_a_source_may_have(more: int, tmp_path: Path) -> None:
    fields = stored_fields(*stored(tmp_path, b"\x08\x01" * (65_535 + more)))
    if more:
        with pytest.raises(FileError, match="does not decode"):
            list(fields)
    else:
        assert len(list(fields)) == 65_535


@pytest.mark.parametrize("bytes_each", [1, 9, 10])
def test_numbers_are_of_up_to_ten_bytes(bytes_each: int, tmp_path: Path) -> None:
    stored_bytes = leb(1 << 3, bytes_each) + leb(77, bytes_each)
    (only,) = stored_fields(*stored(tmp_path, stored_bytes))
    assert (only.number, only.value) == (1, 77)


def test_a_number_of_eleven_bytes_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not decode"):
        list(stored_fields(*stored(tmp_path, b"\x08" + leb(77, 11))))


@at_the_limit
def test_how_much_may_be_told_of_what_was_loaded(more: int, tmp_path: Path) -> None:
    """A field that nobody knows, of zeros that are not on the disk."""
    size = 64 * MIB + more
    inside = leb(15 << 3 | 2) + leb(size - 5, 4)
    file, extent = stored(tmp_path, leb(9 << 3 | 2) + leb(size, 4) + inside, size + 5)
    assert len(inside) == 5
    if more:
        with pytest.raises(FileError, match="does not decode"):
            stored_code(file, extent)
    else:
        assert stored_code(file, extent).functions == ()


@at_the_limit
def test_the_longest_name_of_a_source_file(more: int, tmp_path: Path) -> None:
    files = field(1, field(1, b"x" * (64 * KIB + more)) + field(2, b"text"))
    assert len(stored_code(*stored(tmp_path, field(8, files))).files) == (not more)


@at_the_limit
def test_how_many_folders_of_a_path_are_looked_for(more: int, tmp_path: Path) -> None:
    path = tmp_path.joinpath(*"a" * (39 + more), "b.cu")
    path.parent.mkdir(parents=True)
    path.write_text("text")
    found = found_source(f"/build/{path.relative_to(tmp_path)}", [tmp_path], 0)
    assert isinstance(found, Unknown if more else SourceText)


@at_the_limit
def test_the_longest_source_file(more: int, tmp_path: Path) -> None:
    path = tmp_path / "a.cu"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(32 * MIB + more)
    assert isinstance(found_source("a.cu", [tmp_path], 0), Unknown if more else SourceText)
