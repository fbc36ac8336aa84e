"""What the engine of tests/workloads/engine_steps.c makes some of its steps slow with."""

from __future__ import annotations

from llmtop.analysis.server.step_causes import StepCause

PLANTED_CAUSES = {
    "asleep": StepCause.ASLEEP,
    "lock": StepCause.LOCK,
    "page faults": StepCause.FAULTS,
    "allocation": StepCause.ALLOCATION,
    "copy": StepCause.COPY,
    "run queue": StepCause.QUEUE,
    "own code": StepCause.OWN_CODE,
    "more work": StepCause.MORE_WORK,
    "slower GPU": StepCause.SLOWER_GPU,
}
"""What each planted cause is to be called; "input" is none, and must not stand out."""
NEAR_NS = 3_000_000
"""How far the end of a step that was found may be from the one that the engine has noted."""
