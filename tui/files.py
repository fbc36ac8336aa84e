"""Files that keys write: beside no input, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path


def new_stem(what: str = "") -> Path:
    """Where a file goes that a key writes now, without its ending: what it is of, if anything, and when it was written.

    Raises:
        OSError: There is no such folder, and none can be made.
    """
    folder = Path(os.environ.get("LLMTOP_SCREENSHOTS") or Path.home())
    folder.mkdir(parents=True, exist_ok=True)
    words = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in what.lower()).split()
    return folder / "-".join(["llmtop", *words, f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"])


def write_whole(texts: Mapping[Path, str]) -> None:
    """Write files, all of them whole: on a full disk nothing of them is left.

    Raises:
        OSError: One could not be written.
    """
    written: list[Path] = []
    try:
        for path, text in texts.items():
            written.append(path)
            path.write_text(text, encoding="utf-8")
    except OSError:
        for path in written:
            path.unlink(missing_ok=True)
        raise
