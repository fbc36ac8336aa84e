"""From the PID of any process of a server to all of it: kind, root, roles, ports, GPUs, model."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from llmtop import procfs, settings, whats
from llmtop.errors import SeveralServersError, TargetError, no_process
from llmtop.facts import TargetFact
from llmtop.frozen import frozen
from llmtop.model import PLAIN_PROCESS, PLAIN_ROLE, Engine, Missing, Target, TargetProcess, Unknown
from llmtop.servers import command_line, listening, told
from llmtop.servers.packages import installed
from llmtop.servers.registry import BY_KIND, ENGINES
from llmtop.text import clean, group_name, shell_command

_MULTIPROCESSING = re.compile(r"^-c from multiprocessing\.(?P<what>\w+)|--multiprocessing-fork")
_GPU = re.compile(r"/dev/nvidia(\d+)\Z")
_NOT_OURS = "its files belong to another user"
_CERTIFICATE = ("--ssl-certfile", "--ssl-cert-file", "--tls-cert")
"""With one of these a server speaks TLS: vLLM and SGLang; llama-server; TGI's router."""
_SUPERVISOR = "/servers/supervise.py"
"""Runs what is launched, and adopts what that leaves behind (`llmtop.servers.supervise`)."""
_FRONT = "APIServer"
_NUMBERED = re.compile(r"_\d+$")
_KERNEL = 2
"""The PID of kthreadd, the parent of the kernel's threads."""
_MAPS_BYTES = 4 << 20
_MOST_NAMED = 3


def in_short(server: Target) -> str:
    """As it is told from others: kind, model and port."""
    model = "" if isinstance(server.model, Unknown) else f" {server.model}"
    return f"{server.title}{model}" + "".join(f" :{port}" for port in server.ports[:1])


def in_cells(server: Target, proc: Path = procfs.PROC, now_s: float | None = None) -> tuple[str, ...]:
    """What tells it from others, a cell each: kind, model, process, ports, since when it runs, its GPUs, its container.

    Args:
        server: As it was found.
        proc: Where processes are looked up.
        now_s: Seconds since the boot, for tests.
    """
    model = "" if isinstance(server.model, Unknown) else str(server.model).rpartition("/")[2]
    stat = procfs.stat(server.root_pid, proc)
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) if now_s is None else now_s
    memberships = (procfs.read_text(f"{proc}/{server.root_pid}/cgroup") or "").splitlines()
    paths = [line.split(":", 2)[2] for line in memberships if line.count(":") >= 2]
    return (
        server.title,
        model,
        f"pid {server.root_pid} +{len(server.processes) - 1}",
        " ".join(f":{port}" for port in server.ports[:_MOST_NAMED]) or "no port yet",
        "" if stat is None else f"up {_age(since_boot_s - stat.start_ticks / procfs.TICKS_PER_S)}",
        f"GPU {', '.join(map(str, server.gpus))}" if server.gpus else "",
        clean(group_name(next((path for path in reversed(paths) if path.strip("/")), ""))),
    )


def _age(seconds: float) -> str:
    """In one unit, as people say it.

    >>> _age(42.0), _age(600.0), _age(9000.0), _age(400_000.0)
    ('42 s', '10 min', '2 h', '4 d')
    """
    units = ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"), (math.inf, 86_400, "d"))
    length, name = next((length, name) for below, length, name in units if seconds < below)
    return f"{max(0.0, seconds) // length:.0f} {name}"


@frozen
class _Member:
    """A process that was recognised as a part of a server."""

    engine: Engine
    role: str


