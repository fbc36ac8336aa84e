"""Each live rule speaks on its two signals, and on nothing less."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import (
    clocks_capped,
    compute_bound,
    context_filled,
    evidence,
    kv_bound,
    memory_bound_decode,
    prefix_misses,
    queue_growth,
    requests_held,
    requests_outside,
    signals,
    speculation_poor,
)
from llmtop.analysis.rules.base import Rule
from llmtop.analysis.rules.evidence import says
from llmtop.analysis.rules.live_rules import RULES
from llmtop.analysis.rules.registry import diagnose
from llmtop.facts import GpuFact
from llmtop.model import NS_PER_S, Finding, Metric, Origin, Reading, Series, Severity, Trace, Track, TrackId, TrackKind
from llmtop.session import Recorder
from tests.analysis.verdict_scenes import findings_of
from tests.live_traces import NOTHING, Scene, live_trace

TRACKS = {
    ids.gpu(0): Track(ids.gpu(0), TrackKind.GPU, "H100"),
    ids.server(1): Track(ids.server(1), TrackKind.SERVER, "vLLM :1"),
    ids.process(7): Track(ids.process(7), TrackKind.PROCESS, "EngineCore"),
    ids.thread(7, 7): Track(ids.thread(7, 7), TrackKind.THREAD, "EngineCore", facts={"role": "EngineCore"}),
}
Values = dict[tuple[TrackId, Metric], float | list[float]]


def trace(values: Values, ticks: int = 30) -> Trace:
    """Gauges hold their value (or walk a list, evenly); counters grow by it each second."""
    recorder = Recorder(Origin("live"))
    for tick in range(ticks):
        t = (tick + 1) * NS_PER_S
        readings = tuple(
            Reading(track, metric, t, _at(value, tick, ticks) * (tick if metric.counter else 1), "test")
            for (track, metric), value in values.items()
        )
        recorder.append("test", Trace(Origin("live"), t, t, tracks=TRACKS, readings=readings))
    return recorder.freeze()


def _at(value: float | list[float], tick: int, ticks: int) -> float:
    return value[tick * len(value) // ticks] if isinstance(value, list) else value


def gpu(**values: float) -> Values:
    metrics = {"dram": v.GPU_DRAM, "tensor": v.GPU_TENSOR, "busy": v.GPU_ACTIVE, "sm": v.GPU_SM}
    return {(ids.gpu(0), metrics[name]): value for name, value in values.items()}


def server(**values: float | list[float]) -> Values:
    metrics = {
        "waiting": v.SERVER_WAITING,
        "running": v.SERVER_RUNNING,
        "kv": v.SERVER_KV_USAGE,
        "preemptions": v.SERVER_PREEMPTIONS,
        "requests": v.SERVER_REQUESTS,
    }
    return {(ids.server(1), metrics[name]): value for name, value in values.items()}


def found(rule: Rule, values: Values) -> list[Finding]:
    return findings_of(rule, trace(values))


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


# -- each rule, on and off -------------------------------------------------------------------------------------


def test_memory_bound_decode() -> None:
    finding = only(found(memory_bound_decode, gpu(dram=84, tensor=18)))
    assert finding.message == "memory-bound decode: DRAM 84 %, tensor 18 %"
    assert finding.evidence == ("GPU 0: DRAM 84 % (test), tensor 18 % (test)",)
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(("dram", "tensor"), [(55, 10), (60, 84), (20, 5)])
def test_not_memory_bound(dram: float, tensor: float) -> None:
    assert not found(memory_bound_decode, gpu(dram=dram, tensor=tensor))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (server(kv=0.3), "raise the batch (KV is at 30 % only), more tokens per byte read: larger batches"),
        (server(kv=0.3, waiting=0), "more load on this server (nothing waits: its batch is all that clients send)"),
        (server(kv=0.3, waiting=9), "more tokens per byte read: let more requests run at once"),
        (server(kv=0.95), "KV is nearly full, so only fewer bytes per token help: quantise"),
        ({}, "raise the batch until KV is full: larger batches; or read fewer bytes per token: quantise"),
    ],
)
def test_memory_bound_advice_depends_on_what_a_larger_batch_needs(values: Values, words: str) -> None:
    assert words in only(found(memory_bound_decode, gpu(dram=84, tensor=18) | values)).action


def test_no_larger_batches_where_tokens_are_late_already() -> None:
    late: Values = {
        (ids.server(1), v.bucket(v.SERVER_ITL, math.inf)): 100.0,
        (ids.server(1), v.total(v.SERVER_ITL)): 20.0,
    }
    late |= {(ids.server(1), v.bucket(v.SERVER_ITL, 0.1)): 0.0}
    finding = only(found(memory_bound_decode, gpu(dram=84, tensor=18) | server(kv=0.3, waiting=0) | late))
    assert finding.action.startswith("ITL misses its objective, and larger batches would make it later still: quantise")


def test_one_finding_for_all_gpus_alike() -> None:
    finding = only(findings_of(memory_bound_decode, live_trace(Scene(gpus=8, is_moving=False))))
    assert finding.subject == "GPUs 0, 1, 2, 3, 4, 5, 6, 7"
    assert finding.message == "memory-bound decode on 8 GPUs: DRAM 83 %, tensor 18 %"
    assert len([line for line in finding.evidence if line.startswith("GPU ")]) == 8


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (gpu(dram=48, tensor=6, busy=62), "DRAM 77 %, tensor 10 % while the GPU works (62 % of the time)"),
        (gpu(dram=48, tensor=6, sm=98), "DRAM 48 %, tensor 6 %"),
        (gpu(dram=61, tensor=8, sm=97), "DRAM 61 %, tensor 8 %"),
        (gpu(dram=20, tensor=3, busy=25), "DRAM 80 %, tensor 12 % while the GPU works (25 % of the time)"),
        (gpu(dram=30, tensor=5, busy=58), ""),
        (gpu(dram=20, tensor=3, busy=15), ""),
        (gpu(dram=48, tensor=30, sm=98), ""),
    ],
)
def test_memory_bound_is_judged_over_the_time_at_work(values: Values, says: str) -> None:
    """The first four: decode of OPT-1.3B and 2.7B (Recasens et al.), and loads in bursts."""
    assert [one.message.removeprefix("memory-bound decode: ") for one in found(memory_bound_decode, values)] == (
        [says] if says else []
    )


def test_compute_bound_is_judged_over_the_time_at_work() -> None:
    finding = only(found(compute_bound, gpu(dram=15, tensor=35, busy=50)))
    assert finding.message == "compute-bound: tensor 70 %, DRAM 30 % while the GPU works (50 % of the time)"
    assert finding.evidence == ("GPU 0: tensor 35 % (test), DRAM 15 % (test), GPU busy 50 % (test)",)


def test_compute_bound() -> None:
    finding = only(found(compute_bound, gpu(dram=35, tensor=72)))
    assert finding.message == "compute-bound: tensor 72 %, DRAM 35 %"
    assert not found(compute_bound, gpu(dram=80, tensor=72))
    assert not found(compute_bound, gpu(dram=35, tensor=50))


def test_kv_bound_needs_preemptions_and_a_shortage() -> None:
    values = server(kv=0.98, waiting=12, preemptions=0.5)
    finding = only(found(kv_bound, values))
    assert finding.message == "KV-bound: KV cache 98 %, 30 preemptions/min, 12 waiting"
    assert finding.severity is Severity.ERROR
    for weaker in ({"kv": 0.5}, {"waiting": 0.0}, {"preemptions": 0.2}):
        assert found(kv_bound, values | server(**weaker))
    for too_weak in ({"kv": 0.5, "waiting": 0.0}, {"preemptions": 0.0}, {"preemptions": 0.05}):
        assert not found(kv_bound, values | server(**too_weak))


def test_without_a_count_of_preemptions_a_full_cache_and_a_queue_are_kv_bound() -> None:
    """TensorRT-LLM and LMDeploy count none."""
    finding = only(found(kv_bound, server(kv=0.98, waiting=12)))
    assert finding.message == "KV-bound: KV cache 98 %, 12 requests wait for room"
    assert finding.severity is Severity.WARNING
    assert not found(kv_bound, server(kv=0.98, waiting=0.0))
    assert not found(kv_bound, server(kv=0.9, waiting=12))


@pytest.mark.parametrize(("finished", "severity"), [(4.0, Severity.WARNING), (1.0, Severity.ERROR)])
def test_a_few_requests_that_are_thrown_out_are_no_worse_than_what_fills_the_cache(
    finished: float, severity: Severity
) -> None:
    values = server(kv=0.98, waiting=12, preemptions=0.5, requests=finished)
    finding = only(found(kv_bound, values))
    assert finding.severity is severity
    assert any(line.startswith("requests finished ") for line in finding.evidence)


def test_kv_bound_is_said_at_once() -> None:
    """Two looks in which three requests were thrown out: no need to wait for a mean."""
    finding = only(findings_of(kv_bound, trace(server(kv=0.85, waiting=255, preemptions=6.0), ticks=2)))
    assert finding.message == "KV-bound: KV cache 85 %, 360 preemptions/min, 255 waiting"
    assert finding.evidence[0] == "preemptions 6 in 1 s (test)"


def test_kv_bound_tells_the_most_of_a_gauge_that_preempting_keeps_moving() -> None:
    finding = only(found(kv_bound, server(kv=[0.9, 0.4, 0.85, 0.1], waiting=12, preemptions=0.5)))
    assert finding.message == "KV-bound: KV cache up to 85 %, 30 preemptions/min, 12 waiting"


def test_kv_bound_tells_means_and_not_the_moment_after_a_preemption() -> None:
    values = server(
        kv=[0.98, 0.9] * 7 + [0.0], waiting=[40.0] * 14 + [0.0], running=[8.0] * 14 + [0.0], preemptions=0.5
    )
    finding = only(found(kv_bound, values))
    assert finding.message == "KV-bound: KV cache up to 98 %, 30 preemptions/min, 35 waiting"
    assert finding.evidence[1:] == (
        "KV cache 82 % (test, mean of 15 s; now 0 %), up to 98 %",
        "waiting 35 requests (test, mean of 15 s; now 0)",
        "running 7 requests (test, mean of 15 s; now 0)",
    )


def test_kv_bound_never_advises_what_makes_it_worse() -> None:
    """Where requests are thrown out, no rule says to let more in."""
    values = server(kv=0.85, waiting=[2, 100, 255], running=1, preemptions=6.0)
    actions = [finding.action for finding in diagnose(trace(values)).findings]
    assert actions
    assert not any("more requests" in action or "raise the batch" in action for action in actions), actions


def test_kv_bound_is_over_when_nobody_is_thrown_out_any_more() -> None:
    stopped = [6.0] * 10 + [0.0] * 30
    assert not findings_of(kv_bound, trace(server(kv=0.97, waiting=5, preemptions=stopped), ticks=40))


def test_speculation_poor() -> None:
    drafts: Values = {(ids.server(1), v.SERVER_DRAFTED): 200.0, (ids.server(1), v.SERVER_ACCEPTED): 50.0}
    finding = only(found(speculation_poor, drafts | server(running=32)))
    assert finding.message == "speculation pays little: 25 % of the drafted tokens are accepted at 32 running"
    assert finding.evidence[0] == "1450 of 5800 drafted tokens accepted in 29 s (test)"
    assert "batch this large" in finding.action
    assert "batch" not in only(found(speculation_poor, drafts | server(running=4))).action
    assert only(found(speculation_poor, server(running=4) | {(ids.server(1), v.SERVER_ACCEPTANCE): 0.3}))


@pytest.mark.parametrize(("drafted", "accepted"), [(200.0, 101.0), (3.0, 0.5), (0.0, 0.0)])
def test_speculation_that_pays_or_hardly_runs(drafted: float, accepted: float) -> None:
    drafts: Values = {(ids.server(1), v.SERVER_DRAFTED): drafted, (ids.server(1), v.SERVER_ACCEPTED): accepted}
    assert not found(speculation_poor, drafts | server(running=32))


@pytest.mark.parametrize(
    ("metric", "held", "waiting", "words"),
    [
        (v.SERVER_HELD, 6.0, 8.0, "6 requests wait for something other than room"),
        (v.SERVER_HELD_GRAMMAR, 5.0, 0.0, "5 requests wait for grammars to be compiled"),
        (v.SERVER_HELD_TRANSFER, 5.0, 4.0, "5 requests wait for KV blocks from prefill servers"),
        (v.SERVER_HELD_GRAMMAR, 1.0, 0.0, "1 request waits for grammars to be compiled"),
        (v.SERVER_HELD, 3.0, 8.0, ""),
        (v.SERVER_HELD, 0.5, 0.0, ""),
    ],
)
def test_requests_held(metric: Metric, held: float, waiting: float, words: str) -> None:
    said = found(requests_held, server(waiting=waiting) | {(ids.server(1), metric): held})
    assert [one.message for one in said] == ([words] if words else [])


@pytest.mark.parametrize(
    ("unanswered", "running", "waiting", "words"),
    [
        (14.0, 1.0, 0.0, "13 requests wait outside of the engine, the oldest for 4.0 s"),
        (14.0, 8.0, 3.0, ""),
        (3.0, 1.5, 0.0, ""),
        (14.0, 8.0, 6.0, ""),
        ([14.0, 0.0], 1.0, 0.0, ""),
        ([14.0, 0.0] * 15, 1.0, 0.0, ""),
        ([14.0] * 20 + [0.0] * 2 + [14.0] * 8, 1.0, 0.0, ""),
        (
            [14.0] * 20 + [0.0] * 1 + [14.0] * 9,
            1.0,
            0.0,
            "13 requests wait outside of the engine, the oldest for 4.0 s",
        ),
        ([10.0] * 20 + [40.0] * 10, 1.0, 0.0, "39 requests wait outside of the engine, the oldest for 4.0 s"),
        ([14.0, 1.0] * 15, 1.0, 0.0, "6 requests wait outside of the engine, the oldest for 4.0 s"),
    ],
    ids=[
        *("held", "less than half", "one of them a check", "all in the engine", "is over", "comes and goes"),
        *("gone in two of sixteen looks", "gone in one", "it grows", "once a single one"),
    ],
)
def test_requests_outside(unanswered: float | list[float], running: float, waiting: float, words: str) -> None:
    more: Values = {
        (ids.endpoint(1), v.ENDPOINT_UNANSWERED): unanswered,
        (ids.endpoint(1), v.ENDPOINT_LONGEST_WAIT): 4.0,
    }
    said = found(requests_outside, server(running=running, waiting=waiting) | more)
    assert [one.message for one in said] == ([words] if words else [])


def test_answers_that_are_cut_where_the_context_ends() -> None:
    filled: Values = {(ids.server(1), v.SERVER_CONTEXT_FILLED): 0.1, (ids.server(1), v.SERVER_CONTEXT): 256.0}
    finding = only(found(context_filled, filled | server(running=3)))
    assert finding.message == "answers are cut short: at least 3 requests filled the context in 29 s"
    assert finding.evidence[1] == "room of a slot 256 tokens (test), for prompt and answer"
    assert not found(context_filled, {**filled, (ids.server(1), v.SERVER_CONTEXT_FILLED): 0.0})
    assert not found(context_filled, server(running=3))


def prefix(hits: list[float], kv: float = 0.4) -> Trace:
    """Of 1000 tokens a second; each share holds for a minute."""
    recorder, sums = Recorder(Origin("live")), [0.0, 0.0]
    for tick in range(60 * len(hits)):
        t = (tick + 1) * NS_PER_S
        sums = [sums[0] + 1000, sums[1] + 1000 * hits[tick // 60]]
        values = ((v.SERVER_PREFIX_QUERIES, sums[0]), (v.SERVER_PREFIX_HITS, sums[1]), (v.SERVER_KV_USAGE, kv))
        readings = tuple(Reading(ids.server(1), metric, t, value, "test") for metric, value in values)
        recorder.append("test", Trace(Origin("live"), t, t, tracks=TRACKS, readings=readings))
    return recorder.freeze()


def test_prefix_misses() -> None:
    finding = only(findings_of(prefix_misses, prefix([0.6, 0.6, 0.1])))
    assert finding.message == "the prefix cache hits 10 % of prompt tokens, 60 % before"
    assert "begin otherwise" in finding.action
    assert "given away" in only(findings_of(prefix_misses, prefix([0.6, 0.6, 0.1], kv=0.95))).action


@pytest.mark.parametrize("hits", [[0.1], [0.2, 0.05], [0.6, 0.5], [0.1, 0.6]])
def test_prefix_hits_that_are_as_before_or_were_never_many(hits: list[float]) -> None:
    assert not findings_of(prefix_misses, prefix(hits))


def test_queue_growth() -> None:
    finding = only(found(queue_growth, server(waiting=[2, 8, 16], running=64)))
    assert finding.message == "the queue grows: 2 to 16 waiting in 29 s, 64 running; no more than 64 run at once"


def test_queue_growth_says_how_long_it_was_seen_and_what_running_did() -> None:
    values = server(waiting=[2, 8, 16], running=[99, 60, 33])
    finding = only(findings_of(queue_growth, trace(values, ticks=12)))
    assert finding.message.startswith("the queue grows: 2 to 16 waiting in 11 s, 33 running")
    assert finding.evidence[:2] == ("waiting 2 to 16 in 11 s (test)", "running 99 to 33 in 11 s (test)")


@pytest.mark.parametrize(
    ("waiting", "grows"), [([2, 16, 16], False), ([2, 2, 16], False), ([2, 4, 4.9], False), ([2, 4, 5], True)]
)
def test_a_queue_that_stands_in_one_third_does_not_grow(waiting: list[float], grows: bool) -> None:
    assert bool(found(queue_growth, server(waiting=waiting, running=64))) is grows


def test_queue_growth_of_a_moment_is_none() -> None:
    assert not findings_of(queue_growth, trace(server(waiting=[2, 8, 16], running=64), ticks=5))


@pytest.mark.parametrize(
    ("waiting", "running"),
    [([2, 8, 16], [10, 30, 64]), ([16, 8, 2], [64]), ([2, 2.5, 3], [64]), ([2, 20, 16], [64]), ([2, 8, 16], [0])],
)
def test_queue_does_not_grow(waiting: list[float], running: list[float]) -> None:
    assert not found(queue_growth, server(waiting=waiting, running=running))


def clocks(
    mask: int, *, power: float = 400, limit: float = 700, heat: float = 60, memory: float | None = None
) -> Values:
    hbm: Values = {} if memory is None else {(ids.gpu(0), v.GPU_TEMPERATURE_MEMORY): memory}
    return {
        (ids.gpu(0), v.GPU_CLOCK_REASONS): float(mask),
        (ids.gpu(0), v.GPU_POWER): power,
        (ids.gpu(0), v.GPU_POWER_LIMIT): limit,
        (ids.gpu(0), v.GPU_TEMPERATURE): heat,
        (ids.gpu(0), v.GPU_SM_CLOCK): 1410.0,
        **hbm,
    }


@pytest.mark.parametrize(
    ("values", "message", "severity"),
    [
        (clocks(0x04, power=697), "power cap: 697 W, SM clock 1410 MHz", Severity.INFO),
        (clocks(0x20, heat=88), "thermal slowdown: 88.0 °C, SM clock 1410 MHz", Severity.ERROR),
        (clocks(0x40 | 0x08, heat=91), "thermal slowdown: 91.0 °C, SM clock 1410 MHz", Severity.ERROR),
        (clocks(0x80 | 0x08), "power brake: 400 W, SM clock 1410 MHz", Severity.ERROR),
        (clocks(0x08), "hardware slowdown: 400 W, SM clock 1410 MHz", Severity.ERROR),
        (clocks(0x20, heat=78, memory=96), "memory too hot: 96.0 °C, SM clock 1410 MHz", Severity.ERROR),
        (clocks(0x40, heat=84, memory=97), "memory too hot: 97.0 °C, SM clock 1410 MHz", Severity.ERROR),
        (clocks(0x20, heat=84, memory=88), "thermal slowdown: 84.0 °C, SM clock 1410 MHz", Severity.ERROR),
    ],
)
def test_clocks_capped(values: Values, message: str, severity: Severity) -> None:
    finding = only(found(clocks_capped, values))
    assert (finding.message, finding.severity) == (message, severity)


@pytest.mark.parametrize(
    "values", [clocks(0), clocks(0x01), clocks(0x04), clocks(0x20), clocks(0x20, memory=70), clocks(0, memory=97)]
)
def test_clocks_not_capped_without_the_second_signal(values: Values) -> None:
    assert not found(clocks_capped, values)


PREFILL = gpu(tensor=75.0, dram=35.0, sm=97.0)


@pytest.mark.parametrize(
    ("most", "busy", "action"),
    [
        ({}, {}, "raise the power limit if the node allows it (nvidia-smi -i 0 -pl); for decode it matters little"),
        (
            {GpuFact.MAX_POWER_W: 900.0, GpuFact.MAX_SM_MHZ: 1980},
            PREFILL,
            "raise the power limit if the node allows it (nvidia-smi -i 0 -pl 900); "
            "arithmetic, which limits it, is 29 % slower for it",
        ),
        (
            {GpuFact.MAX_POWER_W: 700.0, GpuFact.MAX_SM_MHZ: 1980},
            PREFILL,
            "arithmetic, which limits it, is 29 % slower for it; its power limit is the highest it has (700 W): "
            "use a lower precision, cache the beginnings of prompts, shorten prompts, "
            "split the model over several GPUs",
        ),
        (
            {GpuFact.MAX_POWER_W: 700.0, GpuFact.MAX_SM_MHZ: 1980},
            gpu(tensor=20.0, dram=75.0, sm=97.0),
            "for decode it matters little; its power limit is the highest it has (700 W)",
        ),
        (
            {GpuFact.MAX_POWER_W: 700.0, GpuFact.MAX_SM_MHZ: 1980},
            gpu(tensor=45.0, dram=35.0, sm=97.0),
            "prompts are up to 29 % slower for it; its power limit is the highest it has (700 W)",
        ),
        (
            {GpuFact.MAX_POWER_W: 700.0, GpuFact.MAX_SM_MHZ: 1500},
            PREFILL,
            "for decode it matters little; its power limit is the highest it has (700 W)",
        ),
    ],
)
def test_a_power_cap_says_what_it_costs_and_whether_it_can_be_raised(
    most: dict[str, float], busy: Values, action: str
) -> None:
    seen = trace(clocks(0x04, power=697) | busy)
    told = replace(seen.tracks[ids.gpu(0)], facts={**seen.tracks[ids.gpu(0)].facts, **most})
    finding = only(findings_of(clocks_capped, replace(seen, tracks={**seen.tracks, ids.gpu(0): told})))
    assert finding.action == action
    assert finding.severity is (Severity.WARNING if "which limits it" in action else Severity.INFO)


def test_a_low_clock_agrees_with_a_power_cap_that_comes_and_goes() -> None:
    """Between two batches the power is below the limit, and the driver holds the clock down all the same."""
    seen = trace(clocks(0x04, power=620))
    facts = {**seen.tracks[ids.gpu(0)].facts, GpuFact.MAX_SM_MHZ: 1980}
    told = {**seen.tracks, ids.gpu(0): replace(seen.tracks[ids.gpu(0)], facts=facts)}
    assert only(findings_of(clocks_capped, replace(seen, tracks=told))).message.startswith("power cap: 620 W")
    assert not findings_of(clocks_capped, seen), "who does not know the highest clock has one signal alone"


def test_clock_reason_of_a_moment_is_no_finding() -> None:
    values = clocks(0, power=697) | {(ids.gpu(0), v.GPU_CLOCK_REASONS): [0.0] * 9 + [4.0]}
    assert not found(clocks_capped, values)


# -- all rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize(
    "scene", [NOTHING, Scene(values={"gpu.dram": None, "server.waiting": None})], ids=["nothing", "gaps"]
)
def test_rule_survives_missing_data(rule: Rule, scene: Scene) -> None:
    list(rule.check(live_trace(scene)))
    list(rule.check(live_trace(scene, ticks=1)))
    list(rule.check(Trace(Origin("live"))))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_says_what_it_is(rule: Rule) -> None:
    assert rule.summary.endswith(".")
    assert rule.source


def test_every_finding_has_evidence_an_action_and_a_source() -> None:
    findings = diagnose(live_trace(Scene(values={"server.kv_usage": 0.98}))).findings
    assert findings
    assert all(finding.evidence and finding.action and finding.source for finding in findings)
    assert all("(" in line for finding in findings for line in finding.evidence)


def test_findings_are_gravest_first() -> None:
    findings = diagnose(live_trace(Scene(values={"server.kv_usage": 0.98}))).findings
    assert [finding.rule for finding in findings] == ["kv-bound", "objective-missed", "memory-bound-decode"]


class _Broken:
    id = "broken"
    summary = "It fails."
    source = "test"

    def check(self, trace: Trace) -> Iterable[Finding]:
        raise ZeroDivisionError("by zero")


def test_rule_that_fails_costs_only_itself() -> None:
    findings = diagnose(trace(gpu(dram=84, tensor=18)), (_Broken(), memory_bound_decode)).findings
    assert [finding.rule for finding in findings] == ["broken", "memory-bound-decode"]
    assert findings[0].message == "the rule broken failed: ZeroDivisionError: by zero"


def test_a_mean_that_is_not_what_is_shown_now_says_its_time() -> None:
    """The header shows 583 waiting, the mean of the window is 208: both are true, and neither is a riddle."""
    samples: list[tuple[int, float | None]] = [(s * NS_PER_S, 20.0 if s < 10 else 583.0) for s in range(1, 13)]
    series = Series.of(ids.server(1), v.SERVER_WAITING, "vLLM", samples)
    trace = Trace(Origin("live"), 0, 12 * NS_PER_S, series={(ids.server(1), v.SERVER_WAITING.name): series})
    assert says(trace, ids.server(1), v.SERVER_WAITING, 160.0) == "waiting 160 requests (vLLM, mean of 11 s; now 583)"
    assert (
        says(trace, ids.server(1), v.SERVER_WAITING, 2120.4) == "waiting 2,120 requests (vLLM, mean of 11 s; now 583)"
    )
    assert says(trace, ids.server(1), v.SERVER_WAITING, 583.0) == "waiting 583 requests (vLLM)"


def test_what_many_rules_ask_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[TrackId, str]] = []
    activity_of = signals.activity_of

    def noted(seen: Trace, track: TrackId, metric: Metric, window_ns: int = evidence.WINDOW_NS) -> float | None:
        asked.append((track, metric.name))
        return evidence.recent_mean(seen, track, metric, window_ns)

    def noted_of(seen: Trace, gpu: TrackId) -> signals.Activity | None:
        asked.append((gpu, v.GPU_ACTIVE.name))
        return activity_of(seen, gpu)

    monkeypatch.setattr(signals, "recent_mean", noted)
    monkeypatch.setattr(signals, "activity_of", noted_of)
    assert diagnose(live_trace(ticks=90)).findings
    counts = Counter(asked)
    assert counts[ids.gpu(0), v.GPU_ACTIVE.name] == 1
    waiting = [count for (_, name), count in counts.items() if name == v.SERVER_WAITING.name]
    assert waiting == [2]  # what is at hand, and what the engine has not heard of
