"""Programs whose use of the CPU, the kernel and CUDA is known, because they keep account of it themselves.

    with Workload(build_workload(folder), "futex", "0") as program:   # "0": until it is ended; "2": for two seconds
        program.start()
        before = program.ask()                     # with "2": program.account(), once the two seconds are over
        ...
        shares = program.ask().shares(before)      # what each thread did in between: the truth

Modes of `build_workload`, MODE [SECONDS [ARGUMENT]]; the main thread is "worker", works 5 ms and then waits:

=========  ============================================================================================================
nanosleep  for 15 ms in nanosleep: on CPU 1/4, blocked on nanosleep 3/4
futex      for "partner", which works 4 ms: both are blocked on a futex while the other works; they wake each other
pipe       the same over two pipes
network    the same over a TCP connection within the machine: blocked on a socket
epoll      in epoll_wait for "partner", which works 5 ms, sleeps 15 ms and then writes to an eventfd
mixed      for 15 ms in nanosleep ("in_wait"), then for "partner" on a futex: both by turns
disk       for 256 KiB to be written to the file ARGUMENT and fdatasync: blocked on the disk, if that is slow
spin       not at all: on CPU, or queued for one
yield      not at all, in sched_yield: polling; "spins" is how often
poll       not at all, in ppoll with a timeout of zero: polling; "spins" is how often
starve     not at all, beside ARGUMENT - 1 "rival N" (up to 4) on the first CPU: 1/ARGUMENT on CPU, the rest queued
crowd      beside ARGUMENT threads that sleep half a second, make four calls, and so on; they keep no account
count      a known number of calls: see test_probes.py
=========  ============================================================================================================

With an ARGUMENT the modes up to mixed do so much faster: 100 makes 50 us of work and 150 us of nanosleep.

Modes of `build_cuda`, MODE [SECONDS [ROUNDS]], on a stand-in for libcuda; a round is 2 ms of work, 8 launches of
kernels, one of a graph ("launches") and a synchronisation ("in_sync", in ns):

=========  ============================================================================================================
plain      the synchronisation sleeps 2 ms
asleep     it sleeps 8 ms: blocked in CUDA synchronisation 4/5, and nothing else
spinning   it spins 8 ms: on CPU, and in CUDA synchronisation 4/5 of the time
polling    it asks an event until it is done, 8 ms: on CPU, and waiting for the GPU 4/5 of the time; "polling runtime"
           does so through a stand-in for libcudart
looking    plain, and it asks an event five times a round and goes on with work of its own, whatever it hears
runtime    plain, through a stand-in for libcudart that calls libcuda: must not count twice
stuck      the first synchronisation lasts an hour: in CUDA synchronisation all the time, though no call has ended
launches   no work and no synchronisation
late       two processes, "rank 0" here and "rank 1" in `Workload.others`, whose synchronisations wait for each other;
           rank 1 works 12 ms a round: rank 0 is in CUDA synchronisation 5/6 of the time, rank 1 hardly
=========  ============================================================================================================

`build_engine`: steps of which some are slow for a known cause (engine_steps.c).
gil_fight.py: two threads of CPython that never stop: each has a CPU half of the time, else waits for the GIL (a futex).
`cpu_quota`: a cgroup with a CPU quota around a program: throttled, which threads see as waiting in the run queue.
`slow_disk`: a cgroup that lets a program write so many bytes a second: "disk" then waits.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from llmtop.model import Target, TargetProcess

HERE = Path(__file__).parent
_FLAGS = ["-O1", "-Wall", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-g", "-pthread"]


def compiler() -> str | None:
    """A C compiler."""
    return shutil.which("gcc") or shutil.which("cc")


def build_workload(folder: Path) -> Path:
    """The program with all modes."""
    return _build([str(HERE / "workload.c")], folder / "workload")


def build_cuda(folder: Path) -> Path:
    """A program that uses stand-ins for libcuda.so.1 and libcudart.so.12, which lie beside it."""
    driver, runtime = folder / "libcuda.so.1", folder / "libcudart.so.12"
    _build(["-shared", "-fPIC", str(HERE / "cuda_stand_in.c")], driver)
    _build(["-shared", "-fPIC", str(HERE / "cudart_stand_in.c"), str(driver)], runtime)
    libraries = [str(driver), str(runtime), f"-Wl,-rpath,{folder}"]
    return _build([str(HERE / "cuda_user.c"), *libraries], folder / "cuda_user")


def build_engine(folder: Path) -> Path:
    """An engine with slow steps, and its stand-in for libcuda.so.1."""
    driver = folder / "libcuda.so.1"
    _build(["-shared", "-fPIC", str(HERE / "engine_stand_in.c")], driver)
    return _build([str(HERE / "engine_steps.c"), str(driver), f"-Wl,-rpath,{folder}"], folder / "engine_steps")


def _build(arguments: list[str], output: Path) -> Path:
    program = compiler()
    assert program is not None
    subprocess.run([program, *_FLAGS, "-o", str(output), *arguments], check=True)
    return output


@dataclass(frozen=True)
class TrueShares:
    """What a thread did, as shares of the time; `waited` is between going to wait and being woken."""

    on_cpu: float
    queued: float
    waited: float
    in_sync: float


@dataclass(frozen=True)
class Account:
    """What a program says of itself, since its start: times in ns, by thread."""

    t: int
    wall: int
    threads: dict[str, dict[str, int]]

    def shares(self, before: Account) -> dict[str, TrueShares]:
        """What was done since an earlier account of the same program."""
        return {name: self._shares(name, before) for name in self.threads}

    def grown(self, thread: str, what: str, before: Account) -> int:
        """How much one number has grown since."""
        return self.threads[thread].get(what, 0) - before.threads[thread].get(what, 0)

    def _shares(self, name: str, before: Account) -> TrueShares:
        wall = self.t - before.t
        parts = (self.grown(name, what, before) / wall for what in ("cpu", "queued", "in_wait", "in_sync"))
        return TrueShares(*parts)


class Workload:
    """A running workload: ready when made, ended when left."""

    def __init__(self, *argv: str | Path) -> None:
        self._process = subprocess.Popen(
            [str(part) for part in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self._process.pid
        ready, *others = self._line().split()
        assert ready == "ready"
        self.others = tuple(map(int, others))
        """PIDs of its other processes."""

    @property
    def pids(self) -> tuple[int, ...]:
        """All its processes, the first one first."""
        return (self.pid, *self.others)

    def start(self) -> None:
        """Let it work."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")

    def account(self) -> dict[str, Any]:
        """Wait until it has worked; what it says of it."""
        told: dict[str, Any] = json.loads(self._line())
        return told

    def ask(self) -> Account:
        """What it has done so far."""
        self.start()
        told = self.account()
        return Account(told["t"], told["wall"], told["threads"])

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()


@contextmanager
def started(argv: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that is ended when left, whatever happens: `Popen` by itself waits for it then."""
    with subprocess.Popen([str(part) for part in argv], stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def target_of(*pids: int) -> Target:
    """Processes as one server; the first is the one that was asked for."""
    told = tuple(TargetProcess(pid, "", "a program") for pid in dict.fromkeys(pids))
    return Target(pids[0], pids[0], "process", "a program", told)
