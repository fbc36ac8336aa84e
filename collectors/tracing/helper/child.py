"""A program that a tracer starts: bound to who started it, heard without waiting, and in words how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from . import system

_CHUNK = 1 << 20
"""Bytes of a child's output that are read at once."""
_LONGEST_LINE = 64 << 20
"""In bytes; what has no end by then is thrown away."""


def ending(code: int) -> str:
    """How a program ended, in words, by its exit status as `subprocess.Popen` has it.

    >>> ending(-9), ending(3)
    ('by SIGKILL', 'exit code 3')
    """
    return f"by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def in_memory() -> IO[bytes]:
    """A file that nobody else sees, of which nothing is written to a disk."""
    return os.fdopen(os.memfd_create("llmtop", os.MFD_CLOEXEC), "w+b", buffering=1 << 16)


class Child:
    """A program that runs. What it complains of is kept in memory.

    Args:
        argv: What to run.
        has_input: `process.stdin` is a pipe; else it has nothing to read.
        output: Where it writes; by default a pipe, for `lines`.
        is_bound: The kernel ends it when this process ends. Of a process with one thread only: it is asked for between
            fork and exec. Another has a session of its own: Ctrl+C and the terminal's hang-up are not for it.
        limit: What is done to one that is bound just before it begins.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        has_input: bool = False,
        output: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        is_bound: bool = True,
        limit: Callable[[], None] | None = None,
    ) -> None:
        parent = os.getpid()

        def before_it_begins() -> None:
            system.die_with_parent(parent)
            if limit is not None:
                limit()

        self._errors = in_memory()
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE if output is None else output,
            stderr=self._errors,
            bufsize=0,
            cwd="/",  # a program may read files of the current folder, which may be anybody's
            env=env,
            pass_fds=pass_fds,
            preexec_fn=before_it_begins if is_bound else None,
            start_new_session=not is_bound,
        )
        self._rest = b""
        self.is_at_end = False
        """Whether its output has ended, as far as it was read."""
        if self.process.stdout is not None:
            os.set_blocking(self.process.stdout.fileno(), False)

    def fileno(self) -> int:
        """For select: becomes readable when it says something, or ends."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def lines(self) -> list[bytes]:
        """The lines that it has written since the last call; never waits."""
        chunks = [self._rest]
        while chunk := self._chunk():
            chunks.append(chunk)
        *lines, rest = b"".join(chunks).split(b"\n")
        self._rest = rest if len(rest) < _LONGEST_LINE else b""
        return lines

    def _chunk(self) -> bytes:
        try:
            chunk = os.read(self.fileno(), _CHUNK)
        except BlockingIOError:
            return b""
        self.is_at_end = not chunk
        return chunk

    def errors(self) -> str:
        """What it has complained of so far."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def close(self) -> None:
        """End it if it runs, and give back what it held."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.release()

    def release(self) -> None:
        """Give back what it held, whether it has ended or is only about to."""
        for file in (self.process.stdin, self.process.stdout, self._errors):
            if file is not None:
                file.close()
