"""What perf stat prints: three layouts, with and without their optional parts, in several languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop.errors import FileError
from llmtop.model import TrackKind, Unknown
from llmtop.parsers.perf_stat import PARSER
from llmtop.parsers.perf_stat_lines import CountLine, count_line
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace

SAMPLES = SAMPLE_TRACES / "perf" / "6.1.187"
TITLED = "\n Performance counter stats for 'serve --port 8000' (3 runs):\n\n"


def opened(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "said"
    path.write_text(text)
    return load(path)


def counted(trace: Trace) -> dict[tuple[str, str], float | str]:
    """By the name of the track and the event; in place of a count the first words of why there is none."""
    return {
        (trace.tracks[one.track].name, one.event): one.count.reason[:15]
        if isinstance(one.count, Unknown)
        else round(one.count, 3)
        for one in trace.counts
    }


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "            185.69 msec task-clock     #    0.513 CPUs utilized   ",
            CountLine("task-clock", 185.69e6, "ns", share=1.0, utilized=0.513),
        ),
        (
            "       1708.761321 task-clock (msec)   #   11.037 CPUs utilized",
            CountLine("task-clock", 1708.761321e6, "ns", share=1.0, utilized=11.037),
        ),
        (
            "        41,190 CPU-migrations          #    0.024 M/sec",
            CountLine("CPU-migrations", 41190.0, "1", share=1.0),
        ),
        ("             9.653      page-faults    #   41,325 K/sec", CountLine("page-faults", 9653.0, "1", share=1.0)),
        (
            "            233,59 msec task-clock     #    0,497 CPUs utilized",
            CountLine("task-clock", 233.59e6, "ns", share=1.0, utilized=0.497),
        ),
        (
            "             9\u202f649      page-faults  #   45,735 K/sec",
            CountLine("page-faults", 9649.0, "1", share=1.0),
        ),
        (
            "   1,578,945,873      cycles:u            # 2.5 GHz   ( +-  5.36% )  (83.33%)",
            CountLine("cycles:u", 1578945873.0, "1", share=0.8333, spread=0.0536),
        ),
        ("             42.07 Joules power/energy-pkg/", CountLine("power/energy-pkg/", 42.07, "Joules", share=1.0)),
        ("   <not supported>      cycles           ", CountLine("cycles", None, "1", is_supported=False, share=1.0)),
        (
            "     0.200248032     VM Thread-15877     36      context-switches    # 1 /sec",
            CountLine("context-switches", 36.0, "1", of="VM Thread-15877", time_s=0.200248032, share=1.0),
        ),
        (
            "S0-D0-C0           2        9983      page-faults    #   20.163 K/sec",
            CountLine("page-faults", 9983.0, "1", of="S0-D0-C0", share=1.0),
        ),
        (
            "S1-D0-L3-ID8       16       9983      page-faults",
            CountLine("page-faults", 9983.0, "1", of="S1-D0-L3-ID8", share=1.0),
        ),
        (
            "   3     context-switches    /kube/pod1    # 1 /sec",
            CountLine("context-switches", 3.0, "1", cgroup="/kube/pod1", share=1.0),
        ),
        (
            "202.49,msec,task-clock,202487375,100.00,0.963,CPUs utilized",
            CountLine("task-clock", 202.49e6, "ns", share=1.0, utilized=0.963),
        ),
        (
            "     0.103676457,35,46,msec,task-clock,35461913,83,25,0,CPUs utilized",
            CountLine("task-clock", 35.46e6, "ns", time_s=0.103676457, share=0.8325),
        ),
        (
            "S0,2,901.33,msec,task-clock,901331317,100.00,2.001,CPUs utilized",
            CountLine("task-clock", 901.33e6, "ns", of="S0", share=1.0, utilized=2.001),
        ),
        ("     0.1,1", None),
        (
            "CPU1;171;;cycles;12,54%;216230603;100,00;959;/sec",
            CountLine("cycles", 171.0, "1", of="CPU1", share=1.0, spread=0.1254),
        ),
        ("12|| cpu/event=0x3c,umask=0x1/|9|50.00||", None),
        ("12||cpu/event=0x3c,umask=0x1/u|9|50.00||", CountLine("cpu/event=0x3c,umask=0x1/u", 12.0, "1", share=0.5)),
        ("12,,cpu/event=0x3c,umask=0x1/u,9,50.00,,", CountLine("cpu/event=0x3c,umask=0x1/u", 12.0, "1", share=0.5)),
        (
            "<not counted>,,sched:sched_switch,/a,0,0.00,,",
            CountLine("sched:sched_switch", None, "1", cgroup="/a", share=0.0),
        ),
        ("worker-101,,,,,,,0.40,insn per cycle", None),
        (
            '{"thread" : "serve-7", "counter-value" : "36,940841", "unit" : "msec", "event" : "task-clock", '
            '"variance" : 3,33, "event-runtime" : 3, "pcnt-running" : 50,00, "metric-value" : 0,5, '
            '"metric-unit" : "CPUs utilized"}',
            CountLine("task-clock", 36.940841e6, "ns", of="serve-7", share=0.5, spread=0.0333, utilized=0.5),
        ),
        (
            '{"interval" : 0.1, "cpu" : "3", "counter-value" : "7.0", "unit" : "", "event" : "x"}',
            CountLine("x", 7.0, "1", of="CPU3", time_s=0.1),
        ),
        ('{"counter-value" : "seven", "event" : "x"}', None),
        ('{"metric-value" : "0.123"}', None),
        ("loaded 5 models from disk", None),
        ("", None),
    ],
)
def test_a_line(line: str, told: CountLine | None) -> None:
    found = count_line(line)
    assert (found is None) is (told is None)
    for name in _FIELDS if told is not None else ():
        value, wanted = getattr(found, name), getattr(told, name)
        assert value == (pytest.approx(wanted) if isinstance(wanted, float) else wanted), name


_FIELDS = ("event", "count", "unit", "is_supported", "of", "cgroup", "time_s", "share", "spread", "utilized")


def test_counts_by_thread_are_added_up_over_intervals() -> None:
    trace = load(SAMPLES / "intervals-by-thread.perf-stat.txt")
    assert {track.name for track in trace.tracks.values()} == {"compute", "touch", "threads"}
    assert all(track.kind is TrackKind.THREAD for track in trace.tracks.values())
    found = counted(trace)
    assert found["threads", "task-clock"] == "nothing ran tha"
    assert found["touch", "cycles"] == "this machine ha"
    (touch,) = (track for track in trace.tracks.values() if track.name == "touch")
    course = trace.series[touch.id, "context-switches"]
    assert course.metric.unit == "events/s"
    rates = [rate for _, rate in course.known]
    assert rates[0] == pytest.approx(82 / 0.25371262)
    assert len(course) == len(rates) == 4
    begins = [0, *course.times]
    seconds = [(end - begin) / 1e9 for begin, end in zip(begins, course.times, strict=False)]
    switches = sum(rate * length for rate, length in zip(rates, seconds, strict=True))
    assert found["touch", "context-switches"] == pytest.approx(switches)
    assert trace.end_ns == course.times[-1]
    assert [(issue.code, issue.count) for issue in trace.issues] == [("perf.not-counted", 16)]


def test_of_runs_in_german_the_time_is_that_of_the_event() -> None:
    trace = load(SAMPLES / "german-runs.perf-stat.csv")
    assert trace.end_ns == 303684676
    clock = trace.counts[0]
    assert (clock.event, clock.count) == ("task-clock", 77.42e6)
    assert clock.spread == pytest.approx(0.1925)
    assert not trace.series


def test_each_cpu_is_a_part_of_the_machine() -> None:
    trace = load(SAMPLES / "by-cpu.perf-stat.json")
    assert list(trace.tracks) == ["host:CPU0", "host:CPU1"]
    assert counted(trace)["CPU1", "page-faults"] == 1504
    assert trace.end_ns == pytest.approx(324_011_255 / 1.000069, rel=1e-6)


def test_what_is_counted_is_what_the_title_says(tmp_path: Path) -> None:
    titled = opened(tmp_path, f"{TITLED}   7  page-faults\n\n   0.4906 +- 0.0149 seconds time elapsed  ( +-  3.04% )\n")
    assert counted(titled) == {("serve --port 8000", "page-faults"): 7}
    assert titled.origin.facts == {"command": "serve --port 8000", "runs": 3, "elapsed (s)": 0.4906}
    assert titled.end_ns == 490_600_000
    for what, id, name in (
        ("process id '4242'", "process:4242", "process 4242"),
        ("thread id '43'", "thread:0/43", "thread 43"),
        ("'system wide'", "host", "all CPUs"),
    ):
        (track,) = opened(tmp_path, f" Performance counter stats for {what}:\n   7  page-faults\n").tracks.values()
        assert (track.id, track.name) == (id, name)


def test_secrets_of_a_command_are_hidden(tmp_path: Path) -> None:
    trace = opened(tmp_path, TITLED.replace("--port 8000", "--api-key hunter2") + "   7  page-faults\n")
    assert "hunter2" not in repr((trace.origin, trace.tracks))


def test_sums_behind_intervals_are_no_further_counts(tmp_path: Path) -> None:
    intervals = "     0.100000000       3      page-faults\n     0.200000000       4      page-faults\n"
    trace = opened(tmp_path, f"#  time     counts unit events\n{intervals}{TITLED}         7      page-faults\n")
    assert [one.count for one in trace.counts] == [7]


def test_an_interval_without_a_count_is_a_gap(tmp_path: Path) -> None:
    lines = ["     0.500000000,3,,cycles,1,100.00,,", "     1.000000000,<not counted>,,cycles,0,0.00,,"]
    trace = opened(tmp_path, "\n".join(lines) + "\n")
    (course,) = trace.series.values()
    assert course.samples == [6.0, None]
    assert [one.count for one in trace.counts] == [3]


def test_shared_counters_make_estimates() -> None:
    trace = load(SAMPLES / "memory-bound.perf-stat.txt")
    shares = {one.event: one.counted_share for one in trace.counts}
    assert shares["task-clock"] == 1.0
    assert shares["cycles"] == pytest.approx(0.6664)
    assert [(issue.code, issue.count) for issue in trace.issues] == [("perf.multiplexed", 8)]


def test_text_without_its_end_says_so(tmp_path: Path) -> None:
    cut = opened(tmp_path, f"{TITLED}   7  page-faults\n   5  cyc")
    assert [issue.code for issue in cut.issues] == ["perf.cut"]
    csv = opened(tmp_path, "3,,cycles,1,100.00,,\n4,,instructions,1,100.00")
    assert [issue.code for issue in csv.issues] == ["no-line-end"]


def test_hostile_names_are_made_harmless(tmp_path: Path) -> None:
    trace = opened(tmp_path, "\x1b[31mserve-7,3,,cycles\x1b[2J,1,100.00,,\n")
    said = repr((trace.tracks, trace.counts))
    assert "\\x1b" not in said
    assert "cycles" in said


def test_metrics_alone_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no --metric-only"):
        opened(tmp_path, f"{TITLED}  GHz  insn per cycle\n  3.1  0.9\n")


@pytest.mark.parametrize("text", ["1,2,3,4,5\n", "a;b;c;d;e 7\n", "x,y,page-faults,1,2\n", "12 apples\n"])
def test_other_text_is_not_of_perf(text: str, tmp_path: Path) -> None:
    assert not PARSER.sniff(text.encode(), tmp_path)
