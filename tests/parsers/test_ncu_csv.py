"""Printed pages of Nsight Compute: against the reports they were printed from, and in all the ways they are printed."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.analysis.gpus.capability import capability_of
from llmtop.analysis.kernels.classes import kernel_classes
from llmtop.analysis.kernels.source import kernel_source, why_no_code
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.rules.registry import diagnose
from llmtop.errors import FileError
from llmtop.model import KernelDetails, KernelTable, Severity, Trace, Unknown
from llmtop.parsers.registry import load
from tests.parsers.full_files import RAW_PAGE
from tests.parsers.sample_reports import DECODE, LADDER, OTHERS, SAMPLE_TRACES, content

if TYPE_CHECKING:
    from llmtop.model import Value

PAGES = ("raw", "details")
NSIGHT = Path("/opt/nsight")
STUDY = sorted((OTHERS / "dsocr_v2").glob("kernel_*.csv"))
IDENTITY = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC"'
)
DETAILS = (
    f'{IDENTITY},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description",'
    '"Estimated Speedup Type","Estimated Speedup"'
)
LAUNCH = '"0","42","serve","127.0.0.1","void scale<float>(float *)","1","7","(32, 4, 1)","(224, 2, 1)","0","9.0"'


stored_report = cache(lambda: load(DECODE))
printed_page = cache(lambda page: load(shipped(page)))


def shipped(page: str) -> Path:
    return SAMPLE_TRACES / "ncu" / "2024.1.1" / f"llama-decode.{page}.csv.xz"


OF_OTHER_GPUS = {
    "L2 Compression Input Sectors",
    "L2 Compression Ratio",
    "L2 Compression Success Rate",
    "Preferred Cluster Size",
}
"""Rows whose metric the report has by this GPU's own name, and one that is printed as "n/a" of it."""


def table(trace: Trace) -> tuple[KernelTable, KernelDetails]:
    assert trace.kernels is not None
    assert trace.kernels.details is not None
    return trace.kernels, trace.kernels.details


def read(folder: Path, text: str | bytes) -> Trace:
    path = folder / "page"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path)


def refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(FileError) as caught:
        read(folder, text)
    said = str(caught.value)
    assert "\n" not in said
    return said


def is_printed_as(printed: Value, stored: Value) -> bool:
    """To the two decimals and three digits that pages are printed with."""
    if isinstance(printed, str) or isinstance(stored, str):
        return printed == stored
    return printed == pytest.approx(stored, rel=0.006, abs=0.006)


def held(printed: Trace, stored: Trace, but: frozenset[str] = frozenset()) -> int:
    """How many values of a page are those of the report, after all of them were compared."""
    ours, page = table(printed)
    theirs, report = table(stored)
    assert [ours.name(i) for i in range(len(ours))] == [theirs.name(i) for i in range(len(theirs))]
    count = 0
    for i in range(len(ours)):
        assert page.ranges(i) == report.ranges(i)
        known = report.metrics(i)
        for name, value in page.metrics(i).items():
            if name in known and name not in but:
                assert is_printed_as(value, known[name]), (i, name)
                assert page.unit(name) == (report.unit(name) or page.unit(name))
                count += 1
    return count


@pytest.mark.parametrize(("page", "values"), [("raw", 89520), ("details", 3600)])
def test_a_page_has_the_values_of_its_report(page: str, values: int) -> None:
    printed, stored = printed_page(page), stored_report()
    assert held(printed, stored) == values
    (ours, _), (theirs, _) = table(printed), table(stored)
    assert (ours.grid, ours.block, ours.device, ours.stream) == (
        theirs.grid,
        theirs.block,
        theirs.device,
        theirs.stream,
    )
    assert list(ours.duration_ns) == pytest.approx(list(theirs.duration_ns), rel=0.006)
    assert ours.functions == tuple(theirs.functions)


@pytest.mark.parametrize("page", PAGES)
def test_views_of_a_page_are_those_of_its_report(page: str) -> None:
    def limits(trace: Trace) -> list[str]:
        kernels = kernels_of(trace)
        bounds = [kernels.facts(i).bound for i in range(len(kernels.table))]
        return ["" if isinstance(bound, Unknown) else str(bound.bound) for bound in bounds]

    printed, stored = printed_page(page), stored_report()
    assert limits(printed) == limits(stored)
    ours, theirs = ({(one.rule, one.subject) for one in diagnose(trace).findings} for trace in (printed, stored))
    # The page "details" has no stall reasons, without which a grid that is not tiny is not known to be the limit.
    fewer = {"kernel-small-grid", "kernel-latency-unknown"} if page == "details" else set()
    assert {rule for rule, _ in ours ^ theirs} == fewer
    assert len(ours & theirs) > 3


