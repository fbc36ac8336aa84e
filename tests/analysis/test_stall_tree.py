"""Stacks merged into a tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop.analysis.threads.flames import Order, TreeContent
from llmtop.analysis.threads.stall_flame import stall_flame
from llmtop.analysis.threads.stall_times import leading_thread, resting_threads
from llmtop.analysis.threads.stall_tree import ENDED_THREADS, MergedNode, stall_tree
from llmtop.analysis.views import StackNode
from llmtop.model import Missing, Origin, Stack, Trace, Track, TrackKind, Unknown, What
from llmtop.vocabulary import PythonState
from tests.live_traces import SOURCES

TRACKS = {
    ids.process(7): Track(ids.process(7), TrackKind.PROCESS, "python3", facts={"role": "EngineCore"}),
    ids.thread(7, 7): Track(ids.thread(7, 7), TrackKind.THREAD, "EngineCore", ids.process(7)),
    ids.thread(7, 8): Track(ids.thread(7, 8), TrackKind.THREAD, "pool", ids.process(7)),
    ids.thread(7, 9): Track(ids.thread(7, 9), TrackKind.THREAD, "pool", ids.process(7)),
}
STACKS = (
    Stack(("main", "step", "do_futex_[k]"), 60, "ns", "futex", ids.thread(7, 7)),
    Stack(("main", "step", "sum"), 30, "ns", "on-cpu", ids.thread(7, 7)),
    Stack(("start", "sum"), 5, "ns", "on-cpu", ids.thread(7, 8)),
    Stack(("start", "sum"), 5, "ns", "on-cpu", ids.thread(7, 9)),
)
TRACE = Trace(Origin("live"), tracks=TRACKS, stacks=STACKS)


def written(node: StackNode, depth: int = 0) -> list[str]:
    own = f" own {node.own:g}" if node.own else ""
    below = [line for child in node.children for line in written(child, depth + 1)]
    return [f"{'  ' * depth}{node.name} {node.total:g}{own}", *below]


def test_process_thread_state_functions() -> None:
    assert written(stall_tree(TRACE).root) == [
        "all 100",
        "  EngineCore 7 100",
        "    EngineCore 90",
        "      futex 60",
        "        main 60",
        "          step 60",
        "            do_futex_[k] 60 own 60",
        "      on-cpu 30",
        "        main 30",
        "          step 30",
        "            sum 30 own 30",
        "    pool ×2 10",
        "      on-cpu 10",
        "        start 10",
        "          sum 10 own 10",
    ]


def test_running_leaves_the_waits_out() -> None:
    assert written(stall_tree(TRACE, Order.RUNNING).root)[:3] == ["all 40", "  EngineCore 7 40", "    EngineCore 30"]


def test_waiting_leaves_the_running_out() -> None:
    assert stall_tree(TRACE, Order.WAITING).root.total == 60


def test_inverted_merges_what_ends_alike() -> None:
    assert written(stall_tree(TRACE, Order.INVERTED).root)[5:] == [
        "  on-cpu 40",
        "    sum 40",
        "      step 30",
        "        main 30 own 30",
        "      start 10 own 10",
    ]


def test_by_state_puts_the_state_on_top() -> None:
    assert [child.name for child in stall_tree(TRACE, Order.BY_STATE).root.children] == ["futex", "on-cpu"]


def test_kinds_tell_the_kernels_functions_and_the_states_apart() -> None:
    node, kinds = stall_tree(TRACE).root, []
    while node.children:
        node = node.children[0]
        kinds.append(node.kind)
    assert kinds == ["process", "thread", "waiting", "frame", "frame", "kernel"]


def test_threads_that_are_not_known_go_by_their_number() -> None:
    tree = stall_tree(Trace(Origin("live"), stacks=STACKS[:1]))
    assert [line.strip() for line in written(tree.root)[1:3]] == ["process 7 60", "thread 7/7 60"]


def test_a_process_that_has_ended_keeps_its_role() -> None:
    ended = Track(ids.ended(7, 1), TrackKind.ENDED, "EngineCore", facts={"pid": 7})
    tree = stall_tree(Trace(Origin("live"), tracks={ended.id: ended}, stacks=STACKS[:1]))
    assert [line.strip() for line in written(tree.root)[1:3]] == ["EngineCore 7 60", f"{ENDED_THREADS} 60"]


def test_threads_that_have_ended_are_one_frame_of_their_process() -> None:
    ended = tuple(Stack(("start", "serve"), 5, "ns", "socket", ids.thread(7, tid)) for tid in (20, 21))
    tree = stall_tree(Trace(Origin("live"), tracks=TRACKS, stacks=(*STACKS, *ended)))
    assert [child.name for child in tree.root.children[0].children] == [
        "EngineCore",
        "pool ×2",
        "threads that have ended",
    ]


def test_without_stacks_it_says_why() -> None:
    why = Unknown("only root may load probes", "sudo llmtop ...")
    assert stall_tree(Trace(Origin("live"), missing=(Missing(What("ebpf"), why),), sources=SOURCES)).why_not == why


def test_stacks_of_different_units_are_not_mixed() -> None:
    mixed = (Stack(("main",), 1, "samples"), *STACKS)
    tree = stall_tree(Trace(Origin("live"), stacks=mixed))
    assert (tree.unit, tree.root.total) == ("ns", 100)
    tree = stall_tree(Trace(Origin("live"), stacks=mixed[:1]))
    assert (tree.unit, tree.root.total) == ("samples", 1)


PYTHON = (
    Stack(("main (a.py:3)", "step (a.py:7)"), 2, "samples", "python waiting", ids.thread(7, 7)),
    Stack(("main (a.py:3)", "step (a.py:9)"), 1, "samples", "python waiting", ids.thread(7, 7)),
    Stack(("main (a.py:3)", "load (b.py:1)"), 1, "samples", "python waiting", ids.thread(7, 7)),
)


def test_python_functions_stand_between_the_state_and_what_they_called() -> None:
    tree = stall_tree(Trace(Origin("live"), tracks=TRACKS, stacks=(*STACKS, *PYTHON), stacks_end_ns=5))
    assert written(tree.root)[3:9] == [
        "      futex 60",
        "        main (a.py) 60",
        "          step (a.py) 45",
        "            step 45",
        "              do_futex_[k] 45 own 45",
        "          load (b.py) 15",
    ]
    assert (tree.python_share, tree.looks, tree.end_ns) == (0.6, 4, 5)
    futex = tree.root.children[0].children[0].children[0]
    assert [futex.kind, futex.children[0].kind] == ["waiting", "python"]


def test_python_functions_can_be_left_out() -> None:
    stacks = (*STACKS, *PYTHON)
    tree = stall_tree(Trace(Origin("live"), tracks=TRACKS, stacks=stacks), TreeContent(python=False))
    assert written(tree.root) == written(stall_tree(TRACE).root)
    assert tree.python_share == 0


def test_without_probes_the_looks_at_interpreters_are_the_tree() -> None:
    trace = Trace(Origin("live"), tracks=TRACKS, stacks=PYTHON)
    tree = stall_tree(trace)
    assert tree.unit == "samples"
    assert [line.strip() for line in written(tree.root)[3:6]] == ["waiting 4", "main (a.py) 4", "step (a.py) 3 own 3"]
    assert stall_tree(trace, TreeContent(python=False)).why_not is not None


def test_moments_of_which_one_has_no_times_are_not_compared() -> None:
    looks = Trace(Origin("live"), tracks=TRACKS, stacks=PYTHON)
    assert stall_flame(looks, TreeContent(), baseline=TRACE) == Unknown(
        "the two moments cannot be compared: of one there are times, of the other only looks at interpreters", "b"
    )


def test_detail_has_the_lines_and_the_plumbing() -> None:
    frames = ("entry_SYSCALL_64_after_hwframe_[k]", "do_futex_[k]")
    python = Stack(("Thread.run (threading.py:9)", "step (a.py:7)"), 1, "samples", "python waiting", ids.thread(7, 7))
    trace = Trace(Origin("live"), stacks=(Stack(frames, 8, "ns", "futex", ids.thread(7, 7)), python))
    brief, full = stall_tree(trace), stall_tree(trace, TreeContent(detail=True))
    names = [[line.split(" 8")[0].strip() for line in written(tree.root)[4:]] for tree in (brief, full)]
    assert names == [
        ["step (a.py)", "do_futex_[k]"],
        ["Thread.run (threading.py:9)", "step (a.py:7)", *frames],
    ]


def test_functions_without_a_name_do_not_part_those_with_one() -> None:
    stacks = (
        Stack(("[unknown]", "read"), 1, "ns", "pipe", ids.thread(7, 7)),
        Stack(("[unknown]", "[unknown]", "read"), 2, "ns", "pipe", ids.thread(7, 7)),
        Stack(("[unknown]", "[unknown]"), 4, "ns", "pipe", ids.thread(7, 7)),
    )
    trace = Trace(Origin("live"), stacks=stacks)
    assert [line.strip() for line in written(stall_tree(trace).root)[4:]] == ["[unknown] 4 own 4", "read 3 own 3"]
    assert len(written(stall_tree(trace, TreeContent(detail=True)).root)) > 6


IDLE_POOL = tuple(Stack(("start", "do_futex_[k]"), 100, "ns", "futex", ids.thread(7, tid)) for tid in (8, 9))


def test_threads_that_only_wait_are_resting() -> None:
    trace = replace(TRACE, stacks=(*STACKS[:2], *IDLE_POOL))
    assert resting_threads(trace) == {"thread:7/8", "thread:7/9"}
    tree = stall_tree(trace, TreeContent(without=resting_threads(trace)))
    assert [child.name for child in tree.root.children[0].children] == ["EngineCore"]
    assert tree.root.total == 90


def test_the_share_of_python_is_of_what_is_shown() -> None:
    look = Stack(("step (a.py:1)",), 3, "samples", PythonState.RUNNING, ids.thread(7, 7))
    trace = replace(TRACE, stacks=(STACKS[1], *IDLE_POOL, look))
    assert stall_tree(trace, TreeContent()).python_share == pytest.approx(30 / 230)
    assert stall_tree(trace, TreeContent(without=resting_threads(trace))).python_share == 1.0


@pytest.mark.parametrize(("worked", "resting"), [(50, {"thread:7/9"}), (15, {"thread:7/8", "thread:7/9"})])
def test_a_helper_that_works_a_good_part_of_its_time_does_not_rest(worked: int, resting: set[str]) -> None:
    busy = Stack(("start", "sum"), worked, "ns", "on-cpu", ids.thread(7, 8))
    assert resting_threads(replace(TRACE, stacks=(*STACKS[:2], *IDLE_POOL, busy))) == resting


def test_of_an_idle_engine_the_main_thread_leads() -> None:
    """Whichever of its helpers woke last: each would lead in turn, and then count as awake for a while."""
    asleep = Stack(("main",), 100, "ns", "epoll", ids.thread(7, 7))
    for tid in (8, 9):
        woke = Stack(("start", "sum"), 1, "ns", "on-cpu", ids.thread(7, tid))
        trace = replace(TRACE, stacks=(asleep, *IDLE_POOL, woke))
        assert leading_thread(trace) == "thread:7/7"
        assert resting_threads(trace) == {"thread:7/8", "thread:7/9"}


def test_a_server_that_hangs_is_seen_whole() -> None:
    """The first thread of a process never rests, and where nothing else is left the pool is shown."""
    hung = replace(TRACE, stacks=(STACKS[0], *IDLE_POOL))
    assert resting_threads(hung) == {"thread:7/8", "thread:7/9"}
    assert resting_threads(replace(TRACE, stacks=IDLE_POOL)) == frozenset()
    assert resting_threads(replace(TRACE, stacks=())) == frozenset()


def test_of_a_thread_that_sleeps_by_design_the_time_awake_stays() -> None:
    awake = (
        Stack(("start", "read"), 4, "ns", "disk", ids.thread(7, 8)),
        Stack(("sum",), 6, "ns", "on-cpu", ids.thread(7, 8)),
    )
    trace = replace(TRACE, stacks=(*STACKS[:2], *IDLE_POOL, *awake))
    (process,) = stall_tree(trace, TreeContent(without=resting_threads(trace))).root.children
    assert [(child.name, child.total) for child in process.children] == [("EngineCore", 90), ("pool ×2", 10)]
    pool = process.children[1]
    assert isinstance(pool, MergedNode)
    assert pool.whole == 210


def test_the_engine_stands_before_wider_frames() -> None:
    """Shares of width are by the number of threads; what leads is what tokens depend on."""
    api = {ids.process(3): Track(ids.process(3), TrackKind.PROCESS, "api", facts={"role": "APIServer"})}
    busy = [Stack(("serve",), 100, "ns", "on-cpu", ids.thread(3, tid)) for tid in (3, 4)]
    trace = replace(TRACE, tracks=TRACKS | api, stacks=(*STACKS, *busy))
    assert [child.name for child in stall_tree(trace).root.children] == ["EngineCore 7", "APIServer 3"]


def test_an_api_server_that_is_blocked_does_not_sleep_by_design() -> None:
    tracks = TRACKS | {ids.process(3): Track(ids.process(3), TrackKind.PROCESS, "api", facts={"role": "APIServer"})}
    for cause, rests in (("epoll", True), ("signal", True), ("futex", False), ("socket", False)):
        asleep = Stack(("main",), 100, "ns", cause, ids.thread(3, 3))
        resting = resting_threads(replace(TRACE, tracks=tracks, stacks=(*STACKS, asleep)))
        assert ("thread:3/3" in resting) is rests, cause


def test_without_times_looks_at_interpreters_tell_who_rests() -> None:
    looks = [
        Stack(("main",), 3, "samples", PythonState.RUNNING, ids.thread(7, 7)),
        Stack(("main",), 3, "samples", PythonState.RUNNING, ids.thread(7, 8)),
        Stack(("main",), 3, "samples", PythonState.WAITING, ids.thread(7, 9)),
    ]
    assert resting_threads(replace(TRACE, stacks=tuple(looks))) == {"thread:7/9"}
    assert resting_threads(replace(TRACE, stacks=(*STACKS, looks[2]))) == frozenset()


def test_of_two_moments_only_what_rests_in_both_is_left_out() -> None:
    before = replace(TRACE, stacks=(*STACKS[:2], *IDLE_POOL))
    now = replace(
        TRACE, stacks=(*STACKS[:2], IDLE_POOL[0], Stack(("start", "sum"), 50, "ns", "on-cpu", ids.thread(7, 9)))
    )
    assert resting_threads(before, now) == resting_threads(now, before) == {"thread:7/8"}


def test_the_first_thread_is_never_one_of_a_crowd() -> None:
    tracks = {**TRACKS, ids.thread(7, 7): replace(TRACKS[ids.thread(7, 7)], name="pool")}
    (process,) = stall_tree(replace(TRACE, tracks=tracks, stacks=(*STACKS[:3], STACKS[3]))).root.children
    assert [child.name for child in process.children] == ["pool", "pool ×2"]
