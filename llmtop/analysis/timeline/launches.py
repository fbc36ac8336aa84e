"""The calls that gave GPUs work, found by what joins them to it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from llmtop.analysis.timeline.host import HostThread, Label, host_threads, is_graph_launch
from llmtop.analysis.timeline.work import GpuWork
from llmtop.columns import in_order
from llmtop.model import API_CALLS, SpanKind, SpanTable, Trace

Launch: TypeAlias = tuple[HostThread, int, bool]
"""A call that gave a GPU work: its thread, when it returned, and whether it launched a graph. A plain tuple: there is
one for every gap."""


class ApiCalls:
    """Calls of one kind, found by join key; sorted columns, as a dictionary of a million calls takes 200 MB.

    Attributes:
        joins: Rising, and of which row of `spans` each is.
        by_track, are_graphs: By the number of the track, and of the name.
    """

    def __init__(self, spans: SpanTable, threads: Mapping[str, HostThread]) -> None:
        self.joins, self.rows = in_order([spans.correlation, array("q", range(len(spans)))])
        self.spans = spans
        self.by_track = [threads[track] for track in spans.tracks]
        self.are_graphs = [is_graph_launch(name) for name in spans.names]

    def find(self, join: int) -> Launch | None:
        """The call with this key."""
        i = bisect_left(self.joins, join)
        if i == len(self.joins) or self.joins[i] != join:
            return None
        row, spans = self.rows[i], self.spans
        return self.by_track[spans.track_id[row]], spans.end_ns[row], self.are_graphs[spans.name_id[row]]


class Host:
    """The CPU side: the calls that gave GPUs work, and the join keys of graph launches."""

    def __init__(self, trace: Trace, outside: Label) -> None:
        threads = host_threads(trace, outside)
        self.calls = [ApiCalls(trace.spans[kind], threads) for kind in API_CALLS if kind in trace.spans]
        self.graphs = frozenset(graph_joins(trace))

    def launch(self, join: int) -> Launch | None:
        """The call that launched what has this join key; None where it is not in the capture."""
        if join >= 0:
            for calls in self.calls:
                found = calls.find(join)
                if found is not None:
                    return found
        return None

    def dark_from(self, work: GpuWork, i: int, launch: Launch) -> int:
        """From when on a GPU may have run an untraced graph before this work; when the work began, if never.

        Graphs run in the order of launches: after the work before this one and before this one.
        """
        thread, returned, _ = launch
        since, until = work.reach[i - 1], work.starts[i]
        if not thread.untraced_ns:
            return until
        before = self.launch(work.joins[i - 1])
        launched = thread.untraced_graph(before[1] if before is not None and before[0] is thread else since, returned)
        return until if launched is None else min(max(launched, since), until)


def graph_joins(trace: Trace) -> Iterator[int]:
    """The join keys of graph launches."""
    spans = trace.spans.get(SpanKind.LAUNCH)
    if spans is not None and any(map(is_graph_launch, spans.names)):
        for join, name in zip(spans.correlation, spans.name_id, strict=True):
            if join >= 0 and is_graph_launch(spans.names[name]):
                yield join
