"""Kernels of CUDA graphs that were traced node by node: where in the program each was captured."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from llmtop.columns import in_order
from llmtop.model import SpanKind, SpanTable
from llmtop.parsers.nsys_export import Capture, Export, Rows, SqlColumns, span_table

_TABLES = ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS")
"""The same; the second name up to 2023.4."""
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COLUMNS = ("start", "end", "globalTid", "nameId", "graphNodeId", "originalGraphNodeId")


class _Node(NamedTuple):
    """The call that made a node, and of which other node it is a clone (None of none)."""

    start_ns: int
    end_ns: int
    thread: int
    name: int
    original: int | None


def has_nodes(export: Export) -> bool:
    """Whether it is known where the nodes of graphs were made, and which kernel is of which."""
    return _table(export) is not None and "graphNodeId" in export.columns(_KERNELS)


def _table(export: Export) -> str | None:
    return next((table for table in _TABLES if export.has(table, *_COLUMNS)), None)


def captured(capture: Capture, kernels: SpanTable) -> SpanTable:
    """Of each kernel of a graph the call by which it was captured; `correlation` is the row of the kernel."""
    export, columns = capture.export, [array("q") for _ in range(5)]
    nodes = _nodes(export)
    rows = {key: row for row, key in enumerate(zip(kernels.start_ns, kernels.end_ns, kernels.correlation, strict=True))}
    for start, end, join, pid, number in _kernels(export):
        node, row = _original(nodes, pid, number), rows.get((start, end, join))
        if node is not None and row is not None:
            values = node.start_ns, node.end_ns, node.name, node.thread, row
            for column, value in zip(columns, values, strict=True):
                column.append(value)
    texts = export.strings(set(columns[2]))
    return span_table(
        SpanKind.CAPTURED,
        Rows(in_order(columns)),
        lambda key: texts.get(key, f"call {key}"),
        capture.devices.thread_track,
    )


def _kernels(export: Export) -> Iterator[tuple[int, int, int, int, int]]:
    """Start, end, join key, process and node of the kernels that are of graphs."""
    of = SqlColumns(export.columns(_KERNELS), checked=True)
    query = f"SELECT {of.integer('start')}, {of.integer('end')}, {of.join}, {of.pid}, graphNodeId FROM {_KERNELS}"
    yield from export.execute(f"{query} WHERE typeof(graphNodeId) = 'integer'")


def _nodes(export: Export) -> Mapping[tuple[int, int], _Node]:
    """By process and number; of a node that is told of twice the first counts."""
    table = _table(export)
    found: dict[tuple[int, int], _Node] = {}
    wanted = ", ".join(f'"{column}"' for column in _COLUMNS)
    for *numbers, original in export.execute(f"SELECT {wanted} FROM {table}"):
        if all(isinstance(one, int) for one in numbers):
            start, end, thread, name, number = numbers
            known = original if isinstance(original, int) and original > 0 else None
            found.setdefault(((thread >> 24) & 0xFFFFFF, number), _Node(start, end, thread, name, known))
    return found


def _original(nodes: Mapping[tuple[int, int], _Node], pid: int, number: int) -> _Node | None:
    """The node that was captured, of which this one is a clone of clones; None where they are clones in a circle."""
    node, met = nodes.get((pid, number)), {number}
    while node is not None and node.original is not None:
        if node.original in met:
            return None
        met.add(node.original)
        node = nodes.get((pid, node.original), node._replace(original=None))
    return node
