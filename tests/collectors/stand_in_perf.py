"""A stand-in for perf: answers the control pipe, and prints what a folder says, with the times of the look in it.

Installed as a program `perf` by `install`. In the folder lie, where a test put them: `record.err` (why recording
fails), `scheduler` and `samples` (what `perf script` prints of each record; "@0.010" becomes the time 10 ms after the
look began), `trace` (the summary) and `trace.err`. What it was called with is added to `calls`.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ.get("STAND_IN_PERF", "."))


def install(folder: Path) -> Path:
    """Make it the first `perf` of a PATH; the folder that it reads."""
    program = folder / "perf"
    program.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return folder


def text(name: str) -> str:
    """What a test has put there."""
    path = FOLDER / name
    return path.read_text() if path.exists() else ""


def fail(name: str) -> None:
    """End as perf does when it may not."""
    if said := text(name):
        sys.stderr.write(said)
        sys.exit(255)


def record(argv: list[str]) -> None:
    """Wait for commands, then for the interrupt."""
    fail("record.err")
    control = next(word for word in argv if word.startswith("--control=fd:"))
    commands, answers = (int(number) for number in control.removeprefix("--control=fd:").split(","))
    kind = "scheduler" if "-a" in argv else "trace" if "raw_syscalls:sys_enter" in argv else "samples"
    fail(f"{kind}.err")
    began = 0

    def end(*_: object) -> None:
        Path(argv[argv.index("-o") + 1]).write_text(f"{kind} {began}")
        os._exit(0)

    signal.signal(signal.SIGINT, end)
    while command := os.read(commands, 64):
        began = time.monotonic_ns() if b"enable" in command else began
        os.write(answers, b"ack\n\0")
    signal.pause()


def script(argv: list[str]) -> None:
    """Print the events of a record."""
    fail("script.err")
    kind, began = Path(argv[-1]).read_text().split()
    start = int(began) / 1e9
    sys.stdout.write(re.sub(r"@(\d+\.\d+)", lambda found: f"{start + float(found.group(1)):.9f}", text(kind)))


def trace() -> None:
    """Print the calls of a record."""
    sys.stderr.write(text("trace") or "\n Summary of events:\n\n")


def main(argv: list[str]) -> None:
    """Do as perf does."""
    with (FOLDER / "calls").open("a") as calls:
        calls.write(" ".join(argv) + "\n")
    match argv[0]:
        case "--version":
            fail("version.err")
            sys.stdout.write("perf version 6.1.192\n")
        case "record":
            record(argv)
        case "script":
            script(argv)
        case "trace":
            trace()


if __name__ == "__main__":
    main(sys.argv[1:])
