"""A file that holds stacks and nothing else, in every format of the report."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from llmtop.cli import main

Run = Callable[[str], str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("srv.folded").write_text("srv;step;f<a|b> 60\nsrv;step;step;wait_[k] 30\nsrv;step 10\nsrv torn")

    def report(kind: str) -> str:
        assert main(["report", "srv.folded", "--format", kind]) == 0
        return capsys.readouterr().out

    return report


def test_text_shows_what_the_stacks_end_in_and_come_through(run: Run) -> None:
    assert run("text").splitlines()[:10] == [
        "srv.folded",
        "  folded-stacks",
        "  No kernels: folded stacks tell of functions on CPUs alone",
        "",
        "Stacks: 100 samples in 3 stacks",
        "     own   with what it calls",
        "    60 %    60 %  f<a|b>",
        "    30 %    30 %  wait_[k]",
        "    10 %   100 %  step",
        "     0 %   100 %  srv",
    ]


def test_issues_are_told(run: Run) -> None:
    assert "1 of 4 lines are no stack with a number: left out" in run("text")


def test_json_has_every_stack_and_keeps_its_contract(run: Run) -> None:
    document = json.loads(run("json"))
    docs = (Path(__file__).parents[2] / "docs" / "json-report.md").read_text()
    jsonschema.validate(document, json.loads(docs.partition("```json\n")[2].partition("```")[0]))
    assert [(stack["frames"], stack["weight"]) for stack in document["stacks"]] == [
        (["srv", "step", "f<a|b>"], 60.0),
        (["srv", "step", "step", "wait_[k]"], 30.0),
        (["srv", "step"], 10.0),
    ]
    assert {(stack["unit"], stack["state"]) for stack in document["stacks"]} == {("samples", "")}


def test_csv_has_a_row_a_function(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("csv"))))
    assert [(row["function"], row["own"], row["total"], row["own_share"]) for row in rows] == [
        ("f<a|b>", "60.0", "60.0", "0.6"),
        ("wait_[k]", "30.0", "30.0", "0.3"),
        ("step", "10.0", "100.0", "0.1"),
        ("srv", "0.0", "100.0", "0.0"),
    ]


def test_markdown_and_html_take_names_as_text(run: Run) -> None:
    assert r"| 60 % | 60 % | f\<a\|b\> |" in run("md")
    page = run("html")
    assert "<h2>Stacks: 100 samples in 3 stacks</h2>" in page
    assert "f&lt;a|b&gt;" in page