def test_a_raw_page_names_the_gpu_and_gives_points_in_the_roofline() -> None:
    trace = printed_page("raw")
    assert trace.origin.gpu == "NVIDIA H100 80GB HBM3"
    assert trace.origin.facts["compute capability"] == "9.0"
    printed, stored = (kernels_of(one).facts(5).roofline for one in (trace, stored_report()))
    assert not isinstance(printed, Unknown)
    assert not isinstance(stored, Unknown)
    assert printed.fraction == pytest.approx(stored.fraction, rel=0.01)
    rates = [[(rate.level, rate.achieved) for rate in (*one.work, *one.traffic)] for one in (printed, stored)]
    assert dict(rates[0]) == pytest.approx(dict(rates[1]), rel=0.01)


def test_sections_and_rules_of_a_details_page_are_those_of_the_report() -> None:
    (_, page), (_, report) = table(printed_page("details")), table(stored_report())
    for i in (0, 5, 59):
        stored = {rule.id: rule for rule in report.rules(i)}
        assert {rule.id for rule in page.rules(i)} == stored.keys()
        for rule in page.rules(i):
            assert rule.section == stored[rule.id].section
            assert [kind for kind, _ in rule.messages] == [kind for kind, _ in stored[rule.id].messages]
            assert dict(rule.speedups) == pytest.approx(dict(stored[rule.id].speedups), rel=0.006)
        told = {row for section in report.tables(i) for row in section.rows}
        named = [row for section in page.tables(i) for row in section.rows if row[0] != row[1]]
        assert len(named) >= 55
        assert {label for metric, label in named if (metric, label) not in told} == OF_OTHER_GPUS
        assert set(page.sections(i)) <= set(report.sections(i))


def test_what_a_page_cannot_have_says_where_it_is() -> None:
    trace = printed_page("raw")
    _, page = table(trace)
    assert str(page.instances(0, "inst_executed")) == (
        "a printed page has no values by instruction or unit (open the .ncu-rep that it was printed from)"
    )
    assert str(trace.why_missing(trace.missing[0].what)).startswith(
        "Nsight Compute runs kernels one by one, so a page has no timeline"
    )


VERSIONS = [
    pytest.param(tool, id=tool.parents[3].name)
    for tool in sorted(NSIGHT.glob("nsight-compute-*/usr/lib/nsight-compute/ncu"))
] or [pytest.param(None, marks=pytest.mark.skip(reason="no other versions of ncu are here"))]
MEANT_OTHERWISE = frozenset({"dram__bytes_write.sum", "lts__t_sectors_data_ecc.sum.per_second"})
"""128 bytes of writes are printed as 0 Mbyte where another kernel has many: a column has one unit."""


@pytest.mark.parametrize("units", ["auto", "base"])
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("ncu", VERSIONS)
def test_what_other_versions_print_of_other_reports_is_what_they_hold(
    ncu: Path, page: str, units: str, tmp_path: Path
) -> None:
    compared = 0
    for report in sorted((OTHERS / "public").glob("*.ncu-rep")):
        printed = subprocess.run(
            [ncu, "--import", report, "--csv", "--page", page, "--print-units", units], capture_output=True, check=False
        )
        if not printed.returncode:
            compared += held(read(tmp_path, printed.stdout), load(report), MEANT_OTHERWISE)
    if not compared:
        pytest.skip("the other reports are not here")
    assert compared > (10_000 if page == "raw" else 1_000)


@pytest.mark.skipif(not STUDY, reason="the study's pages are not here")
def test_the_studys_own_table_comes_out_of_its_pages(tmp_path: Path) -> None:
    trace = read(tmp_path, b"".join(page.read_bytes() for page in STUDY))
    compute, memory, balanced, everything = kernel_classes(trace)
    assert [one.kernels for one in (compute, memory, balanced, everything)] == [4, 9, 7, 20]
    wanted = {
        "sm": (36.21, 9.38, 12.25, 15.75),
        "dram": (9.89, 34.23, 12.62, 21.80),
        "memory": (32.23, 41.20, 27.52, 34.62),
        "occupancy": (31.51, 43.22, 39.32, 39.51),
        "l1": (6.54, 9.51, 9.65, 8.96),
        "l2": (71.93, 16.40, 51.97, 39.95),
        "duration": (137_440, 9_670, 39_750, 45_750),
    }
    for name, means in wanted.items():
        got = [one.means[name] for one in (compute, memory, balanced, everything)]
        assert got == pytest.approx(means, abs=5.01 if name == "duration" else 0.00501), name


