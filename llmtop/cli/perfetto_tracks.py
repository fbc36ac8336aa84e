"""Where in a Perfetto trace everything stands: processes and threads as such, all else as tracks of their own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.model import TrackKind

if TYPE_CHECKING:
    from llmtop.cli.perfetto_packets import PacketWriter
    from llmtop.model import Trace, TrackId

_OF_ALL = "findings and events"
_OF_NONE = "of no thread that is known"


class PerfettoTracks:
    """The tracks of a trace, each told when something is first put on it."""

    def __init__(self, trace: Trace, packets: PacketWriter) -> None:
        self._tracks = trace.tracks
        self._packets = packets
        self._numbers: dict[TrackId, int] = {}
        self._of_all = 0
        self._pids = Counter(ids.pid(one.id) for one in trace.tracks_of(TrackKind.PROCESS))
        self._users = {(ids.gpu_of(one.id), ids.pid(one.id)) for one in trace.tracks_of(TrackKind.STREAM)}

    @property
    def of_all(self) -> int:
        """Of what is of no track."""
        self._of_all = self._of_all or self._packets.group(_OF_ALL)
        return self._of_all

    def number(self, id: TrackId) -> int:
        """The track of one of the trace's."""
        if id not in self._numbers:
            self._numbers[id] = self._told(id)
        return self._numbers[id]

    def line(self, id: TrackId, title: str) -> int:
        """A new line of slices: on a track of the trace one that is called so; without a title the track itself is it.

        Several of one name are drawn as one: slices that overlap, and are not within each other, need as many.
        """
        if title:
            return self._packets.group(title, self.number(id))
        return self._packets.group(self._name(id), self._above(id))

    def _told(self, id: TrackId) -> int:
        kind = ids.kind(id)
        if kind is TrackKind.PROCESS and self._is_pid(ids.pid(id)):
            return self._packets.process(ids.pid(id), self._name(id) if id in self._tracks else "")
        if kind is TrackKind.THREAD and self._is_pid(ids.pid(id)):
            self.number(ids.process_of(id))
            return self._packets.thread(ids.pid(id), ids.tid(id), self._name(id))
        return self._packets.group(self._name(id), self._above(id))

    def _is_pid(self, pid: int) -> bool:
        """Whether a process is one of Linux and the only one with its PID: of ranks there may be several."""
        return pid > 0 and self._pids[pid] <= 1

    def _above(self, id: TrackId) -> int:
        """Of a stream the GPU, of a thread the process; the others stand alone."""
        match ids.kind(id):
            case TrackKind.STREAM | TrackKind.GPU_PROCESS:
                return self.number(ids.gpu_of(id))
            case TrackKind.THREAD:
                return self.number(ids.process_of(id))
            case _:
                return 0

    def _name(self, id: TrackId) -> str:
        """What a track is called beside all others."""
        track = self._tracks.get(id)
        name = track.name if track is not None else str(id) or _OF_NONE
        match ids.kind(id):
            case TrackKind.GPU | TrackKind.GPU_INSTANCE:
                return f"GPU {ids.gpu_label(id)}: {name}"
            case TrackKind.GPU_PROCESS:
                return f"process {ids.pid(id)}: {name}"
            case TrackKind.STREAM if sum(gpu == ids.gpu_of(id) for gpu, _ in self._users) > 1:
                return f"{name}, process {ids.pid(id)}"
            case TrackKind.NEIGHBOUR | TrackKind.ENDED:
                return f"{ids.kind(id)} {ids.pid(id)}: {name}"
            case TrackKind.HOST | TrackKind.SERVER | TrackKind.ENDPOINT:
                return f"{ids.kind(id)}: {name}"
            case _:
                return name
