"""A fault that the driver has reported stands in the findings as long as it is within what is kept."""

from __future__ import annotations

from dataclasses import replace

from llmtop import ids, whats
from llmtop.analysis.rules import xid
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import (
    NS_PER_S,
    Finding,
    Mark,
    MarkKind,
    Missing,
    Severity,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    XidReport,
)
from tests.analysis.verdict_scenes import ALIVE, ENGINE_KILLED, Scene

TOUCHED = XidReport(31, "memory page fault (pid 7)", "restart the program")
FREED = XidReport(45, "work was cleaned up", "")


def reported(*marks: tuple[int, TrackId, XidReport, Severity], scene: Scene = ALIVE) -> Trace:
    """A server of which the driver has reported these: (seconds before now, GPU, what, how grave)."""
    trace = scene.trace()
    kept = (
        Mark(trace.end_ns - ago * NS_PER_S, MarkKind.XID, track, f"XID {one.code}", severity, about=one)
        for ago, track, one, severity in marks
    )
    return replace(trace, marks=(*trace.marks, *kept))


def with_process(trace: Trace, pid: int) -> Trace:
    """A server of this process alone."""
    others = {at: track for at, track in trace.tracks.items() if track.kind is not TrackKind.PROCESS}
    track = Track(ids.process(pid), TrackKind.PROCESS, "EngineCore")
    return replace(trace, tracks={**others, track.id: track})


def said(trace: Trace) -> list[Finding]:
    return [one for one in xid.check(trace) if isinstance(one, Finding)]


def test_a_code_is_told_once_with_the_newest_report_first() -> None:
    grave = Severity.ERROR
    trace = reported(
        (70, ids.gpu(0), TOUCHED, grave), (40, ids.gpu(0), FREED, Severity.WARNING), (12, ids.gpu(0), TOUCHED, grave)
    )
    touched, freed = said(trace)
    assert (touched.severity, touched.subject) == (Severity.ERROR, "GPU 0")
    assert touched.message == "XID 31, 12 s ago: memory page fault (pid 7)"
    assert touched.action == "restart the program"
    assert touched.evidence == (
        "GPU 0, 12 s ago (NVML's events, or the kernel log)",
        "GPU 0, 70 s ago (NVML's events, or the kernel log)",
    )
    assert (freed.severity, freed.message) == (Severity.WARNING, "XID 45, 40 s ago: work was cleaned up")
    assert freed.action.startswith("by itself it asks for nothing")


def test_what_hit_another_program_is_not_said_of_the_server() -> None:
    """Whose PID a report names is known, as long as the server's processes are: also of one that has been replaced."""
    trace = reported((12, ids.gpu(0), TOUCHED, Severity.ERROR))
    for pid, severity, when, action in (
        (7, Severity.ERROR, "12 s ago: ", "restart the program"),
        (
            8,
            Severity.WARNING,
            "12 s ago, of another program than this server: ",
            "restart the program, not this server",
        ),
    ):
        (found,) = said(with_process(trace, pid))
        assert (found.severity, found.action) == (severity, action)
        assert when in found.message


def test_the_process_that_ended_of_it_was_the_servers() -> None:
    """A worker whose kernel failed is gone before anybody reads of it; the front end lives on."""
    trace = with_process(reported((12, ids.gpu(0), TOUCHED, Severity.ERROR)), 8)
    ended = Track(ids.ended(7, 99), TrackKind.ENDED, "EngineCore")
    (found,) = said(replace(trace, tracks={**trace.tracks, ended.id: ended}))
    assert (found.severity, found.action) == (Severity.ERROR, "restart the program")


def test_a_report_that_names_no_process_may_be_the_servers() -> None:
    assert (TOUCHED.pid, FREED.pid) == (7, None)
    (found,) = said(with_process(reported((12, ids.gpu(0), FREED, Severity.ERROR)), 8))
    assert (found.severity, "another program" in found.message) == (Severity.ERROR, False)


def test_several_gpus_with_one_code_are_one_thing_to_know() -> None:
    trace = reported(
        *((9 - i, ids.gpu(i), TOUCHED, Severity.ERROR) for i in range(3)), scene=ALIVE.but(gpus=(50.0,) * 4)
    )
    (finding,) = said(trace)
    assert (finding.subject, finding.message[:27]) == ("GPUs 2, 1, 0", "XID 31 on 3 GPUs, 7 s ago: ")


def test_where_nothing_tells_which_gpu_it_is_none_is_named() -> None:
    (finding,) = said(reported((5, ids.SOME_GPU, TOUCHED, Severity.ERROR)))
    assert (finding.severity, finding.subject) == (Severity.ERROR, "GPU")


def test_on_a_gpu_that_is_not_the_servers_it_is_information() -> None:
    trace = reported((5, ids.gpu(0), TOUCHED, Severity.ERROR))
    held = {id: track for id, track in trace.tracks.items() if track.kind is not TrackKind.GPU_PROCESS}
    without = {
        id: replace(track, facts={**track.facts, "gpus_open": 0}) if track.kind is TrackKind.PROCESS else track
        for id, track in held.items()
    }
    assert [one.severity for one in said(replace(trace, tracks=without))] == [Severity.INFO]


def test_it_speaks_beside_a_server_that_died_of_it() -> None:
    found = diagnose(reported((6, ids.gpu(0), TOUCHED, Severity.ERROR), scene=ENGINE_KILLED)).findings
    assert [one.rule for one in found] == ["process-gone", "xid"]


def test_where_no_report_could_be_read_silence_is_no_verdict() -> None:
    trace, why = ALIVE.trace(), Unknown("not supported by the driver")
    assert list(xid.check(trace)) == []
    for what in (whats.ANY_XID, whats.facet(ids.gpu(0), whats.Facet.XID)):
        assert list(xid.check(replace(trace, missing=(Missing(what, why),)))) == [Unjudged("xid", why)]
