"""What perf sched prints: latencies in old and new layouts, stretches on CPUs, summaries; and recordings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from llmtop.errors import FileError
from llmtop.model import SpanKind, TrackKind, Unknown
from llmtop.parsers import perf_script
from llmtop.parsers.perf_sched import PARSER
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from llmtop.model import ThreadScheduling, Trace

SAMPLES = SAMPLE_TRACES / "perf" / "6.1.187"
HEAD = "           time    cpu  task name                       wait time  sch delay   run time"
STATES = f"{HEAD}  state\n"
NEW = "  Task     |   Runtime ms  | Switches | Avg delay ms    | Max delay ms    | Max delay start  | Max delay end |\n"
OLD = "  Task     |   Runtime ms  | Switches | Average delay ms | Maximum delay ms | Maximum delay at       |\n"


def opened(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "said"
    path.write_text(text)
    return load(path)


def the_only(trace: Trace) -> ThreadScheduling:
    (told,) = trace.scheduling
    return told


def stretches(trace: Trace, kind: SpanKind) -> list[tuple[str, float, float]]:
    """The names of spans with their ends in ms from the trace's beginning."""
    table = trace.spans[kind]
    return [
        (table.names[name], round((start - trace.start_ns) / 1e6, 3), round((end - trace.start_ns) / 1e6, 3))
        for name, start, end in zip(table.name_id, table.start_ns, table.end_ns, strict=True)
    ]


def test_latency_of_a_thread(tmp_path: Path) -> None:
    moments = "max start:  10.5 s | max end:  10.6 s"
    line = f"  tmux: client:7 |    1,500 ms |    4 | avg:   0.250 ms | max:   0.500 ms | {moments}\n"
    trace = opened(tmp_path, NEW + line)
    told = the_only(trace)
    assert (told.track, trace.tracks[told.track].name) == ("thread:0/7", "tmux: client")
    assert (told.ran_ns, told.switches, told.delay_mean_ns, told.delay_max_ns) == (1.5e6, 4, 0.25e6, 0.5e6)
    assert (told.delay_max_at_ns, told.threads, told.migrations) == (10_500_000_000, 1, None)


def test_older_perfs_tell_when_the_longest_delay_ended(tmp_path: Path) -> None:
    line = "  serve:(3)  |  2.000 ms |   5 | avg:    0.200 ms | max:  500.000 ms | max at:  10.500000 s\n"
    told = the_only(opened(tmp_path, OLD + line))
    assert (told.track, told.threads, told.delay_max_at_ns) == ("host:serve", 3, 10_000_000_000)


def test_a_thread_that_never_waited_has_no_moment_of_its_longest_delay(tmp_path: Path) -> None:
    line = "  a:1 | 2.000 ms | 5 | avg: 0.000 ms | max: 0.000 ms | max start: 0.000000 s | max end: 0.000000 s\n"
    assert the_only(opened(tmp_path, NEW + line)).delay_max_at_ns is None


def test_the_total_is_no_thread() -> None:
    trace = load(SAMPLES / "crowded-latency.perf-sched.txt")
    assert {track.name for track in trace.tracks.values()} == {"compute", "touch"}
    assert len(trace.scheduling) == 6
    assert trace.origin.facts == {"ran in all (ms)": 519.053, "switches in all": 255}
    assert not trace.issues


def test_a_table_without_its_total_may_be_cut(tmp_path: Path) -> None:
    line = "  serve:(3)  |  2.000 ms |   5 | avg:    0.200 ms | max:  500.000 ms | max at:  10.500000 s\n"
    assert [issue.code for issue in opened(tmp_path, OLD + line).issues] == ["perf.cut"]


