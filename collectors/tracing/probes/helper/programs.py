"""The programs, loaded into the kernel: bytecode that llmtop brings along for each machine.

`scripts/compile-probes` makes it of programs/*.c. What differs between kernels of one machine is put in when a program
is loaded: descriptors of maps, numbers, and where tracepoints have their fields.
"""

from __future__ import annotations

import json
import platform
import re
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...helper.kernel import Map, RefusedError, Table, load_program
from ...helper.system import UnavailableError, pid_namespace, read, tracefs

HERE = Path(__file__).resolve().parent.parent
COMPILED = HERE / "compiled"
"""By machine, a file for each program: {"maps": {name: [kind, key size, value size, capacity, flags]}, "functions":
{name: {"code": hex, "maps": [[place, name]], "numbers": [[place, name]], "fields": [[place, name]]}}}. Places are of
instructions into which a map's descriptor, one of `NUMBERS`, or the place of one of `FIELDS` is put."""
NUMBERS = {
    "NAMESPACE_DEVICE": 0x64B1C2D3E4F50617,
    "NAMESPACE_INODE": 0x3A95F0816C7D2E4B,
    "COOKIE": 0x51D0A4E7B3968C2F,
}
"""What programs are compiled with in place of numbers that are known when they are loaded."""
FIELDS = {
    "sched_process_fork.child_pid": (0x5A04, 4),
    "sched_switch.prev_state": (0x5A10, 8),
    "sched_switch.next_pid": (0x5A24, 4),
    "sched_waking.pid": (0x5A34, 4),
    "sched_wakeup.pid": (0x5A44, 4),
}
"""Likewise, in place of where the kernel has these fields of the scheduler's tracepoints; and their sizes."""
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


@dataclass(frozen=True)
class ProgramText:
    """One of the programs.

    Attributes:
        name: Of its source.
        variant: What tells it from others of that source.
        flags: What it is compiled with.
    """

    name: str
    variant: str = ""
    flags: tuple[str, ...] = ()

    def path(self, machine: str, *, in_namespace: bool) -> Path:
        """Its bytecode, with the ids of a PID namespace or with the machine's own."""
        parts = (self.name, self.variant, "namespace" if in_namespace else "")
        return COMPILED / machine / f"{'-'.join(filter(None, parts))}.json"


class Module:
    """A compiled program, its maps made; its functions are loaded as they are asked for.

    Args:
        unit: The program.
        shared: Maps that all programs have together.
        numbers: What the program is compiled with placeholders for, by their names in `NUMBERS`.
    """

    def __init__(self, unit: Mapping[str, Any], shared: dict[str, Map], numbers: Mapping[str, int]) -> None:
        self._functions = unit["functions"]
        self._numbers = numbers
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

    def load(self, function: str, kind: int, expected_attach: int = 0, **numbers: int) -> int:
        """The descriptor of one of its functions, loaded; `numbers` are those of this function alone.

        Raises:
            UnavailableError: The kernel refuses it.
        """
        found = self._functions[function]
        code = bytearray.fromhex(found["code"])
        for place, name in found["maps"]:
            _set_loaded(code, place, self._maps[name].descriptor)
        for place, name in found["numbers"]:
            _set_loaded(code, place, {**self._numbers, **numbers}[name])
        for place, name in found["fields"]:
            code[place + 2 : place + 4] = place_of_field(name).to_bytes(2, "little")
        try:
            return load_program(bytes(code), kind, expected_attach)
        except RefusedError as error:
            raise refusal(f"the kernel refuses {function}: {error.verdict or error}") from error


def _set_loaded(code: bytearray, place: int, number: int) -> None:
    """Have an instruction load a number: half of it is in each of its two parts, the lower one first."""
    for at, half in ((place + 4, number & 0xFFFFFFFF), (place + 12, number >> 32)):
        code[at : at + 4] = half.to_bytes(4, "little")


def place_of_field(name: str) -> int:
    """Where this kernel has a field of a tracepoint of the scheduler's.

    Raises:
        UnavailableError: It has none, or of another size.
    """
    event, field = name.split(".")
    told = read(f"{tracefs()}/events/sched/{event}/format")
    found = re.search(rf"\b{field};\s*offset:(\d+);\s*size:{FIELDS[name][1]};", told)
    if not found:
        raise UnavailableError(f"this kernel's tracepoint {event} has no such field {field} as the probes read")
    return int(found.group(1))


class Programs:
    """Has the maps that all programs share."""

    def __init__(self) -> None:
        self._shared: dict[str, Map] = {}
        self._numbers = dict(zip(NUMBERS, pid_namespace() or ()))
        """Those that programs ask ids with; none where the machine's own ids are meant."""
        with suppress(ValueError, OSError):  # it matters before Linux 5.11 only, which says by itself that it is low
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def module(self, source: ProgramText) -> Module:
        """A program, its maps made.

        Raises:
            UnavailableError: There is none for this machine, or the kernel refuses its maps.
        """
        machine = platform.machine()
        try:
            text = source.path(machine, in_namespace=bool(self._numbers)).read_text(encoding="utf-8")
        except OSError as error:
            raise UnavailableError(f"llmtop has no probes for {machine} ({error.strerror})") from error
        try:
            return Module(json.loads(text), self._shared, self._numbers)
        except OSError as error:
            raise refusal(f"the kernel refuses the maps of {source.name}: {error}") from error


def refusal(reason: str) -> UnavailableError:
    """Why the kernel said no: it is locked down, or only this program is at fault."""
    lockdown = re.search(r"\[(integrity|confidentiality)\]", read("/sys/kernel/security/lockdown"))
    if lockdown and lockdown.group(1) == "confidentiality":
        return UnavailableError("the kernel is locked down (confidentiality)", "boot with lockdown=integrity")
    return UnavailableError(reason)