def find_target(pid: int, proc: Path = procfs.PROC) -> Target:
    """The server that a process belongs to.

    The process may be the front end, an engine, a worker, a thread of these, or a wrapper (a shell, a profiler)
    that started one. A process of no known server is a target too, of kind `PLAIN_PROCESS`.

    Raises:
        SeveralServersError: It is of no server, but more than one runs below it: a shell, a container's first process.
        TargetError: There is no such process, it has ended, or /proc hides it.
    """
    state = procfs.stat(pid, proc)
    if state is None and procfs.is_hidden(pid):
        raise TargetError(f"process {pid} is another user's, and /proc hides those (hidepid): run llmtop with sudo")
    if state is None:
        raise no_process(pid, _elsewhere(pid, proc))
    if state.state in "ZX":
        raise TargetError(f"process {pid} has ended and waits for its parent to notice")
    pid = procfs.thread_group(pid, proc) or pid
    family = procfs.family(proc)
    found = _root(pid, family, proc)
    if found is None and _KERNEL in (pid, state.parent) and not procfs.arguments(pid, proc):
        raise TargetError(f"process {pid} is a thread of the kernel ({_elsewhere(pid, proc)})")
    if found is None:
        return _plain_process(pid, family, proc)
    root, engine = found
    return _server(pid, root, engine, family, proc)


def _elsewhere(pid: int, proc: Path) -> str:
    """Where a PID that is no server's here may come from."""
    return _inside(pid, proc) or "a container has PIDs of its own: `llmtop` shows all servers"


def _inside(pid: int, proc: Path) -> str:
    """Which processes have this PID in a container; empty where none has."""
    named_so = procfs.known_inside_as(pid, proc)[:_MOST_NAMED]
    seen_here = ", ".join(f"{one} ({_shown_name(one, proc)})" for one in named_so)
    return f"{pid} inside a container is here: {seen_here}" if named_so else ""


def find_servers(proc: Path = procfs.PROC, among: Collection[int] | None = None) -> list[Target]:
    """All servers whose processes can be seen, by PID of their roots; or those that have a process `among` some."""
    family = procfs.family(proc)
    return [_server(root, root, engine, family, proc) for root, engine in _roots(family, among, proc).items()]


def as_server(pid: int, kind: str, proc: Path = procfs.PROC) -> Target:
    """A process as the root of a server of a known kind, for one that does not show it yet."""
    return _server(pid, pid, BY_KIND[kind], procfs.family(proc), proc)


def is_server(pid: int, proc: Path = procfs.PROC) -> bool:
    """Whether a process is by itself a part of a server that llmtop knows."""
    return _classify(pid, proc) is not None


def command_of(target: Target, proc: Path = procfs.PROC) -> tuple[str, ...]:
    """The command line of a server's root."""
    return procfs.arguments(target.root_pid, proc)


def told_port(target: Target, proc: Path = procfs.PROC) -> int | None:
    """The port that a server was told to use, or its kind's own; None where it takes any, and for no known server."""
    engine = BY_KIND.get(target.kind)
    if engine is None:
        return None
    argv = command_of(target, proc)
    argv = told.with_file(argv, told.file_of_flags(engine, argv, target.root_pid, proc))
    port = command_line.port(engine, argv, target.root_pid, proc)
    return engine.port if port is None else port or None


def _roots(family: procfs.ProcessTree, among: Collection[int] | None, proc: Path) -> dict[int, Engine]:
    """The topmost processes of the servers that some processes belong to."""
    ours = {os.getpid(), *family.ancestors(os.getpid())}
    seen = family.parents if among is None else family.parents.keys() & among
    members = [pid for pid in seen if pid not in ours and _classify(pid, proc)]
    above = {one for pid in members for one in (pid, *family.ancestors(pid)) if one not in ours}
    member_by_pid = {pid: member for pid in above if (member := _classify(pid, proc))}
    tops = sorted({_topmost(pid, family, member_by_pid) for pid in members})
    found = {_spawner(top, member_by_pid[top], family, proc): member_by_pid[top].engine for top in tops}
    return {root: engine for root, engine in found.items() if found.keys().isdisjoint(family.ancestors(root))}


def _classify(pid: int, proc: Path) -> _Member | None:
    command = procfs.command(procfs.arguments(pid, proc))
    if not command:
        return None
    for engine in ENGINES:
        role = engine.role(command)
        if role is not None:
            return _Member(engine, clean(role))
    return None


