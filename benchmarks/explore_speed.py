"""How soon `llmtop open` shows something: first paint, and the kernel table, in a real pseudo-terminal of 120x40.

    python benchmarks/explore_speed.py REPORT... [--runs 5]

Medians over runs with a warm page cache; also the peak memory, and what scrolling and quitting take.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.e2e.terminal import Terminal  # noqa: E402


@dataclass(frozen=True, slots=True)
class Run:
    """One start; times in seconds since the process was started, memory in MB."""

    first_paint_s: float
    table_s: float
    key_s: float
    quit_s: float
    rss_mb: float


def has_rows(text: str) -> bool:
    """Whether the kernel table shows durations."""
    return sum(text.count(f" {unit} ") for unit in ("ns", "µs", "ms", "s")) > 2


def measure(report: Path) -> Run:
    """Open a report once."""
    start = time.perf_counter()
    with Terminal([sys.executable, "-m", "llmtop", "open", str(report)], columns=120, lines=40, cwd=ROOT) as terminal:
        terminal.wait_for("[1 Kernels]")
        first_paint = time.perf_counter() - start
        terminal.wait_for(has_rows, timeout_s=60)
        table = time.perf_counter() - start
        pressed = time.perf_counter()
        terminal.press("6")
        terminal.wait_for("[6 Session]")
        key = time.perf_counter() - pressed
        rss = psutil.Process(terminal.pid).memory_info().rss / 1e6
        left = time.perf_counter()
        terminal.press("q")
        terminal.wait_exit()
        return Run(first_paint, table, key, time.perf_counter() - left, rss)


def main() -> None:
    """Print a table of medians."""
    arguments = argparse.ArgumentParser(description="How soon `llmtop open` shows something.")
    arguments.add_argument("reports", type=Path, nargs="+")
    arguments.add_argument("--runs", type=int, default=5)
    options = arguments.parse_args()
    print(f"{'report':40} {'MB':>6} {'first paint':>12} {'table':>8} {'key':>8} {'quit':>8} {'RSS':>8}")
    for report in options.reports:
        runs = [measure(report.resolve()) for _ in range(options.runs)]
        columns = zip(*((r.first_paint_s, r.table_s, r.key_s, r.quit_s, r.rss_mb) for r in runs), strict=True)
        paint, table, key, leave, rss = (statistics.median(column) for column in columns)
        times = f"{paint:10.2f} s {table:6.2f} s {key * 1000:5.0f} ms {leave * 1000:5.0f} ms {rss:5.0f} MB"
        print(f"{report.name:40.40} {report.stat().st_size / 1e6:6.1f} {times}")


if __name__ == "__main__":
    main()
