"""What a server wrote before it ended: where its log is read, and the error that the log names first.

A server that llmtop has launched writes to llmtop. Of another one the file is read that its standard error or output
goes to, where it is one: it is held open, so that it can be read when the process is gone. Where it goes elsewhere, to
systemd's journal or a container's runtime, the command that shows it is known.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from llmtop import foreign, procfs
from llmtop.lines import Lines
from llmtop.model import Unknown
from llmtop.text import clean, group_name, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_LINES = 400
"""Of a log, from its end."""
_MOST_BYTES = 128 << 10
"""Of a log's file, from its end."""
_MOST_WORDS = 240
"""Characters of one line that are told."""
_CALM = 30
"""Lines in a row without trouble that divide the last trouble from an earlier one: messages of errors have fewer."""
_SHOWN_LINES = 200
"""Lines that the command shows which is named beside what is told."""
_PREFIX = (
    r"(?:\([^()]*\) ?|\[[^\[\]]*\]:? ?|(?:ERROR|CRITICAL|FATAL|Error|error):? |\d[\d:.,/TZ+-]* "
    r"|\w+: (?=error|fatal)|[|-] )*"
)
"""What loggers write in front: who, the level, the moment, where in the code."""
_EXCEPTION = re.compile(
    _PREFIX + r"(?P<words>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::(?: .*)?|))$"
)
"""The last line of a Python traceback: a class, and a message where there is one."""
_NATIVE = re.compile(
    _PREFIX
    + r"(?P<words>(?:terminate called after|Fatal Python error|fatal error|[Ee]rror(?: \w+ing \w+)?:|CUDA error|"
    r"(?:\S.* failed: )?[Oo]ut of memory\b|GGML_ASSERT|thread '[^']*' (?:\(\d+\) )?panicked).*)"
)
_WHAT = re.compile(r"\bwhat\(\):\s*(.*\S)")
"""What the exception says that ended a program of C++; the line before has its type alone."""
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|$)')
"""A text of JSON, also of a record that has been cut."""
_ESCAPED = re.compile(r"\\(.)")
_MEANT = {"n": "\n", "t": "\t", "r": ""}
_TROUBLE = re.compile(r"File \".*\", line \d+|Traceback \(most recent call|\^\^\^|\b(?:ERROR|CRITICAL|FATAL)\b")
_CONSEQUENCES = frozenset({"KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit", "BrokenPipeError"})
"""What a program says that is told to end, or whose other side has ended."""
_DISCARDED = Unknown("its output went to /dev/null", "send it to a file: > server.log 2>&1")
_RUNTIMES = {"docker": "docker", "podman": "podman", "containerd": "nerdctl"}


def first_error(lines: Sequence[str]) -> str:
    """The error that began the trouble at a log's end: what comes after it is what it led to.

    A server of several processes writes several tracebacks when one of them fails; the first names the cause.

    Args:
        lines: The end of a log, oldest first.

    Returns:
        The error's own words, without what the logger writes in front; empty where the log ends without an error.

    >>> first_error(["INFO up", "(Engine pid=7) ERROR 11-23 [core.py:9] ValueError: no room", "RuntimeError: above"])
    'ValueError: no room'
    """
    lines = [shown for line in lines for shown in _as_written(line)]
    found, calm = "", 0
    for i in range(len(lines) - 1, -1, -1):
        if words := _words(lines, i):
            found, calm = words, 0
        elif _TROUBLE.search(lines[i]):
            calm = 0
        elif (calm := calm + 1) > _CALM:
            break
    return found


def _as_written(line: str) -> list[str]:
    r"""The lines that a logger was given, of which it may make one record of JSON, tracebacks and all.

    >>> _as_written('{"level": "error", "message": "it failed", "trace": "in load\\nValueError: no \\"a\\""}')
    ['it failed', 'in load', 'ValueError: no "a"']
    """
    if not line.startswith("{"):
        return [line]
    texts = (_ESCAPED.sub(lambda found: _MEANT.get(found[1], found[1]), text) for text in _TEXT.findall(line))
    return [one for text in texts if " " in text for one in text.splitlines()]


