"""What of a machine is near what: NUMA nodes with their CPUs, GPUs and memory, as sysfs and cgroups tell it.

A machine whose CPUs are all of one node tells nothing: nothing is far there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llmtop import procfs
from llmtop.collectors.kernel_log import pci_address
from llmtop.facts import GpuFact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmtop.model import Fact

SYSFS = Path("/sys")
_NODES, _PCI = "devices/system/node", "bus/pci/devices"
_PAGE_KEY = "anon="
"""How version 1 of cgroups begins the line in pages; version 2 has a space there, and bytes."""


def cpu_nodes(sysfs: Path = SYSFS) -> tuple[int, ...]:
    """The nodes that have CPUs; a GPU's memory can be a node too, without any."""
    folders = (sysfs / _NODES).glob("node[0-9]*")
    return tuple(sorted(int(one.name[4:]) for one in folders if (procfs.read_text(one / "cpulist") or "").strip()))


def facts_near(bus_id: Fact | None, sysfs: Path = SYSFS) -> dict[str, Fact]:
    """A GPU's node, the CPUs that are near it, and how far the farthest others are (ACPI SLIT: 10 is near).

    Nothing on a machine of one node, and where the firmware does not say.

    Args:
        bus_id: The GPU's PCI address, as NVML writes it.
        sysfs: Where the kernel tells of devices.
    """
    address = pci_address(bus_id) if isinstance(bus_id, str) else None
    nodes = cpu_nodes(sysfs)
    if address is None or len(nodes) < 2:
        return {}
    domain, bus, device = address
    folder = sysfs / _PCI / f"{domain:04x}:{bus:02x}:{device:02x}.0"
    node, cpus = ((procfs.read_text(folder / name) or "").strip() for name in ("numa_node", "local_cpulist"))
    if not node.isdecimal() or not cpus:
        return {}
    facts: dict[str, Fact] = {GpuFact.NUMA_NODE: int(node), GpuFact.NEAR_CPUS: cpus}
    farthest = _farthest(int(node), nodes, sysfs)
    return facts if farthest is None else facts | {GpuFact.NUMA_DISTANCE: farthest}


def _farthest(node: int, nodes: tuple[int, ...], sysfs: Path) -> int | None:
    """The distance to the farthest node with CPUs; a row has one for each node in the order of their numbers."""
    every = sorted(int(one.name[4:]) for one in (sysfs / _NODES).glob("node[0-9]*"))
    row = (procfs.read_text(sysfs / _NODES / f"node{node}" / "distance") or "").split()
    if len(row) != len(every) or not all(one.isdecimal() for one in row):
        return None
    return max(int(far) for far, other in zip(row, every, strict=True) if other in nodes)


def memory_by_node(numa_stat: Path) -> Mapping[int, int]:
    """Bytes of a cgroup's own (anonymous) memory on each node; empty where the file is gone or tells none."""
    for line in (procfs.read_text(numa_stat) or "").splitlines():
        what, *parts = line.split()
        if what == "anon" or what.startswith(_PAGE_KEY):
            unit = procfs.PAGE_BYTES if what.startswith(_PAGE_KEY) else 1
            told = (part.removeprefix("N").partition("=") for part in parts)
            return {int(n): int(count) * unit for n, _, count in told if n.isdecimal() and count.isdecimal()}
    return {}