def test_a_stretch_on_a_cpu_with_what_was_before(tmp_path: Path) -> None:
    rows = "     10.000000 [0003]  serve[7/5]      4.000      1.000      2.000      S \n"
    trace = opened(tmp_path, STATES + rows)
    told = the_only(trace)
    assert (told.track, told.ran_ns, told.switches) == ("thread:5/7", 2e6, 1)
    assert (told.delay_mean_ns, told.delay_max_ns, told.delay_max_at_ns) == (1e6, 1e6, 9_997_000_000)
    assert (trace.start_ns, trace.end_ns) == (9_994_000_000, 10_000_000_000)
    assert stretches(trace, SpanKind.ON_CPU) == [("CPU 3", 4, 6)]
    assert stretches(trace, SpanKind.OFF_CPU) == [("blocked", 0, 3), ("runnable", 3, 4)]
    assert trace.tracks[told.track].kind is TrackKind.THREAD


def test_what_was_put_off_its_cpu_waits_for_one_all_the_time(tmp_path: Path) -> None:
    """It is not woken, and perf tells no delay."""
    rows = [
        "     10.000000 [0000]  serve[7]    0.000      0.000      1.000      R ",
        "     10.010000 [0001]  serve[7]    8.000      0.000      2.000      D ",
        "     10.020000 [0001]  serve[7]    6.000      2.000      4.000      R+",
        "     10.030000 [0001]  serve[7]    5.000      0.000      5.000      S ",
    ]
    trace = opened(tmp_path, STATES + "\n".join(rows) + "\n")
    told = the_only(trace)
    assert (told.delay_mean_ns, told.delay_max_ns, told.delay_max_at_ns) == (15e6 / 4, 8e6, 10_000_000_000)
    assert [name for name, _, _ in stretches(trace, SpanKind.OFF_CPU)] == [
        "runnable",
        "blocked, uninterruptible",
        "runnable",
        "runnable",
    ]


def test_without_states_a_wait_without_a_delay_is_of_no_known_kind(tmp_path: Path) -> None:
    rows = [
        "     10.000000 [0000]  serve[7]   8.000     0.000      1.000",
        "     10.020000 [0000]  serve[7]   8.000     2.000      1.000",
    ]
    trace = opened(tmp_path, "\n".join((HEAD, *rows, "")))
    assert [name for name, _, _ in stretches(trace, SpanKind.OFF_CPU)] == ["off its CPU", "blocked", "runnable"]
    assert [issue.code for issue in trace.issues] == ["perf.no-states"]


def test_idle_cpus_wake_ups_and_other_lines_are_no_threads(tmp_path: Path) -> None:
    rows = [
        "                        [tid/pid]                          (msec)     (msec)     (msec)",
        "--------------- ------  ------------------------------  ---------  ---------  ---------",
        "     10.000000 [0000]  <idle>              0.301      0.000      0.247      I",
        "     10.000000 [0000]  serve[7]                                      awakened: other[8]",
        "     10.000000 [0001]  other[8]    1.000   0.500   1.000   S   schedule <- do_wait <- main",
        "     10.000000 [0001]  other[8]    1.000 ",
    ]
    assert the_only(opened(tmp_path, STATES + "\n".join(rows) + "\n")).track == "thread:0/8"


def test_moves_are_counted_where_they_are_printed(tmp_path: Path) -> None:
    row = "     10.000000 [0001]  serve[7]    1.000   0.500   1.000   S \n"
    moved = "     10.000000 [0000]  other[8]                   migrated: serve[7] cpu 1 => 0\n"
    assert the_only(opened(tmp_path, STATES + row)).migrations is None
    assert the_only(opened(tmp_path, STATES + moved + row + moved)).migrations == 2


def test_more_columns_are_read_by_their_names(tmp_path: Path) -> None:
    head = "           time    cpu  012  task name   prio  wait time  sch delay  pre-mig time  run time  state\n"
    row = "     10.000000 [0001]   s   serve[7]    120      8.000      3.000      9.000      1.000      S \n"
    told = the_only(opened(tmp_path, head + row))
    assert (told.ran_ns, told.delay_max_ns) == (1e6, 3e6)


