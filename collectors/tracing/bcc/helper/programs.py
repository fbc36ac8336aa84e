"""The programs, loaded into the kernel: those that are known compiled (compiled.py), else compiled by other processes.

Compiling takes 0.3 s of CPU a program, and seconds where a server leaves none: what is needed first comes first.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...helper.child import Child, ending
from ...helper.kernel import Map, RefusedError, Table, load_program
from ...helper.system import UnavailableError, pid_namespace, read
from . import compiled

HERE = Path(__file__).resolve().parent.parent
HITS = (
    "call",
    "foreign_call",
    "switch",
    "foreign_switch",
    "stack",
    "sample",
    "library",
    "lifecycle",
    "poll",
)
"""What the counters of the map `hits` count, in the order of the enumeration in programs/common.h."""
SLOTS = 28
KPROBE, TRACEPOINT, PERF_EVENT, RAW_TRACEPOINT = 2, 5, 7, 17
"""enum bpf_prog_type of include/uapi/linux/bpf.h."""
_SHARED = frozenset({"targets", "marks", "hits", "library_threads", "own_ids", "unborn"})
"""Maps that all programs have together."""
_MOST_COMPILERS = 4
"""Programs that are compiled at once, and no more than half of the CPUs."""
_BOOT = (
    "import sys, types; tracing = sys.modules['tracing'] = types.ModuleType('tracing'); "
    "tracing.__path__ = [sys.argv.pop(1)]; from tracing.bcc.helper import compiler; compiler.main()"
)
"""As llmtop starts this process (bcc/collector.py)."""


@dataclass(frozen=True)
class ProgramText:
    """One of the programs, with what all share in front and `end` behind."""

    name: str
    flags: tuple[str, ...] = ()
    end: str = ""

    def request(self) -> compiled.CompileRequest:
        """What a compiler is told."""
        folder = HERE / "programs"
        text = (folder / "common.h").read_text() + (folder / f"{self.name}.c").read_text() + self.end
        device, inode = pid_namespace() or (0, 0)
        own = (f"-DNAMESPACE_DEVICE={device}", f"-DNAMESPACE_INODE={inode}", "-Wno-macro-redefined")
        return compiled.CompileRequest(self.name, text, (*own, *self.flags))


class Module:
    """A compiled program, its maps made; its functions are loaded as they are asked for."""

    def __init__(self, unit: compiled.Unit, shared: dict[str, Map]) -> None:
        self._functions = unit["functions"]
        self._maps: dict[str, Map] = {}
        for name, layout in unit["maps"].items():
            known = shared if name in _SHARED else self._maps
            if name not in known:
                known[name] = Map.make(*layout)
            self._maps[name] = known[name]

    def map(self, name: str) -> Map:
        """One of its maps."""
        return self._maps[name]

    def table(self, name: str, key: str, value: str) -> Table:
        """One of its maps, by the layouts of key and value."""
        return Table.of(self._maps[name], key, value)

    def load(self, function: str, kind: int, expected_attach: int = 0) -> int:
        """The descriptor of one of its functions, loaded.

        Raises:
            UnavailableError: The kernel refuses it.
        """
        code = bytearray.fromhex(self._functions[function]["code"])
        for place, name in self._functions[function]["maps"]:
            code[place : place + 4] = self._maps[name].descriptor.to_bytes(4, "little")
        try:
            return load_program(bytes(code), kind, expected_attach)
        except RefusedError as error:
            raise refusal(f"the kernel refuses {function}: {error.verdict or error}") from error


class Programs:
    """Knows what was asked for and what has come of it. Asking does not wait."""

    def __init__(self) -> None:
        self._shared: dict[str, Map] = {}
        self._asked: dict[ProgramText, compiled.CompileRequest] = {}
        self._outcomes: dict[str, compiled.Unit | UnavailableError] = {}
        """By the key of a request."""
        self._compilers: list[_Compiler] = []
        self._began_s = time.monotonic()
        with suppress(ValueError, OSError):  # it matters before Linux 5.11 only, which says by itself that it is low
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def ask(self, *sources: ProgramText) -> None:
        """Have these compiled, the first ones first, unless they are known."""
        unknown = []
        for source in sources:
            request = self._asked[source] = source.request()
            unit = compiled.known(request)
            if unit is not None:
                self._outcomes[request.key] = unit
            else:
                unknown.append(request)
        lanes = min(_MOST_COMPILERS, max(1, len(os.sched_getaffinity(0)) // 2))
        self._compilers += [_Compiler(unknown[i::lanes]) for i in range(lanes) if unknown[i::lanes]]
        self._began_s = time.monotonic()

    def module(self, source: ProgramText) -> Module | None:
        """One that was asked for; None while it is being compiled.

        Raises:
            UnavailableError: It cannot be had here.
        """
        self._listen(0.0)
        outcome = self._outcomes.get(self._asked[source].key)
        if isinstance(outcome, UnavailableError):
            raise outcome
        if outcome is None:
            return None
        try:
            return Module(outcome, self._shared)
        except OSError as error:
            raise refusal(f"the kernel refuses the maps of {source.name}: {error}") from error

    def wait(self, source: ProgramText) -> Module:
        """The same, waited for.

        Raises:
            UnavailableError: It cannot be had here.
        """
        while (module := self.module(source)) is None:
            self._listen(None)
        return module

    @property
    def descriptors(self) -> list[int]:
        """What becomes readable when a compiler says something."""
        return [one.fileno() for one in self._compilers]

    def waiting_s(self) -> float:
        """For how long they have been compiled that were asked for last."""
        return time.monotonic() - self._began_s

    def _listen(self, seconds: float | None) -> None:
        """Take in what compilers say, and wait for one that does; what it made is kept."""
        if not self._compilers:
            return
        for compiler in select.select(self._compilers, [], [], seconds)[0]:
            for request, outcome in compiler.answers():
                self._outcomes[request.key] = outcome
                if not isinstance(outcome, UnavailableError):
                    compiled.keep(request, outcome)
            if compiler.is_at_end:
                self._compilers.remove(compiler)


class _Compiler(Child):
    """A process that compiles what it was asked for, one after the other, and ends."""

    def __init__(self, requests: list[compiled.CompileRequest]) -> None:
        self._requests = {request.name: request for request in requests}
        super().__init__([sys.executable, "-I", "-c", _BOOT, str(HERE.parent)], has_input=True)
        lines = "".join(f"{json.dumps(one.as_told())}\n" for one in requests)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and says so below
            self.process.stdin.write(lines.encode())
        self.process.stdin.close()

    def answers(self) -> list[tuple[compiled.CompileRequest, compiled.Unit | UnavailableError]]:
        """What it has just said; at its end, of all that it has not done, why."""
        found = [self._answer(json.loads(line)) for line in self.lines()]
        if self.is_at_end:
            why = UnavailableError(f"the compiler ended: {ending(self.process.wait())}")
            self.close()
            found += [(request, why) for request in self._requests.values()]
        return found

    def _answer(self, said: dict[str, Any]) -> tuple[compiled.CompileRequest, compiled.Unit | UnavailableError]:
        request = self._requests.pop(said["name"])
        if "unit" in said:
            return request, said["unit"]
        return request, UnavailableError(said["reason"], said["remedy"])


def refusal(reason: str) -> UnavailableError:
    """Why the kernel said no: it is locked down, or only this program is at fault."""
    lockdown = re.search(r"\[(integrity|confidentiality)\]", read("/sys/kernel/security/lockdown"))
    if lockdown and lockdown.group(1) == "confidentiality":
        return UnavailableError("the kernel is locked down (confidentiality)", "boot with lockdown=integrity")
    return UnavailableError(reason)
