from collections import Counter
from dataclasses import replace

import pytest

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.server.step_causes import StepCause
from llmtop.analysis.server.steps_view import StepsView, steps_heatmap, steps_view
from llmtop.analysis.views import Heatmap
from llmtop.model import LIVE, NS_PER_S, Missing, Trace, Unknown
from llmtop.vocabulary import RoundPart
from tests.analysis.engine_rounds import (
    ENGINE,
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


def seen(trace: Trace) -> StepsView:
    view = steps_view(trace)
    assert isinstance(view, StepsView)
    return view


def test_the_numbers_of_even_steps() -> None:
    view = seen(trace_of(rounds_of([Round()] * 201)))
    assert (len(view.newest), view.slow, view.tail, view.others, view.notes) == (200, (), None, 0, ())
    assert (view.p50_ns, view.p99_ns) == (10 * MS, 10 * MS)
    assert view.per_s == pytest.approx(100.0)
    assert view.gpu_share == pytest.approx(0.7)


def test_steps_a_second_are_of_the_time_in_which_there_was_work() -> None:
    view = seen(trace_of(rounds_of([Round()] * 100 + [Round().longer(5000 * MS, RoundPart.INPUT)])))
    assert view.per_s == pytest.approx(100.0)


def test_other_threads_that_make_steps_are_counted() -> None:
    made = rounds_of([Round()] * 60) | rounds_of([Round()] * 40, ids.thread(9, 9))
    assert seen(trace_of(made)).others == 1


def test_a_sample_is_said_to_be_one() -> None:
    made = rounds_of([Round()] * 200)
    known = made[ENGINE, v.THREAD_ROUND.name]
    made |= series_of(ENGINE, v.THREAD_ROUND, [one for i, one in enumerate(known) if i % 100 < 50])
    (note,) = seen(trace_of(made)).notes
    assert note.startswith("steps are a sample: those of 66 % of the time")


def test_what_cannot_be_told_apart_is_said() -> None:
    rounds = even(200)
    rounds[100] = PLANTED[StepCause.OWN_CODE]
    made = rounds_of(rounds)
    for part in (RoundPart.QUEUE, RoundPart.COPY, RoundPart.COLLECTION):
        del made[ENGINE, v.labelled(v.THREAD_ROUND, part).name]
    notes = seen(trace_of(made)).notes
    assert [note.partition(":")[0] for note in notes] == ["not told apart from the engine's own code"] * 2
    assert "threads are followed in slices" in notes[0]


def test_garbage_collection_is_said_to_be_among_the_engines_own_code() -> None:
    rounds = even(200)
    rounds[100] = PLANTED[StepCause.OWN_CODE]
    made = rounds_of(rounds)
    del made[ENGINE, v.labelled(v.THREAD_ROUND, RoundPart.COLLECTION).name]
    trace = trace_of(made)
    said = "garbage collection is among the engine's own code"
    assert seen(trace).notes == (f"{said}: no probe sees all of Python's collections",)
    missing = Missing(whats.function(v.PYTHON_COLLECTOR), Unknown("the interpreter was stripped"))
    assert seen(replace(trace, missing=(missing,))).notes == (f"{said}: the interpreter was stripped",)


def test_without_counts_of_launches_and_page_faults_the_notes_say_what_that_costs() -> None:
    uncounted = replace(Round(), launches=None, graphs=None, faults=None)
    launches, faults = seen(trace_of(rounds_of([uncounted] * 60))).notes
    assert launches == "more work is not told from a slower GPU: not all launches are counted"
    assert faults.startswith("page faults are not told from the engine's own code: nobody counts them")


def test_where_graphs_alone_are_counted_the_notes_say_so() -> None:
    (note,) = seen(trace_of(rounds_of([replace(Round(), launches=None, graphs=1)] * 60))).notes
    assert note == "more work is told by launches of CUDA graphs alone: not all launches are counted"


def served(finished: float, running: tuple[float, float] = (4, 4), prompt_tokens: float = 900) -> Columns:
    """What a server counts over 4.1 s, in which it began with `finished` requests, and as many more as then run."""
    ends = {
        v.SERVER_REQUESTS: (7, 7 + finished),
        v.SERVER_RUNNING: running,
        v.SERVER_PROMPT_TOKENS: (5, 5 + prompt_tokens),
    }
    return {
        key: one
        for metric, (first, last) in ends.items()
        for key, one in series_of(SERVER, metric, [(20 * MS, first), (4100 * MS, last)]).items()
    }


def slow_without_launches(graphs: float | None, count: int = 10) -> Columns:
    """Rounds of 10 ms, of which so many take 20 ms, nobody knows why."""
    rounds = [replace(one, launches=None, graphs=graphs) for one in even(410)]
    for i in range(20, 20 + 39 * count, 39):
        rounds[i] = rounds[i].longer(10 * MS)
    made = rounds_of(rounds)
    del made[ENGINE, v.labelled(v.THREAD_ROUND, RoundPart.COPY).name]
    return made


def likely(server: Columns, graphs: float | None = None, count: int = 10) -> list[str]:
    notes = seen(trace_of(slow_without_launches(graphs, count) | server)).notes
    return [note for note in notes if note.startswith("slow steps whose cause is not seen")]


@pytest.mark.parametrize(
    ("finished", "running", "rate"), [(10, (4, 4), "2.4"), (20, (4, 4), "4.8"), (5, (4, 4), "1.2"), (6, (1, 5), "2.4")]
)
def test_about_as_many_slow_steps_as_requests_are_said_to_be_likely_prompts(
    finished: float, running: tuple[float, float], rate: str
) -> None:
    said = f"slow steps whose cause is not seen are likely prompts: 2.4 such steps/s, and {rate} requests/s began"
    assert likely(served(finished, running)) == [said]


def test_beside_steps_with_a_long_prompt_the_others_are_likely_short_ones() -> None:
    """The long ones are told by the wait for the GPU; all of them together are as many as the requests."""
    rounds = [replace(one, launches=None, graphs=None) for one in even(410)]
    for i in range(20, 20 + 39 * 10, 39):
        rounds[i] = rounds[i].longer(10 * MS)
    for i in range(30, 30 + 39 * 6, 39):
        rounds[i] = rounds[i].longer(60 * MS, RoundPart.WAIT)
    made = rounds_of(rounds)
    del made[ENGINE, v.labelled(v.THREAD_ROUND, RoundPart.COPY).name]
    counted = counter(SERVER, v.SERVER_PROMPT_TOKENS, range(0, 4500 * MS, 50 * MS), 4500 * MS)
    view = seen(trace_of(made | served(15) | counted))
    assert Counter(one.cause for one in view.slow) == {StepCause.UNSEEN: 10, StepCause.PREFILL: 6}
    (note,) = (one for one in view.notes if one.startswith("slow steps whose"))
    assert note.startswith(
        "slow steps whose cause is not seen are likely short prompts: 2.2 such steps/s beside 1.3 steps/s that have a "
        "prompt"
    )


@pytest.mark.parametrize(
    ("server", "graphs"),
    [
        (served(21), None),
        (served(4), None),
        (served(10, prompt_tokens=0), None),
        ({}, None),
        (served(10), 1),
    ],
    ids=["more requests", "fewer requests", "no prompts", "no server", "graphs would tell"],
)
def test_else_nothing_is_said_of_prompts(server: Columns, graphs: float | None) -> None:
    assert likely(server, graphs) == []


@pytest.mark.parametrize(("count", "is_said"), [(4, False), (5, True)])
def test_of_few_slow_steps_and_requests_it_is_chance_that_they_are_as_many(count: int, is_said: bool) -> None:
    assert bool(likely(served(count), count=count)) == is_said


def test_of_a_server_that_ran_nothing_there_are_no_steps() -> None:
    made = rounds_of([Round()] * 40) | series_of(SERVER, v.SERVER_RUNNING, [(t * MS, 0.0) for t in range(400)])
    assert str(steps_view(trace_of(made))) == "no request ran while steps were seen (send the server a request)"


def test_steps_stand_in_the_heatmap_when_they_ended_and_as_long_as_they_took() -> None:
    rounds = [Round()] * 100 + [Round().longer(30 * MS)] * 50
    made = steps_heatmap(trace_of(rounds_of(rounds)), None, 4 * NS_PER_S, 4)
    assert isinstance(made, Heatmap)
    assert (made.step_ns, made.start_ns, made.uppers[0] <= 10 * MS, made.uppers[-1] >= 40 * MS) == (
        NS_PER_S, -NS_PER_S, True, True,
    )  # fmt: skip
    before, first, second, third = made.columns
    assert before is None
    assert first is not None
    assert second is not None
    assert third is not None
    assert (sum(first.rates), sum(second.rates)) == (98.0, 25.0)
    assert second.p50 is not None
    assert second.p50.low < 40 * MS <= second.p50.high


def test_a_heatmap_of_nothing_says_why() -> None:
    assert isinstance(steps_heatmap(Trace(LIVE), None, NS_PER_S, 4), Unknown)
