"""The stall flame: Python's functions on demand, two moments compared, a flame that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from textual import events
from textual.pilot import Pilot

from llmtop import ids, whats
from llmtop.analysis.threads.flames import FlameView
from llmtop.analysis.threads.stall_flame import notes
from llmtop.analysis.threads.stall_tree import stall_tree
from llmtop.analysis.views import NodeKind, StackNode, StackTree
from llmtop.model import NS_PER_S, Missing, Stack, StackWindow, Trace, Unknown, What
from llmtop.tui.panes.stacks import StacksPane
from llmtop.tui.panes.view import Context
from llmtop.tui.render.look import Look
from llmtop.tui.render.stall_frames import last_lines
from llmtop.tui.screens.live import LiveApp
from llmtop.vocabulary import ON_CPU
from tests.live_traces import TARGET, live_trace
from tests.tui.live_app import FixedSession, fixed_app, session_of

THREAD = ids.thread(4300, 4300)
WAITS = Stack(("_PyEval_EvalFrameDefault", "sem_wait", "do_futex_[k]"), 6e9, "ns", "futex", THREAD)
RUNS = Stack(("_PyEval_EvalFrameDefault", "list_sort"), 4e9, "ns", "on-cpu", THREAD)
PYTHON = (
    Stack(("main (core.py:3)", "wait_for_output (core.py:40)"), 12, "samples", "python waiting", THREAD),
    Stack(("main (core.py:3)", "schedule (core.py:70)"), 8, "samples", "python running", THREAD),
)
NATIVE = (WAITS, RUNS)
NOT_INSTALLED = Unknown("py-spy is not installed", "pipx inject llmtop-monitor py-spy")


def trace_of(stacks: tuple[Stack, ...], after_s: int = 0, **changes: object) -> Trace:
    """Stacks alone, without the clocks of threads."""
    trace = live_trace()
    end_ns = trace.end_ns + after_s * NS_PER_S
    series = {key: one for key, one in trace.series.items() if not key[0].startswith("thread:")}
    return replace(trace, end_ns=end_ns, stacks=stacks, stacks_end_ns=end_ns, series=series, **changes)  # type: ignore[arg-type]


class AskedSession(FixedSession):
    """Remembers what it was asked for."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.asked: list[tuple[str, bool]] = []

    def ask(self, what: What, wanted: bool) -> None:
        self.asked.append((what, wanted))


@pytest.fixture
async def pilot() -> AsyncIterator[Pilot[int]]:
    """The flame alone on the screen."""
    app = fixed_app()
    app.session = app.live.session = AskedSession(trace_of(NATIVE))
    async with app.run_test(size=(120, 24)) as pilot:
        app.live.refresh_trace()
        await pilot.press("5")
        await pilot.pause()
        await pilot.press("z")
        await pilot.pause()
        yield pilot


def app_of(pilot: Pilot[int]) -> LiveApp:
    assert isinstance(pilot.app, LiveApp)
    return pilot.app


def pane_of(pilot: Pilot[int]) -> StacksPane:
    return app_of(pilot).live.panes.of_kind(StacksPane)


async def show(pilot: Pilot[int], trace: Trace) -> str:
    """The screen with another trace."""
    session_of(app_of(pilot)).now = trace
    app_of(pilot).live.refresh_trace()
    return await text(pilot)


async def text(pilot: Pilot[int]) -> str:
    await pilot.pause()
    return app_of(pilot).screen_text()


async def press(pilot: Pilot[int], *keys: str) -> str:
    await pilot.press(*keys)
    return await text(pilot)


async def test_p_asks_for_python_and_shows_it_as_an_estimate(pilot: Pilot[int]) -> None:
    await show(pilot, trace_of((*NATIVE, *PYTHON)))
    assert "_PyEval_EvalFrameDefault" in await text(pilot)
    seen = await press(pilot, "p")
    assert "wait_for_output (core.py)" in seen
    assert "schedule (core.py)" in seen
    assert "_PyEval_EvalFrameDefault" not in seen
    assert "Python estimated from 20 looks" in seen
    assert "estimated, in 100 % of the time" in seen
    assert "wait_for_output (core.py)  (estimate)" in await press(pilot, *["down"] * 5)
    seen = await press(pilot, "i")
    assert "wait_for_output (core.py:40)" in seen
    assert "_PyEval_EvalFrameDefault" in seen
    seen = await press(pilot, "p")
    assert "wait_for_output" not in seen
    session = app_of(pilot).session
    assert isinstance(session, AskedSession)
    assert session.asked == [(whats.PYTHON_FRAMES, True), (whats.PYTHON_FRAMES, False)]


