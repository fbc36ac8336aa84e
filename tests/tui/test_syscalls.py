"""The panes of system calls and stacks."""

from __future__ import annotations

from textual.app import App, ComposeResult

from llmtop import ids
from llmtop.analysis.series.histograms import Quantile
from llmtop.analysis.threads.flames import Order
from llmtop.analysis.threads.stall_tree import stall_tree
from llmtop.analysis.threads.syscalls import NOT_TIMED, Syscall, SyscallsView
from llmtop.model import Missing, Origin, Stack, Trace, Unknown, What
from llmtop.tui.panes.stacks import StacksPane
from llmtop.tui.panes.view import Context
from llmtop.tui.render.flame import found_share, names_of, path_of
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.render.syscalls import draw_syscalls
from tests.live_traces import SOURCES, TARGET

PLAIN = Look(ASCII)
VIEW = SyscallsView(
    (
        Syscall("epoll_wait", 400, 40, 0.0, 2e10, Quantile(1e7, 2e7), Quantile(4.5e7, 9e7)),
        Syscall("read", 5000, 500, 3.0, 5e7, Quantile(0.0, 9_000.0), Quantile(1.25e6, 2.5e6)),
        Syscall("sched_yield", 2e7, 2e6, NOT_TIMED, NOT_TIMED, NOT_TIMED, NOT_TIMED),
    ),
    10.0,
    "eBPF",
)
STACKS = (
    Stack(("main", "[/b]", "do_futex_[k]"), 60e9, "ns", "futex", ids.thread(7, 7)),
    Stack(("main", "step", "sum"), 40e9, "ns", "on-cpu", ids.thread(7, 8)),
)
TRACE = Trace(Origin("live"), stacks=STACKS)


def drawn(width: int, height: int) -> list[str]:
    strips = draw_syscalls(VIEW, width, height, PLAIN)
    assert all(strip.cell_length == width for strip in strips)
    return [strip.text.rstrip() for strip in strips]


def test_calls_in_columns_with_what_the_busiest_kind_means() -> None:
    assert drawn(72, 6) == [
        "system call             calls/s     busy    p50 <    p99 <  kind",
        "epoll_wait                 40.0     2.00  20.0 ms  90.0 ms  wait",
        "read                        500     0.01  9.00 us  2.50 ms  data",
        "sched_yield              2.00 M        -        -        -  spin",
        "read: bytes are moved between buffers: sockets, pipes, files",
    ]


def test_a_narrow_pane_keeps_name_rate_and_kind() -> None:
    assert drawn(42, 2) == ["system call             calls/s  kind", "epoll_wait                 40.0  wait"]


def test_a_frame_is_found_again_by_its_names_when_places_change() -> None:
    root = stall_tree(TRACE).root
    names = names_of(root, (0, 0, 0))
    assert [name for name, _ in names] == ["process 7", "thread 7/8", "on-cpu"]
    busier = Stack(STACKS[0].frames, 900e9, "ns", "on-cpu", STACKS[0].track)
    swapped = stall_tree(Trace(Origin("live"), stacks=(busier, STACKS[1]))).root
    assert path_of(swapped, names) == (0, 1, 0)
    assert path_of(root, (*names, ("gone", "frame"))) == (0, 0, 0)


def test_a_found_name_counts_once_a_stack() -> None:
    root = stall_tree(TRACE).root
    assert found_share(root, "MAIN") == 1.0
    assert found_share(root, "step") == 0.4
    assert found_share(root, "nowhere") == 0.0


class FlameApp(App[None]):
    def compose(self) -> ComposeResult:
        yield StacksPane().within(Context(TARGET))


def text_of(pane: StacksPane) -> list[str]:
    return [strip.text.rstrip() for strip in pane._strips]


async def test_moving_zooming_searching_and_turning_the_flame() -> None:
    app = FlameApp()
    async with app.run_test(size=(60, 12)) as pilot:
        pane = app.query_one(StacksPane)
        pane.focus()
        pane.show(TRACE)
        await pilot.pause()
        assert "100 %" in text_of(pane)[-1]
        await pilot.press("down", "down", "right")
        await pilot.pause()
        assert text_of(pane)[-1].endswith("thread 7/8")
        assert "100 % of thread 7/8" in text_of(pane)[-1]
        await pilot.press("enter")
        await pilot.pause()
        assert "thread 7/7" not in "".join(text_of(pane))
        await pilot.press("0", "slash", *"step")
        await pilot.pause()
        assert "/step_ 100 % of the time" in str(pane._border_title)
        await pilot.press("enter", "f")
        await pilot.pause()
        assert pane.wanted.order is Order.BY_STATE
        assert "on-cpu" in text_of(pane)[1]


async def test_the_flame_says_why_there_is_none() -> None:
    why = Unknown("only root may load probes", "sudo llmtop --attach PID")
    app = FlameApp()
    async with app.run_test(size=(60, 12)) as pilot:
        pane = app.query_one(StacksPane)
        pane.show(Trace(Origin("live"), missing=(Missing(What("ebpf"), why),), sources=SOURCES))
        await pilot.pause()
        assert "only root may load probes" in "".join(text_of(pane))
