"""Damaged reports: a sentence that says what is wrong, or a trace, and nothing else ever."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.errors import FileError
from llmtop.parsers.ncu_rep import MAGIC
from llmtop.parsers.ncu_rep.container import ReportFile, read_blocks
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import BlockHeader, Launch
from llmtop.parsers.ncu_rep.reader import read_report
from tests.parsers.sample_reports import LADDER, content, kernel, message, metric, ncu_reports, report

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace

FILE_HEADER = MAGIC + message(b"\x08\x07")
DAMAGE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "damaged.ncu-rep"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Two real kernels with their rules and ranges, cut to some 60 metrics so that many can be tried."""
    plain = tmp_path_factory.mktemp("small") / "ladder.ncu-rep"
    plain.write_bytes(content(LADDER))
    file = ReportFile(plain)
    blocks = list(read_blocks(file))
    names = [name for block in blocks for name in block.header.strings.items]
    launches = [Launch.FromString(file.read(extent)) for block in blocks for extent in block.kernels][:2]
    for launch in launches:
        del launch.metrics[60:]
        del launch.sections[3:]
        for measured in launch.metrics:
            del measured.instances[5:]
        for part in (*launch.sections, *launch.rules):
            part.DiscardUnknownFields()
    session = next(block.header.session for block in blocks if block.header.session.devices)
    return report(*launches, names=names[:200], session=session)


def read_everything(path: Path) -> Trace | None:
    """Read a report and all details of all kernels; None when it is refused in one line."""
    try:
        trace = read_report(path)
        read_details(trace)
    except FileError as error:
        refusal = str(error)
    else:
        return trace
    assert str(path) in refusal
    assert "\n" not in refusal
    return None


def read_details(trace: Trace) -> None:
    assert trace.kernels is not None
    details = trace.kernels.details
    assert details is not None
    for i in range(len(trace.kernels)):
        trace.kernels.name(i)
        details.ranges(i)
        details.sections(i)
        details.rules(i)
        for name in details.metrics(i):
            details.instances(i, name)


def test_the_small_report_is_whole(small: bytes, target: Path) -> None:
    target.write_bytes(small)
    trace = read_everything(target)
    assert trace is not None
    assert trace.kernels is not None
    assert len(trace.kernels) == 2
    assert len(small) < 100_000


def test_every_cut_is_noticed(small: bytes, target: Path) -> None:
    target.write_bytes(small)
    # A chain that ends with a kernel is a whole, shorter report.
    whole = {extent.end for block in read_blocks(ReportFile(target)) for extent in block.kernels}
    for size in {*range(60), *range(60, len(small), len(small) // 300)} - whole:
        target.write_bytes(small[:size])
        with pytest.raises(FileError, match=r"is truncated|does not start with NVR|holds no kernels"):
            read_report(target)


def test_truncation_names_the_block_and_what_is_lacking(target: Path) -> None:
    data = report(kernel(b"a"), kernel(b"b" * 3000))
    target.write_bytes(data[:-2048])
    with pytest.raises(FileError) as caught:
        read_report(target)
    assert str(caught.value) == (
        f"{target} is truncated: block 2 of the chain needs 2.00 KiB past the end of the file; copy it again"
    )


@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8))
@DAMAGE
def test_changed_bytes_never_crash(small: bytes, target: Path, changes: list[tuple[int, int]]) -> None:
    data = bytearray(small)
    for position, byte in changes:
        data[position % len(data)] = byte
    target.write_bytes(data)
    read_everything(target)


@given(tail=st.binary(max_size=300))
@DAMAGE
def test_garbage_behind_the_magic_never_crashes(target: Path, tail: bytes) -> None:
    target.write_bytes(FILE_HEADER + tail)
    read_everything(target)


