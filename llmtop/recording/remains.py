"""The proof of a shared copy: search it for everything that was removed from the original.

The search does not know how things were removed. It compares the two files text by text. A word that is in a text of
the original, and not in the same place of the copy, was removed, unless llmtop's own source or a kept name has it.
All bytes of the copy, packed and unpacked, are searched for these words and for pieces of them; texts also for random
strings.
"""

from __future__ import annotations

import re
from math import log2
from typing import TYPE_CHECKING, Any, Final

from llmtop.frozen import frozen
from llmtop.recording.own_words import own_parts, parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from llmtop.recording.copies import RecordedRow

_LEAST: Final = 4
"""Letters of a word that tells something by itself."""
_LEAST_DIGITS: Final = 8
"""Of a number that does, and of what is looked for in bytes that are no text: PIDs have fewer, and chance makes shorter
words."""
_GRAM: Final = 10
"""Characters of a piece of a longer word."""
_READABLE: Final = re.compile(rb"[\x21-\x7e\x80-\xff]{4,}")
_LONG: Final = re.compile(r"[A-Za-z0-9+/_=-]{16,}")
_RANDOM_BITS: Final = 3.0
"""Bits of entropy of a character: of English text 2 to 3, of hexadecimal digits 4, of base64 more (Shannon, 1951)."""
_TURNS: Final = 4
"""From letters to digits and back."""
_NAMES: Final = frozenset({"name", "uuid", "pci_bus_id", "kernel", "function", "instruction", "wchan"})
"""Fields with names of functions and ids of GPUs, which look random and stay."""


@frozen
class Remains:
    """A place in which something stands that should not.

    Attributes:
        what: That.
        field: The field that has it; empty where it stands in bytes that are no text.
        text: All that the field says.
    """

    what: str
    field: str
    text: str


def remains(
    original: Iterable[RecordedRow], copy: Iterable[RecordedRow], path: Path, kept: Collection[str]
) -> Iterator[Remains]:
    """What stands in a copy of what was taken out of the original; each thing once.

    Args:
        original: Its rows.
        copy: Those of the copy, which are as many.
        path: The copy.
        kept: Names that stay.
    """
    changes: set[tuple[str, str]] = set()
    texts: dict[tuple[str, str], None] = {}
    unread: set[bytes] = set()
    for before, after in zip(original, copy, strict=False):
        now = dict(_leaves(after.document))
        for place, text in _leaves(before.document):
            if (left := now.get(place)) != text:
                changes.add((text, left or ""))
        texts.update(((place[-1], text), None) for place, text in now.items())
        texts.update((("", text), None) for _, text in _leaves(after.directory))
        unread.update(_READABLE.findall(after.columns or b""))
    staying = {part for name in kept for part in parts(name)}
    words = {word for text, left in changes for word in set(_words(text)).difference(_words(left))}
    removed = {word for word in words if word not in staying and not _is_own(word)}
    grams = {gram: word for word in removed if len(word) >= _GRAM for gram in _grams(word)}
    unread.update(_READABLE.findall(path.read_bytes()))
    texts.update((("", piece.decode("utf-8", "replace")), None) for piece in unread)
    found: set[str] = set()
    for field, text in texts:
        for what in _found(field, text, removed, grams):
            if what not in found:
                found.add(what)
                yield Remains(what, field, text)


def _found(field: str, text: str, removed: Collection[str], grams: Mapping[str, str]) -> Iterator[str]:
    words = parts(text)
    yield from (word for word in words if word in removed and (field or len(word) >= _LEAST_DIGITS))
    if grams:
        yield from (grams[gram] for word in words if len(word) >= _GRAM for gram in _grams(word) if gram in grams)
    if field and field not in _NAMES:
        yield from (one for one in _LONG.findall(text) if _is_random(one))


def _leaves(document: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """All texts and large numbers, and names of fields, with where they stand."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*place, key, "the name of a field"), key
            yield from _leaves(value, (*place, key))
    elif isinstance(document, list):
        for i, one in enumerate(document):
            yield from _leaves(one, (*place, str(i)) if not isinstance(one, str) else (str(i), *place))
    elif isinstance(document, (str, int)) and not isinstance(document, bool):
        yield place or ("",), str(document)


def _words(text: str) -> list[str]:
    return [word for word in parts(text) if len(word) >= (_LEAST_DIGITS if word.isdigit() else _LEAST)]


def _is_own(word: str) -> bool:
    """Whether llmtop may have put it there: a word of its own, also as one of several."""
    own = own_parts()
    return word in own or word.removesuffix("s") in own or word.rstrip("0123456789") in own


def _grams(word: str) -> Iterator[str]:
    return (word[at : at + _GRAM] for at in range(len(word) - _GRAM + 1))


def _is_random(word: str) -> bool:
    """Whether nobody would call anything so.

    >>> _is_random("dGhpc0lzQVNlY3JldDEyMzQ"), _is_random("max_num_batched_tokens"), _is_random("2026-11-28T18:57:33")
    (True, False, False)
    """
    counts = [word.count(one) for one in set(word)]
    bits = -sum(n / len(word) * log2(n / len(word)) for n in counts)
    turns = len(re.findall(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])", word))
    return turns >= _TURNS and bits >= _RANDOM_BITS
