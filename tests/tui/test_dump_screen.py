"""The newest core dump of the server's GPU opens over the live screen, and over the diagnosis that names it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from llmtop import ids
from llmtop.model import NS_PER_S, CoreDump, Mark, MarkKind, Severity, Trace
from llmtop.parsers.registry import load
from llmtop.tui.screens.diagnosis import DiagnosisScreen
from llmtop.tui.screens.dump_screen import DumpScreen
from llmtop.tui.screens.live import Reported
from tests.live_traces import live_trace
from tests.parsers.test_cuda_core_dump import DUMP
from tests.tui.live_app import fixed_app, press, running, session_of
from tests.tui.quiet import wait_until


def with_dump(file: Path) -> Trace:
    """A server that has left one three seconds ago."""
    trace, faults = live_trace(), load(DUMP).faults
    dump = CoreDump(str(file), 1, faults[0].gpu, faults)
    left = Mark(
        trace.end_ns - 3 * NS_PER_S, MarkKind.CORE_DUMP, ids.process(7), "left a dump", Severity.ERROR, "Worker", dump
    )
    return replace(trace, marks=(*trace.marks, left))


async def test_without_a_dump_there_is_no_key() -> None:
    app = fixed_app()
    async with running(app, (200, 40)) as pilot:
        assert "o core dump" not in app.screen_text()
        await press(pilot, "o")
        assert app.screen_stack == [app.live]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_dump_opens_as_the_explorer_shows_it_and_escape_goes_back(size: tuple[int, int]) -> None:
    app = fixed_app()
    async with running(app, size) as pilot:
        session_of(app).now = with_dump(DUMP)
        app.post_message(Reported())
        await wait_until(pilot, lambda: "Misaligned" in app.screen_text())
        await press(pilot, "o")
        assert isinstance(app.screen, DumpScreen)
        await wait_until(pilot, lambda: "misaligned-store.nvcudmp.gz" in app.screen_text())
        await wait_until(pilot, lambda: "store_odd" in app.screen_text() or "GPU faults" in app.screen_text())
        assert "Esc back" in app.screen_text()
        await press(pilot, "escape")
        assert app.screen_stack == [app.live]


async def test_the_diagnosis_that_names_a_dump_opens_it() -> None:
    app = fixed_app()
    async with running(app, (120, 40)) as pilot:
        session_of(app).now = with_dump(DUMP)
        app.post_message(Reported())
        await wait_until(pilot, lambda: "Misaligned" in app.screen_text())
        assert "o core dump" in await press(pilot, "d")
        await press(pilot, "o")
        assert isinstance(app.screen, DumpScreen)
        await press(pilot, "q")
        assert isinstance(app.screen, DiagnosisScreen)


async def test_a_dump_that_is_gone_is_said_and_the_server_stays(tmp_path: Path) -> None:
    app = fixed_app()
    async with running(app, (120, 40)) as pilot:
        session_of(app).now = with_dump(tmp_path / "gone.nvcudmp")
        app.post_message(Reported())
        await wait_until(pilot, lambda: "o core dump" in app.screen_text())
        await press(pilot, "o")
        await wait_until(pilot, lambda: app.screen_stack == [app.live])
        await wait_until(pilot, lambda: "gone.nvcudmp" in app.screen_text())
