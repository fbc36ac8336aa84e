"""What the terminal can do, found out before Textual is imported.

Textual reads its settings from the environment once, at import, so this module must not import it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from io import TextIOWrapper
from typing import TextIO

_SLOW_LINK_ESCAPE_MS = "200"
"""Over a network the parts of an arrow key's sequence arrive apart; at Textual's 100 ms they read as Esc."""

_UTF8 = {"utf-8", "utf8", "cp65001"}


def guard() -> str | None:
    """Prepare the environment for Textual; one sentence when there is no terminal to draw on.

    Called before anything imports `textual`.
    """
    why = refusal(os.environ, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    if why is None:
        set_defaults(os.environ)
        _survive_encoding(sys.__stderr__)
    return why


def _survive_encoding(stream: TextIO | None) -> None:
    """Textual draws on standard error, whose default is to write escapes for what it cannot encode."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


def refusal(
    environment: Mapping[str, str], stdin: TextIO | None, stdout: TextIO | None, stderr: TextIO | None
) -> str | None:
    """Why no screen can be drawn here, with what to use instead; None when one can."""
    instead = "use `llmtop snapshot --json` or `llmtop report FILE` instead"
    if environment.get("TERM", "") == "dumb":
        return f"TERM=dumb cannot show a screen; {instead}, or set TERM to what your terminal is"
    for name, stream in (("standard input", stdin), ("standard output", stdout), ("standard error", stderr)):
        if stream is None or stream.closed or not stream.isatty():
            return f"{name} is not a terminal; {instead}"
    return None


def set_defaults(environment: MutableMapping[str, str]) -> None:
    """Textual's settings for a monitor; what the user has set stays."""
    environment.setdefault("TEXTUAL_ANIMATIONS", "none")
    environment.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    environment.setdefault("TEXTUAL_FPS", "30")
    # Nothing here needs keys that only this protocol reports, and terminals differ in it.
    environment.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")
    if is_remote(environment):
        environment.setdefault("ESCDELAY", _SLOW_LINK_ESCAPE_MS)


def is_remote(environment: Mapping[str, str]) -> bool:
    """Whether the terminal is at the other end of a network."""
    return "SSH_CONNECTION" in environment or "SSH_TTY" in environment


def is_ascii_only(environment: Mapping[str, str], encoding: str | None) -> bool:
    """Whether to keep to ASCII: the encoding is not UTF-8, the console's font lacks blocks, or the user says so.

    >>> is_ascii_only({}, "ascii"), is_ascii_only({"TERM": "linux"}, "utf-8"), is_ascii_only({}, "UTF-8")
    (True, True, False)
    """
    if environment.get("LLMTOP_ASCII", "0") not in ("", "0"):
        return True
    return environment.get("TERM") == "linux" or (encoding or "ascii").lower() not in _UTF8


def color_depth(environment: Mapping[str, str]) -> int:
    """Colours of the terminal as its environment tells: 0 (NO_COLOR), 16, 256 or 2**24.

    >>> color_depth({"TERM": "xterm-256color"}), color_depth({"TERM": "linux"}), color_depth({"NO_COLOR": "1"})
    (256, 16, 0)
    """
    if environment.get("NO_COLOR"):
        return 0
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    return 256 if environment.get("TERM", "").endswith(("256color", "-direct", "kitty", "alacritty")) else 16
