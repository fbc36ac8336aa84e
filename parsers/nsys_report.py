"""Nsight Systems reports (`.nsys-rep`, `.qdrep`): only nsys can read them, so it makes an export of them.

An export beside the report is taken, where it is not older. Else the newest nsys that is found makes one, in the user's
cache directory: nothing is written beside a report.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from llmtop import programs
from llmtop.errors import FileError
from llmtop.files import own_folder
from llmtop.frozen import frozen
from llmtop.parsers import progress
from llmtop.text import clean
from llmtop.units import binary_bytes

_HEADER = re.compile(rb"NVIDIA Tegra Profiler Report (\d+(?:@\d+)*)")
_VERSION = re.compile(r"(?:[Vv]ersion\D{0,3})(\d+(?:\.\d+)+)")
_PLACES = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "opt/nvidia/nsight-systems*/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/lib/nsight-systems/bin/nsys",
    "usr/lib/*/nsight-systems/target-linux-*/nsys",
)
"""Where NVIDIA's packages and those of Debian put it, below the root."""
_NEWEST_OF_ONE_FORM = "2023.3"
"""Up to this version reports do not tell which one wrote them."""
LARGEST = 16 << 30
"""Bytes that the exports in the cache have together; the oldest go first, and none grows beyond it."""
_SPARE = 256 << 20
"""Bytes of the disk that are left to others."""
_VERSION_S = 10.0
SILENT_S = 120.0
"""A program that says and writes nothing for so long hangs."""
_LOOK_S = 0.2
_TOLD = 4096
"""Bytes of what it said last: the reason where it fails."""
_SAMPLE = 1 << 20
"""Bytes of the report's beginning and of its end that tell it from others of the same size."""
Version: TypeAlias = tuple[int, ...]


@frozen
class NsysProgram:
    """An nsys that was found."""

    path: str
    version: Version


def beside(path: Path) -> Path | None:
    """The export that lies beside a report; None where there is none, or an older one."""
    export = path.with_suffix(".sqlite")
    try:
        return export if export.is_file() and export.stat().st_mtime >= path.stat().st_mtime else None
    except OSError:
        return None


def exported(path: Path) -> Path:
    """An export in the cache, made anew where there is none.

    Raises:
        FileError: No nsys here can make one: the message says which is needed, and the command.
    """
    cached = _folder() / f"{_key(path)}.sqlite"
    with suppress(OSError):  # a folder of another user's is reported where something is to be written
        if cached.exists() and own_folder(cached.parent):
            os.utime(cached, follow_symlinks=False)  # the least used ones go first
            return cached
    program = _program_for(path)
    with _draft(path, cached) as draft:
        _export(program, path, draft)
    return cached


