"""The processor quota of a process, and how often it ran into it. Both versions of cgroups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmtop import procfs
from llmtop.frozen import frozen
from llmtop.model import Unknown

MOUNT = Path("/sys/fs/cgroup")
_NO_GROUP = Unknown("the process is in no processor cgroup that can be read", "on a host, see systemd-cgls")


@frozen
class Group:
    """The cgroup that limits a process: the nearest one with a quota, else its own.

    Attributes:
        cores: The quota in processors; None for none.
    """

    folder: Path
    path: str
    cores: float | None


@frozen
class Weight:
    """What sets how much of a CPU a group gets that others want too, as a share of what is usual."""

    share: float
    text: str


@frozen
class Throttling:
    """Counters of cpu.stat (kernel: Documentation/admin-guide/cgroup-v2, scheduler/sched-bwc)."""

    periods: int
    throttled_ns: int


def group_of(pid: int, proc: Path = procfs.PROC, mount: Path = MOUNT) -> Group | Unknown:
    """The cgroup whose quota holds for a process.

    A quota set on a group holds for all groups in it, but only the group that has it counts the throttling. So
    the search goes upwards.
    """
    path, levels = _levels(pid, proc, mount)
    if not levels or not (levels[0] / "cpu.stat").exists():
        return _NO_GROUP
    for level in levels:
        if (cores := _quota(level)) is not None:
            return Group(level, path, cores)
    return Group(levels[0], path, None)


def weight_of(pid: int, proc: Path = procfs.PROC, mount: Path = MOUNT) -> Weight | None:
    """The least weight among a process's group and those above it, where it is less than half of the usual one."""
    weights = []
    for level in _levels(pid, proc, mount)[1]:
        for name, usual in _WEIGHTS.items():
            value = (procfs.read_text(level / name) or "").strip()
            if value.isdigit():
                weights.append(Weight(int(value) / usual, f"{name} {value} in {level}"))
        if (procfs.read_text(level / "cpu.idle") or "").strip() == "1":
            weights.append(Weight(0.0, f"cpu.idle 1 in {level}"))
    least = min(weights, key=lambda one: one.share, default=None)
    return least if least is not None and least.share < _LITTLE else None


_WEIGHTS = {"cpu.shares": 1024, "cpu.weight": 100}
"""By file what a group has that nobody gave another weight (kernel: sched-design-CFS; cgroup-v2)."""
_LITTLE = 0.5


def _levels(pid: int, proc: Path, mount: Path) -> tuple[str, list[Path]]:
    """The path of a process's processor group, and the folders from its own up to the mount point."""
    own = _own_folder(procfs.read_text(f"{proc}/{pid}/cgroup") or "", mount)
    if own is None:
        return "", []
    base, path = own
    folder = base / path.lstrip("/")
    return path, [folder, *(parent for parent in folder.parents if parent.is_relative_to(base))]


def throttling(group: Group) -> Throttling | Unknown:
    """How often and how long the group was stopped for having used up its quota."""
    fields = dict(
        line.split(" ", 1) for line in (procfs.read_text(group.folder / "cpu.stat") or "").splitlines() if " " in line
    )
    if "nr_throttled" not in fields:
        return Unknown("the process is in the root cgroup, which has no processor quota")
    microseconds = fields.get("throttled_usec")
    nanoseconds = int(microseconds) * 1000 if microseconds is not None else int(fields.get("throttled_time", 0))
    return Throttling(int(fields["nr_throttled"]), nanoseconds)


def memory_events_of(pid: int, proc: Path = procfs.PROC, mount: Path = MOUNT) -> Path | None:
    """Where a process's memory cgroup counts whom the kernel killed in it for want of memory; None where nowhere."""
    return _file_of(pid, "memory", ("memory.events", "memory.oom_control"), proc, mount)


def node_memory_of(pid: int, proc: Path = procfs.PROC, mount: Path = MOUNT) -> Path | None:
    """Where a process's memory cgroup tells how much of it is on which NUMA node; None where nowhere."""
    return _file_of(pid, "memory", ("memory.numa_stat",), proc, mount)


def oom_kills(events: Path) -> int | None:
    """How many of a group's processes the kernel has killed for want of memory; None when the group is gone."""
    for line in (procfs.read_text(events) or "").splitlines():
        key, _, count = line.partition(" ")
        if key == "oom_kill":
            return int(count)
    return None


def freezer_of(pid: int, proc: Path = procfs.PROC, mount: Path = MOUNT) -> Path | None:
    """The file that says whether a process's cgroup is frozen (docker pause); None where there is none."""
    return _file_of(pid, "freezer", ("cgroup.events", "freezer.state"), proc, mount)


def is_frozen(freezer: Path) -> bool:
    """Whether the processes of the group are held (kernel: Documentation/admin-guide/cgroup-v2, freezer)."""
    lines = (procfs.read_text(freezer) or "").splitlines()
    return "frozen 1" in lines or "FROZEN" in lines


def _file_of(pid: int, controller: str, names: Sequence[str], proc: Path, mount: Path) -> Path | None:
    """The first of these files that a process's group has: version 2 calls it otherwise than version 1."""
    own = _own_folder(procfs.read_text(f"{proc}/{pid}/cgroup") or "", mount, controller)
    if own is None:
        return None
    base, path = own
    return next((file for name in names if (file := base / path.lstrip("/") / name).exists()), None)


def _own_folder(memberships: str, mount: Path, controller: str = "cpu") -> tuple[Path, str] | None:
    """Mount point and path of the group; lines are "id:controllers:path", and version 2 names no controllers."""
    unified: str | None = None
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            base = next((mount / name for name in (controller, controllers) if (mount / name).is_dir()), None)
            return (base, path) if base is not None else None
        if not controllers:
            unified = path
    return (mount, unified) if unified is not None else None


def _quota(folder: Path) -> float | None:
    limit = (procfs.read_text(folder / "cpu.max") or "").split()
    if not limit:
        limit = [(procfs.read_text(folder / f"cpu.cfs_{part}_us") or "-1").strip() for part in ("quota", "period")]
    try:
        quota, period = (float(part) for part in limit)
    except ValueError:  # "max 100000"
        return None
    return quota / period if quota > 0 and period > 0 else None
