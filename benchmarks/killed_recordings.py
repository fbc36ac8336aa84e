"""Kills `llmtop record` at moments drawn at random: is the file whole each time, and what is lost?

    python benchmarks/killed_recordings.py [--kills 100] [--longest 6] [--attach PID]

"integrity" is SQLite's own check; "rows missing" are ids that no row has; "lost" is the time from the last moment in
the file to the kill.
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
from benchmarks.bench import machine, percentile, table  # noqa: E402
from llmtop.recording.reader import RecordingReader  # noqa: E402


def main() -> None:
    """Kill that often, and print what was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--longest", type=float, default=6.0, metavar="S", help="the latest kill, after the file is there"
    )
    parser.add_argument("--attach", metavar="PID")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw, found, lost_s = random.Random(args.seed), Counter[str](), list[float]()
    with tempfile.TemporaryDirectory(prefix="llmtop-kills-") as folder:
        for kill in range(args.kills):
            path = Path(folder, f"{kill}.llmtop")
            killed_ns = record_until(path, draw.uniform(0, args.longest), args.attach)
            found["integrity ok"] += integrity(path) == "ok"
            try:
                recording = RecordingReader(path)
            except ValueError:
                found["without a moment"] += 1
                continue
            found["opened"] += 1
            found["with an issue"] += bool(recording.trace(recording.times[-1]).issues)
            found["rows missing"] += recording._rows.lost
            lost_s.append((killed_ns - recording.times[-1]) / 1e9)
    print(machine())
    print(table(("", "of"), [(name, count) for name, count in [("kills", args.kills), *found.items()]]))
    if lost_s:
        print(f"lost: {min(lost_s):.2f} to {max(lost_s):.2f} s, median {percentile(lost_s, 0.5):.2f} s")


def record_until(path: Path, seconds: float, pid: str | None) -> int:
    """Kill a recording so long after its file is there; when that was, on the clock of its moments."""
    attach = ["--attach", pid] if pid else []
    command = [sys.executable, "-m", "llmtop", "record", "-o", str(path), "--probes", "off", *attach]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not path.exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(seconds)
        killed_ns = time.monotonic_ns()
        process.send_signal(signal.SIGKILL)
    return killed_ns


def integrity(path: Path) -> str:
    """What SQLite says of a file."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            return str(database.execute("PRAGMA integrity_check").fetchone()[0])
    except sqlite3.Error as error:
        return str(error)


if __name__ == "__main__":
    main()
