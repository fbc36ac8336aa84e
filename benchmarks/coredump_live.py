"""Whether a kernel that fails is named on the live screen by its core dump, how soon, and in a recording too.

    python benchmarks/coredump_live.py [FAULT...] [--program PATH]
    python benchmarks/coredump_live.py --stand-in

Kernels of benchmarks/gpu_faults.cu fail, one a run (default: misaligned_store far_store trap), three ways: started by
`llmtop launch --coredump` under its screen; started with the driver's variables and recorded by `llmtop record
--attach`; and without any of that, where the finding of the XID is to say how to have a dump. nvcc compiles the program
unless it is given. With --stand-in a program without a GPU writes the sample dump in pieces instead. What the screen
said is printed. Exit code 1 when a kernel was not named within ten seconds of the dump's last byte, or nothing was said
of a dump that there is none of.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, ROOT, table
from tests.e2e.terminal import Terminal

FAULTS = ("misaligned_store", "far_store", "trap")
LIMIT_S = 10.0
PATIENCE_S = 60.0
_NAMED = re.compile(r"(?:Warp|Lane|Device|Cluster) [A-Z][a-z]|Trap or breakpoint")
_SAMPLE = ROOT / "sample_traces/cuda-core/13.0/misaligned-store.nvcudmp.gz"
_STAND_IN = """
import os, socket, sys, time
content, place = open(sys.argv[1], "rb").read(), os.environ.get("CUDA_COREDUMP_FILE", "core_%t_%h_%p.nvcudmp")
time.sleep(10)
for sign, value in (("%h", socket.gethostname()), ("%p", os.getpid()), ("%t", int(time.time()))):
    place = place.replace(sign, str(value))
