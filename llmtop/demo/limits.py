"""Limits that the kernel sets to processes by a cgroup: a CPU quota, a slow disk. Versions 1 and 2 of cgroups."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


@dataclass(frozen=True)
class _Limit:
    """A limit of a cgroup: the file and the text that set it, in version 1 and in version 2 of cgroups."""

    controller: str
    version_1: tuple[tuple[str, str], ...]
    version_2: tuple[str, str]


def why_no_quota() -> str:
    """Why no CPU quota can be set here; empty when one can."""
    return _why_not(_quota(0.5))


def cpu_quota(cpus: float, *pids: int) -> AbstractContextManager[Path]:
    """Hold processes to so many CPUs' worth of time together, by a cgroup of their own."""
    return _limited(pids, _quota(cpus))


def why_no_slow_disk(folder: Path) -> str:
    """Why the disk that a folder is on cannot be slowed down; empty when it can."""
    return _why_not(_disk(folder, 1 << 20))


def slow_disk(folder: Path, bytes_per_s: int, *pids: int) -> AbstractContextManager[Path]:
    """Hold what processes write to the disk that a folder is on to so many bytes a second, by a cgroup of their own."""
    return _limited(pids, _disk(folder, bytes_per_s))


def _quota(cpus: float) -> _Limit:
    quota = int(cpus * _PERIOD_US)
    version_1 = (("cpu.cfs_period_us", f"{_PERIOD_US}"), ("cpu.cfs_quota_us", f"{quota}"))
    return _Limit("cpu", version_1, ("cpu.max", f"{quota} {_PERIOD_US}"))


def _disk(folder: Path, bytes_per_s: int) -> _Limit:
    device = folder.stat().st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    whole = block.resolve().parent if (block / "partition").exists() else block
    number = (whole / "dev").read_text().strip() if (whole / "dev").exists() else "0:0"
    throttle = ("blkio.throttle.write_bps_device", f"{number} {bytes_per_s}")
    return _Limit("blkio", (throttle,), ("io.max", f"{number} wbps={bytes_per_s}"))


def _why_not(limit: _Limit) -> str:
    top = _top(limit)
    if top is None:
        return f"no cgroup with the controller {limit.controller} is mounted below {_CGROUP}"
    try:
        with _group(top, limit):
            return ""
    except OSError as error:
        return f"a cgroup here takes no limit: {error}"


@contextmanager
def _limited(pids: Sequence[int], limit: _Limit) -> Iterator[Path]:
    top = _top(limit)
    assert top is not None
    home = top / _own_group(limit.controller)
    with _group(top, limit) as group:
        try:
            for pid in pids:
                (group / "cgroup.procs").write_text(str(pid))
            yield group
        finally:
            for line in (group / "cgroup.procs").read_text().split():
                _bring_home(int(line), home)


@contextmanager
def _group(top: Path, limit: _Limit) -> Iterator[Path]:
    group = Path(tempfile.mkdtemp(prefix="llmtop-", dir=top))  # others may do the same, in PID namespaces of their own
    try:
        for file, text in limit.version_1 if top != _CGROUP else (limit.version_2,):
            (group / file).write_text(text)
        yield group
    finally:
        group.rmdir()


def _top(limit: _Limit) -> Path | None:
    """Where groups with the controller are made: version 1's own tree, or version 2 where the top enables it."""
    own = _CGROUP / limit.controller
    if (own / "cgroup.procs").exists():
        return own
    try:
        enabled = (_CGROUP / "cgroup.subtree_control").read_text().split()
    except OSError:
        return None
    return _CGROUP if limit.version_2[0].partition(".")[0] in enabled else None


def _own_group(controller: str) -> str:
    """The group that this process is in, relative to the top."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") or not controllers:
            return path.lstrip("/")
    return ""


def _bring_home(pid: int, home: Path) -> None:
    """An occupied group cannot be removed."""
    try:
        (home / "cgroup.procs").write_text(str(pid))
    except ProcessLookupError:  # it has ended, which empties the group too
        return
