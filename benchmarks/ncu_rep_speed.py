"""How long until name and duration of every kernel of a .ncu-rep are known, and in how much memory.

Also until all is written as JSON, and until two such reports are compared (`llmtop diff`, each read by itself).

    python benchmarks/ncu_rep_speed.py [REPORT...] [--runs 5]

Without a report: the SGEMM sample, and 2,000 kernels made of it. llmtop is compared with NVIDIA's `ncu-report` wheel.
Each run is a process of its own; times count its imports, and memory is its peak. Medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from make_large_report import SAMPLE, write_report

from llmtop.parsers.compressed import COMPRESSIONS, unpacked

LLMTOP = """
from pathlib import Path
from llmtop.parsers.registry import load
kernels = load(Path(path)).kernels
table = [(kernels.name(i), kernels.duration_ns[i]) for i in range(len(kernels))]
"""
JSON = """
from pathlib import Path
from llmtop.cli.report_json import report_json
from llmtop.parsers.registry import load
trace = load(Path(path))
with open("/dev/null", "w") as out:
    out.writelines(report_json(trace))
table = [(trace.kernels.name(i), trace.kernels.duration_ns[i]) for i in range(len(trace.kernels))]
"""
DIFF = """
from llmtop.cli import main
from llmtop.parsers import registry
read, traces = registry.load, []
registry.load = lambda path: traces.append(read(path)) or traces[-1]
main(["diff", path, path, "-o", "/dev/null"])
kernels = traces[0].kernels
table = [(kernels.name(i), kernels.duration_ns[i]) for i in range(len(kernels))]
"""
NVIDIA = """
import ncu_report
report = ncu_report.load_report(path)
actions = [action for i in range(report.num_ranges()) for action in report.range_by_idx(i)]
table = [(a.name(a.NameBase_DEMANGLED), a.metric_by_name("gpu__time_duration.sum").as_double()) for a in actions]
"""
RUN = """
import json, re, sys, time
path, code = sys.argv[1:]
start = time.perf_counter()
space = {"path": path}
exec(code, space)
seconds = time.perf_counter() - start
# Not getrusage: its peak includes that of the process that started this one.
peak_kib = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps([seconds, peak_kib * 1024 / 1e6, len(space["table"]), sum(ns for _, ns in space["table"])]))
"""
READERS = {"llmtop": LLMTOP, "as JSON": JSON, "diff": DIFF, "ncu-report": NVIDIA}


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description="Compare readers of .ncu-rep files.")
    arguments.add_argument("reports", nargs="*", type=Path)
    arguments.add_argument("--runs", type=int, default=5)
    options = arguments.parse_args()
    print(f"{'report':32} {'size':>9} {'kernels':>7}  {'reader':10} {'seconds':>8} {'peak RSS':>9}")
    if options.reports:
        for report in options.reports:
            compare(report, options.runs)
        return
    with tempfile.TemporaryDirectory() as folder, unpacked(SAMPLE, COMPRESSIONS[0]) as small:
        large = Path(folder) / "2000-kernels.ncu-rep"
        write_report(large, 2000)
        compare(small, options.runs)
        compare(large, options.runs)


def compare(report: Path, runs: int) -> None:
    """Print one line per reader; both must find the same."""
    found = set()
    for reader, code in READERS.items():
        results = [measure(report, code) for _ in range(runs)]
        seconds, megabytes = (statistics.median(result[i] for result in results) for i in (0, 1))
        kernels, total_ns = results[0][2:]
        found.add((kernels, total_ns))
        size = f"{report.stat().st_size / 1e6:.1f} MB"
        print(f"{report.name:32} {size:>9} {kernels:7}  {reader:10} {seconds:8.3f} {megabytes:6.0f} MB", flush=True)
    if len(found) > 1:
        sys.exit(f"the readers disagree: {found}")


def measure(report: Path, code: str) -> tuple[float, float, int, float]:
    """Seconds, peak MB, kernels and their summed duration of one run."""
    command = [sys.executable, "-c", RUN, str(report), code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes, kernels, total_ns = json.loads(done.stdout.splitlines()[-1])
    return seconds, megabytes, kernels, total_ns


if __name__ == "__main__":
    main()
