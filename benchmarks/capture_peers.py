"""What other tools take for a large Nsight Systems capture, beside llmtop, one after the other in one run.

    python benchmarks/capture_peers.py [--kernels 1000000] [--nsys NSYS] [--nsys-ai NSYS_AI] [--most-s 300]

Each is a process of its own on the export of `make_large_capture`; CPU time and memory are of all that it started.
A tool that is not named is left out. Perfetto's trace_processor reads no such exports, nor does HolisticTraceAnalysis:
`kineto_speed.py` has the latter beside llmtop on PyTorch traces.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.make_large_capture import write_capture  # noqa: E402

_TABLE = (
    "import sys; from pathlib import Path; from llmtop.parsers.registry import load; "
    "from llmtop.analysis.kernels.table import kernels_of; list(kernels_of(load(Path(sys.argv[1]))).groups())"
)


def measured(command: list[str], folder: Path, most_s: float) -> str:
    """Seconds by the clock and of CPU, and the most memory; or that it failed, or took longer than it may."""
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = threading.Timer(most_s, process.kill)
    limit.start()
    _, status, usage = os.wait4(process.pid, 0)
    limit.cancel()
    wall = time.perf_counter() - start
    process.returncode = code = os.waitstatus_to_exitcode(status)
    said = "" if code == 0 else f"  stopped after {wall:.0f} s" if code < 0 else f"  exit code {code}"
    return f"{wall:8.2f} s{usage.ru_utime + usage.ru_stime:8.2f} s{usage.ru_maxrss * 1024 / 1e6:8.0f} MB{said}"


def main() -> None:
    """Print a line for each tool."""
    arguments = argparse.ArgumentParser(description="llmtop beside other readers of Nsight Systems' captures.")
    arguments.add_argument("--kernels", type=int, default=1_000_000)
    arguments.add_argument("--nsys", default="")
    arguments.add_argument("--nsys-ai", default="")
    arguments.add_argument("--most-s", type=float, default=300.0)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "large.sqlite"
        kernels = write_capture(capture, options.kernels)
        print(f"{kernels} kernels, {capture.stat().st_size / 1e6:.0f} MB")
        print(f"{'':38}{'wall':>10}{'CPU':>10}{'peak':>11}")
        llmtop = [sys.executable, "-m", "llmtop", "report", str(capture)]
        commands = {
            "llmtop, kernel table": [sys.executable, "-c", _TABLE, str(capture)],
            "llmtop report (all, with findings)": llmtop,
        }
        if options.nsys:
            stats = [options.nsys, "stats", "-q", "-r", "cuda_gpu_kern_sum", "--format", "csv", str(capture)]
            commands["nsys stats -r cuda_gpu_kern_sum"] = stats
        if options.nsys_ai:
            commands["nsys-ai info"] = [options.nsys_ai, "info", str(capture)]
            commands["nsys-ai diagnose"] = [options.nsys_ai, "diagnose", str(capture)]
        for name, command in commands.items():
            print(f"{name:38}{measured(command, Path(folder), options.most_s)}", flush=True)


if __name__ == "__main__":
    main()
