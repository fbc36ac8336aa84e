"""Compressed reports: unpacked by content, bounded, and gone afterwards."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.errors import FileError
from llmtop.parsers import compressed
from llmtop.parsers.compressed import compression_of, unpacked
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import kernel, report

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = b"".join(b"line %d of something that shrinks\n" % i for i in range(20_000))


def zstd(data: bytes) -> bytes:
    zstandard = pytest.importorskip("zstandard", reason="needs the package zstandard to make .zst files")
    packed: bytes = zstandard.ZstdCompressor().compress(data)
    return packed


PACKERS: dict[str, Callable[[bytes], bytes]] = {"xz": lzma.compress, "gzip": gzip.compress, "zstd": zstd}


@pytest.fixture(params=PACKERS)
def pack(request: pytest.FixtureRequest) -> Callable[[bytes], bytes]:
    return PACKERS[request.param]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A name that says nothing about the content."""
    (tmp_path / "in").mkdir()
    return tmp_path / "in" / "something"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def unpack(path: Path) -> bytes:
    kind = compression_of(path.read_bytes()[:16])
    assert kind is not None
    with unpacked(path, kind) as plain:
        return plain.read_bytes()


def test_content_comes_back_and_nothing_stays(pack: Callable[[bytes], bytes], packed: Path, temporary: Path) -> None:
    packed.write_bytes(pack(CONTENT))
    assert unpack(packed) == CONTENT
    assert list(temporary.iterdir()) == []
    assert list(packed.parent.iterdir()) == [packed]


def test_streams_one_after_the_other_are_one(pack: Callable[[bytes], bytes], packed: Path) -> None:
    packed.write_bytes(pack(CONTENT) + pack(b"") + pack(b"the end"))
    assert unpack(packed) == CONTENT + b"the end"


@pytest.mark.parametrize("name", ["xz", "gzip"])
def test_padding_is_no_content(packed: Path, name: str) -> None:
    packed.write_bytes(PACKERS[name](CONTENT) + bytes(10_000))
    assert unpack(packed) == CONTENT


def test_every_cut_is_truncation(pack: Callable[[bytes], bytes], packed: Path) -> None:
    data = pack(CONTENT[:5000])
    for size in range(20, len(data)):
        packed.write_bytes(data[:size])
        with pytest.raises(FileError, match=f"{packed} is truncated: its .* stream stops before the end"):
            unpack(packed)


def test_of_a_cut_trace_the_events_before_the_cut_are_read(
    pack: Callable[[bytes], bytes], packed: Path, temporary: Path
) -> None:
    """As of a profiler that was killed while it wrote: the stream has no end, and what it holds has none either."""
    noise = os.urandom(200_000).hex()  # does not shrink, so that the cut is within it
    events = b'{"traceEvents": [{"ph": "X", "name": "first", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.0},\n'
    last = b'{"ph": "X", "name": "%s", "pid": 1, "tid": 1, "ts": 5.5, "dur": 2.0}]}' % noise.encode()
    data = pack(events + last)
    packed.write_bytes(data[: len(data) * 9 // 10])
    trace = load(packed)
    assert sum(map(len, trace.spans.values())) == 1
    (cut,) = (issue for issue in trace.issues if issue.code == "kineto-cut")
    assert "the 1 spans that are whole are shown, what there is of another" in cut.message
    assert list(temporary.iterdir()) == []


def test_a_cut_stream_of_what_is_read_whole_or_not_at_all_is_truncation(
    pack: Callable[[bytes], bytes], packed: Path
) -> None:
    data = pack(report(*(kernel(os.urandom(1000).hex().encode()) for _ in range(200))))
    packed.write_bytes(data[: len(data) * 9 // 10])
    with pytest.raises(FileError, match=f"{packed} is truncated: its .* stream stops before the end"):
        load(packed)


def test_damage_is_corruption(pack: Callable[[bytes], bytes], packed: Path) -> None:
    packed.write_bytes(pack(CONTENT) + b"this is no stream")
    with pytest.raises(FileError, match=f"{packed} is corrupted: .* says: "):
        unpack(packed)


@given(position=st.integers(6, 10**6), byte=st.integers(0, 255))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changed_bytes_never_crash(
    pack: Callable[[bytes], bytes], packed: Path, temporary: Path, position: int, byte: int
) -> None:
    data = bytearray(pack(CONTENT[:3000]))
    data[position % (len(data) - 6) + 6] = byte
    packed.write_bytes(data)
    try:
        unpack(packed)
    except FileError as error:
        refusal = str(error)
        assert "\n" not in refusal
    assert list(temporary.iterdir()) == []


def test_bomb_is_refused_early(
    pack: Callable[[bytes], bytes], packed: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "RATIO_FROM", 1 << 20)
    packed.write_bytes(pack(bytes(32 << 20)))
    with pytest.raises(FileError, match="which no report does; if you trust it, unpack it yourself"):
        unpack(packed)
    assert list(temporary.iterdir()) == []


def test_size_is_bounded_whatever_the_ratio(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "MAX_UNPACKED", 1 << 16)
    packed.write_bytes(lzma.compress(os.urandom(1 << 17)))
    with pytest.raises(FileError, match="unpacks to more than"):
        unpack(packed)


def test_full_disk_is_named(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed.write_bytes(lzma.compress(CONTENT))
    opening = Path.open

    def full(self: Path, mode: str = "r", *arguments: Any) -> Any:
        if mode == "wb":
            raise OSError(errno.ENOSPC, "No space left on device")
        return opening(self, mode, *arguments)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(FileError, match=r"cannot be unpacked into .*: No space left on device; set TMPDIR"):
        unpack(packed)


def test_no_temporary_directory_is_named(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed.write_bytes(lzma.compress(CONTENT))
    monkeypatch.setattr(tempfile, "tempdir", str(packed.parent / "missing"))
    with pytest.raises(FileError, match="cannot be unpacked: No such file or directory; set TMPDIR"):
        unpack(packed)


def test_report_opens_packed_under_any_name(pack: Callable[[bytes], bytes], packed: Path, temporary: Path) -> None:
    packed.write_bytes(pack(report(kernel(b"first"))))
    trace = load(packed)
    assert trace.kernels is not None
    assert trace.kernels.functions == ("first",)
    assert trace.origin.path == str(packed)
    assert trace.kernels.details is not None
    assert trace.kernels.details.sections(0) == ()
    assert list(temporary.iterdir()) == []


def test_message_about_packed_content_names_the_packed_file(packed: Path) -> None:
    packed.write_bytes(lzma.compress(report(kernel())[:-3]))
    with pytest.raises(FileError, match=f"^{packed} is truncated: block 1 of the chain needs 3 B past"):
        load(packed)


def test_other_files_are_not_compressed() -> None:
    assert compression_of(b"NVR\0") is None
    assert compression_of(b"") is None
