"""What keys are called on the screen."""

from __future__ import annotations

_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "escape": "Esc",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "comma": ",",
    "full_stop": ".",
}


def key_name(key: str) -> str:
    """What to call a key: `Ctrl+p`, `?`, `Esc`."""
    modifier, plus, name = key.rpartition("+")
    return modifier.capitalize() + plus + (_NAMES.get(name) or (name if len(name) == 1 else name.capitalize()))
