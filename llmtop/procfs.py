"""Reads of /proc that both recognition and the process collector need.

Plain file reads, because they run for hundreds of threads at every poll. A process may end between any two
reads: what cannot be read is None or empty here, and the caller says why.
"""

from __future__ import annotations

import os
import re
import stat as modes
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from llmtop.frozen import frozen

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""Ticks of what /proc counts in them: when a process began."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
_CHUNK = 1 << 16
_SMALL = 1 << 12
"""More than one line of /proc about a thread can hold."""
_INTERPRETER = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*\Z")


class ProcStat(NamedTuple):
    """The part of /proc/PID/stat that is used, numbered as in proc_pid_stat(5).

    Attributes:
        state: Field 3: R, S, D, T, t, Z, X or I.
        cpu_ticks: Fields 14 and 15: user and system time in clock ticks.
        start_ticks: Field 22: with the PID, it names a process for good; a PID alone is used again.
        rss_pages: Field 24.
        system_ticks: Field 15: the part of `cpu_ticks` in the kernel.
        faults: Field 10: pages that were touched for the first time, or again after they were given back.
        major_faults: Field 12: pages that had to be read from a disk, its swap space or a mapped file.
        nice: Field 19: from -20 (gets most of a CPU that others want too) to 19.
    """

    state: str
    parent: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    rss_pages: int
    system_ticks: int = 0
    faults: int = 0
    major_faults: int = 0
    nice: int = 0


def read_bytes(path: str | Path, dir_fd: int | None = None) -> bytes | None:
    """A small file in one go; None when it is gone or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return None
    try:
        return os.read(fd, _CHUNK)
    except OSError:  # ESRCH: it ended between open and read
        return None
    finally:
        os.close(fd)


class KeptFiles:
    """One-line files that are read at each poll, kept open: three quarters of such a read is to open and to close.

    Args:
        most: Files that are kept open; those beyond are opened at each read.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, int] = {}
        weakref.finalize(self, _close, self._open)

    def read(self, path: str, dir_fd: int) -> bytes | None:
        """A file below a folder, by a name that no other folder's has; None when it is gone or not ours to read."""
        descriptor = self._open.get(path)
        if descriptor is not None:
            try:
                return os.pread(descriptor, _SMALL, 0)
            except OSError:  # ESRCH: it ended; another may have its id by now
                os.close(self._open.pop(path))
        if len(self._open) >= self._most:
            return read_bytes(path, dir_fd)
        try:
            self._open[path] = descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
            return os.pread(descriptor, _SMALL, 0)
        except OSError:
            return None

    def close(self, *paths: str) -> None:
        """Let go of files, whether they were kept or not; of all where none is named."""
        _close(self._open, *paths)


def _close(opened: dict[str, int], *paths: str) -> None:
    for path in paths or tuple(opened):
        if (descriptor := opened.pop(path, None)) is not None:
            os.close(descriptor)


def read_text(path: str | Path) -> str | None:
    """Like `read_bytes`, decoded; bytes that are not UTF-8 become surrogates, which `text.clean` replaces."""
    content = read_bytes(path)
    return None if content is None else content.decode("utf-8", "surrogateescape")


def parse_stat(content: bytes) -> ProcStat | None:
    """Take /proc/PID/stat apart.

    The name in parentheses may hold spaces and parentheses itself, so fields are counted from the last one.

    >>> parse_stat(b"7 (a) b) S 1 7 7 0 -1 0 8 0 6 0 3 2 0 0 20 0 4 0 99 1 5 0")[:8]
    ('S', 1, 5, 4, 99, 5, 2, 8)
    """
    fields = content[content.rfind(b")") + 2 :].split()
    try:
        return ProcStat(
            chr(fields[0][0]),
            int(fields[1]),
            int(fields[11]) + int(fields[12]),
            int(fields[17]),
            int(fields[19]),
            int(fields[21]),
            int(fields[12]),
            int(fields[7]),
            int(fields[9]),
            int(fields[16]),
        )
    except (IndexError, ValueError):
        return None


def stat(pid: int, proc: Path = PROC) -> ProcStat | None:
    """The state of a process; None when there is none."""
    content = read_bytes(f"{proc}/{pid}/stat")
    return None if content is None else parse_stat(content)


