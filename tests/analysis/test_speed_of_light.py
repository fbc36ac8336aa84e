"""What compute and memory throughput are made of, against the throughputs themselves."""

from __future__ import annotations

import pytest

from llmtop.analysis.kernels.speed_of_light import Throughput, speed_of_light
from llmtop.analysis.kernels.table import kernels_of
from llmtop.model import Trace, Unknown
from llmtop.parsers.registry import load
from tests.kernel_traces import COMPUTE, LADDER, TIMELINE, Launch
from tests.kernel_traces import report as made


def a_throughput_is_the_largest_of_its_parts(trace: Trace) -> None:
    for launch in kernels_of(trace).standing()[:4]:
        both = speed_of_light(trace, launch)
        for one in () if isinstance(both, Unknown) else both:
            if one.parts and not isinstance(one.percent, Unknown):
                assert one.parts[0][1] == pytest.approx(one.percent)


def test_parts_are_told_busiest_first_and_without_what_all_have_in_common() -> None:
    both = speed_of_light(load(LADDER.with_name("bank-conflicts.ncu-rep.xz")), 0)
    assert not isinstance(both, Unknown)
    compute, memory = both
    (name, busy), *_ = memory.parts
    assert (name, round(busy, 2)) == ("l1tex__data_pipe_lsu_wavefronts", 99.93)
    assert [name for name, _ in compute.parts[:3]] == [
        "sm__issue_active",
        "sm__inst_executed",
        "sm__pipe_alu_cycles_active",
    ]
    assert (len(compute.parts), len(memory.parts)) == (25, 26)


def test_what_is_not_known_has_a_reason_and_the_command() -> None:
    nothing = speed_of_light(made(Launch("scale")), 0)
    assert isinstance(nothing, Unknown)
    assert nothing.reason == "throughput not collected"
    assert nothing.remedy.startswith("ncu --kernel-name scale")
    half = speed_of_light(made(Launch("scale", metrics={COMPUTE: 12.0, f"breakdown:{COMPUTE}": "a,b", "b": 12.0})), 0)
    assert half == (Throughput("compute", 12.0, (("b", 12.0),)), Throughput("memory", nothing, ()))
    assert isinstance(speed_of_light(load(TIMELINE), 0), Unknown)
