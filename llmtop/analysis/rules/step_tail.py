"""Single steps of the engine take much longer than the others, and everybody's next token waits for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.rules import step_advice
from llmtop.analysis.rules.advice import shorter_prefills
from llmtop.analysis.rules.evidence import metrics_command
from llmtop.analysis.rules.prompts import says_prompts
from llmtop.analysis.rules.token_gaps import prompts_in_between
from llmtop.analysis.series.readings import own_gpus, server_track
from llmtop.analysis.server.lapses import LENGTH_NS
from llmtop.analysis.server.objectives import (
    ITL,
    MEDIAN,
    NEWEST_NS,
    JudgedObjective,
    as_missed,
    goes_on,
    judged,
    judged_now,
    said_when,
)
from llmtop.analysis.server.steps_view import SEEN, StepsView, steps_view
from llmtop.model import NS_PER_S, Finding, Severity, Trace, Track, Unknown
from llmtop.units import duration, percent, two_digits

if TYPE_CHECKING:
    from llmtop.analysis.server.step_causes import SlowStep, StepCause

id = "step-tail"
summary = "Single steps of the engine are slow, by what each has more than the others; all requests wait for them."
source = "Machine Learning Systems, Performance Engineering (optimizing for average case while ignoring tail latency)"

_FEWEST = 2
"""Steps beyond the objective: a single one may be anything."""
_FEWEST_OF_ALL = 100
"""Steps from which a hundredth of them is one at least."""
_TOLD = 3
"""Slow steps with a line of their own, the slowest."""


def check(trace: Trace) -> Iterator[Finding]:
    """The time between tokens misses its p99 while steps are seen that take longer than it allows, or prompts come.

    Of a server that does not tell the time between tokens its steps are judged instead: each gives a token to all
    requests that run.
    """
    server = server_track(trace)
    felt = next((one for one in judged_now(trace) if one.objective.latency == ITL and _is_of_a_tail(one)), None)
    if server is None or felt is None or felt.is_met is True:
        return
    then, window_ns = _when(trace, felt)
    view = steps_view(then, window_ns)
    stalls = () if isinstance(view, Unknown) else _stalls(view, felt)
    if not isinstance(view, Unknown) and stalls:
        yield _finding(trace, then, server, felt, view, stalls)
    elif felt.is_met is False and (isinstance(view, Unknown) or view.seen_share < SEEN):
        yield from _by_prompts(trace, then, server, felt, window_ns)


def _is_of_a_tail(one: JudgedObjective) -> bool:
    return one.objective.percent > MEDIAN


def _when(trace: Trace, felt: JudgedObjective) -> tuple[Trace, int]:
    """The moment at which it was missed last, and for how long before that to look."""
    if felt.lapses:
        return as_missed(trace, felt.lapses[-1]), LENGTH_NS
    return trace, LENGTH_NS if felt.seen is None else NEWEST_NS


def _stalls(view: StepsView, felt: JudgedObjective) -> tuple[SlowStep, ...]:
    """Steps that stand out and take longer than the objective allows, where these are what is felt: few of all."""
    limit_ns = felt.objective.limit_s * NS_PER_S
    if view.p50_ns >= limit_ns:
        return ()
    found = tuple(one for one in view.slow if one.step.time_ns >= limit_ns)
    if len(found) < _FEWEST or (felt.seen is None and not _is_a_tail(view, felt)):
        return ()
    return found


def _is_a_tail(view: StepsView, felt: JudgedObjective) -> bool:
    return len(view.newest) >= _FEWEST_OF_ALL and felt.objective.limit_s * NS_PER_S <= view.p99_ns


# -- by the engine's steps -------------------------------------------------------------------------------------------


def _finding(
    trace: Trace, then: Trace, server: Track, felt: JudgedObjective, view: StepsView, stalls: Sequence[SlowStep]
) -> Finding:
    blame = _blame(stalls)
    cause = next(iter(blame))
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=view.loop.name,
        message=f"slow steps {_hold_up(trace, felt)}, mostly {cause}: {_says_how_many(view, stalls)}",
        evidence=tuple(_evidence(felt, view, stalls, blame)),
        action=step_advice.action(then, cause),
        next_command=step_advice.command(then, server, view.loop, cause),
        source=source,
    )


def _hold_up(trace: Trace, felt: JudgedObjective) -> str:
    if felt.lapses and not goes_on(trace, felt.lapses):
        return f"held up every token {said_when(trace, felt.lapses[-1:])}"
    return "hold up every token"


def _says_how_many(view: StepsView, stalls: Sequence[SlowStep]) -> str:
    times = sorted(one.step.time_ns for one in stalls)
    took = " to ".join(dict.fromkeys(duration(one) for one in (times[0], times[-1])))
    return f"{len(stalls)} of {len(view.newest)} took {took}, the median {duration(view.p50_ns)}"


def _blame(stalls: Sequence[SlowStep]) -> dict[StepCause, float]:
    """What slow steps take more than the median one, by cause: shares of it, the largest first."""
    together: defaultdict[StepCause, float] = defaultdict(float)
    for one in stalls:
        for cause, ns in one.blame.items():
            together[cause] += ns
    whole = sum(one.excess_ns for one in stalls)
    return {cause: ns / whole for cause, ns in sorted(together.items(), key=lambda part: -part[1])}


def _evidence(
    felt: JudgedObjective, view: StepsView, stalls: Sequence[SlowStep], blame: dict[StepCause, float]
) -> Iterator[str]:
    where = view.loop.source
    shares = ", ".join(f"{percent(100 * share)} {cause}" for cause, share in blame.items() if share >= 0.01)
    yield f"of what these take more than the median step: {shares} ({where})"
    if view.tail is not None:
        yield f"all steps of these {view.span_s:.0f} s: {view.tail.sentence} ({where})"
    for one in sorted(stalls, key=lambda stall: -stall.step.time_ns)[:_TOLD]:
        yield f"{duration(one.step.time_ns)}: {one.cause} {percent(100 * one.share)}; {one.evidence} ({where})"
    if felt.seen is not None:
        yield felt.text
    yield from view.notes


# -- by the server's own numbers, where no steps are seen ------------------------------------------------------------


def _by_prompts(trace: Trace, then: Trace, server: Track, felt: JudgedObjective, window_ns: int) -> Iterator[Finding]:
    """Prompts come in between, and nothing else that is known makes single tokens late.

    Where no GPU computes them the engine's thread does, and cpu-bound says so.
    """
    if not own_gpus(then):
        return
    verdicts = [one for one in judged(then, window_ns) if one.objective.metric is v.SERVER_ITL]
    prompts = prompts_in_between(then, server.id, verdicts, window_ns)
    if prompts is None:
        return
    limit = two_digits(felt.objective.limit_s, "s")
    seen = next(one.seen.text("s") for one in verdicts if one.objective == felt.objective and one.seen is not None)
    yield Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=server.name,
        message=f"prompts {_hold_up(trace, felt)}: {ITL} p{felt.objective.percent} {seen} ({limit})",
        evidence=(
            *(one.text for one in verdicts if one.seen is not None),
            prompts.text,
            *says_prompts(then, server.id, window_ns),
        ),
        action=f"{shorter_prefills(then)}: a prompt then holds up the others for less",
        next_command=metrics_command(server, "prompt_tokens|prefill_time|iteration_tokens"),
        source=source,
    )