if os.environ.get("CUDA_ENABLE_COREDUMP_ON_EXCEPTION") == "1":
    with open(place, "wb", buffering=0) as file:
        for i in range(5):
            file.write(content[len(content) * i // 5 : len(content) * (i + 1) // 5])
            time.sleep(0.3)
os.abort()
"""


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        size: Bytes of the dump; None where there was none.
        writing_s: From its beginning to its last byte.
        named_s: From its last byte to the kernel on the screen.
        said: What stood there.
    """

    way: str
    fault: str
    size: int | None
    writing_s: float | None
    named_s: float | None
    said: str

    @property
    def is_good(self) -> bool:
        """Whether it was named in time, where it is a time."""
        return bool(self.said) and (self.named_s is None or self.named_s < LIMIT_S)


class Watched:
    """A folder in which a dump comes: when it began, when it last grew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.size: int | None = None
        self.began_s = self.grew_s = 0.0

    def look(self) -> None:
        """Once more."""
        for path in self._folder.glob("*.nvcudmp"):
            now, size = time.monotonic(), path.stat().st_size
            self.began_s = now if self.size is None else self.began_s
            self.grew_s = now if size != self.size else self.grew_s
            self.size = size


def wait_for(look: Callable[[], bool]) -> bool:
    """Whether it came before the patience was over."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if look():
            return True
        time.sleep(0.02)
    return False


def launched(program: Sequence[str], fault: str, folder: Path) -> Outcome:
    """Under the screen of `llmtop launch --coredump`."""
    watched = Watched(folder)
    argv = [*LLMTOP, "launch", "--coredump", str(folder), "--", *program, fault]
    with Terminal(argv, columns=160, lines=50, env={"PYTHONPATH": str(ROOT)}) as terminal:

        def is_named() -> bool:
            watched.look()
            return _NAMED.search(findings_of(terminal)) is not None

        is_there, named_s = wait_for(is_named), time.monotonic()
        print(f"\n== launch --coredump -- {fault}: the findings line")
        print(findings_of(terminal))
        print("-- the diagnosis screen")
        print(diagnosis_of(terminal))
        terminal.press("escape", "q")
        code = terminal.wait_exit()
        print(f"-- after it (exit code {code})")
        print("\n".join(filter(None, terminal.screen_lines())))
    if not is_there or watched.size is None:
        return Outcome("launch", fault, watched.size, None, None, "")
    writing_s = watched.grew_s - watched.began_s
    return Outcome("launch", fault, watched.size, writing_s, named_s - watched.grew_s, "named on the screen")


def findings_of(terminal: Terminal) -> str:
    """The lines at the bottom of the screen."""
    return "\n".join(terminal.screen_lines()[-8:])


def diagnosis_of(terminal: Terminal) -> str:
    """What the diagnosis screen says."""
    terminal.press("d")
    wait_for(lambda: "rule:" in terminal.screen_text())
    return "\n".join(line for line in terminal.screen_lines() if line.strip("│ "))


def recorded(program: Sequence[str], fault: str, folder: Path) -> Outcome:
    """By `llmtop record` of a program that was started with the variables, in the folder where it runs."""
    watched, recording = Watched(folder), folder / "watched.llmtop"
    variables = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1", "CUDA_COREDUMP_GENERATION_FLAGS": small()}
    started = subprocess.Popen([*program, fault], cwd=folder, env={**os.environ, **variables})
    argv = [
        *LLMTOP,
        "record",
        "--attach",
        str(started.pid),
        "-o",
        str(recording),
        "--duration",
        "20",
        "--interval",
        "0.5",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment())
    started.wait()
    watched.look()
    report = subprocess.run(
        [*LLMTOP, "report", str(recording)], capture_output=True, text=True, check=False, env=environment()
    ).stdout
    print(f"\n== record --attach, {fault}: {done.stderr.strip() or 'no word'}; its report")
    print("\n".join(report.splitlines()[:40]))
    named = next((line.strip() for line in report.splitlines() if _NAMED.search(line)), "")
    return Outcome("record", fault, watched.size, None, None, named)


def without(program: Sequence[str], fault: str) -> Outcome:
    """Under the screen of `llmtop launch` alone: the XID's finding says how to have a dump."""
    with Terminal(
        [*LLMTOP, "launch", "--", *program, fault], columns=160, lines=50, env={"PYTHONPATH": str(ROOT)}
    ) as terminal:
        wait_for(lambda: "XID" in findings_of(terminal))
        text = diagnosis_of(terminal)
        terminal.press("escape", "q")
        terminal.wait_exit()
    print(f"\n== launch -- {fault}: the diagnosis screen")
    print(text)
    return Outcome("without", fault, None, None, None, "the remedy is told" if "launch --coredump" in text else "")


def small() -> str:
    """The flags that `launch --coredump` gives."""
    from llmtop.cli.launch_core_dumps import SMALL

    return SMALL


def environment() -> dict[str, str]:
    """That of llmtop's own commands."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def stand_in(folder: Path) -> list[str]:
    """A program without a GPU that leaves the sample's dump."""
    content, program = folder / "sample", folder / "stand_in.py"
    content.write_bytes(gzip.decompress(_SAMPLE.read_bytes()))
    program.write_text(_STAND_IN)
    return [sys.executable, str(program), str(content)]


def compiled(folder: Path) -> list[str]:
    """The program of faults, by nvcc."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        sys.exit("nvcc is not here: put the CUDA toolkit's on the PATH, or give --program PATH, or --stand-in")
    program = folder / "gpu_faults"
    source = ROOT / "benchmarks/gpu_faults.cu"
    subprocess.run([nvcc, "-lineinfo", "-arch=native", "-o", str(program), str(source)], check=True)
    return [str(program)]


def outcomes(program: Sequence[str], faults: Sequence[str], folder: Path, is_stand_in: bool) -> Iterator[Outcome]:
    """All runs."""
    for i, fault in enumerate(faults):
        place = folder / f"launched{i}"
        place.mkdir()
        yield launched(program, fault, place)
    place = folder / "recorded"
    place.mkdir()
    yield recorded(program, faults[0], place)
    if not is_stand_in:
        yield without(program, faults[0])


def main() -> int:
    """Print what was said, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", default=FAULTS)
    parser.add_argument("--program", type=Path, help="gpu_faults.cu, compiled")
    parser.add_argument(
        "--stand-in", action="store_true", help="without a GPU: a program that leaves the sample's dump"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.stand_in:
            program = stand_in(folder)
        else:
            program = [str(options.program.absolute())] if options.program else compiled(folder)
        found = list(
            outcomes(program, options.faults[:1] if options.stand_in else options.faults, folder, options.stand_in)
        )
    rows = [
        (one.way, one.fault, one.size, _seconds(one.writing_s), _seconds(one.named_s), one.said or "NOTHING WAS SAID")
        for one in found
    ]
    print()
    print(table(("way", "fault", "bytes", "written in", "then named in", "said"), rows))
    is_good = all(one.is_good for one in found)
    print(f"named within {LIMIT_S:g} s of the last byte: {'met' if is_good else 'missed'}")
    return int(not is_good)


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} s"


if __name__ == "__main__":
    raise SystemExit(main())
