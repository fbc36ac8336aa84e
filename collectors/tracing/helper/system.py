"""What the helper asks of the kernel directly."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x20000
_MS_NOSUID_NODEV_NOEXEC = 0x2 | 0x4 | 0x8
_MS_SLAVE_REC = (1 << 19) | (1 << 14)
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""The inode of the machine's own PID namespace: PROC_PID_INIT_INO in include/linux/proc_ns.h."""
_BPF_SYSCALL = {"x86_64": 321, "aarch64": 280}
_TRACING_PROGRAMS = {2: "kprobe", 5: "tracepoint", 7: "perf event", 17: "raw tracepoint", 26: "fentry"}
"""Kinds of BPF program that run on the events we time: enum bpf_prog_type in include/uapi/linux/bpf.h."""

libc = ctypes.CDLL(None, use_errno=True)


class UnavailableError(Exception):
    """Something that this machine or user does not allow: why, and what would change it."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


def kernel_release() -> tuple[int, int]:
    """Major and minor number of the running kernel; (0, 0) where it has an unusual name."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; what it attached ends with it."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(0)


def see_tracepoints() -> None:
    """Make tracefs visible to this process alone, where the machine has not mounted it.

    The mount is made in a mount namespace of our own, so that nothing of the machine changes.
    """
    try:
        if (TRACEFS / "events").is_dir() or Path("/sys/kernel/debug/tracing/events").is_dir():
            return
    except PermissionError:
        raise UnavailableError(
            "tracefs is for root's eyes only", "add the capability CAP_DAC_READ_SEARCH, or sudo llmtop ..."
        ) from None
    remedy = "sudo mount -t tracefs tracefs /sys/kernel/tracing"
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_SLAVE_REC, None):
        raise UnavailableError(f"tracefs is not mounted ({os.strerror(ctypes.get_errno())})", remedy)
    if libc.mount(b"tracefs", os.fsencode(TRACEFS), b"tracefs", _MS_NOSUID_NODEV_NOEXEC, None):
        raise UnavailableError(f"tracefs cannot be mounted ({os.strerror(ctypes.get_errno())})", remedy)


def tracefs() -> Path:
    """Where the kernel tells of its tracepoints."""
    return TRACEFS if (TRACEFS / "events").is_dir() else Path("/sys/kernel/debug/tracing")


def pid_namespace() -> tuple[int, int] | None:
    """Device and inode of our PID namespace; None for the machine's own, where probes are told the ids we know.

    Raises:
        UnavailableError: /proc names processes by the ids of another namespace than ours.
    """
    own = os.stat("/proc/self/ns/pid")
    if own.st_ino == _FIRST_PID_NAMESPACE:
        return None
    if os.readlink("/proc/self") != str(os.getpid()):
        raise UnavailableError(
            "llmtop runs in a PID namespace of its own, and /proc shows another one",
            "docker run --pid=host --privileged ..., or unshare with --mount-proc",
        )
    return own.st_dev, own.st_ino


def tells_ids_of(pid: int) -> bool:
    """Whether the kernel can tell probes a process's ids in our PID namespace: not of one that runs further in."""
    own = os.stat("/proc/self/ns/pid").st_ino
    try:
        return own in (_FIRST_PID_NAMESPACE, os.stat(f"/proc/{pid}/ns/pid").st_ino)
    except OSError:  # it has ended, which others find out
        return True


def bpf_call(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    """bpf(2); the buffer's closing NUL is not part of its argument."""
    return int(libc.syscall(_BPF_SYSCALL[platform.machine()], command, attributes, len(attributes) - 1))


def read(path: str) -> str:
    """A file of /proc; empty when it is gone."""
    return read_bytes(path).decode("utf-8", "replace")


def read_bytes(path: str) -> bytes:
    """Likewise, as it is."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


@contextmanager
def regular_file(path: str, *, follow: bool = True) -> Iterator[int]:
    """A descriptor of a regular file for reading: nothing else is opened, as to open a device or a FIFO has effects.

    Raises:
        OSError: There is none, or it may not be read.
    """
    found = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "no regular file", path)
        file = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(found)
    try:
        yield file
    finally:
        os.close(file)


def start_time(pid: int) -> str:
    """With the PID it names a process for good; empty when it has ended. Fields of proc_pid_stat(5).

    A first thread that has ended stays as a zombie while others run on, and while nobody waits for the process.
    """
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or (fields[0] in "ZX" and int(fields[17]) <= 1):
        return ""
    return fields[19]


def thread_state(tgid: int, tid: int) -> str:
    """The state letter of a thread; empty when it is gone."""
    return read(f"/proc/{tgid}/task/{tid}/stat").rpartition(") ")[2][:1]


def run_and_queued(tgid: int, tid: int) -> int | None:
    """For how long a thread has run and waited for a CPU so far, in ns; None when it is gone."""
    fields = read(f"/proc/{tgid}/task/{tid}/schedstat").split()
    return int(fields[0]) + int(fields[1]) if len(fields) >= 2 else None


def cpu_ns(pid: int) -> int:
    """The CPU time of a process so far, by its clock: clock_getcpuclockid(3); 0 when it is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return 0


def threads(tgid: int) -> list[int]:
    """The threads of a process; none when it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{tgid}/task")]
    except OSError:
        return []


def is_process(tid: int) -> bool:
    """Whether an id is a process's and not just a thread's; false when it is gone."""
    return f"\nTgid:\t{tid}\n" in read(f"/proc/{tid}/status")


def sleeping_in(tgid: int, tid: int) -> tuple[int, int] | None:
    """The system call that a thread sleeps in and that call's first argument; None when it is in none."""
    fields = read(f"/proc/{tgid}/task/{tid}/syscall").split()
    if len(fields) < 2 or not fields[0].isdigit():
        return None
    return int(fields[0]), int(fields[1], 16) & 0xFFFFFFFF


def kernel_stack(tgid: int, tid: int) -> list[str]:
    """Where in the kernel a thread sleeps, outermost first."""
    lines = read(f"/proc/{tgid}/task/{tid}/stack").splitlines()
    return [match.group(1) + "_[k]" for line in reversed(lines) if (match := re.match(r"\[<\w+>\] (\w[\w.]*)", line))]


def other_tracers() -> list[tuple[int, str, str]]:
    """Processes of others that hold BPF programs on events: (PID, name, kinds of program)."""
    tracers = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            kinds = _programs_of(int(name))
            if kinds:
                tracers.append((int(name), read(f"/proc/{name}/comm").strip(), ", ".join(sorted(kinds))))
    return tracers


def _programs_of(pid: int) -> set[str]:
    kinds = set()
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            if os.readlink(f"{folder}/{name}") == "anon_inode:bpf-prog":
                found = re.search(r"^prog_type:\s*(\d+)", read(f"/proc/{pid}/fdinfo/{name}"), re.MULTILINE)
                kind = _TRACING_PROGRAMS.get(int(found.group(1))) if found else None
                kinds |= {kind} if kind else set()
    except OSError:  # it ended, or closed the file, while we looked
        return kinds
    return kinds
