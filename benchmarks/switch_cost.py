"""What does it cost to follow the threads of a server that switches often, and how much of the time is looked at?

Usage: sudo .venv/bin/python benchmarks/switch_cost.py [SECONDS [BUDGET]]

136 pairs of threads hand each other a byte and rest: at some thousand switches a second, and at ever more. The probes'
helper looks at them with the budget that llmtop gives it. The kernel times each run of its programs meanwhile
(BPF_ENABLE_STATS, which adds some 20 ns to each); what a switch costs is that time by the switches that were seen.
Needs root and gcc.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmtop.collectors.tracing.helper.kernel import time_programs
from llmtop.collectors.tracing.probes.collector import PROGRAM
from llmtop.collectors.tracing.process import HelperProcess

HERE = Path(__file__).resolve().parent
PAIRS = 136
RESTS_US = (400_000, 90_000, 28_000, 6_000, 2_500)
SETTLE_S = 4.0


@dataclass(frozen=True)
class Moment:
    """What there had been by then: ns of the clock, looked at, run by programs and by the helper; switches seen."""

    at: int
    looked: int
    ran: int
    helper: int
    switches: int
    truly: int
    told: dict[str, Any]


@contextmanager
def pairs(binary: Path, rest_us: int) -> Iterator[int]:
    """The program, at work."""
    pipe = subprocess.PIPE
    with subprocess.Popen([str(binary), str(PAIRS), str(rest_us)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def true_switches(pid: int) -> int:
    """Of all threads, as the kernel counts them."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += sum(map(int, re.findall(r"ctxt_switches:\s*(\d+)", (task / "status").read_text())))
    return found


def moment(helper: int, pid: int, report: dict[str, Any]) -> Moment:
    """What there has been until a report."""
    infos = (path.read_text() for path in Path(f"/proc/{helper}/fdinfo").iterdir())
    ran = sum(int(ns) for info in infos for ns in re.findall(r"^run_time_ns:\s*(\d+)", info, re.MULTILINE))
    fields = Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()
    spent = (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    looked, hits = report["observed"]["scheduler"], report["hits"]["switch"]
    return Moment(report["t"], looked, ran, spent, hits, true_switches(pid), report)


def reports(helper: HelperProcess) -> Iterator[dict[str, Any]]:
    """What it says, until it ends."""
    while not helper.is_at_end:
        select.select([helper], [], [], 1.0)
        yield from helper.reports()
    raise SystemExit(helper.last_words())


def measure(binary: Path, rest_us: int, seconds: float, budget: str) -> None:
    """Print a line."""
    with pairs(binary, rest_us) as pid:
        helper = HelperProcess([str(pid), "--interval", "1", "--budget", budget, "--light"], program=PROGRAM)
        helper_pid, moments = 0, list[Moment]()
        due = time.monotonic() + SETTLE_S
        for report in reports(helper):
            helper_pid = report["pid"] if report["kind"] == "ready" else helper_pid
            if report["kind"] == "sample" and time.monotonic() >= due:
                moments.append(moment(helper_pid, pid, report))
                due = time.monotonic() + seconds
            if len(moments) == 2:
                break
        helper.close()
    before, after = moments
    passed, switches = after.at - before.at, after.switches - before.switches
    rate = (after.truly - before.truly) / passed * 1e9
    ran, spent = after.ran - before.ran, after.helper - before.helper
    looked = (after.looked - before.looked) / passed
    shed = after.told["shed"] or "nothing shed"
    each, of_programs, of_helper = ran / max(1, switches), ran / passed, spent / passed
    print(f"{rate:>11,.0f} {looked:>7.0%} {each:>9.0f} {of_programs:>9.2%} {of_helper:>8.2%}  {shed}")


def main() -> None:
    """One line for each rate."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    budget = sys.argv[2] if len(sys.argv) > 2 else "0.01"
    clock = time_programs()
    if clock is None:
        raise SystemExit("the kernel does not time programs: root is needed")
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "switch_pairs"
        subprocess.run(["gcc", "-O2", "-pthread", "-o", binary, HERE / "switch_pairs.c"], check=True)
        print(f"{'switches/s':>11} {'looked':>7} {'ns each':>9} {'programs':>9} {'helper':>8}")
        for rest_us in RESTS_US:
            measure(binary, rest_us, seconds, budget)


if __name__ == "__main__":
    main()