async def test_what_keeps_python_away_is_a_line_below_the_native_stacks(pilot: Pilot[int]) -> None:
    await press(pilot, "p")
    seen = await show(pilot, trace_of(NATIVE, missing=(Missing(What("pyspy"), NOT_INSTALLED),)))
    assert "list_sort" in seen
    assert f"no Python frames: {NOT_INSTALLED}" in seen


async def test_without_probes_python_can_be_had_alone(pilot: Pilot[int]) -> None:
    denied = Missing(What("ebpf"), Unknown("only root may load probes", "sudo llmtop"))
    assert "or p: Python's functions alone" in await show(pilot, trace_of((), missing=(denied,)))
    seen = await press(pilot, "p")
    assert "only root may load probes; no Python frames: no interpreter" in seen
    seen = await show(pilot, trace_of(PYTHON, missing=(denied,)))
    assert "20.0 samples  100 %  all" in seen
    assert "no times, looks alone: only root may load probes (sudo llmtop)" in seen
    assert "wait_for_output (core.py)" in seen


async def test_b_compares_with_the_moment_that_was_shown(pilot: Pilot[int]) -> None:
    seen = await press(pilot, "b")
    assert "0 points moved · against 0 s earlier · windows overlap by 30 s" in seen
    assert "no change  100 % → 100 %  all" in seen
    more = Stack(("_PyEval_EvalFrameDefault", "import_module"), 2e9, "ns", "on-cpu", THREAD)
    seen = await show(pilot, trace_of((replace(WAITS, weight=18e9), more), after_s=40))
    assert "40 points moved · against 40 s earlier" in seen
    assert "overlap" not in seen
    assert "+30.0 futex" in seen
    assert "-40.0 gone list_sort" in seen
    assert "+10" in seen
    on_cpu = ["down", "down", "down", "right"]
    assert "-30.0 points  40 % → 10 %  on-cpu" in await press(pilot, *on_cpu)
    assert "+10.0 points  new, 0 % → 10 %  import_module" in await press(pilot, "down", "down", "right")
    assert "points" not in await press(pilot, "b")


async def test_python_that_one_moment_lacks_is_no_change(pilot: Pilot[int]) -> None:
    await show(pilot, trace_of((*NATIVE, *PYTHON)))
    await press(pilot, "p", "b")
    seen = await show(pilot, trace_of(NATIVE, after_s=40))
    assert "0 points moved" in seen
    assert "no Python frames: only one of the two moments has them" in seen
    seen = await show(pilot, trace_of(PYTHON, after_s=80))
    assert "the two moments cannot be compared" in seen


async def test_an_earlier_moment_can_be_compared_with_now(pilot: Pilot[int]) -> None:
    trace = trace_of((RUNS,), after_s=60)
    earlier = StackWindow(trace.end_ns - 50 * NS_PER_S, (WAITS,))
    await show(pilot, replace(trace, past_stacks=(earlier,)))
    live = app_of(pilot).live
    live.time.go_to(trace.end_ns - 45 * NS_PER_S, trace)
    live.refresh_trace()
    seen = await text(pilot)
    assert "functions of 5 s earlier" in seen
    assert "sem_wait" in seen
    await press(pilot, "b")
    seen = await press(pilot, "escape")
    assert "100 points moved · against 50 s earlier" in seen
    assert "-100.0 gone futex" in seen


async def test_x_holds_the_flame_while_the_rest_lives(pilot: Pilot[int]) -> None:
    await press(pilot, "x")
    seen = await show(pilot, trace_of((RUNS,), after_s=20))
    assert "frozen 20 s ago (x)" in seen
    assert "sem_wait" in seen
    seen = await press(pilot, "x")
    assert "frozen" not in seen
    assert "sem_wait" not in seen


async def test_what_is_kept_holds_no_series(pilot: Pilot[int]) -> None:
    await press(pilot, "x")
    pane = pane_of(pilot)
    assert pane._frozen is not None
    assert not pane._frozen.series


async def test_orders_search_and_zoom_work_on_a_comparison(pilot: Pilot[int]) -> None:
    await press(pilot, "b")
    await show(pilot, trace_of((WAITS,), after_s=40))
    seen = await press(pilot, "f", "f")
    assert "waits only" in seen
    seen = await press(pilot, "f", "f", "f", "slash", "s", "e", "m", "enter")
    assert "/sem" in seen
    await press(pilot, "down", "down", "enter")
    view = pane_of(pilot)._view
    assert isinstance(view, FlameView)
    assert view.tree.unit == "%"


def test_a_past_window_is_named_and_a_fresh_one_tells_its_length() -> None:
    trace = trace_of(NATIVE)
    tree = stall_tree(trace)
    assert list(notes(tree, trace, trace)) == ["last 10 s"]
    started = replace(trace, start_ns=trace.end_ns - 6 * NS_PER_S)
    assert list(notes(tree, started, started)) == ["last 6 s"]
    later = replace(trace, end_ns=trace.end_ns + 9 * NS_PER_S)
    assert list(notes(tree, later, later)) == ["last 10 s", "functions of 9 s earlier"]


