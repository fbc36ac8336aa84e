"""What the user and the kernel's settings allow, read from /proc and /sys without trying it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from llmtop import procfs, programs
from llmtop.frozen import frozen
from llmtop.model import Unknown

ROOT = Path("/")
"""Where /proc and /sys are; another folder stands for another machine."""
_NUMBERS = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""include/uapi/linux/capability.h"""
_STAND_IN = {
    "CAP_BPF": "CAP_SYS_ADMIN",
    "CAP_PERFMON": "CAP_SYS_ADMIN",
    "CAP_DAC_READ_SEARCH": "CAP_DAC_OVERRIDE",
}
"""The older, wider capability that does as well (capabilities(7))."""
_TRACEFS = ("sys/kernel/tracing/events", "sys/kernel/debug/tracing/events")
FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own: PROC_PID_INIT_INO in include/linux/proc_ns.h."""

USE_SUDO = "LLMTOP_SUDO"
"""Set to anything, it lets llmtop start the probes' helper through `sudo -n`."""
ALL_CAPABILITIES = ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH")
"""What llmtop makes use of; with these an ordinary user sees all that root sees but the kernel's side of old sleeps."""
_UNIT = "-p AmbientCapabilities='" + " ".join(ALL_CAPABILITIES) + "'"
GRANT = f"sudo llmtop ..., or sudo systemd-run --pty --uid=$USER {_UNIT} llmtop ..."
CONTAINER_FLAGS = "docker run --pid=host --privileged ... (Kubernetes: hostPID and privileged, both true)"
GRANT_TO_CONTAINER = (
    "docker run --pid=host --privileged ..., or --cap-add for each of these"
    " with -v /sys/kernel/tracing:/sys/kernel/tracing:ro"
)
MOUNT_TRACEFS = (
    "sudo mount -t tracefs tracefs /sys/kernel/tracing"
    " (into a container: docker run -v /sys/kernel/tracing:/sys/kernel/tracing:ro ...)"
)


@frozen
class Rights:
    """Who runs llmtop, and with which capabilities."""

    uid: int
    capabilities: frozenset[str]

    def has(self, *capabilities: str) -> bool:
        """Whether all of these are held, or wider ones that include them."""
        return all(one in self.capabilities or _STAND_IN.get(one) in self.capabilities for one in capabilities)

    def lacks(self, *capabilities: str) -> tuple[str, ...]:
        """Those that are not held."""
        return tuple(one for one in capabilities if not self.has(one))


def own_rights() -> Rights:
    """The rights of this process, which its children have too when they are ambient, or root's."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", procfs.read_text("/proc/self/status") or "", re.MULTILINE)
    held = int(found.group(1), 16) if found else 0
    return Rights(os.geteuid(), frozenset(name for name, bit in _NUMBERS.items() if held >> bit & 1))


def through_sudo() -> bool:
    """Whether a helper is to be started through sudo: the user wants it, and it cannot be done without."""
    if not os.environ.get(USE_SUDO) or not programs.find("sudo") or os.geteuid() == 0:
        return False
    return why_no_probes(own_rights()) is not None


def why_no_probes(rights: Rights, root: Path = ROOT) -> Unknown | None:
    """Why these rights load no probes into this kernel; None when nothing is known against it."""
    if lockdown(root) == "confidentiality":
        return Unknown(
            "the kernel is locked down (confidentiality)", "boot with lockdown=integrity, or without lockdown="
        )
    lacking = rights.lacks("CAP_BPF", "CAP_PERFMON")
    if lacking and rights.uid == 0:
        return Unknown(f"this container's root may not load probes (no {', no '.join(lacking)})", CONTAINER_FLAGS)
    if lacking:
        return Unknown("only root may load probes", f"sudo llmtop ... (or {USE_SUDO}=1 where sudo asks no password)")
    events = tracefs(rights, root)
    return events if isinstance(events, Unknown) else None


def lockdown(root: Path = ROOT) -> str:
    """The mode of kernel_lockdown(7): "none", "integrity" or "confidentiality"; empty where the kernel has none."""
    found = re.search(r"\[(\w+)\]", procfs.read_text(root / "sys/kernel/security/lockdown") or "")
    return found.group(1) if found else ""


def tracefs(rights: Rights, root: Path = ROOT) -> str | Unknown:
    """Where tracepoints are described; the helper mounts it for itself alone where it may."""
    for place in _TRACEFS:
        try:
            next((root / place).iterdir(), None)
        except PermissionError:
            return Unknown(
                "tracefs is for root's eyes only", "sudo llmtop ..., or the capability CAP_DAC_READ_SEARCH too"
            )
        except OSError:
            continue
        return str(root / place)
    if rights.has("CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH"):
        return "not mounted: the probes' helper mounts it for itself alone"
    return Unknown("tracefs is not mounted", MOUNT_TRACEFS)


def pid_namespace(root: Path = ROOT) -> str | Unknown:
    """Whether all processes of the machine can be seen, or those of a container."""
    if procfs.read_link(str(root / "proc/self/ns/pid")) in (FIRST_PID_NAMESPACE, None):
        return "the machine's own: all its processes are seen"
    return Unknown("llmtop runs in a container: servers outside its PID namespace are not seen", CONTAINER_FLAGS)
