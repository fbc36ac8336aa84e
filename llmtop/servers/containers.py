"""With which process a container begins, given its name or id.

Both stand in the command line of the process that a runtime leaves beside each container (Podman's conmon, containerd's
shim), and the id in the cgroup of what runs in it. Docker keeps its names to itself: its client is asked for those, as
its users would. Nothing is changed in any container.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from llmtop import procfs, programs
from llmtop.errors import TargetError, no_process

_MONITORS = {
    "conmon": ("-c", "--cid", "-n", "--name"),
    "containerd-shim": ("-id", "--id"),
}
"""Options that tell which container it is, by the first letters of the program's name (the kernel keeps 15)."""
_ID = re.compile(r"[0-9a-f]{64}\b")
_SHORT = re.compile(r"[0-9a-f]{4,64}\Z")
"""People write the first letters: `docker ps` shows twelve."""
_NAME = re.compile(r"[a-zA-Z0-9][\w.-]*\Z", re.ASCII)
_CLIENTS = ("docker", "podman", "nerdctl")
_ASK_S = 5.0


def is_name(text: str) -> bool:
    """Whether a container may be called so."""
    return bool(_NAME.match(text))


def first_process(container: str, proc: Path = procfs.PROC) -> int:
    """The process that a container begins with, by its PID here.

    Args:
        container: Its name, or the first letters of its id.
        proc: Where processes are looked up.

    Raises:
        TargetError: There is none of that name or more than one, or it does not run.
    """
    found = sorted({*_by_monitor(container, proc), *_by_group(container, proc)})
    tops = _tops(found, proc) or list(_told_by_clients(container))
    if not tops:
        raise no_process(
            f"and no container {container}", "`llmtop` shows all servers, `docker ps` and `podman ps` the containers"
        )
    if len(tops) > 1:
        raise TargetError(
            f"{container} may be one of several containers, which begin with: {', '.join(map(str, tops))}"
        )
    return tops[0]


def _by_monitor(container: str, proc: Path) -> Iterator[int]:
    """What runs below the monitors of the container."""
    monitors = [
        pid
        for pid in procfs.pids(proc)
        for program, options in _MONITORS.items()
        if procfs.name(pid, proc).startswith(program)
        and any(_is_called(told, container) for told in _told(procfs.arguments(pid, proc), options))
    ]
    yield from procfs.family(proc).descendants(*monitors) if monitors else ()


def _told(command: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    return (value for option, value in pairwise(command) if option in options)


def _is_called(told: str, container: str) -> bool:
    return told == container or bool(_SHORT.match(container) and _ID.match(told) and told.startswith(container))


def _by_group(container: str, proc: Path) -> Iterator[int]:
    if not _SHORT.match(container):
        return
    for pid in procfs.pids(proc):
        group = procfs.read_text(f"{proc}/{pid}/cgroup") or ""
        if any(found.startswith(container) for found in _ID.findall(group)):
            yield pid


def _tops(pids: Sequence[int], proc: Path) -> list[int]:
    """Those whose parent is none of them, and that are no monitor themselves, which may be kept in the same cgroup."""
    inside = [pid for pid in pids if not procfs.name(pid, proc).startswith(tuple(_MONITORS))]
    states = {pid: state for pid in inside if (state := procfs.stat(pid, proc)) is not None and state.state not in "ZX"}
    return [pid for pid, state in states.items() if state.parent not in states]


def _told_by_clients(container: str) -> Iterator[int]:
    """What a container's client says; one whose service is not there, or that knows no such container, says nothing."""
    for client in filter(None, map(programs.find, _CLIENTS)):
        command = [client, "inspect", "--format", "{{.State.Pid}}", container]
        try:
            done = programs.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        said = done.stdout.strip()
        if done.returncode == 0 and said == "0":
            raise TargetError(f"the container {container} does not run: {Path(client).name} start {container}")
        if done.returncode == 0 and said.isdecimal():
            yield int(said)
            return
