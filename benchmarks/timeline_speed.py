"""How soon `llmtop open` draws the timeline of a large capture, and how fast it moves about in it, at any zoom.

    python benchmarks/timeline_speed.py [CAPTURE.sqlite] [--kernels 1000000]

Without a capture one is made (`make_large_capture`). "drawn" is from the start of the process to the first bars, in a
real pseudo-terminal of 120x40; "key" from a key to the next screen there. "frame" is the CPU time of a whole frame in
this process, after zooming or moving at every zoom from the whole capture to single nanoseconds. "at most" is the
largest memory that the process on the terminal ever had, which is more than what it has at the end.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.make_large_capture import write_capture  # noqa: E402
from llmtop.analysis.timeline.explore import TimelineCursor  # noqa: E402
from llmtop.analysis.timeline.spans import TraceTimeline  # noqa: E402
from llmtop.parsers.registry import load  # noqa: E402
from llmtop.tui.render.look import Look  # noqa: E402
from llmtop.tui.render.timeline import TimelinePicture, columns_of, draw_timeline  # noqa: E402
from tests.e2e.terminal import Terminal  # noqa: E402

WIDTH, HEIGHT = 118, 34
MOVES = 400


def p95(values: list[float]) -> float:
    """The value that 95 of 100 do not exceed."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def on_a_terminal(capture: Path) -> tuple[float, float, list[float], float, float]:
    """Seconds until the kernels and until the timeline are drawn, of each key, and the memory now and at most in MB."""
    start = time.perf_counter()
    with Terminal([sys.executable, "-m", "llmtop", "open", str(capture)], columns=120, lines=40, cwd=ROOT) as terminal:
        terminal.wait_for("2 Timeline", timeout_s=120)
        table = time.perf_counter() - start
        terminal.press("2")
        terminal.wait_for(lambda text: "[2 Timeline]" in text and "GPU 0" in text.split("Timeline", 2)[-1], 120)
        drawn = time.perf_counter() - start
        keys = []
        for key in "wwwwwwddddaassddddwwwwwdddsssssss" * 2:
            before = terminal.screen_text()
            pressed = time.perf_counter()
            terminal.press(key)
            terminal.wait_for(lambda text, before=before: text != before)
            keys.append(time.perf_counter() - pressed)
        memory, most = psutil.Process(terminal.pid).memory_info().rss / 1e6, most_mb(terminal.pid)
        terminal.press("q")
        terminal.wait_exit()
    return table, drawn, keys, memory, most


def most_mb(pid: int) -> float:
    """The largest resident memory that a process has had (VmHWM of proc_pid_status(5), which counts in KiB)."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return next(int(words[1]) * 1024 / 1e6 for words in lines if words[0] == "VmHWM:")


def frames(capture: Path) -> tuple[float, list[float]]:
    """CPU seconds to make the lines, and CPU seconds of each frame."""
    trace = load(capture)
    began = time.process_time()
    timeline = TraceTimeline(trace)
    cursor = TimelineCursor(timeline)
    for place in timeline.places(cursor.opened):
        timeline.prepare(place.row)
    made = time.process_time() - began
    timeline.explain_gaps()
    cursor.columns = columns_of(WIDTH)
    choices, look, taken = random.Random(0), Look(), []
    for move in range(MOVES):
        began = time.process_time()
        if move % 40 == 39:
            cursor.whole()
        elif move % 2:
            cursor.pan(choices.choice((-0.9, -0.125, 0.125, 0.9)))
        else:
            cursor.t_ns = choices.randrange(cursor.window.start_ns, cursor.window.end_ns)
            cursor.zoom(0.5)
        places = cursor.places()
        picture = TimelinePicture(
            timeline, cursor.window, places, cursor.at(places), cursor.t_ns, cursor.span(), cursor.partner(),
            opened=frozenset(cursor.opened), gaps=timeline.gaps,
        )  # fmt: skip
        draw_timeline(picture, WIDTH, HEIGHT, look)
        taken.append(time.process_time() - began)
    return made, taken


def main() -> None:
    """Print a line of times."""
    arguments = argparse.ArgumentParser(description="How fast the timeline of a large capture is.")
    arguments.add_argument("capture", type=Path, nargs="?")
    arguments.add_argument("--kernels", type=int, default=1_000_000)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture = options.capture or Path(folder) / "large.sqlite"
        if options.capture is None:
            write_capture(capture, options.kernels)
        made, taken = frames(capture)
        table, drawn, keys, memory, most = on_a_terminal(capture)
        print(f"{capture.name}: {capture.stat().st_size / 1e6:.0f} MB")
        print(
            f"kernels {table:.2f} s, timeline drawn {drawn:.2f} s, {memory:.0f} MB, {most:.0f} MB at most; "
            f"lines made in {made:.2f} s of CPU"
        )
        print(f"frame: median {1e3 * statistics.median(taken):.1f} ms, p95 {1e3 * p95(taken):.1f} ms (CPU)")
        print(f"key to screen: median {1e3 * statistics.median(keys):.0f} ms, p95 {1e3 * p95(keys):.0f} ms")


if __name__ == "__main__":
    main()
