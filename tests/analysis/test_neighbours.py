"""Who takes the CPUs, in words, and in the verdict that a thread waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules import cgroup_throttled, cpu_bound, run_queue_starvation
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.threads.neighbours import neighbours
from llmtop.model import NS_PER_S, Fact, Finding, Series, Trace, Track, TrackId, TrackKind
from tests.analysis.verdict_scenes import API, CPU_BOUND, OVERSUBSCRIBED, STARVED, THROTTLED, Thread, findings_of

CROWDED = STARVED.but(threads=(API, Thread(on_cpu=0.5, run_queue=0.4, asleep_in="futex")), cores=4, pressure=40.0)


def beside(
    trace: Trace, *others: tuple[int, str, float, str], steal: float = 0.0, in_use: float = 4.0, unseen: float = 0.0
) -> Trace:
    """The trace with processes outside the server: (pid, name, cores, cgroup)."""
    end = trace.end_ns - 3 * NS_PER_S
    sums = {v.HOST_STEAL: steal, v.HOST_CPU: in_use, v.HOST_CPU_UNSEEN: unseen}
    series = {
        (ids.HOST, metric.name): Series.of(ids.HOST, metric, "/proc/stat", [(end, x)]) for metric, x in sums.items()
    }
    tracks = dict(trace.tracks)
    for pid, name, cores, group in others:
        id = ids.neighbour(pid)
        tracks[id] = Track(id, TrackKind.NEIGHBOUR, name, facts={"pid": pid, "cgroup": group})
        series[id, v.NEIGHBOUR_CPU.name] = Series.of(id, v.NEIGHBOUR_CPU, "/proc/PID/stat", [(end, cores)])
    return replace(trace, tracks=tracks, series={**trace.series, **series})


def with_facts(trace: Trace, track: TrackId, **facts: Fact) -> Trace:
    one = trace.tracks[track]
    return replace(trace, tracks={**trace.tracks, track: replace(one, facts={**one.facts, **facts})})


def starved(trace: Trace) -> Finding:
    (finding,) = findings_of(run_queue_starvation, trace)
    return finding


def test_processes_of_one_name_and_cgroup_are_one() -> None:
    trace = beside(
        CROWDED.trace(), (40, "cc1", 0.9, "ci.service"), (41, "cc1", 0.8, "ci.service"), (42, "cc1", 0.3, "")
    )
    assert [one.text for one in neighbours(trace)] == [
        "cc1 (2 processes, pid 40 ..., ci.service) 1.7 cores",
        "cc1 (pid 42) 0.3 cores",
    ]


LLAMA_SERVER = {
    "engine_kind": "llamacpp",
    "setting.cpu_threads": 8.0,
    "setting.cpu_threads.source": "--threads",
    "setting.cpu_threads.change": "--threads",
}


def test_more_threads_than_cpus_crowd_each_other_whoever_else_runs() -> None:
    """llama-server -t 8 on two CPUs, 52 % of the time queued, beside a neighbour with a quarter of a core."""
    trace = beside(OVERSUBSCRIBED.but(facts=LLAMA_SERVER).trace(), (40, "python3", 0.34, ""), in_use=1.9)
    finding = starved(trace)
    assert finding.message == (
        "server waits for a CPU 52 % of the time: 8 of its own threads are ready at once, for 2 CPUs"
    )
    assert finding.action == "cap thread pools (--threads): at most 2, or give it more CPUs"
    assert any("python3 (pid 40) 0.34 cores" in line for line in finding.evidence)


def test_as_many_threads_as_cpus_are_held_up_by_others() -> None:
    two = OVERSUBSCRIBED.but(threads=OVERSUBSCRIBED.threads[:2], facts=LLAMA_SERVER)
    finding = starved(beside(two.trace(), (40, "python3", 1.4, ""), in_use=1.9))
    assert finding.message.endswith("python3 (pid 40) takes 1.4 of 2 cores")
    assert finding.action.startswith("others take the CPUs")


def test_threads_that_may_use_one_cpu_crowd_each_other_there() -> None:
    two = OVERSUBSCRIBED.but(threads=OVERSUBSCRIBED.threads[:2], facts=LLAMA_SERVER)
    trace = beside(two.trace(), in_use=1.9)
    for thread in OVERSUBSCRIBED.threads[:2]:
        trace = with_facts(trace, thread.track, cpus="1")
    finding = starved(trace)
    assert finding.message.endswith("2 of its own threads are ready at once, for 1 CPU of 2")
    assert finding.action.startswith("let it run on more CPUs: taskset -apc 0-1 7, or its cpuset, cap thread pools")
    assert "server may run on CPU 1, when last looked at (/proc/PID/status)" in finding.evidence
    assert finding.next_command == commands.same_cpu(7)


def test_a_server_that_was_told_to_have_one_thread_is_not_told_to_have_fewer() -> None:
    one = {**LLAMA_SERVER, "setting.cpu_threads": 1.0}
    assert "cap thread pools (--threads)" in diagnose(THROTTLED.but(facts=LLAMA_SERVER).trace()).findings[0].action
    assert diagnose(THROTTLED.but(facts=one).trace()).findings[0].action == "raise the CPU limit"


def test_the_servers_own_processes_are_no_neighbours() -> None:
    assert not neighbours(beside(CROWDED.trace(), (7, "EngineCore", 0.9, "")))


def test_a_thread_that_waits_for_a_cpu_is_told_with_who_has_it() -> None:
    finding = starved(beside(CROWDED.trace(), (4242, "stress-ng", 1.8, "docker 3f2a91b0c7d1")))
    assert finding.message == (
        "EngineCore waits for a CPU 40 % of the time: stress-ng (pid 4242) takes 1.8 of 4 cores, GPU 55 % busy"
    )
    assert (
        "outside the server: stress-ng (pid 4242, docker 3f2a91b0c7d1) 1.8 cores (/proc/PID/stat)" in finding.evidence
    )
    assert finding.action.startswith("others take the CPUs")


def test_where_many_take_a_little_each_it_is_all_of_them() -> None:
    many = [(40 + i, f"job-{i}", 0.5 - i / 100, "") for i in range(5)]
    assert "of the time: others take 2.4 of 4 cores, most of all job-0 (pid 40)" in (
        starved(beside(CROWDED.trace(), *many)).message
    )


def test_who_takes_less_than_a_thread_waits_is_not_what_it_waits_for() -> None:
    """The thread waits for 0.7 of a core: 0.15 of one is not what keeps it from a CPU, 0.6 may be."""
    waiting = STARVED.but(threads=(Thread(on_cpu=0.2, run_queue=0.7, asleep_in="futex"),), cores=16, pressure=40.0)
    little = starved(beside(waiting.trace(), (9, "load.py", 0.15, ""), in_use=16.0))
    assert "load.py takes" not in little.message
    assert not little.action.startswith("others take the CPUs")
    much = starved(beside(waiting.trace(), (9, "make", 0.6, ""), in_use=16.0))
    assert ": make (pid 9) takes 0.6 of 16 cores" in much.message
    assert much.action.startswith("others take the CPUs")


@pytest.mark.parametrize("others", [[], [(9, "cron", 0.05, "")]])
def test_neighbours_that_rest_are_not_accused(others: Sequence[tuple[int, str, float, str]]) -> None:
    finding = starved(beside(CROWDED.trace(), *others))
    assert "others take" not in finding.action
    assert "cron takes" not in finding.message


def test_stolen_time_is_the_hosts() -> None:
    finding = starved(beside(CROWDED.trace(), (4242, "stress-ng", 1.8, ""), steal=22.0))
    assert ": the hypervisor takes 22 % of all CPU time," in finding.message
    assert "CPU time stolen 22 % of all CPUs (/proc/stat)" in finding.evidence
    assert "virtual machine" in finding.action


def test_what_is_in_other_containers_is_said_to_be_unseen() -> None:
    finding = starved(beside(CROWDED.trace(), unseen=2.5))
    assert any("CPUs in use by no process that is seen" in line and "2.5 cores" in line for line in finding.evidence)


@pytest.mark.parametrize(
    ("cpus", "in_use", "is_pinned"), [("3", 1.2, True), ("3", 3.9, False), ("0-3", 1.2, False), ("", 1.2, False)]
)
def test_an_affinity_that_leaves_free_cpus_out_is_the_cause(cpus: str, in_use: float, is_pinned: bool) -> None:
    finding = starved(beside(with_facts(CROWDED.trace(), ids.thread(7, 7), cpus=cpus), in_use=in_use))
    assert ("it may run on CPU 3 only, and others are free" in finding.message) == is_pinned
    assert finding.action.startswith("let it run on more CPUs: taskset -apc 0-3 7") == is_pinned


@pytest.mark.parametrize(("ago_s", "is_past"), [(3, True), (12, False), (20, False)])
def test_an_affinity_that_was_changed_is_the_cause_of_the_time_before(ago_s: int, is_past: bool) -> None:
    """A thread that waits all along: what it mostly waited under counts, and what has long gone by does not."""
    trace = CROWDED.trace()
    changed: dict[str, Fact] = {"cpus": "0-3", "cpus_before": "3", "cpus_since_ns": trace.end_ns - ago_s * NS_PER_S}
    finding = starved(beside(with_facts(trace, ids.thread(7, 7), **changed), in_use=1.2))
    assert (": it could run on CPU 3 only, until 3 s ago, and others were free" in finding.message) == is_past
    assert finding.action.startswith("its CPUs were changed since") == is_past
    assert ("EngineCore could run on CPU 3, and on 0-3 since 3 s ago (/proc/PID/status)" in finding.evidence) == is_past


def test_a_quota_is_told_with_whose_it_is() -> None:
    path = "/system.slice/docker-" + "3f2a91b0c7d1" + 52 * "0" + ".scope"
    trace = with_facts(THROTTLED.trace(), ids.process(7), cgroup=path, cpu_quota="2 cores")
    assert diagnose(trace).findings[0].message.endswith("0.65 s per second (docker 3f2a91b0c7d1, 2 cores)")


@pytest.mark.parametrize(
    ("throttled", "rules"),
    [(0.35, ["cgroup-throttled", "run-queue-starvation"]), (0.1, ["run-queue-starvation"])],
)
def test_a_throttled_thread_counts_as_queued_and_the_rest_is_said_beside(throttled: float, rules: list[str]) -> None:
    waits = Thread(on_cpu=0.1, run_queue=0.89, involuntary=80, asleep_in="futex")
    findings = diagnose(THROTTLED.but(threads=(API, waits), throttled=throttled).trace()).findings
    assert [one.rule for one in findings] == rules


def test_llmtops_own_part_is_in_the_evidence_where_it_matters() -> None:
    trace = CPU_BOUND.trace()
    (calm,) = findings_of(cpu_bound, trace)
    assert not any("llmtop itself" in line for line in calm.evidence)
    times = (trace.end_ns - 15 * NS_PER_S, trace.end_ns)
    grown = {v.SELF_CPU: 15 * 0.08 * NS_PER_S, v.SELF_PROBE_HITS: 15 * 60_000.0}
    series = {
        (ids.SELF, metric.name): Series.of(ids.SELF, metric, "getrusage", [(times[0], 0.0), (times[1], value)])
        for metric, value in grown.items()
    }
    (finding,) = findings_of(cpu_bound, replace(trace, series={**trace.series, **series}))
    assert "llmtop itself: 8.0 % of a core, probes 60000 hits/s (own counters)" in finding.evidence


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "sudo sh -c 'f=$(mktemp) && perf sched record"),
        ({"is_root": 1, "tools": "perf"}, "f=$(mktemp) && perf sched record"),
        ({"is_root": 0, "tools": "perf py-spy"}, "sudo sh -c 'f=$(mktemp) && perf sched record"),
        ({"is_root": 1, "tools": ""}, "top -d 2"),
    ],
)
def test_the_next_command_runs_here(facts: dict[str, Fact], said: str) -> None:
    assert starved(with_facts(CROWDED.trace(), ids.HOST, **facts)).next_command.startswith(said)


@pytest.mark.parametrize(
    ("kind", "tools", "said"),
    [
        ("vllm", "py-spy", "py-spy dump --nonblocking --pid 7"),
        ("llamacpp", "py-spy gdb", "gdb -p 7 -batch"),
        ("llamacpp", "py-spy", "grep . /proc/7/task/*/comm /proc/7/task/*/wchan"),
        ("vllm", "", "grep . /proc/7/task/*/comm"),
    ],
)
def test_py_spy_is_for_python(kind: str, tools: str, said: str) -> None:
    trace = with_facts(CROWDED.trace(), ids.HOST, is_root=1, tools=tools)
    assert commands.stacks(with_facts(trace, ids.process(7), engine_kind=kind), 7).startswith(said)


def looked_at(trace: Trace, **cores: Sequence[float]) -> Trace:
    """Looks two seconds apart at neighbours by name; 0 for one that was not among those shown."""
    ends = [trace.end_ns - 2 * NS_PER_S * i for i in range(len(next(iter(cores.values()))))][::-1]
    many = beside(trace, *((50 + i, name, 0.0, "") for i, name in enumerate(cores)))
    host = {(ids.HOST, v.HOST_CPU.name): Series.of(ids.HOST, v.HOST_CPU, "/proc/stat", [(t, 4.0) for t in ends])}
    for i, several in enumerate(cores.values()):
        id = ids.neighbour(50 + i)
        samples: list[tuple[int, float | None]] = [(t, x) for t, x in zip(ends, several, strict=True) if x]
        host[id, v.NEIGHBOUR_CPU.name] = Series.of(id, v.NEIGHBOUR_CPU, "/proc/PID/stat", samples)
    return replace(many, series={**many.series, **host})


def test_who_takes_most_is_told_of_the_window_and_not_of_the_last_look() -> None:
    """One that woke for the last look is not the one that has taken most."""
    trace = looked_at(CROWDED.trace(), steady=[0.9, 0.9, 0.9, 0.9], burst=[0.0, 0.0, 0.0, 2.0])
    assert [(one.name, round(one.cores, 2)) for one in neighbours(trace)] == [("steady", 0.9), ("burst", 0.5)]


def test_of_those_that_take_about_as_much_the_first_stays_the_first() -> None:
    before = looked_at(CROWDED.trace(), a=[0.52, 0.5], b=[0.5, 0.51])
    after = looked_at(CROWDED.trace(), a=[0.5, 0.5], b=[0.51, 0.53])
    assert [one.name for one in neighbours(before)] == [one.name for one in neighbours(after)] == ["a", "b"]


def test_py_spy_is_called_by_where_it_is() -> None:
    trace = with_facts(CROWDED.trace(), ids.HOST, tools="py-spy", py_spy="sudo ~/llmtop/.venv/bin/py-spy")
    assert commands.stacks(trace, None) == "sudo ~/llmtop/.venv/bin/py-spy dump --nonblocking --pid PID"
    assert commands.profile(trace, 7, "--gil ").startswith("sudo ~/llmtop/.venv/bin/py-spy record --gil --nonblocking")


ALMOST_ALONE = STARVED.but(threads=(Thread(on_cpu=0.2, run_queue=0.4, asleep_in="futex"),), cores=16, pressure=40.0)


def test_where_a_cpu_is_free_nobody_is_accused() -> None:
    """The thread was held on one CPU until a moment ago, or waits in bursts: the others could have gone elsewhere."""
    finding = starved(beside(ALMOST_ALONE.trace(), (9, "load.py", 0.6, ""), in_use=1.5))
    assert finding.message.startswith(
        "EngineCore waits for a CPU 40 % of the time: 1.5 of 16 CPUs are in use, others are free, GPU"
    )
    assert finding.action.startswith("see which CPUs it may run on (taskset -pc 7, its cpuset) and who runs there")


@pytest.mark.parametrize(
    ("in_use", "steal", "is_free"), [(15.4, 0.0, True), (15.6, 0.0, False), (1.5, 22.0, False), (1.5, 4.9, True)]
)
def test_more_cores_are_asked_for_where_none_is_free(in_use: float, steal: float, is_free: bool) -> None:
    """What the hypervisor takes is not free, and top shows it."""
    trace = with_facts(with_facts(ALMOST_ALONE.trace(), ids.HOST, tools=""), ids.thread(7, 7), cpus="0-15")
    finding = starved(beside(trace, in_use=in_use, steal=steal))
    assert ("others are free" in finding.message) == is_free
    assert ("EngineCore may run on CPU 0-15, when last looked at (/proc/PID/status)" in finding.evidence) == is_free
    asked = "taskset -pc 7; ps -eLo psr,stat,pid,tid,comm --sort psr | awk '$2 ~ /^R/'"
    assert finding.next_command == (asked if is_free else "top -d 2")
    assert ("give the server more cores" in finding.action) == (not is_free and not steal)


def crowded_out(**facts: Fact) -> Finding:
    """Of a server whose three threads get a hundredth of two CPUs, next to two busy loops."""
    threads = tuple(Thread(tid=7 + i, on_cpu=0.005, run_queue=0.99) for i in range(3))
    trace = beside(CROWDED.but(threads=threads, cores=2).trace(), (40, "stress", 1.98, ""), in_use=2.0)
    return starved(with_facts(trace, ids.process(7), cgroup="/pod", **facts))


def test_the_weight_of_its_group_is_why_others_come_first() -> None:
    finding = crowded_out(cpu_weight=0.002, cpu_weight_set="cpu.shares 2 in /sys/fs/cgroup/cpu/pod")
    assert finding.message.partition(": ")[2].startswith(
        "others come first (cpu.shares 2 in /sys/fs/cgroup/cpu/pod): stress (pid 40) takes 2 of 2 cores"
    )
    assert finding.action.startswith("give its group the weight that it needs")
    nice = crowded_out(nice=19)
    assert "others come first (nice 19)" in nice.message
    assert nice.action == "take its nice back: ls /proc/7/task | xargs sudo renice -n 0 -p"
    neither = crowded_out()
    assert "come first" not in neither.message
    assert "ready at once" not in neither.message, "who has a hundredth of the CPUs does not crowd itself"


@pytest.mark.parametrize(
    ("path", "folder", "named"),
    [
        ("/live_q", "/sys/fs/cgroup/cpu/live_q", True),
        ("/live_q/server", "/sys/fs/cgroup/cpu/live_q", True),
        ("/other", "/sys/fs/cgroup/cpu/other", False),
    ],
)
def test_who_uses_the_quota_too_is_named(path: str, folder: str, named: bool) -> None:
    trace = beside(THROTTLED.trace(), (40, "stress", 0.3, "live_q"), (41, "make", 1.5, "ci"))
    trace = with_facts(trace, ids.process(7), cgroup=path, cgroup_folder=folder, cpu_quota="0.6 cores")
    trace = with_facts(trace, ids.neighbour(40), cgroup_path="/live_q/sidecar")
    trace = with_facts(trace, ids.neighbour(41), cgroup_path="/live_queue")
    (finding,) = findings_of(cgroup_throttled, trace)
    assert ("stress (pid 40) takes 0.3 cores of it" in finding.message) == named
    assert finding.action.startswith("move stress out of the group") == named
    assert "make" not in finding.message
