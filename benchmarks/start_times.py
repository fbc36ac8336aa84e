"""How soon llmtop shows something, and how soon it answers a key, beside the budgets.

    python benchmarks/start_times.py [--runs 7] [--kernels 2000] [--nvtop PATH] [--nvitop PATH]

Each program runs in a pseudo-terminal; times are of the output that made the screen show what was waited for, counted
from the start of the process. Medians, with a warm page cache. Eight made-up GPUs stand behind the live screens, one
behind that of the demo server.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import (
    LLMTOP,
    ROOT,
    DemoServer,
    TimedTerminal,
    fake_gpus,
    machine,
    median,
    peak_rss_mb,
    percentile,
    table,
)
from benchmarks.make_large_report import write_report

SMALL = ROOT / "sample_traces/ncu/2025.3.1/sgemm-ladder.ncu-rep.xz"
PRESSES = 60
WINDOW_S = 1.0
"""Of `snapshot`; its budget is for what comes on top."""
Env = Mapping[str, str | None]
Row = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Start:
    """A program, what its first paint and its full picture are in the screen's text, and how long to wait for both."""

    argv: Sequence[str]
    first: Callable[[str], object]
    full: Callable[[str], object]
    seconds: float = 2.5


def has_titles(text: str) -> bool:
    """Whether the live screen's panes are drawn."""
    return "1 Roofline" in text and "6 CPU-GPU" in text


def has_readings(text: str) -> bool:
    """Whether a live screen shows readings of eight GPUs: percentages, or the SM clocks of the made-up ones in MHz."""
    return len(re.findall(r"\d ?%", text)) >= 8 or len(re.findall(r"(?<!\d)(?:1[5-9]|2[0-3])\d\d(?!\d)", text)) >= 8


def has_rate(text: str) -> bool:
    """Whether the header shows what the server delivers: a counter read twice."""
    return re.search(r"tok/s +\d", text) is not None


def has_durations(text: str) -> bool:
    """Whether the kernel table has rows."""
    return sum(text.count(f" {unit} ") for unit in ("ns", "µs", "ms", "s")) > 2


def run_once(start: Start, env: Env) -> tuple[float | None, float | None, float]:
    """Run a program; seconds to its first paint and to its full picture, and the most memory it held in MB."""
    with TimedTerminal(start.argv, env) as terminal:
        time.sleep(start.seconds)
        rss = peak_rss_mb(terminal.pid)
        terminal.signal(signal.SIGTERM)
        terminal.wait_exit()
        first, full = terminal.when(start.first, start.full)
    return first, full, rss


def start_rows(starts: Mapping[str, tuple[Start, str]], env: Env, runs: int) -> list[Row]:
    """Medians of all programs, run by turns so that whatever else the machine does meets all alike."""
    measured: dict[str, list[tuple[float | None, float | None, float]]] = {name: [] for name in starts}
    for _ in range(runs):
        for name, (start, _) in starts.items():
            measured[name].append(run_once(start, env))
    rows = []
    for name, (_, budget) in starts.items():
        first, full, rss = (median(column) for column in zip(*measured[name], strict=True))
        rows.append((name, f"{_seconds(first)} / {_seconds(full)} / {rss:.0f} MB", budget))
    return rows


def attached_rows(runs: int) -> list[Row]:
    """The live screen of a server under load, which takes what it can get of the same cores."""
    with DemoServer("--load") as server, fake_gpus(1, user=server.pid) as env:
        attach = (*LLMTOP, "--attach", str(server.pid), "--interval", "0.5")
        start = Start(attach, has_titles, has_rate, 4.0)
        return start_rows(
            {"live screen of a server, 2 Hz: panes, first rate": (start, "0.6 s first paint, 1.5 s rate")}, env, runs
        )


def snapshot_row(env: Env, runs: int) -> Row:
    """The time that `snapshot` takes beyond its window."""
    taken = []
    command = [*LLMTOP, "snapshot", "--json", "--seconds", str(WINDOW_S)]
    plain = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"} | {k: v for k, v in env.items() if v is not None}
    for _ in range(runs):
        start_s = time.perf_counter()
        subprocess.run(command, env=plain, check=True, capture_output=True)
        taken.append(time.perf_counter() - start_s - WINDOW_S)
    return ("`snapshot --json`, beyond its window", _seconds(median(taken)), "0.3 s")


def key_rows(report: Path, env: Env) -> Iterator[Row]:
    """Answers to keys, on screens where nothing else moves."""
    with TimedTerminal([*LLMTOP, "open", str(report)], env) as explorer:
        explorer.wait_for_output(b"kernel")
        time.sleep(3.0)
        for _ in range(2):
            explorer.response_s("b", quiet_s=0.5)  # from five groups to all launches
        yield _key_row("cursor down in the kernel table", explorer, ["down"])
        yield _key_row("page down in the kernel table", explorer, ["pagedown", "pageup"])
        yield _key_row("digits, from tab to tab of the explorer", explorer, ["2", "3", "4", "5", "6", "1"])
    with TimedTerminal(LLMTOP, env) as live:
        live.wait_for_output(b"Roofline")
        time.sleep(3.0)
        live.response_s("space", quiet_s=0.3)
        yield _key_row("digits, from pane to pane of the live screen", live, ["2", "3", "4", "6", "1"])


def _key_row(name: str, terminal: TimedTerminal, keys: Sequence[str]) -> Row:
    for key in keys:  # what a first visit builds is not what a key costs
        terminal.response_s(key, quiet_s=0.5)
    answers = [terminal.response_s(keys[i % len(keys)]) for i in range(PRESSES)]
    known = [answer for answer in answers if answer is not None]
    if not known:
        return (name, "never answered", "50 ms (p95)")
    p50, p95 = (percentile(known, share) * 1000 for share in (0.5, 0.95))
    unanswered = "" if len(known) == len(answers) else f"; {len(answers) - len(known)} of {len(answers)} drew nothing"
    return (name, f"{p50:.0f} / {p95:.0f} ms{unanswered}", "50 ms (p95)")


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--kernels", type=int, default=2000, help="in the large report")
    parser.add_argument("--nvtop", default=shutil.which("nvtop"), help="where it is, if not on the PATH")
    parser.add_argument("--nvitop", default=shutil.which("nvitop"))
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder, fake_gpus(8) as env:
        large = Path(folder) / "large.ncu-rep"
        write_report(large, options.kernels)
        titled = f"`open`, {options.kernels:,} kernels ({large.stat().st_size / 1e6:.0f} MB)"
        starts = {
            "live screen: panes, readings": (Start(LLMTOP, has_titles, has_readings), "0.6 s first paint, 90 MB"),
            "`open`, small report (.xz): tabs, table": (_open(SMALL), "0.6 s first paint"),
            f"{titled}: tabs, table": (_open(large, 4.0), "0.8 s table, 250 MB"),
        }
        for name, path in (("nvtop", options.nvtop), ("nvitop", options.nvitop)):
            if path:
                starts[f"{name}: readings"] = (Start([path], has_readings, has_readings), "")
            else:
                print(f"{name} is not measured: not installed here (--{name} PATH)")
        rows = [*start_rows(starts, env, options.runs), *attached_rows(options.runs), snapshot_row(env, options.runs)]
        print(table(("start", "first paint / full / peak memory", "budget"), rows))
        print(table(("key to screen", "p50 / p95", "budget"), list(key_rows(large, env))))
    return 0


def _open(report: Path, seconds: float = 2.5) -> Start:
    return Start([*LLMTOP, "open", str(report)], lambda text: "1 Kernels" in text, has_durations, seconds)


if __name__ == "__main__":
    raise SystemExit(main())
