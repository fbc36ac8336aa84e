"""The event log: what marks and clock reasons become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.events import Episode, clock_episodes, events, events_table, falls, growths
from llmtop.facts import GpuFact
from llmtop.model import NS_PER_S, Mark, MarkKind, Series, Severity, Unknown, XidReport
from tests.analysis.verdict_scenes import SITUATIONS
from tests.live_traces import START_NS, Scene, live_trace

POWER_CAP, TOO_HOT, IDLE = 0x4, 0x40, 0x1


def masks(*pairs: tuple[int, int | None]) -> Series:
    samples = [(second * NS_PER_S, None if mask is None else float(mask)) for second, mask in pairs]
    return Series.of(ids.gpu(0), v.GPU_CLOCK_REASONS, "NVML", samples)


def episode(bit: int, start_s: int, last_s: int, *, is_ongoing: bool = False, began_before: bool = False) -> Episode:
    return Episode(bit, start_s * NS_PER_S, last_s * NS_PER_S, is_ongoing, began_before)


@pytest.mark.parametrize(
    ("samples", "end_s", "expected"),
    [
        ([(0, 0), (1, 0)], 2, []),
        ([(0, IDLE), (1, IDLE | 0x2 | 0x100)], 2, []),
        ([(0, 0), (1, POWER_CAP), (2, POWER_CAP), (3, 0)], 30, [episode(POWER_CAP, 1, 2)]),
        ([(0, 0), (1, POWER_CAP), (5, 0), (9, POWER_CAP)], 12, [episode(POWER_CAP, 1, 9, is_ongoing=True)]),
        ([(0, 0), (1, POWER_CAP), (12, POWER_CAP)], 50, [episode(POWER_CAP, 1, 1), episode(POWER_CAP, 12, 12)]),
        ([(0, POWER_CAP), (1, 0)], 50, [episode(POWER_CAP, 0, 0, began_before=True)]),
        (
            [(0, 0), (1, POWER_CAP | TOO_HOT), (2, TOO_HOT)],
            40,
            [episode(POWER_CAP, 1, 1), episode(TOO_HOT, 1, 2)],
        ),
        ([(0, 0), (1, POWER_CAP), (2, None), (3, POWER_CAP)], 4, [episode(POWER_CAP, 1, 3, is_ongoing=True)]),
        ([], 4, []),
    ],
)
def test_a_clock_limit_is_one_episode_until_it_stays_away(
    samples: Sequence[tuple[int, int | None]], end_s: int, expected: list[Episode]
) -> None:
    assert list(clock_episodes(masks(*samples), end_s * NS_PER_S)) == expected


def test_marks_become_events_newest_first() -> None:
    off = "the GPU has fallen off the bus"
    xid = XidReport(79, f"{off} (pid 5)", "drain and restart the machine")
    text = f"XID 79: {off}; drain and restart the machine (pid 5)"
    marks = (
        Mark(START_NS + 1, MarkKind.GPU_LOST, "gpu:1", off, Severity.ERROR, "GPU 1:"),
        Mark(START_NS + 2, MarkKind.XID, "gpu:1/mig:3", text, Severity.ERROR, about=xid),
        Mark(START_NS + 3, MarkKind.PROCESS, "process:4300", "exited", Severity.ERROR, "EngineCore (pid 4300)"),
        Mark(START_NS + 4, MarkKind.GPU_BACK, "gpu:1", "answers again", subject="GPU 1"),
        Mark(START_NS + 5, MarkKind.SERVER, "server:8000", "metrics are back"),
        Mark(START_NS + 7, MarkKind.TRACER, "nowhere:1", "something"),
    )
    assert [mark.text for mark in marks[:3]] == [f"GPU 1: {off}", text, "EngineCore (pid 4300) exited"]
    trace = replace(live_trace(Scene(values={"gpu.clock_reasons": 0.0}), ticks=3), marks=marks)
    shown = [(one.where, one.what, one.meaning) for one in events(trace)]
    assert shown == [
        ("nowhere:1", "tracer", "something"),
        ("vLLM :8000", "server", "metrics are back"),
        ("GPU 1", "GPU back", "answers again"),
        ("EngineCore (pid 4300)", "process", "exited"),
        ("GPU 1 MIG 3", "XID 79", "the GPU has fallen off the bus (pid 5)"),
        ("GPU 1", "GPU lost", "the GPU has fallen off the bus"),
    ]
    by_what = {one.what: one for one in events(trace)}
    assert by_what["XID 79"].action == "drain and restart the machine"
    assert "dmesg" in by_what["GPU lost"].action
    assert by_what["GPU back"].action == ""


def test_a_power_cap_is_told_with_its_length_and_what_to_do() -> None:
    found = events(live_trace(Scene(gpus=2), ticks=21))
    caps = [one for one in found if one.what == "power cap"]
    assert [one.where for one in caps] == ["GPUs 0 1"]
    assert caps[0].meaning == "the clock is held down, for 20 s or more so far"
    assert "nvidia-smi -i 0,1 -pl" in caps[0].action
    assert caps[0].severity is Severity.INFO


def test_nobody_is_told_to_raise_a_power_limit_that_is_the_highest() -> None:
    trace = live_trace(Scene(gpus=2, values={"gpu.power_limit": 700.0}), ticks=21)
    facts = {ids.gpu(0): {GpuFact.MAX_POWER_W: 700.0}, ids.gpu(1): {GpuFact.MAX_POWER_W: 900.0}}
    told = {id: replace(trace.tracks[id], facts={**trace.tracks[id].facts, **more}) for id, more in facts.items()}
    caps = [one for one in events(replace(trace, tracks={**trace.tracks, **told})) if one.what == "power cap"]
    assert {one.where: one.action for one in caps} == {
        "GPU 0": "its power limit is the highest it has (700 W)",
        "GPU 1": "raise the power limit if the node allows it (nvidia-smi -i 1 -pl 900)",
    }


def test_the_table_counts_seconds_and_keeps_the_moment() -> None:
    trace = live_trace(Scene(values={"server.preemptions": None}), ticks=40)
    table = events_table(events(trace), trace.end_ns)
    preemption = next(i for i in range(len(table)) if table.cells(i)[4] == "preemption")
    assert table.cells(preemption)[0] == 9
    assert table.keys[preemption] == (START_NS + 30 * NS_PER_S, "vLLM :8000", "server")
    assert len(table.filtered("power")) == 1
    assert table.sorted_by("ago", descending=True).cells(0)[3] == "power cap"


def flaps(*seconds: tuple[float, bool]) -> list[tuple[int, str, str, str]]:
    """What the log has of metrics that were lost (False) and back (True) at moments: second, what, meaning, action."""
    why = Unknown("port 8000 closes the connection without an answer", "its log may say why")
    trace = live_trace(Scene(gpus=0, values={"server.preemptions": None}), ticks=60)
    marks = (
        Mark(START_NS + round(second * NS_PER_S), MarkKind.METRICS_BACK, "server:8000", "metrics are back")
        if is_back
        else Mark(
            *(START_NS + round(second * NS_PER_S), MarkKind.METRICS_LOST, "server:8000"),
            *(f"metrics lost: {why.reason}", Severity.WARNING),
            about=why,
        )
        for second, is_back in seconds
    )
    shown = events(replace(trace, marks=tuple(marks)))
    return [((one.t_ns - START_NS) // NS_PER_S, one.what, one.meaning, one.action) for one in shown]


def test_metrics_that_come_and_go_are_one_event_with_its_reason_and_what_to_do() -> None:
    said, action = "port 8000 closes the connection without an answer", "its log may say why"
    back = (31, "metrics back", "metrics are back", "")
    assert flaps((30, False), (31, True)) == [back, (30, "metrics lost", said, action)]
    flapping = [(t, is_back) for start in (10, 13, 22) for t, is_back in ((start, False), (start + 1, True))]
    one = (10, "metrics lost", f"3 times in 12 s: {said}", action)
    assert flaps(*flapping, (30, False), (31, True)) == [
        back,
        (10, "metrics lost", f"4 times in 20 s: {said}", action),
    ]
    assert flaps(*flapping, (30, False)) == [(10, "metrics lost", f"4 times in 20 s: {said}", action)]
    assert flaps(*flapping, (30, True)) == [(30, "metrics back", "metrics are back", ""), one]
    later = flaps(*flapping, (33.1, False), (34, True))
    assert [row[:2] for row in later] == [
        (34, "metrics back"),
        (33, "metrics lost"),
        (23, "metrics back"),
        (10, "metrics lost"),
    ]
    assert flaps((5, True)) == [(5, "metrics back", "metrics are back", "")], "lost before the window"


def counted(*pairs: tuple[int, float | None]) -> Series:
    return Series.of(
        ids.server(1), v.SERVER_PREEMPTIONS, "test", [(second * NS_PER_S, value) for second, value in pairs]
    )


def test_a_counter_that_falls_is_a_restart() -> None:
    assert list(falls(counted((0, 5), (1, 7), (2, None), (3, 1), (4, 2), (5, 0)))) == [3 * NS_PER_S, 5 * NS_PER_S]
    assert list(falls(counted((0, None), (1, 0), (2, 0)))) == []


def test_growth_is_one_event_until_it_pauses() -> None:
    series = counted((0, 5), (1, 6), (2, None), (5, 9), (30, 10), (31, 3), (32, 3))
    assert list(growths(series)) == [(NS_PER_S, 5 * NS_PER_S, 4.0), (30 * NS_PER_S, 30 * NS_PER_S, 1.0)]
    assert list(growths(counted((0, 5), (9, 5)))) == []


def test_restarts_and_preemptions_of_a_server_are_events() -> None:
    trace = live_trace(Scene(gpus=0), ticks=50)
    key = (ids.server(8000), v.SERVER_OUTPUT_TOKENS.name)
    series = Series.of(key[0], v.SERVER_OUTPUT_TOKENS, "test", [(START_NS, 9.0), (START_NS + 45 * NS_PER_S, 1.0)])
    trace = replace(trace, series={**trace.series, key: series}, marks=())
    assert [(one.what, (one.t_ns - START_NS) // NS_PER_S) for one in events(trace)] == [
        ("restarted", 45),
        ("preemption", 40),
        ("preemption", 20),
    ]


def test_what_was_broken_when_llmtop_came_is_an_event() -> None:
    trace = SITUATIONS["endpoint fails"][0].but(answer=500).trace()
    (event,) = (one for one in events(trace) if one.where == "metrics endpoint")
    assert (event.what, event.severity) == ("endpoint failing", Severity.ERROR)
    marked = replace(trace, marks=(Mark(event.t_ns, MarkKind.SERVER, "server:1", "metrics lost"),))
    assert not [one for one in events(marked) if one.where == "metrics endpoint"], "it is in the list already"
