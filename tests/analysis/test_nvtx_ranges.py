"""Kernels by the NVTX ranges that they were launched in."""

from __future__ import annotations

import sqlite3
from array import array
from contextlib import closing
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.kernels.nvtx_ranges import (
    has_ranges,
    launch_ranges,
    launches_in,
    only_launches,
    only_range,
    range_shares,
)
from llmtop.analysis.kernels.only_where import only_where
from llmtop.analysis.kernels.table import Grouping, kernel_table, kernels_of
from llmtop.cli import main
from llmtop.model import KernelTable, SpanTable, Trace, TrackId, Unknown
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, LLAMA, SAMPLES, TIMELINE, Launch, report, spans

MS = 1_000_000


def ranges(*rows: tuple[str, int, int], track: TrackId = ids.thread(1, 1)) -> SpanTable:
    """NVTX ranges of (name, start, end) on one thread."""
    names = tuple(dict.fromkeys(name for name, _, _ in rows))
    made = spans("nvtx", [(start, end, -1) for _, start, end in rows], track)
    return replace(made, names=names, name_id=array("q", (names.index(name) for name, _, _ in rows)))


def timeline(*nvtx: tuple[str, int, int], launched: tuple[int, ...] = (10, 30, 50, 70)) -> Trace:
    """Kernels of 1 µs that run long after their launches."""
    trace = report(*(Launch(f"k{i}", 1000.0) for i in range(len(launched))), counted=False)
    assert isinstance(trace.kernels, KernelTable)
    kernels = spans("kernel", [(1000 + i * 1000, 2000 + i * 1000, i) for i in range(len(launched))])
    launches = spans("launch", [(at, at + 5, i) for i, at in enumerate(launched)], ids.thread(1, 1))
    table = replace(trace.kernels, start_ns=kernels.start_ns)
    return replace(trace, kernels=table, spans={"kernel": kernels, "launch": launches, "nvtx": ranges(*nvtx)})


def test_a_kernel_belongs_to_the_ranges_that_were_open_at_its_launch() -> None:
    trace = timeline(("step", 0, 60), ("attention", 20, 40), ("mlp", 45, 55))
    assert launch_ranges(trace) == [("step",), ("step", "attention"), ("step", "mlp"), ()]
    shares = {share.name: (share.times, share.launches, share.share) for share in range_shares(trace)}
    assert shares == {"step": (1, 3, 0.75), "attention": (1, 1, 0.25), "mlp": (1, 1, 0.25)}


def test_ranges_that_overlap_without_nesting_are_each_open_for_their_own_time() -> None:
    trace = timeline(("a", 0, 35), ("b", 25, 60))
    assert launch_ranges(trace) == [("a",), ("a", "b"), ("b",), ()]


def test_ranges_of_another_process_are_not_the_launchs() -> None:
    trace = timeline(("step", 0, 100))
    other = {**trace.spans, "nvtx": ranges(("step", 0, 100), track=ids.thread(2, 2))}
    assert not has_ranges(replace(trace, spans=other))


@pytest.mark.parametrize(
    ("wanted", "kernels"), [("mlp", ["k2"]), ("mlp/", ["k2"]), ("ATT", ["k1"]), ("step", ["k0", "k1", "k2"])]
)
def test_one_range_alone(wanted: str, kernels: list[str]) -> None:
    trace = only_range(timeline(("step", 0, 60), ("attention", 20, 40), ("mlp", 45, 55)), wanted)
    assert isinstance(trace, Trace)
    assert trace.kernels is not None
    assert [trace.kernels.name(i) for i in range(len(trace.kernels))] == kernels
    assert not trace.spans
    assert any(wanted in missing.why.reason for missing in trace.missing)


def told_apart(count: int) -> KernelTable:
    """A table in which no launch has a value of another one, in any column that there is."""
    names = {"names": tuple(f"k{i}" for i in range(count)), "functions": ("k",) * count}
    made: dict[str, Any] = {**names, "details": None, "codes": None}
    values = iter(range(1, 10_000))
    for field in fields(KernelTable):
        if field.name not in made:
            code = "d" if "float" in str(field.type) else "q"
            parts = [array(code, islice(values, count)) for _ in range(3 if "tuple" in str(field.type) else 1)]
            made[field.name] = tuple(parts) if len(parts) > 1 else parts[0]
    return KernelTable(**{**made, "name_id": array("q", range(count))})


@given(st.lists(st.integers(0, 9), max_size=12))
def test_each_column_of_chosen_launches_is_that_of_the_same_launches(launches: list[int]) -> None:
    whole = told_apart(10)
    part = only_launches(whole, launches)
    for field in fields(KernelTable):
        full, chosen = (getattr(table, field.name) for table in (whole, part))
        for before, after in zip(
            *((one,) if isinstance(one, array) else one or () for one in (full, chosen)), strict=True
        ):
            if isinstance(before, array):
                assert list(after) == [before[i] for i in launches], field.name
            else:
                assert after == before


@pytest.mark.parametrize("wanted", ["prefill", "decode"])
def test_every_cell_of_a_filtered_table_is_the_same_launchs_of_the_full_one(wanted: str) -> None:
    trace = load(TIMELINE)
    chosen = only_range(trace, wanted)
    assert isinstance(chosen, Trace)
    whole, part = kernels_of(trace), kernels_of(chosen)
    for new, old in enumerate(launches_in(trace, wanted)):
        assert part.facts(new) == whole.facts(old)
        assert (part.short_name(new), part.grid(new), part.block(new)) == (
            whole.short_name(old), whole.grid(old), whole.block(old),
        )  # fmt: skip
        assert part.table.duration_ns[new] == whole.table.duration_ns[old]


