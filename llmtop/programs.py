"""Programs that llmtop starts: nothing of the current folder runs, nor what another user could have put there.

All are started here, by absolute paths, in the folder "/". What has to start programs elsewhere is listed with its
reason in `tests/test_architecture.py`.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

ALONE = ("-I", "-S")
"""Options of a Python that sees neither the environment, the current folder nor a user's packages."""
_ROOT = str(Path(__file__).resolve().parents[1])
_OWN_PATHS = "import sys; sys.path[:] = sys.argv.pop(1).split(':')\n"
_RUN_MODULE = "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find(name: str, also: Iterable[str] = (), own: Iterable[str] = (), path: str | None = None) -> str | None:
    """The absolute path of a program; None where there is none that can be trusted.

    Args:
        name: Its name alone.
        also: Folders that are searched after the PATH.
        own: Folders of llmtop's own interpreter and packages, searched last: they are trusted as llmtop itself is.
        path: What to search in place of the environment's PATH.
    """
    trusted = filter(is_trusted, _programs(name, (*_split(path), *also)))
    return next(trusted, None) or next(_programs(name, own), None)


def why_none(name: str) -> str:
    """Why a program was not found: the reason alone."""
    untrusted = next((file for file in _programs(name, _split(None)) if not is_trusted(file)), None)
    if untrusted is None:
        return f"{name} is not installed"
    return f"{untrusted} is not run: another user can write it or a folder above (chown root:root, chmod go-w)"


def _split(path: str | None) -> list[str]:
    return (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)


def _programs(name: str, folders: Iterable[str]) -> Iterator[str]:
    for folder in filter(_is_absolute, folders):
        file = Path(folder, name)
        if file.is_file() and os.access(file, os.X_OK):
            yield str(file)


def _is_absolute(path: str) -> bool:
    """Whether a path does not depend on the current folder, as an empty one does too."""
    return path.startswith("/")


@lru_cache(maxsize=256)
def is_trusted(file: str, uid: int | None = None) -> bool:
    """Whether nobody can have put a file or folder there who could not change this user's programs anyway.

    For root: root alone owns and writes it and all folders above, before and after links are followed. Everybody else
    takes what the machine has, except what all users can write.

    Args:
        file: Its absolute path.
        uid: Who asks; by default who runs llmtop.
    """
    uid = os.geteuid() if uid is None else uid
    real = Path(os.path.realpath(file))
    parts = {real, *real.parents}
    for folder in Path(file).parents:
        resolved = Path(os.path.realpath(folder))
        parts |= {resolved, *resolved.parents}
    try:
        return not any(_is_others(part.stat(), uid) for part in parts)
    except OSError:
        return False


def _is_others(state: os.stat_result, uid: int) -> bool:
    """Whether another user can change a file, or what a folder holds: in a sticky one only owners can (unlink(2))."""
    is_sticky = stat.S_ISDIR(state.st_mode) and bool(state.st_mode & stat.S_ISVTX)
    if uid != 0:
        return bool(state.st_mode & stat.S_IWOTH) and not is_sticky
    mask = stat.S_IWOTH if state.st_gid == 0 else _OTHERS_WRITE
    return state.st_uid != 0 or (bool(state.st_mode & mask) and not is_sticky)


def environment(**more: str) -> dict[str, str]:
    """The environment of what llmtop starts: its own, with a PATH of folders that are trusted."""
    folders = [folder for folder in _split(None) if _is_absolute(folder) and is_trusted(folder)]
    return {**os.environ, "PATH": os.pathsep.join(folders), **more}


def python(code: str, *arguments: str) -> list[str]:
    """The command line of a Python program that sees what this very llmtop sees, and nothing of the current folder."""
    current = os.path.realpath(os.curdir)
    paths = [path for path in sys.path if _is_absolute(path) and os.path.realpath(path) != current]
    return [sys.executable, *ALONE, "-c", _OWN_PATHS + code, ":".join([_ROOT, *paths]), *arguments]


def module(name: str, *arguments: str) -> list[str]:
    """The command line that runs a module, by its full name."""
    return python(_RUN_MODULE, name, *arguments)


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a program by its absolute path, with the options of subprocess.Popen.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.Popen(_absolute(command), **_settled(options))


def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Start a program by its absolute path and wait for it, with the options of subprocess.run.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.run(_absolute(command), **_settled(options))


def _absolute(command: Sequence[str]) -> list[str]:
    if not _is_absolute(command[0]):
        raise FileNotFoundError(f"{command[0]} is no absolute path")
    return list(command)


def _settled(options: dict[str, Any]) -> dict[str, Any]:
    return {"cwd": "/", "env": environment(), **options}
