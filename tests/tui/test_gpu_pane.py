"""The GPU pane, the processes on the GPUs, and the event log: values, lines, keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from textual.strip import Strip

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.gpus import Gauge, GpusView, gpu_processes_table, gpus_view
from llmtop.model import (
    NS_PER_S,
    Mark,
    MarkKind,
    Missing,
    Severity,
    Trace,
    Track,
    TrackKind,
    Unknown,
    What,
    XidReport,
)
from llmtop.tui.panes.gpu import GpuPane
from llmtop.tui.render.gpu import draw_gpus
from llmtop.tui.render.gpu_table import COLUMNS, Selection, listed
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.render.table import Sort
from llmtop.tui.screens.live import LiveApp
from tests.analysis.test_health import steady, view_of, with_facts, with_value
from tests.live_traces import AMPERE, START_NS, TARGET, Scene, live_trace
from tests.tui.live_app import fixed_app, press, running, session_of

LOOK = Look()
STEADY = Scene(is_moving=False)
ALL = replace(TARGET, gpus=())
LOST = Unknown("the GPU has fallen off the bus", "restart the machine")


def with_mig(trace: Trace) -> Trace:
    """GPU 0 with one MIG instance that has readings of its own."""
    one = Track(ids.gpu_instance(ids.gpu(0), 3), TrackKind.GPU_INSTANCE, "MIG 3", ids.gpu(0), {"profile": "1g.10gb"})
    trace = replace(trace, tracks={**trace.tracks, one.id: one})
    activity = {v.GPU_ACTIVE: 55.0, v.GPU_SM: 40.0, v.GPU_DRAM: 30.0, v.GPU_TENSOR: 5.0}
    for metric, value in (activity | {v.GPU_MEMORY_USED: 8.0 * 2**30}).items():
        trace = with_value(trace, one.id, metric, value)
    return trace


def lines(view: GpusView, width: int, height: int, selection: Selection | None = None, **options: bool) -> list[str]:
    return [strip.text.rstrip() for strip in draw_gpus(view, width, height, LOOK, selection, **options)]


# -- one GPU ---------------------------------------------------------------------------------------------------


def test_one_gpu_in_full() -> None:
    assert lines(view_of(steady()), 62, 8) == [
        "GPU busy   98 % ███████████████████▊ █████████████████████████",
        "DRAM       83 % ████████████████▋    ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇",
        "SM         96 % ███████████████████▏ █████████████████████████",
        "tensor     18 % ███▋                 ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂",
        "mem 71.5/80 GiB  654/700 W  1929 MHz  61 °C  ▲ power cap",
        "decode  0.27 J/token  MFU 23 %  MBU 21 %  (estimates, 15 s)",
        "PCIe rx 400 MB/s       PCIe tx 200 MB/s",
        "    4300 70.2 GiB  EngineCore",
    ]


def test_the_true_clock_leads_and_nvmls_stands_beside_it() -> None:
    rows = lines(view_of(with_value(steady(), ids.gpu(0), v.GPU_SM_CLOCK_TRUE, 1756.0)), 90, 12)
    assert "654/700 W  1756 MHz  (NVML 1929)  61 °C" in rows[4]
    assert any("1756 MHz by GPM's count of cycles; NVML says 1929: 9.9 % high" in row for row in rows)


def test_why_the_true_clock_is_not_known_is_said() -> None:
    why = Unknown("this driver's GPM samples are not understood")
    trace = replace(steady(), missing=(Missing(What("gpu:0/gpu.sm_clock_true"), why),))
    rows = lines(view_of(trace), 90, 12)
    assert "  1929 MHz  " in rows[4]
    assert any(f"1929 MHz, says NVML; true unknown: {why.reason}" in row for row in rows)


def test_little_height_keeps_the_process_before_the_links() -> None:
    rows = lines(view_of(steady()), 62, 7)
    assert rows[5].startswith("decode")
    assert rows[6].endswith("EngineCore")


def test_two_gauges_share_a_line_where_the_process_would_have_none() -> None:
    assert lines(view_of(steady()), 62, 6) == [
        "GPU busy   98 % ██████▉ ██████  DRAM     83 % ██████▋  ▇▇▇▇▇▇▇",
        "SM         96 % ██████▋ ██████  tensor   18 % █▌       ▂▂▂▂▂▂▂",
        "mem 71.5/80 GiB  654/700 W  1929 MHz  61 °C  ▲ power cap",
        "decode  0.27 J/token  MFU 23 %  MBU 21 %  (estimates, 15 s)",
        "PCIe rx 400 MB/s       PCIe tx 200 MB/s",
        "    4300 70.2 GiB  EngineCore",
    ]


def test_two_gauges_share_a_line_where_a_fault_would_have_none() -> None:
    trace = with_facts(steady(), ids.gpu(0), recovery_action="reset the GPU")
    assert lines(view_of(steady()), 62, 7)[1].startswith("DRAM")
    rows = lines(view_of(trace), 62, 7)
    assert rows[1].startswith("SM ")
    assert "recovery  the driver asks: reset the GPU" in rows


def test_what_there_is_no_room_for_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def noted(links: Sequence[Gauge], width: int, look: Look) -> list[Strip]:
        drawn.append(width)
        return []

    monkeypatch.setattr("llmtop.tui.render.gpu._link_lines", noted)
    view = view_of(steady())
    short = lines(view, 62, 7)
    assert not drawn
    assert lines(view, 62, 40)[:6] == short[:6]
    assert drawn == [62]


def test_one_gpu_in_a_corner() -> None:
    rows = [
        "GPU busy   98 % ██  DRAM     83 % ███▍",
        "SM         96 % █▉  tensor   18 % ▊",
        "654/700 W  1929 MHz  ▲ power cap",
    ]
    assert lines(view_of(steady()), 38, 3) == rows
    assert lines(view_of(steady()), 38, 2) == [rows[0], rows[2]], "power and what holds the clock down come first"
    assert lines(view_of(steady()), 38, 1) == [rows[0]]


def test_the_true_clock_keeps_its_place_where_nvmls_has_none() -> None:
    view = view_of(with_value(steady(), ids.gpu(0), v.GPU_SM_CLOCK_TRUE, 1756.0))
    assert lines(view, 38, 3)[2] == "654/700 W  1756 MHz  ▲ power cap"
    assert lines(view, 62, 8)[4] == "mem 71.5/80 GiB  654/700 W  1756 MHz  61 °C  ▲ power cap"


def test_where_nothing_holds_the_clock_down_its_room_is_the_memorys() -> None:
    trace = with_value(steady(), ids.gpu(0), v.GPU_CLOCK_REASONS, 0.0)
    assert lines(view_of(trace), 38, 3)[2] == "mem 71.5/80 GiB  654/700 W  1929 MHz"


def test_what_holds_the_clock_down_is_cut_rather_than_left_out() -> None:
    trace = with_value(steady(), ids.gpu(0), v.GPU_CLOCK_REASONS, float(0x4 | 0x20 | 0x40 | 0x80))
    row = lines(view_of(trace), 38, 3)[2]
    assert row.startswith("654/700 W  ▲ power cap, ")
    assert row.endswith("…")


def test_gpu_without_gpm_says_why() -> None:
    rows = lines(view_of(live_trace(AMPERE)), 62, 6)
    assert rows[0].startswith("GPU busy  100 %")
    assert "GPM needs Hopper or newer (use the server's own estimate:" in rows[2]


def test_a_lost_gpu_says_why() -> None:
    trace = replace(steady(), missing=(Missing(What("gpu:0"), LOST),))
    assert lines(view_of(trace), 70, 6) == ["GPU 0 ■ the GPU has fallen off the bus (restart the machine)"]


def test_zoomed_every_estimate_has_its_source() -> None:
    rows = lines(view_of(steady()), 118, 20, is_zoomed=True)
    assert next(row for row in rows if row.startswith("MFU")).split("  ")[-1].strip().startswith("model estimate:")
    assert any("GPM, " in row and row.startswith("phase") for row in rows)
    assert not any("EngineCore" in row for row in rows)
    assert any("132 SMs, compute capability 9.0" in row for row in rows)


# -- several GPUs ----------------------------------------------------------------------------------------------


def test_several_gpus_are_a_table() -> None:
    assert lines(view_of(steady(2)), 62, 6) == [
        "GPU    busy%         DRAM%  SM%  tens%    W   MHz",
        " 0        98 ██████     83   96     18  654  1929  ▲ power cap",
        " 1        98 ██████     83   96     18  654  1929  ▲ power cap",
        "decode  0.27 J/token  MFU 23 %  MBU 21 %  (estimates, 15 s)",
        "0       4300 70.2 GiB  EngineCore",
        "1       4300 70.2 GiB  EngineCore",
    ]


def test_a_narrow_table_keeps_activity_and_power() -> None:
    assert lines(view_of(steady(2)), 38, 4)[:2] == ["GPU    busy%  DRAM%    W", " 0        98     83  654  ▲ power cap"]


def test_without_gpm_its_columns_leave_their_room_to_others() -> None:
    rows = lines(view_of(live_trace(replace(AMPERE, gpus=2, is_moving=False))), 62, 6)
    assert rows[:2] == [
        "GPU    busy%         mem GiB    W   MHz  °C",
        " 0       100 ██████       72  654  1929  61  ▲ power cap",
    ]
    assert rows[3].startswith("GPM needs Hopper or newer")


def test_one_gpu_with_gpm_keeps_its_columns_for_all() -> None:
    trace = steady(2)
    for metric in (v.GPU_ACTIVE, v.GPU_SM, v.GPU_DRAM, v.GPU_TENSOR):
        trace = with_value(trace, ids.gpu(1), metric, None)
    rows = lines(view_of(trace), 62, 6)
    assert rows[0].split() == ["GPU", "busy%", "DRAM%", "SM%", "tens%", "W", "MHz"]
    assert rows[2].split()[:6] == ["1", "100", "██████", "–", "–", "–"]


def test_titles_of_a_table_stand_apart() -> None:
    view = view_of(steady(2))
    for width in range(38, 120):
        titles = re.split(r" {2,}", lines(view, width, 4)[0])
        assert {"GPU", "busy%", "DRAM%", "W"} <= set(titles) <= {"GPU", *(column.title for column in COLUMNS)}


def test_a_wide_table_has_a_graph_for_each_number() -> None:
    rows = lines(view_of(steady(2)), 190, 12, is_zoomed=True)
    assert rows[0].split() == ["GPU", "busy%", "DRAM%", "SM%", "tens%", "mem", "GiB", "W", "MHz", "°C"]
    assert rows[1].count("█" * 8) >= 2


def test_more_gpus_than_rows_show_those_around_the_cursor() -> None:
    view = view_of(steady(8))
    rows = lines(view, 62, 5, Selection(selected=ids.gpu(5)))
    assert [row.split()[0] for row in rows] == ["GPU", "4", "5", "6", "5"]
    assert rows[-1] == "5 more: arrows move, z zooms"


def test_a_lost_gpu_keeps_its_row_with_the_reason() -> None:
    trace = replace(steady(3), missing=(Missing(What("gpu:1"), LOST),))
    rows = lines(view_of(trace), 62, 6)
    assert rows[2] == " 1   ■ the GPU has fallen off the bus"
    assert rows[1].startswith(" 0 ")
    assert rows[3].startswith(" 2 ")


def test_mig_instances_stand_under_their_gpu() -> None:
    view = view_of(with_mig(steady(2)))
    rows = lines(view, 62, 6)
    assert rows[2].split()[:6] == ["0/3", "55", "▅▅▅▅▅▅", "30", "40", "5"]
    assert rows[2].endswith("MIG 1g.10gb")
    assert rows[3].startswith(" 1 ")
    assert lines(view_of(with_mig(steady(1))), 62, 4)[0].startswith("GPU")


def test_a_straggler_is_marked_and_its_reason_told() -> None:
    trace = with_value(live_trace(Scene(gpus=4, is_moving=False), ticks=40), ids.gpu(2), v.GPU_SM_CLOCK, 1200.0)
    view = gpus_view(trace, ALL)
    assert isinstance(view, GpusView)
    rows = lines(view, 70, 8)
    assert "straggler" in rows[3]
    assert rows[5].startswith("GPU 2 straggler: SM clock 1200 MHz, its 3 peers' 1929 MHz")


def test_faults_are_told_below_the_table() -> None:
    trace = with_facts(steady(2), ids.gpu(1), recovery_action="reset the GPU")
    assert "GPU 1 recovery: the driver asks: reset the GPU" in lines(view_of(trace), 62, 6)


def test_pinned_stands_first_and_unknown_last() -> None:
    trace = steady(3)
    for gpu, value in ((ids.gpu(0), 10.0), (ids.gpu(1), 30.0), (ids.gpu(2), None)):
        trace = with_value(trace, gpu, v.GPU_POWER, value)
    rows = view_of(trace).rows
    by_power = Selection(sort=Sort("power", descending=True))
    assert [row.label for row in listed(rows, by_power)] == ["1", "0", "2"]
    assert [row.label for row in listed(rows, replace(by_power, sort=Sort("power", descending=False)))] == [
        "0",
        "1",
        "2",
    ]
    assert [row.label for row in listed(rows, replace(by_power, pinned=ids.gpu(2)))] == ["2", "1", "0"]
    assert [row.label for row in listed(rows, Selection(sort=Sort("gpu", descending=True)))] == ["2", "1", "0"]


@pytest.mark.parametrize("look", [LOOK, Look(ASCII)])
@pytest.mark.parametrize("gpus", [1, 16])
def test_lines_fit_at_any_size(look: Look, gpus: int) -> None:
    trace = with_mig(live_trace(Scene(gpus=gpus, hostile="内核[/b]é" * 30), ticks=4))
    trace = replace(trace, missing=(Missing(What(f"gpu:{gpus - 1}"), LOST),) if gpus > 1 else ())
    view = view_of(trace)
    selection = Selection(ids.gpu(0), ids.gpu(0), Sort("sm", descending=True))
    for width in (1, 8, 22, 36, 57, 118):
        for height in (1, 3, 5, 9, 58):
            for is_zoomed in (False, True):
                drawn = draw_gpus(view, width, height, look, selection, is_zoomed=is_zoomed)
                assert len(drawn) <= height
                assert {strip.cell_length for strip in drawn} <= {width}


# -- processes -------------------------------------------------------------------------------------------------


def process_rows(trace: Trace) -> list[tuple[object, ...]]:
    table = gpu_processes_table(view_of(trace).rows)
    return [tuple(table.cells(i)) for i in range(len(table))]


def test_processes_have_the_name_of_their_role() -> None:
    ((gpu, pid, process, name, memory, share, seen),) = process_rows(steady())
    assert (gpu, pid, process, name, seen) == ("0", 4300, "EngineCore", "VLLM::EngineCore", "yes")
    assert memory == 70.2 * 2**30
    assert isinstance(share, Unknown)


def test_a_host_pid_of_another_namespace_says_so_and_takes_no_role() -> None:
    why = Unknown("host PID 4300 is not visible in this PID namespace", "run the container with --pid=host")
    trace = with_facts(steady(), ids.gpu_process(ids.gpu(0), 4300), container_pid=why)
    ((_, _, process, name, _, _, seen),) = process_rows(trace)
    assert (process, name, seen) == ("VLLM::EngineCore", None, why)
    assert "not visible" in lines(view_of(trace), 90, 7)[-1]


def test_a_share_of_the_gpus_time_is_shown() -> None:
    trace = with_value(steady(), ids.gpu_process(ids.gpu(0), 4300), v.GPU_PROCESS_SM, 97.0)
    assert process_rows(trace)[0][5] == 97.0
    assert "97 % SM EngineCore" in lines(view_of(trace), 90, 7)[-1]


# -- keys ------------------------------------------------------------------------------------------------------


def gpu_order(app: LiveApp) -> list[str]:
    return [row.label for row in app.live.panes.of_kind(GpuPane).gpus]


async def test_many_gpus_on_a_small_screen_take_the_room_of_the_lanes() -> None:
    app = fixed_app(Scene(gpus=8))
    async with running(app, (80, 24)) as pilot:
        rows = [row for row in app.screen_text().splitlines() if "▲ power cap" in row]
        assert len(rows) == 8
        assert "6 CPU-GPU" not in app.screen_text()
        assert "6 CPU-GPU" in await press(pilot, "6")
        assert "3 GPU" in await press(pilot, "escape")


async def test_the_key_bar_keeps_quit_and_help() -> None:
    app = fixed_app(Scene(gpus=8))
    async with running(app, (80, 24)) as pilot:
        for keys in ((), ("3",), ("e",)):
            assert (await press(pilot, *keys)).splitlines()[-1].endswith("q quit  ? help")


async def test_sixteen_gpus_have_a_line_each() -> None:
    app = fixed_app(Scene(gpus=16))
    async with running(app):
        rows = [row for row in app.screen_text().splitlines() if "1929" in row and "▲ power cap" in row]
        assert len(rows) >= 16
        assert "2471 tok/s" in app.screen_text()


async def test_next_gpu_moves_roofline_and_lanes_and_then_shows_all_together() -> None:
    app = fixed_app(Scene(gpus=2), target=ALL)
    async with running(app) as pilot:
        assert "(gpu:0)" in app.screen_text()
        text = await press(pilot, "n")
        assert "(gpu:1)" in text
        assert "DRAM gpu1" in text
        assert "(2 GPUs together)" in await press(pilot, "n")
        assert "(gpu:0)" in await press(pilot, "n")


async def test_pin_moves_a_gpu_to_the_top_and_into_the_roofline() -> None:
    app = fixed_app(Scene(gpus=4), target=ALL)
    async with running(app) as pilot:
        text = await press(pilot, "3", "down", "down", "p")
        assert gpu_order(app) == ["2", "0", "1", "3"]
        assert "│*2 " in text
        assert "(gpu:2)" in text
        assert "DRAM gpu2" in text
        assert "(gpu:0)" in await press(pilot, "p")
        assert gpu_order(app) == ["0", "1", "2", "3"]


async def test_sorting_by_keys() -> None:
    app = fixed_app(Scene(gpus=3))
    session_of(app).now = with_value(session_of(app).now, ids.gpu(1), v.GPU_SM, 99.5)
    async with running(app) as pilot:
        text = await press(pilot, "3", *["greater_than_sign"] * 3)
        assert gpu_order(app)[0] == "1"
        assert "SM%▼" in text
        await press(pilot, "R")
        assert gpu_order(app)[-1] == "1"


async def test_one_gpu_offers_no_keys_of_a_table() -> None:
    app = fixed_app()
    async with running(app) as pilot:
        assert "pin" not in (await press(pilot, "3")).splitlines()[-1]
    app = fixed_app(Scene(gpus=2))
    async with running(app) as pilot:
        assert "p pin" in (await press(pilot, "3")).splitlines()[-1]


async def test_all_that_is_known_of_a_gpu_is_scrolled_to() -> None:
    app = fixed_app()
    async with running(app, (80, 24)) as pilot:
        assert "lines 1 to" not in await press(pilot, "3", "down")
        text = await press(pilot, "z")
        assert "lines 1 to 11 of " in text
        assert "580.159.04" not in text
        assert "lines 2 to 12 of " in await press(pilot, "down")
        text = await press(pilot, "end")
        assert "580.159.04" in text
        of = text.split("lines 12 to 22 of ")[1].split()[0]
        assert f"3 GPU: {of} lines" in " ".join((await press(pilot, "y")).split()), "copied, not only what is seen"
        assert "lines 12" not in await press(pilot, "z")


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_zoomed_gpus_show_facts_and_processes(size: tuple[int, int]) -> None:
    app = fixed_app()
    async with running(app, size) as pilot:
        text = await press(pilot, "3", "z")
        for words in ("71.5/80 GiB", "model estimate", "Processes on the GPUs", "4300", "EngineCore", "70.2 GiB"):
            assert words in text
        session_of(app).now = live_trace(ticks=94)
        app.live.refresh_trace()
        assert await press(pilot) != text
        assert app.live.table.table.has_focus is False
        await press(pilot, "tab")
        assert app.live.table.table.has_focus


# -- the event log ---------------------------------------------------------------------------------------------

NO_PREEMPTIONS = Scene(values={"server.preemptions": None})
XID = XidReport(79, "the GPU has fallen off the bus", "drain and restart the machine")


def with_events(app: LiveApp) -> None:
    marks = (
        Mark(START_NS + 60 * NS_PER_S, MarkKind.XID, "gpu:0", "XID 79: it has gone", Severity.ERROR, about=XID),
        Mark(
            START_NS + 70 * NS_PER_S,
            MarkKind.PROCESS,
            "process:4300",
            "exited",
            Severity.ERROR,
            "EngineCore (pid 4300)",
        ),
    )
    session_of(app).now = replace(session_of(app).now, marks=marks)


async def test_the_log_lists_events_with_what_to_do() -> None:
    app = fixed_app(NO_PREEMPTIONS)
    with_events(app)
    async with running(app) as pilot:
        text = await press(pilot, "e")
        shown = [line.split()[:2] for line in text.splitlines()[3:6]]
        assert [row[1] for row in shown] == ["19", "29", "89"]
        assert "exited" in text.splitlines()[3]
        assert "XID 79" in text.splitlines()[4]
        assert "drain and restart the machine" in text
        assert "power cap" in text
        text = await press(pilot, "slash", *"xid")
        assert "exited" not in text.split("what to do")[1].splitlines()[1]
        assert "exited" in await press(pilot, "escape")
        assert "1 Roofline" in await press(pilot, "escape")


async def test_enter_goes_to_the_moment_of_an_event() -> None:
    app = fixed_app(NO_PREEMPTIONS)
    with_events(app)
    async with running(app) as pilot:
        text = await press(pilot, "e", "down", "enter")
        assert app.live.time.at_ns == START_NS + 60 * NS_PER_S
        assert "29 s ago" in text
        assert "1 Roofline" in text
        assert "live 1 Hz" in await press(pilot, "escape")


async def test_what_columns_cut_of_an_event_stands_below_the_log() -> None:
    app = fixed_app(NO_PREEMPTIONS)
    with_events(app)
    async with running(app, (80, 24)) as pilot:
        text = await press(pilot, "e", "down")
        assert "drain and restart the machine" not in text.split("GPU 0: XID 79")[0]
        assert "drain and restart the machine" in text.split("GPU 0: XID 79")[1]
        assert "Enter go there" in text


async def test_the_log_of_a_quiet_machine_says_so() -> None:
    app = fixed_app(replace(NO_PREEMPTIONS, values={**NO_PREEMPTIONS.values, "gpu.clock_reasons": 0.0}), ticks=20)
    async with running(app) as pilot:
        assert "nothing has happened since llmtop began to look" in await press(pilot, "e")
        assert "2 Server" in await press(pilot, "2")