def test_idle_threads_are_left_out_until_they_are_wanted() -> None:
    idle = tuple(replace(NATIVE[0], state="futex", track=ids.thread(7, tid)) for tid in (98, 99))
    busy = replace(NATIVE[0], state=ON_CPU, track=ids.thread(7, 7))
    pane = StacksPane().within(Context(TARGET))
    trace = trace_of((busy, *idle))
    view = pane.view(trace)
    assert isinstance(view, FlameView)
    assert view.tree.root.total == busy.weight
    assert view.resting == 2
    pane.action_resting()
    view = pane.view(trace)
    assert isinstance(view, FlameView)
    assert view.tree.root.total == 3 * busy.weight
    assert view.resting == 0


async def test_keys_typed_in_one_go_reach_the_pane_they_are_for() -> None:
    """Over a slow line they come together: the third must not go to the pane that had the first."""
    app = fixed_app()
    app.session = app.live.session = AskedSession(trace_of(NATIVE))
    async with app.run_test(size=(120, 24)) as pilot:
        app.live.refresh_trace()
        for key in ("5", "z", "p"):
            app.post_message(events.Key(key, key))
        await pilot.pause()
        assert app.live.panes.of_kind(StacksPane).wanted.python


async def test_without_probes_states_stand_alone_and_threads_that_sleep_take_a_line(pilot: Pilot[int]) -> None:
    """Clocks and looks of /proc: the engine first, its shares those of the threads' pane."""
    denied = Missing(What("ebpf"), Unknown("only root may load probes", "sudo llmtop"))
    seen = await show(pilot, replace(live_trace(), missing=(denied,)))
    assert "last 10 s · states alone" in seen
    assert "no functions: only root may load probes (sudo llmtop)" in seen
    assert "3 threads wait for work (a shows all)" in seen
    rows = [line for line in seen.splitlines() if "EngineCore" in line]
    assert rows[0].index("EngineCore") < rows[0].index("APIServer")
    assert "▏run queue" in await press(pilot, "down", "down", "enter")
    states = {node.name: node.total / 10e9 for node in engine_of(pilot).children}
    assert states == pytest.approx({"on-cpu": 0.78, "run queue": 0.09, "futex": 0.13}, abs=0.01)
    seen = await press(pilot, "0", "a")
    assert "wait for work" not in seen
    assert "pt_nccl_watchdg" in seen


async def test_stacks_divide_what_the_clocks_tell(pilot: Pilot[int]) -> None:
    """The review's case: 96 % on a CPU in the threads' pane, 11 % in the flame, whose samples were few."""
    few = replace(RUNS, weight=1e6)
    await show(pilot, replace(live_trace(), stacks=(WAITS, few), stacks_end_ns=live_trace().end_ns))
    on_cpu = next(node for node in engine_of(pilot).children if node.name == "on-cpu")
    assert on_cpu.total == pytest.approx(7.8e9, rel=0.01)
    assert on_cpu.children[0].children[0].name == "list_sort"
    assert "7.77 s  78 % of EngineCore  on-cpu" in await press(pilot, "down", "down", "down")


async def test_a_thread_at_the_border_of_rest_stays_for_a_while(pilot: Pilot[int]) -> None:
    idle = replace(NATIVE[0], state="futex", track=ids.thread(4242, 4250))
    runs = replace(RUNS, track=ids.thread(4242, 4250))
    await show(pilot, trace_of((RUNS, idle, runs)))
    for after_s, resting in ((10, 0), (29, 0), (31, 1)):
        await show(pilot, trace_of((RUNS, idle), after_s=after_s))
        view = pane_of(pilot)._view
        assert isinstance(view, FlameView)
        assert view.resting == resting, after_s


def engine_of(pilot: Pilot[int]) -> StackNode:
    """The thread that stands first."""
    view = pane_of(pilot)._view
    assert isinstance(view, FlameView)
    return view.tree.root.children[0].children[0]


def test_what_is_missing_of_the_picture_is_whole_where_there_is_room() -> None:
    tree = StackTree(StackNode("all", NodeKind.ROOT, 0.0, 0.0), "ns")
    view = FlameView(tree, lack=("no functions", Unknown("probes would cost too much", "it is tried again")), resting=2)
    whole, cut = ([strip.text.rstrip() for strip in last_lines(view, 40, room, Look())] for room in (5, 2))
    asleep = "2 threads wait for work (a shows all)"
    assert whole == [asleep, "no functions: probes would cost too much", "  (it is tried again)"]
    assert cut == [asleep, "no functions: probes would cost too muc…"]
