"""What the terminal sends, as keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual import events
from textual._xterm_parser import XTermParser

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESC: Final = "\x1b"
_OPENS_A_SEQUENCE: Final = "[O"
"""CSI and SS3 (ECMA-48): what follows Escape where a key is more than one character."""


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
