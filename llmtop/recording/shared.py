"""A copy of a recording without secrets, searched for what was taken out once it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.frozen import frozen
from llmtop.recording.copies import RecordedRows, write_copy
from llmtop.recording.remains import Remains, remains

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
        left: What was taken out and stands in it all the same: then it may not be given away.
    """

    moments: int
    left: tuple[Remains, ...]


def shared_copy(rows: RecordedRows, path: Path, secrets: Secrets) -> SharedCopy:
    """Write a copy without secrets, and search all of it for what was taken out.

    What is found is looked for everywhere from then on, and the copy written anew.

    Raises:
        FileExistsError: There is such a file.
        OSError: It cannot be read or written; what has been written is removed again.
    """
    for row in rows:
        secrets.learn(row.document)
    copy = _written(rows, path, secrets)
    for _ in range(_MORE_TRIES):
        if not copy.left:
            break
        path.unlink()
        secrets.seek({one.what for one in copy.left})
        copy = _written(rows, path, secrets)
    return copy


def _written(rows: RecordedRows, path: Path, secrets: Secrets) -> SharedCopy:
    moments = write_copy(rows, path, secrets.without)
    return SharedCopy(moments, tuple(remains(rows, RecordedRows(path), path, secrets.kept)))