@given(header=st.binary(max_size=60), payload=st.binary(max_size=200))
@DAMAGE
def test_garbage_in_a_kernel_never_crashes(target: Path, header: bytes, payload: bytes) -> None:
    entry = message(payload)
    block = BlockHeader(num_results=1, payload_size=len(entry)).SerializeToString()
    target.write_bytes(FILE_HEADER + message(header) + message(block) + entry)
    read_everything(target)


@pytest.mark.parametrize("start", [0.1, 0.5, 0.7])
def test_lost_page_inside_a_kernel_is_named(tmp_path: Path, start: float) -> None:
    data = bytearray(content(LADDER))
    path = tmp_path / "lost.ncu-rep"
    position = int(len(data) * start)
    data[position : position + 4096] = bytes(4096)
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"is corrupted: kernel \d of 5, at byte \d+, does not decode; copy it again"):
        read_report(path)


@pytest.mark.parametrize(
    ("block", "payload", "complaint"),
    [
        (BlockHeader(num_results=2), message(b""), "entry 1 of block 0, at byte .* does not fit into the block"),
        (BlockHeader(num_results=1), message(b"") + b"xyz", "the entries of block 0 leave 3 bytes of it over"),
        (BlockHeader(num_sources=1), struct.pack("<I", 99) + b"elf", "entry 0 of block 0, .* does not fit"),
        (BlockHeader(num_results=4_000_000_000), b"", "entry 0 of block 0, .* does not fit"),
    ],
)
def test_framing_inside_a_block_is_checked(target: Path, block: BlockHeader, payload: bytes, complaint: str) -> None:
    block.payload_size = len(payload)
    target.write_bytes(FILE_HEADER + message(block.SerializeToString()) + payload)
    with pytest.raises(FileError, match=f"is corrupted: {complaint}"):
        read_report(target)


def test_header_that_does_not_decode_is_named(target: Path) -> None:
    target.write_bytes(FILE_HEADER + message(b"\x08\x00") + message(b"\xff\xff\xff"))
    with pytest.raises(FileError, match="is corrupted: the header of block 1, at byte 20, does not decode"):
        read_report(target)


def test_absurd_lengths_are_corruption(target: Path) -> None:
    target.write_bytes(FILE_HEADER + b"\xff\xff\xff\xff")
    with pytest.raises(FileError, match=r"is corrupted: the header of block 0 claims 4.00 GiB"):
        read_report(target)
    target.write_bytes(FILE_HEADER + message(BlockHeader(payload_size=1 << 62).SerializeToString()))
    with pytest.raises(FileError, match=r"is corrupted: block 0 claims 4096 PiB"):
        read_report(target)


@pytest.mark.parametrize("source", ncu_reports(), ids=lambda path: path.name)
def test_every_report_cut_short_is_refused(source: Path, target: Path) -> None:
    data = content(source)
    target.write_bytes(data)
    for tenth in (9, 5, 1):
        with target.open("r+b") as file:
            file.truncate(len(data) * tenth // 10)
        with pytest.raises(FileError, match="is truncated"):
            read_report(target)


@pytest.mark.parametrize("source", [path for path in ncu_reports() if path.suffix != ".xz"], ids=lambda path: path.name)
def test_every_report_survives_changed_bytes(source: Path, target: Path) -> None:
    data = bytearray(content(source))
    for step in range(6):
        position = len(data) * (2 * step + 1) // 12
        before = data[position]
        data[position] ^= 0xFF
        target.write_bytes(data)
        read_everything(target)
        data[position] = before


def test_metric_values_of_the_wrong_kind_are_no_numbers(target: Path) -> None:
    launch = kernel(metrics=[metric(0, text=b"fast"), metric(1, uint64=2**63)])
    target.write_bytes(report(launch, names=[b"gpu__time_duration.sum", b"device__attribute_device_index"]))
    trace = read_everything(target)
    assert trace is not None
    assert trace.kernels is not None
    assert math.isnan(trace.kernels.duration_ns[0])
    assert trace.kernels.device[0] == -1
