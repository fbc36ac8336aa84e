"""What watching costs: CPU, memory and terminal output of llmtop, nvtop and nvitop, side by side.

    python benchmarks/monitor_cost.py [--rounds 3] [--seconds 15] [--warm-up 60] [--only bare] [--nvtop PATH] ...

The programs of one case run at the same time, each in a terminal of its own, on 1 and on 8 made-up GPUs (the tests'
stand-in NVML, which answers at once: a driver's own time is not in these numbers). After the warm-up, in which graphs
fill, several windows are measured; the table has their medians. The attached cases watch the demo server under load,
with every collector, with and without probes in the kernel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, DemoServer, TimedTerminal, Use, fake_gpus, machine, median, running, table
from llmtop.servers.recognise import find_servers

Env = Mapping[str, str | None]
NO_PROBES = {"LLMTOP_NO_EBPF": "1"}
RATES = (1.0, 0.5, 0.25)
"""Seconds between frames."""


@dataclass(frozen=True, slots=True)
class Window:
    """One measured window: shares of a core in percent (children: llmtop's probe helper), MB, kB/s."""

    cpu: float
    children: float
    rss_mb: float
    kb_per_s: float


@dataclass(frozen=True, slots=True)
class Case:
    """Programs to run together, by name, and what they meet."""

    name: str
    gpus: int
    interval_s: float
    programs: Mapping[str, Sequence[str]]
    wave: float = 0.2
    attached: bool = False
    env: Env | None = None


def bare_cases(peers: Mapping[str, str]) -> list[Case]:
    """The cases without a server: llmtop and its peers at 1, 2 and 4 Hz on 1 and 8 GPUs; and where nothing moves."""
    cases = [Case("bare", gpus, interval, _programs(interval, peers)) for gpus in (1, 8) for interval in RATES]
    still = Case("bare, nothing moves", 8, 1.0, _programs(1.0, peers), wave=0.0)
    return [*cases, still]


def _programs(interval: float, peers: Mapping[str, str]) -> dict[str, list[str]]:
    flags = {"nvtop": ["--delay", f"{interval * 10:g}"], "nvitop": ["--interval", f"{interval:g}"]}
    own = {"llmtop": [*LLMTOP, "--interval", f"{interval:g}"]}
    return own | {name: [path, *flags[name]] for name, path in peers.items()}


def attached_cases(pid: int) -> list[Case]:
    """The cases on a server, with every collector."""
    argv = [*LLMTOP, "--attach", str(pid), "--interval"]
    return [
        Case(f"attached, {probes}", 8, interval, {"llmtop": [*argv, f"{interval:g}"]}, attached=True, env=env)
        for interval in (1.0, 0.5)
        for probes, env in (("eBPF on", None), ("eBPF off", NO_PROBES))
    ]


def measure(case: Case, env: Env, *, rounds: int, seconds: float, warm_up: float) -> dict[str, list[Window]]:
    """Run a case; the windows of each program."""
    extra = case.env if case.attached else NO_PROBES
    if not case.attached:
        wait_until_alone()
    with running(case.programs, dict(env) | dict(extra or {})) as terminals:
        time.sleep(warm_up)
        for terminal in terminals.values():
            terminal.check_running()
        windows: dict[str, list[Window]] = {name: [] for name in terminals}
        for _ in range(rounds):
            before = {name: Use.of(terminal.pid) for name, terminal in terminals.items()}
            time.sleep(seconds)
            for name, terminal in terminals.items():
                windows[name].append(_window(terminal, before[name], Use.of(terminal.pid)))
    return windows


def _window(terminal: TimedTerminal, start: Use, end: Use) -> Window:
    elapsed = end.at_s - start.at_s
    return Window(
        (end.own_s - start.own_s) / elapsed * 100,
        max(0.0, end.children_s - start.children_s) / elapsed * 100,
        end.rss / 1e6,
        terminal.bytes_between(start.at_s, end.at_s) / elapsed / 1000,
    )


def row(case: Case, program: str, windows: Sequence[Window]) -> tuple[str, ...]:
    """One line of the table."""
    parts = ("cpu", "children", "rss_mb", "kb_per_s")
    cpu, children, rss, output = (median([getattr(window, part) for window in windows]) or 0.0 for part in parts)
    helper = f"{children:.1f}" if case.attached and case.env is None else "–"
    rate = f"{1 / case.interval_s:g}"
    return (case.name, str(case.gpus), rate, program, f"{cpu:.1f}", helper, f"{rss:.0f}", f"{output:.1f}")


def wait_until_alone(timeout_s: float = 120.0) -> None:
    """Wait until no LLM server runs here: without one to attach to, llmtop shows the GPUs alone."""
    deadline = time.monotonic() + timeout_s
    while servers := find_servers():
        if time.monotonic() > deadline:
            sys.exit(f"an LLM server runs here (pid {servers[0].pid}): llmtop would attach to it")
        time.sleep(1.0)


def find_peers(options: argparse.Namespace) -> dict[str, str]:
    """Where the other monitors are; says which are not here."""
    peers = {"nvtop": options.nvtop, "nvitop": options.nvitop}
    for name, path in peers.items():
        if not path:
            print(f"{name} is not measured: not installed here (--{name} PATH)")
    return {name: path for name, path in peers.items() if path}


def main() -> int:
    """Print a table as the cases end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each window")
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds before the first window")
    parser.add_argument("--only", choices=("bare", "attached"))
    parser.add_argument("--nvtop", default=shutil.which("nvtop"), help="where it is, if not on the PATH")
    parser.add_argument("--nvitop", default=shutil.which("nvitop"))
    options = parser.parse_args()
    print(machine())
    timing = {"rounds": options.rounds, "seconds": options.seconds, "warm_up": options.warm_up}
    rows: list[tuple[str, ...]] = []
    if options.only != "attached":
        rows += _run(bare_cases(find_peers(options)), timing)
    if options.only != "bare":
        with DemoServer("--load") as server:
            rows += _run(attached_cases(server.pid), timing)
        if os.geteuid() != 0:
            print("not root: eBPF on is what sudo -n allows, which may be nothing")
    print(table(("case", "GPUs", "Hz", "program", "CPU %", "helper %", "RSS MB", "kB/s"), rows))
    return 0


def _run(cases: Sequence[Case], timing: Mapping[str, float]) -> list[tuple[str, ...]]:
    rows = []
    for case in cases:
        with fake_gpus(case.gpus, wave=case.wave) as env:
            windows = measure(case, env, **timing)  # type: ignore[arg-type]
        rows += [row(case, program, several) for program, several in windows.items()]
        print(f"{case.name}, {case.gpus} GPUs, {1 / case.interval_s:g} Hz: done", file=sys.stderr)
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
