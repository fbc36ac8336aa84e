"""Where the server under observation is by now: still there, known better, or begun anew as another process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop import procfs
from llmtop.births import Descendants
from llmtop.errors import TargetError
from llmtop.frozen import frozen
from llmtop.model import Fact, Restart, Severity, Target
from llmtop.servers import listening
from llmtop.servers.recognise import as_server, command_of, find_servers, find_target, is_server, told_port

if TYPE_CHECKING:
    from llmtop.servers.launch import Launched

PLAIN = "process"
"""The kind of a target that is no known server."""
RENEW_NS = 5_000_000_000
"""How often a server is looked at closely while it starts: GPUs, titles and children come without a sign."""
RENEW_READY_NS = 60_000_000_000
"""The same once its metrics are known."""
SEARCH_NS = 1_000_000_000
"""How often all processes are gone through for the next server while there is none."""
_LEAST_AGE_TICKS = procfs.TICKS_PER_S
"""A server may start anew as soon as its end is under way: so much before it was last seen alive."""
CONTAINER_CLIENTS = frozenset({"docker", "podman", "nerdctl", "docker-compose", "podman-compose", "ctr"})
"""Those of them that start it in a container."""
_CLIENTS = CONTAINER_CLIENTS | {"machinectl", "systemd-run", "srun"}
"""Programs that have others start what they are told to: the server is then none of their descendants."""
_WORDS = 3
"""Such a program stands at the front of a command, perhaps behind sudo or env."""


@frozen
class TargetChange:
    """What is newly known of where a server is.

    Attributes:
        said: How another server came to be watched, for the event log behind its name; empty where it is the same one,
            of which only more is known.
        restart: Whose place it has taken; None where there was no server before.
    """

    target: Target
    said: str = ""
    severity: Severity = Severity.WARNING
    restart: Restart | None = None


@frozen
class _LastSeen:
    """The server as it was when last seen alive: what another process is compared with."""

    start_ticks: int
    role: str
    command: tuple[str, ...]
    ports: frozenset[int]
    network: str | None
    """Its network namespace: the same port in another container is another port."""
    group: str | None
    parent: int
    """Who started it, and starts it again where that is a loop or a supervisor."""


class Follower:
    """Follows one server.

    Args:
        launched: The command that llmtop itself has started, to which the server belongs or will belong.
        dtype: What the user says that the server computes in; it counts for more than what is found.
    """

    def __init__(
        self,
        target: Target,
        *,
        launched: Launched | None = None,
        dtype: Fact | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        proc: Path = procfs.PROC,
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._dtype = dtype
        self._asked_ns = clock()
        self._below_supervisor = Descendants(launched.supervisor_pid, proc) if launched is not None else None
        """It adopts what the launched command leaves behind, so that all of it is found below."""
        command = procfs.arguments(target.root_pid, proc) if target.kind == PLAIN else ()
        self._client = client_of(command if launched is None else launched.argv)
        """The command, launched or attached to, where it has others start what it is told to: "docker"; else empty."""
        state = procfs.stat(target.root_pid, proc) if launched is None and self._client else None
        self._since_ticks = _boot_ticks() - _LEAST_AGE_TICKS if state is None else state.start_ticks
        self._alive_ticks = self._since_ticks
        self._searched_ns = 0
        self._take(target)

    def urls(self) -> tuple[str, ...]:
        """Where the metrics are by now. Whoever reads them asks while it has none: until then it is looked closely."""
        self._asked_ns = self._clock()
        return self._target.metrics_urls

    def look(self) -> TargetChange | None:
        """What is new of the server; None while nothing is."""
        if not self._is_alive():
            return self._next_server()
        self._alive_ticks = _boot_ticks()
        if self._target.kind == PLAIN:
            return self._server_in_place_of_the_command()
        return self._renewed()

    # -- while it lives ----------------------------------------------------------------------------------------

    def _take(self, target: Target) -> Target:
        if self._dtype is not None:
            target = replace(target, dtype=self._dtype)
        self._target = target
        self._signature: tuple[object, ...] = ()
        self._below_root = Descendants(target.root_pid, self._proc)
        self._renewed_ns = self._clock()
        state = procfs.stat(target.root_pid, self._proc)
        told = told_port(target, self._proc)
        self._seen = _LastSeen(
            start_ticks=state.start_ticks if state is not None else -1,
            role=_role(target),
            command=command_of(target, self._proc),
            ports=frozenset((*target.ports, *((told,) if told else ()))),
            network=_network(target.root_pid, self._proc),
            group=procfs.read_text(f"{self._proc}/{target.root_pid}/cgroup"),
            parent=state.parent if state is not None else -1,
        )
        return target

    def _is_alive(self) -> bool:
        state = procfs.stat(self._target.root_pid, self._proc)
        return state is not None and state.start_ticks == self._seen.start_ticks and state.state not in "ZX"

    def _renewed(self) -> TargetChange | None:
        """The same server looked at again, where there is a sign that it has changed, or now and then."""
        now = self._clock()
        age = now - self._renewed_ns
        if now - self._asked_ns > RENEW_NS:
            if age < RENEW_READY_NS:
                return None
        elif not self._has_changed() and age < RENEW_NS:
            return None
        self._renewed_ns = now
        try:
            target = find_target(self._target.root_pid, self._proc)
        except TargetError:
            return None  # it has just ended: the next look says so
        if target.kind == PLAIN:
            return None  # it does not show (yet) what it was taken for
        target = replace(target, pid=self._target.pid)
        if self._dtype is not None:
            target = replace(target, dtype=self._dtype)
        if target == self._target:
            return None
        if target.root_pid != self._target.root_pid:  # a wrapper above it turned out to be the server's own
            return TargetChange(self._take(target), f"begins at pid {target.root_pid}", Severity.INFO)
        self._target = target
        self._seen = replace(self._seen, ports=self._seen.ports | set(target.ports))
        return TargetChange(target)

    def _has_changed(self) -> bool:
        """Whether it listens elsewhere, or other processes of it are recognised, than when last asked."""
        root = self._target.root_pid
        members = (root, *(pid for pid in self._below_root.now() if is_server(pid, self._proc)))
        signature = (members, frozenset(listening.listeners(members, self._proc)[0]))
        changed = signature != self._signature
        self._signature = signature
        return changed

    # -- in place of what is no server (yet) -------------------------------------------------------------------

    def _server_in_place_of_the_command(self) -> TargetChange | None:
        """The server that a command without one has come to run; a plain process that a user chose is left alone."""
        target = self._target
        below = self._below()
        servers = find_servers(self._proc, below) if any(is_server(pid, self._proc) for pid in below) else []
        if self._below_supervisor is not None:
            clients = (client_of(procfs.arguments(pid, self._proc)) for pid in below)
            self._client = self._client or next(filter(None, clients), "")
        if not servers and self._client and self._is_time_to_search():
            servers = self._started_for_us()
            if len(servers) > 1:
                return None
        if not servers:
            return None
        found = self._take(replace(servers[0], pid=target.pid))
        return TargetChange(found, f"(pid {found.root_pid}) has been started", Severity.INFO)

    def _below(self) -> list[int]:
        """All processes of the command, those included that it has left behind."""
        if self._below_supervisor is not None:
            return self._below_supervisor.now()
        return [self._target.root_pid, *self._below_root.now()]

    # -- after its end -----------------------------------------------------------------------------------------

    def _next_server(self) -> TargetChange | None:
        """The server that has taken the place of the one that ended."""
        if not self._is_time_to_search():
            return None
        old = self._target
        if self._below_supervisor is not None:
            servers = find_servers(self._proc, self._below_supervisor.now())
            found = [one for one in servers if old.kind == PLAIN or (old.kind == one.kind and not self._is_left(one))]
            found = found or list(self._heirs())
        else:
            found = list(self._heirs())
        if not found and self._client:
            young = self._started_for_us()
            found = young if len(young) == 1 else []
        if not found:
            return None
        new = self._take(found[0])
        if old.kind == PLAIN:
            return TargetChange(new, f"(pid {new.root_pid}) has been started", Severity.INFO)
        said = f"has been started anew: pid {old.root_pid} is now pid {new.root_pid}"
        return TargetChange(new, said, restart=Restart(old.root_pid))

    def _is_left(self, one: Target) -> bool:
        """Whether it is a part of the old server that has outlived it: it was there before the end, in another role.

        What was there in the root's own role is the server, which has detached itself.
        """
        state = procfs.stat(one.root_pid, self._proc)
        return state is not None and state.start_ticks <= self._alive_ticks and _role(one) != self._seen.role

    def _heirs(self) -> Sequence[Target]:
        """Servers of the same kind that began after the old one: at its port, or else by the same command.

        Without one of these two it is another server, however alike. Where the command leaves the port open, as that of
        replicas may, who started the old one must have started it; where several were, only one of the same container
        or service is it.
        """
        if self._target.kind == PLAIN:
            return ()
        since_ticks = self._alive_ticks - _LEAST_AGE_TICKS
        young = [one for one in self._elsewhere(since_ticks) if one.kind == self._target.kind]
        at_port = [one for one in young if self._is_at_its_port(one)]
        if at_port:
            return at_port
        alike = [one for one in young if command_of(one, self._proc) == self._seen.command and self._is_sibling(one)]
        if len(alike) > 1:
            alike = [one for one in alike if self._group_of(one) == self._seen.group]
        if not young:
            alike = self._same_program(since_ticks)
        return alike if len(alike) == 1 else ()

    def _same_program(self, since_ticks: int) -> list[Target]:
        """What runs the old server's command and does not show yet that it is a server: a program of the user's own."""
        same = [
            pid
            for pid in self._young(since_ticks)
            if self._seen.command and procfs.arguments(pid, self._proc) == self._seen.command
        ]
        parents = {pid: state.parent for pid in same if (state := procfs.stat(pid, self._proc)) is not None}
        tops = [pid for pid, parent in parents.items() if parent not in parents]
        return [as_server(pid, self._target.kind, self._proc) for pid in tops]

    def _elsewhere(self, since_ticks: int) -> list[Target]:
        """Servers anywhere on this machine whose processes have begun since."""
        young = self._young(since_ticks)
        return [one for one in find_servers(self._proc, young) if one.root_pid in young]

    def _started_for_us(self) -> list[Target]:
        """Those that the launched client may have had started: by a container's client none of our own file system."""
        found = self._elsewhere(self._since_ticks)
        if self._client not in CONTAINER_CLIENTS:
            return found
        here = procfs.read_link(f"{self._proc}/self/ns/mnt")
        return [one for one in found if procfs.read_link(f"{self._proc}/{one.root_pid}/ns/mnt") != here]

    def _young(self, since_ticks: int) -> list[int]:
        return [
            pid
            for pid in procfs.pids(self._proc)
            if (state := procfs.stat(pid, self._proc)) is not None and state.start_ticks >= since_ticks
        ]

    def _is_at_its_port(self, one: Target) -> bool:
        if _network(one.root_pid, self._proc) != self._seen.network:
            return False
        told = told_port(one, self._proc)
        return bool(self._seen.ports & {*one.ports, *((told,) if told else ())})

    def _is_sibling(self, one: Target) -> bool:
        """Whether the same process started both, or nothing else tells replicas apart."""
        state = procfs.stat(one.root_pid, self._proc)
        return told_port(one, self._proc) is not None or (state is not None and state.parent == self._seen.parent)

    def _group_of(self, one: Target) -> str | None:
        return procfs.read_text(f"{self._proc}/{one.root_pid}/cgroup")

    def _is_time_to_search(self) -> bool:
        now = self._clock()
        if now - self._searched_ns < SEARCH_NS:
            return False
        self._searched_ns = now
        return True


def client_of(command: Sequence[str]) -> str:
    """The program in front of a command that has others start what it is told to; empty where there is none.

    >>> client_of(["sudo", "docker", "run", "vllm"]), client_of(["vllm", "serve"])
    ('docker', '')
    """
    names = (word.rpartition("/")[2] for word in command[:_WORDS])
    return next((name for name in names if name in _CLIENTS), "")


def _role(target: Target) -> str:
    """That of its root."""
    return next((process.role for process in target.processes if process.pid == target.root_pid), "")


def _network(pid: int, proc: Path) -> str | None:
    return procfs.read_link(f"{proc}/{pid}/ns/net")


def _boot_ticks() -> int:
    """Now, on the clock of processes' start times (proc_pid_stat(5), field 22)."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * procfs.TICKS_PER_S)
