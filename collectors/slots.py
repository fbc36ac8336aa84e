"""The requests that a server runs, by slot: what its counters tell only once a request has ended (llama-server)."""

from __future__ import annotations

import json
from typing import Any

from llmtop.frozen import frozen
from llmtop.model import Unknown

_STRANGE = Unknown("its slots are told in another form than llmtop knows")


@frozen
class Slots:
    """The slots that work: how many, and the output tokens of their requests so far."""

    busy: int
    decoded: int


def slots_of(body: bytes) -> Slots | Unknown:
    """What a page of slots says.

    >>> slots_of(b'[{"is_processing": true, "next_token": [{"n_decoded": 5}]}, {"is_processing": false}]')
    Slots(busy=1, decoded=5)
    """
    try:
        at_work = [slot for slot in json.loads(body) if _is_at_work(slot)]
        return Slots(len(at_work), sum(_decoded(slot) for slot in at_work))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return _STRANGE


def _is_at_work(slot: dict[str, Any]) -> bool:
    """`state` is of builds before 2025: 0 is idle."""
    return bool(slot["is_processing"] if "is_processing" in slot else slot["state"])


def _decoded(slot: dict[str, Any]) -> int:
    """Newer builds have a list, one entry for each token to come."""
    following = slot["next_token"]
    return int((following[0] if isinstance(following, list) else following)["n_decoded"])


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
