"""Is the live roofline true while a profiler runs, and for a user without rights? The copy and bf16 checks, each way.

    python benchmarks/profiler_together.py [--ncu PATH] [--nsys PATH]

Runs the copy and the bf16 GEMM of gpu_truth.py, against its tolerances: alone; while ncu, then nsys, profiles another
process on the same GPU (a kernel of one thread, so that it adds nothing to what is counted); and as the user nobody.
What cannot run here is listed with the reason. Exit code 1 when a number left its tolerance, 2 when nothing could run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import ROOT, table

NOBODY = 65534
WORK = ("copy", "bf16 GEMM")
TARGET = [sys.executable, str(ROOT / "benchmarks/cuda_driver.py"), "small"]
PROFILED = "==PROF== Profiling"
"""What ncu says of each kernel that it takes apart."""
PATIENCE_S = 60.0


class UnavailableError(Exception):
    """A way that this machine does not have; the text says why."""


@dataclass(frozen=True, slots=True)
class Way:
    """How the checks run: beside what, and as whom (None: as the user who asked)."""

    name: str
    beside: Callable[[Path], AbstractContextManager[Callable[[], str]]]
    user: int | None = None


@contextmanager
def alone(_: Path) -> Iterator[Callable[[], str]]:
    """Run nothing beside the checks."""
    yield str


@contextmanager
def ncu(path: str | None, folder: Path) -> Iterator[Callable[[], str]]:
    """Profile the small kernel with Nsight Compute for as long as the block lasts; gives what it did so far."""
    if not path:
        raise UnavailableError("ncu is not installed here (--ncu PATH)")
    log = folder / "ncu.log"
    # The clocks are left alone: a profiler that is ended must not leave them locked.
    command = [
        path,
        "--set",
        "full",
        "--clock-control",
        "none",
        "--force-overwrite",
        "-o",
        str(folder / "small"),
        *TARGET,
    ]
    with _running(command, log):
        _wait_for(lambda: log.read_text(errors="replace").count(PROFILED) >= 2, log)
        before = log.read_text(errors="replace").count(PROFILED)
        yield lambda: f"{log.read_text(errors='replace').count(PROFILED) - before} kernels profiled meanwhile"


@contextmanager
def nsys(path: str | None, folder: Path) -> Iterator[Callable[[], str]]:
    """Trace the small kernel with Nsight Systems for as long as the block lasts."""
    if not path:
        raise UnavailableError("nsys is not installed here (--nsys PATH)")
    log = folder / "nsys.log"
    flags = ["--trace=cuda", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
    command = [path, "profile", *flags, "-o", str(folder / "small"), *TARGET]
    start_s = time.monotonic()
    with _running(command, log) as process:
        time.sleep(5.0)  # it says nothing until the end
        if process.poll() is not None:
            raise UnavailableError(f"nsys ended: {_last_line(log)}")
        yield lambda: f"{time.monotonic() - start_s:.0f} s of trace"


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A profiler and what it profiles, in a process group of their own, both ended with the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def _wait_for(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise UnavailableError(f"ncu profiled nothing: {_last_line(log)}")
        time.sleep(0.2)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it said nothing"


def check(way: Way, seconds: float) -> tuple[list[dict[str, Any]], str]:
    """Run the checks one way; gpu_truth's rows, and what the profiler did meanwhile.

    Raises:
        UnavailableError: This machine cannot do it.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        with way.beside(folder) as meanwhile:
            rows = _truth(folder, way.user, seconds)
            return rows, meanwhile()


def _truth(folder: Path, user: int | None, seconds: float) -> list[dict[str, Any]]:
    out = folder / "rows.json"
    command = [sys.executable, str(ROOT / "benchmarks/gpu_truth.py"), "--seconds", f"{seconds:g}"]
    command += ["--only", *WORK, "--json", str(out)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    if user is not None:
        if os.geteuid() not in (0, user):
            raise UnavailableError(
                f"only root can run it as another user; this is uid {os.geteuid()}, see the first row"
            )
        env |= {"HOME": str(folder), "USER": "nobody", "LOGNAME": "nobody"}
    groups: list[int] | None = None if user is None else []
    try:
        done = subprocess.run(
            command, env=env, user=user, group=user, extra_groups=groups, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise UnavailableError(f"that user cannot run this Python: {error.strerror}") from None
    if not out.exists():
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UnavailableError(said[-1][:200] if said else f"gpu_truth.py ended with exit code {done.returncode}")
    rows: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
    return rows


def line(way: str, row: dict[str, Any], note: str) -> tuple[str | None, ...]:
    """One line of the table, from one of gpu_truth's rows."""
    kind, unit = ("flops", 1e12) if row["done_flops"] else ("bytes", 1e9)
    done, said = row[f"done_{kind}"], row[f"said_{kind}"]
    what = f"{row['name']}, {'TFLOP/s' if kind == 'flops' else 'GB/s'}"
    known = None if said is None else f"{said / unit:.0f}"
    ratio = None if said is None or not done else f"{said / done:.3f}"
    return (way, what, f"{done / unit:.0f}", known, ratio, row["verdict"], note)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ncu", default=shutil.which("ncu"), help="where it is, if not on the PATH")
    parser.add_argument("--nsys", default=shutil.which("nsys"))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each workload")
    options = parser.parse_args()
    ways = (
        Way("alone", alone),
        Way("beside ncu", lambda folder: ncu(options.ncu, folder)),
        Way("beside nsys", lambda folder: nsys(options.nsys, folder)),
        Way(f"as uid {NOBODY}", alone, NOBODY),
    )
    lines, skipped, verdicts = [], [], []
    for way in ways:
        try:
            rows, note = check(way, options.seconds)
        except UnavailableError as why:
            skipped.append(f"skipped: {way.name}: {why}")
            continue
        lines += [line(way.name, row, note) for row in rows]
        verdicts += [row["verdict"] for row in rows]
    print(table(("way", "work", "done", "llmtop", "ratio", "verdict", "meanwhile"), lines))
    print("\n".join(skipped))
    return 2 if not verdicts else int(any(not verdict.startswith(("ok", "skipped")) for verdict in verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
