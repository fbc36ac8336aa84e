"""The text of perf, as versions 5.10 to 6.17 print it, and as hostile thread names make it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.perf import perf_text
from llmtop.collectors.tracing.perf.perf_text import CallRow, StackFrame, Switch

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "research" / "bpf" / "samples"
KERNEL = 0xFFFFFFFF81000130

SWITCHES = """\
 1733/1735  11719.662082837: PERF_RECORD_SWITCH IN         \n\
 1733/1735  11719.662348213:  sched:sched_switch: prev_comm=python prev_pid=1735 prev_prio=120 \
prev_state=R+ ==> next_comm=python next_pid=1601 next_prio=120
\tffffffff821f7f58 __schedule ([kernel.kallsyms])
\t          1aa030 _Py_NewReference (/usr/lib/libpython3.11.so.1.0)
\t    7fe0f7adea00 [unknown] ([unknown])

 1733/1735  11719.662380431: PERF_RECORD_SWITCH OUT preempt
 5318/5318  12074.002234257: sched:sched_wakeup: comm=python pid=1737 prio=120 target_cpu=000 \
ffffffff813a8255 ttwu_do_activate
 1733/1735  11719.682350051:    5025125 cpu-clock/freq=199/: \n\
\t             b46 __vdso_clock_gettime ([vdso])
\t           cf439 clock_gettime@@GLIBC_2.17+0x1f (/usr/lib/x86_64-linux-gnu/libc.so.6)

"""
SUMMARY = """
 Summary of events:

 python3 (14311), 1384 events, 24.7%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   clock_nanosleep      269      0   817.196     0.000     3.038     3.753      0.46%
   futex                154      7    15.306     0.001     0.099     1.360     16.74%

 a (b) (c), 9 (14312), 10 events, 0.1%

   syscall            calls    total       min       avg       max      stddev
                               (msec)    (msec)    (msec)    (msec)        (%)
   --------------- -------- --------- --------- --------- ---------     ------
   read                   5     0.003     0.000     0.001     0.002      2.95%
