"""What watching costs next to a process of very many threads that sleep.

    python benchmarks/thread_cost.py [--threads 10 500 5000] [--seconds 30] [--warm-up 30] [--interval 1] [--probes]

Each row is llmtop in a terminal of its own, attached to a process with so many threads: CPU of llmtop and of its
helpers in percent of a core, after the warm-up, memory, and how long a snapshot of 3 s takes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, ROOT, TimedTerminal, Use, machine, table

CROWD = """
import sys, threading
threading.stack_size(65536)
rest = threading.Event()
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=rest.wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def crowd(threads: int) -> Iterator[int]:
    """A process of so many threads; its PID."""
    program = [sys.executable, "-c", CROWD, str(threads)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def cost(pid: int, options: argparse.Namespace) -> tuple[str, str, str, str]:
    """CPU of llmtop and of its helpers in percent of a core, memory in MB, seconds of a snapshot."""
    env = {} if options.probes else {"LLMTOP_NO_EBPF": "1"}
    with TimedTerminal([*LLMTOP, "--attach", str(pid), "--interval", f"{options.interval:g}"], env) as terminal:
        time.sleep(options.warm_up)
        before = Use.of(terminal.pid)
        time.sleep(options.seconds)
        terminal.check_running()
        after = Use.of(terminal.pid)
    seconds = after.at_s - before.at_s
    own, helpers = after.own_s - before.own_s, after.children_s - before.children_s
    start_s = time.perf_counter()
    snapshot = [*LLMTOP, "snapshot", "--attach", str(pid), "--seconds", "3"]
    subprocess.run(snapshot, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, cwd=ROOT)
    took_s = time.perf_counter() - start_s
    return f"{100 * own / seconds:.1f}", f"{100 * helpers / seconds:.1f}", f"{after.rss / 1e6:.0f}", f"{took_s:.1f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[10, 500, 5000])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=30.0)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--probes", action="store_true", help="with probes in the kernel")
    options = parser.parse_args()
    print(machine(), end="\n\n")
    rows = []
    for threads in options.threads:
        with crowd(threads) as pid:
            rows.append((threads, *cost(pid, options)))
    print(table(("threads", "CPU %", "helpers %", "MB", "snapshot of 3 s, s"), rows))


if __name__ == "__main__":
    main()
