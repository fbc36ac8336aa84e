"""Files that came compressed: .xz, .gz and .zst of anything llmtop reads, told by content.

Unpacking goes to a private temporary directory that is gone as soon as the parser returns: nothing is written
beside the input. Readers that stay lazy keep their file open, which outlives its name.
"""

from __future__ import annotations

import lzma
import sys
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from llmtop.errors import FileError
from llmtop.frozen import frozen
from llmtop.parsers.base import HEAD_BYTES
from llmtop.parsers.progress import tell
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO, TypeAlias

    Look: TypeAlias = Callable[[bytes, Path], object]
    ReadsCutFile: TypeAlias = Callable[[Path], bool]

MAX_UNPACKED = 8 << 30
"""Larger than any report seen (4 GiB traces exist), small enough that a bomb ends in a sentence."""
MAX_RATIO = 500
"""Reports shrink by 5 to 50 times; only padding shrinks by more than this."""
RATIO_FROM = 64 << 20
"""Below this size the ratio does not matter."""
_STEP = 4096
"""Compressed bytes fed at once: what one step can grow to (128 MiB at worst, zstd) bounds the memory used."""


class _Stream(Protocol):
    """One compressed stream; a file may hold several, one after the other."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _zstd_stream() -> _Stream:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdDecompressor

        return ZstdDecompressor()
    import zstandard

    stream: _Stream = zstandard.ZstdDecompressor().decompressobj()
    return stream


def _zstd_error() -> type[Exception]:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdError

        return ZstdError
    import zstandard

    error: type[Exception] = zstandard.ZstdError
    return error


@frozen
class Compression:
    """One way to compress: how it is told, opened, and what its library raises on damage."""

    name: str
    suffix: str
    magic: bytes
    stream: Callable[[], _Stream]
    error: Callable[[], type[Exception]]


COMPRESSIONS = (
    Compression("xz", ".xz", b"\xfd7zXZ\x00", lzma.LZMADecompressor, lambda: lzma.LZMAError),
    Compression("gzip", ".gz", b"\x1f\x8b\x08", lambda: zlib.decompressobj(wbits=31), lambda: zlib.error),
    Compression("zstd", ".zst", b"\x28\xb5\x2f\xfd", _zstd_stream, _zstd_error),
)


def compression_of(head: bytes) -> Compression | None:
    """How a file that starts with `head` is compressed; None when it is not."""
    return next((kind for kind in COMPRESSIONS if head.startswith(kind.magic)), None)


@contextmanager
def unpacked(
    path: Path, kind: Compression, look: Look | None = None, is_readable_cut: ReadsCutFile | None = None
) -> Iterator[Path]:
    """Unpack `path` for as long as the block lasts.

    Args:
        path: The file.
        kind: How it is compressed.
        look: Gets the first `HEAD_BYTES` and where the rest is going to be, before all of it is unpacked; what it
            raises ends the work.
        is_readable_cut: Whether what was unpacked of a truncated stream is of use, as of a program that was killed
            while it wrote; without it, or where it says no, a truncated stream is an error.

    Raises:
        FileError: The stream is truncated or corrupted, grows without measure, does not fit on the disk, or is wanted
            no more.
    """
    with private_folder(path) as folder:
        plain = folder / (path.name.removesuffix(kind.suffix) or "unpacked")
        with path.open("rb") as source:
            is_whole = _copy(path, kind, source, plain, look)
        if not is_whole and not (is_readable_cut and plain.stat().st_size and is_readable_cut(plain)):
            raise FileError(f"{path} is truncated: its {kind.name} stream stops before the end; copy the file again")
        yield plain


@contextmanager
def private_folder(path: Path) -> Iterator[Path]:
    """Where a file is unpacked into, for as long as the block lasts.

    Raises:
        FileError: There is no place for it.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="llmtop-")
    except OSError as error:
        raise FileError(f"{path} cannot be unpacked: {error.strerror}; set TMPDIR to a writable place") from error
    with folder as name:
        yield Path(name)


def within_measure(path: Path, pieces: Iterable[bytes], packed_bytes: int) -> Iterator[bytes]:
    """What is unpacked, piece by piece, as long as it is no more than reports come to.

    Raises:
        FileError: It is a bomb, or of a size that nobody wrote before.
    """
    written = 0
    for piece in pieces:
        written += len(piece)
        if written > MAX_UNPACKED or (written > RATIO_FROM and written > MAX_RATIO * packed_bytes):
            raise FileError(
                f"{path} unpacks to more than {binary_bytes(written)} from {binary_bytes(packed_bytes)}, which"
                " no report does; if you trust it, unpack it yourself and open the result"
            )
        yield piece


def _copy(path: Path, kind: Compression, source: BinaryIO, plain: Path, look: Look | None) -> bool:
    """Unpack all streams of `source` into `plain`, watching the size; returns whether the last one has its end."""
    packed_size = path.stat().st_size
    head = b""
    try:
        with plain.open("wb") as target:
            for piece in within_measure(path, _pieces(kind, source), packed_size):
                if look is not None and len(head) < HEAD_BYTES:
                    head += piece[:HEAD_BYTES]
                    if len(head) >= HEAD_BYTES:
                        look(head[:HEAD_BYTES], plain)
                target.write(piece)
                tell(path, "unpacking", source.tell(), packed_size)
    except EOFError:
        return False
    except kind.error() as error:
        raise FileError(f"{path} is corrupted: {kind.name} says: {error}; copy the file again") from error
    except OSError as error:
        raise FileError(
            f"{path} cannot be unpacked into {plain.parent}: {error.strerror}; set TMPDIR to a place with room"
        ) from error
    return True


def _pieces(kind: Compression, source: BinaryIO) -> Iterator[bytes]:
    """The unpacked bytes, piece by piece.

    Raises:
        EOFError: The last stream has no end.
    """
    stream = kind.stream()
    rest = b""
    while data := rest or source.read(_STEP):
        rest = b""
        if stream.eof:
            data = data.lstrip(b"\0")  # zeros may pad streams (xz format 2.2); anything else starts another one
            if not data:
                continue
            stream = kind.stream()
        yield stream.decompress(data)
        rest = stream.unused_data
    if not stream.eof:
        raise EOFError
