"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_examples_in_docstrings() -> None:
    folders = (ROOT / "llmtop", *(ROOT / "llmtop" / link for link in ("collectors", "parsers", "tui")))
    paths = [path for folder in folders for path in folder.rglob("*.py") if ">>> " in path.read_text()]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    results = {name: doctest.testmod(import_module(name)) for name in sorted(names)}
    assert sum(result.attempted for result in results.values()) > 300
    assert {name: result for name, result in results.items() if result.failed} == {}
