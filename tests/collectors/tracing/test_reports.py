"""Reports of the helper as readings and stacks; no probe is loaded here."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.collectors.tracing import counters, process
from llmtop.collectors.tracing.counters import MOST_WAKERS
from llmtop.collectors.tracing.reports import Reports, gone_tracks
from llmtop.collectors.tracing.stacks import LIGHTER_STACKS, StackBuffer
from llmtop.collectors.tracing.wire import Sample, sample
from llmtop.model import NS_PER_S, Metric, Reading, Stack, TrackId
from llmtop.vocabulary import STACKS_WINDOW_NS

T = 100 * NS_PER_S
READ, FUTEX, EPOLL_WAIT, NO_CALL = 0, 202, 232, 0xFFFF


def report(t_ns: int = T, **parts: Any) -> Sample:
    observed = {"calls": 0, "timed": 0, "scheduler": 0} | parts.pop("observed", {})
    return sample({"kind": "sample", "t": t_ns, "elapsed": NS_PER_S, "observed": observed, **parts})


def with_one_more(window: StackBuffer, report: Sample) -> tuple[Stack, ...]:
    window.keep(report)
    return window.summed(report["t"])


def values(readings: tuple[Reading, ...]) -> dict[tuple[TrackId, str], list[float | None]]:
    found: dict[tuple[TrackId, str], list[float | None]] = {}
    for reading in readings:
        found.setdefault((reading.track, reading.metric.name), []).append(reading.value)
    return found


@pytest.fixture(autouse=True)
def _x86_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.collectors.thread_causes.cause_of_call.__defaults__", ("x86_64",))


def test_a_call_becomes_counters_with_a_start_at_zero() -> None:
    calls = [[7, 0, 5, 1, 9000, {"3": 2, "5": 3}]]
    found = values(Reports().readings(report(calls=calls, names={"0": "read"}, observed={"calls": 10, "timed": 8})))
    assert found[ids.process(7), "syscall.count|read"] == [0, 5]
    assert found[ids.process(7), "syscall.errors|read"] == [0, 1]
    assert found[ids.process(7), "syscall.time|read"] == [0, 9000]
    assert found[ids.process(7), "syscall.observed"] == [0, 10]
    assert found[ids.process(7), "syscall.timed"] == [0, 8]
    latencies = {name: counts for (_, name), counts in found.items() if name.startswith("syscall.latency")}
    assert latencies == {
        "syscall.latency|read|1024": [0],
        "syscall.latency|read|2048": [0, 2],
        "syscall.latency|read|4096": [0, 2],
        "syscall.latency|read|8192": [0, 5],
        "syscall.latency|read|inf": [0, 5],
    }


def test_the_start_is_at_the_sample_before() -> None:
    readings = Reports().readings(report(calls=[[7, 0, 5, 0, 9, {"0": 5}]], names={"0": "read"}))
    count = [reading for reading in readings if reading.metric.name == "syscall.count|read"]
    assert [reading.t_ns for reading in count] == [T - NS_PER_S, T]


def test_a_counter_that_has_not_moved_has_no_reading() -> None:
    reports = Reports()
    first, second = [[7, 0, 5, 0, 9, {"0": 5}]], [[7, 0, 6, 0, 9, {"0": 6}]]
    reports.readings(report(calls=first, names={"0": "read"}))
    found = values(reports.readings(report(T + NS_PER_S, calls=second, names={"0": "read"})))
    assert found[ids.process(7), "syscall.count|read"] == [6]
    assert ("process:7", "syscall.errors|read") not in found


def test_a_call_that_was_only_counted_has_no_errors_and_no_time() -> None:
    found = values(Reports().readings(report(calls=[[7, 24, 5, 0, 0, {}]], names={"24": "sched_yield"})))
    assert ("process:7", "syscall.count|sched_yield") in found
    assert not [name for _, name in found if name.startswith(("syscall.errors", "syscall.time|", "syscall.latency"))]


def test_a_distribution_without_observations_has_no_readings() -> None:
    assert values(Reports().readings(report(queue=[[7, {}]]))) == {}


def test_the_last_slot_is_all_above() -> None:
    found = values(Reports().readings(report(queue=[[7, {"26": 1, "27": 2}]])))
    assert found[ids.process(7), "process.run_queue_latency|1.71799e+10"] == [0, 1]
    assert found[ids.process(7), "process.run_queue_latency|inf"] == [0, 3]


def test_sleeps_are_told_by_cause_and_by_the_file_waited_for() -> None:
    files = {3: "pipe:[1]", 4: "socket:[2]"}
    reports = Reports(file_of=lambda pid, number: files.get(number))
    waits = [[7, 8, FUTEX, 1, 0, 50], [7, 8, READ, 1, 3, 20], [7, 8, EPOLL_WAIT, 1, 9, 30], [7, 8, NO_CALL, 2, 0, 4]]
    found = values(reports.readings(report(waits=waits)))
    causes = {name.partition("|")[2]: counts[-1] for (_, name), counts in found.items() if "thread.blocked" in name}
    assert causes == {"futex": 50, "pipe": 20, "epoll": 30, "uninterruptible": 4}
    later = values(reports.readings(report(T + NS_PER_S, waits=[[7, 8, READ, 1, 4, 120]])))
    assert later == {
        (ids.thread(7, 8), "thread.blocked|socket"): [0, 100],  # the pipe keeps what it had
        **{key: counts for key, counts in later.items() if key[0] == ids.process(7)},
    }


def test_a_sum_that_has_shrunk_takes_nothing_from_what_was_told() -> None:
    reports = Reports(file_of=lambda pid, number: None)
    told = []
    for second, ns in enumerate((50, 20, 60)):
        found = values(reports.readings(report(T + second * NS_PER_S, waits=[[7, 8, FUTEX, 1, 0, ns]])))
        told.append(found.get((ids.thread(7, 8), "thread.blocked|futex"), ["as before"])[-1])
    assert told == [50, "as before", 90]


def test_what_has_not_grown_is_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    made: list[int] = []
    bucket = counters.Counters._bucket

    def pipe(_: int, descriptor: int) -> str:
        asked.append(descriptor)
        return "pipe:[1]"

    def noted(own: counters.Counters, metric: Metric, slot: int) -> Metric:
        made.append(slot)
        return bucket(own, metric, slot)

    monkeypatch.setattr(counters.Counters, "_bucket", noted)
    reports = Reports(file_of=pipe)

    def told(pipe_ns: int, seconds: int, slots: dict[str, int]) -> dict[tuple[TrackId, str], list[float | None]]:
        waits = [[7, 8, READ, 1, 3, pipe_ns], [7, 9, FUTEX, 1, 0, 4000]]
        return values(reports.readings(report(T + seconds * NS_PER_S, waits=waits, queue=[[7, slots]])))

    first = told(5000, 0, {"3": 2})
    assert first[ids.thread(7, 8), "thread.blocked|pipe"] == [0, 5000]
    lookups = len(asked), len(made)
    assert lookups[0] == 1
    assert told(5000, 1, {"3": 2}) == {}
    assert (len(asked), len(made)) == lookups
    assert told(6000, 2, {"3": 4})[ids.thread(7, 8), "thread.blocked|pipe"] == [6000]
    assert (len(asked), len(made)) == (2, 2 * lookups[1])


def test_stacks_are_summed_over_the_window_and_then_forgotten() -> None:
    window = StackBuffer()
    stack = [7, 8, FUTEX, 1, 0, ["main", "lock"], 100]
    first = with_one_more(window, report(stacks=[stack], running=[[7, 8, ["main", "work"], 300]]))
    assert [(one.frames, one.weight, one.state, one.track) for one in first] == [
        (("main", "work"), 300.0, "on-cpu", "thread:7/8"),
        (("main", "lock"), 100.0, "futex", "thread:7/8"),
    ]
    assert with_one_more(window, report(T + NS_PER_S, stacks=[stack]))[1].weight == 200.0
    assert [one.weight for one in with_one_more(window, report(T + STACKS_WINDOW_NS + 1, stacks=[stack]))] == [200.0]


def test_names_from_outside_are_cleaned() -> None:
    stacks = with_one_more(StackBuffer(), report(running=[[7, 8, ["a\x1b[2Jb", "[/b]"], 1]]))
    assert stacks[0].frames == ("a␛[2Jb", "[/b]")
    found = values(Reports().readings(report(functions=[[7, "cu\x9bX", 1, 2, {"0": 1}]])))
    assert ("process:7", "library.count|cu\ufffdX") in found


def test_probes_that_are_taken_off_leave_gaps() -> None:
    reports = Reports()
    reports.readings(report(waits=[[7, 8, FUTEX, 1, 0, 50]], queue=[[7, {"3": 1}]]))
    gaps = values(reports.gaps(T, ("thread.blocked",)))
    assert gaps == {("thread:7/8", "thread.blocked|futex"): [None]}


def test_a_process_that_is_gone_starts_again_at_zero() -> None:
    reports = Reports()
    calls = [[7, 0, 5, 0, 9, {"0": 5}]]
    reports.readings(report(calls=calls, names={"0": "read"}, gone=[7]))
    again = values(reports.readings(report(T + NS_PER_S, calls=calls, names={"0": "read"})))
    assert again[ids.process(7), "syscall.count|read"] == [0, 5]


def test_a_thread_id_that_is_used_again_starts_at_zero() -> None:
    reports = Reports()
    waits = [[7, 8, FUTEX, 1, 0, 500]]
    last = report(waits=waits, ended=[[7, 8]])
    reports.readings(last)
    assert gone_tracks(last) == ("thread:7/8",)
    again = values(reports.readings(report(T + NS_PER_S, waits=[[7, 8, FUTEX, 1, 0, 20]])))
    assert again[ids.thread(7, 8), "thread.blocked|futex"] == [0, 20]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_report_are_passed_over(line: bytes) -> None:
    parsed = process._parsed(line)
    assert parsed is None or isinstance(parsed, dict)


def test_probe_hits_are_llmtops_own() -> None:
    found = values(Reports().readings(report(hits={"call": 3, "switch": 4})))
    assert found[ids.SELF, v.SELF_PROBE_HITS.name] == [0, 7]


def test_the_tracers_own_frames_are_no_part_of_what_a_thread_sleeps_in() -> None:
    """Whichever of its programs took the stack: it is one stack. On a CPU it is what the thread spends time in."""
    slept = ["main", "poll", "__x64_sys_poll_[k]", "schedule_[k]", "__schedule_[k]"]
    tails = (["__traceiter_sched_switch_[k]", "bpf_trace_run4_[k]", f"bpf_prog_{n}_[k]"] for n in ("1f", "2e"))
    asleep = [[7, 8, "poll", [*slept, *tail], 100] for tail in tails]
    (one,) = with_one_more(StackBuffer(), report(asleep=asleep))
    assert (list(one.frames), one.weight) == (slept, 200.0)
    by_call = [[7, 8, NO_CALL, 1, -1, [*slept, "__traceiter_sched_switch_[k]"], 100]]
    (one,) = with_one_more(StackBuffer(), report(stacks=by_call))
    assert list(one.frames) == slept
    running = [[7, 8, [*slept, "bpf_prog_1f_[k]"], 100]]
    (one,) = with_one_more(StackBuffer(), report(running=running))
    assert one.frames[-1] == "bpf_prog_1f_[k]"


def test_light_stacks_are_put_together_so_that_no_time_is_lost() -> None:
    weights = [1000 - i for i in range(450)]
    running = [[7, 8, ["main", f"f{i}"], ns] for i, ns in enumerate(weights)]
    stacks = with_one_more(StackBuffer(), report(running=running))
    assert len(stacks) == 401
    assert stacks[-1].frames == (LIGHTER_STACKS,)
    assert sum(stack.weight for stack in stacks) == sum(weights)


def test_spins_launches_and_synchronisation_are_told_by_thread() -> None:
    reports = Reports()
    reports.readings(report(T - NS_PER_S, observed={"calls": 1}, library_observed=[[7, 0]]))
    parts: dict[str, Any] = {
        "library_observed": [[7, NS_PER_S]],
        "spins": [[7, 8, "sched_yield", 500], [7, 9, "poll", 3]],
        "in_libraries": [[7, 8, 40, 9_000]],
    }
    found = values(reports.readings(report(observed={"calls": 2}, **parts)))
    assert found[ids.thread(7, 8), "thread.spins|sched_yield"] == [0, 500]
    assert found[ids.thread(7, 9), "thread.spins|poll"] == [0, 3]
    assert found[ids.thread(7, 8), "thread.launches"] == [0, 40]
    assert found[ids.thread(7, 8), "thread.cuda_sync"] == [0, 9_000]


def test_a_sleep_within_a_synchronising_call_is_put_down_to_it() -> None:
    in_sync = 0x100
    waits = [[7, 7, FUTEX, 1 | in_sync, 0, 500], [7, 7, FUTEX, 1, 0, 60], [7, 8, NO_CALL, 8 | in_sync, 0, 7]]
    found = values(Reports().readings(report(waits=waits)))
    assert found[ids.thread(7, 7), "thread.blocked|cuda_sync"] == [0, 500]
    assert found[ids.thread(7, 7), "thread.blocked|futex"] == [0, 60]
    assert found[ids.thread(7, 8), "thread.blocked|stopped"] == [0, 7]


def test_counts_by_thread_have_a_gap_while_their_probes_are_off() -> None:
    """A count that stands still because nobody counts must not look like none."""
    reports = Reports()
    spins = [[7, 8, "poll", 5]]
    reports.readings(report(T, observed={"calls": 1}, spins=spins))
    gaps = reports.readings(report(T + 1, observed={"calls": 1}))
    assert all(reading.metric.counter for reading in gaps)
    off = values(gaps)
    assert off == {("thread:7/8", "thread.spins|poll"): [None]}
    assert reports.readings(report(T + 2, observed={"calls": 1})) == ()
    counted = reports.readings(report(T + 3, observed={"calls": 2}, spins=[[7, 8, "poll", 9]]))
    assert all(reading.metric.counter for reading in counted)
    back = values(counted)
    assert back[ids.thread(7, 8), "thread.spins|poll"] == [5, 9]


SHED = {"uncounted": [[7, ["cuLaunchKernel"]]], "unseen": [[7, ["launches"]]]}


def launched(kernels: int, graphs: int, threads: int, **more: Any) -> dict[str, Any]:
    functions = [[7, "cuLaunchKernel", kernels, 9, {"0": kernels}], [7, "cuGraphLaunch", graphs, 9, {"0": graphs}]]
    launches = [[7, 8, threads, 0], [9, 9, threads, 0]]
    return {"functions": functions, "in_libraries": launches, "library_observed": [[7, 1], [9, 1]], **more}


def test_launches_are_not_known_while_one_kind_of_them_is_not_counted() -> None:
    """The graphs that are still seen must not pass for all launches, then or afterwards."""
    reports = Reports()
    reports.readings(report(T, library_observed=[[7, 0], [9, 0]]))
    last = reports.readings(report(T + 10, **launched(40, 2, 42, **SHED)))
    series = [(r.t_ns, r.value) for r in last if (r.track, r.metric.name) == ("thread:7/8", "thread.launches")]
    assert series == [(T + 10 - NS_PER_S, 0), (T + 10, 42), (T + 11, None)]
    assert all(reading.metric.counter for reading in last), "a gap of a counter is one too"
    found = values(last)
    assert found[ids.process(7), "library.count|cuLaunchKernel"] == [0, 40, None]
    assert found[ids.process(7), "library.latency|cuLaunchKernel|inf"] == [0, 40, None]
    assert found[ids.process(7), "library.count|cuGraphLaunch"] == [0, 2]
    assert found[ids.thread(9, 9), "thread.launches"] == [0, 42], "of another process"
    without = values(reports.readings(report(T + 20, **launched(40, 7, 47, **SHED))))
    assert ("thread:7/8", "thread.launches") not in without
    assert without[ids.process(7), "library.count|cuGraphLaunch"] == [7]
    again = values(reports.readings(report(T + 30, **launched(40, 8, 48))))
    assert again[ids.thread(7, 8), "thread.launches"] == [42], "counted from now on, from where it stood"
    assert again[ids.process(7), "library.count|cuLaunchKernel"] == [40]
    later = values(reports.readings(report(T + 40, **launched(50, 9, 59))))
    assert later[ids.thread(7, 8), "thread.launches"] == [53]
    assert later[ids.process(7), "library.count|cuLaunchKernel"] == [50]


def test_no_calls_are_put_before_the_probes_on_a_library() -> None:
    """Its probes came while this was counted: nobody knows what was called since the report before."""
    reports = Reports()
    found = values(reports.readings(report(**launched(5, 0, 5), observed={"calls": 1})))
    assert found[ids.thread(7, 8), "thread.launches"] == [5]
    assert found[ids.process(7), "library.count|cuLaunchKernel"] == [5]
    assert found[ids.process(7), "library.observed"] == [0, 1]


def test_wakers_find_an_end() -> None:
    """A server with a thread for each request has no end of them."""
    reports = Reports()
    told: set[str] = set()
    for i in range(200):
        wakes = [[7, 8, 1000 + i, 3], [7, 9, 5, i + 1]]
        told |= {one.metric.name for one in reports.readings(report(T + i * NS_PER_S, wakes=wakes)) if one.value}
    assert len([name for name in told if name.startswith("thread.wakes|")]) == MOST_WAKERS + 1
    assert "thread.wakes|5" in told


def test_what_was_called_before_its_probes_came_is_not_told_afterwards() -> None:
    """A function that had none from the first report on begins at nothing when it gets them."""
    reports = Reports()
    reports.readings(report(T, library_observed=[[7, 0]], **SHED))
    reports.readings(report(T + 10, **launched(41, 2, 43, **SHED)))
    reports.readings(report(T + 20, **launched(41, 2, 43)))
    later = values(reports.readings(report(T + 30, **launched(48, 2, 50))))
    assert later[ids.process(7), "library.count|cuLaunchKernel"][-1] == 7


def test_another_thread_of_the_same_id_has_wakers_of_its_own() -> None:
    """As many names as a thread may have were told of the one that has ended."""
    reports = Reports()
    for i in range(MOST_WAKERS + 5):
        reports.readings(report(T + i, wakes=[[7, 8, 1000 + i, 3]]))
    reports.readings(report(T + 100, ended=[[7, 8]]))
    told = reports.readings(report(T + 200, wakes=[[7, 8, 5000, 3]]))
    assert "thread.wakes|5000" in {one.metric.name for one in told}
