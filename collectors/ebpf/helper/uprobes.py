"""Two ways to hold probes on functions of a library that a process maps.

Linux 6.10 takes all functions of a library at once, and takes them away at once. Before, each function has a probe for
its entry and one for its return, and the kernel waits a tenth of a second as it takes one away: a minute for a
server of eight processes.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from typing import Any, Protocol

from .functions import LAUNCHES, NUMBERS, SYNCHRONISING
from .programs import compile_program, load
from .system import UnavailableError, bpf_call

_OLDEST_KERNEL = (6, 10)
"""Linux 6.6 has such links, but took only one thread of the process: commit 46ba0e49b642 mended that."""
_PROGRAM_LOAD, _LINK_CREATE = 5, 28
_KPROBE = 2
_UPROBE_MULTI = 48
_RETURN = 1
"""include/uapi/linux/bpf.h: enum bpf_cmd, bpf_prog_type, bpf_attach_type, BPF_F_UPROBE_MULTI_RETURN."""
_KINDS = ("OTHER", "LAUNCH", "SYNC")
"""The enumeration of programs/library.c."""


class Uprobes(Protocol):
    """Probes on library functions. `module` is the bcc module whose maps they fill."""

    module: Any

    def hold(self, pid: int, path: str, group: str, functions: Mapping[str, int]) -> None:
        """Have probes on these functions (name: place in the file) of a file that a process maps.

        Functions of one group come and go together, without a break in those of others.

        Raises:
            Exception: The kernel refuses them; bcc raises nothing narrower.
        """


def make_uprobes(bpf: Any) -> Uprobes:
    """The better way that this kernel has.

    Raises:
        UnavailableError: It has none.
    """
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if found and (int(found.group(1)), int(found.group(2))) >= _OLDEST_KERNEL:
        try:
            return LinkedUprobes(bpf)
        except (UnavailableError, OSError):
            return SingleUprobes(bpf)
    return SingleUprobes(bpf)


class LinkedUprobes:
    """One link for the entries and one for the returns of all functions of a library in a process."""

    def __init__(self, bpf: Any) -> None:
        self.module = compile_program(bpf, "library", flags=("-DWITH_COOKIES=1",))
        self._enter, self._leave = (_loaded(self.module, function) for function in ("enter_any", "leave_any"))
        self._links: dict[tuple[int, str, str], list[int]] = {}

    def hold(self, pid: int, path: str, group: str, functions: Mapping[str, int]) -> None:
        for link in reversed(self._links.pop((pid, path, group), ())):  # the entries first: they are what costs
            os.close(link)
        if functions:
            links = self._links[pid, path, group] = []
            links.append(_link(self._leave, pid, path, functions, _RETURN))
            links.append(_link(self._enter, pid, path, functions, 0))


class SingleUprobes:
    """Two probes a function."""

    def __init__(self, bpf: Any) -> None:
        pairs = "".join(
            f"int enter_{n}(struct pt_regs *ctx) {{ return enter(ctx, {n}, {_KINDS[_kind(name)]}); }}\n"
            f"int leave_{n}(struct pt_regs *ctx) {{ return leave(ctx, {n}, {_KINDS[_kind(name)]}); }}\n"
            for name, n in NUMBERS.items()
        )
        self.module = compile_program(bpf, "library", flags=("-DWITH_COOKIES=0",), end=pairs)
        for number in NUMBERS.values():
            load(self.module, f"enter_{number}", bpf.KPROBE)
            load(self.module, f"leave_{number}", bpf.KPROBE)
        self._held: dict[tuple[int, str, str], set[str]] = {}

    def hold(self, pid: int, path: str, group: str, functions: Mapping[str, int]) -> None:
        held = self._held.setdefault((pid, path, group), set())
        for name in held - functions.keys():
            self.module.detach_uprobe(name=path, sym=name, pid=pid)
            self.module.detach_uretprobe(name=path, sym=name, pid=pid)
            held.discard(name)
        for name in functions.keys() - held:
            number = NUMBERS[name]
            self.module.attach_uretprobe(name=path, sym=name, fn_name=f"leave_{number}", pid=pid)
            self.module.attach_uprobe(name=path, sym=name, fn_name=f"enter_{number}", pid=pid)
            held.add(name)


def _kind(name: str) -> int:
    return 1 if name in LAUNCHES else 2 if name in SYNCHRONISING else 0


def _loaded(module: Any, function: str) -> int:
    """A program made for such links, which bcc cannot load; its descriptor."""
    code = module.dump_func(function.encode())
    program, license_ = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    attributes = _Program(_KPROBE, len(code) // 8, ctypes.addressof(program), ctypes.addressof(license_))
    attributes.expected_attach_type = _UPROBE_MULTI
    return _made(_PROGRAM_LOAD, attributes)


def _link(program: int, pid: int, path: str, functions: Mapping[str, int], flags: int) -> int:
    """Its descriptor: with that, the probes go."""
    file = ctypes.create_string_buffer(os.fsencode(path))
    places = (ctypes.c_uint64 * len(functions))(*functions.values())
    cookies = (ctypes.c_uint64 * len(functions))(*(NUMBERS[name] | _kind(name) << 8 for name in functions))
    attributes = _Link(program, 0, _UPROBE_MULTI, 0)
    attributes.path, attributes.offsets = ctypes.addressof(file), ctypes.addressof(places)
    attributes.cookies, attributes.count = ctypes.addressof(cookies), len(functions)
    attributes.multi_flags, attributes.pid = flags, pid
    return _made(_LINK_CREATE, attributes)


def _made(command: int, attributes: ctypes.Structure) -> int:
    buffer = ctypes.create_string_buffer(bytes(attributes))
    descriptor = bpf_call(command, buffer)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "bpf(2) failed")
    return descriptor


class _Program(ctypes.Structure):
    """Of union bpf_attr, what BPF_PROG_LOAD takes."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("instructions", ctypes.c_uint32),
        ("code", ctypes.c_uint64),
        ("license", ctypes.c_uint64),
        ("log_level", ctypes.c_uint32),
        ("log_size", ctypes.c_uint32),
        ("log", ctypes.c_uint64),
        ("kernel_version", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("name", ctypes.c_char * 16),
        ("interface", ctypes.c_uint32),
        ("expected_attach_type", ctypes.c_uint32),
    )


class _Link(ctypes.Structure):
    """Likewise, what BPF_LINK_CREATE takes for uprobe_multi."""

    _fields_ = (
        ("program", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("path", ctypes.c_uint64),
        ("offsets", ctypes.c_uint64),
        ("references", ctypes.c_uint64),
        ("cookies", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("multi_flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    )
