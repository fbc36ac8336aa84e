"""Two ways to hold probes on functions of a library that a process maps.

Linux 6.10 takes all functions of a library at once, and takes them away at once. Before, each function has a probe for
its entry and one for its return, and the kernel waits a tenth of a second as it takes one away: a minute for a
server of eight processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ...helper.functions import (
    ALLOCATION,
    COLLECTION,
    COPY,
    GRAPH,
    LAUNCHES,
    NUMBERS,
    QUERIES,
    READ,
    SORTS,
    SYNCHRONISING,
)
from ...helper.kernel import attach_uprobe, close_all, link_uprobes
from ...helper.libraries import ProbePoint
from ...helper.system import kernel_release
from .programs import KPROBE, Module, ProgramText

_TAKES_MANY = (6, 10)
"""Linux 6.6 has links of many functions, but took only one thread of the process: commit 46ba0e49b642 mended that."""
_TELLS_COOKIES = (5, 15)
"""The release of Linux from which on a program is told which of its probes was hit."""
_UPROBE_MULTI = 48
"""enum bpf_attach_type of include/uapi/linux/bpf.h."""
_KINDS = (LAUNCHES, SYNCHRONISING, QUERIES)
_SORTS = ("", GRAPH, READ, ALLOCATION, COPY, COLLECTION)
"""The enumerations of kinds and sorts in programs/library.c; functions of no such kind are OTHER."""


def _kind(name: str) -> int:
    """OTHER, LAUNCH, SYNC or QUERY."""
    return next((i for i, names in enumerate(_KINDS, 1) if name in names), 0)


def _sort(name: str) -> int:
    return _SORTS.index(SORTS.get(name, ""))


class Uprobes(Protocol):
    """Probes on library functions."""

    def hold(self, pid: int, path: str, group: str, functions: Mapping[str, ProbePoint]) -> None:
        """Have probes on these functions of a file that a process maps, by name.

        Functions of one group come and go together, without a break in those of others.

        Raises:
            OSError: The kernel refuses them.
        """


class LinkedUprobes:
    """One link for the entries and one for the returns of all functions of a library in a process."""

    def __init__(self, module: Module) -> None:
        self._enter, self._leave = (module.load(name, KPROBE, _UPROBE_MULTI) for name in ("enter_any", "leave_any"))
        self._links: dict[tuple[int, str, str], list[int]] = {}

    def hold(self, pid: int, path: str, group: str, functions: Mapping[str, ProbePoint]) -> None:
        close_all(self._links.pop((pid, path, group), []))  # the entries first: they are what costs
        if not functions:
            return
        links = self._links[pid, path, group] = []
        told = [(cookie_of(name), point) for name, point in functions.items()]
        entries = {site: cookie for cookie, point in told for site in point.begins}
        ends = {site: cookie for cookie, point in told for site in point.ends}
        returns = {site: cookie for cookie, point in told for site in point.begins if not point.ends}
        for program, cookies, is_return in (
            (self._leave, returns, True),
            (self._leave, ends, False),
            (self._enter, entries, False),
        ):
            if cookies:
                links.append(link_uprobes(program, pid, path, cookies, is_return=is_return))


class SingleUprobes:
    """Two probes a function."""

    def __init__(self, programs: Mapping[str, tuple[int, int]], *, have_cookies: bool) -> None:
        self._programs = programs
        """What runs as a function returns, and as it is entered."""
        self._have_cookies = have_cookies
        self._held: dict[tuple[int, str, str], dict[str, list[int]]] = {}

    def hold(self, pid: int, path: str, group: str, functions: Mapping[str, ProbePoint]) -> None:
        held = self._held.setdefault((pid, path, group), {})
        for name in held.keys() - functions.keys():
            close_all(held.pop(name))
        for name in functions.keys() - held.keys():
            probes, point = held.setdefault(name, []), functions[name]
            leave, enter = self._programs[name]
            cookie = cookie_of(name) if self._have_cookies else None
            for site in point.ends or point.begins:
                probes += attach_uprobe(path, site, pid, leave, is_return=not point.ends, cookie=cookie)
            for site in point.begins:
                probes += attach_uprobe(path, site, pid, enter, is_return=False, cookie=cookie)


WITH_COOKIES = ProgramText("library", "cookies", ("-DWITH_COOKIES=1",))
WITHOUT_COOKIES = ProgramText("library", "no-cookies", ("-DWITH_COOKIES=0",))


def source() -> ProgramText:
    """The program that this kernel can be expected to load."""
    return WITH_COOKIES if kernel_release() >= _TELLS_COOKIES else WITHOUT_COOKIES


def make_uprobes(source: ProgramText, module: Module) -> Uprobes:
    """Probes by a program of this source, in the best way that the kernel has.

    Raises:
        UnavailableError: The kernel refuses the program.
    """
    if source is WITHOUT_COOKIES:
        pairs = {
            name: (
                module.load("leave_any", KPROBE, COOKIE=cookie_of(name)),
                module.load("enter_any", KPROBE, COOKIE=cookie_of(name)),
            )
            for name in NUMBERS
        }
        return SingleUprobes(pairs, have_cookies=False)
    if kernel_release() >= _TAKES_MANY:
        return LinkedUprobes(module)
    pair = (module.load("leave_any", KPROBE), module.load("enter_any", KPROBE))
    return SingleUprobes(dict.fromkeys(NUMBERS, pair), have_cookies=True)


def cookie_of(name: str) -> int:
    """What tells the program for all functions which one it runs for."""
    return NUMBERS[name] | _kind(name) << 8 | _sort(name) << 12
