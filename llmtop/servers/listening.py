"""Where a server listens, and where its metrics should be."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from urllib.parse import quote

from llmtop import procfs
from llmtop.frozen import frozen
from llmtop.model import Engine

_LISTEN, _ESTABLISHED = "0A", "01"  # include/net/tcp_states.h
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "localhost", "": "127.0.0.1"}
_SOCKET = "socket:["
_POLLED = "tfd:"
_LOW_HALF = (1 << 32) - 1  # epoll_data's fd; CPython leaves what is above it as it was
Address = tuple[str, int]


@frozen
class Listener:
    """A TCP socket that a process listens on."""

    pid: int
    address: Address
    inode: int = field(default=0, compare=False)


def listeners(pids: Iterable[int], proc: Path = procfs.PROC) -> tuple[list[Listener], bool]:
    """The TCP sockets that some processes listen on, and whether all of these could be looked into.

    Each process is looked at through its own network namespace, so this is right for containers too.
    """
    found: dict[Listener, None] = {}
    complete = True
    tables: dict[str | None, dict[int, Address]] = {}
    for pid in pids:
        files = procfs.open_files(pid, proc)
        if files is None:
            complete &= procfs.stat(pid, proc) is None
            continue
        network = procfs.read_link(f"{proc}/{pid}/ns/net")
        if network not in tables:
            tables[network] = dict(_tcp(pid, proc))
        for inode in map(_inode, files):
            if inode in tables[network]:
                found.setdefault(Listener(pid, tables[network][inode], inode))
    return list(found), complete


def is_listening(pid: int, port: int, proc: Path = procfs.PROC) -> bool:
    """Whether anyone listens on a port in the process's network namespace; everyone may read that."""
    return any(address[1] == port for _, address in _tcp(pid, proc))


def _tcp(pid: int, proc: Path) -> Iterable[tuple[int, Address]]:
    for table in ("tcp", "tcp6"):
        for line in _lines(f"{proc}/{pid}/net/{table}"):
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:
                ip, _, port = fields[1].rpartition(":")
                yield int(fields[9]), (_ip(ip), int(port, 16))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []


def _ip(digits: str) -> str:
    """An address as the kernel prints it: 32-bit words in the machine's own byte order."""
    words = [int(digits[i : i + 8], 16).to_bytes(4, "little") for i in range(0, len(digits), 8)]
    ip = ipaddress.ip_address(b"".join(words))
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip)


def worth_asking(
    found: Sequence[Listener], engine: Engine, configured: int | None, fronts: Iterable[int], backs: Iterable[int]
) -> list[Listener]:
    """Which sockets may answer in HTTP, best first; those at one address are one.

    The port that it was told, alone, and nothing before it is open; else its usual port, alone; else those of the
    processes that face clients, which are not all for clients (`for_clients`). Engines and workers listen too (gloo,
    NCCL), and are never asked. Nor is a Unix socket: a server that clients reach at one was told its path.

    Args:
        found: What its processes listen on.
        engine: Its kind.
        configured: The port it was told to use.
        fronts: Processes that are known to face clients.
        backs: Processes that are known not to.
    """
    behind, faces = set(backs), set(fronts)
    tcp = [one for one in found if one.pid not in behind]
    chosen = [one for one in tcp if one.address[1] == (configured or engine.port)]
    if not chosen and not configured:
        chosen = [one for one in tcp if one.pid in faces] or tcp
    by_address = {one.address: one for one in chosen}
    return [by_address[address] for address in ordered(list(by_address), engine, configured)]


def for_clients(candidates: Sequence[Listener], members: Iterable[int], proc: Path = procfs.PROC) -> list[Listener]:
    """Those of a server's sockets that are for its clients, told without a connection to any.

    A process in front of engines has sockets for these too: ZMQ's, or a store that ranks meet at. A connection that
    speaks HTTP there disturbs what they do. Python's event loops poll a socket under its descriptor's number, libraries
    beneath (ZMQ, gloo) under a pointer of theirs; and what the server's own processes are connected to is for these.
    """
    own = _sockets(members, proc)
    within = {port for pid in {one.pid for one in candidates} for port in _ports_between(pid, own, proc)}
    open_to_others = [one for one in candidates if one.address[1] not in within]
    polled = {one: _polled(one, proc) for one in open_to_others}
    of_loops = [one for one, how in polled.items() if how is True]
    return of_loops or [one for one, how in polled.items() if how is None]


def _sockets(pids: Iterable[int], proc: Path) -> set[int]:
    return {inode for pid in pids for inode in map(_inode, procfs.open_files(pid, proc) or ()) if inode}


def _inode(file: str) -> int:
    """Of a socket; 0 for any other file."""
    return int(file[len(_SOCKET) : -1]) if file.startswith(_SOCKET) else 0


def _ports_between(pid: int, own: Collection[int], proc: Path) -> Iterator[int]:
    """Ports in a process's network that one of some sockets is connected to."""
    for table in ("tcp", "tcp6"):
        for fields in map(str.split, _lines(f"{proc}/{pid}/net/{table}")):
            if len(fields) > 9 and fields[3] == _ESTABLISHED and int(fields[9]) in own:
                yield int(fields[2].rpartition(":")[2], 16)


def _polled(one: Listener, proc: Path) -> bool | None:
    """Whether a Python process polls a socket of its own as event loops do; None where it polls it in no epoll.

    The lines of an epoll descriptor in proc_pid_fdinfo(5): "tfd: 12 events: 19 data: c pos:0 ino:2aa07b sdev:9".
    """
    folder = f"{proc}/{one.pid}"
    if not procfs.is_interpreter(procfs.read_link(f"{folder}/exe") or ""):
        return None
    for text in _file_descriptors(folder):
        for fields in (line.split() for line in text.splitlines() if line.startswith(_POLLED)):
            if _inode(procfs.read_link(f"{folder}/fd/{fields[1]}") or "") == one.inode:
                return int(fields[5], 16) & _LOW_HALF == int(fields[1])
    return None


def _file_descriptors(folder: str) -> Iterator[str]:
    """What the kernel tells of each descriptor of a process."""
    try:
        files = list(Path(f"{folder}/fdinfo").iterdir())
    except OSError:
        return
    for file in files:
        yield procfs.read_text(file) or ""


def ordered(listening: Sequence[Address], engine: Engine, configured: int | None) -> list[Address]:
    """The addresses with the likeliest one first: the port it was told, then its default, then the lowest."""

    def rank(address: Address) -> tuple[bool, bool, int, str]:
        host, port = address
        return (port != configured, port != engine.port, port, host)

    return sorted(listening, key=rank)


def metrics_urls(engine: Engine, listening: Iterable[Address | str], scheme: str = "http") -> tuple[str, ...]:
    """Where to look for the metrics, best first."""
    return tuple(
        dict.fromkeys(
            f"http+unix://{quote(where, safe='')}{path}"
            if isinstance(where, str)
            else f"{scheme}://{_host(where[0])}:{where[1]}{path}"
            for where in listening
            for path in engine.metrics_paths
        )
    )


def _host(ip: str) -> str:
    host = _WILDCARDS.get(ip, ip)
    return f"[{host}]" if ":" in host else host
