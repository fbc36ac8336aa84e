"""Python functions put into native stacks: what probes saw a thread do, divided over what its interpreter was in."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from llmtop.model import Stack, TrackId
from llmtop.vocabulary import ON_CPU, PythonState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

"""The state of stacks that were seen running; all others are waits."""
IN_KERNEL = "_[k]"
"""Behind the names of the kernel's functions."""
IN_PYTHON = "_[p]"
"""Behind the names of Python's functions, where they stand among native ones."""
MOST_PYTHON_STACKS = 12
"""Each native stack is divided over so many of its thread's, the most frequent; what is rarer adds to no picture."""
_LINE = re.compile(r":\d+\)$")
_EVALUATES = re.compile(r"_?PyEval_(EvalFrame|Vector|EvalCode)|_TAIL_CALL_")
"""CPython's loop over Python code: what is below its innermost frame is what the innermost Python function called."""
_INTERPRETER = re.compile(
    r"_?Py[A-Z_]|_Py|cfunction_|method_vectorcall|method_call|slot_tp_|slot_sq_|slot_nb_|type_call|object_vacall|"
    r"function_code_fastcall|call_function|do_call_core|builtin_exec|run_mod|run_eval_code_obj|pymain_|gen_send_ex|"
    r"gen_iternext|context_run|partial_call|partial_vectorcall|vectorcall_|wrap_call|wrapperdescr_call"
)
_ABOVE_PYTHON = re.compile(
    r"_start$|__libc_start|main$|_*clone3?$|start_thread$|thread_run$|t_bootstrap$|pythread_wrapper$|"
    r"\[unknown\]$|\[(lib)?python[\w.]*\]$"
)
"""What calls the interpreter, and what has no name where CPython is built without frame pointers."""

_Options: TypeAlias = "tuple[tuple[tuple[str, ...], float], ...]"
"""Python stacks with the share of looks in which a thread was in each."""
_AS_IT_IS: _Options = (((), 1.0),)
_Place: TypeAlias = "tuple[str, bool]"
"""A thread, and whether it was running."""


@dataclass(frozen=True, slots=True, eq=False)
class StacksWithPython:
    """Native stacks with Python frames in them.

    Attributes:
        share: The part of the time, 0 to 1, that has Python frames.
        looks: How often the interpreter was looked at that was looked at most; an estimate rests on so many.
    """

    stacks: Sequence[Stack]
    share: float = 0.0
    looks: int = 0


def is_python(stack: Stack) -> bool:
    """Whether a stack counts looks at an interpreter, rather than being of the time that is divided."""
    return stack.unit == "samples" and stack.state in (PythonState.RUNNING, PythonState.WAITING)


def join_python(stacks: Iterable[Stack], *, detail: bool = False) -> StacksWithPython:
    """Divide the time of each native stack over the Python stacks that its thread was seen in, in the same state.

    Both are samples of one thread taken apart from each other, so the division is by frequency: an estimate. A
    thread that was never seen running in Python keeps its native stacks on the CPU as they are, and likewise for
    waits. Which of several running functions called what cannot be told: below these no native frames are put.

    Args:
        stacks: Native ones, all of one unit, and those of interpreters, as a live trace holds them.
        detail: Keep line numbers and the interpreter's own frames.
    """
    everything = tuple(stacks)
    native = [stack for stack in everything if not is_python(stack)]
    python = _python_shares(everything, detail)
    sums: dict[tuple[TrackId, str, tuple[str, ...]], float] = {}
    total = covered = 0.0
    for stack in native:
        total += stack.weight
        options = python.get((stack.track, stack.state == ON_CPU))
        if options is not None:
            covered += stack.weight
        below = _below(stack, options, detail)
        for frames, share in options or _AS_IT_IS:
            key = (stack.track, stack.state, frames + below)
            sums[key] = sums.get(key, 0.0) + stack.weight * share
    unit = native[0].unit if native else "ns"
    joined = tuple(Stack(frames, weight, unit, state, track) for (track, state, frames), weight in sums.items())
    return StacksWithPython(joined, covered / total if total else 0.0, _looks(everything))


def _below(stack: Stack, options: _Options | None, detail: bool) -> tuple[str, ...]:
    """The native frames to put below each of a thread's Python stacks."""
    if options is not None and len(options) > 1 and stack.state == ON_CPU:
        return ()
    return stack.frames if detail or options is None else called_by_python(stack.frames)


def python_only(stacks: Iterable[Stack], *, detail: bool = False) -> StacksWithPython:
    """The stacks of interpreters alone, where no probe tells times: their unit is looks."""
    counted = [stack for stack in stacks if is_python(stack)]
    states = {PythonState.RUNNING: ON_CPU, PythonState.WAITING: "waiting"}
    marked = (
        replace(stack, frames=_marked(stack.frames, detail), state=states[PythonState(stack.state)])
        for stack in counted
    )
    return StacksWithPython(tuple(marked), 1.0, _looks(counted))


@lru_cache(maxsize=2048)
def called_by_python(frames: tuple[str, ...]) -> tuple[str, ...]:
    """The part of a native stack below the innermost Python function: what it called, without how it was called.

    >>> called_by_python(("clone3", "_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault", "cfunction_call", "read"))
    ('read',)
    >>> called_by_python(("[unknown]", "_PyObject_Malloc"))
    ()
    """
    start = max((i + 1 for i, frame in enumerate(frames) if _EVALUATES.match(frame)), default=0)
    while start < len(frames) and _is_call(frames[start]):
        start += 1
    return frames[start:]


def _is_call(frame: str) -> bool:
    return bool(_INTERPRETER.match(frame) or _ABOVE_PYTHON.match(frame))


def _python_shares(stacks: Sequence[Stack], detail: bool) -> Mapping[_Place, _Options]:
    """By thread and state: its Python stacks with the share of looks in which it was in them."""
    counts: defaultdict[_Place, defaultdict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for stack in stacks:
        if is_python(stack) and stack.frames:
            counts[stack.track, stack.state == PythonState.RUNNING][_marked(stack.frames, detail)] += stack.weight
    return {place: _shares(seen) for place, seen in counts.items()}


def _shares(seen: Mapping[tuple[str, ...], float]) -> _Options:
    ranked = sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:MOST_PYTHON_STACKS]
    total = sum(weight for _, weight in ranked)
    return tuple((frames, weight / total) for frames, weight in ranked)


def _marked(frames: tuple[str, ...], detail: bool) -> tuple[str, ...]:
    """The frames by function, so that lines of one function are one frame; with `detail` by line."""
    return tuple((frame if detail else _LINE.sub(")", frame)) + IN_PYTHON for frame in frames)


def _looks(stacks: Iterable[Stack]) -> int:
    by_thread: defaultdict[str, float] = defaultdict(float)
    for stack in stacks:
        if is_python(stack):
            by_thread[stack.track] += stack.weight
    return round(max(by_thread.values(), default=0.0))
