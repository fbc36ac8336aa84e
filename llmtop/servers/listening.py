"""Where a server listens, and where its metrics should be."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from llmtop import procfs
from llmtop.model import Engine

_LISTEN = "0A"  # TCP_LISTEN, include/net/tcp_states.h
_ACCEPTS = 1 << 16  # __SO_ACCEPTCON, include/linux/net.h: the flag of a listening socket in /proc/net/unix
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "localhost", "": "127.0.0.1"}
_SOCKET = "socket:["
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket of a process: an address, or the path of a Unix socket."""

    pid: int
    address: Address | None
    path: str = ""


def listeners(pids: Iterable[int], proc: Path = procfs.PROC) -> tuple[list[Listener], bool]:
    """The listening sockets of some processes, and whether all of these could be looked into.

    Each process is looked at through its own network namespace, so this is right for containers too.
    """
    found: dict[Listener, None] = {}
    complete = True
    tables: dict[str | None, tuple[dict[int, Address], dict[int, str]]] = {}
    for pid in pids:
        files = procfs.open_files(pid, proc)
        if files is None:
            complete &= procfs.stat(pid, proc) is None
            continue
        network = procfs.read_link(f"{proc}/{pid}/ns/net")
        if network not in tables:
            tables[network] = (dict(_tcp(pid, proc)), dict(_unix(pid, proc)))
        tcp, unix = tables[network]
        for inode in (int(file[len(_SOCKET) : -1]) for file in files if file.startswith(_SOCKET)):
            if inode in tcp:
                found[Listener(pid, tcp[inode])] = None
            elif inode in unix:
                found[Listener(pid, None, unix[inode])] = None
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


def _unix(pid: int, proc: Path) -> Iterable[tuple[int, str]]:
    for line in _lines(f"{proc}/{pid}/net/unix"):
        fields = line.split(None, 7)
        if len(fields) == 8 and int(fields[3], 16) & _ACCEPTS and fields[7].startswith("/"):
            yield int(fields[6]), fields[7]


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
) -> list[Address | str]:
    """Where the server may answer in HTTP, best first; Unix sockets by their path.

    The port that it was told, alone, where it listens there; else its usual port, alone; else those of the processes
    that face clients. Engines and workers listen too (ZMQ, gloo, NCCL), and are never asked.

    Args:
        found: What its processes listen on.
        engine: Its kind.
        configured: The port it was told to use.
        fronts: Processes that are known to face clients.
        backs: Processes that are known not to.
    """
    tcp = [(one.pid, one.address) for one in found if one.address is not None]
    behind, faces = set(backs), set(fronts)
    for port in (configured, engine.port if configured is None else None):
        at_port = [address for pid, address in tcp if address[1] == port and pid not in behind]
        if at_port:
            return list(dict.fromkeys(sorted(at_port)))
    for chosen in (faces, {one.pid for one in found} - behind):
        here: list[Address | str] = list(ordered([a for pid, a in tcp if pid in chosen], engine, configured))
        here = here or sorted({one.path for one in found if one.path and one.pid in chosen})
        if here:
            return list(dict.fromkeys(here))
    return []


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