def page_of(*lines: str, header: str = DETAILS) -> str:
    return "\n".join((header, *(f"{LAUNCH},{line}" for line in lines))) + "\n"


def metrics(trace: Trace) -> dict[str, Value]:
    return dict(table(trace)[1].metrics(0))


SOL = "GPU Speed Of Light Throughput"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (f'"{SOL}","Duration","us","6.75",', "gpu__time_duration.sum", 6750.0),
        (f'"{SOL}","gpu__time_duration.sum","nsecond","6,752",', "gpu__time_duration.sum", 6752),
        (f'"{SOL}","Duration (gpu__time_duration.sum)","msecond","1.5",', "gpu__time_duration.sum", 1.5e6),
        ('"GPU Speed Of Light","SOL DRAM","%","9.08",', "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 9.08),
        ('"Launch Statistics","Block Size","","1,28,000",', "launch__block_size", 128000),
        ('"My own section","My own label","Kbyte","2",', "My own label", 2000.0),
    ],
    ids=["label", "name", "both", "before 2021", "India", "own section"],
)
def test_a_metric_has_its_name_and_base_unit(line: str, name: str, value: float, tmp_path: Path) -> None:
    trace = read(tmp_path, page_of(line))
    assert metrics(trace)[name] == value


def test_decimal_commas_are_told_by_any_value(tmp_path: Path) -> None:
    cycles = f'"{SOL}","Elapsed Cycles","cycle","13.485",'
    assert metrics(read(tmp_path, page_of(cycles)))["gpc__cycles_elapsed.max"] == 13.485
    german = page_of(cycles, f'"{SOL}","Duration","us","6,75",')
    assert metrics(read(tmp_path, german)) == {"gpc__cycles_elapsed.max": 13485, "gpu__time_duration.sum": 6750.0}
    french = page_of('"Launch Statistics","Threads","thread","28\u202f672",')
    assert metrics(read(tmp_path, french)) == {"launch__thread_count": 28672}


def test_what_is_not_known_is_no_value(tmp_path: Path) -> None:
    lines = [f'"Command line profiler metrics","{name}","","{text}",' for name, text in enumerate(["n/a", "nan", ""])]
    assert metrics(read(tmp_path, page_of(*lines))) == {}
    assert table(read(tmp_path, page_of(*lines)))[0].duration_ns[0] != 0.0


def test_a_raw_page_has_its_units_below_the_header(tmp_path: Path) -> None:
    header = f'{IDENTITY},"gpu__time_duration.sum","dram__bytes_read.sum","inst_executed"'
    units = ",".join(['""'] * 11) + ',"us","Mbyte",""'
    row = f'{LAUNCH},"9.408000","1.5","768 (32; 32; 704)"'
    trace = read(tmp_path, f"{header}\n{units}\n{row}\n")
    kernels, details = table(trace)
    assert metrics(trace) == {"gpu__time_duration.sum": 9408.0, "dram__bytes_read.sum": 1.5e6, "inst_executed": 768}
    assert (details.unit("dram__bytes_read.sum"), kernels.duration_ns[0]) == ("bytes", 9408.0)
    assert [axis[0] for axis in (*kernels.grid, *kernels.block)] == [224, 2, 1, 32, 4, 1]
    assert (kernels.functions, details.sections(0), details.rules(0)) == (("scale",), (), ())


def test_before_2023_shapes_are_metrics(tmp_path: Path) -> None:
    old = '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream"'
    header = f'{old},"launch__grid_dim_x","launch__grid_dim_y","launch__block_dim_x","launch__device_id"'
    units = ",".join(['""'] * 12)
    row = '"0","42","a","h","k","2022-Sep-02","1","13","8","2","32.000000","3"'
    kernels, _ = table(read(tmp_path, f"{header}\n{units}\n{row}\n"))
    assert [axis[0] for axis in (*kernels.grid, *kernels.block)] == [8, 2, -1, 32, -1, -1]
    assert (kernels.device[0], kernels.stream[0]) == (3, 13)


