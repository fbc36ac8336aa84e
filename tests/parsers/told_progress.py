"""What is told while a file is read."""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING

from llmtop.parsers.progress import CURRENT, ReadingProgress
from llmtop.parsers.registry import load

if TYPE_CHECKING:
    from pathlib import Path


class ToldProgress(ReadingProgress):
    """Keeps all texts, one after the other."""

    def __init__(self) -> None:
        self.said: list[str] = []
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        if name == "text":
            self.said.append(str(value))
        super().__setattr__(name, value)


def told_while_read(path: Path) -> list[str]:
    """The texts from before the reading to behind it."""
    progress = ToldProgress()

    def watched() -> None:
        CURRENT.set(progress)
        load(path)

    copy_context().run(watched)
    return progress.said
