"""What a recording's report says before its numbers: a step's time, the engine's steps, and threads."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.pages.token_budget import TokenBudget, token_budget
from llmtop.analysis.server.steps_view import StepsView, steps_view
from llmtop.analysis.threads.shares import ThreadsView, threads_view
from llmtop.cli import main
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.cli.report import report
from llmtop.cli.report_observed import OBSERVED
from llmtop.demo.replays import REPLAYS
from llmtop.model import Series, Trace, Unknown
from llmtop.parsers.registry import load
from tests.cli.by_tables import report_by
from tests.cli.test_report_by import SCHEMA, SERIES_ALONE
from tests.kernel_traces import TIMELINE
from tests.live_traces import live_trace

if TYPE_CHECKING:
    from llmtop.analysis.views import TableView


@lru_cache(maxsize=1)
def recorded() -> Trace:
    """A real vLLM on an H100, with slow steps."""
    return load(REPLAYS["gpu-steps"].path)


def asked(by: str, kind: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["report", str(REPLAYS["gpu-steps"].path), "--by", by, "--format", kind]) == 0
    return capsys.readouterr().out


def section(title: str, kind: str = "text") -> str:
    """Of the whole report, from a title to the next one, without line ends."""
    text = "".join(report(recorded(), kind)).replace("\\", "")
    mark = "\n## " if kind == "md" else "\n\n"
    return " ".join(text.partition(f"{mark}{title}\n")[2].partition(mark)[0].split())


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_they_stand_between_the_verdict_and_the_numbers(kind: str) -> None:
    text = "".join(report(recorded(), kind)).replace("&#x27;", "'")
    titles = ("Findings", "Where a step's time goes", "Engine steps", "Threads", "Series")
    heads = {"text": "\n{}\n", "md": "## {}\n", "html": "<h2>{}</h2>"}
    first = 1 if kind == "html" else 0  # whose findings stand without a title
    places = [text.index(heads[kind].format(title)) for title in titles[first:]]
    assert places == sorted(places)


def test_the_parts_of_a_step_are_those_of_the_budget_over_all_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    trace = recorded()
    budget = token_budget(trace, trace.target, trace.end_ns - trace.start_ns)
    assert isinstance(budget, TokenBudget)
    rows = list(csv.DictReader(io.StringIO(asked("budget", "csv", capsys))))
    assert [(row["part"], float(row["seconds"])) for row in rows] == [(one.part, one.seconds) for one in budget.terms]
    assert sum(float(row["seconds"]) for row in rows) == pytest.approx(budget.step_s)
    document = json.loads(asked("budget", "json", capsys))["by"]
    assert (document["by"], document["step_s"]) == ("budget", budget.step_s)
    assert [one["change"] for one in document["gains"]] == [gain.change for gain in budget.gains]
    said = section("Where a step's time goes")
    assert budget.sentence in said
    assert all(gain.text in said for gain in budget.gains)


def test_slow_steps_are_counted_by_their_cause(capsys: pytest.CaptureFixture[str]) -> None:
    trace = recorded()
    view = steps_view(trace, trace.end_ns - trace.start_ns)
    assert isinstance(view, StepsView)
    rows = list(csv.DictReader(io.StringIO(asked("engine-steps", "csv", capsys))))
    assert sum(int(row["slow_steps"]) for row in rows) == len(view.slow) > 0
    excess = [float(row["excess_s"]) for row in rows]
    assert excess == sorted(excess, reverse=True)
    assert sum(excess) == pytest.approx(sum(one.excess_ns for one in view.slow) / 1e9)
    assert json.loads(asked("engine-steps", "json", capsys))["by"]["slow_count"] == len(view.slow)
    assert asked("engine-steps", "csv", capsys).startswith("cause,slow_steps,excess_s,longest_s,")
    said = section("Engine steps", "md")
    assert f"{len(view.slow)} of {len(view.newest)} steps" in said
    assert view.tail is not None
    assert view.tail.sentence in said


def test_threads_that_did_nothing_are_in_the_data_alone(capsys: pytest.CaptureFixture[str]) -> None:
    trace = recorded()
    view = threads_view(trace, trace.end_ns - trace.start_ns)
    assert isinstance(view, ThreadsView)
    rows = list(csv.DictReader(io.StringIO(asked("threads", "csv", capsys))))
    assert [(int(row["pid"]), int(row["tid"])) for row in rows] == [(one.pid, one.tid) for one in view.rows]
    document = json.loads(asked("threads", "json", capsys))["by"]
    assert len(document["rows"]) == len(rows)
    said = section("Threads")
    assert "VLLM::EngineCor" in said
    assert "resource_tracker" not in said
    assert f"left out of {len(rows)} threads (--by threads --format csv lists all)" in said


def test_without_a_step_that_was_seen_the_servers_own_counter_tells() -> None:
    trace = load(REPLAYS["gpu-long-prompts"].path)
    text = " ".join("".join(report(trace, "text")).split())
    assert "by the server's own counter (vllm:iteration_tokens_total_count): mean " in text


@pytest.mark.parametrize("by", OBSERVED)
def test_the_documents_are_as_described(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(asked(by, "json", capsys))
    SCHEMA.validate(document)
    assert document["by"]["by"] == by


@pytest.mark.parametrize("by", OBSERVED)
def test_what_is_not_known_says_why(by: str) -> None:
    table = OBSERVED[by](replace(recorded(), tracks={}, series={}), WantedTable(by))
    assert isinstance(table.rows(), Unknown)
    assert table.sentences() == [str(table.rows())]


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("budget", "it is told of recordings alone (llmtop record --attach PID -o FILE)"),
        ("engine-steps", "it is told of recordings alone (llmtop record --attach PID -o FILE)"),
        ("threads", "of its threads this trace tells no time on a CPU"),
    ],
)
def test_of_a_tools_file_it_is_said_why_there_is_none(by: str, why: str) -> None:
    table = OBSERVED[by](load(TIMELINE), WantedTable(by))
    assert table.sentences() == [why]


def test_a_recording_of_gpus_alone_has_none_of_them() -> None:
    trace = live_trace()
    kept = {id: track for id, track in trace.tracks.items() if id.startswith("gpu")}
    series = {key: one for key, one in trace.series.items() if key[0] in kept}
    alone = replace(trace, tracks=kept, series=series, target=None, origin=recorded().origin)
    text = "".join(report(alone, "text"))
    assert "\nSeries\n" in text
    assert not any(title in text for title in ("Where a step's time goes", "Engine steps", "Threads"))


@pytest.mark.parametrize("kind", ["text", "md"])
def test_a_dash_has_its_reason_once_below_the_table(kind: str) -> None:
    text = report_by(SERIES_ALONE, kind, None).replace("\\", "")
    assert text.count("–: a counter tells with its second sample how fast it grows") == 1


def test_a_csv_of_no_slow_step_has_its_titles() -> None:
    calm = load(REPLAYS["gpu-power-cap"].path)
    view = steps_view(calm)
    assert isinstance(view, StepsView)
    table = OBSERVED["engine-steps"](calm, WantedTable("engine-steps"))
    found = replace(table, found=replace(view, slow=()))
    assert "".join(found.csv()) == "cause,slow_steps,excess_s,longest_s,missing\n"
    assert len(rows_of(found)) == 0


def rows_of(table: PartTable[Any]) -> TableView:
    rows = table.rows()
    assert not isinstance(rows, Unknown)
    return rows


def test_requests_that_came_and_went_between_two_looks_have_no_step() -> None:
    trace = recorded()
    idle = {("server", v.SERVER_RUNNING.name), ("server", v.SERVER_WAITING.name)}
    nothing = {
        key: Series.of(key[0], one.metric, one.source, [(t, 0.0) for t, _ in one])
        for key, one in trace.series.items()
        if ("server" if key[0].startswith("server") else "", key[1]) in idle or key[1].startswith("gpu.")
    }
    table = OBSERVED["budget"](replace(trace, series={**trace.series, **nothing}), WantedTable("budget"))
    (said,) = table.sentences()
    assert said == "requests came and went between two looks: how long their steps took is not known"


def test_rows_of_several_threads_tell_what_they_wait_for_on_the_mean() -> None:
    trace = recorded()
    table = rows_of(OBSERVED["threads"](trace, WantedTable("threads")))
    names = [column.key for column in table.columns]
    rows = [dict(zip(names, table.cells(i), strict=True)) for i in range(len(table))]
    crowd = next(row for row in rows if row["name"] == "VLLM::EngineCor ×25")
    assert str(crowd["causes"]).startswith("futex 7")
    assert crowd["tid"] is None


def test_formats_for_programs_work_out_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Trace) -> None:
        raise AssertionError("nobody reads it")

    monkeypatch.setattr("llmtop.cli.report_observed.observed_parts", fails)
    trace = recorded()
    assert json.loads("".join(report(trace, "json")))["by"]["by"] == "series"
    assert "".join(report(trace, "csv")).startswith("track,")
    with pytest.raises(AssertionError, match="nobody reads it"):
        "".join(report(trace, "text"))
