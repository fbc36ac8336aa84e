"""A copy of a recording without secrets, searched for all of them once it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.frozen import frozen
from llmtop.recording.copies import RecordedRows, write_copy
from llmtop.recording.secrets import STAND_IN
from llmtop.recording.standing import Standing, standing

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.recording.secrets import Secrets

_MORE_TRIES: Final = 3
"""How often a copy is written anew without what was found in it: what goes may leave what looks like a secret."""


@frozen
class SharedCopy:
    """What was written.

    Attributes:
        moments: How many it has.
        left: What was taken out and stands in it all the same; of a copy that may be given away that is llmtop's own
            words alone.
    """

    moments: int
    left: tuple[Standing, ...]

    @property
    def leaks(self) -> tuple[Standing, ...]:
        """What stands where only the recorded machine can have put it."""
        return tuple(one for one in self.left if not one.is_own)


def shared_copy(rows: RecordedRows, path: Path, secrets: Secrets) -> SharedCopy:
    """Write a copy without secrets, and search all of its parts for each thing that was taken out of any.

    What is found is looked for everywhere from then on, and the copy written anew.

    Raises:
        FileExistsError: There is such a file.
        OSError: It cannot be read or written; what has been written is removed again.
    """
    for row in rows:
        secrets.learn(row.document)
    copy = _written(rows, path, secrets)
    for _ in range(_MORE_TRIES):
        if not copy.leaks:
            break
        path.unlink()
        secrets.seek({one.what for one in copy.leaks})
        copy = _written(rows, path, secrets)
    return copy


def _written(rows: RecordedRows, path: Path, secrets: Secrets) -> SharedCopy:
    moments = write_copy(rows, path, secrets.without)
    return SharedCopy(moments, tuple(standing(RecordedRows(path), secrets.taken, STAND_IN)))
