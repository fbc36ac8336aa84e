"""Every incident of the demo under every tracer, quiet and busy: is the headline right, and is anything false said?

    python benchmarks/incident_matrix.py --repeat 2 --tracers proc perf ebpf
    python benchmarks/incident_matrix.py --only lock gil --jobs 8          # 8 at a time, each on CPUs of its own
    python benchmarks/incident_matrix.py --jobs 8 --minutes 20 --json FILE

Each run starts the demo server with an incident and takes one `llmtop snapshot` of it: while it lasts, or from before
on where llmtop must have seen what was there. The first finding must be one of those that the incident names, and every
other one that names a cause must be one that may stand beside it; the exit code must tell whether the server lives.

Whether the machine had room is measured beside llmtop: CPU time on a run's CPUs that none of its own processes took,
and how long the server's threads waited for a CPU. A quiet run in which others took CPUs from a server that waited for
one proves nothing, right or wrong: it is "too busy". In a busy run a verdict that CPUs are short is true beside the
incident's own, and the first to be said where the incident itself is about CPU time.

Prints a table in Markdown, also when it is ended or its time is up; `--json FILE` keeps all findings.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import IO, Any

from llmtop import procfs
from llmtop.analysis.rules.live_rules import LIFELESS, MUTE
from llmtop.demo.incidents import INCIDENTS, Incident

LLMTOP = [sys.executable, "-m", "llmtop"]
TRACERS = ("proc", "perf", "ebpf")
SHORT_OF_CPU = "run-queue-starvation"
_OF_CPU_TIME = {"run-queue-starvation", "cpu-bound", "gil-bound", "api-bound", "queue-standing", "objective-missed"}
"""An incident with one of these verdicts is about CPU time: on a busy machine others may be the larger part of it."""
_BEGIN_S = 3.0
_SETTLE_S = 2.0
"""After the incident has begun, until the look begins."""
_BEFORE_S = 6.0
"""What llmtop must have seen before begins so long after its start: it starts within 2 s and waits for its probes."""
_START_S = 15.0
_LOOK_S = 25.0
"""Beside the window; a look that takes longer hangs."""
_OTHERS = 0.1
"""Share of a run's CPUs that others take, from which they are in the way if the server waits."""
_WAITS = 0.1
"""Share of the time in which a server's thread waits for a CPU, from which it does."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BUSY_LOOP = "while True: pass"


class Ended(Exception):  # noqa: N818 - nothing went wrong
    """The matrix is to end."""


class Failed(Exception):  # noqa: N818 - told, not raised further
    """A run came to nothing; says why."""


@dataclass(frozen=True)
class Run:
    """One look at one incident.

    Attributes:
        findings: (rule, severity, message), as the snapshot orders them.
        unjudged: Rules that said that they could not judge.
        exit_code: Of the snapshot.
        verdict: right, wrong, silent, failed or "too busy".
        said: What it was before it was found that the machine was too busy.
        beside: Rules that said something false beside the headline.
        others: Cores that processes took which are none of this run's.
        waited: Share of the time in which the server's most delayed thread waited for a CPU.
        why: Of a run that failed.
        seconds: What it took.
    """

    incident: str
    tracer: str
    is_busy: bool
    findings: tuple[tuple[str, str, str], ...] = ()
    unjudged: tuple[str, ...] = ()
    exit_code: int = 0
    verdict: str = "failed"
    said: str = ""
    beside: tuple[str, ...] = ()
    others: float = 0.0
    waited: float = 0.0
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Case:
    """What is looked at, and how."""

    incident: str
    tracer: str
    is_busy: bool

    @property
    def staged(self) -> Incident:
        """What goes wrong."""
        return INCIDENTS[self.incident]


class Stop:
    """Whether the matrix is to end."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """From now on nothing new begins, and what waits ends."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether it is to end."""
        return self._event.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait, unless it is to end.

        Raises:
            Ended: It is.
        """
        if self._event.wait(max(0.0, seconds)):
            raise Ended


# -- one run ---------------------------------------------------------------------------------------------------------


def look(case: Case, seconds: float, cpus: Sequence[int], stop: Stop) -> Run:
    """Stage an incident on some CPUs and take a snapshot of it; what fails is told in the run."""
    os.sched_setaffinity(0, cpus)  # of this thread, and so of all that it starts
    began = time.monotonic()
    try:
        run = _looked(case, seconds, cpus, stop)
    except Ended:
        raise
    except Exception as error:  # the border: one run never ends the matrix
        run = Run(case.incident, case.tracer, case.is_busy, why=f"{type(error).__name__}: {error}")
    return replace(run, seconds=round(time.monotonic() - began, 1))


def _looked(case: Case, seconds: float, cpus: Sequence[int], stop: Stop) -> Run:
    after_s = _BEFORE_S if case.staged.is_watched else _BEGIN_S
    with busy(len(cpus) if case.is_busy else 0), serving(case, after_s) as (pid, runner):
        if not case.staged.is_watched:
            stop.sleep(_BEGIN_S + _SETTLE_S)
        before = Load.now(cpus, runner, pid)
        document, code, own_s = snapshot(pid, case.tracer, seconds, stop)
        others, waited = Load.now(cpus, runner, pid).since(before, own_s)
    return judge(case, document, code, others, waited)


def judge(case: Case, document: dict[str, Any], code: int, others: float, waited: float) -> Run:
    """Hold what was said against what is true."""
    staged = case.staged
    told = tuple((one["rule"], one["severity"], one["message"]) for one in document["findings"])
    unjudged = tuple(one["rule"] for one in document["verdict"]["unjudged"])
    grave = [rule for rule, severity, _ in told if severity != "info"]
    wanted = (*staged.verdicts, *([SHORT_OF_CPU] if _may_be_short(case) else []))
    said = _said(case, grave or [rule for rule, _, _ in told], wanted)
    if said == "right" and (code != 0) != any(rule.id in staged.verdicts for rule in (*LIFELESS, *MUTE)):
        said = f"exit code {code}"
    may = {*wanted, *staged.beside, *([SHORT_OF_CPU, "objective-missed"] if case.is_busy else [])}
    is_disturbed = not case.is_busy and waited >= _WAITS and others >= _OTHERS
    return Run(
        case.incident,
        case.tracer,
        case.is_busy,
        told,
        unjudged,
        code,
        "too busy" if is_disturbed else said,
        said,
        tuple(dict.fromkeys(rule for rule in grave if rule not in may)) if said == "right" else (),
        round(others, 2),
        round(waited, 3),
    )


def _may_be_short(case: Case) -> bool:
    verdicts = case.staged.verdicts
    return case.is_busy and (not verdicts or any(rule in _OF_CPU_TIME for rule in verdicts))


def _said(case: Case, rules: Sequence[str], wanted: Sequence[str]) -> str:
    if not rules:
        return "silent" if case.staged.verdicts else "right"
    return "right" if rules[0] in wanted else "wrong"


# -- what runs -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Programs that take what the scheduler gives them, at a low priority."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            loop = subprocess.Popen(["nice", "-n", "5", sys.executable, "-c", _BUSY_LOOP])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield


@contextlib.contextmanager
def serving(case: Case, after_s: float) -> Iterator[tuple[int, int]]:
    """The demo server with an incident: its PID, and that of the program that runs it.

    Raises:
        Failed: It did not come up.
    """
    command = [
        *LLMTOP,
        "demo",
        "--server-only",
        "--device",
        "cpu",
        "--incident",
        case.incident,
        "--after",
        f"{after_s}",
    ]
    with tempfile.TemporaryFile("w+") as talk:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=talk, text=True)
        try:
            assert server.stdout is not None
            ready = select.select([server.stdout], [], [], _START_S)[0]
            line = server.stdout.readline() if ready else ""
            if not line:
                raise Failed(f"the demo did not start: {_last_line(talk) or f'nothing for {_START_S:g} s'}")
            yield int(line.rpartition(" ")[2]), server.pid
            if "Traceback" in _text(talk):  # in the thread that stages it, which ends alone
                raise Failed(f"the incident was not staged: {_last_line(talk)}")
        finally:
            _end(server)
            assert server.stdout is not None
            server.stdout.close()


def snapshot(pid: int, tracer: str, seconds: float, stop: Stop) -> tuple[dict[str, Any], int, float]:
    """What llmtop finds, its exit code, and the CPU seconds that it took.

    Raises:
        Failed: It gave no document.
    """
    command = [*LLMTOP, "snapshot", "--json", "--attach", str(pid), "--seconds", f"{seconds}", "--wait", "5"]
    environment = os.environ | ({"LLMTOP_NO_EBPF": "1"} if tracer == "proc" else {"LLMTOP_TRACER": tracer})
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as talk:
        process = subprocess.Popen(command, stdout=said, stderr=talk, env=environment)
        try:
            code, own_s = _waited(process, time.monotonic() + seconds + _LOOK_S, stop)
        except BaseException:
            _end(process)
            raise
        said.seek(0)
        try:
            return json.load(said), code, own_s
        except ValueError:
            raise Failed(f"snapshot ended with exit code {code}: {_last_line(talk)}") from None


def _waited(process: subprocess.Popen[bytes], until_s: float, stop: Stop) -> tuple[int, float]:
    """Exit code and CPU seconds, its ended children's included."""
    while time.monotonic() < until_s:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, used.ru_utime + used.ru_stime
        stop.sleep(0.05)
    raise Failed("snapshot hangs")


