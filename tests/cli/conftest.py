"""Commands are asked the same of the same samples again and again: each sample is read once for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from llmtop.model import Trace
from llmtop.parsers import registry
from tests.kernel_traces import ROOT

MANY = 4
"""Samples that are kept."""


@pytest.fixture(autouse=True, scope="module")
def samples_are_read_once() -> Iterator[None]:
    """What a test writes is read each time."""
    read = registry._load
    kept = lru_cache(maxsize=MANY)(read)

    def load(path: Path) -> Trace:
        return kept(path) if path.is_relative_to(ROOT / "sample_traces") else read(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_load", load)
        yield
