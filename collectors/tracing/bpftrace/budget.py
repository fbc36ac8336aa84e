"""What bpftrace's probes cost, and what is given up first when that is too much."""

from __future__ import annotations

from llmtop.collectors.tracing.helper.governor import Effort

NS_PER_HIT = {
    "call": 860.0,
    "counted_call": 390.0,
    "foreign_call": 360.0,
    "foreign_counted_call": 170.0,
    "switch": 1650.0,
    "foreign_switch": 580.0,
    "stack": 3300.0,
    "sample": 5000.0,
    "library": 2200.0,
    "stepped_library": 12000.0,
}
"""Measured with benchmarks/ebpf_overhead.py, calls on an AMD EPYC and the rest on a 2.5 GHz Xeon: calls cost two
to three times what they do by our own programs, the rest up to twice."""
LADDER = (
    Effort(4),
    Effort(32),
    Effort(0),
    Effort(0, "counted"),
    Effort(0, "off"),
    Effort(0, "off", scheduler=False),
)
"""Fewer rungs than our own probes have: each is a new start of bpftrace, with a second in which nothing is seen."""