def _topmost(pid: int, family: procfs.ProcessTree, member_by_pid: Mapping[int, _Member]) -> int:
    line = [ancestor for ancestor in family.ancestors(pid) if ancestor in member_by_pid]
    return line[-1] if line else pid


def _root(pid: int, family: procfs.ProcessTree, proc: Path) -> tuple[int, Engine] | None:
    """The topmost recognised process above; else the one below; else the process itself, told by its libraries."""
    line = [pid, *family.ancestors(pid)]
    ours = os.getpid()
    above = [(p, member) for p in line if p != ours and (member := _classify(p, proc))]
    if above:
        root, member = above[-1]
        return _spawner(root, member, family, proc), member.engine
    below = _roots(family, family.descendants(pid), proc)
    if len(below) > 1:
        servers = [_server(root, root, engine, family, proc) for root, engine in below.items()]
        named = ", ".join(f"{one.root_pid} ({in_short(one)})" for one in servers)
        said = f"{len(servers)} servers run below process {pid}; attach to one of them: {named}"
        raise SeveralServersError(said, servers)
    if below:
        return next(iter(below.items()))
    engine = _by_library(pid, proc)
    return (pid, engine) if engine is not None else None


def _spawner(root: int, member: _Member, family: procfs.ProcessTree, proc: Path) -> int:
    """The front end of an engine that was started from a program of the user's own, which no command line tells.

    What does not face clients was spawned by what does, and that is the Python program above it.
    """
    parent = family.parents.get(root, 0)
    is_back = member.engine.backs and re.match(member.engine.backs, member.role)
    is_front = not is_back and not _NUMBERED.search(member.role)  # one of several fronts was spawned too
    if is_front or parent <= 1 or parent == os.getpid():
        return root
    program = procfs.read_link(f"{proc}/{parent}/exe") or next(iter(procfs.arguments(parent, proc)), "")
    is_adopted = any(argument.endswith(_SUPERVISOR) for argument in procfs.arguments(parent, proc))
    return parent if procfs.is_interpreter(program) and not is_adopted else root


def _by_library(pid: int, proc: Path) -> Engine | None:
    """The last resort, for servers embedded in other programs: whose libraries are mapped."""
    try:
        with Path(f"{proc}/{pid}/maps").open(encoding="utf-8", errors="replace") as file:
            maps = file.read(_MAPS_BYTES)
    except OSError:
        return None
    return next((engine for engine in ENGINES if engine.library and re.search(engine.library, maps)), None)


def _server(pid: int, root: int, engine: Engine, family: procfs.ProcessTree, proc: Path) -> Target:
    argv = procfs.arguments(root, proc)
    config = told.file_of_flags(engine, argv, root, proc)
    given = told.with_file(argv, config)
    members = [root, *family.descendants(root)]
    configured = command_line.port(engine, given, root, proc)
    addresses, unread = _addresses(root, given, members, engine, configured, proc)
    scheme = "https" if command_line.flag(given, *_CERTIFICATE) else "http"
    gpus, gpus_unread = _gpus(members, proc)
    facts = command_line.model_facts(engine, given, root, proc)
    return Target(
        pid=pid,
        root_pid=root,
        kind=engine.kind,
        title=engine.title,
        processes=tuple(_process(member, root, proc) for member in members),
        ports=tuple(dict.fromkeys(where[1] for where in addresses if not isinstance(where, str))),
        metrics_urls=listening.metrics_urls(engine, addresses, scheme),
        model=facts.model,
        dtype=facts.dtype,
        gpus=gpus,
        facts={
            TargetFact.COMMAND: _shown(argv),
            **installed(engine, root, proc),
            **facts.more,
            **told.told(engine, argv, config, root, facts, proc),
        },
        config=facts.config,
        missing=(*unread, *gpus_unread),
    )


