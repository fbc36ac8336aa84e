"""What this machine lets its user see, for `llmtop doctor`: each with the command that changes it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from llmtop import procfs
from llmtop.collectors.base import Check
from llmtop.collectors.pyspy_dump import INSTALL, find_program
from llmtop.model import Unknown
from llmtop.text import clean

SYSTEM_PYTHON = Path("/usr/bin/python3")
"""The interpreter that distributions install bcc for; it is never on the package index."""
_TIMEOUT_S = 10.0


def checks() -> tuple[Check, ...]:
    """All checks of the host, cheapest first."""
    return (
        Check("user", _user()),
        Check("thread clocks (/proc schedstat)", _schedstat()),
        Check("wait channels (/proc wchan)", _wait_channel()),
        Check("other users' processes (hidepid)", _hidepid()),
        Check("ptrace (system calls of threads, py-spy)", _ptrace()),
        Check("CPU pressure (PSI)", _pressure()),
        Check("perf_event_paranoid", _perf_events()),
        Check("BTF", _btf()),
        Check("bpftrace", _program("bpftrace", "sudo apt install bpftrace")),
        Check("perf", _program("perf", "sudo apt install linux-perf (Debian) or linux-tools-generic (Ubuntu)")),
        Check("py-spy", _py_spy()),
        Check("bcc", _bcc()),
    )


def _py_spy() -> str | Unknown:
    """Where it is: sudo leaves out of the PATH what stands beside llmtop."""
    program = find_program()
    return f"Python frames on demand: {program}" if program else Unknown("not installed", INSTALL)


def _user() -> str | Unknown:
    if os.geteuid() == 0:
        return "root: all processes can be read"
    return f"user {os.geteuid()}: only this user's processes can be read in full (sudo llmtop doctor shows the rest)"


def _schedstat() -> str | Unknown:
    if procfs.read_bytes("/proc/self/schedstat") is not None:
        return "on-CPU time and run-queue wait in ns"
    return Unknown("this kernel counts no run-queue wait", "a kernel with CONFIG_SCHED_INFO=y is needed")


def _wait_channel() -> str | Unknown:
    """Ask about init, which waits nearly always; "0" is what the kernel says where it will not tell."""
    channel = procfs.read_text("/proc/1/wchan")
    if channel and channel != "0":
        return "kernel functions in which threads wait"
    if os.geteuid() == 0:
        return Unknown("this kernel names no wait channels: system calls are used instead")
    return Unknown("wait channels of others' threads are hidden", "run llmtop as the server's user, or with sudo")


def _hidepid() -> str | Unknown:
    for line in (procfs.read_text("/proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1] == "/proc" and "hidepid=" in fields[3] and os.geteuid() != 0:
            if "hidepid=0" in fields[3] or "hidepid=off" in fields[3]:
                continue
            return Unknown("/proc hides other users' processes", "sudo mount -o remount,hidepid=0 /proc")
    return "visible"


def _ptrace() -> str | Unknown:
    scope = procfs.read_text("/proc/sys/kernel/yama/ptrace_scope")
    if scope is None:
        return "allowed for this user's processes (no Yama)"
    level = scope.strip()
    if level == "0" or (os.geteuid() == 0 and level != "3"):
        return f"allowed (ptrace_scope {level})"
    if level == "3":
        return Unknown("ptrace is off until the next boot (ptrace_scope 3)", "reboot with kernel.yama.ptrace_scope=1")
    return Unknown(f"ptrace is for root only (ptrace_scope {level})", "sudo sysctl kernel.yama.ptrace_scope=0")


def _pressure() -> str | Unknown:
    if procfs.read_bytes("/proc/pressure/cpu") is not None:
        return "/proc/pressure/cpu"
    return Unknown("no pressure-stall information", "boot with psi=1 (kernel with CONFIG_PSI=y)")


def _perf_events() -> str | Unknown:
    level = procfs.read_text("/proc/sys/kernel/perf_event_paranoid")
    if level is None:
        return Unknown("this kernel has no perf events", "a kernel with CONFIG_PERF_EVENTS=y is needed")
    if os.geteuid() == 0 or int(level) <= 1:
        return f"kernel and user stacks (perf_event_paranoid {level.strip()})"
    return Unknown(
        f"no perf stacks of the kernel (perf_event_paranoid {level.strip()})",
        "sudo sysctl kernel.perf_event_paranoid=1",
    )


def _btf() -> str | Unknown:
    if Path("/sys/kernel/btf/vmlinux").exists():
        return "/sys/kernel/btf/vmlinux"
    return Unknown("the kernel carries no type information", "a kernel with CONFIG_DEBUG_INFO_BTF=y is needed")


def _program(name: str, install: str) -> str | Unknown:
    path = shutil.which(name)
    return clean(path) if path else Unknown(f"{name} is not installed", install)


def _bcc() -> str | Unknown:
    """Import it where it is installed: the package may be there without its library."""
    install = "sudo apt install python3-bpfcc"
    if not SYSTEM_PYTHON.exists():
        return Unknown(f"{SYSTEM_PYTHON} is not there", install)
    try:
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", "import bcc; from bcc import BPF; print(bcc.__version__)"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Unknown(f"importing bcc failed: {type(error).__name__}", install)
    if done.returncode != 0:
        last = clean((done.stderr.strip().splitlines() or ["no reason given"])[-1])
        return Unknown(f"bcc cannot be imported: {last}", install)
    if os.geteuid() != 0:
        return Unknown(f"bcc {clean(done.stdout.strip())} is installed, but only root may load probes", "sudo llmtop")
    return f"bcc {clean(done.stdout.strip())}"
