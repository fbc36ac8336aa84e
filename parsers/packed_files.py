"""The files in a .zip or a .tar: what `archives` loads once there is one."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from llmtop.parsers.archives import Opener

DAMAGE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError),
    *(NotImplementedError, RuntimeError, ValueError, OSError),
)
"""What the libraries raise of a damaged archive, of one with a password, and of ways to compress that they lack."""


@contextmanager
def packed_files(archive: Path, most: int) -> Iterator[Mapping[str, Opener]]:
    """What opens each file of an archive, by its name; of a .tar with more than `most`, one more than these."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            files = [info.filename for info in packed.infolist() if not info.is_dir()]
            yield {name: partial(packed.open, name) for name in files}
    else:
        with tarfile.open(archive, "r:") as taken:
            infos = [info for info in islice(taken, most + 1) if info.isfile()]
            yield {info.name: partial(taken.extractfile, info) for info in infos}
