"""Files of other processes, which may be hostile, or lie on a file system that does not answer.

`llmtop.foreign_reader` opens them: as the process's user, below its root, regular files only, and never in llmtop
itself. Each question has a size limit and a time limit. One that is not answered in time raises TimeoutError, and is
not asked again before its answer has come.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from llmtop import programs

_PROC = Path("/proc")
_READER = Path(__file__).resolve().with_name("foreign_reader.py")
PATIENCE_S = 2.0
"""For a user's first question that is not answered; less for each further one: all of them take four seconds."""
_START_S = 20.0
"""For the reader to start."""
_MOST_WAITING = 4
"""Questions about one user's files without an answer; with so many, nothing more is asked about them."""
_MOST_LISTED = 4 << 20
"""Bytes of a list of names."""
_ERROR_BYTES = 8
"""Of an errno in an answer."""
_lock = threading.Lock()
_waiting: dict[tuple[str, ...], tuple[int, socket.socket]] = {}
"""Questions without an answer so far: about whose files, and where it would come."""
_reader: tuple[subprocess.Popen[bytes], socket.socket] | None = None


def read(pid: int, path: str, most: int, proc: Path = _PROC) -> bytes:
    """The beginning of a regular file, by its path as the process sees it.

    Raises:
        OSError: The process itself could not read it, or it is no regular file.
        TimeoutError: Its file system does not answer.
    """
    return _ask("read", f"{proc}/{pid}", path, most)[0]


def sizes(pid: int, folder: str, pattern: str, proc: Path = _PROC) -> dict[str, int | None]:
    """The names in a folder that match a pattern of fnmatch, with their bytes where they are regular files.

    Raises:
        OSError: As `read`.
    """
    found = _ask("sizes", f"{proc}/{pid}", folder, _MOST_LISTED, pattern)[0]
    listed: dict[str, int | None] = json.loads(found)
    return listed


def opened_folder(pid: int, path: str, proc: Path = _PROC) -> int:
    """A descriptor of a folder, which the caller closes.

    Raises:
        OSError: As `read`.
    """
    return _ask("folder", f"{proc}/{pid}", path, 0)[1]


def opened_output(pid: int, number: int, proc: Path = _PROC) -> int:
    """A descriptor of the regular file that a process has open under a number, which the caller closes.

    Raises:
        OSError: As `read`.
    """
    return _ask("output", f"{proc}/{pid}", str(number), 0)[1]


def found_socket(pid: int, path: str, proc: Path = _PROC) -> int:
    """A descriptor (O_PATH) of a Unix socket that the process may connect to, which the caller closes.

    Raises:
        OSError: As `read`.
    """
    return _ask("socket", f"{proc}/{pid}", path, 0)[1]


def end_of(file: int, most: int) -> bytes:
    """The end of a file that llmtop holds open.

    Raises:
        OSError: It cannot be read.
        TimeoutError: Its file system does not answer.
    """
    return _ask("end", str(file), "", most, file=file)[0]


def reader_pids() -> tuple[int, ...]:
    """The process that reads them, whose cost is llmtop's own; empty while there is none."""
    reader = _reader
    return () if reader is None else (reader[0].pid,)


@atexit.register
def forget_all() -> None:
    """End the reader, and ask everything again."""
    with _lock:
        for _, answer in _waiting.values():
            answer.close()
        _waiting.clear()
        _end_reader()


def _end_reader() -> None:
    """With its children that still wait: one that hangs in the kernel ends by itself, once it can. Under the lock."""
    global _reader
    if _reader is not None:
        _reader[1].close()
        with suppress(ProcessLookupError):
            os.killpg(_reader[0].pid, signal.SIGKILL)
        _reader[0].wait()
        _reader = None


def _ask(
    what: str, process: str, path: str, most: int, pattern: str = "", file: int | None = None
) -> tuple[bytes, int]:
    """The answer, and the descriptor that came with it, or -1."""
    question = (what, process, path, pattern)
    message = json.dumps(dict(zip(("what", "process", "path", "pattern"), question, strict=True)) | {"most": most})
    with _lock:
        _forget_answered()
        owner = _owner_of(process)
        waiting = sum(one == owner for one, _ in _waiting.values())
        if question in _waiting or waiting >= _MOST_WAITING:
            raise TimeoutError(errno.ETIMEDOUT, "does not answer", path)
        patience_s = PATIENCE_S / (1 + waiting)
    for _ in range(2):
        ours, theirs = socket.socketpair()
        with theirs:
            _send(message.encode(), [theirs.fileno(), *(() if file is None else (file,))])
        try:
            return _received(ours, time.monotonic() + patience_s, most)
        except TimeoutError:
            with _lock:
                _waiting[question] = owner, ours.dup()
            raise TimeoutError(errno.ETIMEDOUT, "does not answer", path) from None
        except EOFError:
            # The reader has ended, and is started anew; or its child has, which runs as the process's user, who may
            # have killed it, and may do that again.
            continue
        finally:
            ours.close()
    raise OSError(errno.EIO, "its reader was ended")


def _received(answer: socket.socket, deadline_s: float, most: int) -> tuple[bytes, int]:
    data, descriptor = b"", -1
    try:
        while True:
            answer.settimeout(max(0.001, deadline_s - time.monotonic()))
            part, files, _, _ = socket.recv_fds(answer, 1 << 16, 1)
            descriptor = next(iter(files), descriptor)
            if not part:
                break
            data += part
            if len(data) > max(most, _ERROR_BYTES) + 1:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        if data.startswith(b"-"):
            raise OSError(int(data[1:]), os.strerror(int(data[1:])))
        if not data:
            raise EOFError
    except BaseException:
        if descriptor >= 0:
            os.close(descriptor)
        raise
    return data[1:], descriptor


def _owner_of(process: str) -> int:
    """The user of a process; llmtop's own where it has ended."""
    try:
        return Path(process).stat().st_uid
    except OSError:
        return os.geteuid()


def _forget_answered() -> None:
    """What answers late, or whose reader has ended, may be asked again."""
    late = select.select([answer for _, answer in _waiting.values()], [], [], 0)[0]
    for question in [question for question, (_, answer) in _waiting.items() if answer in late]:
        _waiting.pop(question)[1].close()


def _send(message: bytes, files: list[int]) -> None:
    global _reader
    with _lock:
        for _ in range(2):
            if _reader is None:
                _reader = _started()
            try:
                socket.send_fds(_reader[1], [message], files)
            except (BrokenPipeError, ConnectionResetError):
                _end_reader()
            else:
                return
    raise OSError(errno.EIO, "llmtop's reader of foreign files does not start")


def _started() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(_START_S)
    with theirs:
        process = programs.start(
            [sys.executable, *programs.ALONE, str(_READER), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={},
            start_new_session=True,  # Ctrl+C and the terminal's hang-up are for llmtop
        )
    ours.recv(1)  # it runs: what takes time from now on is a file system, not a busy machine's start of a program
    ours.settimeout(PATIENCE_S)
    return process, ours
