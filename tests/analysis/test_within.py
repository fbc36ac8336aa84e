"""Rows of a breakdown cut to ranges of a name, against arithmetic on every microsecond."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, breakdown
from llmtop.model import Unknown
from tests.nsys_capture import US, Capture

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace

Stretch = tuple[int, int]


def made(seed: int) -> tuple[Capture, list[Stretch], dict[str, list[Stretch]], list[tuple[int, int, int, int]]]:
    """A program of steps with parts: the capture, its steps, its parts by name, and what it asked for.

    Of each work: when it was asked for, from when to when it ran, on which stream.
    """
    draw = random.Random(seed)
    capture, at, free = Capture(), 10, {7: 0, 8: 0}
    steps: list[Stretch] = []
    parts: dict[str, list[Stretch]] = {"attention": [], "mlp": []}
    works = []
    for step in range(6):
        begun = at
        for name in ("attention", "mlp", "attention"):
            since, at = at, at + draw.randrange(1, 5)
            for _ in range(draw.randrange(1, 4)):
                stream = draw.choice((7, 7, 8))
                start = max(at + 3, free[stream]) + draw.randrange(3)
                free[stream] = end = start + draw.randrange(1, 15)
                call = capture.call("cudaLaunchKernel", at * US, (at + 1) * US)
                capture.kernel(start * US, end * US, call, name, stream=stream)
                works.append((at, start, end, stream))
                at += draw.randrange(2, 9)
            at += draw.randrange(3)
            capture.nvtx(f"{name} {step}", since * US, at * US)
            parts[name].append((since, at))
            at += draw.randrange(4)
        capture.nvtx(f"step {step}", begun * US, at * US)
        steps.append((begun, at))
        at += draw.randrange(1, 30)
    return capture, steps, parts, works


def on_gpu(stretch: Stretch, works: list[tuple[int, int, int, int]]) -> set[int]:
    """The microseconds that a range has on the GPU, by its definition."""
    start, end = (max([t, *(done for asked, _, done, _ in works if asked < t)]) for t in stretch)
    return set(range(start, end))


def rows_of(trace: Trace, by: By, within: str) -> Breakdown:
    found = breakdown(trace, by, within=within)
    assert isinstance(found, Breakdown)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_rows_have_the_time_of_the_ranges_alone(tmp_path: Path, seed: int) -> None:
    capture, steps, parts, works = made(seed)
    trace = capture.trace(tmp_path)
    inside = set().union(*(on_gpu(one, works) for one in parts["attention"]))
    busy = {t for _, start, end, _ in works for t in range(start, end)}
    found = rows_of(trace, By.STEP, "attention #")
    want = [one for one in steps if on_gpu(one, works) & inside]
    assert len(found.parts) == len(want)
    for part, step in zip(found.parts, want, strict=True):
        time = on_gpu(step, works) & inside
        assert (part.account.gpu_ns, part.account.busy_ns) == (len(time) * US, len(time & busy) * US)
        asked = [one for one in works if any(a <= one[0] < b and step[0] <= a < step[1] for a, b in parts["attention"])]
        assert part.account.kernels == len(asked)
        assert part.account.idle_ns == sum(ns for _, ns in part.account.idle)
    (whole,) = rows_of(trace, By.RANK, "attention #").parts
    assert (whole.account.wall_ns, whole.account.busy_ns) == (len(inside) * US, len(inside & busy) * US)
    for stream in rows_of(trace, By.STREAM, "attention #").parts:
        own = {t for _, start, end, number in works if f"stream {number}" == stream.name for t in range(start, end)}
        other = {t for _, start, end, number in works if f"stream {number}" != stream.name for t in range(start, end)}
        assert stream.account.busy_ns == len(own & inside) * US
        assert stream.alone_ns == len((own - other) & inside) * US


def test_parts_within_a_range_are_those_that_lie_in_it(tmp_path: Path) -> None:
    capture, steps, parts, works = made(3)
    trace = capture.trace(tmp_path)
    found = {part.name: part for part in rows_of(trace, By.NVTX, "step 2").parts}
    time = on_gpu(steps[2], works)
    assert found["step #"].account.gpu_ns == len(time) * US
    for name, stretches in parts.items():
        own = set().union(*(on_gpu(one, works) for one in stretches)) & time
        assert found[f"{name} #"].account.gpu_ns == len(own) * US


def test_a_name_that_no_range_has_is_told(tmp_path: Path) -> None:
    trace = made(1)[0].trace(tmp_path)
    assert breakdown(trace, By.STEP, within="decode") == Unknown(
        'no range is called "decode"', "there are: step #, attention #, mlp #"
    )
