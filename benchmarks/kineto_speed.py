"""How long a PyTorch trace takes to read, and how much memory, beside JSON parsers and HolisticTraceAnalysis.

    python benchmarks/kineto_speed.py TRACE... [--runs 3] [--hta PYTHON]

Each reads in a process of its own, one after the other and all again in the next run; medians. json and orjson only
make objects of the file, which is the least that any reader built on them takes. `--hta` is a Python that has
HolisticTraceAnalysis installed; without it, that row is left out. "table" is the kernel table of llmtop, "all" also
its stacks, idle time and spans.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOAD = "from pathlib import Path; from llmtop.parsers.registry import load; trace = load(Path(sys.argv[1])); "
READERS = {
    "llmtop, table": LOAD + "from llmtop.analysis.kernels.table import kernels_of; list(kernels_of(trace).groups())",
    "llmtop, all": LOAD + "from llmtop.analysis.pages.report import summary; len(trace.stacks); summary(trace); "
    "from llmtop.analysis.timeline.span_rows import span_rows; span_rows(trace)",
    "json": "import json; read = json.load(open(sys.argv[1], 'rb'))",
    "orjson": "import orjson; read = orjson.loads(open(sys.argv[1], 'rb').read())",
}
HTA = (
    "from hta.common.trace_parser import parse_trace_dataframe; from hta.configs.parser_config import ParserConfig; "
    "parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())"
)
TOLD = (
    "; import json as j, resource as r; u = r.getrusage(r.RUSAGE_SELF); "
    "print(j.dumps([time.perf_counter() - start, u.ru_utime + u.ru_stime, u.ru_maxrss / 1024]))"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one reader; the start of Python is part of its CPU time alone."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def measure(python: str, code: str, trace: Path) -> Cost | None:
    """Read once; None where the reader is not installed or fails."""
    command = [python, "-c", f"import sys, time; start = time.perf_counter(); {code}{TOLD}", str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return Cost(*json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else None


def main() -> None:
    """Print a table for each trace."""
    arguments = argparse.ArgumentParser(description="Reading PyTorch traces, beside other readers.")
    arguments.add_argument("traces", type=Path, nargs="+")
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--hta", default="")
    options = arguments.parse_args()
    readers = [(name, sys.executable, code) for name, code in READERS.items()]
    readers += [("HTA", options.hta, HTA)] if options.hta else []
    for trace in options.traces:
        print(f"{trace.name}, {trace.stat().st_size / 1e6:.1f} MB, medians of {options.runs}")
        print(f"{'':16}{'wall':>10}{'CPU':>10}{'peak':>12}")
        costs: dict[str, list[Cost | None]] = {name: [] for name, _, _ in readers}
        for _ in range(options.runs):
            for name, python, code in readers:
                costs[name].append(measure(python, code, trace))
        for name, own in costs.items():
            print(f"{name:16}{told(own)}")


def told(costs: list[Cost | None]) -> str:
    """Medians, or that there are none."""
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return "  not installed, or failed"
    wall, cpu, peak = (
        statistics.median(values)
        for values in ([c.wall_s for c in known], [c.cpu_s for c in known], [c.peak_mib for c in known])
    )
    return f"{wall:8.2f} s{cpu:8.2f} s{peak:8.0f} MiB"


if __name__ == "__main__":
    main()
