"""Native time divided over Python functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.threads.python_frames import called_by_python, join_python, python_only
from llmtop.model import Stack, TrackId

EVAL = "_PyEval_EvalFrameDefault"
THREAD = ids.thread(7, 9)


def native(*frames: str, ns: float = 100, state: str = "futex", track: TrackId = THREAD) -> Stack:
    return Stack(frames, ns, "ns", state, track)


def python(*frames: str, looks: int = 1, state: str = "python waiting", track: TrackId = THREAD) -> Stack:
    return Stack(frames, looks, "samples", state, track)


def joined(*stacks: Stack, detail: bool = False) -> dict[tuple[str, ...], float]:
    return {stack.frames: stack.weight for stack in join_python(stacks, detail=detail).stacks}


def test_time_is_divided_by_how_often_each_function_was_seen() -> None:
    assert joined(
        native(EVAL, "sem_wait"),
        python("main (a.py:1)", "step (a.py:2)", looks=3),
        python("main (a.py:1)", "load (a.py:5)", looks=1),
    ) == {
        ("main (a.py)_[p]", "step (a.py)_[p]", "sem_wait"): 75,
        ("main (a.py)_[p]", "load (a.py)_[p]", "sem_wait"): 25,
    }


def test_of_several_running_functions_none_is_said_to_have_made_a_native_call() -> None:
    """Each half of the truth is sampled alone: that `sample` launches a kernel must not follow from both."""
    found = joined(
        native("launch_kernel", state="on-cpu", ns=60),
        native(EVAL, state="on-cpu", ns=40),
        python("step (a.py:1)", state="python running", looks=2),
        python("step (a.py:1)", "sample (a.py:9)", state="python running", looks=3),
    )
    assert found == {("step (a.py)_[p]",): 40, ("step (a.py)_[p]", "sample (a.py)_[p]"): 60}


def test_only_looks_in_the_same_state_count() -> None:
    assert joined(
        native("do_futex_[k]"),
        native("sum", state="on-cpu", ns=7),
        python("wait (a.py:1)"),
        python("compute (a.py:2)", state="python running"),
    ) == {("wait (a.py)_[p]", "do_futex_[k]"): 100, ("compute (a.py)_[p]", "sum"): 7}


def test_what_was_never_seen_in_that_state_stays_native() -> None:
    stacks = (native(EVAL, "sum", state="on-cpu"), native("read_[k]", track=ids.thread(7, 10)), python("wait (a.py:1)"))
    found = join_python(stacks)
    assert found.stacks == stacks[:2]
    assert found.share == 0


def test_lines_of_one_function_are_one_frame_unless_details_are_wanted() -> None:
    stacks = (native(EVAL, "sem_wait"), python("step (a.py:2)"), python("step (a.py:3)"))
    assert joined(*stacks) == {("step (a.py)_[p]", "sem_wait"): 100}
    assert joined(*stacks, detail=True) == {
        ("step (a.py:2)_[p]", EVAL, "sem_wait"): 50,
        ("step (a.py:3)_[p]", EVAL, "sem_wait"): 50,
    }


def test_share_and_looks() -> None:
    found = join_python((native("a"), native("b", ns=300, track=ids.thread(7, 10)), python("f (a.py:1)", looks=28)))
    assert (found.share, found.looks) == (0.25, 28)


def test_rare_python_stacks_do_not_multiply_native_ones() -> None:
    many = [python(f"f{i} (a.py:1)", looks=100 - i) for i in range(100)]
    found = join_python([*(native(f"g{i}") for i in range(50)), *many])
    assert len(found.stacks) == 50 * 12
    assert sum(stack.weight for stack in found.stacks) == pytest.approx(5000)


@pytest.mark.parametrize(
    ("frames", "below"),
    [
        (("_start", "main", "Py_BytesMain", "Py_RunMain", EVAL, "lock_acquire", "do_futex_[k]"), "lock_acquire"),
        (("clone3", "start_thread", "thread_run", EVAL, "PyEval_RestoreThread", "take_gil", "futex_[k]"), "take_gil"),
        (("[unknown]", "[unknown]", EVAL), ""),
        (("[unknown]", "x_add"), "x_add"),
        (("[libpython3.11.so.1.0]", "_PyObject_Malloc"), ""),
        ((EVAL, "_PyObject_Call", "THPVariable_add", "PyObject_Malloc"), "THPVariable_add"),
        (("schedule_[k]",), "schedule_[k]"),
        (("(lighter stacks, together)",), "(lighter stacks, together)"),
        ((), ""),
    ],
)
def test_the_interpreter_is_folded_away(frames: tuple[str, ...], below: str) -> None:
    assert next(iter(called_by_python(frames)), "") == below


def test_interpreters_alone_are_stacks_of_looks() -> None:
    found = python_only((python("wait (a.py:1)", looks=3), python("go (a.py:1)", state="python running"), native("x")))
    assert [(stack.state, stack.frames, stack.weight) for stack in found.stacks] == [
        ("waiting", ("wait (a.py)_[p]",), 3),
        ("on-cpu", ("go (a.py)_[p]",), 1),
    ]


names = st.text(max_size=4)
stacks = st.lists(
    st.builds(
        Stack,
        st.lists(names, max_size=4).map(tuple),
        st.floats(0.001, 1e12),
        st.sampled_from(["ns", "samples"]),
        st.sampled_from(["futex", "on-cpu", "python waiting", "python running"]),
        st.sampled_from(["thread:1/1", "thread:1/2"]),
    )
)


@given(stacks, st.booleans())
def test_no_time_is_lost_or_made(several: list[Stack], detail: bool) -> None:
    found = join_python(several, detail=detail)
    is_python = [one.unit == "samples" and one.state.startswith("python") for one in several]
    before = sum(one.weight for one, is_ in zip(several, is_python, strict=True) if not is_)
    assert sum(one.weight for one in found.stacks) == pytest.approx(before)
    assert 0 <= found.share <= 1 + 1e-9
