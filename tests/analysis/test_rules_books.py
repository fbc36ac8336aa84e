"""The two books of rules: what is said of a trace is the same as if every rule were asked."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from itertools import chain
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest

from llmtop.analysis import rules
from llmtop.analysis.pages import lanes
from llmtop.analysis.rules import live_rules, report_rules
from llmtop.analysis.rules.base import Rule
from llmtop.analysis.rules.registry import rule_book
from llmtop.model import Finding, Trace
from llmtop.parsers.registry import load
from tests.analysis.verdict_scenes import SITUATIONS
from tests.kernel_traces import LADDER, TIMELINE, Launch, report
from tests.nsys_scenes import SCENES

REPORTS = (LADDER, TIMELINE)


def found_by(asked: tuple[Rule, ...], trace: Trace) -> list[Finding]:
    said = chain.from_iterable(rule.check(trace) for rule in asked)
    return [one for one in said if isinstance(one, Finding)]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_rules_for_reports_find_nothing_in_a_server(situation: str) -> None:
    trace = SITUATIONS[situation][0].trace()
    assert rule_book(trace) is live_rules
    assert found_by(report_rules.RULES, trace) == []


@pytest.mark.parametrize("scene", SCENES)
def test_rules_for_servers_find_nothing_in_a_timeline(scene: str, tmp_path: Path) -> None:
    trace = SCENES[scene].make().trace(tmp_path)
    assert rule_book(trace) is report_rules
    assert found_by(live_rules.RULES, trace) == []


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_rules_for_servers_find_nothing_in_a_report(path: Path) -> None:
    trace = load(path)
    assert rule_book(trace) is report_rules
    assert found_by(live_rules.RULES, trace) == []


def test_a_report_without_kernels_is_still_none_of_a_server() -> None:
    assert rule_book(report()) is rule_book(report(Launch("k"))) is report_rules


ALL_RULES = (*live_rules.RULES, *report_rules.RULES)


CHECKS = ("(trace: 'Trace') -> 'Iterator[Finding]'", "(trace: 'Trace') -> 'Iterator[Finding | Unjudged]'")
"""What `Rule.check` may look like: rules are loaded by name, where the type checker does not compare them with it."""


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_a_rule_is_called_what_its_file_is_and_is_what_the_protocol_says(rule: Rule) -> None:
    assert isinstance(rule, ModuleType)
    assert rule.__name__ == f"llmtop.analysis.rules.{rule.id.replace('-', '_')}"
    assert rule.summary.endswith(".")
    assert rule.source
    assert str(signature(rule.check)) in CHECKS


def test_every_rule_in_the_folder_is_in_a_book() -> None:
    modules = [import_module(f"llmtop.analysis.rules.{name}") for _, name, _ in iter_modules(rules.__path__)]
    assert {module for module in modules if hasattr(module, "summary")} == {*ALL_RULES}


def test_what_explains_a_rule_is_one() -> None:
    explained = report_rules._EXPLAINED
    assert {*explained, *chain.from_iterable(explained.values())} <= {rule.id for rule in ALL_RULES}


def test_lanes_stand_behind_rules_that_there_are() -> None:
    assert lanes._BEHIND.keys() <= {rule.id for rule in ALL_RULES}


def test_no_rule_is_in_both_books_and_none_has_the_name_of_another() -> None:
    ids = [rule.id for rule in ALL_RULES]
    assert len(ids) == len(set(ids))
