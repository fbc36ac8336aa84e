"""What the live screen costs: bytes to the terminal, CPU, memory, time to the first numbers.

The real program runs in a pseudo-terminal on a synthetic session (tests/live_traces.py), so that only the screen is
measured: no driver, no server, no /proc. The terminal answers cursor requests, as a real one does.

Usage: python benchmarks/live_cost.py [--seconds 20] [--size 120x40]
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

CASES = (
    ("nothing moves", 1, "idle", 1.0),
    ("steady load", 1, "steady", 1.0),
    ("everything moves", 1, "moving", 1.0),
    ("nothing moves, 8 GPUs", 8, "idle", 1.0),
    ("everything moves, 8 GPUs", 8, "moving", 1.0),
    ("everything moves, 8 GPUs, 2 Hz", 8, "moving", 0.5),
)
PREFILL = 120
"""Ticks recorded before the start, so that graphs are full: their scrolling is what costs."""
SETTLE_S = 5.0
"""Start-up and the first frames are not part of the steady state."""
FIRST_NUMBER = b"tok/s"


@dataclass
class Cost:
    """One run. `bytes_per_s` and `cpu` (share of a core) are of the steady state, `rss_mb` at its end."""

    bytes_per_s: float
    cpu: float
    rss_mb: float
    first_frame_s: float
    first_number_s: float


def child(gpus: int, load: str, interval: float, seconds: float, prefill: int) -> int:
    """The program under measurement."""
    from llmtop.tui.terminal import guard

    if reason := guard():
        raise SystemExit(reason)
    from llmtop.model import NS_PER_S, Origin
    from llmtop.session import Session
    from llmtop.tui.screens.live import watch_session
    from tests.live_traces import TARGET, Scene, SyntheticCollector, poll

    scene = Scene(gpus=gpus, is_moving=load == "moving", is_idle=load == "idle")
    session = Session((SyntheticCollector(scene, first_tick=prefill),), Origin("live"), interval_s=interval)
    now = time.monotonic_ns()
    for tick in range(prefill):
        session.recorder.append("synthetic", poll(scene, tick, now - int((prefill - tick) * interval * NS_PER_S)))
    return watch_session(session, TARGET, seconds=seconds, interval=interval)


def measure(gpus: int, load: str, interval: float, seconds: float, size: tuple[int, int], prefill: int) -> Cost:
    """Run the child in a terminal of (columns, rows) and watch it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    arguments = [str(gpus), load, str(interval), str(seconds), str(prefill)]
    environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, __file__, "--child", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    try:
        return _watch(process, master, started, seconds)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _watch(process: subprocess.Popen[bytes], master: int, started: float, seconds: float) -> Cost:
    frame = number = 0.0
    steady_bytes = 0
    steady: tuple[float, float] | None = None
    cpu = elapsed = rss = 0.0
    seen = b""
    while process.poll() is None:
        if select.select([master], [], [], 0.05)[0]:
            try:
                data = os.read(master, 1 << 16)
            except OSError:
                break
            os.write(master, b"\x1b[1;1R" * data.count(b"\x1b[6n"))
            now = time.monotonic() - started
            seen = (seen + data)[-(1 << 17) :]
            frame = frame or (now if b"Roofline" in seen else 0.0)
            number = number or (now if FIRST_NUMBER in seen else 0.0)
            steady_bytes += len(data) if steady else 0
        now = time.monotonic()
        if steady is None and now - started > SETTLE_S:
            steady, steady_bytes = (now, _cpu_s(process.pid)), 0
        if steady and now - started < seconds - 0.5:
            cpu, elapsed, rss = _cpu_s(process.pid) - steady[1], now - steady[0], _rss_mb(process.pid)
            counted = steady_bytes
    return Cost(counted / elapsed, cpu / elapsed, rss, frame, number)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each run")
    parser.add_argument("--size", default="120x40", help="columns x rows")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        gpus, load, interval, seconds, prefill = args.child
        return child(int(gpus), load, float(interval), float(seconds), int(prefill))
    columns, rows = (int(part) for part in args.size.split("x"))
    print(f"{'scene':<32} {'kB/s':>7} {'CPU %':>7} {'RSS MB':>7} {'frame s':>8} {'number s':>9}   ({args.size})")
    for name, gpus, load, interval in CASES:
        cost = measure(gpus, load, interval, args.seconds, (columns, rows), PREFILL)
        fresh = measure(gpus, load, interval, SETTLE_S + 1, (columns, rows), 0)
        print(
            f"{name:<32} {cost.bytes_per_s / 1000:7.2f} {cost.cpu * 100:7.2f} {cost.rss_mb:7.1f} "
            f"{fresh.first_frame_s:8.2f} {fresh.first_number_s:9.2f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