RANGES = (
    '"0","42","a","h","42  ""<default domain>:decode:none:none:none:none:none:none""  ""torch:step: 3:none:none:none:'
    'none:none:none"" ","""7:nccl:all:none:none:none:none:none:none""","k","1","7"'
)


def test_ranges_are_named_as_ncu_takes_them(tmp_path: Path) -> None:
    header = (
        '"ID","Process ID","Process Name","Host Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:'
        'Msg_Type:Msg","Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name",'
        '"Context","Stream","Section Name","Metric Name","Metric Unit","Metric Value"'
    )
    trace = read(tmp_path, f'{header}\n{RANGES},"Occupancy","Block Limit SM","block","24"\n')
    assert table(trace)[1].ranges(0) == ("nccl@all", "decode", "torch@step: 3")


def test_rules_keep_their_words_and_what_they_are_worth(tmp_path: Path) -> None:
    said = '"SchedulerStats","","","","IssueSlotUtilization","OPT","Every  scheduler, ""each"" one","local","80.34"'
    also = '"SchedulerStats","","","","IssueSlotUtilization","INF","see","",""'
    failed = '"Occupancy","","","","Broken","ERR","no such metric","",""'
    _, details = table(read(tmp_path, page_of(said, also, failed)))
    rule, broken = details.rules(0)
    assert (rule.id, rule.section, rule.speedups) == ("IssueSlotUtilization", "SchedulerStats", (("local", 80.34),))
    assert rule.messages == (("optimization", 'Every scheduler, "each" one'), ("ok", "see"))
    assert broken.messages == (("error", "no such metric"),)
    assert details.sections(0) == ("SchedulerStats", "Occupancy")


def test_what_tool_and_program_say_meanwhile_is_told_apart(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "==PROF== Connected to process 42 (/usr/bin/serve)",
            '==PROF== Profiling "scale" - 0: 0%....100% - 9 passes',
            "==WARNING== Found outstanding GPU clock reset",
            DETAILS,
            f'{LAUNCH},"{SOL}","Duration","us","6.75",',
            "tokens/s, 12",
            f'{LAUNCH},"{SOL}","Elapsed Cycles","cycle","13,4',
        ]
    )
    trace = read(tmp_path, text)
    assert trace.origin.facts["processes"] == "/usr/bin/serve (42)"
    assert [(issue.code, issue.count) for issue in trace.issues] == [
        ("ncu-csv.said", 1),
        ("rows-skipped", 2),
        ("no-line-end", 1),
    ]
    assert metrics(trace) == {"gpu__time_duration.sum": 6750.0}


def test_launches_of_several_runs_in_one_file_are_apart(tmp_path: Path) -> None:
    page = page_of(f'"{SOL}","Duration","us","6.75",')
    assert len(table(read(tmp_path, page * 3))[0]) == 3


ERROR = "==ERROR== the argument for option '--page' is invalid. Use --help for further details.\r\n"


@pytest.mark.parametrize(
    "text",
    [
        ERROR.encode(),
        ERROR.encode("utf-16"),
        b"\xff\xfe".decode("latin-1").encode() + ERROR.encode("utf-16-le"),
        b"==PROF== Connected to process 1 (/bin/true)\n" + ERROR.encode(),
    ],
    ids=["as it is", "PowerShell", "PowerShell, its mark encoded once more", "after a banner"],
)
def test_an_error_saved_as_a_page_is_told_in_one_line(text: bytes, tmp_path: Path) -> None:
    assert refusal(tmp_path, text).endswith(
        "holds no kernels, only what Nsight Compute says: the argument for option '--page' is invalid. Use --help for"
        " further details."
    )


def test_a_page_that_powershell_wrote_is_one(tmp_path: Path) -> None:
    page = page_of(f'"{SOL}","Duration","us","6.75",').replace("\n", "\r\n")
    assert metrics(read(tmp_path, page.encode("utf-16"))) == {"gpu__time_duration.sum": 6750.0}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('"Kernel Name","k"\n"Address","Source"\n"0x7f","MOV R1"\n', "is the source page; llmtop reads launches"),
        (
            '"Process ID","Process Name","Host Name","Kernel Name","Invocations","Metric Name","Minimum"\n',
            "is a summary over launches (--print-summary); llmtop reads launches",
        ),
        ("==PROF== Disconnected from process 42\n", "none ran, the filters of ncu matched none, or it was cut short"),
        (f"{DETAILS}\n", "none ran, the filters of ncu matched none, or it was cut short"),
    ],
)
def test_pages_without_launches_say_what_to_print_instead(text: str, why: str, tmp_path: Path) -> None:
    assert why in refusal(tmp_path, text)


