"""What the benchmarks share: programs in a pseudo-terminal that notes times, what they cost, made-up GPUs, tables."""

from __future__ import annotations

import math
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.e2e.terminal import Terminal  # noqa: E402
from tests.fake_nvml.build import FakeNvml, build, compiler  # noqa: E402

LLMTOP = (sys.executable, "-m", "llmtop")
COLUMNS, LINES = 120, 40
_CURSOR_QUERY = b"\x1b[6n"


class TimedTerminal(Terminal):
    """A terminal that notes when each piece of output came, and draws none of it until the program has ended.

    Drawing costs more than most of what is measured here, on the same cores.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str | None] | None = None) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.started_s = time.perf_counter()
        here = {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
        super().__init__(argv, columns=COLUMNS, lines=LINES, env=here | dict(env or {}))

    def _feed(self, data: bytes) -> None:
        with self._changed:
            self.pieces.append((time.perf_counter(), data))
            self._answer_queries(data)
            self._reply("\x1b[1;1R" * data.count(_CURSOR_QUERY))
            self._changed.notify_all()

    def check_running(self) -> None:
        """Fail with the program's last words if it has ended.

        Raises:
            AssertionError: It has.
        """
        said = b"".join(data for _, data in self.pieces[-20:])[-600:]
        assert self.exit_code is None, f"ended with exit code {self.exit_code}, saying {said!r}"

    def bytes_between(self, start_s: float, end_s: float) -> int:
        """Output of a span of `time.perf_counter()`."""
        return sum(len(data) for at_s, data in list(self.pieces) if start_s <= at_s < end_s)

    def wait_for_output(self, wanted: bytes, timeout_s: float = 30.0) -> None:
        """Wait until the program has written these bytes.

        Raises:
            AssertionError: It did not in time.
        """
        deadline = time.perf_counter() + timeout_s
        with self._changed:
            while wanted not in b"".join(data for _, data in self.pieces):
                left = deadline - time.perf_counter()
                assert left > 0, f"never wrote {wanted!r}"
                self.check_running()
                self._changed.wait(min(left, 0.1))

    def response_s(self, *keys: str, quiet_s: float = 0.04, timeout_s: float = 1.0) -> float | None:
        """Press keys; seconds until the last byte of what is drawn in answer (then `quiet_s` pass without output).

        None when nothing is drawn in time.
        """
        before, start_s = len(self.pieces), time.perf_counter()
        self.press(*keys)
        with self._changed:
            answered = self._changed.wait_for(lambda: len(self.pieces) > before, timeout_s)
            while answered and self._changed.wait(quiet_s):
                pass
            return self.pieces[-1][0] - start_s if answered else None

    def when(self, *wanted: Callable[[str], object]) -> list[float | None]:
        """Seconds from the start to the first moment at which each held of the screen's text; once, after the end."""
        self.answers = False
        moments: list[float | None] = [None] * len(wanted)
        for at_s, data in self.pieces:
            super()._feed(data)
            text = self.screen_text()
            for i, satisfied in enumerate(wanted):
                if moments[i] is None and satisfied(text):
                    moments[i] = at_s - self.started_s
        return moments


@dataclass(frozen=True, slots=True)
class Use:
    """What a program has used so far: CPU seconds, of its children too, and memory of itself in bytes."""

    at_s: float
    own_s: float
    children_s: float
    rss: int

    @classmethod
    def of(cls, pid: int) -> Use:
        """Look now; a child that ended is no longer counted."""
        process = psutil.Process(pid)
        times, rss = process.cpu_times(), process.memory_info().rss
        children = 0.0
        for child in process.children(recursive=True):
            try:
                spent = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            children += spent.user + spent.system
        return cls(time.perf_counter(), times.user + times.system, children, rss)


def peak_rss_mb(pid: int) -> float:
    """The most memory that a process has held, in MB (1e6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


@contextmanager
def fake_gpus(count: int, *, wave: float = 0.2, user: int | None = None) -> Iterator[Mapping[str, str | None]]:
    """The environment of a machine of `count` made-up H100s whose readings swing by the share `wave`.

    `user` is a process that holds 70 GB on each.
    """
    if compiler() is None:
        sys.exit("this needs a C compiler for the stand-in NVML: apt-get install gcc libc6-dev")
    with tempfile.TemporaryDirectory() as folder:
        machine = FakeNvml(build(Path(folder)), Path(folder) / "control")
        machine.clear(gpus=count)
        machine.set_gpu(None, wave=wave, compute="" if user is None else f"{user}:{70 << 30}")
        machine.set_gpm(None, sm=75.0, occ=40.0, dram=62.0, tensor=18.0, hmma=18.0, fp32=6.0, int_=9.0)
        yield dict(machine.env)


class DemoServer:
    """`llmtop demo --server-only`: a real server to attach to, on the CPU or a GPU."""

    def __init__(self, *options: str, env: Mapping[str, str] | None = None) -> None:
        self._options = options
        self._env = dict(os.environ) | {"PYTHONPATH": str(ROOT)} | dict(env or {})

    def __enter__(self) -> Self:
        command = [*LLMTOP, "demo", "--server-only", *self._options]
        self._process = psutil.Popen(command, env=self._env, stdout=-1, text=True)
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the demo server did not start")
        self.url, _, pid = line.split()
        self.pid = int(pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(10)
        self._process.stdout.close()


@contextmanager
def running(programs: Mapping[str, Sequence[str]], env: Mapping[str, str | None]) -> Iterator[dict[str, TimedTerminal]]:
    """Programs side by side, each in a terminal of its own."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(TimedTerminal(argv, env)) for name, argv in programs.items()}


def machine() -> str:
    """What a reader needs to know to compare: processor, cores, versions. No names."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    load = os.getloadavg()[0]
    return (
        f"{model}, {os.cpu_count()} cores, load {load:.1f} at the start; Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, Textual {version_of('textual')}; terminal {COLUMNS}x{LINES}"
    )


def version_of(distribution: str) -> str:
    """A package's version, "not installed" where it is not."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def median(values: Sequence[float | None]) -> float | None:
    """The median of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def cpu_ms(work: Callable[[], object], repeats: int) -> float:
    """The median CPU time of one call, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - start)
    return statistics.median(times) / 1e6


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0, 2.0], 0.95)
    (2.0, 2.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table, aligned so that it reads as text too; None is a dash.

    >>> print(table(("what", "ms"), [("a", 1.5), ("b", None)]))
    | what |  ms |
    |------|----:|
    | a    | 1.5 |
    | b    |   – |
    """
    cells = [[_text(value) for value in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    right = [i > 0 for i in range(len(head))]
    lines = [
        "| " + " | ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _text(value: object) -> str:
    return "–" if value is None else str(value)
