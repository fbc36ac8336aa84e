"""docs/numbers.md: every limit as the code states it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.analysis.threads import stall_times
from llmtop.cli.stated_numbers import PARTS, files, page, rows_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numbers.md"


@pytest.mark.parametrize("file", [file for part in PARTS for file in files(part)])
def test_the_numbers_of_a_file_are_as_it_states_them(file: str) -> None:
    _, _, after = PAGE.read_text().partition(f"`{file}`\n\n")
    table = after.partition("\n\n")[0].splitlines()[2:]
    assert table == list(rows_of(file)), "make manual, and look at what changed"


def test_the_page_is_as_the_code_is() -> None:
    assert PAGE.read_text() == "".join(f"{line}\n" for line in page()), "make manual, and look at what changed"


def test_what_a_cache_holds_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_times, "_sleeps", {"thread:7/7": 0.6})
    assert not [row for row in rows_of("analysis/threads/stall_times.py") if row.startswith("| `sleeps`")]


def test_numbers_are_told_in_full_with_their_units() -> None:
    lines = PAGE.read_text().splitlines()
    assert [line for line in lines if line.startswith("## ")] == [f"## {title}" for title in PARTS.values()]
    for row in (
        "| `SERVER_STARTS_S` | 120 s |",
        "| `LOOSEST_NS` | 50 µs |",
        "| `LATENCY_PERCENT` | 60 % |",
        "| `DEFAULTS` | ttft.p99 0.5, ttft.p50 0.2, itl.p99 0.05, itl.p50 0.025 |",
        "| `SINCE` | WorkloadDistribution (2024, 1) |",
        "| `BATCH_BYTES` | 4,194,304 bytes |",
        "| `LIGHT` | ((stack_every 0, calls counted, scheduler True, sliced False), (stack_every 0, calls off,",
        "| `DUMP` | 769 | NLM_F_REQUEST \\| NLM_F_DUMP |",
        "| `NO_MORE`, `AGAIN` | 0.1, 0.333333333333 |",
    ):
        assert [line for line in lines if line.startswith(row)], row
