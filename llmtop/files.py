"""Files that llmtop writes: whole or not at all, for their owner's eyes only, and never through a link.

And the folders of its own, which nobody else may have prepared: those of what it remembers.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_STREAMS = ("/dev/", "/proc/self/fd/")
"""What a shell names its pipes by: no link there is anybody else's."""
_MOST_READ = 16 << 20


def new_stem(what: str = "") -> Path:
    """Where a file goes that a key writes now, without its ending: what it is of, if anything, and when it was written.

    Raises:
        OSError: There is no such folder, and none can be made.
    """
    folder = Path(os.environ.get("LLMTOP_SCREENSHOTS") or Path.home())
    folder.mkdir(parents=True, exist_ok=True)
    words = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in what.lower()).split()
    stem = "-".join(["llmtop", *words, f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"])
    taken = {name.partition(".")[0] for name in (one.name for one in folder.iterdir())}
    return folder / next(name for name in (stem, *(f"{stem}-{i}" for i in range(2, 1000))) if name not in taken)


def own_folder(path: Path) -> Path:
    """A folder that is this user's alone, made where it is not there.

    Raises:
        OSError: It cannot be made, or another user could have prepared it or take it away: sudo that keeps HOME.
    """
    _refuse_others(next(one for one in (path, *path.parents) if one.exists()))  # before anything is made there
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_others(path)
    return path


def _refuse_others(path: Path) -> None:
    real = path.resolve()
    for folder in (path, *path.parents, real, *real.parents):
        state = folder.lstat()
        is_open = state.st_mode & stat.S_IWOTH and not (state.st_mode & stat.S_ISVTX or stat.S_ISLNK(state.st_mode))
        if state.st_uid not in (os.geteuid(), 0) or is_open:
            why = "it is not this user's alone: set HOME, XDG_STATE_HOME and XDG_CACHE_HOME to folders that are"
            raise PermissionError(errno.EACCES, why, str(folder))


def read_own(path: Path) -> bytes:
    """What llmtop has kept in a file.

    Raises:
        OSError: There is none, or what is there is not this user's, or no regular file.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as opened:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_uid not in (os.geteuid(), 0):
            raise PermissionError(errno.EACCES, "it is no file of this user's", str(path))
        return opened.read(_MOST_READ)


@contextmanager
def whole_file(path: Path, *, is_new: bool = False) -> Iterator[BinaryIO]:
    """A file to write, which stands under its name once it is whole; a pipe or a device is written as it is.

    Args:
        path: Where it goes. A link there is replaced, not followed.
        is_new: Nothing that is there is replaced.

    Raises:
        OSError: It cannot be written: nothing of it is left.
    """
    if not is_new and _is_stream(path):
        with path.open("wb") as stream:
            yield stream
        return
    folder = os.open(path.parent, _FOLDER)
    name = path.name if is_new else f".llmtop-{secrets.token_hex(8)}"
    try:
        file = os.open(name, _NEW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(file, "wb") as opened:
                yield opened
            if not is_new:
                os.rename(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def _is_stream(path: Path) -> bool:
    with suppress(OSError):
        kind = stat.S_IFMT(path.stat(follow_symlinks=str(path.absolute()).startswith(_STREAMS)).st_mode)
        return kind in (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK)
    return False


def write_whole(texts: Mapping[Path, str | Iterable[str]], *, is_new: bool = False) -> None:
    """Write files, all of them whole: on a full disk nothing of them is left.

    Raises:
        OSError: One could not be written.
    """
    with ExitStack() as stack:
        for path, text in texts.items():
            file = stack.enter_context(whole_file(path, is_new=is_new))
            for part in (text,) if isinstance(text, str) else text:
                file.write(part.encode("utf-8"))
            file.flush()
