"""Every incident of the demo under every tracer, quiet and busy: is the headline right, and is anything false said?

    python benchmarks/incident_matrix.py --repeat 2 --tracers proc perf bpftrace bcc
    python benchmarks/incident_matrix.py --only lock gil --jobs 8          # 8 at a time, each on CPUs of its own

Each run starts the demo server with an incident, waits until that has begun, and takes one `llmtop snapshot`. The first
finding must be one of those that the incident names, and every other one that names a cause must be one that may stand
beside it. Prints a table in Markdown; `--json FILE` keeps all findings.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Any

from llmtop.demo.incidents import BEGIN_S, INCIDENTS

LLMTOP = [sys.executable, "-m", "llmtop"]
TRACERS = ("proc", "perf", "bpftrace", "bcc")
_SETTLE_S = 3.0
_BUSY_LOOP = "while True: pass"


@dataclass(frozen=True)
class Run:
    """One look at one incident."""

    incident: str
    tracer: str
    is_busy: bool
    findings: tuple[tuple[str, str, str], ...]
    """(rule, severity, message), as the snapshot orders them."""
    verdict: str
    """right, wrong, silent, or failed."""
    beside: tuple[str, ...]
    """Rules that said something false beside the headline."""


def look(incident: str, tracer: str, is_busy: bool, seconds: float, cpus: Sequence[int]) -> Run:
    """Stage an incident on some CPUs and take a snapshot of it."""
    with busy(len(cpus) if is_busy else 0, cpus), serving(incident, cpus) as pid:
        time.sleep(BEGIN_S + _SETTLE_S)
        findings = snapshot(pid, tracer, seconds, cpus)
    if findings is None:
        return Run(incident, tracer, is_busy, (), "failed", ())
    return judge(incident, tracer, is_busy, findings)


def judge(incident: str, tracer: str, is_busy: bool, findings: list[dict[str, Any]]) -> Run:
    """Hold what was said against what is true."""
    staged = INCIDENTS[incident]
    told = tuple((one["rule"], one["severity"], one["message"]) for one in findings)
    grave = [rule for rule, severity, _ in told if severity != "info"] or [rule for rule, _, _ in told]
    verdict = "silent" if not grave else "right" if grave[0] in staged.verdicts else "wrong"
    if not grave and not staged.verdicts:
        verdict = "right"
    beside = tuple(rule for rule in grave[1:] if rule not in (*staged.verdicts, *staged.beside))
    return Run(incident, tracer, is_busy, told, verdict, beside)


@contextlib.contextmanager
def busy(count: int, cpus: Sequence[int]) -> Iterator[None]:
    """A program on each CPU that takes what the scheduler gives it, at the lowest priority of ordinary ones."""
    loops = [subprocess.Popen(["nice", "-n", "5", sys.executable, "-c", _BUSY_LOOP]) for _ in range(count)]
    for loop in loops:
        os.sched_setaffinity(loop.pid, cpus)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextlib.contextmanager
def serving(incident: str, cpus: Sequence[int]) -> Iterator[int]:
    """The demo server with an incident; its PID."""
    command = [*LLMTOP, "demo", "--server-only", "--device", "cpu", "--incident", incident]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=lambda: pin(cpus)
    ) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline().rpartition(" ")[2])
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def snapshot(pid: int, tracer: str, seconds: float, cpus: Sequence[int]) -> list[dict[str, Any]] | None:
    """What llmtop finds; None when it gave no document."""
    command = [*LLMTOP, "snapshot", "--json", "--attach", str(pid), "--seconds", str(seconds)]
    environment = os.environ | {"LLMTOP_TRACER": tracer} if tracer != "proc" else os.environ | {"LLMTOP_NO_EBPF": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, preexec_fn=lambda: pin(cpus)
    )
    with contextlib.suppress(ValueError):
        findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
        return findings
    return None


def pin(cpus: Sequence[int]) -> None:
    """Put this process on some CPUs."""
    os.sched_setaffinity(0, cpus)


def row(incident: str, tracers: Sequence[str], runs: Sequence[Run]) -> str:
    """An incident's line of the table: right of all, by tracer, quiet / busy; what was said instead."""
    cells = []
    for tracer, is_busy in itertools.product(tracers, (False, True)):
        several = [run for run in runs if (run.tracer, run.is_busy) == (tracer, is_busy)]
        right = sum(run.verdict == "right" and not run.beside for run in several)
        cells.append(f"{right}/{len(several)}" if several else "")
    pairs = [" · ".join(filter(None, cells[i : i + 2])) for i in range(0, len(cells), 2)]
    wrong = {run.findings[0][0] if run.verdict == "wrong" else run.verdict for run in runs if run.verdict != "right"}
    wrong |= {f"+{rule}" for run in runs for rule in run.beside}
    return f"| {incident} | {' | '.join(pairs)} | {', '.join(sorted(wrong))} |"


def main() -> int:
    """Stage, look, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=INCIDENTS, default=list(INCIDENTS), metavar="INCIDENT")
    parser.add_argument("--tracers", nargs="+", choices=TRACERS, default=TRACERS)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="window of each look (default 10)")
    parser.add_argument("--no-busy", action="store_true", help="leave out the runs on a busy machine")
    parser.add_argument("--jobs", type=int, default=1, help="looks at a time, each on its own share of the CPUs")
    parser.add_argument("--json", metavar="FILE", help="keep all findings")
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    share = len(cpus) // args.jobs
    free: SimpleQueue[list[int]] = SimpleQueue()
    for n in range(args.jobs):
        free.put(cpus[n * share : (n + 1) * share])

    def one(case: tuple[int, bool, str, str]) -> Run:
        _, is_busy, tracer, incident = case
        mine = free.get()
        try:
            return look(incident, tracer, is_busy, args.seconds, mine)
        finally:
            free.put(mine)

    possible = [name for name in args.only if INCIDENTS[name].why_not() is None]
    cases = itertools.product(range(args.repeat), (False,) if args.no_busy else (False, True), args.tracers, possible)
    runs: list[Run] = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for run in pool.map(one, cases):
            runs.append(run)
            said = "; ".join(message for _, _, message in run.findings[:2])
            print(
                f"{run.verdict:6} {run.incident} {run.tracer} {'busy' if run.is_busy else 'quiet'}: {said}", flush=True
            )
    print(f"\n| incident | {' | '.join(args.tracers)} | otherwise |\n|{'---|' * (len(args.tracers) + 2)}")
    for name in possible:
        print(row(name, args.tracers, [run for run in runs if run.incident == name]))
    if args.json:
        with open(args.json, "w") as file:  # noqa: PTH123
            json.dump([asdict(run) for run in runs], file, indent=1)
    return 0 if all(run.verdict == "right" and not run.beside for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
