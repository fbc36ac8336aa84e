"""Whether slow steps that nothing explains are likely those with a prompt: as many of them as requests that began.

Long prompts are told by the wait for the GPU, short ones are not: both are requests that began.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import server_track
from llmtop.analysis.server.step_causes import StepCause
from llmtop.model import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.server.engine_steps import EngineStep
    from llmtop.analysis.server.step_causes import SlowStep
    from llmtop.model import Metric, Trace

_FEWEST = 5
"""Slow steps, and requests: of fewer it is chance that they are about as many."""
_ABOUT_AS_MANY = 2.0


def likely_prompts(trace: Trace, steps: Sequence[EngineStep], slow: Sequence[SlowStep]) -> str | None:
    """A sentence with the numbers; None where it is not likely, and where launches tell which steps have prompts.

    A request begins to run as it is counted among those that run, or is not any more for it has finished.
    """
    if any(one.launches is not None or one.graphs for one in steps):
        return None
    unexplained, told = (sum(one.cause is cause for one in slow) for cause in (StepCause.UNSEEN, StepCause.PREFILL))
    begun = _grown(trace, steps, v.SERVER_REQUESTS) + _grown(trace, steps, v.SERVER_RUNNING)
    if min(unexplained, begun) < _FEWEST or not _grown(trace, steps, v.SERVER_PROMPT_TOKENS):
        return None
    # Requests are counted all the time, steps where they are seen.
    seen_s = math.fsum(one.end_ns - one.start_ns for one in steps) / NS_PER_S
    begun_per_s = begun * NS_PER_S / (steps[-1].end_ns - steps[0].start_ns)
    slow_per_s = (unexplained + told) / seen_s
    if max(slow_per_s, begun_per_s) > _ABOUT_AS_MANY * min(slow_per_s, begun_per_s):
        return None
    beside = f" beside {told / seen_s:.1f} steps/s that have a prompt" if told else ""
    return (
        f"slow steps whose cause is not seen are likely {'short ' if told else ''}prompts: "
        f"{unexplained / seen_s:.1f} such steps/s{beside}, and {begun_per_s:.1f} requests/s began"
    )


def _grown(trace: Trace, steps: Sequence[EngineStep], metric: Metric) -> float:
    """What a number of the server's has grown by while steps were seen; 0 where it is not told."""
    server = server_track(trace)
    series = None if server is None else trace.get(server.id, metric)
    if series is None:
        return 0.0
    known = [value for _, value in series.between(steps[0].start_ns, steps[-1].end_ns).known]
    return known[-1] - known[0] if known else 0.0
