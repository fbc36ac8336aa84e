"""What a user has chosen in the explorer, kept for the next time: in llmtop's own folder, never beside a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from llmtop.files import own_folder, read_own, write_whole
from llmtop.state import state_folder
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_COLUMNS: Final = "kernel_columns"
MOST_COLUMNS: Final = 12
"""More than any screen has room for."""


def remembered_columns() -> tuple[str, ...]:
    """The metrics that stand in the kernel table; none where nothing is kept, or nobody can read it."""
    try:
        kept = json.loads(read_own(_file()))
    except (OSError, ValueError):
        return ()
    names = kept.get(_COLUMNS) if isinstance(kept, dict) else None
    known = [clean(name) for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return tuple(dict.fromkeys(known))[:MOST_COLUMNS]


def remember_columns(names: Sequence[str]) -> None:
    """Keep them.

    Raises:
        OSError: They cannot be written.
    """
    file = _file()
    own_folder(file.parent)
    write_whole({file: json.dumps({_COLUMNS: list(names)}, indent=1) + "\n"})


def _file() -> Path:
    return state_folder() / "explorer.json"
