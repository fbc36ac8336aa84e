"""The text of GPU instructions (SASS), from NVIDIA's disassemblers where the machine has one.

Nobody else can tell it: the encoding is not published. A disassembler is looked for on the PATH, in CUDA's folders, and
in the wheels of NVIDIA and Triton. It runs on a copy of the cubin in a folder of its own, which is removed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from llmtop import programs
from llmtop.model import Unknown
from llmtop.text import clean

REMEDY = "pip install nvidia-cuda-nvdisasm, or put the CUDA toolkit's nvdisasm on the PATH"
Texts: TypeAlias = "Mapping[str, Mapping[int, str]]"
"""The instructions of functions: by the function's name, then by the offset in it."""
_FOLDERS = ("usr/local/cuda/bin", "usr/local/cuda-*/bin", "opt/cuda/bin")
_OF_PACKAGES = ("nvidia/*/bin", "triton/backends/nvidia/bin")
_SECONDS = 30
_FUNCTION = re.compile(r"\.text\.(\S+):|\s*Function : (\S+)")
"""How each of the tools begins a function."""
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,12})\*/\s+([^/\s][^;]*?)\s*;")


def disassemblers() -> Iterator[Path]:
    """Those that this machine has, the best first."""
    of_packages = (folder for package in sys.path for pattern in _OF_PACKAGES for folder in _newest(package, pattern))
    own = [str(Path(sys.prefix, "bin")), *of_packages]
    for tool in ("nvdisasm", "cuobjdump"):
        if found := programs.find(tool, also=_folders(), own=own):
            yield Path(found)


def _folders() -> Iterator[str]:
    """Where they are beside the PATH; of several versions the newest first."""
    for variable in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        if root := os.environ.get(variable):
            yield str(Path(root, "bin"))
    for pattern in _FOLDERS:
        yield from _newest("/", pattern)


def _newest(root: str, pattern: str) -> list[str]:
    return sorted(map(str, Path(root).glob(pattern)), reverse=True)


def disassembled(cubin: Iterable[bytes], functions: Sequence[tuple[int, str]]) -> Texts | Unknown:
    """The instructions of functions, or why there are none.

    Args:
        cubin: Its bytes, in parts.
        functions: The symbol of each that is wanted, and its name.
    """
    tools = list(disassemblers())
    if not tools:
        return Unknown("this machine has no disassembler", REMEDY)
    with tempfile.TemporaryDirectory(prefix="llmtop-") as folder:
        copy = Path(folder, "kernel.cubin")
        with copy.open("wb") as file:
            file.writelines(cubin)
        first = _run(tools[0], copy, functions)
        others = (_run(tool, copy, functions) for tool in tools[1:])
        if not isinstance(first, Unknown):
            return first
        return next((one for one in others if not isinstance(one, Unknown)), first)


def _run(tool: Path, cubin: Path, functions: Sequence[tuple[int, str]]) -> Texts | Unknown:
    indices, names = (",".join(map(str, one)) for one in zip(*functions, strict=True))
    how = ["-c", "-fun", indices] if tool.name == "nvdisasm" else ["-sass", "-fun", names]
    try:
        done = programs.run(
            [str(tool), *how, str(cubin)], capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Unknown(f"{tool.name} did not run: {clean(str(error))}", REMEDY)
    found = _parsed(done.stdout.decode(errors="replace"))
    if any(found.values()):
        return found
    said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    return Unknown(
        f"{tool.name} does not disassemble it: {clean(said[0])}",
        "put that of another version of CUDA first on the PATH",
    )


def _parsed(output: str) -> dict[str, dict[int, str]]:
    """What either tool writes, as texts of instructions."""
    found: dict[str, dict[int, str]] = {}
    texts: dict[int, str] = {}
    for line in output.splitlines():
        if begun := _FUNCTION.match(line):
            texts = found.setdefault(begun[1] or begun[2], {})
        elif instruction := _INSTRUCTION.match(line):
            texts[int(instruction[1], 16)] = clean(" ".join(instruction[2].split()))
    return found