"""


def read(text: str) -> list[perf_text.PerfSample]:
    return list(perf_text.samples(text.splitlines(keepends=True)))


def header(text: str) -> perf_text.PerfSample:
    (sample,) = read(text)
    return sample


def test_events_of_all_kinds_in_one_stream() -> None:
    came, left, went, woken, ran = read(SWITCHES)
    assert (came.event, came.pid, came.tid, came.time_ns) == (perf_text.SWITCH_IN, 1733, 1735, 11719_662082837)
    assert perf_text.switch(left.payload) == Switch(1735, "R+", 1601)
    assert [frame.name for frame in left.frames] == ["__schedule_[k]", "_Py_NewReference", "[unknown]"]
    assert went.event == perf_text.SWITCH_OUT
    assert (woken.event, perf_text.woken(woken.payload), woken.frames) == ("sched:sched_wakeup", 1737, ())
    assert (ran.event, ran.period, ran.time_ns) == ("cpu-clock/freq=199/", 5025125, 11719_682350051)
    assert [frame.name for frame in ran.frames] == ["__vdso_clock_gettime", "clock_gettime@@GLIBC_2.17"]


@pytest.mark.parametrize(
    ("line", "comm", "pid", "tid", "period", "event"),
    [
        ("python3 22253  2528.164971:   10101010 cpu-clock: ", "python3", -1, 22253, 10101010, "cpu-clock"),
        ("python3 13982/14027  4024.268896: cpu-clock: ", "python3", 13982, 14027, -1, "cpu-clock"),
        ("python 17 [003]  4024.268896:   1 cycles:ppp: ", "python", -1, 17, 1, "cycles:ppp"),
        ("Web Content: (x) 7/8 [012] 1.000001: cpu-clock:u: ", "Web Content: (x)", 7, 8, -1, "cpu-clock:u"),
        (":-1 -1/-1 1.000001: cpu-clock: ", ":-1", -1, -1, -1, "cpu-clock"),
        ("12 34 5/6 1.000001: cpu-clock: ", "12 34", 5, 6, -1, "cpu-clock"),
    ],
)
def test_headers_of_all_versions(line: str, comm: str, pid: int, tid: int, period: int, event: str) -> None:
    sample = header(line)
    assert (sample.comm, sample.pid, sample.tid, sample.period, sample.event) == (comm, pid, tid, period, event)


def test_microseconds_and_nanoseconds() -> None:
    assert header("a 1/1 2.000003: cpu-clock: ").time_ns == 2_000_003_000
    assert header("a 1/1 2.000000003: cpu-clock: ").time_ns == 2_000_000_003


def test_a_sample_without_call_chain_has_its_function_on_the_same_line() -> None:
    sample = header("a 1/1 2.000003: cpu-clock:  1aff40 rangeiter_next (/usr/lib/libpython3.11.so.1.0)")
    assert sample.frames == (StackFrame(0x1AFF40, "rangeiter_next", "/usr/lib/libpython3.11.so.1.0"),)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("\t  55d0 std::vector<int, std::allocator<int> >::push_back(int&&) (/opt/a b/lib.so)", "std::vector<int, "),
        ("\t  55d0 f(int) (.constprop.0) (/tmp/x (deleted))", "f(int) (.constprop.0)"),
        ("\t  55d0 [unknown] (/usr/lib/libtorch_cpu.so)", "[libtorch_cpu.so]"),
        ("\t  55d0 [unknown] (/tmp/perf-12.map (deleted))", "[perf-12.map (deleted)]"),
        ("\t  55d0 [unknown] ([unknown])", "[unknown]"),
        ("\t  55d0 [unknown] (//anon)", "[anon]"),
        ("\t  55d0 inner (inlined)", "inner"),
        ("\tffffffffc0a01234 nvidia_ioctl ([nvidia])", "nvidia_ioctl_[k]"),
        ("\t 1234 nv_open (/lib/modules/6.1.0/updates/nvidia.ko.xz)", "nv_open_[k]"),
        ("\tffffffffc0a01234 [unknown] ([kernel.kallsyms])", "[kernel]_[k]"),
        ("\tffffffff81000130", None),
    ],
)
def test_names_of_functions(line: str, name: str | None) -> None:
    sample = header(f"a 1/1 2.000003: cpu-clock: \n{line}\n\n")
    assert [frame.name[: len(name)] if name else frame.name for frame in sample.frames] == ([name] if name else [])


@pytest.mark.parametrize(
    "comm",
    ["a b", "(sd-pam)", "x ==> y", "a] S ==> b:1 [", "prev_pid=9", "tab\tx", "new\nline", "\n\n", "\x1b[2J", "é\udc80"],
)
def test_thread_names_steer_nothing(comm: str) -> None:
    long = f"prev_comm={comm} prev_pid=7 prev_prio=120 prev_state=S ==> next_comm={comm} next_pid=8 next_prio=120"
    text = f" 1/7  2.000000003: sched:sched_switch: {long}\n\tffffffff81000130 schedule ([kernel.kallsyms])\n\n"
    after = " 1/9  3.000000000: sched:sched_wakeup: comm=x pid=9 prio=120 target_cpu=000\n"
    found = read(text + after)
    assert perf_text.switch(found[0].payload) in (Switch(7, "S", 8), None)
    if "\n" not in comm:
        assert perf_text.switch(found[0].payload) == Switch(7, "S", 8)
        assert [frame.symbol for frame in found[0].frames] == ["schedule"]
    assert (found[-1].tid, perf_text.woken(found[-1].payload)) == (9, 9)


def test_what_the_plugin_of_libtraceevent_prints() -> None:
    assert perf_text.switch("my app: x:7 [120] D ==> swapper/1:0 [120]") == Switch(7, "D", 0)
    assert perf_text.woken("my app: x:42 [120] success=1 CPU:001") == 42


def test_tables_with_and_without_a_column_of_errors() -> None:
    one, other = perf_text.thread_calls(SUMMARY.splitlines())
    assert one.tid == 14311
    assert one.rows == (CallRow("clock_nanosleep", 269, 0, 817_196_000), CallRow("futex", 154, 7, 15_306_000))
    assert (other.tid, other.rows) == (14312, (CallRow("read", 5, None, 3_000),))


def test_an_empty_summary() -> None:
    assert perf_text.thread_calls(["", " Summary of events:", ""]) == ()


RAW_CALLS = """\
   7  3824.103991000:  raw_syscalls:sys_exit: NR 230 = 0
   7  3824.104025500: raw_syscalls:sys_enter: NR 110 (7f90d032ed40, 0, a19f40, 1, 7f90d0276f28, b)
   9  3824.104026000: raw_syscalls:sys_enter: NR 3 (ffffffff, 0, 0, 0, 0, 0)
   7  3824.104028000:  raw_syscalls:sys_exit: NR 110 = 12371
   9  3824.104027000:  raw_syscalls:sys_exit: NR 3 = -9
   9  3824.104029000: raw_syscalls:sys_enter: NR 999 (0, 0, 0, 0, 0, 0)
   9  3824.104031000:  raw_syscalls:sys_exit: NR 999 = -38
