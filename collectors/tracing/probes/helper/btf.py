"""Where the kernel has the fields of its structures, by the type information that it hands out (BTF)."""

from __future__ import annotations

import re
import struct

from ...helper.system import read_bytes

_PATH = "/sys/kernel/btf/vmlinux"
_MAGIC = 0xEB9F
"""What the kernel's types begin with (Documentation/bpf/btf.rst)."""
_STRUCT = 4
"""BTF_KIND_STRUCT of include/uapi/linux/btf.h."""


def offset_of(structure: str, field: str) -> int | None:
    """In bytes from its beginning; None where the kernel does not tell, or has the field in a structure within."""
    data = read_bytes(_PATH)
    if len(data) < 24 or struct.unpack_from("=H", data)[0] != _MAGIC:
        return None
    header, types_at, types, strings_at, strings = struct.unpack_from("=5I", data, 4)
    types_at, strings_at = types_at + header, strings_at + header
    names = data[strings_at : strings_at + strings]
    wanted = (names.find(f"\0{structure}\0".encode()) + 1, names.find(f"\0{field}\0".encode()) + 1)
    if not all(wanted):
        return None
    name, field_name = wanted
    for found in re.finditer(re.escape(struct.pack("=I", name)), data[types_at : types_at + types]):
        at = types_at + found.start()
        _, info, _ = struct.unpack_from("=3I", data, at)
        if found.start() % 4 or info >> 24 & 0x1F != _STRUCT:
            continue
        for place in range(info & 0xFFFF):
            member, _, bits = struct.unpack_from("=3I", data, at + 12 + 12 * place)
            if member == field_name:
                return int(bits & 0xFFFFFF) // 8
    return None
