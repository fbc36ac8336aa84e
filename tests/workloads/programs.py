"""Builds and runs the workloads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent
_FLAGS = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-g", "-pthread"]


def compiler() -> str | None:
    """A C compiler."""
    return shutil.which("gcc") or shutil.which("cc")


def build_workload(folder: Path) -> Path:
    """The program with all modes."""
    return _build([str(HERE / "workload.c")], folder / "workload")


def build_cuda(folder: Path) -> Path:
    """A program that uses a stand-in libcuda.so.1, which lies beside it."""
    library = folder / "libcuda.so.1"
    _build(["-shared", "-fPIC", str(HERE / "cuda_stand_in.c")], library)
    return _build([str(HERE / "cuda_user.c"), str(library), f"-Wl,-rpath,{folder}"], folder / "cuda_user")


def _build(arguments: list[str], output: Path) -> Path:
    program = compiler()
    assert program is not None
    subprocess.run([program, *_FLAGS, "-o", str(output), *arguments], check=True)
    return output


class Workload:
    """A running workload: ready when made, ended when left."""

    def __init__(self, *argv: str | Path) -> None:
        self._process = subprocess.Popen(
            [str(part) for part in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self._process.pid
        assert self._line() == "ready"

    def start(self) -> None:
        """Let it work."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")

    def account(self) -> dict[str, int]:
        """Wait until it has worked; what it says of it."""
        return {key: int(value) for key, _, value in (part.partition("=") for part in self._line().split())}

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()
