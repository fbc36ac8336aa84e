"""Runs the probes and reports.

Usage: llmtop starts it; it reads commands from standard input and ends when that ends.

Commands, one JSON object a line: {"add": [pid, ...]}, {"remove": [pid, ...]}, {"stacks": true or false},
{"stop": true}. Reports, likewise: {"kind": "ready", ...} once, then {"kind": "sample", ...} at every interval, or
{"kind": "unavailable", "reason": ..., "remedy": ...} and the end.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from . import system
from .calls import WITHOUT_WAIT, Calls, names
from .governor import Governor, Load
from .library import Library
from .lifecycle import Changes, Lifecycle
from .programs import load_bcc
from .samples import Samples
from .scheduler import Scheduler
from .symbols import Symbols
from .system import UnavailableError

Part = TypeVar("Part")
_OUTSIDE = "run llmtop on the host, or in a container with --pid=host --privileged"


class Helper:
    """All probes together."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.interval_s: float = options.interval
        self._hertz: int = options.hertz
        self._bpf = load_bcc()
        self._symbols = Symbols(self._bpf)
        self._governor = Governor(options.budget, stacks=options.stacks, cpus=os.cpu_count() or 1)
        self.missing: dict[str, tuple[str, str]] = {}
        """What cannot be had here: (reason, remedy) by part."""
        self._lifecycle = Lifecycle(self._bpf)
        self._scheduler = self._part("scheduler", lambda: Scheduler(self._bpf, self._symbols))
        self._calls = self._part("syscalls", lambda: Calls(self._bpf))
        self._samples = self._part("samples", self._make_samples) if options.stacks else None
        self._library = Library(self._bpf, options.budget * 1e9)
        self._names = names()
        self._last_ns = time.monotonic_ns()
        self._last_hits = self._lifecycle.hits()
        self._observed = {"calls": 0, "timed": 0, "scheduler": 0}
        """For how long, in ns, each part has looked: counters are sums over that time and no other."""

    def _part(self, name: str, make: Callable[[], Part]) -> Part | None:
        """A part that cannot be had costs only itself."""
        try:
            return make()
        except UnavailableError as error:
            self.missing[name] = (error.reason, error.remedy)
            return None

    def _make_samples(self) -> Samples:
        return Samples(self._bpf, self._symbols, self._hertz)

    def start(self, pids: list[int]) -> None:
        """Begin to look."""
        for pid in pids:
            self._lifecycle.add(pid)
        if self._lifecycle.unseen and not self._lifecycle.processes:
            raise UnavailableError("the server runs in a PID namespace inside llmtop's", _OUTSIDE)
        self._bpf.free_bcc_memory(self._lifecycle)  # pages of the compiler; they come back when it is used again
        self._last_ns = time.monotonic_ns()
        self._apply(self._last_ns)

    def obey(self, command: dict[str, Any]) -> bool:
        """Do as told; false to stop."""
        for pid in command.get("add", ()):
            if pid not in self._lifecycle.processes and self._lifecycle.add(pid):
                self._seed([pid])
        for pid in command.get("remove", ()):
            self._lifecycle.remove(pid)
        if "stacks" in command:
            self._governor.stacks = bool(command["stacks"])
            if self._governor.stacks and self._samples is None and "samples" not in self.missing:
                self._samples = self._part("samples", self._make_samples)
            self._apply(time.monotonic_ns())
        return not command.get("stop")

    def look(self) -> dict[str, Any]:
        """One report."""
        now = time.monotonic_ns()
        elapsed_ns = max(1, now - self._last_ns)
        self._observe(elapsed_ns)
        changes = self._lifecycle.changes()
        self._take_in(changes, now)
        report: dict[str, Any] = {"kind": "sample", "t": now, "elapsed": elapsed_ns, "observed": dict(self._observed)}
        report |= {"born": changes.born, "gone": changes.gone, "renewed": changes.renewed}
        report["ended"] = [[tgid, tid] for tid, tgid in changes.ended_threads]
        if self._calls:
            report |= self._calls.read(changes.ended_threads, changes.gone)
            report["names"] = {entry[1]: self._name(entry[1]) for entry in report["calls"]}
        if self._scheduler and self._scheduler.is_on:
            report |= self._scheduler.read(now, changes.ended_threads, changes.gone)
        report["running"] = self._samples.read() if self._samples and self._samples.is_on else []
        report["functions"] = self._library.read(
            list(self._lifecycle.processes), now, elapsed_ns / 1e9, (*changes.gone, *changes.renewed)
        )
        report["in_libraries"] = self._library.read_threads(now, changes.ended_threads)
        report |= self._library.coverage()
        report |= self._govern(elapsed_ns / 1e9)
        report["lost"] = sum(
            part.lost() for part in (self._calls, self._scheduler, self._samples, self._library) if part
        )
        report["missing"] = self.missing
        for pid in self._lifecycle.unseen:
            self.missing[f"process:{pid}"] = ("it runs in a PID namespace inside llmtop's", _OUTSIDE)
        if self._library.why_not is not None:
            self.missing["library calls"] = (self._library.why_not.reason, self._library.why_not.remedy)
        report["unprobed"] = self._library.notes
        report["probed"] = self._library.probed
        self._last_ns = now
        return report

    def _observe(self, elapsed_ns: int) -> None:
        mode = self._calls.mode if self._calls else "off"
        self._observed["calls"] += elapsed_ns * (mode != "off")
        self._observed["timed"] += elapsed_ns * (mode == "timed")
        self._observed["scheduler"] += elapsed_ns * bool(self._scheduler and self._scheduler.is_on)

    def _take_in(self, changes: Changes, now: int) -> None:
        self._symbols.tick()
        for pid in (*changes.gone, *changes.renewed):
            self._symbols.forget(pid)
            if self._scheduler:
                self._scheduler.forget_names(pid)
        if self._samples:
            self._samples.forget_names((*changes.gone, *changes.renewed))

    def _govern(self, elapsed_s: float) -> dict[str, Any]:
        """Weigh what the last interval cost; the effort for the next."""
        hits = self._lifecycle.hits()
        rates = {name: (count - self._last_hits[name]) / elapsed_s for name, count in hits.items()}
        self._last_hits = hits
        load = Load(
            calls=rates["call"],
            foreign_calls=rates["foreign_call"],
            switches=rates["switch"],
            foreign_switches=rates["foreign_switch"],
            samples=rates["sample"],
        )
        if self._governor.judge(load, elapsed_s):
            self._apply(time.monotonic_ns())
        return {"hits": hits, "shed": str(self._governor.effort) if self._governor.shed else ""}

    def _apply(self, now: int) -> None:
        """Look as closely as the governor says; a part that the kernel does not let us attach costs only itself."""
        effort = self._governor.effort
        if self._scheduler and not self._allowed("scheduler", partial(self._apply_scheduler, self._scheduler, now)):
            self._scheduler = None
        if self._calls and not self._allowed("syscalls", partial(self._calls.set_mode, effort.calls)):
            self._calls = None
        if self._samples and not self._allowed("samples", partial(self._samples.set_on, effort.stack_every > 0)):
            self._samples = None

    def _apply_scheduler(self, scheduler: Scheduler, now: int) -> None:
        effort, was_on = self._governor.effort, scheduler.is_on
        scheduler.set_on(effort.scheduler)
        scheduler.set_stacks(effort.stack_every, now)
        if effort.scheduler and not was_on:
            self._seed(list(self._lifecycle.processes))

    def _allowed(self, part: str, attach: Callable[[], None]) -> bool:
        try:
            attach()
        except UnavailableError as error:
            self.missing[part] = (error.reason, error.remedy)
            return False
        return True

    def _seed(self, pids: list[int]) -> None:
        if self._scheduler and self._scheduler.is_on:
            for pid in pids:
                self._scheduler.seed(pid, time.monotonic_ns())

    def _name(self, call: int) -> str:
        number = call & ~WITHOUT_WAIT
        name = self._names.get(number, f"syscall_{number}")
        return f"{name} (no wait)" if call & WITHOUT_WAIT else name

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes looked at."""
        return tuple(self._lifecycle.processes)

    @property
    def knows_calls(self) -> bool:
        """Whether sleeps are told by system call."""
        return bool(self._scheduler and self._scheduler.knows_calls)


def main() -> int:
    """Run until told to stop, or until llmtop is gone."""
    options = _options()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for llmtop, which tells us to stop
    if options.parent:
        system.die_with_parent(options.parent)
    output = _Output()
    try:
        others = system.other_tracers()
        system.see_tracepoints()
        started = time.monotonic()
        helper = Helper(options)
        helper.start(options.pids)
    except UnavailableError as error:
        output.write({"kind": "unavailable", "reason": error.reason, "remedy": error.remedy})
        return 1
    output.write(
        {
            "kind": "ready",
            "pid": os.getpid(),
            "processes": list(helper.processes),
            "seconds": round(time.monotonic() - started, 3),
            "others": others,
            "missing": helper.missing,
            "knows_calls": helper.knows_calls,
        }
    )
    _run(helper, output)
    output.close()
    # The kernel takes the probes off when their files close; bcc's own way of doing it takes a while longer.
    os._exit(0)


def _run(helper: Helper, output: _Output) -> None:
    commands = _Commands()
    due = time.monotonic() + helper.interval_s
    while True:
        wait = max(0.0, due - time.monotonic())
        if select.select([0], [], [], wait)[0]:
            for command in commands.read():
                if command is None or not helper.obey(command):
                    return
            continue
        output.write(helper.look())
        due = max(due + helper.interval_s, time.monotonic())


class _Commands:
    """Lines of standard input, taken as they come."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self) -> list[dict[str, Any] | None]:
        """What has been said since; None at the end of input."""
        chunk = os.read(0, 65536)
        if not chunk:
            return [None]
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]


class _Output:
    """Standard output for reports alone: what a library prints must not get in between."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def write(self, report: dict[str, Any]) -> None:
        """Send one line; when nobody reads any more, end."""
        try:
            self._file.write(json.dumps(report, separators=(",", ":")) + "\n")
            self._file.flush()
        except BrokenPipeError:
            os._exit(0)

    def close(self) -> None:
        """Send what is left."""
        self._file.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="llmtop-probes")
    parser.add_argument("pids", type=int, nargs="+")
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--budget", type=float, default=0.01)
    parser.add_argument("--hertz", type=int, default=49)
    parser.add_argument("--stacks", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
