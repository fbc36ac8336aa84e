"""What the pages beside the first ones make of fixed traces, in full: `test_whole.py` says how to read a change.

Here stand two traces beside each other, the budget of a token, moving about in a timeline, and what is known of code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.kernels.code_sides import CodeSide, CodeSides
from llmtop.analysis.kernels.memory_chart import memory_chart
from llmtop.analysis.kernels.occupancy_calculator import BlockNeed
from llmtop.analysis.kernels.occupancy_what_if import OccupancyWhatIf, occupancy_what_if
from llmtop.analysis.kernels.source import KernelSource, kernel_source, sampled_launches
from llmtop.analysis.kernels.source_table import CodeBy, code_rows, said_of_code
from llmtop.analysis.kernels.source_tree import code_trees
from llmtop.analysis.kernels.table import stall_bars
from llmtop.analysis.pages.batch_advice import batch_advice
from llmtop.analysis.pages.cut import only_time
from llmtop.analysis.pages.diff.beside import findings_change
from llmtop.analysis.pages.diff.comparable import caveats
from llmtop.analysis.pages.diff.headline import headline
from llmtop.analysis.pages.diff.kernels import kernel_changes
from llmtop.analysis.pages.diff.ladder import ladder_of_kernels
from llmtop.analysis.pages.diff.page import diff_view
from llmtop.analysis.pages.diff.side import sides
from llmtop.analysis.pages.diff.why import why
from llmtop.analysis.pages.launch import launch_view
from llmtop.analysis.pages.observed import observed_lines
from llmtop.analysis.pages.token_budget import token_budget
from llmtop.analysis.server.batches import batch_points, by_batch, step_line
from llmtop.analysis.server.kv_cache import kv_runway
from llmtop.analysis.server.requests import requests_view
from llmtop.analysis.timeline.explore import TimelineCursor
from llmtop.analysis.timeline.span_facts import between, span_facts
from llmtop.analysis.timeline.spans import TraceTimeline
from llmtop.model import Stretch, Target, Trace, TrackKind, Unknown
from llmtop.parsers.registry import load
from tests.analysis import test_efficiency
from tests.analysis.test_token_budget import BLOCKS
from tests.analysis.test_whole import LIVE
from tests.analysis.verdict_scenes import SITUATIONS
from tests.live_traces import TARGET
from tests.nsys_scenes import SCENES
from tests.parsers.sample_reports import SAMPLE_TRACES
from tests.whole import whole

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

NCU = "ncu/2025.3.1/{}.ncu-rep.xz"
TIMELINE = "nsys/2025.3.2/llama-prefill-decode.sqlite.xz"


@pytest.fixture(autouse=True)
def _no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of code is the same whatever the machine has."""
    monkeypatch.setattr("llmtop.parsers.disassembly.disassemblers", lambda: iter(()))


@cache
def sample(name: str) -> Trace:
    return load(SAMPLE_TRACES / name)


# -- two beside each other --------------------------------------------------------------------------------------------


def _all_of(before: Trace, after: Trace) -> dict[str, object]:
    both = sides(before, after)
    changes = kernel_changes(*both)
    return {
        "view": diff_view(after, "new", before, "old"),
        "kernels": changes,
        "reasons": [why(*both, change) for change in changes],
        "findings": findings_change(*both),
        "caveats": caveats(*both),
        "headline": headline(*both),
    }


REPORTS = [
    ("copy-at-roof", "narrow-accesses"),
    ("narrow-accesses", "uncoalesced-loads"),
    ("too-many-registers", "too-much-shared-memory"),
    ("few-metrics", "one-block-too-many"),
]


@pytest.mark.parametrize(("before", "after"), REPORTS)
def test_what_two_reports_differ_in(before: str, after: str, snapshot: SnapshotAssertion) -> None:
    assert whole(**_all_of(sample(NCU.format(before)), sample(NCU.format(after)))) == snapshot