def _words(lines: Sequence[str], i: int) -> str:
    found = _EXCEPTION.match(lines[i].rstrip()) or _NATIVE.match(lines[i].rstrip())
    if found is None:
        return ""
    words = found["words"]
    if words.split(":")[0].rpartition(".")[2] in _CONSEQUENCES:
        return ""
    if words.startswith("terminate called") and (told := next(map(_WHAT.search, lines[i + 1 : i + 2]), None)):
        words = f"{words}: {told[1]}"
    if words.endswith(":"):  # its message begins on the next line
        words += next((f" {rest}" for line in lines[i + 1 : i + 3] if (rest := _bare(line))), "")
    return words.rstrip(": ")[:_MOST_WORDS]


def _bare(line: str) -> str:
    """A line without what is in front of it on all lines of a process."""
    return re.sub(r"^\([^()]*\)", "", line).strip()


class ServerLog:
    """The log of one server. Not thread-safe.

    Args:
        output: The newest lines of what a launched server has printed; None for one that runs by itself.
    """

    def __init__(self, output: Callable[[int], Sequence[str]] | None = None) -> None:
        self._output = output
        self._file: int | None = None
        self._is_discarded = False
        self.command = ""
        """What shows its end: a command line; empty where nothing tells where it goes."""

    def open(self, pid: int) -> None:
        """Find out where a process writes to, while it lives."""
        if self._output is not None:
            return
        self.close()
        paths = {number: procfs.read_link(f"/proc/{pid}/fd/{number}") or "" for number in (2, 1)}
        self._is_discarded = set(paths.values()) == {os.devnull}
        for number, path in paths.items():
            if path.startswith("/") and (file := _regular_file(pid, number)) is not None:
                self._file, self.command = file, f"tail -n {_SHOWN_LINES} {shlex.quote(clean(path))}"
                return
            if path.startswith(("pipe:", "socket:")):
                self.command = self.command or _kept_by(pid)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
        self._file, self.command = None, ""

    def last_error(self) -> str:
        """The error that its end names, made safe to show; empty where there is none, or the log cannot be read."""
        return redact(clean(first_error(self._lines() or ())))

    def last_line(self) -> str | Unknown | None:
        """What was written last, made safe to show; empty where nothing was.

        None where the log cannot be read by llmtop, `Unknown` where nobody can.
        """
        if self._is_discarded:
            return _DISCARDED
        lines = self._lines()
        if lines is None:
            return None
        return redact(clean(next((line.strip() for line in reversed(lines) if line.strip()), "")))[:_MOST_WORDS]

    def _lines(self) -> Sequence[str] | None:
        if self._output is not None:
            return self._output(MOST_LINES)
        if self._file is None:
            return None
        try:
            data = foreign.end_of(self._file, _MOST_BYTES)
        except OSError:  # on a file system that has gone away, or does not answer
            return None
        read = Lines(MOST_LINES)
        read.feed(data)
        return read.last(MOST_LINES)


def _regular_file(pid: int, number: int) -> int | None:
    """A descriptor of it; None for a terminal or a device, and where the process itself could not read it."""
    try:
        return foreign.opened_output(pid, number)
    except OSError:
        return None


def _kept_by(pid: int) -> str:
    """The command that shows what systemd or a container's runtime keeps of a process's output."""
    rows = (row.rpartition(":")[2] for row in (procfs.read_text(f"/proc/{pid}/cgroup") or "").splitlines())
    for name in map(group_name, rows):
        runtime, _, container = name.partition(" ")
        if container and runtime in _RUNTIMES:
            return f"{_RUNTIMES[runtime]} logs --tail {_SHOWN_LINES} {container}"
        if name.endswith(".service") and not name.startswith("user@"):
            return f"journalctl -u {shlex.quote(clean(name))} -n {_SHOWN_LINES} --no-pager"
    return ""
