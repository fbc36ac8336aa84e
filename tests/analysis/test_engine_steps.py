from dataclasses import replace
from itertools import cycle, islice

import pytest

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.server.engine_steps import EngineLoop, engine_loops
from llmtop.model import LIVE, Missing, Source, Sources, Trace, Track, TrackKind, Unknown
from llmtop.vocabulary import RoundPart
from tests.analysis.engine_rounds import ENGINE, MS, Round, even, rounds_of, series_of, trace_of


def loop_of(rounds: list[Round]) -> EngineLoop:
    loops = engine_loops(trace_of(rounds_of(rounds)))
    assert not isinstance(loops, Unknown)
    return loops[0]


def test_a_thread_has_the_name_that_all_else_calls_it_by() -> None:
    """The kernel cuts names off after 15 characters: roles are whole."""
    main = ids.thread(7, 7)
    seen = trace_of(rounds_of([Round()] * 31, main))
    cut = Track(main, TrackKind.THREAD, "VLLM::EngineCor", facts={"role": "EngineCore"})
    loops = engine_loops(replace(seen, tracks={**seen.tracks, main: cut}))
    assert not isinstance(loops, Unknown)
    assert loops[0].name == "EngineCore"


def test_a_round_is_a_step_with_its_parts() -> None:
    loop = loop_of([Round()] * 31)
    assert (len(loop.steps), loop.name, loop.source) == (30, "EngineCore", "eBPF")
    first = loop.steps[0]
    assert (first.start_ns, first.end_ns, first.time_ns) == (10 * MS, 20 * MS, 10 * MS)
    assert (first.gpu_ns, first.cpu_ns) == (7 * MS, 3 * MS)
    assert (first.launches, first.graphs, first.parts[RoundPart.LOCK]) == (30, 0, 0)
    assert loop.found == "by launches and the wait for them"


def test_small_rounds_are_within_a_step() -> None:
    """A loop of transformers: the model, then the flag that all sequences have ended."""
    model, flag = Round(launches=600), Round(1 * MS, {RoundPart.WAIT: 0.1 * MS}, launches=2)
    loop = loop_of(list(islice(cycle((model, flag)), 80)))
    assert {step.time_ns for step in loop.steps} == {11 * MS}
    assert {step.launches for step in loop.steps} == {602}


def test_each_graph_is_a_step_beside_prompts_of_many_kernels() -> None:
    decode, prompt, flag = (
        Round(launches=3, graphs=1),
        Round(60 * MS, {RoundPart.WAIT: 50 * MS}, launches=900),
        Round(0.2 * MS, {RoundPart.WAIT: 0.1 * MS}, launches=2),
    )
    loop = loop_of(list(islice(cycle((decode, flag, decode, flag, decode, flag, prompt, flag)), 200)))
    assert len(loop.steps) == 99
    assert sorted({step.time_ns for step in loop.steps}) == [10.2 * MS, 60.2 * MS]
    assert loop.found == "by launches of CUDA graphs and the wait for them"


def test_without_launches_the_rhythm_tells() -> None:
    long, short = Round(launches=None, graphs=None), Round(2 * MS, {RoundPart.WAIT: 1 * MS}, launches=None, graphs=None)
    loop = loop_of(list(islice(cycle((long, short, short)), 120)))
    assert {step.time_ns for step in loop.steps} == {14 * MS}
    assert loop.steps[0].launches is None
    assert "not counted" in loop.found


def vllm_steps(kinds: str) -> list[Round]:
    """Steps of three rounds, of which graphs alone are counted: decodes, prompts in pieces, and of kernels alone."""
    work = {
        "d": Round(2 * MS, {RoundPart.WAIT: 0}, None, 1),
        "p": Round(14 * MS, {RoundPart.WAIT: 0}, None, 29),
        "k": Round(16 * MS, {RoundPart.WAIT: 0}, None, 0),
    }
    flag, tokens = Round(0.1 * MS, {RoundPart.WAIT: 0}, None, 0), Round(1.9 * MS, {RoundPart.WAIT: 1.8 * MS}, None, 0)
    return [one for kind in kinds for one in (work[kind], flag, tokens)]


