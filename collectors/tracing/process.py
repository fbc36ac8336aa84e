"""The helper as a child process: started, talked to, and never left behind."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from llmtop import programs
from llmtop.collectors import children
from llmtop.collectors.tracing.helper.child import Child, ending
from llmtop.text import clean

_BOOT = "import runpy, sys; sys.path.insert(0, sys.argv.pop(2)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"


def program_of(module: str, folder: Path) -> tuple[str, ...]:
    """What runs a module of a folder by itself: whatever else the user or the current folder may offer is not seen."""
    return (sys.executable, "-I", "-c", _BOOT, module, str(folder))


_SUDO_SAYS = "sudo: "
_PIPE_BYTES = 1 << 20
"""Room for several reports with stacks, so that the helper never waits for us; the most an ordinary user may ask."""
_LAST_WORDS = 400
"""Characters that are told of a helper's last words."""
_FAULTS = {-fault for fault in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)}
_STOP_S = 2.0
"""For a helper to end, before it is made to."""
_REAP_S = 0.5
"""Between the end of its output and the end of a process."""
_dying: list[subprocess.Popen[bytes]] = []
"""Killed, but still in the kernel, which takes their probes away: a busy machine needs longer for it than we wait."""


def _reap() -> None:
    """Take leave of those that have ended since."""
    _dying[:] = [process for process in _dying if process.poll() is None]


class HelperProcess(Child):
    """The helper, from start to end.

    Args:
        arguments: The helper's own: PIDs and options.
        program: What to run: one that takes `--parent PID` and ends with its standard input.
        sudo: Start it through `sudo -n`.
    """

    def __init__(self, arguments: list[str], *, program: tuple[str, ...], sudo: bool = False) -> None:
        prefix = [programs.find("sudo") or "/usr/bin/sudo", "-n"] if sudo else []
        # Through sudo its parent is sudo: there the end of standard input tells it that we are gone.
        parent = [] if sudo else ["--parent", str(os.getpid())]
        super().__init__(
            [*prefix, *program, *arguments, *parent], has_input=True, env=programs.environment(), is_bound=False
        )
        _widen(self.fileno())
        self._pids = {self.process.pid}
        children.note(self.process.pid)

    def is_known_as(self, pid: int) -> None:
        """Its own PID, which is not that of the process started where that is sudo."""
        self._pids.add(pid)
        children.note(pid)

    def reports(self) -> list[dict[str, Any]]:
        """What it has said since the last call; never waits. Lines that are no JSON objects are passed over."""
        return [report for line in self.lines() if (report := _parsed(line)) is not None]

    def last_words(self) -> str:
        """How it ended, in a few words."""
        try:
            code: int | None = self.process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            code = None
        lines = self.errors().strip().splitlines()
        said = clean(lines[-1])[-_LAST_WORDS:] if lines else ""
        if code is not None and code < 0:
            return f"it was ended {ending(code)}"
        return said or (ending(code) if code is not None else "it closed its output")

    @property
    def has_crashed(self) -> bool:
        """Whether a fault in native code ended it: it would come again."""
        return self.process.returncode in _FAULTS

    def kill(self) -> None:
        """End it at once, without asking. Through sudo it is not ours to kill: it ends when it reads its input."""
        with suppress(PermissionError):
            self.process.kill()

    def close(self) -> None:
        """End it and wait: afterwards no probe of it is attached, unless the kernel takes seconds for that."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()  # the end of its input is the end of it
        except BrokenPipeError:
            self.is_at_end = True
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            _dying.append(self.process)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_S)
        _reap()
        for pid in self._pids:
            children.forget(pid)
        self.release()


def refusal_of_sudo(last_words: str) -> str:
    """What sudo itself said, which then has started nothing; empty where these are the helper's words."""
    return last_words.removeprefix(_SUDO_SAYS) if last_words.startswith(_SUDO_SAYS) else ""


def _widen(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:  # a lower limit is set here: the helper then waits for us at times
        return


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        report = json.loads(line)
    except ValueError:
        return None
    return report if isinstance(report, dict) else None
