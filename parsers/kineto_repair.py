"""Events whose JSON is wrong: writers that do not escape what they write into texts.

Seen in the wild: quotes and backslashes in the names of operators and in paths, as they are (Kineto before 2023).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from json import JSONDecoder

_LONGEST = 1 << 20
_MARK = re.compile(r'\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})?|"')
_CLOSES = re.compile(
    r"""\s*(?:[}\]]|$                        # the last of an object or a list
    |:\s*["\[{\d\-tfn]                       # a key
    |,\s*(?:"[^"\n]*"\s*[:,\]]|[\[{\d\-tfn]))  # followed by a key, or by another value
    """,
    re.VERBOSE,
)


def mended(text: str, decoder: JSONDecoder) -> dict[str, Any] | None:
    r"""The event that a text was to be; None where that cannot be told.

    >>> import json
    >>> mended(r'{"ph": "X", "name": "load "C:\model"", "pid": 1}', json.JSONDecoder())
    {'ph': 'X', 'name': 'load "C:\\model"', 'pid': 1}
    """
    if len(text) > _LONGEST or not text.startswith("{"):
        return None
    for escapes_count in (True, False):
        try:
            event, _ = decoder.raw_decode(_escaped(text, escapes_count=escapes_count))
        except (ValueError, RecursionError):
            continue
        return event if isinstance(event, dict) and "ph" in event else None
    return None


def _escaped(text: str, *, escapes_count: bool) -> str:
    """The text with what has to be escaped within its strings escaped.

    `escapes_count`: a backslash before a quote escapes it. Else that ends a path.
    """
    parts: list[str] = []
    is_inside, done = False, 0
    for mark in _MARK.finditer(text):
        found, end = mark[0], mark.end()
        if found == '"':
            if not is_inside or _CLOSES.match(text, end):
                is_inside = not is_inside
            else:
                found = '\\"'
        elif found == '\\"' and not escapes_count and _CLOSES.match(text, end):
            found, is_inside = '\\\\"', False
        elif found == "\\":
            found = "\\\\"
        parts += (text[done : mark.start()], found)
        done = end
    return "".join((*parts, text[done:]))
