"""Compiles programs with bcc, in a process of its own: what that takes of memory goes with it.

Requests come a line each, {"name", "text", "flags"}, and so do the answers, {"name", "unit"} or {"name", "reason",
"remedy"}. A unit is what another process needs to load it (compiled.py).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...helper.system import UnavailableError
from .compiled import STUBS

NICE = 10
"""A tenth of what a busy server gets of the same CPU, so that it comes to an end on a full machine."""
_LOAD_WIDE, _MAP = 0x18, 1
"""BPF_LD | BPF_IMM | BPF_DW, with a map's descriptor in it: BPF_PSEUDO_MAP_FD."""
_INSTRUCTION = 8
"""Bytes of an instruction of BPF; a wide one has two."""
_UNDECLARED = (
    ("bpf_num_tables", ctypes.c_size_t, ()),
    ("bpf_table_name", ctypes.c_char_p, (ctypes.c_size_t,)),
    ("bpf_table_fd_id", ctypes.c_int, (ctypes.c_size_t,)),
    ("bpf_table_key_size_id", ctypes.c_size_t, (ctypes.c_size_t,)),
    ("bpf_table_leaf_size_id", ctypes.c_size_t, (ctypes.c_size_t,)),
)
"""Functions of libbcc (bcc_common.h) of which its Python part tells no types: name, result, arguments but the first."""


def load_bcc() -> Any:
    """The class BPF of bcc, told to use our headers.

    Raises:
        UnavailableError: bcc is not installed for this interpreter, or its library is broken.
    """
    os.environ["BCC_KERNEL_SOURCE"] = str(STUBS)
    try:
        from bcc import BPF
    except Exception as error:  # a broken installation raises anything
        raise UnavailableError(f"bcc cannot be imported: {error}", "sudo apt install python3-bpfcc") from error
    return BPF


def compile_unit(name: str, text: str, flags: list[str]) -> dict[str, Any]:
    """A program's maps and functions.

    Raises:
        UnavailableError: It does not compile here; the reason holds the compiler's first complaint.
    """
    bpf = load_bcc()
    with _compiler_output() as complaints:
        try:
            module = bpf(text=text, cflags=flags)
            return _unit(sys.modules["bcc"].lib, module.module)
        except Exception as error:  # bcc raises nothing narrower
            raise UnavailableError(f"{name}.c does not compile: {_first_error(complaints()) or error}") from error


def _unit(lib: Any, module: Any) -> dict[str, Any]:
    for function, result, arguments in _UNDECLARED:
        declared = getattr(lib, function)
        declared.restype, declared.argtypes = result, [ctypes.c_void_p, *arguments]
    maps, names = {}, {}
    for i in range(lib.bpf_num_tables(module)):
        name = lib.bpf_table_name(module, i).decode()
        names[lib.bpf_table_fd_id(module, i)] = name
        maps[name] = [
            lib.bpf_table_type_id(module, i),
            lib.bpf_table_key_size_id(module, i),
            lib.bpf_table_leaf_size_id(module, i),
            lib.bpf_table_max_entries_id(module, i),
            lib.bpf_table_flags_id(module, i),
        ]
    functions = {}
    for i in range(lib.bpf_num_functions(module)):
        name = lib.bpf_function_name(module, i)
        start, size = lib.bpf_function_start(module, name), lib.bpf_function_size(module, name)
        code = bytearray(ctypes.string_at(start, size))
        references = list(_references(code, names))
        for place, _ in references:
            code[place : place + 4] = bytes(4)  # the descriptor is of this process alone
        functions[name.decode()] = {"code": code.hex(), "maps": references}
    return {"maps": maps, "functions": functions}


def _references(code: bytearray, names: dict[int, str]) -> Iterator[list[Any]]:
    """[place of the instruction's number, name of the map]."""
    at = 0
    while at < len(code):
        is_wide = code[at] == _LOAD_WIDE
        if is_wide and code[at + 1] >> 4 == _MAP:
            yield [at + 4, names[int.from_bytes(code[at + 4 : at + 8], "little")]]
        at += 2 * _INSTRUCTION if is_wide else _INSTRUCTION


@contextmanager
def _compiler_output() -> Iterator[Any]:
    """Catch what the compiler writes to descriptor 2 behind Python's back."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:

            def written() -> str:
                file.seek(0)
                return file.read().decode("utf-8", "replace")

            yield written
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first_error(text: str) -> str:
    return next((line.partition("error: ")[2] for line in text.splitlines() if "error: " in line), "")


def main() -> None:
    """Compile until the requests end."""
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.nice(0)))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what a library prints must not get in between
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer: dict[str, Any] = {"unit": compile_unit(**request)}
            except UnavailableError as error:
                answer = {"reason": error.reason, "remedy": error.remedy}
            answers.write(json.dumps({"name": request["name"], **answer}) + "\n")
            answers.flush()
