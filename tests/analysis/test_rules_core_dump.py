"""What kernels of a watched server failed with, by the core dumps that it left."""

from __future__ import annotations

from dataclasses import replace

from llmtop import ids, whats
from llmtop.analysis.pages.events import events
from llmtop.analysis.rules import xid
from llmtop.analysis.rules.core_dump import check
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import (
    NS_PER_S,
    CoreDump,
    GpuFault,
    Mark,
    MarkKind,
    Missing,
    Severity,
    Trace,
    Unknown,
    XidReport,
)
from tests.analysis.verdict_scenes import ENGINE_KILLED, WELL, Scene

STORE = GpuFault(
    "Warp Illegal Address", 14, ids.gpu(0), 7, "attend", None, 0x7F00, True, "attend", 0x40, "/srv/attend.cu:12"
)
GPU = "NVIDIA H100 80GB HBM3"
WHY_NONE = Unknown(
    "the server was started without core dumps of GPUs", "start it by llmtop launch --coredump -- COMMAND"
)


def dumped(*dumps: tuple[int, int, CoreDump], scene: Scene = WELL) -> Trace:
    """A server that has left these: (seconds before now, PID, what)."""
    trace = scene.trace()
    marks = (
        Mark(
            trace.end_ns - ago * NS_PER_S,
            MarkKind.CORE_DUMP,
            ids.process(pid),
            "left a core dump of its GPU",
            Severity.ERROR,
            f"Worker (pid {pid})",
            dump,
        )
        for ago, pid, dump in dumps
    )
    return replace(trace, marks=(*trace.marks, *marks))


def test_the_kernel_that_failed_is_named_with_the_dump_to_open() -> None:
    trace = dumped(
        (12, 7, CoreDump("/var/my dumps/7.nvcudmp", 607_445, GPU, (STORE,), ("more than 256 warps failed",)))
    )
    (finding,) = check(trace)
    assert (finding.severity, finding.subject) == (Severity.ERROR, "attend")
    assert finding.message == (
        "Warp Illegal Address at /srv/attend.cu:12, in a thread that had ended before the GPU was read"
    )
    assert finding.evidence == (
        f"SM 7 of {GPU}; a store is not waited for: the GPU keeps where it was, and not whose it was",
        "instruction at attend+0x40: not shown: its text is not known",
        "core dump of Worker (pid 7), 593 KiB, 12 s ago: /var/my dumps/7.nvcudmp",
        "more than 256 warps failed",
    )
    assert finding.next_command == "llmtop open '/var/my dumps/7.nvcudmp'"
    assert "memcheck" in finding.action


def test_workers_that_fail_alike_are_one_finding_of_the_newest() -> None:
    dumps = [(20 - pid, pid, CoreDump(f"/d/{pid}", 1, GPU, (STORE,))) for pid in range(1, 9)]
    other = replace(STORE, offset=0x80, kernel="norm", function="norm")
    first, second = check(dumped(*dumps, (2, 9, CoreDump("/d/9", 1, GPU, (other,)))))
    assert (first.subject, second.subject) == ("norm", "attend")
    assert second.next_command == "llmtop open /d/8"
    assert second.evidence[-4:] == (
        "the same in Worker (pid 7): /d/7",
        "the same in Worker (pid 6): /d/6",
        "the same in Worker (pid 5): /d/5",
        "and in 4 more dumps",
    )


def test_a_dump_that_was_cut_is_told_with_what_to_do() -> None:
    why = Unknown("was cut short", "take out skip_abort")
    trace = dumped((1, 7, CoreDump("/d/7", 1, why_not=why)))
    (finding,) = check(trace)
    assert finding.message == "Worker (pid 7) left a core dump of its GPU, which was cut short"
    assert (finding.action, finding.next_command) == ("take out skip_abort", "")
    assert finding.evidence == ("core dump of Worker (pid 7), 1 B, 1 s ago: /d/7",)
    assert [one.action for one in events(trace) if one.what == "GPU core dump"] == ["take out skip_abort"]


def test_a_server_that_has_ended_says_its_kernel_too() -> None:
    trace = dumped((3, 7, CoreDump("/d/7", 1, GPU, (STORE,))), scene=ENGINE_KILLED)
    rules = [one.rule for one in diagnose(trace).findings]
    assert rules[0] == "process-gone"
    assert "core-dump" in rules


def test_the_event_says_how_it_is_opened() -> None:
    (event,) = (
        one for one in events(dumped((3, 7, CoreDump("/d/7", 1, GPU, (STORE,))))) if one.what == "GPU core dump"
    )
    assert (event.where, event.action) == ("Worker (pid 7)", "llmtop open /d/7")


def with_xid(code: int, meaning: str, why: Unknown | None) -> Trace:
    trace = WELL.trace()
    mark = Mark(
        trace.end_ns,
        MarkKind.XID,
        ids.gpu(0),
        "",
        Severity.ERROR,
        about=XidReport(code, meaning, "restart the program"),
    )
    missing = (Missing(whats.CORE_DUMPS, why),) if why else ()
    return replace(trace, marks=(mark,), missing=(*trace.missing, *missing))


def test_an_xid_of_a_program_says_how_to_have_a_dump_the_next_time() -> None:
    (finding,) = (one for one in diagnose(with_xid(13, "a kernel failed", WHY_NONE)).findings if one.rule == xid.id)
    assert finding.action == (
        "restart the program; to know the kernel and its line the next time: "
        "start it by llmtop launch --coredump -- COMMAND"
    )
    assert finding.evidence[-1] == (
        "no core dump tells which kernel it was: the server was started without core dumps of GPUs"
    )


def test_an_xid_of_hardware_or_of_another_program_or_with_a_dump_asks_for_none() -> None:
    for trace in (
        with_xid(79, "off the bus", WHY_NONE),
        with_xid(13, "a kernel failed (pid 99)", WHY_NONE),
        with_xid(13, "a kernel failed", None),
    ):
        (finding,) = (one for one in diagnose(trace).findings if one.rule == xid.id)
        assert "core dump" not in f"{finding.action}{finding.evidence}"
        assert "--coredump" not in finding.action
