import random
from dataclasses import replace

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.server.engine_steps import engine_loops
from llmtop.analysis.server.step_causes import _OF_THE_CPU, SlowStep, StepCause, StepJudge
from llmtop.model import TrackId, Unknown
from llmtop.vocabulary import RoundPart
from tests.analysis.engine_rounds import (
    ENGINE,
    GPU,
    MS,
    PLANTED,
    SERVER,
    Columns,
    Round,
    counter,
    even,
    rounds_of,
    series_of,
    trace_of,
)


def judge(rounds: list[Round], more: Columns | None = None) -> StepJudge:
    trace = trace_of(rounds_of(rounds) | (more or {}))
    loops = engine_loops(trace)
    assert not isinstance(loops, Unknown)
    engine = next(loop for loop in loops if loop.track == ENGINE)
    return StepJudge(trace, engine, [loop for loop in loops if loop is not engine])


def slow(rounds: list[Round], more: Columns | None = None) -> tuple[SlowStep, ...]:
    return judge(rounds, more).slow()


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_named(cause: StepCause) -> None:
    rounds = even(200)
    rounds[120] = PLANTED[cause]
    (one,) = slow(rounds)
    assert one.cause is cause
    assert one.excess_ns == pytest.approx(PLANTED[cause].ns - 10.05 * MS, rel=0.05)
    assert one.share > 0.9


def test_of_many_planted_ones_nearly_all_are_found_and_nearly_none_beside_them() -> None:
    chance, rounds, planted = random.Random(3), even(3000), {}
    for i in range(15, 3000, 25):
        cause = chance.choice(list(PLANTED))
        rounds[i] = PLANTED[cause].longer(chance.gauss(0, 0.1) * MS)
        planted[i] = cause
    judged = judge(rounds)
    places = {step.end_ns: i for i, step in enumerate(judged.steps, 1)}
    found = {places[one.step.end_ns]: one.cause for one in judged.slow()}
    assert sum(found.get(i) is cause for i, cause in planted.items()) >= 0.95 * len(planted)
    assert len(found.keys() - planted.keys()) < 0.01 * (3000 - len(planted))


def test_even_steps_are_not_slow() -> None:
    assert slow(even(1000)) == ()
    assert judge(even(1000)).tail() is None


def test_more_launches_while_prompts_come_in_are_a_prefill() -> None:
    rounds = even(200)
    rounds[120] = PLANTED[StepCause.MORE_WORK]
    at = 1220 * MS
    (one,) = slow(rounds, counter(SERVER, v.SERVER_PROMPT_TOKENS, [at], 2100 * MS))
    assert one.cause is StepCause.PREFILL
    assert one.evidence == (
        "waits for the GPU 21.0 ms (median 7.00 ms), CPU 7.00 ms (median 3.07 ms), 400 launches (median 30)"
    )


@pytest.mark.parametrize(("ms", "cause"), [(4, StepCause.LONGER_WAIT), (8, StepCause.PREFILL)])
def test_a_little_longer_wait_is_not_put_down_to_prompts(ms: int, cause: StepCause) -> None:
    """Prompts come all the time on a busy server: that some did around a step says little of it."""
    rounds = [replace(one, launches=None, graphs=None) for one in even(200)]
    rounds[120] = rounds[120].longer(ms * MS, RoundPart.WAIT)
    (one,) = slow(rounds, counter(SERVER, v.SERVER_PROMPT_TOKENS, range(0, 2100 * MS, 50 * MS), 2100 * MS))
    assert one.cause is cause


def test_prompts_long_before_are_no_cause() -> None:
    rounds = even(200)
    rounds[120] = PLANTED[StepCause.MORE_WORK]
    (one,) = slow(rounds, counter(SERVER, v.SERVER_PROMPT_TOKENS, [400 * MS], 2100 * MS))
    assert one.cause is StepCause.MORE_WORK


def test_a_preemption_is_named_before_the_prompt_that_it_computes_again() -> None:
    rounds = even(200)
    rounds[120] = PLANTED[StepCause.MORE_WORK]
    more = counter(SERVER, v.SERVER_PROMPT_TOKENS, [1220 * MS], 2100 * MS)
    more |= counter(SERVER, v.SERVER_PREEMPTIONS, [1210 * MS], 2100 * MS)
    assert [one.cause for one in slow(rounds, more)] == [StepCause.PREEMPTION]


def test_a_clock_that_dropped_is_named() -> None:
    rounds = even(200)
    rounds[120] = PLANTED[StepCause.SLOWER_GPU]
    clock = [(t * MS, 1980.0 if abs(t - 1215) > 30 else 1200.0) for t in range(0, 2000, 20)]
    (one,) = slow(rounds, series_of(GPU, v.GPU_SM_CLOCK, clock))
    assert one.cause is StepCause.CLOCK


