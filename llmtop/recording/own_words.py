"""llmtop's own words: what a shared copy may say of a machine without telling anything of it.

A sentence of llmtop's is made of its own words, of numbers, and of names that stay. Whatever else stands in one came
from the machine, whether it looks like a secret or not.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final

import llmtop

CHUNK: Final = re.compile(r"[^\s\"'`(),;:=<>\[\]{}|]+")
"""A word with the punctuation within it: "/proc/PID/stat", "--port"."""
_EDGES: Final = ".!?…/*+-–\\~^"
_NUMBER: Final = re.compile(
    r"(?!(?:\D*\d){12})[-+±~≥≤#x×–]*\d+(?:[.,–:%/x×-]+\d+){0,4}(?:e[-+]?\d{1,3})?[-x+%]*(?:[a-zA-Zµ°%²]{0,7}|[a-zA-Z]{1,4}/s)\Z"
    r"|[\W_]*\Z"
)
"""With its unit; none of a card or an account, which has more digits."""
_NUMBERED: Final = re.compile(r"(?P<word>[A-Za-z_]+?)[_#-]?\d{1,5}[a-z]?\Z")
"""A word of llmtop's and a number: "GPU0"."""


@cache
def own_words() -> frozenset[str]:
    """All words of llmtop's source, but for what examples in docstrings are about."""
    words: set[str] = set()
    for folder, _, names in os.walk(Path(llmtop.__file__).parent, followlinks=True):
        for name in names:
            if name.endswith(".py"):
                source = Path(folder, name).read_text(encoding="utf-8")
                words.update(CHUNK.findall("\n".join(line for line in source.split("\n") if ">>>" not in line)))
    return frozenset(words | {word.strip(_EDGES) for word in words})


@cache
def own_parts() -> frozenset[str]:
    """The letters and digits of the same, without the case: for whoever takes a text apart otherwise."""
    return frozenset(part for word in own_words() for part in parts(word))


def parts(text: str) -> list[str]:
    """Runs of letters and digits, without the case."""
    return re.findall(r"[^\W_]+", text.casefold())


def is_own(chunk: str, kept: frozenset[str] | set[str] = frozenset()) -> bool:
    """Whether llmtop may have put a word into a sentence: one of its own, one that is `kept`, or a number.

    >>> is_own("futex"), is_own("1.5x"), is_own("GPU0"), is_own("requests."), is_own("Patients0fDrWho")
    (True, True, True, True, False)
    >>> is_own("4111111111111111"), is_own("zq-7", {"zq-7"}), is_own("read/write"), is_own("10.20.30.40")
    (False, True, True, True)
    """
    word = chunk.strip(_EDGES)
    own = own_words()
    if chunk in own or word in own or word in kept or chunk in kept or _NUMBER.match(word):
        return True
    if (lower := word[:1].lower() + word[1:]) in own or lower.removesuffix("s") in own:
        return True
    if (found := _NUMBERED.match(word)) is not None and (found["word"] in own or found["word"] in kept):
        return True
    pieces = re.split(r"[/–@%._]", word)
    return len(pieces) > 1 and all(is_own(piece, kept) for piece in pieces)
