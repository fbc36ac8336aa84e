"""The container's CPU quota stops the server in mid-step."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.readings import counter_increase
from llmtop.analysis.rules.evidence import WINDOW_NS, says
from llmtop.model import NS_PER_S, Finding, Severity, Trace, TrackKind, Unknown

id = "cgroup-throttled"
summary = "The cgroup's CPU quota is used up: the kernel stops all of the server's threads for the rest of each period."
source = "Linux kernel, Documentation/admin-guide/cgroup-v2 (cpu.stat); vLLM reports of ITL x10 under a 6-core quota"

_SEVERE = 0.1
"""Seconds throttled per second: from here on every tenth token is late."""


def check(trace: Trace) -> Iterator[Finding]:
    """Both counters of cpu.stat advance: time throttled and periods throttled."""
    for track in trace.tracks_of(TrackKind.PROCESS):
        throttled = counter_increase(trace, track.id, v.CGROUP_THROTTLED, WINDOW_NS)
        periods = counter_increase(trace, track.id, v.CGROUP_PERIODS_THROTTLED, WINDOW_NS)
        if isinstance(throttled, Unknown) or isinstance(periods, Unknown):
            continue
        share = throttled.per_second / NS_PER_S
        if share > 0 and periods.amount > 0:
            yield Finding(
                rule=id,
                severity=Severity.ERROR if share >= _SEVERE else Severity.WARNING,
                subject=track.name,
                message=f"CPU quota exhausted: threads throttled {share:.2g} s per second",
                evidence=(
                    says(trace, track.id, v.CGROUP_THROTTLED, throttled.amount),
                    says(trace, track.id, v.CGROUP_PERIODS_THROTTLED, periods.amount, title="periods throttled:"),
                ),
                action="raise the CPU limit, or cap thread pools to it (OMP_NUM_THREADS, "
                "TORCHINDUCTOR_COMPILE_THREADS, TOKENIZERS_PARALLELISM)",
                next_command=f"cat /sys/fs/cgroup$(cut -d: -f3- /proc/{track.id.removeprefix('process:')}/cgroup)"
                "/cpu.{max,stat}",
                source=source,
            )
