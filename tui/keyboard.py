"""What the terminal sends, as keys."""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message import Message

    from llmtop.tui.textual_private import KeyParser

_LOOK_AGAIN_MS: Final = 100
"""How often it is looked whether the rest of a key has come, or never will: then Escape was all of it."""
_CHUNK: Final = 4096


def read_keys(keyboard: int, end: int, parser: KeyParser, take: Callable[[Message], None]) -> None:
    """Read what a terminal sends until something can be read of `end`; nobody looks while nothing comes.

    A keyboard that has come to its end (a file, a pipe) is not read any more.

    Args:
        keyboard: The terminal's descriptor.
        end: A descriptor of who ends this: of an eventfd.
        parser: Makes keys of what comes.
        take: Called with each key, and with all else that a terminal says.

    Raises:
        OSError: The terminal is gone.
    """
    decode = getincrementaldecoder("utf-8")("replace").decode
    poller = select.poll()
    for descriptor in (keyboard, end):
        poller.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll(_LOOK_AGAIN_MS if parser.is_amid_a_key else None)}
        if end in ready:
            return
        if keyboard in ready:
            sent = os.read(keyboard, _CHUNK)
            if not sent:
                poller.unregister(keyboard)
            for event in parser.feed(decode(sent)) if sent else ():
                take(event)
        for event in parser.tick():
            take(event)
