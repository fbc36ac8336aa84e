"""What a kernel moves through the memory system: the units, what each keeps from the next one, the traffic between.

The counters are those of Nsight Compute's memory chart and memory tables (sections MemoryWorkloadAnalysis_Chart and
_Tables; Kernel Profiling Guide, Memory Chart and Memory Tables). A sector is 32 bytes in every cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum
from functools import lru_cache

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, first, number, product, total
from llmtop.analysis.kernels.counting import not_collected, not_counted
from llmtop.analysis.kernels.table import kernels_of
from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown

SOURCE = "counters of Nsight Compute's memory chart and tables (MemoryWorkloadAnalysis_Chart, _Tables)"
_SECTIONS = (c.MEMORY, "MemoryWorkloadAnalysis_Chart", "MemoryWorkloadAnalysis_Tables")
_SECTOR = 32
"""Bytes of a cache's sector, on every GPU that Nsight Compute knows."""
_ALL = 100.0
_SEVERAL_RUNS = "above 100 %: its parts were counted in several runs of the kernel, which differed"


class MemoryUnit(StrEnum):
    """Who asks for data, by which way, or where they are: as it is called."""

    KERNEL = "kernel"
    GLOBAL = "global"
    TMA = "TMA"
    LOCAL = "local"
    TEXTURE = "texture"
    SURFACE = "surface"
    SHARED = "shared"
    L1 = "L1/TEX"
    L2 = "L2"
    DEVICE = "device"
    SYSTEM = "system"
    PEER = "peer"


WAYS = tuple(MemoryUnit)[1:7]
"""The ways by which a kernel asks for data: spaces of addresses, and the copies of the tensor memory accelerator."""
MEMORIES = (MemoryUnit.DEVICE, MemoryUnit.SYSTEM, MemoryUnit.PEER)
"""What lies behind L2."""


@frozen
class MemoryFlow:
    """What goes one way between two units; None of what nothing counts there.

    Attributes:
        requests: How often it was asked for.
        of: What these are: requests of warps, instructions, wavefronts.
    """

    requests: float | Unknown | None
    bytes: float | Unknown | None
    of: str = "requests"

    @property
    def is_known(self) -> bool:
        """Whether any of it is."""
        return any(isinstance(value, float) for value in (self.requests, self.bytes))

    @property
    def is_idle(self) -> bool:
        """Whether it is known that nothing went that way."""
        told = [value for value in (self.requests, self.bytes) if value is not None]
        return all(isinstance(value, float) and not value for value in told)


@frozen
class MemoryLink:
    """Between a unit and one behind it: what is read from that, and what is written to it."""

    near: MemoryUnit
    far: MemoryUnit
    read: MemoryFlow
    written: MemoryFlow


@frozen
class MemoryBlock:
    """A unit.

    Attributes:
        hits: % of the sectors asked for that it had; of ways to L1 of those that were read. None of what has no tags.
        busy: % of what it can do at most; None where that is not counted of such a unit.
    """

    unit: MemoryUnit
    hits: float | Unknown | None = None
    busy: float | Unknown | None = None


@frozen
class MemoryChart:
    """All of it, for one launch.

    Attributes:
        links: From the kernel to each way, from L1 to L2, from L2 to each memory.
        missing: Why some of it is not known, with the command that collects it; None where all is.
    """

    launch: int
    links: tuple[MemoryLink, ...]
    blocks: tuple[MemoryBlock, ...]
    missing: Unknown | None
    notes: tuple[str, ...] = ()

    def link(self, far: MemoryUnit) -> MemoryLink | None:
        """The one that leads to a unit; None where this GPU has no such way."""
        return next((one for one in self.links if one.far is far), None)

    def block(self, unit: MemoryUnit) -> MemoryBlock:
        """What is known of a unit."""
        return next(one for one in self.blocks if one.unit is unit)


@frozen
class _Way:
    """The counters of a way: (of reading, of writing)."""

    requests: tuple[tuple[str, ...], tuple[str, ...]]
    bytes: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    sectors: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    of: str = "requests"


def _of_l1(reads: tuple[str, ...], writes: tuple[str, ...]) -> _Way:
    requests, sectors = (
        tuple(tuple(f"l1tex__t_{what}_pipe_{name}.sum" for name in names) for names in (reads, writes))
        for what in ("requests", "sectors")
    )
    return _Way((requests[0], requests[1]), sectors=(sectors[0], sectors[1]))