def test_where_graphs_alone_are_counted_steps_begin_with_them() -> None:
    """Prompts do not disturb that, whether they launch the pieces of a graph or kernels alone."""
    loop = loop_of(vllm_steps("d" + "ddpddkd" * 12))
    assert loop.found == "by launches of CUDA graphs alone, as those of kernels are not counted all the time"
    told = [(step.time_ns / MS, step.graphs, step.launches) for step in loop.steps]
    decode, pieces, kernels = (4.0, 1, None), (16.0, 29, None), (18.0, 0, None)
    assert told == [decode, decode, pieces, decode, decode, kernels, decode] * 12


def test_graphs_in_each_round_are_steps_of_a_round() -> None:
    decode, prompt = Round(launches=None, graphs=1), Round(40 * MS, launches=None, graphs=0)
    loop = loop_of([decode] * 20 + ([prompt] + [decode] * 9) * 5)
    assert "graphs alone" in loop.found
    assert [step.time_ns / MS for step in loop.steps] == [10] * 19 + [40, *[10] * 9] * 5


def test_pieces_of_a_graph_in_several_rounds_are_one_step() -> None:
    """Each reads a flag between the pieces."""
    piece, tokens = Round(2 * MS, launches=None, graphs=4), Round(launches=None, graphs=0)
    loop = loop_of([piece, piece, tokens] * 40)
    assert "graphs alone" in loop.found
    assert {(step.time_ns / MS, step.graphs) for step in loop.steps} == {(14, 8)}


@pytest.mark.parametrize("kinds", ["dk" * 6 + "ddkkkdkkdkkkkdd" * 5, "k" * 60])
def test_where_graphs_do_not_repeat_the_rhythm_tells(kinds: str) -> None:
    rounds = [replace(one, ns=2 * MS) if one.ns > 10 * MS else one for one in vllm_steps(kinds)]
    loop = loop_of(rounds)
    assert "rhythm" in loop.found
    assert {round(step.time_ns / MS, 3) for step in loop.steps} == {4.0}


def test_a_step_is_not_joined_across_rounds_that_nobody_saw_by_graphs_either() -> None:
    made = rounds_of(vllm_steps("d" * 80))
    key = (ENGINE, v.THREAD_ROUND.name)
    kept = [sample for i, sample in enumerate(made[key]) if i not in (30, 61, 92)]  # a first, a second and a third one
    (loop,) = engine_loops(trace_of({**made, **series_of(ENGINE, v.THREAD_ROUND, kept)}))  # type: ignore[misc]
    assert {step.time_ns / MS for step in loop.steps} == {4.0}
    assert len(loop.steps) >= 79 - 3 - 3


def test_several_rounds_a_step_are_told_wherever_they_begin() -> None:
    """A vLLM on an H100 launches, reads a flag and waits for tokens; rounds are missed, and prompts have one more."""
    step = [
        Round(ms * MS, {RoundPart.WAIT: wait * MS}, launches=None, graphs=None)
        for ms, wait in ((2.25, 0.01), (0.02, 0.004), (1.9, 1.8))
    ]
    prompt = Round(14 * MS, {RoundPart.WAIT: 0.01 * MS}, launches=None, graphs=None)
    rounds = [one for _ in range(12) for one in (*step * 8, prompt)]
    made = rounds_of(rounds)
    key = (ENGINE, v.THREAD_ROUND.name)
    kept = [sample for i, sample in enumerate(made[key]) if i % 50 not in (7, 8)]  # of each fifty two are missed
    loops = engine_loops(trace_of({**made, **series_of(ENGINE, v.THREAD_ROUND, kept)}))
    assert not isinstance(loops, Unknown)
    usual = [step.time_ns / MS for step in loops[0].steps if step.time_ns < 10 * MS]
    assert len(usual) > 0.7 * 96
    assert set(map(round, usual)) == {4}


def test_a_stretch_without_counts_is_left_out_of_steps_that_are_told_by_them() -> None:
    made = rounds_of([Round()] * 140)
    counts = made[ENGINE, v.ROUND_LAUNCHES.name]
    made |= series_of(ENGINE, v.ROUND_LAUNCHES, [(t, None if 60 < t / (10 * MS) <= 80 else n) for t, n in counts])
    (loop,) = engine_loops(trace_of(made))  # type: ignore[misc]
    assert len(loop.steps) == 59 + 59
    assert {step.time_ns for step in loop.steps} == {10 * MS}


def test_waiting_for_input_is_no_time_of_a_step() -> None:
    loop = loop_of([Round()] * 29 + [Round().longer(500 * MS, RoundPart.INPUT)])
    assert loop.steps[-1].time_ns == 10 * MS


