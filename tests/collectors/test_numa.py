"""NUMA: which CPUs and which memory are near a GPU, from a machine's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.collectors import cgroups, numa
from llmtop.collectors.numa import cpu_nodes, facts_near, memory_by_node
from llmtop.collectors.proc_groups import NODES_NS, NodeMemory
from llmtop.collectors.proc_poll import ProcPoll
from llmtop.procfs import PAGE_BYTES

NODES = {
    0: ("0-31,64-95\n", "10 21 80\n"),
    1: ("32-63,96-127\n", "21 10 80\n"),
    2: ("\n", "80 80 10\n"),  # a GPU's memory
}
BUS_ID = "00000000:9B:00.0"


def machine(folder: Path, nodes: tuple[int, ...] = (0, 1, 2), node: str = "1\n", near: str = "32-63,96-127\n") -> Path:
    """Its sysfs, with a GPU that hangs on a node."""
    for number in nodes:
        own = folder / "devices/system/node" / f"node{number}"
        own.mkdir(parents=True)
        (own / "cpulist").write_text(NODES[number][0])
        (own / "distance").write_text(NODES[number][1])
    gpu = folder / "bus/pci/devices/0000:9b:00.0"
    gpu.mkdir(parents=True)
    (gpu / "numa_node").write_text(node)
    (gpu / "local_cpulist").write_text(near)
    return folder


def test_a_gpu_is_near_the_cpus_of_its_node(tmp_path: Path) -> None:
    """The farthest CPUs are at 21: what is at 80 has none."""
    assert cpu_nodes(machine(tmp_path)) == (0, 1)
    assert facts_near(BUS_ID, tmp_path) == {"numa_node": 1, "near_cpus": "32-63,96-127", "numa_distance": 21}


def test_on_one_node_nothing_is_far(tmp_path: Path) -> None:
    assert facts_near(BUS_ID, machine(tmp_path, nodes=(0,))) == {}
    assert facts_near(BUS_ID, tmp_path / "nothing") == {}


@pytest.mark.parametrize(("bus_id", "node"), [(None, "1\n"), ("nonsense", "1\n"), ("00000000:01:00.0", "1\n")])
def test_of_a_gpu_that_is_not_found_nothing_is_told(tmp_path: Path, bus_id: str | None, node: str) -> None:
    assert facts_near(bus_id, machine(tmp_path, node=node)) == {}


def test_firmware_that_does_not_say_is_believed(tmp_path: Path) -> None:
    """A node of -1 is none; without a row of distances as long as there are nodes only the distance lacks."""
    assert facts_near(BUS_ID, machine(tmp_path / "a", node="-1\n")) == {}
    odd = machine(tmp_path / "b")
    (odd / "devices/system/node/node1/distance").write_text("21 10\n")
    assert facts_near(BUS_ID, odd) == {"numa_node": 1, "near_cpus": "32-63,96-127"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("anon N0=4096 N1=12288\nfile N0=1 N1=2\n", {0: 4096, 1: 12288}),
        ("total=9 N0=3 N1=6\nfile=1 N0=1 N1=0\nanon=8 N0=2 N1=6\n", {0: 2 * PAGE_BYTES, 1: 6 * PAGE_BYTES}),
        ("file N0=1\n", {}),
        ("anon N0=x Nx=3\n", {}),
        ("", {}),
    ],
)
def test_memory_by_node_of_both_versions_of_cgroups(tmp_path: Path, text: str, found: dict[int, int]) -> None:
    path = tmp_path / "memory.numa_stat"
    path.write_text(text)
    assert memory_by_node(path) == found
    assert memory_by_node(tmp_path / "gone") == {}


def test_the_servers_memory_is_read_by_node_every_ten_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "memory.numa_stat"
    path.write_text("anon N0=4096 N1=8192\n")
    monkeypatch.setattr(cgroups, "node_memory_of", lambda _: path)
    monkeypatch.setattr(numa, "cpu_nodes", lambda: (0, 1))
    now = [0]
    reader = NodeMemory(7, lambda: now[0])

    def read() -> dict[str, float | None]:
        news = ProcPoll()
        reader.read(news)
        assert {one.track for one in news.readings} <= {ids.process(7)}
        return {one.metric.name: one.value for one in news.readings}

    of = {node: v.labelled(v.CGROUP_NODE_MEMORY, str(node)).name for node in (0, 1)}
    assert read() == {of[0]: 4096.0, of[1]: 8192.0}
    now[0] = NODES_NS - 1
    assert read() == {}
    now[0] = NODES_NS
    assert read() == {of[0]: 4096.0, of[1]: 8192.0}
    monkeypatch.setattr(numa, "cpu_nodes", lambda: (0,))
    reader = NodeMemory(7, lambda: now[0])
    assert read() == {}


def test_the_file_of_a_group_is_found(tmp_path: Path) -> None:
    mount, proc = tmp_path / "cgroup", tmp_path / "proc"
    for folder in (proc / "7", mount / "pod"):
        folder.mkdir(parents=True)
    (proc / "7" / "cgroup").write_text("0::/pod\n")
    assert cgroups.node_memory_of(7, proc, mount) is None
    (mount / "pod" / "memory.numa_stat").write_text("anon N0=1\n")
    assert cgroups.node_memory_of(7, proc, mount) == mount / "pod" / "memory.numa_stat"
