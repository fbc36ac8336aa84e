"""The terminal that every test of the screen believes in, whatever the tests themselves run in."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from textual.app import App
from textual.css.stylesheet import Stylesheet

from llmtop.model import RECORDING, Origin, Trace
from llmtop.parsers.registry import load
from llmtop.tui.app import LlmtopApp
from tests.analysis.test_memory import stepped
from tests.kernel_traces import LADDER, TIMELINE
from tests.live_traces import Scene, live_trace, probed
from tests.parsers.sample_reports import SAMPLE_TRACES
from tests.parsers.test_cuda_core_dump import DUMP
from tests.tui.quiet import FRAME_S, until_quiet
from tests.tui.test_explore import FOLDED

if TYPE_CHECKING:
    from textual.css.model import RuleSet

    from llmtop.model import Issue

PRINTED = [
    SAMPLE_TRACES / "perf" / name
    for name in (
        "6.1.187/memory-bound.perf-stat.txt",
        "6.1.187/crowded-latency.perf-sched.txt",
        "6.1/two-counters.perf-c2c.txt",
        "6.1/two-nodes.perf-mem.txt",
    )
]
"""What perf prints: a file for each of its views."""


@pytest.fixture(scope="module", autouse=True)
def _no_program_outlives_its_module() -> Iterator[None]:
    """Its widgets are garbage that holds itself, and with it the file that was shown; it is looked for seldom."""
    yield
    gc.collect()


@pytest.fixture(scope="session", autouse=True)
def _style_sheets_are_parsed_once() -> Iterator[None]:
    """Every program has the same ones, and reads the rules that come of them without changing them."""
    parsed: dict[tuple[object, ...], list[RuleSet]] = {}

    def parse(sheet: Stylesheet, css: str, *args: object, **kwargs: object) -> list[RuleSet]:
        of = css, args, *sorted(kwargs.items()), frozenset(sheet._variables.items())
        if of not in parsed:
            parsed[of] = parse_anew(sheet, css, *args, **kwargs)  # type: ignore[arg-type]
        return parsed[of]

    parse_anew = Stylesheet._parse_rules
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse)
        yield


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("NO_COLOR", "LLMTOP_ASCII", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _as_soon_as_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on after a key as soon as all is done that it set off, and not before."""
    for place in ("textual.app", "textual.pilot"):
        monkeypatch.setattr(f"{place}.wait_for_idle", until_quiet)
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", FRAME_S)
    # On a busy machine the seconds for which a notice usually stands pass before a test looks at it.
    notify = App.notify
    monkeypatch.setattr(
        App, "notify", lambda app, *words, **options: notify(app, *words, **{**options, "timeout": 600})
    )


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was said of faults, each once; a test that means to have some takes them out of the list."""
    found: list[str] = []

    def note(app: LlmtopApp, issue: Issue) -> None:
        known(app, issue)
        if issue.message not in found:
            found.append(issue.message)

    known = LlmtopApp._note
    monkeypatch.setattr(LlmtopApp, "_note", note)
    yield found
    assert found == []


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, ...]:
    """Files that have something for all views between them."""
    numbers = replace(probed(live_trace(Scene(), 20)), origin=Origin("made-up"), stacks=())
    machine = replace(live_trace(Scene(gpus=2), 20), origin=Origin(RECORDING))
    allocating = stepped(tmp_path_factory.mktemp("capture"), [1 << 18] * 9)
    printed = map(load, PRINTED)
    kernels = load(LADDER.with_name("uncoalesced-loads.ncu-rep.xz"))
    return kernels, load(TIMELINE), load(FOLDED), numbers, machine, allocating, load(DUMP), *printed
