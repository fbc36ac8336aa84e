"""How threads share the interpreter with the screen. Imports no Textual: reading starts while that is imported."""

from __future__ import annotations

import sys

_TURN_S = 0.0005


def take_short_turns() -> None:
    """Let no thread that reads or analyses keep the interpreter for long, from now on.

    So long waits each key, and each file that is imported: Python's 5 ms make seconds of that before the first picture.
    """
    sys.setswitchinterval(_TURN_S)
