"""Whether something stands in what a recording tells, in any of its parts: what proves a shared copy.

It knows nothing of how things are taken out, so that a place which that passes over is found here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from llmtop.frozen import frozen
from llmtop.vocabulary import parted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from llmtop.recording.copies import RecordedRow

TELLING: Final = 8
"""Characters of what is no word of a language: it is looked for within longer words too."""
_SOURCES: Final = "sources"
"""What collectors say of themselves: all below it is llmtop's own."""
_OWN_WORDS: Final = frozenset({"kind", "unit", "rule", "severity", "what", _SOURCES, "metric", "llmtop"})
"""Fields that hold words which llmtop chooses; what they have beside letters is none of a name's."""
_KEY: Final = "the name of a field"
_ID_FIELDS: Final = frozenset({"id", "track", "parent", "gone", "tracks"})
_ID: Final = re.compile(r"[a-z_]+(?::(?:CPU)?\d+)?(?:/(?:[a-z_]+:)?\d+)*\Z")
"""An id that has llmtop's own words and numbers alone (`llmtop.ids`): others have a name in them."""
_WORD: Final = re.compile(r"[^\W\d_]+\Z")


@frozen
class Standing:
    """A place in which something stands that should not.

    Attributes:
        what: That.
        field: The field that has it.
        text: All that the field says.
        is_own: Whether it is a word that llmtop itself chose there, and would choose on any machine: "gpu" in "gpu:0".
    """

    what: str
    field: str
    text: str
    is_own: bool


def standing(
    rows: Iterable[RecordedRow], taken: Collection[str], stand_in: re.Pattern[str] | None = None
) -> Iterator[Standing]:
    """Where any of `taken` stands: each thing once in each distinct text of each field.

    Args:
        rows: Of the copy.
        taken: What is looked for.
        stand_in: What stands there instead: a host called "gpu" does not stand in "gpu-id-1".
    """
    patterns = {what: sought(what) for what in taken}
    places = dict.fromkeys(place for row in rows for place in _places(row))
    for field, whole in places:
        text = whole if stand_in is None else stand_in.sub(" ", whole)
        for what, pattern in patterns.items():
            if what in text and pattern.search(text):
                yield Standing(what, field, whole, _is_own(what, field, whole))


def sought(what: str) -> re.Pattern[str]:
    """Finds it: a short one as a whole word, others within words too.

    >>> bool(sought("max").search("maximum")), bool(sought("max").search("files_of_max"))
    (False, True)
    >>> sought("research").sub("x", "researcher")
    'xer'
    """
    return re.compile(sought_text(what))


def sought_text(what: str) -> str:
    """The pattern of `sought`."""
    escaped = re.escape(what)
    return escaped if len(what) >= TELLING else rf"(?<![^\W_]){escaped}(?![^\W_])"


def _places(row: RecordedRow) -> Iterator[tuple[str, str]]:
    """All texts of a row with the names of their fields, and those names."""
    yield from _texts(row.document, "")
    yield from _texts(row.directory, _KEY)


def _texts(document: Any, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(document, str):
        yield field, document
    elif isinstance(document, dict):
        for key, value in document.items():
            yield (field if field == "tracks" else _KEY), key
            yield from _texts(value, field if field == _SOURCES else key)
    elif isinstance(document, list):
        for one in document:
            yield from _texts(one, field)


def _is_own(what: str, field: str, text: str) -> bool:
    """A name of letters alone that is one of llmtop's words too, where no name can stand."""
    if _WORD.match(what) is None:
        return False
    if field == "metric":
        return sought(what).search(parted(text)[1]) is None
    return field in _OWN_WORDS or field == _KEY or (field in _ID_FIELDS and _ID.match(text) is not None)
