"""`llmtop.load` and `llmtop.table`: what scripts and notebooks use, and what docs/python.md says of it."""

from __future__ import annotations

import csv
import lzma
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import llmtop
from llmtop.analysis.views import Column
from llmtop.errors import UsageError
from llmtop.model import Mark, MarkKind, Origin, Severity, Trace, Unknown
from tests.cli.by_tables import report_by
from tests.kernel_traces import LLAMA, ROOT, TIMELINE
from tests.python.documented import BEGIN, END, OF_ALL_TABLES, PAGE, SAMPLES, examples, frames, tables

UNFUSED = SAMPLES / "ncu/2025.3.1/unfused.ncu-rep.xz"
RECORDING = SAMPLES / "recording/1/demo-server.llmtop.xz"
WHY = Unknown("not counted", "ask for it")
MIXED = llmtop.Frame.of(
    (
        Column("name", "name"),
        Column("time", "time", "ns"),
        Column("calls", "calls", "1"),
        Column("value", "value", "1"),
    ),
    [("a", 1.5, 1, "text"), (WHY, WHY, 2, 3), ("c", None, 1 << 63, 4.5)],
)


# -- what is loaded ----------------------------------------------------------------------------------------------------


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print('\\n'.join(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_to_import_it_loads_nothing_else() -> None:
    assert loaded_by("import llmtop") == {"llmtop"}


@pytest.mark.parametrize("path", OF_ALL_TABLES, ids=lambda path: path.name)
def test_scripts_load_no_screen_and_no_pandas(path: Path) -> None:
    loaded = loaded_by(f"import llmtop; llmtop.table(llmtop.load({str(path)!r}), 'findings')")
    assert "llmtop.analysis.rules.registry" in loaded
    assert not {name.split(".")[0] for name in loaded} & {"textual", "rich", "pandas", "plotext"}


def test_no_table_is_made_before_it_is_asked_for() -> None:
    assert "llmtop.analysis.kernels.table" not in loaded_by(f"import llmtop; llmtop.load({str(UNFUSED)!r})")


def test_what_scripts_use_has_types_and_is_completed() -> None:
    stub = (ROOT / "llmtop/__init__.pyi").read_text()
    typed = {line.split()[-1] for line in stub.splitlines() if line.startswith("from")}
    assert typed == set(dir(llmtop)) & typed == {"FileError", "Frame", "TABLES", "load", "table"}
    assert all(getattr(llmtop, name) is not None for name in typed)
    with pytest.raises(AttributeError, match="module 'llmtop' has no attribute 'nothing'"):
        llmtop.nothing  # type: ignore[attr-defined]  # noqa: B018


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disassembling takes seconds, and no column depends on it."""
    monkeypatch.setattr("llmtop.parsers.disassembly.disassemblers", lambda: iter(()))
    monkeypatch.setattr("llmtop.parsers.ncu_rep.assembly.find_spec", lambda name: None)


def test_the_page_has_the_columns_of_all_tables(no_disassembler: None) -> None:
    """Where it has not: python -m tests.python.documented."""
    found = frames()
    assert all(found.values())
    assert PAGE.read_text().split(BEGIN)[1].split(END)[0] == tables(found)


@pytest.mark.parametrize("number", range(5))
def test_an_example_of_the_page_prints_what_stands_below_it(
    number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(examples()) == 5
    code, printed = examples()[number]
    if "to_pandas" in code:
        pytest.importorskip("pandas", reason="the example is of pandas, which is not installed")
    monkeypatch.chdir(ROOT)
    exec(compile(code, PAGE.name, "exec"), {})
    assert capsys.readouterr().out == printed


# -- what tables hold --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "name", "by"), [(UNFUSED, "lines", "line"), (RECORDING, "series", "series")])
def test_a_table_is_that_of_the_report(path: Path, name: str, by: str) -> None:
    trace = llmtop.load(path)
    frame, (titles, *rows) = llmtop.table(trace, name), csv.reader(report_by(trace, "csv", by).splitlines())
    assert [*frame, "missing"] == titles
    told = [
        ["" if cell is None or isinstance(cell, Unknown) else str(cell) for cell in row.values()]
        for row in frame.rows()
    ]
    assert told == [row[:-1] for row in rows]


@pytest.mark.parametrize(
    ("name", "by"),
    [("warps", "warps"), ("instruction_mix", "mix"), ("pm_samples", "samples"), ("sections", "sections")],
)
def test_a_page_is_that_of_the_report(name: str, by: str) -> None:
    trace = llmtop.load(UNFUSED)
    reported = csv.DictReader(report_by(trace, "csv", by).splitlines())
    for row, told in zip(llmtop.table(trace, name).rows(), reported, strict=True):
        known = {key: "" if cell is None or isinstance(cell, Unknown) else str(cell) for key, cell in row.items()}
        assert known == {key: told[key] for key in known}


def test_every_sample_is_in_its_series() -> None:
    trace = llmtop.load(UNFUSED)
    series = llmtop.table(trace, "pm_series", kernel="elementwise_mul")
    of_one: dict[str, list[float]] = {}
    for metric, value in zip(series["metric"], series["value"], strict=True):
        assert isinstance(value, float)
        of_one.setdefault(str(metric), []).append(value)
    means = llmtop.table(trace, "pm_samples", kernel="elementwise_mul")
    for metric, mean in zip(means["metric"], means["value"], strict=True):
        assert sum(of_one[str(metric)]) / len(of_one[str(metric)]) == pytest.approx(mean)


def test_a_report_without_samples_says_how_to_get_them() -> None:
    with pytest.raises(llmtop.FileError, match=r"samples over the kernel's time not collected \(ncu "):
        llmtop.table(llmtop.load(LLAMA), "pm_series")


def test_levels_are_those_of_the_report() -> None:
    trace = llmtop.load(UNFUSED)
    levels = llmtop.table(trace, "levels")
    reported = list(csv.DictReader(report_by(trace, "csv", "roofline").splitlines()))
    known = ["" if cell is None or isinstance(cell, Unknown) else str(cell) for cell in levels["intensity"]]
    assert known == [row["FLOP/B"] for row in reported]
    assert any(known)
    assert levels.units["peak"] == "bytes/s"


def test_warps_that_failed_are_a_table() -> None:
    (row,) = llmtop.table(llmtop.load(SAMPLES / "cuda-core/13.0/trap.nvcudmp.xz"), "faults").rows()
    assert (row["exception"], row["thread"], row["lanes"]) == ("Trap or breakpoint", "37,0,0", 1)
    (gone,) = llmtop.table(llmtop.load(SAMPLES / "cuda-core/13.0/illegal-store.nvcudmp.xz"), "faults").rows()
    assert str(gone["warp"]) == "the warp had ended before the GPU was read"
    with pytest.raises(llmtop.FileError, match="this is no core dump of a GPU"):
        llmtop.table(llmtop.load(UNFUSED), "faults")


def test_steps_are_those_of_the_report() -> None:
    trace = llmtop.load(str(TIMELINE))
    steps = llmtop.table(trace, "steps")
    reported = list(csv.DictReader(report_by(trace, "csv", "step").splitlines()))
    for name, title in {"start": "start_ns", "wall": "wall_ns", "busy": "busy_ns", "idle": "idle_ns"}.items():
        assert list(steps[name]) == [int(row[title]) for row in reported]
        assert steps.units[name] == "ns"


def test_functions_are_those_of_the_report() -> None:
    trace = llmtop.load(SAMPLES / "perf/6.1.187/three-threads.perf.txt")
    frame, (titles, *rows) = llmtop.table(trace, "functions"), csv.reader(report_by(trace, "csv", None).splitlines())
    assert list(frame) == titles
    assert [[str(cell) for cell in row.values()] for row in frame.rows()] == rows != []


def test_spans_are_all_of_the_timeline() -> None:
    trace = llmtop.load(TIMELINE)
    spans = llmtop.table(trace, "spans")
    assert len(spans) == sum(map(len, trace.spans.values())) == 3120
    told = [t_ns for one in trace.spans.values() for t_ns in zip(one.start_ns, one.end_ns, strict=True)]
    starts, lengths = spans["start"], spans["duration"]
    assert list(zip(starts, lengths, strict=True)) == [(start - trace.start_ns, end - start) for start, end in told]
    first = next(row for row in spans.rows() if row["kind"] == "memset")
    assert (first["bytes"], first["name"], first["track"]) == (4, "memset", "GPU 0 stream 7")


def test_samples_are_all_of_the_recording() -> None:
    trace = llmtop.load(RECORDING)
    samples = llmtop.table(trace, "samples")
    assert len(samples) == sum(map(len, trace.series.values()))
    assert 0 <= min(t for t in samples["time"] if isinstance(t, int)) < trace.end_ns - trace.start_ns


def test_kernels_are_taken_by_their_names(no_disassembler: None) -> None:
    trace = llmtop.load(UNFUSED)
    for name in ("kernels", "metrics", "stalls", "lines", "instructions", "occupancy", "traffic"):
        chosen, all_of_them = llmtop.table(trace, name, kernel="WISE_MUL"), llmtop.table(trace, name)
        which = "kernel" if "kernel" in chosen else "name"
        assert set(chosen[which]) == {"elementwise_mul_kernel"} < set(all_of_them[which]), name
        assert len(chosen) == sum(kernel == "elementwise_mul_kernel" for kernel in all_of_them[which]), name


def test_names_are_found_in_any_case() -> None:
    chosen = llmtop.table(llmtop.load(LLAMA), "stalls", kernel="gemm 64X8 bf16 nvjet")
    assert set(chosen["kernel"]) == {"GEMM 64x8 bf16 nvjet"}


def test_the_shares_of_reasons_to_wait_add_up() -> None:
    trace = llmtop.load(LLAMA)
    shares: dict[object, float] = {}
    for row in llmtop.table(trace, "stalls").rows():
        if not isinstance(share := row["share"], Unknown):
            shares[row["launch"]] = shares.get(row["launch"], 0.0) + float(share or 0)
    assert len(shares) == len(llmtop.table(trace, "kernels"))
    assert list(shares.values()) == pytest.approx([1.0] * len(shares))


def test_an_archive_is_the_report_in_it(tmp_path: Path) -> None:
    archive = tmp_path / "run.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(UNFUSED.stem, lzma.decompress(UNFUSED.read_bytes()))
    packed, plain = (llmtop.table(llmtop.load(path), "kernels") for path in (archive, UNFUSED))
    assert packed == plain


@pytest.mark.parametrize("tool", sorted(folder.name for folder in SAMPLES.iterdir() if folder.is_dir()))
def test_a_file_of_any_tool_has_each_table_or_says_why_not(tool: str) -> None:
    trace = llmtop.load(min((path for path in (SAMPLES / tool).rglob("*") if path.is_file()), key=file_size))
    said: list[str] = []
    for name in llmtop.TABLES:
        try:
            frame = llmtop.table(trace, name)
        except llmtop.FileError as error:
            said.append(str(error))
        else:
            assert len(set(frame)) == len(frame.columns) == len(frame.values)
            assert {len(cells) for cells in frame.values} == {len(frame)}
    assert said
    assert not [one for one in said if "\n" in one]


def file_size(path: Path) -> int:
    return path.stat().st_size


def test_marks_are_told_from_the_beginning_of_the_capture() -> None:
    mark = Mark(1500, MarkKind.XID, "gpu:1", "fell off the bus", Severity.ERROR, "GPU 1:")
    trace = Trace(Origin("recording"), start_ns=1000, end_ns=2000, marks=(mark,))
    (row,) = llmtop.table(trace, "marks").rows()
    assert tuple(row.values()) == (500, "xid", "error", "gpu:1", "GPU 1: fell off the bus")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("nothing that anything knows")
    for path in (tmp_path / "no\nsuch", tmp_path / "text", tmp_path):
        with pytest.raises(llmtop.FileError) as raised:
            llmtop.load(path)
        assert str(tmp_path) in str(raised.value)
        assert "\n" not in str(raised.value)


def test_reports_of_two_runs_are_apart_unless_they_are_said_to_be_of_one() -> None:
    two = [SAMPLES / "kineto/1" / f"{name}.pt.trace.json.gz" for name in ("llama-generate", "graph-and-eager")]
    with pytest.raises(llmtop.FileError, match="; is_together=True takes them as ranks of one run all the same"):
        llmtop.load(*two)
    assert len(llmtop.load(*two, is_together=True).parts) == 2


def test_standard_input_is_refused() -> None:
    with pytest.raises(llmtop.FileError, match="- is standard input"):
        llmtop.load("-")


def test_a_table_that_a_file_cannot_have_says_what_would_bring_it() -> None:
    with pytest.raises(llmtop.FileError, match=r"the report has no timeline \(nsys profile "):
        llmtop.table(llmtop.load(UNFUSED), "steps")
    with pytest.raises(llmtop.FileError, match="a timeline has no counters"):
        llmtop.table(llmtop.load(TIMELINE), "stalls")
    with pytest.raises(llmtop.FileError, match="the capture has no kernels"):
        llmtop.table(llmtop.load(RECORDING), "kernels")


def test_what_is_asked_wrongly_says_what_there_is() -> None:
    trace = llmtop.load(UNFUSED)
    with pytest.raises(UsageError, match=r"no table 'step': there are kernels, metrics, .* steps"):
        llmtop.table(trace, "step")
    with pytest.raises(UsageError, match=r"kernel= goes with kernels, .*, not with findings"):
        llmtop.table(trace, "findings", kernel="mul")
    with pytest.raises(llmtop.FileError, match='no kernel has "nothing" in its name'):
        llmtop.table(trace, "metrics", kernel="nothing")
    with pytest.raises(KeyError, match="no column 'wall': there are name, share"):
        llmtop.table(trace, "kernels")["wall"]


# -- frames ------------------------------------------------------------------------------------------------------------


def test_a_frame_keeps_what_is_not_known() -> None:
    assert repr(MIXED) == "<Frame of 3 rows: name, time (ns), calls, value>"
    assert list(MIXED["time"]) == [1.5, WHY, None]
    assert [row["name"] for row in MIXED.rows()] == ["a", WHY, "c"]
    assert (len(llmtop.Frame.of(MIXED.columns, [])), list(llmtop.Frame.of(MIXED.columns, []))) == (0, list(MIXED))


def test_pandas_is_told_units_and_reasons() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = MIXED.to_pandas()
    assert [str(kind) for kind in frame.dtypes] == ["object", "float64", "uint64", "object", "object"]
    assert [pandas.isna(cell) for cell in frame["time"]] == [False, True, True]
    assert list(frame["missing"]) == ["", f"name: {WHY}; time: {WHY}", ""]
    assert frame.attrs["units"] == {"name": "", "time": "ns", "calls": "1", "value": "1"}


def test_without_pandas_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"^to_pandas needs pandas: pip install pandas$"):
        MIXED.to_pandas()
