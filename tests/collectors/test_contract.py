"""What each collector reads is its own to explain; adding one with a lane takes a file, and a line to run it."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.pages.gpus import gpus_view
from llmtop.analysis.pages.lanes import lanes_view
from llmtop.analysis.series.readings import why_absent, why_kind_missing
from llmtop.analysis.threads.stall_tree import stall_tree
from llmtop.analysis.threads.syscalls import syscalls_view
from llmtop.collectors import registry
from llmtop.collectors.base import Owner
from llmtop.model import Metric, Missing, Origin, Source, Sources, Trace, Track, TrackKind, Unknown, What
from llmtop.session import Session
from llmtop.tui.render.lanes import draw_lanes
from llmtop.tui.render.look import ASCII, Look
from tests.live_traces import COLLECTORS, SOURCES, live_trace

FILE = '''
"""How fast the fans turn, as a board's sensors say."""

from __future__ import annotations

import time

from llmtop import ids
from llmtop.model import Metric, Origin, Reading, Source, SourceLane, Trace, Track, TrackKind, Unknown

FAN_SPEED = Metric("host.fan_speed", "rpm", title="fans")


class FanCollector:
    name = "fans"
    period_s = 0.0
    owns = Source(name, lanes=(SourceLane(FAN_SPEED, TrackKind.HOST),))
    why = None
    speed = 4200.0

    def missing(self):
        return self.why

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        pass

    def poll(self):
        t = time.monotonic_ns()
        host = Track(ids.HOST, TrackKind.HOST, "host")
        read = (Reading(ids.HOST, FAN_SPEED, t, self.speed, "hwmon"),)
        return Trace(Origin("live"), t, t, tracks={ids.HOST: host}, readings=read)


def collector():
    return FanCollector()
