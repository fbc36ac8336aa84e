"""What the terminal sends, as keys."""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, Final

from textual import events
from textual._xterm_parser import XTermParser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from textual.message import Message

_ESC: Final = "\x1b"
_OPENS_A_SEQUENCE: Final = "[O"
"""CSI and SS3 (ECMA-48): what follows Escape where a key is more than one character."""
_LOOK_AGAIN_MS: Final = 100
"""How often it is looked whether the rest of a key has come, or never will: then Escape was all of it."""
_CHUNK: Final = 4096


class KeyParser(XTermParser):
    """Textual's parser, with Escape always a key of its own.

    Over a network Escape and the next key come in one packet, which is what a terminal also sends for Alt and that key.
    llmtop has no key with Alt: read as one, both would be lost, or be what some terminal has on it (Alt+5: an infinity
    sign).
    """

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if len(sequence) == 2 and sequence[0] == _ESC and sequence[1] not in _OPENS_A_SEQUENCE:
            sequence, alt = sequence[1], True
        if alt:
            yield events.Key("escape", _ESC)
        yield from super()._sequence_to_key_events(sequence)

    @property
    def is_amid_a_key(self) -> bool:
        """Whether what has come may be the beginning of a key."""
        return self._timeout_time is not None


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
