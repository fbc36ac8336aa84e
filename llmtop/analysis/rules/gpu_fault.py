"""Kernels that failed, of the core dump that the driver left of the GPU."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from llmtop.model import FailedWarp, Finding, GpuFault, Severity, Trace, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

id = "gpu-fault"
summary = "A kernel failed: what it did, where in the source, in which thread."
source = "CUDA-GDB: CUDA exception codes (CUDA_EXCEPTION_1 ...); CUDA C++ Programming Guide"

_OUTSIDE = (
    "look for an index that leaves what was allocated (the last block, a size that is no multiple of the block) and "
    "for memory that is freed or reused while the kernel runs; compute-sanitizer --tool memcheck names the allocation"
)
_MISALIGNED = (
    "an access must begin at a multiple of its size: look for vectors (float4, half2) read through pointers with an "
    "odd offset, and for pointers made from bytes"
)
_STACK = "end the recursion, or make the stack larger: cudaDeviceSetLimit(cudaLimitStackSize, ...)"
_CODE = "look for a function pointer that is none of this GPU's, for code of another GPU, and for __trap()"
_CLUSTER = "blocks of a cluster must all run while their shared memory is used: cluster.sync() before any of them ends"
_WHAT_TO_DO: Final = {
    0: "the kernel ended itself by __trap() or stopped at __brkpt(): a check of its own failed; the line says which",
    2: _STACK,
    3: _STACK,
    4: _CODE,
    5: "an address in shared or local memory lies beyond what the block or thread has: look at the index, and at the "
    "size of dynamic shared memory that the launch gives",
    6: _MISALIGNED,
    8: _CODE,
    9: _STACK,
    11: _MISALIGNED,
    12: "an assert() of the kernel failed: the program's standard output names it, with block and thread",
    17: _CLUSTER,
    18: _CLUSTER,
    19: "a function wrote beyond an array of its own: look at the indices of local arrays",
}
_ADDRESS = re.compile(r"\[R(\d+)(\.64)?(?:\+(-?0x[0-9a-f]+))?\]")
_GONE = "in a thread that had ended before the GPU was read"
_SHOWN = 4
"""Blocks that are named."""
_UNPACKING: Final = {".gz": "gunzip -k", ".xz": "unxz -k", ".zst": "unzstd"}
"""What unpacks a file beside itself and keeps it, by how its name ends."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each exception and place in the code, that of the most warps first."""
    for faults in by_place(trace.faults):
        yield of_place(faults, _gpu(trace, faults[0]), _debugging(trace.origin.path))


def by_place(faults: Sequence[GpuFault]) -> list[list[GpuFault]]:
    """Those of one exception and place in the code together, the most first."""
    groups: dict[tuple[str, str, int], list[GpuFault]] = {}
    for fault in faults:
        groups.setdefault((fault.exception, fault.function, fault.offset), []).append(fault)
    return sorted(groups.values(), key=lambda faults: -len(faults))


def _gpu(trace: Trace, fault: GpuFault) -> str:
    gpu = trace.tracks.get(fault.gpu)
    return gpu.name if gpu else fault.gpu


def of_place(faults: Sequence[GpuFault], gpu: str, next_command: str) -> Finding:
    """What is said of faults of one exception and place.

    Args:
        faults: These, at least one.
        gpu: What their GPU is called.
        next_command: What to look at them with.
    """
    first = next((fault for fault in faults if fault.stood is not None and fault.stood.lane is not None), faults[0])
    return Finding(
        rule=id,
        severity=Severity.ERROR,
        subject=first.kernel,
        message=f"{first.exception}{_at(first)}, {_GONE if first.stood is None else _who(first.stood)}",
        evidence=tuple(_evidence(gpu, first, faults)),
        action=_WHAT_TO_DO.get(first.code, _OUTSIDE),
        next_command=next_command,
        source=source,
        parts=(first.kernel,),
    )


def _debugging(path: str) -> str:
    """The command that opens a dump, which the debugger wants unpacked."""
    end = next((end for end in _UNPACKING if path.endswith(end)), "")
    unpacking = f"{_UNPACKING[end]} {shlex.quote(path)} && " if end else ""
    return f"{unpacking}cuda-gdb -ex {shlex.quote(f'target cudacore {path.removesuffix(end)}')}"


def _at(fault: GpuFault) -> str:
    if not isinstance(fault.place, Unknown):
        return f" at {fault.place}"
    return f" at {fault.function}+{fault.offset:#x}" if fault.function else f" at {fault.pc:#x}"


def _who(stood: FailedWarp) -> str:
    thread = f"block {_index(stood.block_index)}"
    if stood.lane is None and stood.lanes > 1:
        return f"{thread}, one of {stood.lanes} threads from {_index(stood.thread_index)} on"
    return f"{thread}, thread {_index(stood.thread_index)}"


def _index(place: tuple[int, int, int]) -> str:
    return "({},{},{})".format(*place)


def _evidence(gpu: str, first: GpuFault, faults: Sequence[GpuFault]) -> Iterator[str]:
    if first.stood is None:
        yield f"SM {first.sm} of {gpu}; a store is not waited for: the GPU keeps where it was, and not whose it was"
    else:
        yield from _places(first.sm, gpu, first.stood)
    exactly = "" if first.is_exact else " (where the warp stood: the GPU did not keep the address of the failing one)"
    text = first.instruction
    what = f"not shown: {text}" if isinstance(text, Unknown) else text
    yield f"instruction at {first.function or 'an unknown function'}+{first.offset:#x}{exactly}: {what}"
    if (address := accessed(first)) is not None:
        yield f"address {address:#x}, as the registers stand"
    if isinstance(first.place, Unknown):
        yield f"{first.place}"
    stood = [fault.stood for fault in faults if fault.stood is not None]
    if len(stood) > 1:
        blocks = list(dict.fromkeys(_index(one.block_index) for one in stood))
        more = ", ..." if len(blocks) > _SHOWN else ""
        yield f"{len(stood)} warps failed so, of blocks {', '.join(blocks[:_SHOWN])}{more}"


def _places(sm: int, gpu: str, stood: FailedWarp) -> Iterator[str]:
    yield f"grid {_index(stood.grid)} of blocks {_index(stood.block)} on {gpu}"
    yield f"SM {sm}, warp {stood.warp}{'' if stood.lane is None else f', lane {stood.lane}'}"
    if stood.lane is not None and stood.lanes > 1:
        yield f"of {stood.lanes} threads of the warp this one alone passed the predicate of the instruction"


def accessed(fault: GpuFault) -> int | None:
    """The address that an instruction goes to, by the registers of its thread; None where its text does not tell.

    They are those of when the warp stood: an instruction behind it may have changed them.
    """
    found = None if isinstance(fault.instruction, Unknown) else _ADDRESS.search(fault.instruction)
    if found is None:
        return None
    at = int(found[1])
    words = fault.registers[at : at + (2 if found[2] else 1)]
    if len(words) < (2 if found[2] else 1):
        return None
    bits = 64 if found[2] else 32
    base = sum(word << 32 * i for i, word in enumerate(words))
    return (base + int(found[3] or "0", 16)) % (1 << bits)