'''
NO_SENSOR = Unknown("the board has no sensor of its fans", "modprobe nct6775")


@pytest.fixture
def fans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A new collector: its file, and its line in the registry, in which it is the only one here."""
    path = tmp_path / "fans.py"
    path.write_text(FILE)
    spec = importlib.util.spec_from_file_location("fans", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "llmtop.collectors.fans", module)
    monkeypatch.setattr(registry, "OF_THE_HOST", ("fans",))
    return module.FanCollector


def watched(is_done: Callable[[Trace], bool]) -> Trace:
    """What a session with the registry's collectors has once it is so."""
    session = Session(registry.host_collectors(), Origin("live"), interval_s=0.01)
    session.start()
    deadline = time.monotonic() + 60
    try:
        while not is_done(trace := session.trace()):
            assert time.monotonic() < deadline
    finally:
        session.stop()
    return trace


def test_a_new_collector_has_its_lane(fans: Any) -> None:
    trace = watched(lambda trace: len(trace.series) == 1)
    lane = lanes_view(trace).lanes[-1]
    assert (lane.title, lane.unit, lane.source, lane.why_not) == ("fans", "rpm", "hwmon", None)
    assert lane.samples[0][1] == 4200.0


def test_its_reason_reaches_its_lane_and_the_screen(fans: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fans, "why", NO_SENSOR)
    view = lanes_view(watched(lambda trace: bool(trace.missing)))
    assert {lane.title: lane.why_not for lane in view.lanes}["fans"] == NO_SENSOR
    drawn = [strip.text for strip in draw_lanes(view, 100, 12, Look(glyphs=ASCII))]
    assert any(row.startswith("fans") and "no sensor of its fans (modprobe nct6775)" in row for row in drawn)


def test_no_other_collectors_reason_stands_in_its_lane(fans: Any) -> None:
    trace = watched(lambda trace: len(trace.series) == 1)
    others = tuple(Missing(whats.source(one.name), Unknown(f"{one.name} is not there")) for one in SOURCES.all)
    bare = replace(trace, series={}, missing=others, sources=Sources((fans.owns, *SOURCES.all)))
    fan_lane = lanes_view(bare).lanes[-1]
    assert fan_lane.why_not == Unknown("no reading of fans yet")


@pytest.mark.parametrize("said", [whats.source("fans"), whats.state("fans", whats.State.SHED)])
def test_its_reason_stands_where_something_without_a_metric_is_missing(fans: Any, said: What) -> None:
    lacks, mine = (Missing(said, NO_SENSOR),), Source(fans.name, whats=(whats.STACKS,))
    trace = Trace(Origin("live"), missing=lacks, sources=Sources((mine,)))
    assert stall_tree(trace).why_not == NO_SENSOR
    assert stall_tree(replace(trace, sources=Sources((fans.owns,)))).why_not != NO_SENSOR
    assert syscalls_view(trace) != NO_SENSOR


def lost(trace: Trace) -> list[Unknown | None]:
    view = gpus_view(trace, None)
    assert not isinstance(view, Unknown)
    return [row.lost for row in view.rows]


def test_its_reason_is_that_of_all_tracks_that_it_adds(fans: Any) -> None:
    lacks, gpu = (Missing(whats.source("fans"), NO_SENSOR),), Track(ids.gpu(0), TrackKind.GPU, "a GPU")
    mine = Source(fans.name, (TrackKind.GPU,))
    trace = Trace(Origin("live"), tracks={gpu.id: gpu}, missing=lacks, sources=Sources((mine,)))
    assert lost(trace) == [NO_SENSOR]
    assert lost(replace(trace, sources=SOURCES)) == [None]


def own_reasons() -> Iterator[tuple[str, Metric]]:
    """Each metric of the vocabulary with a collector that reads it."""
    for metric in vars(v).values():
        if isinstance(metric, Metric):
            for source in SOURCES.of_metric(metric.name):
                yield source.name, metric


def test_each_collector_says_what_it_reads() -> None:
    assert [one.name for one in COLLECTORS if not isinstance(one, Owner)] == []
    assert all(cast("Owner", one).owns.name == one.name for one in COLLECTORS)


def test_each_metric_and_each_kind_has_its_reader() -> None:
    read = {metric.name for _, metric in own_reasons()}
    assert {one.name for one in vars(v).values() if isinstance(one, Metric)} == read
    assert [kind for kind in TrackKind if not SOURCES.of_kind(kind)] == [TrackKind.STREAM]  # of captures only


@pytest.mark.parametrize(("name", "metric"), own_reasons(), ids=lambda one: getattr(one, "name", one))
def test_a_collectors_reason_is_that_of_all_it_reads_and_of_nothing_else(name: str, metric: Metric) -> None:
    said, track = Unknown(f"{name} does not work here"), ids.thread(1, 2)
    trace = Trace(Origin("live"), missing=(Missing(whats.source(name), said),), sources=SOURCES)
    assert why_absent(trace, track, metric) == said
    others = tuple(Missing(whats.source(one.name), said) for one in SOURCES.all if not one.reads(metric.name))
    assert why_absent(replace(trace, missing=others), track, metric).reason.startswith("no reading of")


def _poll_badly(_: object) -> Trace:
    raise KeyError("no")


def test_a_fault_of_a_collector_is_the_reason_of_what_it_reads(fans: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fans, "poll", _poll_badly)
    view = lanes_view(watched(lambda trace: bool(trace.issues)))
    why = view.lanes[-1].why_not
    assert why is not None
    assert "the fans collector failed: KeyError" in why.reason


def test_what_a_collector_lacks_of_one_track_is_no_reason_for_all_of_a_kind() -> None:
    lacks = (Missing(What("gpu/xid"), Unknown("events are not told")), Missing(What("gpu:0/gpm"), Unknown("no GPM")))
    bare = Trace(Origin("live"), missing=lacks, sources=SOURCES)
    assert why_kind_missing(bare, TrackKind.GPU) == Unknown("no gpu seen yet")


def test_recorded_traces_keep_who_reads_what() -> None:
    assert live_trace(ticks=2).sources.of_kind(TrackKind.GPU)[0].name == "nvml"
