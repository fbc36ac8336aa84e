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
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
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
