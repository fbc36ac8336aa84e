"""Unified memory: what was moved between CPUs and GPUs on demand, for how many page faults, and of which addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.frozen import frozen
from llmtop.model import NOTED_ADDRESS, NOTED_FAULTS, NOTED_INSTRUCTION, SpanKind, TrackKind
from llmtop.units import binary_bytes, count, si

if TYPE_CHECKING:
    from llmtop.model import Trace

_TOLD = 5
"""Pages with a line of their own."""
_TO_GPU, _TO_CPU = "migration HtoD", "migration DtoH"


@frozen
class UnifiedPage:
    """What happened to one base address, or to all of them.

    Attributes:
        address: As it is written, in hexadecimal digits; empty for all.
        to_gpu, to_cpu: Bytes; `ns` is how long their copies took.
        cpu_faults, gpu_faults: How many page faults; None where they were not recorded.
        in_moves, out_moves: How many migrations to GPUs, and to the CPU.
    """

    address: str
    to_gpu: int = 0
    to_cpu: int = 0
    ns: int = 0
    cpu_faults: int | None = None
    gpu_faults: int | None = None
    in_moves: int = 0
    out_moves: int = 0

    @property
    def moved(self) -> int:
        """Bytes in both directions."""
        return self.to_gpu + self.to_cpu


@frozen
class UnifiedMemory:
    """All of it.

    Attributes:
        whole: Sums.
        pages: By address, those of which most was moved first.
        instructions: Of CPUs that met a fault, with how many, the most first.
    """

    whole: UnifiedPage
    pages: tuple[UnifiedPage, ...]
    instructions: tuple[tuple[str, int], ...]


def unified_memory(trace: Trace) -> UnifiedMemory | None:
    """What a capture tells of unified memory; None where it tells nothing."""
    sums: Counter[tuple[str, str]] = Counter()
    instructions: Counter[str] = Counter()
    for address, what, amount in (*_migrated(trace), *_faulted(trace, instructions)):
        sums[address, what] += amount
        sums["", what] += amount
    if not sums:
        return None
    addresses = dict.fromkeys(address for address, _ in sums if address)
    has_faults = SpanKind.PAGE_FAULT in trace.spans

    def page(address: str) -> UnifiedPage:
        to_gpu, to_cpu, ns, cpu, gpu, in_moves, out_moves = (
            sums[address, what] for what in ("to_gpu", "to_cpu", "ns", "cpu", "gpu", "to_gpu_moves", "to_cpu_moves")
        )
        of_cpu, of_gpu = (cpu, gpu) if has_faults else (None, None)
        return UnifiedPage(address, to_gpu, to_cpu, ns, of_cpu, of_gpu, in_moves, out_moves)

    pages = sorted(map(page, addresses), key=lambda one: (-one.moved, one.address))
    return UnifiedMemory(page(""), tuple(pages), tuple(instructions.most_common()))


def _migrated(trace: Trace) -> Iterator[tuple[str, str, int]]:
    copies = trace.spans.get(SpanKind.MEMCPY)
    ways = {_TO_GPU: "to_gpu", _TO_CPU: "to_cpu"}
    wanted = {} if copies is None else {i: ways[name] for i, name in enumerate(copies.names) if name in ways}
    if copies is None or not wanted:
        return
    for row, name in enumerate(copies.name_id):
        if name in wanted:
            address = str(copies.notes.get(row, {}).get(NOTED_ADDRESS, "(not told)"))
            moved = copies.amount[row]
            yield address, wanted[name], int(moved) if moved == moved else 0
            yield address, f"{wanted[name]}_moves", 1
            yield address, "ns", copies.end_ns[row] - copies.start_ns[row]


def _faulted(trace: Trace, instructions: Counter[str]) -> Iterator[tuple[str, str, int]]:
    faults = trace.spans.get(SpanKind.PAGE_FAULT)
    if faults is None:
        return
    of_cpu = [ids.kind(track) is TrackKind.PROCESS for track in faults.tracks]
    for row, track in enumerate(faults.track_id):
        note = faults.notes.get(row, {})
        number, address = note.get(NOTED_FAULTS, 1), str(note.get(NOTED_ADDRESS, "(not told)"))
        yield address, "cpu" if of_cpu[track] else "gpu", number if isinstance(number, int) else 1
        if of_cpu[track] and NOTED_INSTRUCTION in note:
            instructions[str(note[NOTED_INSTRUCTION])] += 1


def unified_lines(found: UnifiedMemory) -> Iterator[str]:
    """The same in sentences."""
    yield f"unified memory: {_page_text(found.whole)}, at {count(len(found.pages))} addresses"
    for page in found.pages[:_TOLD]:
        yield f"  {page.address}: {_page_text(page)}"
    if len(found.pages) > _TOLD:
        yield f"  and {count(len(found.pages) - _TOLD)} more addresses"
    if found.instructions:
        told = ", ".join(f"{instruction} {count(times)}" for instruction, times in found.instructions[:_TOLD])
        yield f"  CPU page faults by instruction: {told}"


def _page_text(page: UnifiedPage) -> str:
    rate = f" at {si(page.moved * 1e9 / page.ns, 'B/s')}" if page.ns and page.moved else ""
    moved = (
        f"{binary_bytes(page.to_gpu)} moved to GPUs ({count(page.in_moves)} times) and {binary_bytes(page.to_cpu)} to "
        f"the CPU ({count(page.out_moves)} times){rate}"
    )
    if page.cpu_faults is None or page.gpu_faults is None:
        return moved
    return f"{moved}, {count(page.cpu_faults)} CPU and {count(page.gpu_faults)} GPU page faults"


def migrations(trace: Trace) -> int:
    """How many of the copies of a capture are page migrations, which no call of the program asked for as a copy."""
    copies = trace.spans.get(SpanKind.MEMCPY)
    if copies is None:
        return 0
    moved = {i for i, name in enumerate(copies.names) if name.startswith("migration")}
    return sum(name in moved for name in copies.name_id) if moved else 0
