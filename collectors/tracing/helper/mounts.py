"""Whether the file system of a file answers, found out before it is opened: one that hangs would hold up all probes.

A child asks, where the file system is none of this machine's own disks: it may hang in the kernel where no signal
reaches it, and is left alone then.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time

from .system import read, regular_file

_OWN_DISKS = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay", "squashfs", "erofs", "tmpfs", "ramfs", "rootfs")
)
_PATIENCE_S = 0.5
_AGAIN_S = 60.0
"""After which a file system that did not answer is asked again."""
_hung: dict[str, float] = {}
"""Until when a mount is not asked again, by its line."""
_abandoned: list[int] = []


def ask_first(pid: int, path: str, file: str) -> None:
    """Find out whether a file can be opened.

    Args:
        pid: Whose it is.
        path: As it sees it.
        file: As it is to be opened.

    Raises:
        OSError: Its file system does not answer.
    """
    mount = _mount_of(pid, path)
    _, _, after = mount.partition(" - ")
    if after.partition(" ")[0] in _OWN_DISKS:
        return
    now_s = time.monotonic()
    _abandoned[:] = [child for child in _abandoned if os.waitpid(child, os.WNOHANG) == (0, 0)]
    if _hung.get(mount, now_s) <= now_s and not _answers(file):
        _hung[mount] = now_s + _AGAIN_S
    if _hung.get(mount, now_s) > now_s:
        raise OSError(errno.ETIMEDOUT, "its file system does not answer", path)


def _answers(file: str) -> bool:
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with regular_file(file) as opened:
                os.pread(opened, 1, 0)  # what stat(2) says may be remembered
        finally:
            os._exit(0)
    os.close(writable)
    has_ended = bool(select.select([readable], [], [], _PATIENCE_S)[0])
    os.close(readable)
    if has_ended:
        os.waitpid(child, 0)
    else:
        os.kill(child, signal.SIGKILL)
        _abandoned.append(child)
    return has_ended


def _mount_of(pid: int, path: str) -> str:
    """The line of the mount that a path lies on, as the process sees it (proc_pid_mountinfo(5)); empty of none."""
    found, longest = "", -1
    for line in read(f"/proc/{pid}/mountinfo").splitlines():
        fields = line.split(" ", 5)
        if len(fields) == 6:
            place = fields[4].replace("\\040", " ").rstrip("/")
            if len(place) >= longest and (path == place or path.startswith(f"{place}/")):
                found, longest = line, len(place)
    return found