def test_a_clock_explains_no_more_than_it_is_lower() -> None:
    """As of a vLLM on an H100: a step with prompts draws more power, and its clock is 6 % lower for that."""
    rounds = even(200)
    rounds[120] = PLANTED[StepCause.SLOWER_GPU]
    clock = [(t * MS, 1980.0 if abs(t - 1215) > 30 else 1860.0) for t in range(0, 2000, 20)]
    (one,) = slow(rounds, series_of(GPU, v.GPU_SM_CLOCK, clock))
    assert one.cause is StepCause.SLOWER_GPU


def test_a_rank_that_was_late_is_named() -> None:
    rounds, others = even(200), even(200, seed=2)
    rounds[120] = PLANTED[StepCause.SLOWER_GPU]
    others[120] = Round().longer(6 * MS)
    (one,) = slow(rounds, rounds_of(others, TrackId("thread:9/9")))
    assert one.cause is StepCause.LATE_RANK


def test_a_step_in_which_nothing_ran_is_none() -> None:
    rounds = even(200)
    rounds[120] = PLANTED[StepCause.LOCK].longer(300 * MS, RoundPart.LOCK)
    running = series_of(
        SERVER, v.SERVER_RUNNING, [(t * MS, 0.0 if 1300 < t < 1400 else 4.0) for t in range(0, 2300, 20)]
    )
    assert slow(rounds, running) == ()


@pytest.mark.parametrize("part", [one for one in RoundPart if one in _OF_THE_CPU])
def test_what_was_not_looked_at_is_not_blamed_on_the_engine(part: RoundPart) -> None:
    rounds = even(200)
    rounds[120] = PLANTED[StepCause.OWN_CODE]
    made = rounds_of(rounds)
    del made[ENGINE, v.labelled(v.THREAD_ROUND, part).name]
    trace = trace_of(made)
    (loop,) = engine_loops(trace)  # type: ignore[misc]
    assert [one.cause for one in StepJudge(trace, loop).slow()] == [StepCause.UNSEEN]


def test_where_launches_are_not_counted_nothing_is_said_of_how_much_work_it_was() -> None:
    rounds = [replace(one, launches=None, graphs=None) for one in even(200)]
    rounds[120] = replace(PLANTED[StepCause.SLOWER_GPU], launches=None, graphs=None)
    (one,) = slow(rounds)
    assert one.cause is StepCause.LONGER_WAIT


@pytest.mark.parametrize(
    ("graphs", "cause"), [(29, StepCause.MORE_WORK), (0, StepCause.MORE_WORK), (1, StepCause.UNSEEN)]
)
def test_graphs_alone_tell_more_work(graphs: int, cause: StepCause) -> None:
    """A step launches one; a prompt those of its pieces, or none."""
    made = [replace(one, launches=None, graphs=1) for one in even(200)]
    made[120] = replace(made[120].longer(14 * MS), graphs=graphs)
    series = rounds_of(made)
    del series[ENGINE, v.labelled(v.THREAD_ROUND, RoundPart.COPY).name]
    trace = trace_of(series)
    (loop,) = engine_loops(trace)  # type: ignore[misc]
    (one,) = StepJudge(trace, loop).slow()
    assert one.cause is cause
    assert one.blame[cause] == pytest.approx(14 * MS, rel=0.05)
    assert ("graph launches" in one.evidence) == (cause is StepCause.MORE_WORK)


def test_a_prompt_is_named_by_the_graphs_of_its_pieces() -> None:
    rounds = [replace(one, launches=None, graphs=1) for one in even(200)]
    rounds[120] = replace(rounds[120].longer(14 * MS), graphs=29)
    (one,) = slow(rounds, counter(SERVER, v.SERVER_PROMPT_TOKENS, [1220 * MS], 2100 * MS))
    assert one.cause is StepCause.PREFILL
    assert one.evidence.endswith(", 29 graph launches (median 1)")


def test_the_tail_is_told_by_cause() -> None:
    rounds = even(400)
    for i in range(50, 350, 50):
        rounds[i] = PLANTED[StepCause.COLLECTION]
    rounds[360] = rounds[380] = replace(
        PLANTED[StepCause.COLLECTION], parts={RoundPart.WAIT: 7 * MS, RoundPart.QUEUE: 12 * MS}
    )
    tail = judge(rounds).tail()
    assert tail is not None
    assert tail.shares[StepCause.COLLECTION] == pytest.approx(0.75, abs=0.03)
    assert tail.shares[StepCause.QUEUE] == pytest.approx(0.25, abs=0.03)
    assert tail.sentence == "of p99 - p50 (11.9 ms), 75 % garbage collection, 25 % run queue"


def test_of_few_steps_no_tail_is_told() -> None:
    rounds = even(99)
    rounds[50] = PLANTED[StepCause.LOCK]
    assert judge(rounds).tail() is None