@pytest.mark.parametrize(
    ("before", "after"),
    [("launch-bound", "healthy"), ("a sync per kernel", "pageable copies"), ("graphs and kernels", "inside graphs"),
     ("one GPU late", "communication hidden")],
)  # fmt: skip
def test_what_two_timelines_differ_in(before: str, after: str, snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    traces = []
    for name in (before, after):
        (tmp_path / name).mkdir()
        traces.append(SCENES[name].make().trace(tmp_path / name))
    assert whole(**_all_of(traces[0], traces[1])).replace(str(tmp_path), "FOLDER") == snapshot


def test_what_the_halves_of_a_timeline_differ_in(snapshot: SnapshotAssertion) -> None:
    trace = sample(TIMELINE)
    middle = trace.start_ns + (trace.end_ns - trace.start_ns) // 2
    halves = (only_time(trace, 0, middle - trace.start_ns), only_time(trace, middle - trace.start_ns, None))
    assert not any(isinstance(half, Unknown) for half in halves)
    before, after = (half for half in halves if not isinstance(half, Unknown))
    assert whole(**_all_of(before, after)) == snapshot


def test_how_the_rungs_of_a_ladder_differ(snapshot: SnapshotAssertion) -> None:
    assert whole(ladder=ladder_of_kernels(sample(NCU.format("sgemm-ladder")))) == snapshot


# -- the budget of a token --------------------------------------------------------------------------------------------

FEW = ("well", "starved", "kv-bound", "saturated", "gpu-bound, sleeps", "cpu-bound, no probes", "idle")
STEADY: dict[str, Callable[[], tuple[Trace, Target]]] = {
    "steady": lambda: (test_efficiency.trace_of(facts=dict(BLOCKS)), test_efficiency.TARGET),
    "large batch": lambda: (
        test_efficiency.trace_of(
            rates=test_efficiency.SERVER_RATES | {v.SERVER_OUTPUT_TOKENS: 31250.0}, facts=dict(BLOCKS)
        ),
        test_efficiency.TARGET,
    ),
    "two GPUs": lambda: (test_efficiency.trace_of(2), replace(test_efficiency.TARGET, gpus=(0, 1))),
}
SERVERS: dict[str, Callable[[], tuple[Trace, Target]]] = {
    **STEADY,
    **{name: lambda make=make: (make(), TARGET) for name, make in LIVE.items()},  # type: ignore[misc]
    **{name: lambda name=name: (SITUATIONS[name][0].trace(), TARGET) for name in FEW},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", SERVERS)
def test_what_a_token_costs(name: str, snapshot: SnapshotAssertion) -> None:
    trace, target = SERVERS[name]()
    assert whole(**_of_server(trace, target)) == snapshot


def _of_server(trace: Trace, target: Target) -> dict[str, object]:
    found: dict[str, object] = {
        "budget": token_budget(trace, target),
        "advice": batch_advice(trace, target),
        "requests": requests_view(trace),
        "observed": list(observed_lines(trace)),
    }
    for server in trace.tracks_of(TrackKind.SERVER):
        points = batch_points(trace, server)
        found["runway"] = kv_runway(trace, server)
        found["points"] = points
        if not isinstance(points, Unknown):
            found |= {"by_batch": by_batch(points), "line": step_line(points)}
    return found


# -- moving about in a timeline ---------------------------------------------------------------------------------------


def _gap(cursor: TimelineCursor) -> Stretch:
    """The second third of the capture, on its first GPU."""
    third = (cursor.timeline.end_ns - cursor.timeline.start_ns) // 3
    row = cursor.places()[0].row
    return Stretch(cursor.timeline.start_ns + third, cursor.timeline.start_ns + 2 * third, row.gpu)


STEPS: dict[str, Callable[[TimelineCursor], object]] = {
    "the whole": lambda at: at.whole(),
    "to the end": lambda at: at.edge(1),
    "back": lambda at: at.beside(-1),
    "in": lambda at: at.zoom(0.25),
    "a cell on": lambda at: at.step(1),
    "down": lambda at: at.move(2),
    "what launched it": lambda at: None if (code := at.partner()) is None else at.jump(code),
    "what it launched": lambda at: None if (code := at.launched()) is None else at.jump(code),
    "the next": lambda at: at.beside(1),
    "as wide as it": lambda at: at.fit(),
    "a mark": lambda at: at.mark(),
    "a third on": lambda at: at.pan(1 / 3),
    "another mark": lambda at: at.mark(),
    "further out": lambda at: at.zoom(8),
    "folded": lambda at: at.fold(),
    "unfolded": lambda at: at.fold(),
    "to the beginning": lambda at: at.edge(-1),
    "a gap": lambda at: at.show_stretch(_gap(at)),
    "the first kernel": lambda at: at.show_stretch(
        Stretch(*at.timeline.times(0), track=at.timeline.span(0)[0].tracks[0])
    ),
    "a gap of no row": lambda at: at.show_stretch(replace(_gap(at), track=None)),
    "a search": lambda at: at.find("a"),
    "a match": lambda at: at.next_match(1),
    "the one before": lambda at: at.next_match(-1),
    "the last line": lambda at: at.move(99),
}
"""Keys that are pressed one after the other."""


WAYS = ("graphs and kernels", "pageable copies", "Python in a range", "one GPU late", "graphs not exported", "no CPU")


@pytest.mark.parametrize("scene", WAYS)
def test_what_is_seen_on_the_way_through_a_timeline(scene: str, snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    trace = SCENES[scene].make().trace(tmp_path)
    assert "\n".join(_way_through(TraceTimeline(trace, with_more=True))) == snapshot


def _way_through(timeline: TraceTimeline) -> Iterator[str]:
    timeline.explain_gaps()
    cursor = TimelineCursor(timeline)
    cursor.columns = 6
    for place in cursor.places():
        timeline.prepare(place.row)
    yield from (
        f"{'  ' * place.level}{place.row.title} {place.row.use:.4g} {place.row.key}" for place in cursor.places()
    )
    drawn: list[str] = []
    for name, step in STEPS.items():
        step(cursor)
        yield f"{name}: {_seen(cursor)}"
        before, drawn = drawn, [f"  {one}" for one in _lines(cursor)]
        yield from (one for one in drawn if one not in before)
    yield whole(between=between(timeline, *cursor.marks))


def _seen(cursor: TimelineCursor) -> str:
    """Where the cursor is, and all of what it is on."""
    code, place = cursor.span(), cursor.place()
    window, line = cursor.window, "" if place is None else f"{place.row.key} {place.level}"
    span = "" if code is None else whole(span=span_facts(cursor.timeline, code))
    where = f"{window.start_ns}-{window.end_ns} at {cursor.t_ns}, {cursor.cell()} of {line}"
    return "; ".join(part.strip() for part in (where, *span.splitlines()))


def _lines(cursor: TimelineCursor) -> Iterator[str]:
    """The lines as they are drawn: by run the cells, the span that stands for it, and how much of them is covered."""
    edges = cursor.window.edges(cursor.columns)
    for place in cursor.places():
        line, graph = cursor.timeline.line(place), cursor.timeline.graph(place.row)
        runs = () if line is None else tuple(line.runs(edges))
        told = [f"{run.first}-{run.stop} {run.place} of {run.count}, {run.busy_ns}" for run in runs]
        values = [] if graph is None else [f"{one:.4g}" for one in graph.values(edges) if one is not None]
        yield f"{place.depth} {place.row.title}: {'; '.join(told)}{' '.join(values)}"


# -- what is known of code and of a launch ----------------------------------------------------------------------------

LAUNCHED = ("bank-conflicts", "contended-atomics", "one-block-too-many", "small-grid", "too-much-shared-memory")


@pytest.mark.parametrize("name", LAUNCHED)
def test_what_is_known_of_a_launch(name: str, snapshot: SnapshotAssertion) -> None:
    trace = sample(NCU.format(name))
    told = {"launch": launch_view(trace, 0), "chart": memory_chart(trace, 0), **_occupancy(occupancy_what_if(trace, 0))}
    assert whole(**told) == snapshot


def _occupancy(found: OccupancyWhatIf | Unknown) -> dict[str, object]:
    if isinstance(found, Unknown):
        return {"occupancy": found}
    curves = {need: [f"{at} {share:.4g}" for at, share in found.curve(found.launched, need)] for need in BlockNeed}
    steps = {f"{need} {way}": found.stepped_far(found.launched, need, way) for need in BlockNeed for way in (-1, 1)}
    return {"occupancy": found, "curves": curves, "steps": steps}


@pytest.mark.parametrize("name", ["bank-conflicts", "few-metrics"])
def test_what_is_known_of_code(name: str, snapshot: SnapshotAssertion) -> None:
    trace = sample(NCU.format(name))
    told: dict[str, object] = {"trees": code_trees(trace, stall_bars(trace))}
    for by in CodeBy:
        told |= {f"rows by {by}": code_rows(trace, by), f"said of {by}": said_of_code(trace, by)}
    for launch in sampled_launches(trace)[:1]:
        source = kernel_source(trace, launch)
        told["source"] = source
        if isinstance(source, KernelSource):
            told |= _of_sides(source)
    assert whole(**told) == snapshot


def _of_sides(source: KernelSource) -> dict[str, object]:
    """By side its rows, with what they wait for, and where one is in the others."""
    sides_of = CodeSides(source, source.files[0] if source.files else "", {0: "FIRST", 3: "FOURTH"})
    told: dict[str, object] = {}
    for side in CodeSide:
        rows = range(min(sides_of.count(side), 60))
        told[side] = [
            f"{sides_of.label(side, row)} {sides_of.row_text(side, row)}: {sides_of.waiting(side, row):.4g}, in"
            f" {[sides_of.rows(other, sides_of.instructions(side, row))[:3] for other in CodeSide]}"
            for row in rows
        ]
        told[f"hot in {side}"] = [f"{place.file} {place.row}" for place in sides_of.hot(side)[:8]]
        told[f"no {side}"] = sides_of.why_none(side)
    return told
