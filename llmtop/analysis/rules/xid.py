"""The driver has reported a fault of a GPU, by a number: an XID."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import gpu_names, on_gpus
from llmtop.analysis.series.readings import gpu_tracks, own_gpus
from llmtop.analysis.server.fault import for_s
from llmtop.model import Finding, Severity, Trace, TrackId, TrackKind, XidReport

if TYPE_CHECKING:
    from llmtop.model import Mark

id = "xid"
summary = "The NVIDIA driver has reported a fault of a GPU, as long as that is within what is kept."
source = "NVIDIA, XID Errors (analysis of the catalogue)"

_LISTED = 4
"""Reports of one code that are told as evidence."""
_OF_PROGRAMS = (13, 31, 43)
"""What the driver reports where a kernel has failed, and a core dump of the GPU tells which (NVIDIA, XID Errors)."""
_NO_ACTION = "by itself it asks for nothing; if it comes again, NVIDIA's catalogue of XIDs says more"


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Each code that was reported, the newest first, of all GPUs together; of GPUs of others it is information."""
    by_code: dict[int, tuple[XidReport, list[Mark]]] = {}
    for mark in reversed(trace.marks):
        if isinstance(mark.about, XidReport):
            by_code.setdefault(mark.about.code, (mark.about, []))[1].append(mark)
    for newest, marks in by_code.values():
        yield _finding(trace, newest, marks)
    for track in own_gpus(trace):
        yield from unjudged(id, trace.why_missing(whats.facet(track.id, whats.Facet.XID), whats.ANY_XID))


def _finding(trace: Trace, newest: XidReport, marks: list[Mark]) -> Finding:
    tracks = [TrackId(track) for track in dict.fromkeys(mark.track for mark in marks)]
    is_of_others = {ids.gpu_of(track) for track in tracks} <= _gpus_of_others(trace)
    hit_another = _hit_another(trace, newest)
    severity = Severity.WARNING if hit_another and marks[0].severity is Severity.ERROR else marks[0].severity
    no_dump = trace.why_missing(whats.CORE_DUMPS) if newest.code in _OF_PROGRAMS and not hit_another else None
    action = f"{newest.action or _NO_ACTION}{', not this server' if hit_another and newest.action else ''}"
    when = f"{for_s(marks[0].t_ns, trace.end_ns)} ago{', of another program than this server' if hit_another else ''}"
    return Finding(
        rule=id,
        severity=Severity.INFO if is_of_others else severity,
        subject=gpu_names(tracks).strip(),
        message=f"XID {newest.code}{on_gpus(tracks)}, {when}: {newest.meaning}",
        evidence=(
            *(_told(trace, mark) for mark in marks[:_LISTED]),
            *([] if no_dump is None else [f"no core dump tells which kernel it was: {no_dump.reason}"]),
        ),
        action=f"{action}; to know the kernel and its line the next time: {no_dump.remedy}"
        if no_dump is not None and no_dump.remedy
        else action,
        next_command="sudo dmesg -T | grep -iE 'nvrm|xid' | tail",
        source=source,
    )


def _hit_another(trace: Trace, report: XidReport) -> bool:
    """Whether a process was hit that is none of the server's, as far as these are known, and was none either."""
    own = [track for track in trace.tracks.values() if track.kind in (TrackKind.PROCESS, TrackKind.ENDED)]
    is_known = any(track.kind is TrackKind.PROCESS for track in own)
    return is_known and report.pid is not None and report.pid not in {ids.pid(track.id) for track in own}


def _told(trace: Trace, mark: Mark) -> str:
    where = gpu_names([TrackId(mark.track)]).strip()
    return f"{where}, {for_s(mark.t_ns, trace.end_ns)} ago (NVML's events, or the kernel log)"


def _gpus_of_others(trace: Trace) -> set[TrackId]:
    """Those that are known not to be the server's."""
    return {track.id for track in gpu_tracks(trace)} - {track.id for track in own_gpus(trace)}
