"""What is told of a recording: nothing that would only have helped who looked at the time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.recorded import told_of
from llmtop.analysis.server.liveness import liveness
from llmtop.analysis.threads.flames import TreeContent
from llmtop.analysis.threads.stall_flame import stall_flame
from llmtop.frozen import frozen
from llmtop.model import LIVE, RECORDING, Finding, Origin, Trace, Unknown, UnknownKind
from tests.analysis.verdict_scenes import SITUATIONS

AWAITED = Unknown("not looked at yet", "wait a second", UnknownKind.PASSING)
TOOL_LACKS = Unknown("py-spy is not installed", "pip install py-spy")
RECORDED = Trace(Origin(RECORDING))


@frozen
class View:
    """A view as views are."""

    rows: tuple[object, ...]
    more: object = None


def test_a_remedy_for_who_looks_at_the_time_is_left_out_of_a_recording() -> None:
    view = View((1, AWAITED, {"a": View((), AWAITED)}), TOOL_LACKS)
    gone = Unknown("not looked at yet", "", UnknownKind.PASSING)
    assert told_of(RECORDED, view) == View((1, gone, {"a": View((), gone)}), TOOL_LACKS)
    assert told_of(Trace(LIVE), view) is view


def test_what_has_no_such_remedy_stays_the_same_object() -> None:
    view = View((1, TOOL_LACKS, {"a": View(())}), RECORDED)
    assert told_of(RECORDED, view) is view


def test_a_deep_tree_is_no_limit() -> None:
    tree = View(())
    for _ in range(5000):
        tree = View((tree,))
    assert told_of(RECORDED, tree) is tree


NAMES_A_PROCESS = re.compile(r"(?:--pid|-p|-t|-pc|-cp|kill|-CONT|-apc [\d,-]+) \d+\b(?!-)|/(?:proc|task)/\d")


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_is_to_be_done_about_a_recording_names_no_process_of_then(situation: str) -> None:
    live = SITUATIONS[situation][0].trace()
    recorded = replace(live, origin=replace(live.origin, kind=RECORDING))
    said = [text for one in diagnose(recorded).findings for text in (one.action, one.next_command)]
    said += [text for one in liveness(recorded).faults for text in (one.action, one.next_command)]
    assert not [text for text in said if NAMES_A_PROCESS.search(text)]
    assert len(diagnose(live).findings) == len(diagnose(recorded).findings)


def test_some_of_it_names_a_process_live() -> None:
    traces = [scene.trace() for scene, _ in SITUATIONS.values()]
    commands = [one.next_command for trace in traces for one in diagnose(trace).findings]
    assert [text for text in commands if NAMES_A_PROCESS.search(text)]


class Awaits:
    """A rule for which nothing has come yet."""

    id = "awaits"
    summary = source = "made up"

    def check(self, trace: Trace) -> Iterator[Finding | Unjudged]:
        yield Unjudged(self.id, AWAITED)


@pytest.mark.parametrize(("kind", "remedy"), [("live", "wait a second"), (RECORDING, "")])
def test_what_keeps_a_rule_from_judging_is_told_without_waiting(kind: str, remedy: str) -> None:
    (unjudged,) = diagnose(Trace(Origin(kind)), [Awaits()]).unjudged
    assert unjudged.why.remedy == remedy


def test_nobody_can_look_at_interpreters_any_more() -> None:
    bare = Trace(LIVE)
    remedies = []
    for trace in (bare, replace(bare, origin=Origin(RECORDING))):
        why = stall_flame(trace, TreeContent(python=False))
        assert isinstance(why, Unknown)
        remedies.append(why.remedy)
    live, recorded = remedies
    assert "p: Python's functions alone" in live
    assert "p:" not in recorded