SUMMARY = """
Runtime summary
                          comm  parent   sched-in     run-time    min-run     avg-run     max-run  stddev  migrations
                                          (count)       (msec)     (msec)      (msec)      (msec)       %
              my serve[42/41]       2        166       71.729      0.061       0.432      10.055   20.97       3
Idle stats:
    CPU  0 idle for    162.899  msec  ( 78.78%)
"""
WAITS = """
Wait-time summary
                          comm  parent   sched-in     run-time      sleep      iowait     preempt       delay
                  serve[42]    7652        100      217.117      0.000     784.299     299.000       1.000
"""


def test_summaries(tmp_path: Path) -> None:
    told = the_only(opened(tmp_path, SUMMARY))
    assert (told.track, told.ran_ns, told.switches, told.migrations) == ("thread:41/42", 71.729e6, 166, 3)
    assert isinstance(told.delay_mean_ns, Unknown)
    waits = the_only(opened(tmp_path, WAITS))
    assert (waits.switches, waits.delay_mean_ns, waits.migrations) == (100, 3e6, None)
    assert isinstance(waits.delay_max_ns, Unknown)


def test_a_summary_of_lines_that_are_there_tells_nothing_new(tmp_path: Path) -> None:
    row = "     10.000000 [0001]  serve[7]    1.000   0.500   1.000   S \n"
    assert the_only(opened(tmp_path, STATES + row + SUMMARY)).track == "thread:0/7"


def test_both_tables_of_one_recording_tell_the_same() -> None:
    timehist, latency = (load(SAMPLES / f"crowded-{name}.perf-sched.txt") for name in ("timehist", "latency"))
    told = {int(one.track.partition("/")[2]): one for one in timehist.scheduling}
    computing = [one for one in latency.scheduling if latency.tracks[one.track].name == "compute"]
    assert len(computing) == 4
    for one in computing:
        other = told[int(one.track.partition("/")[2])]
        assert one.ran_ns == pytest.approx(other.ran_ns, rel=0.02)
        assert one.delay_max_ns == pytest.approx(other.delay_max_ns, rel=0.01)
        assert one.delay_max_at_ns == pytest.approx(other.delay_max_at_ns, abs=2000)


def test_hostile_names_are_made_harmless(tmp_path: Path) -> None:
    trace = opened(tmp_path, STATES + "     10.000000 [0001]  a\x1b[2Jb[7]    1.000   0.500   1.000   S \n")
    (track,) = trace.tracks.values()
    assert "\x1b" not in track.name


def test_a_table_without_threads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="names no thread that ran"):
        opened(tmp_path, NEW)


def test_text_without_its_end_says_so(tmp_path: Path) -> None:
    row = "     10.000000 [0001]  serve[7]    1.000   0.500   1.000   S \n     10.1000"
    assert [issue.code for issue in opened(tmp_path, STATES + row).issues] == ["no-line-end"]


@pytest.mark.parametrize("text", ["Task | Runtime | Switches\n", "time cpu task\n", "10.0 [0001] serve[7] 1 2 3\n"])
def test_other_text_is_not_of_perf_sched(text: str, tmp_path: Path) -> None:
    assert not PARSER.sniff(text.encode(), tmp_path)


def test_a_recording_of_the_scheduler_is_printed_by_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def printed(path: Path, *question: str) -> Iterator[str]:
        asked.append(question)
        events = ["sched:sched_switch", "sched:sched_stat_runtime: x", "sched:sched_migrate_task", "dummy:HG"]
        row = "     10.000000 [0001]  serve[7]    1.000   0.500   1.000   S "
        return iter(events if question[0] == "evlist" else [STATES.strip("\n"), row])

    monkeypatch.setattr("llmtop.parsers.perf_data.printed", printed)
    monkeypatch.setattr("llmtop.parsers.perf_sched.printed", printed)
    path = tmp_path / "perf.data"
    path.write_bytes(b"PERFILE2")
    trace = load(path)
    assert (trace.origin.kind, the_only(trace).track) == ("perf-sched", "thread:0/7")
    assert asked == [("evlist",), ("sched", "timehist", "--state", "--migrations")]
    assert re.search("perf sched record", PARSER.written_by)
    assert perf_script.PARSER.sniff(b"PERFILE2", path)