def _plain_process(pid: int, family: procfs.ProcessTree, proc: Path) -> Target:
    argv = procfs.arguments(pid, proc)
    members = [pid, *family.descendants(pid)]
    found, _ = listening.listeners(members, proc)
    gpus, gpus_unread = _gpus(members, proc)
    known = ", ".join(engine.title for engine in ENGINES)
    inside = "".join(f"; {said}" for said in filter(None, [_inside(pid, proc)]))
    why = Unknown("this process belongs to no server that llmtop knows", f"known are {known}{inside}")
    title = _shown(argv) or clean(procfs.name(pid, proc))
    return Target(
        pid=pid,
        root_pid=pid,
        kind=PLAIN_PROCESS,
        title=title,
        processes=tuple(
            TargetProcess(p, procfs.job_rank(p, proc) or (PLAIN_ROLE if p == pid else "child"), _shown_name(p, proc))
            for p in members
        ),
        ports=tuple(sorted({one.address[1] for one in found})),
        model=why,
        dtype=why,
        gpus=gpus,
        facts={TargetFact.COMMAND: title, **settings.untold(why)},
        missing=(Missing(whats.TARGET_URLS, why), *gpus_unread),
    )


def _process(pid: int, root: int, proc: Path) -> TargetProcess:
    member = _classify(pid, proc)
    command = procfs.command(procfs.arguments(pid, proc))
    name = _shown_name(pid, proc)
    if member is not None:
        return TargetProcess(pid, member.role, name)
    if pid == root:
        return TargetProcess(pid, _FRONT, name)
    spawned = _MULTIPROCESSING.search(command)
    role = procfs.job_rank(pid, proc) or ((spawned["what"] or "spawn") if spawned else name)
    return TargetProcess(pid, role, name)


def _shown_name(pid: int, proc: Path) -> str:
    return clean(procfs.name(pid, proc)) or "(ended)"


def _shown(argv: Sequence[str]) -> str:
    """What it runs, as one types it; a title that it gave itself is one word with spaces."""
    return clean(shell_command(argv if len(argv) > 1 else " ".join(argv).split()))


def _addresses(
    root: int, given: Sequence[str], members: Sequence[int], engine: Engine, configured: int | None, proc: Path
) -> tuple[list[listening.Address | str], tuple[Missing, ...]]:
    """Where the server may be asked for its metrics."""
    socket = command_line.socket_path(engine, given)
    if socket:
        # From where it runs; a socket that is not there yet is tried again like a port that refuses.
        here = procfs.read_link(f"{proc}/{root}/cwd") or "/"
        return [str(Path(here) / socket)], ()
    found, complete = listening.listeners(members, proc)
    if found or complete:
        roles = {pid: member.role for pid in members if (member := _classify(pid, proc)) is not None}
        roles.setdefault(root, _FRONT)
        backs = [pid for pid, role in roles.items() if engine.backs and re.match(engine.backs, role)]
        asked = listening.worth_asking(found, engine, configured, roles.keys() - set(backs), backs)
        if any(one.address[1] not in (configured, engine.port) for one in asked):
            asked = listening.for_clients(asked, members, proc)
        return [one.address for one in asked], ()
    why = Unknown(
        f"which ports it listens on cannot be read: {_NOT_OURS}",
        "run llmtop as the server's user, or with sudo, or name its page: --metrics-url http://localhost:PORT/metrics",
    )
    guess = configured or engine.port
    guessed: list[listening.Address | str] = [("127.0.0.1", guess)] if listening.is_listening(root, guess, proc) else []
    return guessed, (Missing(whats.TARGET_PORTS, why),)


def _gpus(members: Iterable[int], proc: Path) -> tuple[tuple[int, ...], tuple[Missing, ...]]:
    minors: set[int] = set()
    unread = False
    for pid in members:
        files = procfs.open_files(pid, proc)
        unread |= files is None and procfs.stat(pid, proc) is not None
        minors.update(int(match[1]) for file in files or () if (match := _GPU.match(file)))
    why = Unknown(f"which GPUs it holds cannot be read: {_NOT_OURS}", "run llmtop as the server's user, or with sudo")
    return tuple(sorted(minors)), (Missing(whats.TARGET_GPUS, why),) if unread else ()