def test_nothing_is_joined_across_lost_rounds() -> None:
    model, flag = Round(launches=600), Round(1 * MS, {RoundPart.WAIT: 0}, launches=2)
    rounds = list(islice(cycle((flag, model)), 80))
    made = rounds_of(rounds)
    known = made[ENGINE, v.THREAD_ROUND.name]
    made |= series_of(ENGINE, v.THREAD_ROUND, [one for i, one in enumerate(known) if i not in (20, 41)])
    (loop,) = engine_loops(trace_of(made))  # type: ignore[misc]
    assert len(loop.steps) == 36
    assert {step.time_ns for step in loop.steps} == {11 * MS}


def test_what_nobody_looked_at_is_not_nought() -> None:
    made = rounds_of([Round()] * 40)
    lock = v.labelled(v.THREAD_ROUND, RoundPart.LOCK)
    made |= series_of(ENGINE, lock, [(10 * MS, 0.0), (200 * MS, None), (300 * MS, 5.0)])
    (loop,) = engine_loops(trace_of(made))  # type: ignore[misc]
    locked = [step.parts.get(RoundPart.LOCK) for step in loop.steps]
    assert locked == [0.0] * 18 + [None] * 10 + [5.0] + [0.0] * 10


def test_too_few_steps_are_none() -> None:
    found = engine_loops(trace_of(rounds_of([Round()] * 20)))
    assert str(found) == "fewer than 20 steps in 60 s (send the server requests, or wait)"


def test_why_there_are_none() -> None:
    why = Unknown("not root", "sudo llmtop ...")
    sources = Sources((Source("ebpf", whats=(whats.LIBRARY_CALLS,)),))
    assert engine_loops(Trace(LIVE, missing=(Missing(whats.source("ebpf"), why),), sources=sources)) == why
    fallback = Unknown("perf looks in place of ebpf (only root may load probes)", "sudo llmtop ...")
    assert engine_loops(Trace(LIVE, missing=(Missing(whats.BEST_TRACER, fallback),), sources=sources)) == fallback
    never = Unknown("perf does not look at CUDA calls")
    missing = (Missing(whats.BEST_TRACER, fallback), Missing(whats.ROUNDS, never))
    assert engine_loops(Trace(LIVE, missing=missing, sources=sources)) == never, "whether or not probes are there too"
    assert "no thread was seen to launch work" in str(engine_loops(Trace(LIVE)))


def test_without_a_gpu_no_probe_is_missed() -> None:
    """Of a server on the CPU it is not said that probes cost too much: at any cost they would see no step."""
    shed = Missing(whats.source("ebpf"), Unknown("probes would cost more than 1% of a core"))
    none = Missing(whats.source("gpu"), Unknown("there is no NVIDIA driver here", "install the driver"))
    sources = Sources((Source("ebpf", whats=(whats.LIBRARY_CALLS,)), Source("gpu", tracks=(TrackKind.GPU,))))
    why = engine_loops(Trace(LIVE, missing=(shed, none), sources=sources))
    assert why == Unknown("steps are found by waits for a GPU: there is no NVIDIA driver here", "install the driver")


@pytest.mark.parametrize("count", [21, 401])
def test_even_steps_stay_apart(count: int) -> None:
    assert len(loop_of(even(count)).steps) == count - 1


def test_the_busier_thread_is_first() -> None:
    other = type(ENGINE)("thread:9/9")
    made = rounds_of([Round()] * 30) | rounds_of([replace(Round(), ns=2 * MS)] * 60, other)
    loops = engine_loops(trace_of(made))
    assert not isinstance(loops, Unknown)
    assert [loop.track for loop in loops] == [ENGINE, other]
    assert loops[1].name == "9/9"


def test_the_thread_that_makes_steps_now_is_first_however_long_another_took_at_the_start() -> None:
    """A vLLM with TP=2: one rank compiled for 20 s and launches nothing that is seen since; the other decodes."""
    compiles = rounds_of([Round(ns=500 * MS)] * 41, ids.thread(8, 8))
    decodes = rounds_of([Round(ns=5 * MS)] * 3000, ENGINE, start_ns=30_000 * MS)
    loops = engine_loops(trace_of({**compiles, **decodes}))
    assert not isinstance(loops, Unknown)
    assert [loop.track for loop in loops] == [ENGINE, ids.thread(8, 8)]
