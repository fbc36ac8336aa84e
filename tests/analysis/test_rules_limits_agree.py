"""Memory-bound, compute-bound and GPU-bound are views of one judgement: no numbers make them disagree."""

from __future__ import annotations

from itertools import product

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import compute_bound, gpu_bound, memory_bound_decode
from tests.analysis.verdict_scenes import GPU_BOUND_SPINNING, findings_of

PERCENTS = (5.0, 30.0, 48.0, 62.0, 90.0)


def test_no_two_findings_disagree_on_what_limits_the_gpu() -> None:
    seen = set()
    for dram, tensor, sm in product(PERCENTS, PERCENTS, (30.0, 70.0, 98.0)):
        gauges = {
            (ids.gpu(0), metric): value
            for metric, value in ((v.GPU_DRAM, dram), (v.GPU_TENSOR, tensor), (v.GPU_SM, sm))
        }
        trace = GPU_BOUND_SPINNING.but(gauges=gauges).trace()
        memory, arithmetic = findings_of(memory_bound_decode, trace), findings_of(compute_bound, trace)
        (bound,) = findings_of(gpu_bound, trace)
        said = (bool(memory), bool(arithmetic))
        assert said != (True, True), (dram, tensor, sm)
        assert ("memory is the limit" in bound.action, "arithmetic is the limit" in bound.action) == said, (
            dram,
            tensor,
            sm,
        )
        seen.add(said)
    assert seen == {(True, False), (False, True), (False, False)}


def test_next_to_much_arithmetic_memory_is_not_called_decode() -> None:
    gauges = {(ids.gpu(0), v.GPU_DRAM): 84.0, (ids.gpu(0), v.GPU_TENSOR): 60.0}
    (found,) = findings_of(memory_bound_decode, GPU_BOUND_SPINNING.but(gauges=gauges).trace())
    assert found.message.startswith("memory-bound: DRAM 84 %, tensor 60 %")
