"""Silence: it means that all is well only where every rule could judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import engine_starved
from llmtop.analysis.rules.live_rules import RULES
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import Finding, Missing, Origin, Severity, Trace, Track, TrackKind, Unknown, What
from tests.analysis.verdict_scenes import (
    API,
    CPU_BOUND,
    CPU_BOUND_UNSEEN,
    GIL,
    GPU_BOUND_SPINNING,
    IDLE,
    ON_DISK,
    SITUATIONS,
    STARVED,
    WELL,
    Scene,
    Thread,
    unjudged_of,
)
from tests.live_traces import NOTHING, SOURCES, live_trace

UNTHROTTLED = {("gpu:0", v.GPU_CLOCK_REASONS): 0.0}
BUCKETLESS = "server.itl"
"""A latency of which the scenes tell the mean only: whether it misses an objective cannot be judged."""
ALL_SEEN = WELL.but(gauges=UNTHROTTLED)


def lacking(diagnosed: Diagnosis) -> set[str]:
    return {one.rule for one in diagnosed.unjudged}


def without(trace: Trace, *names: str) -> Trace:
    """The same trace, as if nobody had read some metrics."""
    return replace(trace, series={key: one for key, one in trace.series.items() if not key[1].startswith(names)})


@pytest.mark.parametrize("scene", [ALL_SEEN, IDLE.but(gauges=UNTHROTTLED)], ids=["well", "idle"])
def test_nothing_stands_out_where_every_rule_could_judge(scene: Scene) -> None:
    diagnosed = diagnose(without(scene.trace(), BUCKETLESS))
    assert diagnosed.unjudged == ()
    assert diagnosed.is_clear
    assert diagnosed.verdict == "no findings: nothing stands out"


def test_a_short_look_says_how_long_it_was() -> None:
    diagnosed = diagnose(ALL_SEEN.but(seconds=4).trace())
    assert not diagnosed.is_clear
    assert diagnosed.verdict == "looking (4 s of 15 s seen)"


@pytest.mark.parametrize(
    ("names", "rules"),
    [
        (("server.waiting",), {"queue-growth"}),
        (("server.preemptions", "server.kv_usage"), {"kv-bound"}),
        (("gpu.dram",), {"memory-bound-decode", "compute-bound"}),
        (("gpu.clock_reasons",), {"clocks-capped"}),
        (("thread.on_cpu",), {"run-queue-starvation", "gil-bound", "api-bound", "cpu-bound", "cgroup-throttled"}),
        (("gpu.active",), {"gpu-bound"}),
    ],
    ids=lambda names: names[0] if isinstance(names, tuple) else "",
)
def test_what_is_not_read_keeps_its_rules_from_judging(names: tuple[str, ...], rules: set[str]) -> None:
    diagnosed = diagnose(without(ALL_SEEN.trace(), *names))
    assert rules <= lacking(diagnosed)
    assert not diagnosed.is_clear
    assert diagnosed.verdict.startswith("no verdict: ")
    assert all(one.why.reason for one in diagnosed.unjudged)


@pytest.mark.parametrize("scene", [ALL_SEEN, IDLE.but(gauges=UNTHROTTLED)], ids=["well", "idle"])
def test_what_is_known_rules_out_what_probes_would_see(scene: Scene) -> None:
    """Threads that rest are no GIL herd and no limit: no probe is lacking to say so."""
    assert diagnose(without(scene.but(probed=False).trace(), BUCKETLESS)).is_clear


def test_threads_that_share_a_core_need_probes_to_be_judged() -> None:
    (rule,) = [rule for rule in RULES if rule.id == "gil-bound"]
    trace = GIL.but(probed=False, gil_waits={}).trace()
    why = Unknown("only root may load probes", "sudo llmtop ...")
    (told,) = unjudged_of(rule, replace(trace, missing=(Missing(What("ebpf"), why),), sources=SOURCES))
    assert told == why
    assert not unjudged_of(rule, GIL.but(gil_waits={}).trace())


def test_a_thread_that_never_rests_needs_the_gpu_to_be_judged() -> None:
    (rule,) = [rule for rule in RULES if rule.id == "cpu-bound"]
    assert unjudged_of(rule, without(CPU_BOUND_UNSEEN.trace(), "gpu."))
    assert not unjudged_of(rule, CPU_BOUND_UNSEEN.but(gpus=(90.0,)).trace())


def test_a_gpu_that_idles_for_less_than_half_of_the_time_needs_probes_to_be_judged() -> None:
    """The thread computes, or spins until the GPU is done: at 62 % both can be."""
    (rule,) = [rule for rule in RULES if rule.id == "cpu-bound"]
    trace = CPU_BOUND_UNSEEN.but(gpus=(62.0,)).trace()
    why = Unknown("switched off", "switch it on")
    (told,) = unjudged_of(rule, replace(trace, missing=(Missing(What("ebpf"), why),), sources=SOURCES))
    assert told == why
    (told,) = unjudged_of(rule, trace)
    assert "no probe tells yet" in told.reason
    assert not unjudged_of(rule, CPU_BOUND.trace())


def test_no_gpu_in_the_machine_is_nothing_to_lack() -> None:
    trace = ALL_SEEN.but(gpus=(), gauges={}, threads=(API, Thread(on_cpu=0.7))).trace()
    assert diagnose(without(trace, BUCKETLESS)).is_clear


def test_a_gpu_that_is_used_and_not_seen_is_lacking() -> None:
    assert "clocks-capped" in lacking(diagnose(ALL_SEEN.but(gpus=(), gauges={}).trace()))


def test_an_open_device_file_is_a_gpu_that_is_used() -> None:
    trace = ALL_SEEN.but(gpus=(), gauges={}, threads=(API, Thread(on_cpu=0.1))).trace()
    assert [one.rule for one in diagnose(trace).findings] == ["engine-starved"]
    root = replace(trace.tracks[ids.process(7)], facts={"role": "EngineCore", "gpus_open": 1})
    used = diagnose(replace(trace, tracks={**trace.tracks, ids.process(7): root}))
    assert not used.findings
    assert "engine-starved" in lacking(used)


def test_a_gpu_at_which_others_work_is_not_the_servers() -> None:
    """A server that has no GPU open is not told of the load that another program puts on one."""
    trace = ALL_SEEN.but(gpus=(97.0,), threads=(API, Thread(on_cpu=0.1))).trace()
    held = {id: track for id, track in trace.tracks.items() if track.kind is not TrackKind.GPU_PROCESS}
    root = replace(trace.tracks[ids.process(7)], facts={"role": "EngineCore", "gpus_open": 0})
    assert [one.rule for one in diagnose(replace(trace, tracks={**held, ids.process(7): root})).findings] == [
        "engine-starved"
    ]
    unread = replace(root, facts={"role": "EngineCore", "gpus_open": Unknown("not ours to read")})
    found = diagnose(replace(trace, tracks={**held, ids.process(7): unread})).findings
    assert "engine-starved" not in [one.rule for one in found]


def test_a_server_of_which_nothing_is_seen_gives_no_verdict() -> None:
    trace = live_trace(NOTHING)
    diagnosed = diagnose(trace)
    assert diagnosed.verdict.startswith("no verdict: ")
    reasons = {one.rule: one.why.reason for one in diagnosed.unjudged}
    assert reasons["kv-bound"] == "127.0.0.1:8000 refuses connections"
    assert reasons["cpu-bound"] == "the process is not ours to read"


def test_a_machine_without_server_and_gpu_has_nothing_to_judge() -> None:
    diagnosed = diagnose(Trace(Origin("live"), 0, 20 * 10**9))
    assert not diagnosed.unjudged
    assert diagnosed.verdict == "no verdict: there is no server and no GPU to judge"


def test_live_rules_lack_nothing_on_a_report() -> None:
    assert diagnose(Trace(Origin("ncu-rep"))) == Diagnosis(())


def test_a_rule_that_has_found_something_lacks_nothing() -> None:
    diagnosed = diagnose(STARVED.trace())
    assert [one.rule for one in diagnosed.findings] == ["run-queue-starvation"]
    assert "run-queue-starvation" not in lacking(diagnosed)


def test_healthy_is_not_said_beside_a_growing_queue() -> None:
    assert diagnose(GPU_BOUND_SPINNING.trace()).verdict.startswith("GPU-bound, healthy")
    growing = GPU_BOUND_SPINNING.but(waiting=(0.0, 40.0), seconds=37)
    found = {one.rule: one.message for one in diagnose(growing.trace()).findings}
    assert set(found) == {"queue-growth", "gpu-bound"}
    assert "healthy" not in "".join(found.values())


@pytest.mark.parametrize(("is_root", "command"), [(1, "dmesg | tail"), (0, "sudo dmesg | tail")])
def test_root_is_given_commands_without_sudo(is_root: int, command: str) -> None:
    class Told:
        id = summary = source = "told"

        def check(self, trace: Trace) -> Iterator[Finding]:
            yield Finding("told", Severity.ERROR, "it", "so it is", (), "look", "sudo dmesg | tail")

    host = Track(ids.HOST, TrackKind.HOST, "host", facts={"is_root": is_root})
    (found,) = diagnose(Trace(Origin("live"), tracks={ids.HOST: host}), (Told(),)).findings
    assert found.next_command == command


def test_what_an_engine_waits_for_and_nobody_may_read_is_no_verdict() -> None:
    scene = SITUATIONS["asleep in what nobody may read"][0]
    (why,) = unjudged_of(engine_starved, scene.trace())
    assert str(why) == "in what the engine's threads wait cannot be read (run llmtop with sudo)"


def test_a_library_of_the_gpu_that_is_loaded_is_no_use_of_one() -> None:
    """Probes on libcuda make no difference to the verdict on a server without a GPU."""
    scene = ON_DISK.but(gpus=(), counters={(ids.process(7), v.LIBRARY_OBSERVED): 1.0})
    assert [one.rule for one in diagnose(scene.trace()).findings] == ["engine-starved"]