def _key(path: Path) -> str:
    """Names the content of a report."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        digest = hashlib.sha256(file.read(_SAMPLE))
        file.seek(max(0, size - _SAMPLE))
        digest.update(file.read())
    return f"{digest.hexdigest()[:24]}-{size}"


def _folder() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if chosen.startswith("/") else Path.home() / ".cache") / "llmtop" / "nsys"


# -- which nsys ------------------------------------------------------------------------------------------------------


def written_by(head: bytes) -> Version:
    """The version that wrote a report, by its first bytes; empty where they do not tell.

    >>> written_by(b"NVIDIA Tegra Profiler Report 2025@5@2@266-255236693005v0")
    (2025, 5, 2, 266)
    >>> written_by(b"NVIDIA Tegra Profiler Report 1.")
    ()
    """
    match = _HEADER.match(head)
    version = _numbers(match[1].decode().replace("@", ".")) if match else ()
    return version if len(version) > 1 else ()


def _numbers(text: str) -> Version:
    return tuple(map(int, text.split(".")))


def _written(version: Version) -> str:
    return ".".join(map(str, version))


def _program_for(path: Path) -> NsysProgram:
    """The newest nsys here, if it is new enough."""
    with path.open("rb") as file:
        needed = written_by(file.read(64))
    found = max(_programs(), key=lambda one: one.version, default=None)
    if found is not None and found.version[: len(needed)] >= needed[: len(found.version)]:
        return found
    which = f"nsys {_written(needed[:3])}" if needed else f"the nsys that wrote it ({_NEWEST_OF_ONE_FORM} at most)"
    here = f"the newest here is {_written(found.version)}" if found is not None else clean(programs.why_none("nsys"))
    raise FileError(
        f"{path} is an Nsight Systems report, which only nsys can read: it takes {which} or a newer one, and {here}; "
        f"where there is one, run {_command(path)} and open the result"
    )


def _command(path: Path) -> str:
    return f"`nsys export --type sqlite {shlex.quote(clean(path.name))}`"


def _programs() -> Iterator[NsysProgram]:
    on_path = programs.find("nsys")
    installed = (str(found) for place in _PLACES for found in sorted(Path("/").glob(place)))
    places = [*([on_path] if on_path else []), *filter(programs.is_trusted, installed)]
    for name in dict.fromkeys(map(os.path.realpath, places)):
        version = _version_of(name)
        if version:
            yield NsysProgram(name, version)


def _version_of(program: str) -> Version:
    try:
        said = programs.run(
            [program, "--version"], capture_output=True, timeout=_VERSION_S, stdin=subprocess.DEVNULL, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    match = _VERSION.search(said[:_TOLD].decode("utf-8", "replace"))
    return _numbers(match[1]) if match else ()


# -- its work --------------------------------------------------------------------------------------------------------


@contextmanager
def _draft(report: Path, target: Path) -> Iterator[Path]:
    """A file beside the target that becomes it once it is whole; what is there of it goes otherwise."""
    draft = target.with_name(f"{os.getpid()}-{target.name}.part")
    try:
        own_folder(target.parent)
        _make_room(target.parent, LARGEST - report.stat().st_size)
        yield draft
        draft.replace(target)
        _make_room(target.parent, LARGEST, spared=target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(
            f"{report} cannot be exported into {target.parent}: {reason}; set XDG_CACHE_HOME to a place with room"
        ) from error
    finally:
        for rest in draft.parent.glob(f"{draft.name}*"):  # with the journals of SQLite
            rest.unlink(missing_ok=True)


def _make_room(folder: Path, size: int, spared: Path | None = None) -> None:
    """Remove the exports that were not used for longest until the others have no more than so many bytes together."""
    by_age = sorted(folder.glob("*.sqlite"), key=lambda one: one.stat().st_mtime, reverse=True)
    for export in by_age:
        size -= export.stat().st_size
        if size < 0 and export != spared:
            export.unlink(missing_ok=True)


def _export(program: NsysProgram, report: Path, draft: Path) -> None:
    """Run it, watched."""
    command = [program.path, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(draft)]
    said = _watched([*command, str(report.absolute())], report, draft)
    if not draft.exists() or not draft.stat().st_size:
        reason = _reason(said)
        raise FileError(
            f"{report} cannot be exported by {program.path} ({_written(program.version)}){reason}; "
            f"run {_command(report)} with the nsys that wrote it and open the result"
        )


def _reason(said: bytes) -> str:
    """The last line of what a program said that has a word, without bars of progress."""
    lines = re.split(rb"[\r\n]+", said)
    told = [clean(line.decode("utf-8", "replace")).strip() for line in lines if not re.search(rb"\d%", line)]
    return next((f": {line[:200]}" for line in reversed(told) if re.search(r"\w{2}", line)), "")


def _watched(command: list[str], report: Path, draft: Path) -> bytes:
    """The last that a program says; it ends with this, whatever happens. A failed one leaves no export."""
    try:
        process = programs.start(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=draft.parent,
            start_new_session=True,
        )
    except OSError as error:
        raise FileError(f"{report} cannot be exported: {command[0]}: {error.strerror}") from error
    atexit.register(_end, process)
    try:
        with process:
            try:
                said = _follow(process, report, draft)
            finally:
                _end(process)
    finally:
        atexit.unregister(_end)
        progress.current().text = ""
    if process.returncode:
        draft.unlink(missing_ok=True)
    return said


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program, and what it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)


def _follow(process: subprocess.Popen[bytes], report: Path, draft: Path) -> bytes:
    """Tell of its progress until it has ended."""
    assert process.stdout is not None
    said, alive_s, size = b"", time.monotonic(), 0
    while True:
        ready, _, _ = select.select([process.stdout], [], [], _LOOK_S)
        piece = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        if ready and not piece:
            return said
        said = (said + piece)[-_TOLD:]
        now, grown = time.monotonic(), _size(draft)
        if piece or grown != size:
            alive_s, size = now, grown
        _refuse(report, draft, silent_s=now - alive_s, size=size)
        current = progress.current()
        current.text = f"nsys exports it{_percent(said)}, {binary_bytes(size)} so far: {current.stopped_by} stops it"


def _size(draft: Path) -> int:
    return sum(part.stat().st_size for part in draft.parent.glob(f"{draft.name}*"))


def _percent(said: bytes) -> str:
    found = re.findall(rb"(\d{1,3})\s*%", said)
    return f", {int(found[-1])} %" if found else ""


def _refuse(report: Path, draft: Path, *, silent_s: float, size: int) -> None:
    """Give up what is not wanted any more, or comes to nothing."""
    if progress.current().is_stopped:
        raise FileError(f"{report}: the export by nsys was stopped")
    if silent_s > SILENT_S:
        raise FileError(f"{report} cannot be exported: nsys has said and written nothing for {silent_s:.0f} s")
    if size > LARGEST:
        raise FileError(
            f"{report} cannot be exported: it grew beyond {binary_bytes(LARGEST)}; run {_command(report)} "
            "where there is room and open the result"
        )
    if shutil.disk_usage(draft.parent).free < _SPARE:
        raise FileError(
            f"{report} cannot be exported: {draft.parent} has no room left; set XDG_CACHE_HOME to a place with room"
        )