def test_a_range_that_is_not_there_names_those_that_are() -> None:
    why = only_range(timeline(("step", 0, 60)), "decode")
    assert why == Unknown('no kernel was launched in a range "decode"', "there are: step")
    assert isinstance(only_range(timeline(), "decode"), Unknown)


def test_the_table_groups_and_filters_by_range_and_adds_up() -> None:
    trace = timeline(("step", 0, 60), ("attention", 20, 40))
    table = kernel_table(trace, Grouping.RANGE)
    assert [table.cells(row)[0] for row in range(len(table))] == ["step", "step > attention", "(in no range)"]
    assert len(kernel_table(trace, Grouping.SHAPE).filtered("nvtx:attention")) == 1
    totals = table.totals()
    assert (totals.rows, totals.launches, totals.total_ns, totals.share) == (3, 4, 4000.0, 1.0)


def test_a_kernel_in_no_range_is_in_none_of_a_name_where_others_are() -> None:
    trace = timeline(("step", 0, 60), ("attention", 20, 40))
    for condition in ("nvtx !~ step", "not nvtx ~ step"):
        chosen = only_where(trace, condition)
        assert isinstance(chosen, Trace)
        assert kernels_of(chosen).table.name(0) == "k3"
        assert len(kernels_of(chosen).table) == 1
    of_none = only_where(timeline(), "nvtx !~ step")
    assert isinstance(of_none, Unknown)
    assert of_none.reason.startswith(
        "nvtx is not known of any of the kernels: no kernel was launched in any NVTX range"
    )


def test_a_filter_knows_the_kinds_of_kernels() -> None:
    trace = report(Launch("void vllm::rms_norm_kernel<c10::BFloat16>(P)"), Launch("step"))
    assert len(kernel_table(trace, Grouping.SHAPE).filtered("norm")) == 1


def test_the_samples_have_the_ranges_that_they_were_captured_with() -> None:
    shares = {share.name: share for share in range_shares(load(TIMELINE))}
    assert set(shares) == {"prefill", "decode"}
    assert shares["decode"].times == 6
    assert shares["prefill"].launches + shares["decode"].launches == sum(share.launches for share in shares.values())
    assert {share.name for share in range_shares(load(LLAMA))} == {"decode"}
    assert {share.name for share in range_shares(load(LADDER))} == {"gemm"}


def test_report_takes_a_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(TIMELINE), "--nvtx", "prefill", "--format", "csv"]) == 0
    prefill = capsys.readouterr().out.splitlines()
    assert main(["report", str(TIMELINE), "--format", "csv"]) == 0
    assert 1 < len(prefill) < len(capsys.readouterr().out.splitlines())
    assert main(["report", str(TIMELINE), "--nvtx", "training"]) == 1
    assert "there are: prefill, decode" in capsys.readouterr().err


def test_the_next_command_counts_launches_of_the_range() -> None:
    trace = only_range(load(LADDER), "gemm")
    assert isinstance(trace, Trace)
    assert "--nvtx" in str(trace.origin.facts["command"])
    assert '--nvtx-include "gemm/"' in str(trace.origin.facts["command"])


def test_kernels_of_ranges_are_those_that_the_database_itself_joins() -> None:
    path = SAMPLES / "h100_llama_prefill_decode.sqlite"
    if not path.exists():
        pytest.skip("the unpacked sample is not here")
    query = """
        SELECT count(*), sum(k."end" - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
        WHERE EXISTS (SELECT 1 FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
                      WHERE coalesce(n.text, s.value) = 'decode' AND n.globalTid = r.globalTid
                      AND n.start <= r.start AND n."end" >= r.start)"""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        count, total_ns = database.execute(query).fetchone()
    decode = {share.name: share for share in range_shares(load(Path(path)))}["decode"]
    assert (decode.launches, decode.total_ns) == (count, total_ns)


NUMBERED = (
    ("aten::addmm, op_id = 1, seq = 9, sizes = [[8, 8]]", 0, 20),
    ("aten::addmm, op_id = 2, seq = 10, sizes = [[8, 8]]", 25, 40),
    ("hook 0x7f00aa", 45, 60),
    ("hook 0x7f00bb", 65, 80),
)


def test_ranges_that_differ_by_numbers_and_addresses_are_one_until_each_is_wanted() -> None:
    trace = timeline(*NUMBERED)
    merged = {share.name: (share.names, share.times, share.launches, share.share) for share in range_shares(trace)}
    assert merged == {"aten::addmm": (2, 2, 2, 0.5), "hook #": (2, 2, 2, 0.5)}
    assert {share.name: share.times for share in range_shares(trace, each=True)} == {name: 1 for name, *_ in NUMBERED}
    assert len(kernel_table(trace, Grouping.RANGE)) == 2
    assert len(kernel_table(trace, Grouping.EACH_RANGE)) == 4


@pytest.mark.parametrize(
    ("wanted", "launches"), [("hook #", 2), ("aten::addmm", 2), (NUMBERED[1][0], 1), ("hook 0x7f00bb", 1)]
)
def test_a_name_without_numbers_finds_all_that_it_stands_for(wanted: str, launches: int) -> None:
    chosen = only_range(timeline(*NUMBERED), wanted)
    assert isinstance(chosen, Trace)
    assert chosen.kernels is not None
    assert len(chosen.kernels) == launches