"""


def test_calls_event_by_event_are_summed_up_as_perf_trace_does() -> None:
    """A call that was entered before the look counts, without its time; one that has no name here has its number."""
    one, other = perf_text.raw_calls(RAW_CALLS.splitlines(), {230: "clock_nanosleep", 110: "getppid", 3: "close"})
    assert (one.tid, one.rows) == (7, (CallRow("clock_nanosleep", 1, 0, 0), CallRow("getppid", 1, 0, 2500)))
    assert (other.tid, other.rows) == (9, (CallRow("close", 1, 1, 1000), CallRow("syscall 999", 1, 1, 2000)))


def test_lost_events_are_counted() -> None:
    assert perf_text.lost_events("LOST 27 events!\nProcessed 5 events and lost 3 chunks!\n") == 30


@given(st.integers(0, len(SWITCHES)))
def test_a_text_that_ends_early_loses_only_its_end(end: int) -> None:
    whole, part = read(SWITCHES), read(SWITCHES[:end])
    assert part[:-1] == whole[: max(0, len(part) - 1)]


@given(st.text(max_size=300))
def test_no_text_is_too_odd(text: str) -> None:
    for sample in read(text):
        assert sample.time_ns >= 0
        perf_text.switch(sample.payload)
        perf_text.woken(sample.payload)
    perf_text.thread_calls(text.splitlines())
    perf_text.raw_calls(text.splitlines(), {})


@given(st.integers(0, len(SWITCHES) - 1), st.text(max_size=20))
def test_a_fault_in_the_text_costs_what_it_touches(place: int, fault: str) -> None:
    found = read(SWITCHES[:place] + fault + SWITCHES[place:])
    assert len(found) >= len(read(SWITCHES)) - 3
    assert perf_text.thread_calls((SUMMARY[:place] + fault + SUMMARY[place:]).splitlines())


@pytest.mark.parametrize(("name", "count"), [("perf_script.txt", 8), ("perf_script_F.txt", 3)])
def test_captured_scripts(name: str, count: int) -> None:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip("the captured samples are not here")
    found = read(path.read_text())
    assert len(found) == count
    assert all(sample.comm == "python3" and sample.event == "cpu-clock" and sample.frames for sample in found)


def test_a_captured_summary() -> None:
    path = SAMPLES / "perf_trace_s.txt"
    if not path.exists():
        pytest.skip("the captured samples are not here")
    first = perf_text.thread_calls(path.read_text().splitlines())[0]
    assert (first.tid, first.rows[0]) == (14311, CallRow("clock_nanosleep", 269, 0, 817_196_000))