def arguments(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The command line; empty for kernel threads, zombies and processes that are gone.

    A title set with setproctitle replaces it by one long argument with NULs or spaces behind.
    """
    content = read_text(f"{proc}/{pid}/cmdline") or ""
    return tuple(part for part in content.split("\0") if part.strip())


def command(argv: Sequence[str]) -> str:
    """What a process runs: its arguments joined by spaces, without a Python interpreter and its flags in front.

    So a wrapper (a shell, sudo, a profiler) that only mentions a server in its arguments is not taken for one.

    >>> command(["/usr/bin/python3", "-u", "/opt/bin/vllm", "serve", "m"])
    '/opt/bin/vllm serve m'
    >>> command(["python", "-m", "sglang.launch_server"]), command(["bash", "-c", "vllm serve m"])
    ('-m sglang.launch_server', 'bash -c vllm serve m')
    """
    rest = list(argv)
    if rest and _INTERPRETER.match(rest[0]):
        rest.pop(0)
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
            flag = rest.pop(0)
            if flag in ("-X", "-W") and rest:
                rest.pop(0)
    return " ".join(rest or argv).strip()


def is_interpreter(program: str) -> bool:
    """Whether a path or name is that of a Python interpreter."""
    return _INTERPRETER.match(program) is not None


def name(pid: int, proc: Path = PROC) -> str:
    """The short name (at most 15 bytes); empty when the process is gone."""
    return (read_text(f"{proc}/{pid}/comm") or "").rstrip("\n")


def environment(pid: int, variable: str, proc: Path = PROC) -> str | None:
    """One variable from the environment a process started with; None when unset or not ours to read."""
    for entry in (read_text(f"{proc}/{pid}/environ") or "").split("\0"):
        key, found, value = entry.partition("=")
        if found and key == variable:
            return value
    return None


_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate, DeepSpeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Environment variables in which launchers number the processes of a job, and give how many there are."""
_NCCL_THREAD = "pt_nccl_"
"""PyTorch 2.3 and newer names the threads of its NCCL groups so (watchdog, heartbeat)."""


def job_rank(pid: int, proc: Path = PROC) -> str | None:
    """The role of a process that is one rank of a job, by its launcher's variables or by PyTorch's NCCL threads.

    Helpers of a rank (data loaders) inherit its variables and are no ranks.
    """
    state = stat(pid, proc)
    for variable, size in _RANK_VARIABLES:
        rank, ranks = environment(pid, variable, proc) or "", environment(pid, size, proc) or ""
        if rank.isdecimal() and ranks.isdecimal() and int(ranks) > 1:
            is_inherited = state is not None and environment(state.parent, variable, proc) == rank
            return None if is_inherited else f"rank {int(rank)}"
    has_group = any(name(tid, proc / str(pid) / "task").startswith(_NCCL_THREAD) for tid in threads(pid, proc))
    return f"NCCL process {pid}" if has_group else None


def pids(proc: Path = PROC) -> list[int]:
    """All processes that can be seen."""
    try:
        return [int(entry) for entry in os.listdir(proc) if entry.isdigit()]
    except OSError:
        return []


def threads(pid: int, proc: Path = PROC) -> list[int]:
    """The thread ids of a process; empty when it is gone."""
    try:
        return [int(entry) for entry in os.listdir(f"{proc}/{pid}/task")]
    except OSError:
        return []


def open_folder(path: str) -> int | None:
    """A descriptor for `read_bytes`'s `dir_fd`, which the caller closes; None when the folder is gone."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def is_in(name: str, folder: int) -> bool:
    """Whether there is an entry of this name below a folder, by its descriptor."""
    try:
        os.stat(name, dir_fd=folder)
    except OSError:
        return False
    return True


def open_files(pid: int, proc: Path = PROC) -> list[str] | None:
    """What the file descriptors point to ("socket:[4242]", "/dev/nvidia0"); None when not ours to read."""
    folder = f"{proc}/{pid}/fd"
    try:
        entries = os.listdir(folder)
    except OSError:
        return None
    return [link for entry in entries if (link := read_link(f"{folder}/{entry}"))]


def open_file_numbers(pid: int, limit: int, proc: Path = PROC) -> int | None:
    """How many of the file descriptors below a limit a process has open; None when it is not ours to look at.

    Linux 6.2 and newer tells how many there are at all; they are only counted one by one where few are left.
    """
    folder = f"{proc}/{pid}/fd"
    try:
        many = os.stat(folder).st_size
        if not many or many >= _FEW_LEFT * limit:
            many = sum(int(name) < limit for name in os.listdir(folder))
    except (OSError, ValueError):
        return None
    return many


_FEW_LEFT = 0.9


def open_files_limit(pid: int, proc: Path = PROC) -> int | None:
    """How many files a process may have open (RLIMIT_NOFILE); None where it is not limited or not known."""
    for line in (read_text(f"{proc}/{pid}/limits") or "").splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None


def file_behind(pid: int, descriptor: int, proc: Path = PROC) -> str | None:
    """What a file descriptor points to, with its kind; None when it is closed, or not ours to see.

    Such as "socket:[4242]", "fifo:/run/log", "tty:/dev/pts/1", "network:/models/a", or the path alone. A file on a
    network file system is never asked for anything: it may not answer.
    """
    link = f"{proc}/{pid}/fd/{descriptor}"
    path = read_link(link)
    if path is None or not path.startswith("/") or path.startswith(("/proc/", "/sys/", "/dev/nvidia")):
        return path
    mount = re.search(r"^mnt_id:\s*(\d+)", read_text(f"{proc}/{pid}/fdinfo/{descriptor}") or "", re.MULTILINE)
    if mount is not None and _NETWORK.match(_file_system(pid, mount[1], proc)):
        return f"network:{path}"
    try:
        mode = os.stat(link).st_mode
    except OSError:
        return path
    is_terminal = modes.S_ISCHR(mode) and _TERMINAL.match(path)
    return f"fifo:{path}" if modes.S_ISFIFO(mode) else f"tty:{path}" if is_terminal else path


_NETWORK = re.compile(r"nfs|cifs|smb|fuse|ceph|lustre|9p|afs|gpfs|beegfs|gfs2|ocfs2|virtiofs|weka")
_TERMINAL = re.compile(r"/dev/(pts/|tty|console|ptmx|hvc)")


@lru_cache(maxsize=256)  # of each sleep of a thread, always the same few files
def _file_system(pid: int, mount: str, proc: Path) -> str:
    """The type of a mount of a process, by its number; empty where it is not there."""
    for line in (read_text(f"{proc}/{pid}/mountinfo") or "").splitlines():
        if line.startswith(f"{mount} "):
            return line.partition(" - ")[2].partition(" ")[0]
    return ""


def read_link(path: str) -> str | None:
    """Where a symbolic link points; None when it is gone or not ours to read."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def swapped_bytes(pid: int, proc: Path = PROC) -> int | None:
    """How much of its memory is in swap space (VmSwap); None when it is gone, or a thread of the kernel's."""
    kilobytes = re.search(r"^VmSwap:\s*(\d+) kB", read_text(f"{proc}/{pid}/status") or "", re.MULTILINE)
    return int(kilobytes[1]) * 1024 if kilobytes else None


def thread_group(pid: int, proc: Path = PROC) -> int | None:
    """The process that a PID or a thread id belongs to; None when there is none."""
    numbers = _status(pid, "Tgid:", proc)
    return numbers[0] if numbers else None


def innermost_pid(pid: int, proc: Path = PROC) -> int | None:
    """The PID that a process has in its own PID namespace; None when it is gone."""
    numbers = _status(pid, "NSpid:", proc)
    return numbers[-1] if numbers else None


def known_inside_as(pid: int, proc: Path = PROC) -> list[int]:
    """The processes that have this PID in a namespace of their own: what a user in a container calls them."""
    return [
        one
        for one in sorted(pids(proc))
        if len(ids := _status(one, "NSpid:", proc)) > 1 and ids[-1] == pid and one != pid
    ]


def is_hidden(pid: int) -> bool:
    """Whether a process is there that /proc does not show us: mounted with hidepid (proc(5))."""
    if stat(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def below(pid: int, proc: Path = PROC) -> list[int]:
    """All descendants of a process, parents first, without a look at the rest of the machine."""
    found: dict[int, None] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop(0)
        for tid in threads(parent, proc):
            listed = read_text(f"{proc}/{parent}/task/{tid}/children")
            if listed is None and stat(parent, proc) is not None and tid == parent:
                return family(proc).descendants(pid)  # a kernel without CONFIG_PROC_CHILDREN
            fresh = [int(word) for word in (listed or "").split() if int(word) not in found]
            found.update(dict.fromkeys(fresh))
            waiting += fresh
    return list(found)


def _status(pid: int, field: str, proc: Path) -> list[int]:
    """The numbers in one field of /proc/PID/status; none when the process is gone."""
    for line in (read_text(f"{proc}/{pid}/status") or "").splitlines():
        if line.startswith(field):
            return [int(word) for word in line.split()[1:]]
    return []


@frozen
class ProcessTree:
    """Who descends from whom: parent by PID, over all processes that can be seen."""

    parents: dict[int, int]

    def ancestors(self, pid: int) -> list[int]:
        """The parent, its parent, and so on, PID 1 included: in a container that is often the server itself."""
        line: list[int] = []
        parent = self.parents.get(pid, 0)
        while parent > 0 and parent not in line:
            line.append(parent)
            parent = self.parents.get(parent, 0)
        return line

    def descendants(self, *pids: int) -> list[int]:
        """Children of all `pids`, their children, and so on; parents first, in order of PID among siblings."""
        children: dict[int, list[int]] = {}
        for child, parent in sorted(self.parents.items()):
            children.setdefault(parent, []).append(child)
        found: dict[int, None] = {}
        waiting = list(pids)
        while waiting:
            offspring = [child for child in children.get(waiting.pop(0), []) if child not in found]
            found.update(dict.fromkeys(offspring))
            waiting += offspring
        return list(found)


def family(proc: Path = PROC) -> ProcessTree:
    """Look at all processes once."""
    return ProcessTree({pid: state.parent for pid in pids(proc) if (state := stat(pid, proc)) is not None})