def _end(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(8)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _text(talk: IO[str]) -> str:
    talk.seek(0)
    return talk.read()


def _last_line(talk: IO[str]) -> str:
    return next((line for line in reversed(_text(talk).splitlines()) if line.strip()), "")


@dataclass(frozen=True)
class Load:
    """What a run's CPUs and its processes have done by now, read beside llmtop.

    Attributes:
        busy_s: Seconds in which the CPUs worked, all together.
        own_s: CPU seconds of this run's processes and their ended children, by PID.
        queued_ns: How long the main threads of API server and engine waited for a CPU, by PID.
    """

    t_s: float
    busy_s: float
    own_s: dict[int, float]
    queued_ns: dict[int, int]

    @classmethod
    def now(cls, cpus: Sequence[int], runner: int, server: int) -> Load:
        """Read it: `runner` has started all of the run's server, neighbours and requests."""
        family = procfs.family()
        mine = {pid for pid in family.descendants(runner, os.getpid()) if _runs_on(pid, cpus)} | {runner}
        waits = {pid: _read(f"/proc/{pid}/schedstat") for pid in (server, *family.descendants(server))}
        queued = {pid: int(text.split()[1]) for pid, text in waits.items() if text}
        return cls(time.monotonic(), _busy_s(cpus), {pid: _used_s(pid) for pid in mine}, queued)

    def since(self, before: Load, more_s: float) -> tuple[float, float]:
        """Cores that others took, and the largest share of the time that a process of the server waited for one."""
        seconds = self.t_s - before.t_s
        own_s = sum(used - before.own_s.get(pid, 0.0) for pid, used in self.own_s.items())
        waits = (ns - before.queued_ns.get(pid, 0) for pid, ns in self.queued_ns.items())
        others = (self.busy_s - before.busy_s - own_s - more_s) / seconds
        return max(0.0, others), max(waits, default=0) / 1e9 / seconds


def _runs_on(pid: int, cpus: Sequence[int]) -> bool:
    try:
        return os.sched_getaffinity(pid) <= {*cpus}
    except OSError:
        return False


def _busy_s(cpus: Sequence[int]) -> float:
    wanted = {f"cpu{cpu}" for cpu in cpus}
    rows = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    # user nice system idle iowait irq softirq steal: what idles and waits for disks is free
    return sum(sum(map(int, row[1:4])) + sum(map(int, row[6:9])) for row in rows if row[0] in wanted) / _TICKS_PER_S


def _used_s(pid: int) -> float:
    fields = (_read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_PER_S


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None


# -- the table -------------------------------------------------------------------------------------------------------


def table(runs: Sequence[Run], incidents: Sequence[str], tracers: Sequence[str]) -> Iterator[str]:
    """In Markdown: right of all that say something, quiet · busy; what was said instead, and what beside."""
    yield f"| incident | {' | '.join(tracers)} | otherwise |"
    yield f"|{'---|' * (len(tracers) + 2)}"
    for name in incidents:
        mine = [run for run in runs if run.incident == name]
        cells = [" · ".join(filter(None, (_cell(mine, tracer, busy) for busy in (False, True)))) for tracer in tracers]
        yield f"| {name} | {' | '.join(cells)} | {_otherwise(mine)} |"


def _cell(runs: Sequence[Run], tracer: str, is_busy: bool) -> str:
    several = [run for run in runs if (run.tracer, run.is_busy) == (tracer, is_busy)]
    counted = [run for run in several if run.verdict != "too busy"]
    right = sum(run.verdict == "right" and not run.beside for run in counted)
    disturbed = f" ({len(several) - len(counted)} too busy)" if len(several) > len(counted) else ""
    return f"{right}/{len(counted)}{disturbed}" if several else ""


def _otherwise(runs: Sequence[Run]) -> str:
    counted = [run for run in runs if run.verdict != "too busy"]
    instead = {run.findings[0][0] if run.verdict == "wrong" else run.verdict for run in counted} - {"right"}
    return ", ".join(sorted(instead | {f"+{rule}" for run in counted for rule in run.beside}))


def line(run: Run) -> str:
    """A run in one line."""
    said = run.why or "; ".join(message for _, _, message in run.findings[:3])
    beside = f" +{','.join(run.beside)}" if run.beside else ""
    was = f" ({run.said}; others {run.others:g} cores, waited {run.waited:.0%})" if run.verdict == "too busy" else ""
    where = f"{run.incident} {run.tracer} {'busy' if run.is_busy else 'quiet'}"
    return f"{run.verdict}{was}{beside:1} {where} {run.seconds:.0f} s: {said}"


# -- all of them -----------------------------------------------------------------------------------------------------


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """All of the matrix, once round after the other."""
    possible = [name for name in args.only if INCIDENTS[name].why_not() is None]
    states = (False,) if args.no_busy else (False, True)
    for _ in range(args.repeat):
        for is_busy, tracer, incident in itertools.product(states, args.tracers, possible):
            yield Case(incident, tracer, is_busy)


def run_all(args: argparse.Namespace, stop: Stop) -> Iterator[Run]:
    """Run all cases, some at a time, until it is to end; each as it is done."""
    cpus = sorted(os.sched_getaffinity(0))
    share = len(cpus) // args.jobs
    free: SimpleQueue[list[int]] = SimpleQueue()
    for n in range(args.jobs):
        free.put(cpus[n * share : (n + 1) * share])

    def one(case: Case) -> Run:
        if stop.is_set:
            raise Ended
        mine = free.get()
        try:
            return look(case, args.seconds, mine, stop)
        finally:
            free.put(mine)

    with ThreadPoolExecutor(args.jobs) as pool:
        futures: list[Future[Run]] = [pool.submit(one, case) for case in cases(args)]
        for done in as_completed(futures):
            with contextlib.suppress(Ended):
                yield done.result()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=INCIDENTS, default=list(INCIDENTS), metavar="INCIDENT")
    parser.add_argument("--tracers", nargs="+", choices=TRACERS, default=TRACERS)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="window of each look (default 10)")
    parser.add_argument("--no-busy", action="store_true", help="leave out the runs on a busy machine")
    parser.add_argument("--jobs", type=int, default=1, help="looks at a time, each on its own share of the CPUs")
    parser.add_argument("--minutes", type=float, help="begin nothing more and end after so long")
    parser.add_argument("--json", metavar="FILE", help="keep all findings")
    args = parser.parse_args()
    if not 1 <= args.jobs <= len(os.sched_getaffinity(0)):
        parser.error(f"--jobs: each needs a CPU at least, and there are {len(os.sched_getaffinity(0))}")
    return args


def main() -> int:
    """Stage, look, print."""
    args = arguments()
    stop = Stop()

    def leave(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    if args.minutes:
        bound = threading.Timer(60 * args.minutes, stop.set)
        bound.daemon = True
        bound.start()
    runs: list[Run] = []
    for run in run_all(args, stop):
        runs.append(run)
        print(line(run), flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps([asdict(one) for one in runs], indent=1))
    print(*("", *table(runs, args.only, args.tracers)), sep="\n", flush=True)
    for name in args.only:
        if (why := INCIDENTS[name].why_not()) is not None:
            print(f"\n{name} cannot be staged here: {why}")
    counted = [run for run in runs if run.verdict != "too busy"]
    return 0 if counted and all(run.verdict == "right" and not run.beside for run in counted) else 1


if __name__ == "__main__":
    sys.exit(main())
