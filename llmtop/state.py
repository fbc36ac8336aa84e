"""Where llmtop keeps what it remembers between runs."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Where programs keep their state (XDG base directories): `$XDG_STATE_HOME/llmtop`, `~/.local/state/llmtop`."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "llmtop"
