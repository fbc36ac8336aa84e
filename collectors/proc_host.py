"""The machine that the server runs on: its CPU pressure and load, and what advice must know of it."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids, procfs, programs, whats
from llmtop import vocabulary as v
from llmtop.collectors import pyspy_dump
from llmtop.facts import HostFact
from llmtop.model import Missing, Reading, Track, TrackKind, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from llmtop.collectors.proc_poll import ProcPoll
    from llmtop.model import Fact

_TOOLS = ("perf", "gdb")


def read_host(news: ProcPoll, now: int) -> None:
    """Add the host's track and readings."""
    news.tracks[ids.HOST] = Track(ids.HOST, TrackKind.HOST, clean(platform.node()) or "host", facts=_host_facts())
    for metric, value, source in (
        (v.HOST_CPU_PRESSURE, _pressure(), "/proc/pressure/cpu"),
        (v.HOST_LOAD, _load(), "/proc/loadavg"),
    ):
        if isinstance(value, Unknown):
            news.missing.append(Missing(whats.reading(ids.HOST, metric), value))
        else:
            news.readings.append(Reading(ids.HOST, metric, now, value, source))


@lru_cache(maxsize=1)
def _host_facts() -> dict[str, Fact]:
    """What does not change, and what advice must know: whether we are root, and which tools can be run."""
    py_spy = pyspy_dump.as_typed()
    found = [tool for tool in _TOOLS if programs.find(tool)] + (["py-spy"] if py_spy else [])
    return {
        HostFact.CORES: os.cpu_count() or 0,
        HostFact.IS_ROOT: int(os.geteuid() == 0),
        HostFact.TOOLS: " ".join(found),
        HostFact.PY_SPY: py_spy,
    }


def _pressure() -> float | Unknown:
    """Share of the last 10 s in which some task waited for a CPU, in % (kernel: Documentation/accounting/psi)."""
    for line in (procfs.read_text("/proc/pressure/cpu") or "").splitlines():
        if line.startswith("some avg10="):
            return float(line.split()[1].partition("=")[2])
    return Unknown("no pressure-stall information", "boot with psi=1 (kernel with CONFIG_PSI=y)")


def _load() -> float | Unknown:
    content = procfs.read_text("/proc/loadavg")
    return float(content.split()[0]) if content else Unknown("/proc/loadavg cannot be read")