def test_a_hostile_page_is_harmless(tmp_path: Path) -> None:
    page = page_of('"My\x1b[2J","evil\u202elabel","\x07","\x9bvalue",').replace("scale", "\x1b]0;x\x07")
    kernels, details = table(read(tmp_path, page))
    said = repr((kernels.names, kernels.functions, details.metrics(0), details.tables(0), details.sections(0)))
    assert not any(bad in said for bad in ("\\x1b", "\\x07", "\\x9b", "\\u202e"))


@cache
def small() -> bytes:
    """The first two kernels of the shipped page."""
    lines = content(shipped("details")).splitlines(keepends=True)
    return b"".join(line for line in lines if line.startswith((b'"ID"', b'"0"', b'"1"')))


DAMAGE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@DAMAGE
@given(
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8), st.integers(0, 1 << 20)
)
def test_changed_bytes_and_cuts_cost_no_more_than_a_sentence(
    tmp_path: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(small())
    for place, byte in changes:
        data[place % len(data)] = byte
    try:
        trace = read(tmp_path, bytes(data[: len(data) // 3 + cut % len(data)]))
    except FileError as error:
        refusal = str(error)
        assert "\n" not in refusal
        return
    kernels, details = table(trace)
    for i in range(len(kernels)):
        told = (details.metrics(i), details.rules(i), details.ranges(i), details.tables(i), details.sections(i))
        assert "\\x1b" not in repr(told)


def test_the_session_page_tells_of_the_capture() -> None:
    trace = load(SAMPLE_TRACES / "ncu" / "2025.3.1" / "sgemm-ladder.session.csv")
    stored = load(LADDER).origin
    assert (trace.origin.gpu, trace.origin.tool_version) == (stored.gpu, stored.tool_version)
    assert {name: trace.origin.facts[name] for name in ("processes", "host", "captured")} == {
        "processes": stored.facts["processes"],
        "host": "vm",
        "captured": "2026-Nov-21 01:17:34",
    }
    assert str(trace.origin.facts["command"]).endswith("-o ladder_full ./ladder")
    assert str(trace.missing[0].why).startswith("the session page has no kernels (print --page raw too")


def test_a_session_page_without_its_facts_is_refused(tmp_path: Path) -> None:
    page = 'Session Info\n"Session Attribute","Value"\n"Created","2026"\n'
    assert refusal(tmp_path, page).endswith("names neither the tool nor a GPU: it was cut short; print it again")


def test_source_lines_of_a_page_are_in_its_report(tmp_path: Path) -> None:
    trace = read(tmp_path, page_of(f'"{SOL}","Duration","us","6.75",'))
    why = "a printed page has no instructions (open the .ncu-rep that it was printed from)"
    assert str(why_no_code(trace)) == str(kernel_source(trace, 0)) == why


@pytest.mark.parametrize(
    ("said", "is_lost"),
    [
        ("The application returned an error code (1).", False),
        ('Failed to profile "gemm" in process 42', True),
        ("An error occurred while trying to profile.", True),
    ],
)
def test_an_error_of_the_program_is_no_damage_of_the_page(tmp_path: Path, said: str, is_lost: bool) -> None:
    path = tmp_path / "page.csv"
    path.write_text(f"{RAW_PAGE}==ERROR== {said}\n")
    (issue,) = [one for one in load(path).issues if said in one.message]
    assert (issue.severity is Severity.ERROR) is is_lost


def test_a_page_whose_language_does_not_show_says_how_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    header = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    row = '"0","9","python.exe","127.0.0.1","ampere_sgemm_128x64_nn","1","7","(512, 1, 1)","(128, 1, 1)",'
    of = '"0","8,6","Command line profiler metrics","gpu__time_duration.sum","ns","117.344"'
    path.write_text(f'{header}"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n{row}{of}\n')
    trace = load(path)
    assert trace.kernels is not None
    assert list(trace.kernels.duration_ns) == [117_344.0]
    assert [issue.code for issue in trace.issues] == ["ncu-csv.language"]
    assert capability_of(trace) == (8, 6)