_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_TMA_BYTES = "l1tex__m_{}_bytes_mem_global_op_tma_{}.sum"
_WAYS = {
    MemoryUnit.GLOBAL: _of_l1(
        ("lsu_mem_global_op_ld",), ("lsu_mem_global_op_st", "lsu_mem_global_op_atom", "lsu_mem_global_op_red")
    ),
    MemoryUnit.TMA: _Way(
        (("smsp__inst_executed_op_tma_ld.sum",), ("smsp__inst_executed_op_tma_st.sum",)),
        bytes=((_TMA_BYTES.format("xbar2l1tex_read", "ld"),), (_TMA_BYTES.format("l1tex2xbar_write", "st"),)),
        of="instructions",
    ),
    MemoryUnit.LOCAL: _of_l1(("lsu_mem_local_op_ld",), ("lsu_mem_local_op_st",)),
    MemoryUnit.TEXTURE: _of_l1(("tex_mem_texture",), ()),
    MemoryUnit.SURFACE: _of_l1(
        ("tex_mem_surface_op_ld",), ("tex_mem_surface_op_st", "tex_mem_surface_op_atom", "tex_mem_surface_op_red")
    ),
    MemoryUnit.SHARED: _Way(((_SHARED.format("ld"),), (_SHARED.format("st"),)), of="wavefronts"),
}
"""Atomics and reductions count as writing. Copies by TMA came with compute capability 9.0."""
_TO_L2 = _Way(
    (("lts__t_requests_srcunit_tex_op_read.sum",), ("lts__t_requests_srcunit_tex_op_write.sum",)),
    bytes=(("l1tex__m_xbar2l1tex_read_bytes.sum",), ("l1tex__m_l1tex2xbar_write_bytes.sum",)),
)
_DRAM = ((c.DRAM_READ_BYTES, "dram__bytes_op_read.sum"), (c.DRAM_WRITE_BYTES, "dram__bytes_op_write.sum"))
"""Each has another name from compute capability 12.0 on."""
_BEHIND_L2 = "lts__t_sectors_srcunit_tex_aperture_{}_op_{}_lookup_miss.sum"
_APERTURES = {MemoryUnit.SYSTEM: "sysmem", MemoryUnit.PEER: "peer"}
_HITS = {
    MemoryUnit.GLOBAL: "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct",
    MemoryUnit.LOCAL: "l1tex__t_sector_pipe_lsu_mem_local_op_ld_hit_rate.pct",
    MemoryUnit.TEXTURE: "l1tex__t_sector_pipe_tex_mem_texture_op_tex_hit_rate.pct",
    MemoryUnit.SURFACE: "l1tex__t_sector_pipe_tex_mem_surface_op_ld_hit_rate.pct",
    MemoryUnit.L1: c.L1_HIT_PERCENT,
    MemoryUnit.L2: c.L2_HIT_PERCENT,
}
_L1_PERCENT = "l1tex__throughput.avg.pct_of_peak_sustained_{}"
_BUSY = {
    MemoryUnit.L1: (_L1_PERCENT.format("elapsed"), _L1_PERCENT.format("active")),
    MemoryUnit.L2: (c.L2_PERCENT,),
    MemoryUnit.DEVICE: c.DRAM_PERCENT,
}


@lru_cache(maxsize=64)
def memory_chart(trace: Trace, launch: int) -> MemoryChart | Unknown:
    """Of one launch of a report; why nothing of it is known."""
    if (why := not_counted(trace)) is not None:
        return why
    kernels = kernels_of(trace)
    if kernels.has_failed(launch):
        return Unknown("the launch failed")
    metrics, why_not = kernels.metrics(launch), not_collected(trace, launch, "traffic between units", *_SECTIONS)
    links = tuple(_links(metrics, why_not))
    blocks = tuple(_blocks(metrics, {one.far for one in links if one.read.is_idle}, why_not))
    values = [value for one in links for flow in (one.read, one.written) for value in (flow.requests, flow.bytes)]
    values += [value for one in blocks for value in (one.hits, one.busy)]
    if not any(isinstance(value, float) for value in values):
        return why_not
    above = [one.unit for one in blocks if isinstance(one.hits, float) and one.hits > _ALL]
    notes = tuple(f"{unit} hits {_SEVERAL_RUNS}" for unit in above)
    return MemoryChart(launch, links, blocks, why_not if why_not in values else None, notes)


def _links(metrics: Counters, why: Unknown) -> Iterator[MemoryLink]:
    for unit, way in _WAYS.items():
        if unit is not MemoryUnit.TMA or any(name in metrics for names in way.requests for name in names):
            yield MemoryLink(MemoryUnit.KERNEL, unit, *_flows(metrics, way, why))
    yield MemoryLink(MemoryUnit.L1, MemoryUnit.L2, *_flows(metrics, _TO_L2, why))
    read, written = (MemoryFlow(None, _or(first(metrics, names), why)) for names in _DRAM)
    yield MemoryLink(MemoryUnit.L2, MemoryUnit.DEVICE, read, written)
    for unit, aperture in _APERTURES.items():
        sectors = (number(metrics, _BEHIND_L2.format(aperture, op)) for op in ("read", "write"))
        read, written = (MemoryFlow(None, _or(product(_SECTOR, one), why)) for one in sectors)
        yield MemoryLink(MemoryUnit.L2, unit, read, written)


def _flows(metrics: Counters, way: _Way, why: Unknown) -> Iterator[MemoryFlow]:
    """Reading, then writing."""
    for i, requests in enumerate(way.requests):
        moved: float | Unknown | None = None
        if way.bytes is not None:
            moved = _sum(metrics, way.bytes[i], why)
        elif way.sectors is not None:
            sectors = _sum(metrics, way.sectors[i], why)
            moved = _SECTOR * sectors if isinstance(sectors, float) else sectors
        yield MemoryFlow(_sum(metrics, requests, why), moved, way.of)


def _sum(metrics: Counters, names: tuple[str, ...], why: Unknown) -> float | Unknown | None:
    """None where there is nothing to count: nobody writes through the texture unit."""
    if not names:
        return None
    return _or(total(number(metrics, name) for name in names), why)


def _or(value: float | None, why: Unknown) -> float | Unknown:
    return why if value is None else float(value)


def _blocks(metrics: Counters, unread: Collection[MemoryUnit], why: Unknown) -> Iterator[MemoryBlock]:
    """Of a way by which nothing was read none of it can have been there: the tool writes 0."""
    for unit in MemoryUnit:
        has_hits = unit in _HITS and not (unit in unread and unit in WAYS)
        hits = _or(number(metrics, _HITS[unit]), why) if has_hits else None
        busy = _or(first(metrics, _BUSY[unit]), why) if unit in _BUSY else None
        yield MemoryBlock(unit, hits, busy)
