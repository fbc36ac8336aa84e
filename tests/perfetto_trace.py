"""A Perfetto trace as we write it, read by the messages of the package `perfetto`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from llmtop.cli.report_perfetto import write_perfetto
from llmtop.model import Trace


@dataclass(frozen=True)
class Event:
    """One event: its type without TYPE_, the names of its track and of those above it, the highest first."""

    type: str
    on: tuple[str, ...]
    t_ns: int
    name: str = ""
    value: float | None = None
    args: dict[str, str | float] = field(default_factory=dict)
    flow: int = 0
    track: int = 0


@dataclass
class Decoded:
    """All of a trace, in the order in which it is written."""

    content: bytes
    tracks: dict[int, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2

        self._of_type = perfetto_trace_pb2.TrackEvent.Type.Name
        for packet in perfetto_trace_pb2.Trace.FromString(self.content).packet:
            assert packet.trusted_packet_sequence_id == 1
            for name in packet.interned_data.event_names:
                assert name.iid not in self._names
                self._names[name.iid] = name.name
            if packet.HasField("track_descriptor"):
                assert packet.track_descriptor.uuid not in self.tracks
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.HasField("track_event"):
                self.events.append(self._event(packet.timestamp, packet.track_event))

    def of(self, type: str) -> list[Event]:
        """The events of a type."""
        return [one for one in self.events if one.type == type]

    def slices(self) -> Iterator[tuple[tuple[str, ...], str, int, int]]:
        """Track, name, start and end of each slice, as it ends: what is begun last ends first."""
        open: dict[int, list[Event]] = {}
        for one in self.events:
            if one.type == "SLICE_BEGIN":
                open.setdefault(one.track, []).append(one)
            elif one.type == "SLICE_END":
                begun = open[one.track].pop()
                yield begun.on, begun.name, begun.t_ns, one.t_ns
        assert not any(open.values()), "each that is begun ends"

    def _event(self, t_ns: int, event: Any) -> Event:
        args = {one.name: getattr(one, one.WhichOneof("value")) for one in event.debug_annotations}
        value = event.double_counter_value if event.HasField("double_counter_value") else None
        name, flow = self._names[event.name_iid] if event.name_iid else "", sum(event.flow_ids)
        type = self._of_type(event.type).removeprefix("TYPE_")
        return Event(type, self._path(event.track_uuid), t_ns, name, value, args, flow, event.track_uuid)

    def _path(self, uuid: int) -> tuple[str, ...]:
        track = self.tracks[uuid]
        above = self._path(track.parent_uuid) if track.parent_uuid else ()
        return (*above, track.name or track.process.process_name or track.thread.thread_name)


def written(trace: Trace) -> Decoded:
    """What is written of a trace."""
    file = BytesIO()
    write_perfetto(trace, file)
    return Decoded(file.getvalue())
