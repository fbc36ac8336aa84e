"""Files of several ranks opened as one run: on one clock, with who waits for whom, or said to be apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from llmtop import ids
from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, breakdown
from llmtop.analysis.kernels.communication import communication
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.timeline.rows import rows_by_track, timeline_rows
from llmtop.cli import main
from llmtop.errors import ApartError, FileError
from llmtop.model import ClockBasis, ClockFit, Trace, Unknown
from llmtop.parsers.registry import load
from llmtop.runs import files_of, load_together
from tests.cli.by_tables import report_by
from tests.cli.test_report_by import SCHEMA
from tests.nsys_capture import MS, US, Capture, add_table
from tests.rank_files import BEGAN_NS, NCCL, PlantedClock, RankRun, kineto_file, nsys_file

Writer: TypeAlias = Callable[..., Path]
CLOCKS = (
    PlantedClock(),
    PlantedClock(3_000_000_017, 20e-6, 2 * MS),
    PlantedClock(-1_000_000_000, -15e-6, -3 * MS),
    PlantedClock(500),
)
"""Seconds apart, with drift, and times of day that are wrong by milliseconds."""
NEAR_NS = 2_500
"""How near two clocks come by collectives that ranks leave within 1.5 µs, in files with whole nanoseconds."""


WRITERS: tuple[Writer, ...] = (nsys_file, kineto_file)


@pytest.fixture(params=WRITERS, ids=["nsys", "kineto"])
def write(request: pytest.FixtureRequest) -> Writer:
    writer: Writer = request.param
    return writer


def written(folder: Path, write: Writer, run: RankRun, clocks: Sequence[PlantedClock] = CLOCKS) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, clock in enumerate(clocks):
        write(folder, run, rank, clock)
    return folder


@pytest.fixture
def run() -> RankRun:
    return RankRun.of(4, 60, slow=2)


def fit_of(trace: Trace, rank: int) -> ClockFit:
    clock = trace.parts[rank].clock
    assert isinstance(clock, ClockFit)
    return clock


def test_all_moments_are_those_of_the_true_clock(tmp_path: Path, write: Writer, run: RankRun) -> None:
    trace = load_together([written(tmp_path, write, run)])
    kernels = trace.spans["kernel"]
    zero = kernels.start_ns[0] - run.kernels[0][0][1]
    for rank in range(4):
        own = [
            (kernels.start_ns[i] - zero, kernels.end_ns[i] - zero)
            for i, track in enumerate(kernels.track_id)
            if ids.gpu_of(kernels.tracks[track]) == f"gpu:rank {rank}"
        ]
        true = [(start, end) for _, start, end in run.kernels[rank]]
        assert len(own) == len(true)
        far = [abs(a - b) for shown, told in zip(own, true, strict=True) for a, b in zip(shown, told, strict=True)]
        assert max(far) < NEAR_NS


def test_offset_drift_and_what_is_left_are_told(tmp_path: Path, write: Writer, run: RankRun) -> None:
    trace = load_together([written(tmp_path, write, run)])
    fits = [fit_of(trace, rank) for rank in range(4)]
    assert [fit.basis for fit in fits] == [ClockBasis.FIRST, *[ClockBasis.COLLECTIVES] * 3]
    assert all(fit.matched == 60 and fit.is_sure for fit in fits[1:])
    assert [round(1e6 * fit.drift) for fit in fits] == pytest.approx([0, -20, 15, 0], abs=3)
    assert all(fit.residual_ns is not None and 50 < fit.residual_ns < 1000 for fit in fits[1:])


def test_who_waits_for_whom_is_that_of_the_true_clock(tmp_path: Path, write: Writer, run: RankRun) -> None:
    found = breakdown(load_together([written(tmp_path, write, run)]), By.RANK)
    assert isinstance(found, Breakdown)
    assert [part.name for part in found.parts] == [f"rank {i}" for i in range(4)]
    for rank, part in enumerate(found.parts):
        assert part.met is not None
        assert part.met.operations == 60
        assert part.met.last == run.last(rank)
        assert part.met.waiting_ns == pytest.approx(run.waits(rank), abs=60 * NEAR_NS)
        assert part.met.waited_for_ns == pytest.approx(run.waited_for(rank), abs=180 * NEAR_NS)
        assert part.met.computing_ns == pytest.approx(run.computes(rank), rel=5e-6)
        assert sum(ns for _, ns in part.account.idle) == part.account.gpu_ns - part.account.busy_ns


def test_nothing_of_two_ranks_is_taken_for_the_same(tmp_path: Path, write: Writer, run: RankRun) -> None:
    """All have the same PID, threads, GPU, stream and correlation ids."""
    trace = load_together([written(tmp_path, write, run)])
    spans = trace.spans
    launches, kernels = spans["launch"], spans["kernel"]
    assert len(set(kernels.correlation)) == len(kernels) == 480
    thread_by_join = {join: launches.tracks[t] for join, t in zip(launches.correlation, launches.track_id, strict=True)}
    for join, track in zip(kernels.correlation, kernels.track_id, strict=True):
        stream = kernels.tracks[track]
        assert ids.process_of(thread_by_join[join]) == ids.process_of(stream)
        assert {stream, thread_by_join[join], ids.process_of(stream)} <= trace.tracks.keys()
    assert trace.kernels is not None
    assert len(trace.kernels) == 480
    assert [trace.kernels.name(i) for i in range(480)] == [kernels.names[n] for n in kernels.name_id]
    assert len(set(trace.kernels.device)) == 4


def test_files_that_begin_at_different_collectives_are_laid_beside_each_other(tmp_path: Path, write: Writer) -> None:
    run = RankRun.of(2, 60, slow=1)
    late = RankRun.of(2, 60, slow=1)
    late.kernels[1] = late.kernels[1][14:]
    write(tmp_path, run, 0, PlantedClock())
    write(tmp_path, late, 1, PlantedClock(777_000))
    fit = fit_of(load_together([tmp_path]), 1)
    assert (fit.matched, fit.is_sure) == (53, True)


def test_steps_that_are_all_alike_are_matched_by_the_time_of_day(tmp_path: Path) -> None:
    run = RankRun([[MS] * 40, [2 * MS] * 40], leaves_ns=1)
    late = RankRun([[MS] * 40, [2 * MS] * 40], leaves_ns=1)
    late.kernels[1] = late.kernels[1][10:]
    nsys_file(tmp_path, run, 0, PlantedClock())
    nsys_file(tmp_path, late, 1, PlantedClock(5 * MS, utc_error_ns=100 * US))
    fit = fit_of(load_together([tmp_path]), 1)
    assert fit.offset_ns == pytest.approx(5 * MS, abs=10)
    assert (fit.matched, fit.is_sure) == (35, False)


def test_without_collectives_nothing_is_compared(tmp_path: Path, write: Writer) -> None:
    run = RankRun.of(2, 20, slow=1)
    for rank in range(2):
        run.kernels[rank] = [one for one in run.kernels[rank] if one[0] != NCCL]
    trace = load_together([written(tmp_path, write, run, CLOCKS[:2])])
    assert fit_of(trace, 1).basis is ClockBasis.UTC
    assert communication(trace) == ()
    said = " ".join(report_by(trace, "text", "rank").split())
    assert "by the clocks of several hosts" in said
    assert "who waits for whom is not told" in said


def test_collectives_of_other_groups_are_not_compared(tmp_path: Path) -> None:
    """Ranks that never meet: each group of its own has its own steps."""
    nsys_file(tmp_path, RankRun.of(2, 40, slow=0, seed=1), 0, PlantedClock())
    nsys_file(tmp_path, RankRun.of(2, 40, slow=0, seed=2), 1, PlantedClock())
    trace = load_together([tmp_path])
    assert fit_of(trace, 1).basis is ClockBasis.UTC
    assert [one.matched for one in communication(trace)] == [0, 0]


def test_a_missing_and_a_damaged_rank_are_told_and_cost_only_themselves(
    tmp_path: Path, write: Writer, run: RankRun
) -> None:
    folder = written(tmp_path, write, run)
    first, second, *_ = sorted(folder.iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:99])
    trace = load_together([folder])
    assert [part.name for part in trace.parts] == ["rank 2", "rank 3"]
    said = {issue.code: issue.message for issue in trace.issues}
    assert "no file is of rank 0 and 1" in said["rank-absent"]
    assert second.name in said["rank-unread"]


def test_a_file_that_is_cut_is_matched_by_what_is_left(tmp_path: Path, run: RankRun) -> None:
    folder = written(tmp_path, kineto_file, run)
    cut = folder / "trace-1.pt.trace.json"
    data = cut.read_bytes()
    begins = data.index(b'"traceEvents"')
    cut.write_bytes(data[: begins + (len(data) - begins) // 2])
    fit = fit_of(load_together([folder]), 1)
    assert fit.basis is ClockBasis.COLLECTIVES
    assert 20 < fit.matched < 40


# -- one run or several -----------------------------------------------------------------------------------------------


def test_two_files_of_one_rank_are_apart(tmp_path: Path, write: Writer, run: RankRun) -> None:
    write(tmp_path, run, 1, CLOCKS[0], name=f"a{suffix(write)}")
    write(tmp_path, run, 1, CLOCKS[0], name=f"b{suffix(write)}")
    with pytest.raises(ApartError, match="both are of rank 1"):
        load_together([tmp_path])
    forced = load_together([tmp_path], is_forced=True)
    assert [part.name for part in forced.parts] == ["a", "b"]


def suffix(write: Writer) -> str:
    return ".sqlite" if write is nsys_file else ".json"


def test_runs_of_other_sizes_and_of_other_days_are_apart(tmp_path: Path, write: Writer, run: RankRun) -> None:
    write(tmp_path, run, 0, PlantedClock())
    other = write(tmp_path, run, 1, PlantedClock(), size=8)
    with pytest.raises(ApartError, match="runs of 4 and 8 ranks"):
        load_together([tmp_path])
    other.unlink()
    write(tmp_path, run, 1, PlantedClock(utc_error_ns=86_400_000_000_000))
    with pytest.raises(ApartError, match="begins 23 h after the others ended"):
        load_together([tmp_path])


def test_ranks_that_no_file_tells_are_those_of_its_name(tmp_path: Path, run: RankRun) -> None:
    for rank, clock in enumerate(CLOCKS):
        kineto_file(tmp_path, run, rank, clock, name=f"1763-TP-{rank}.trace.json", told=False)
    assert [part.name for part in load_together([tmp_path]).parts] == [f"rank {i}" for i in range(4)]


def test_files_without_ranks_are_one_run_by_their_collectives(tmp_path: Path, run: RankRun) -> None:
    for rank, name in enumerate("abcd"):
        kineto_file(tmp_path, run, rank, CLOCKS[rank], name=f"host-{name}.json", told=False)
    assert [part.name for part in load_together([tmp_path]).parts] == [f"host-{name}" for name in "abcd"]
    kineto_file(tmp_path, RankRun.of(2, 40, slow=0, seed=5), 0, CLOCKS[0], name="stranger.json", told=False)
    with pytest.raises(ApartError, match=r"nothing says that stranger\.json is of one run"):
        load_together([tmp_path])


def test_reports_of_two_tools_are_never_one(tmp_path: Path, run: RankRun) -> None:
    nsys_file(tmp_path, run, 0, CLOCKS[0])
    kineto_file(tmp_path, run, 1, CLOCKS[1])
    with pytest.raises(ApartError, match="several tools") as refused:
        load_together([tmp_path], is_forced=True)
    assert refused.value.is_final


def test_of_a_report_and_its_export_one_is_read(tmp_path: Path) -> None:
    for name in ("a.sqlite", "a.nsys-rep", "b.nsys-rep", "notes.txt", ".hidden.json", "c.json.gz"):
        (tmp_path / name).write_bytes(b"x")
    assert [path.name for path in files_of([tmp_path])] == ["a.sqlite", "b.nsys-rep", "c.json.gz"]


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_the_table_of_ranks_stands_in_every_format(tmp_path: Path, run: RankRun, kind: str) -> None:
    trace = load_together([written(tmp_path, nsys_file, run)])
    said = report_by(trace, kind, "rank").replace("\\", "")
    assert "Time by rank" in said
    for part in (
        "rank 2, last at 60 of 60 collectives",
        "scaling tax: 33 % of the time of 4 GPUs",
        "imbalance of computing: largest / mean 1.33",
        "clock of rank 1",
    ):
        assert part in " ".join(said.split())


def test_the_document_of_a_run_follows_the_schema(
    tmp_path: Path, write: Writer, run: RankRun, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, write, run)
    assert main(["report", *map(str, sorted(folder.iterdir())), "--by", "rank", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    SCHEMA.validate(found)
    assert [(row["name"], row["last"]) for row in found["by"]["rows"]] == [
        ("rank 0", 0), ("rank 1", 0), ("rank 2", 60), ("rank 3", 0),
    ]  # fmt: skip
    rows, tax = found["by"]["rows"], found["by"]["scaling_tax"]
    whole_ns = sum(row["gpu_ns"] for row in rows)
    assert tax["share"] == pytest.approx(sum(row["exposed_ns"] for row in rows) / whole_ns)
    waits_ns = sum(run.waits(rank) for rank in range(4))
    assert tax["waiting"] == pytest.approx(waits_ns / whole_ns, rel=0.01)
    assert tax["waiting"] < tax["share"] < 0.5


def test_reports_apart_are_refused_with_the_way_to_go_on(
    tmp_path: Path, run: RankRun, capsys: pytest.CaptureFixture[str]
) -> None:
    one = nsys_file(tmp_path, run, 1, CLOCKS[0], name="a.sqlite")
    two = nsys_file(tmp_path, run, 1, CLOCKS[0], name="b.sqlite")
    assert main(["report", str(one), str(two)]) == 1
    assert "--together takes them as ranks of one run" in capsys.readouterr().err
    assert main(["report", "--together", str(one), str(two)]) == 0


def test_a_part_of_the_time_keeps_the_ranks(tmp_path: Path, run: RankRun, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path, nsys_file, run)
    assert main(["report", str(folder), "--by", "rank", "--range", "10ms:40ms"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "rank 2, last at" in said


def test_a_folder_with_one_file_is_that_file(tmp_path: Path, run: RankRun) -> None:
    only = nsys_file(tmp_path, run, 0, CLOCKS[0])
    trace = load_together([tmp_path])
    assert trace.parts == ()
    assert len(trace.spans["kernel"]) == len(load(only).spans["kernel"])


def test_the_straggler_is_a_finding_that_says_how_clocks_were_compared(
    tmp_path: Path, write: Writer, run: RankRun
) -> None:
    trace = load_together([written(tmp_path, write, run)])
    (finding,) = [one for one in diagnose(trace).findings if one.rule == "exposed-communication"]
    assert finding.message.endswith("mostly for rank 2")
    assert finding.action.startswith("rank 2 computes 50 % longer than any other")
    assert any("3 of 3 brought onto that of rank 0 by collectives" in one for one in finding.evidence)


def test_rows_of_ranks_stand_in_their_order(tmp_path: Path, run: RankRun) -> None:
    trace = load_together([written(tmp_path, nsys_file, run)])
    spans = {kind: trace.spans[kind] for kind in ("kernel", "launch")}
    rows = timeline_rows(trace, spans, {kind: rows_by_track(table) for kind, table in spans.items()})
    gpus = [row.title for row in rows if "stream" in row.title]
    assert gpus == [f"rank {i} stream 7" for i in range(4)]


def test_forced_together_times_of_other_days_place_nothing(tmp_path: Path, write: Writer) -> None:
    write(tmp_path, RankRun.of(2, 40, slow=0, seed=1), 0, PlantedClock())
    write(tmp_path, RankRun.of(2, 40, slow=0, seed=2), 1, PlantedClock(utc_error_ns=86_400_000_000_000))
    trace = load_together([tmp_path], is_forced=True)
    clock = trace.parts[1].clock
    assert isinstance(clock, Unknown)
    assert "its time of day is 86399 s from that of the first file" in clock.reason
    assert trace.end_ns - trace.start_ns < 200 * MS


def test_collectives_that_are_alike_only_at_the_beginning_are_not_matched(tmp_path: Path) -> None:
    """After warming up together each rank goes on with operations of its own."""
    run = RankRun.of(2, 900, slow=1)
    own = [
        (NCCL.replace("AllReduce", "ReduceScatter") if name == NCCL else name, a, b) for name, a, b in run.kernels[1]
    ]
    run.kernels[1][600:] = own[600:]
    for rank in range(2):
        nsys_file(tmp_path, run, rank, PlantedClock())
    trace = load_together([tmp_path])
    assert fit_of(trace, 1).basis is ClockBasis.UTC


def test_without_a_common_clock_a_rank_that_computes_longer_is_told_by_that(tmp_path: Path, write: Writer) -> None:
    """Each rank was recorded in steps of its own: collectives are there, and match nowhere."""
    for rank in range(3):
        write(tmp_path, RankRun.of(3, 40, slow=1, seed=rank), rank, PlantedClock())
    found = [one for one in diagnose(load_together([tmp_path])).findings if "rank 1" in one.message]
    assert [one.rule for one in found] == ["rank-imbalance"]
    assert any("0 of 2 brought onto that of rank 0" in one for one in found[0].evidence)
    alone = {rank: RankRun.of(3, 40, slow=1, seed=rank).computes(rank) for rank in range(3)}
    assert found[0].at_stake_ns == pytest.approx(alone[1] - (alone[0] + alone[2]) / 2, rel=1e-6)


def test_ranks_that_compute_alike_are_no_finding(tmp_path: Path) -> None:
    for rank in range(3):
        nsys_file(tmp_path, RankRun.of(3, 40, slow=1, by=1.0, seed=9 - rank), rank, PlantedClock())
    trace = load_together([tmp_path])
    assert not [one for one in diagnose(trace).findings if one.rule == "rank-imbalance"]


def test_files_of_whole_nodes_are_called_by_their_hosts(tmp_path: Path) -> None:
    """One nsys a node: each file has the two GPUs of a node, and no rank."""
    run = RankRun.of(4, 40, slow=2)
    for node in range(2):
        made = Capture()
        for gpu in range(2):
            for kernel, start, end in run.kernels[2 * node + gpu]:
                call = made.call("cudaLaunchKernel", start - 20 * US, start - 10 * US)
                made.kernel(start + node * 999, end + node * 999, call, kernel, gpu=gpu)
        began = "utcEpochNs utcTime:TEXT localTime:TEXT"
        path = made.write(tmp_path / f"node{node}.sqlite")
        add_table(path, "TARGET_INFO_SESSION_START_TIME", began, (BEGAN_NS, "2025", "2025"))
        add_table(path, "META_DATA_CAPTURE", "name:TEXT value:TEXT", ("DEVICE_DISPLAY_NAME", f"gpu-{node}.example.org"))
    trace = load_together([tmp_path])
    found = breakdown(trace, By.RANK)
    assert isinstance(found, Breakdown)
    assert [part.name for part in found.parts] == [f"gpu-{node} GPU {gpu}" for node in range(2) for gpu in range(2)]
    assert [None if part.met is None else part.met.last for part in found.parts] == [0, 0, 40, 0]
    assert [part.name for part in trace.parts] == ["gpu-0", "gpu-1"]


def test_runs_one_after_the_other_on_one_host_are_apart(tmp_path: Path) -> None:
    """Before and after a change, a second apart: all but the time of day is alike."""
    run = RankRun.of(1, 40, slow=0)
    for name, later in (("before", 0), ("after", 1_000_000_000)):
        path = nsys_file(tmp_path, run, 0, PlantedClock(utc_error_ns=later), name=f"{name}.sqlite", env=False)
        assert path.exists()
    with pytest.raises(ApartError, match="nothing says that"):
        load_together([tmp_path / "before.sqlite", tmp_path / "after.sqlite"])


def test_a_folder_without_timelines_or_with_too_many_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder without reports"):
        files_of([tmp_path])
    for i in range(257):
        (tmp_path / f"{i}.json").touch()
    with pytest.raises(FileError, match="holds 257 timelines: give at most 256"):
        files_of([tmp_path])
    (tmp_path / "0.json").unlink()
    assert len(files_of([tmp_path])) == 256


@pytest.mark.parametrize("text", ['{"a": {"b": 1}}', "[1, 2]", "not JSON at all"])
def test_files_of_a_folder_that_are_no_reports_are_skipped_and_counted(tmp_path: Path, run: RankRun, text: str) -> None:
    folder = written(tmp_path / "run", kineto_file, run)
    whole = len(load_together([folder]).parts)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text(text)
    trace = load_together([folder])
    assert len(trace.parts) == whole
    said = [issue.message for issue in trace.issues if issue.code in ("files-foreign", "rank-unread")]
    assert said == ["2 files of the folder are no reports, and skipped"]


def test_a_folder_of_files_that_are_no_reports_says_so_once(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text('{"a": 1}')
    with pytest.raises(FileError, match=r"has no report: none of its 2 files is one$"):
        load_together([tmp_path])


@pytest.mark.parametrize("text", ['{"a": 1}', '[{"id": 1}]', '{"traceEvents": []}'])
def test_json_beside_a_report_of_another_kind_does_not_hide_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "report.folded").write_text("main;step 3\n")
    assert load_together([tmp_path]).origin.path == str(tmp_path / "report.folded")


def test_a_trace_beside_a_report_of_another_kind_is_what_the_folder_is_of(tmp_path: Path, run: RankRun) -> None:
    folder = written(tmp_path / "run", kineto_file, run)
    (folder / "report.folded").write_text("main;step 3\n")
    assert files_of([folder]) == sorted(folder.glob("*.json"))
