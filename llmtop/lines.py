"""The output of a program as safe lines: what a log pane shows."""

from __future__ import annotations

import codecs
import re
import threading
from collections import deque

from llmtop.text import clean

MAX_LINES = 5000
MAX_LINE_CHARACTERS = 4000
# ECMA-48: CSI, then the string controls (OSC, DCS, SOS, PM, APC), then the short escapes.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*[0-~]?"
)
# Processes that share an output write these in front of each line, and the line after: between the two another
# process's line may come (vLLM). Only the last one is of the text that follows.
_OTHERS_PREFIX = re.compile(r"^(?:\([\w:.-]+ pid=\d+\) ?)+(?=\([\w:.-]+ pid=\d+\) )")


class Lines:
    """The last lines of a byte stream, cleaned: no colours, no control characters, progress bars as last drawn."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=max_lines)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        """Add what was read; b"" is the end and completes an unfinished line."""
        text = self._decoder.decode(data, final=not data)
        with self._lock:
            *whole, rest = (self._rest + text).split("\n")
            if rest and (not data or len(rest) > MAX_LINE_CHARACTERS):
                whole, rest = [*whole, rest], ""
            self._lines.extend(plain(line) for line in whole)
            self._rest = rest

    def last(self, n: int) -> tuple[str, ...]:
        """The newest `n` lines, oldest first, with the one still being written."""
        with self._lock:
            shown = [*self._lines, plain(self._rest)] if self._rest else list(self._lines)
        return tuple(shown[-n:]) if n > 0 else ()


def plain(line: str) -> str:
    r"""One line of a program's output as safe text.

    >>> plain("\x1b[32mINFO\x1b[0m ready\r")
    'INFO ready'
    >>> plain("10 %\r50 %\rloaded")
    'loaded'
    >>> plain("(APIServer pid=7) (EngineCore pid=9) INFO ready")
    '(EngineCore pid=9) INFO ready'
    """
    visible = _OTHERS_PREFIX.sub("", _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2])
    return clean(visible.expandtabs(8))[:MAX_LINE_CHARACTERS]
