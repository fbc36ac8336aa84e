"""Where a server listens, and where its metrics should be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from llmtop import procfs
from llmtop.model import Engine

_LISTEN = "0A"  # TCP_LISTEN, include/net/tcp_states.h
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "localhost", "": "127.0.0.1"}
Address = tuple[str, int]


def addresses(pids: Iterable[int]) -> tuple[list[Address], bool]:
    """Listening TCP sockets of some processes, and whether all of these could be looked into.

    Each process is looked at through its own network namespace, so this is right for containers too.
    """
    import psutil

    listening: set[Address] = set()
    complete = True
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections("tcp")
        except psutil.AccessDenied:
            complete = False
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        else:
            listening.update((c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN)
    return sorted(listening, key=lambda address: (address[1], address[0])), complete


def is_listening(pid: int, port: int, proc: Path = procfs.PROC) -> bool:
    """Whether anyone listens on a port in the process's network namespace; everyone may read that."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"{proc}/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


def ordered(listening: Sequence[Address], engine: Engine, configured: int | None) -> list[Address]:
    """The addresses with the likeliest one first: the port it was told, then its default, then the lowest."""

    def rank(address: Address) -> tuple[bool, bool, int, str]:
        host, port = address
        return (port != configured, port != engine.port, port, host)

    return sorted(listening, key=rank)


def metrics_urls(engine: Engine, listening: Iterable[Address]) -> tuple[str, ...]:
    """Where to look for the metrics, best first."""
    return tuple(
        dict.fromkeys(f"http://{_host(host)}:{port}{path}" for host, port in listening for path in engine.metrics_paths)
    )


def _host(ip: str) -> str:
    host = _WILDCARDS.get(ip, ip)
    return f"[{host}]" if ":" in host else host
