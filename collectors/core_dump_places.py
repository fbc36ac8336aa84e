"""Where the core dumps of a process's GPU will be, by the environment that it was started with.

The variables are those of CUDA-GDB's documentation ("GPU core dump support"). What a program sets by itself
(cuCoredumpSetAttribute, os.environ after its start) is seen nowhere outside of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop import procfs
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENABLED = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"
FILE = "CUDA_COREDUMP_FILE"
FLAGS = "CUDA_COREDUMP_GENERATION_FLAGS"
_DEFAULT_NAMES = ("core_%t_%h_%p.nvcudmp", "core.cuda.%h.%p")
"""In the current folder, where nothing else is said: of CUDA 12 and newer, and of before (CU_COREDUMP_FILE)."""
_SPECIFIER = re.compile(r"%(.)", re.DOTALL)
_SPECIFIERS = {"p": r"(?P<pid>\d+)", "h": r".+?", "t": r"(?:\d+|%t)", "%": "%"}
"""Of a template what its parts become in the names of files; a driver that knows no time leaves its sign as it is."""
_WITHOUT_THEM = Unknown(
    "the server was started without core dumps of GPUs",
    "start it by llmtop launch --coredump -- COMMAND, or with CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1",
)
_PIPED = Unknown("they are piped to a command, which CUDA_COREDUMP_FILE names")


@frozen
class DumpPlace:
    """A folder, and the names that core dumps have there.

    Attributes:
        folder: As llmtop opens it.
        shown: As a user opens it, for as long as the server's root process lives.
        name: Their template: "core_%t_%h_%p.nvcudmp".
        warning: What of the flags makes dumps end half-way; empty where nothing does.
    """

    folder: str
    shown: str
    name: str
    warning: str = ""

    @property
    def names_process(self) -> bool:
        """Whether a name tells whose the dump is."""
        return "%p" in self.name

    def pattern(self) -> re.Pattern[str]:
        """What matches the names, with the PID as its group.

        >>> DumpPlace("/d", "/d", "%h.%p.nvcudmp").pattern().fullmatch("node-7.example.4300.nvcudmp")["pid"]
        '4300'
        """
        parts, at, seen = [], 0, set[str]()
        for found in _SPECIFIER.finditer(self.name):
            parts.append(re.escape(self.name[at : found.start()]))
            known = _SPECIFIERS.get(found[1], re.escape(found[0]))
            parts.append(r"\d+" if found[1] == "p" and found[1] in seen else known)
            seen.add(found[1])
            at = found.end()
        return re.compile("".join((*parts, re.escape(self.name[at:]))))


def places_of(
    pid: int, root_pid: int, proc: Path = procfs.PROC, told: Mapping[str, str] | None = None
) -> tuple[DumpPlace, ...] | Unknown:
    """Where the dumps of a process will be; Unknown where it makes none, or llmtop cannot see them.

    Args:
        pid: Whose; its files are seen as it sees them, also from within a container.
        root_pid: The server's root, which lives the longest: paths into a container lead by it.
        proc: The folder of processes.
        told: What it was started with, where llmtop has done that: of one that has ended /proc tells nothing.
    """
    environment = told if told is not None and _has_ended(pid, proc) else _environment(pid, proc)
    if environment is None:
        return Unknown(f"the environment of pid {pid} cannot be read", "run llmtop with sudo")
    if environment.get(ENABLED, "0") in ("", "0"):
        return _WITHOUT_THEM
    template = environment.get(FILE, "")
    if template.lstrip().startswith("|"):
        return _PIPED
    return tuple(_places(pid, root_pid, proc, template, flags_warning(environment.get(FLAGS, ""))))


def _places(pid: int, root_pid: int, proc: Path, template: str, warning: str) -> Iterator[DumpPlace]:
    folder, _, name = template.rpartition("/")
    # An absolute folder takes the place of the current one.
    inside = str(
        Path(procfs.read_link(f"{proc}/{pid}/cwd") or Path.cwd(), f"{folder}/" if template[:1] == "/" else folder)
    )
    is_elsewhere = _has_own_files(pid, proc)
    opened = f"{proc}/{pid}/root{inside}" if is_elsewhere else inside
    shown = f"{proc}/{root_pid}/root{inside}" if is_elsewhere else inside
    for one in (name,) if name else _DEFAULT_NAMES:
        yield DumpPlace(opened, clean(shown), one, warning)


def _has_own_files(pid: int, proc: Path) -> bool:
    """Whether a process sees other files than llmtop by the same paths: in a container, or after chroot(2)."""
    theirs, own = (procfs.read_link(f"{proc}/{one}/ns/mnt") for one in (pid, "self"))
    return (theirs is not None and theirs != own) or procfs.read_link(f"{proc}/{pid}/root") not in (None, "/")


def _has_ended(pid: int, proc: Path) -> bool:
    state = procfs.stat(pid, proc)
    return state is None or state.state in "ZX"


def _environment(pid: int, proc: Path) -> Mapping[str, str] | None:
    try:
        entries = Path(f"{proc}/{pid}/environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        return None
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def flags_warning(flags: str) -> str:
    """What of CUDA_COREDUMP_GENERATION_FLAGS cuts dumps short: see docs/panes/gpu_faults.md for what was measured.

    >>> flags_warning("skip_global_memory,skip_constbank_memory"), flags_warning("")
    ('', '')
    """
    words = {word.strip() for word in flags.split(",")}
    if "skip_abort" in words:
        return f"take skip_abort out of {FLAGS}: the program may end while its dump is written"
    if "skip_global_memory" in words and "skip_constbank_memory" not in words:
        return f"add skip_constbank_memory to {FLAGS}: driver 580 stops half-way without it"
    return ""
