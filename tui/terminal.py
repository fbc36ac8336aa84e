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
    why = refusal(os.environ, sys.__stdin__, sys.__stdout__)
    if why is None:
        set_defaults(os.environ)
        _survive_encoding(drawn_on(sys.__stdout__, sys.__stderr__))
    return why


def drawn_on(stdout: TextIO | None, stderr: TextIO | None) -> TextIO | None:
    """The stream that the screen is drawn on: standard error, as Textual does, unless that goes to a file."""
    return next((one for one in (stderr, stdout) if _is_terminal(one)), None)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _survive_encoding(stream: TextIO | None) -> None:
    """The default of standard error is to write escapes for what it cannot encode."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


def refusal(environment: Mapping[str, str], stdin: TextIO | None, stdout: TextIO | None) -> str | None:
    """Why no screen can be drawn here, with what to use instead; None when one can."""
    instead = "use `llmtop snapshot --json` or `llmtop report FILE` instead"
    if environment.get("TERM", "") == "dumb":
        return f"TERM=dumb cannot show a screen; {instead}, or set TERM to what your terminal is"
    for name, stream in (("standard input", stdin), ("standard output", stdout)):
        if not _is_terminal(stream):
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

    Python takes the locales C and POSIX for UTF-8 (PEP 538, PEP 540): who asks for one by name wants ASCII. Where no
    locale is named at all, as in most containers, the terminal mostly knows UTF-8.

    >>> is_ascii_only({}, "ascii"), is_ascii_only({"TERM": "linux"}, "utf-8"), is_ascii_only({}, "UTF-8")
    (True, True, False)
    >>> is_ascii_only({"LC_ALL": "C"}, "utf-8"), is_ascii_only({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8")
    (True, True)
    """
    if environment.get("LLMTOP_ASCII", "0") not in ("", "0") or _locale(environment) in ("C", "POSIX"):
        return True
    return environment.get("TERM") == "linux" or (encoding or "ascii").lower() not in _UTF8


def _locale(environment: Mapping[str, str]) -> str:
    """The locale that was asked for, without the LC_CTYPE that Python sets where that was C."""
    of_text = environment.get("LC_CTYPE", "")
    named = (environment.get("LC_ALL"), "" if of_text == "C.UTF-8" else of_text, environment.get("LANG"), of_text)
    return next((name for name in named if name), "")


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
