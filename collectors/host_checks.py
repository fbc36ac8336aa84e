"""What this machine lets its user see, for `llmtop doctor`: each with the command that changes it."""

from __future__ import annotations

import os
from pathlib import Path

from llmtop import procfs, programs, remedies
from llmtop.collectors.base import DoctorCheck
from llmtop.collectors.privileges import (
    ALL_CAPABILITIES,
    GRANT,
    GRANT_TO_CONTAINER,
    ROOT,
    Rights,
    lockdown,
    own_rights,
    pid_namespace,
    tracefs,
)
from llmtop.collectors.pyspy_dump import PACKAGE, find_program
from llmtop.model import Unknown
from llmtop.text import clean


def checks(rights: Rights | None = None, root: Path = ROOT) -> tuple[DoctorCheck, ...]:
    """All checks of the host, cheapest first.

    Args:
        rights: Who asks; by default this process.
        root: Where the machine's /proc and /sys are.
    """
    rights = rights or own_rights()
    return (
        DoctorCheck("user", _user(rights)),
        DoctorCheck("capabilities", _capabilities(rights)),
        DoctorCheck("PID namespace", pid_namespace(root)),
        DoctorCheck("thread clocks (/proc schedstat)", _schedstat()),
        DoctorCheck("wait channels (/proc wchan)", _wait_channel(rights)),
        DoctorCheck("other users' processes (hidepid)", _hidepid()),
        DoctorCheck("ptrace (system calls of threads, py-spy)", _ptrace(rights, root)),
        DoctorCheck("CPU pressure (PSI)", _pressure()),
        DoctorCheck("kernel lockdown", _lockdown(root)),
        DoctorCheck("tracefs", tracefs(rights, root)),
        DoctorCheck("unprivileged_bpf_disabled", _unprivileged_bpf(root)),
        DoctorCheck("perf_event_paranoid", _perf_events(rights, root)),
        DoctorCheck("kernel function names (kptr_restrict)", _kernel_names(rights, root)),
        DoctorCheck("BTF", _btf()),
        DoctorCheck("perf", _program("perf", "sudo apt install linux-perf")),
        DoctorCheck("py-spy", _py_spy()),
    )


def _py_spy() -> str | Unknown:
    """Where it is: sudo leaves out of the PATH what stands beside llmtop."""
    program = find_program()
    return f"Python frames on demand: {program}" if program else Unknown("not installed", remedies.install(PACKAGE))


def _user(rights: Rights) -> str:
    if rights.uid == 0:
        return "root: all processes can be read"
    if rights.has("CAP_SYS_PTRACE"):
        return f"user {rights.uid} with CAP_SYS_PTRACE: all processes can be read"
    return f"user {rights.uid}: only this user's processes can be read in full (sudo llmtop doctor shows the rest)"


def _capabilities(rights: Rights) -> str | Unknown:
    lacking = rights.lacks(*ALL_CAPABILITIES)
    if not lacking:
        return f"all that llmtop uses: {' '.join(ALL_CAPABILITIES)}"
    if rights.uid == 0:
        return Unknown(f"this container's root lacks {' '.join(lacking)}", GRANT_TO_CONTAINER)
    held = " ".join(one for one in ALL_CAPABILITIES if one not in lacking)
    return Unknown(f"only {held}, not {' '.join(lacking)}" if held else f"none of {' '.join(lacking)}", GRANT)


def _schedstat() -> str | Unknown:
    if procfs.read_bytes("/proc/self/schedstat") is not None:
        return "on-CPU time and run-queue wait in ns"
    return Unknown("this kernel counts no run-queue wait", "a kernel with CONFIG_SCHED_INFO=y is needed")


def _wait_channel(rights: Rights) -> str | Unknown:
    """Ask about init, which waits nearly always; "0" is what the kernel says where it will not tell."""
    channel = procfs.read_text("/proc/1/wchan")
    if channel and channel != "0":
        return "kernel functions in which threads wait"
    if rights.has("CAP_SYS_PTRACE"):
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


def _ptrace(rights: Rights, root: Path) -> str | Unknown:
    """Levels of Yama: Documentation/admin-guide/LSM/Yama.rst."""
    scope = procfs.read_text(root / "proc/sys/kernel/yama/ptrace_scope")
    has_right = rights.has("CAP_SYS_PTRACE")
    if scope is None:
        return "allowed for all processes" if has_right else "allowed for this user's processes (no Yama)"
    level = scope.strip()
    if level == "3":
        return Unknown(
            "ptrace is off until the next boot (ptrace_scope 3)",
            "echo kernel.yama.ptrace_scope=1 | sudo tee /etc/sysctl.d/10-ptrace.conf, and reboot",
        )
    if level == "0" or has_right:
        return f"allowed (ptrace_scope {level})"
    who = "a process's own parents" if level == "1" else "root"
    remedy = "sudo sysctl kernel.yama.ptrace_scope=0, or sudo llmtop ..."
    return Unknown(f"ptrace is for {who} only (ptrace_scope {level})", remedy)


def _pressure() -> str | Unknown:
    if procfs.read_bytes("/proc/pressure/cpu") is not None:
        return "/proc/pressure/cpu"
    return Unknown("no pressure-stall information", "boot with psi=1 (kernel with CONFIG_PSI=y)")


def _lockdown(root: Path) -> str | Unknown:
    mode = lockdown(root)
    if mode == "confidentiality":
        return Unknown(
            "the kernel is locked down (confidentiality): no probes, no perf",
            "boot with lockdown=integrity, or without lockdown= (secure boot may set it)",
        )
    return f"{mode}: it does not hinder tracing" if mode else "none"


def _unprivileged_bpf(root: Path) -> str:
    """It is about programs that trace nothing."""
    value = (procfs.read_text(root / "proc/sys/kernel/unprivileged_bpf_disabled") or "not there").strip()
    return f"{value}: makes no difference, tracing takes CAP_BPF and CAP_PERFMON"


def _perf_events(rights: Rights, root: Path) -> str | Unknown:
    """Levels: Documentation/admin-guide/sysctl/kernel.rst; 3 and 4 are Debian's and Ubuntu's own."""
    content = procfs.read_text(root / "proc/sys/kernel/perf_event_paranoid")
    if content is None:
        return Unknown("this kernel has no perf events", "a kernel with CONFIG_PERF_EVENTS=y is needed")
    level = int(content)
    if rights.has("CAP_PERFMON") or level <= 1:
        return f"kernel and user stacks (perf_event_paranoid {level})"
    what = "no perf stacks of the kernel" if level == 2 else "perf is for root only"  # the level
    return Unknown(f"{what} (perf_event_paranoid {level})", "sudo sysctl kernel.perf_event_paranoid=1")


def _kernel_names(rights: Rights, root: Path) -> str | Unknown:
    level = (procfs.read_text(root / "proc/sys/kernel/kptr_restrict") or "0").strip()
    if level == "0" or (level == "1" and rights.uid == 0):
        return f"shown (kptr_restrict {level})"
    return Unknown(f"stacks show no kernel functions (kptr_restrict {level})", "sudo sysctl kernel.kptr_restrict=0")


def _btf() -> str | Unknown:
    if Path("/sys/kernel/btf/vmlinux").exists():
        return "/sys/kernel/btf/vmlinux"
    return Unknown("the kernel carries no type information", "a kernel with CONFIG_DEBUG_INFO_BTF=y is needed")


def _program(name: str, install: str) -> str | Unknown:
    if path := programs.find(name):
        return clean(path)
    return Unknown(clean(programs.why_none(name)), install)
