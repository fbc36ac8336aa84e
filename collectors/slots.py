"""The requests that a server runs, by slot: what its counters tell only once a request has ended (llama-server)."""

from __future__ import annotations

import json
from typing import Any

from llmtop.frozen import frozen
from llmtop.model import Unknown

_STRANGE = Unknown("its slots are told in another form than llmtop knows")


@frozen
class Slots:
    """The slots that work: how many, and the output tokens of their requests so far.

    Attributes:
        context: Tokens that a slot has room for, the largest; None in builds that do not tell how many it holds.
        full: Of slots without room for one more token: their number and their request's, which they keep when it ends.
    """

    busy: int
    decoded: int
    context: int | None = None
    full: frozenset[tuple[int, int]] = frozenset()


def slots_of(body: bytes) -> Slots | Unknown:
    """What a page of slots says.

    >>> slots_of(b'[{"is_processing": true, "next_token": [{"n_decoded": 5}]}, {"is_processing": false}]')
    Slots(busy=1, decoded=5, context=None, full=frozenset())
    """
    try:
        slots = json.loads(body)
        at_work = [slot for slot in slots if _is_at_work(slot)]
        contexts = [int(slot["n_ctx"]) for slot in slots if "n_prompt_tokens" in slot]
        full = frozenset((int(slot["id"]), int(slot["id_task"])) for slot in slots if _is_full(slot))
        return Slots(len(at_work), sum(_decoded(slot) for slot in at_work), max(contexts, default=None), full)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return _STRANGE


def _is_at_work(slot: dict[str, Any]) -> bool:
    """`state` is of builds before 2025: 0 is idle."""
    return bool(slot["is_processing"] if "is_processing" in slot else slot["state"])


def _decoded(slot: dict[str, Any]) -> int:
    """Newer builds have a list, one entry for each token to come."""
    following = slot["next_token"]
    return int((following[0] if isinstance(following, list) else following)["n_decoded"])


def _is_full(slot: dict[str, Any]) -> bool:
    """It ends a request when the next token would be its last one: 255 of 256 are left there (server-context.cpp)."""
    return "n_prompt_tokens" in slot and int(slot["n_prompt_tokens"]) >= int(slot["n_ctx"]) - 1


class FilledContexts:
    """Counts the requests that were seen to fill their slot: those that were there at the first look are of before.

    A slot that is taken by the next request between two looks is not seen: they are the least there were.
    """

    def __init__(self) -> None:
        self._known: frozenset[tuple[int, int]] | None = None
        self._counted = 0

    def count(self, full: frozenset[tuple[int, int]]) -> int:
        """Requests since the first look."""
        if self._known is not None:
            self._counted += len(full - self._known)
        self._known = full
        return self._counted


class Running:
    """Counts the tokens of a server that counts them when a request ends: those, and of the requests that run.

    The page of slots is read after the metrics: a request that ends in between is in neither of them. So the count
    would fall, and it stands still instead until the next look.
    """

    def __init__(self) -> None:
        self._ended = 0.0
        self._counted = 0.0

    def count(self, ended: float, decoded: int) -> float:
        """Tokens since the server's start; one that counts fewer ended ones than before was started again."""
        if ended < self._ended:
            self._counted = 0.0
        self._ended = ended
        self._counted = max(self._counted, ended + decoded)
        return self._counted
