"""Archives of reports: .zip and .tar, the latter compressed as any report may be. They are told by content.

A report in one is named as a file in a folder is: `run.zip/rank0.sqlite`. Nothing but what is asked for is taken out,
into a private temporary directory that is gone as soon as it has been read.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from llmtop.errors import FileError
from llmtop.parsers.base import HEAD_BYTES
from llmtop.parsers.compressed import within_measure
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import IO, TypeAlias

    Opener: TypeAlias = Callable[[], IO[bytes] | None]

MOST_FILES: Final = 4096
"""More than any run leaves, few enough to look at each."""
_PIECE = 1 << 20
_SHOWN = 5
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TAR, _TAR_AT = b"ustar", 257


def is_archive(head: bytes) -> bool:
    """Whether a file that begins so is one."""
    return head.startswith(_ZIP) or head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR


def place_in(path: Path) -> tuple[Path, str] | None:
    """The archive that a path leads into, and the name there; None of any other path.

    Only a file that is no folder can be one: `run.zip/rank0.sqlite`.
    """
    try:
        above = next((above for above in path.parents if above.exists()), None)
        return None if above is None or not above.is_file() else (above, path.relative_to(above).as_posix())
    except OSError:
        return None  # why it cannot be looked at is said by who opens it


def names(archive: Path, plain: Path, is_wanted: Callable[[bytes, str], bool]) -> list[str]:
    """The files of an archive that are wanted, by how they begin and their names, in its order.

    Args:
        archive: As it was given, for messages.
        plain: The same, unpacked if it was compressed.
        is_wanted: Is asked of each file that is no link and not hidden.

    Raises:
        FileError: It is damaged, has a password, or has too many files.
    """
    with _read(archive, plain) as openers:
        return [name for name, opener in openers.items() if is_wanted(_head(opener), name)]


def take_out(archive: Path, plain: Path, name: str, folder: Path) -> Path:
    """Unpack one file of an archive into a folder.

    Raises:
        FileError: There is none of this name, it is damaged, or it grows without measure.
    """
    with _read(archive, plain) as openers:
        if name not in openers:
            raise FileError(f"{archive} has no file {name}; it has {_some(openers)}")
        target = folder / PurePosixPath(name).name
        with openers[name]() or BytesIO() as source, target.open("wb") as file:
            pieces = iter(partial(source.read, _PIECE), b"")
            file.writelines(within_measure(archive / name, pieces, plain.stat().st_size))
        return target


def _some(openers: Mapping[str, Opener]) -> str:
    shown = ", ".join(list(openers)[:_SHOWN])
    return f"{shown} ..." if len(openers) > _SHOWN else shown or "none"


@contextmanager
def _read(archive: Path, plain: Path) -> Iterator[Mapping[str, Opener]]:
    """What opens each file of an archive, by its name."""
    from llmtop.parsers.packed_files import DAMAGE, packed_files  # loaded for archives alone: most files are none

    try:
        with packed_files(plain, MOST_FILES) as openers:
            yield _checked(archive, openers)
    except DAMAGE as error:
        raise FileError(
            f"{archive} cannot be unpacked: {clean(str(error))}; unpack it and open what is in it"
        ) from error


def _checked(archive: Path, openers: Mapping[str, Opener]) -> dict[str, Opener]:
    if len(openers) > MOST_FILES:
        raise FileError(f"{archive} has more than {MOST_FILES} files: unpack it and open those of interest")
    paths = {PurePosixPath(name): opener for name, opener in openers.items()}
    return {path.as_posix(): opener for path, opener in paths.items() if path.name and not path.name.startswith(".")}


def _head(opener: Opener) -> bytes:
    with opener() or BytesIO() as file:
        return file.read(HEAD_BYTES)
