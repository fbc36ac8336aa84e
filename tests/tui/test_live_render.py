"""The live panes as text at fixed sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.strip import Strip

from llmtop import ids
from llmtop.analysis.pages.batch_advice import batch_advice
from llmtop.analysis.pages.gpus import gpus_view
from llmtop.analysis.pages.header import header
from llmtop.analysis.pages.lanes import lane_behind, lanes_view
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.analysis.series.histograms import within
from llmtop.analysis.server.lapses import LENGTH_NS
from llmtop.analysis.server.requests import requests_view
from llmtop.analysis.server.view import ServerView, server_view
from llmtop.analysis.threads.shares import Shares, ThreadRow, ThreadsView, threads_view
from llmtop.model import (
    NS_PER_S,
    Fact,
    Finding,
    Issue,
    Missing,
    Origin,
    Severity,
    Trace,
    Track,
    TrackKind,
    Unknown,
    UnknownKind,
    What,
)
from llmtop.tui.panes.base import in_roles
from llmtop.tui.panes.header import draw_header
from llmtop.tui.render.axis import Axis
from llmtop.tui.render.findings import (
    Paragraph,
    diagnosis,
    draw_diagnosis,
    draw_findings,
    finding_paragraphs,
    finding_text,
)
from llmtop.tui.render.gpu import draw_gpus
from llmtop.tui.render.lanes import draw_lanes, resample, tall_spark
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.render.requests import draw_requests
from llmtop.tui.render.server import draw_server
from llmtop.tui.render.threads import draw_threads, heading
from tests.analysis.test_batches import STAIRS, seen
from tests.analysis.test_efficiency import TARGET as LLAMA
from tests.live_traces import AMPERE, NO_GPU, NOTHING, TARGET, Scene, live_trace

LOOK = Look()
STEADY = Scene(is_moving=False)


def text(strips: Sequence[Strip]) -> list[str]:
    return [strip.text.rstrip() for strip in strips]


def server(scene: Scene = STEADY) -> ServerView:
    view = server_view(live_trace(scene))
    assert isinstance(view, ServerView)
    return view


def threads(scene: Scene = STEADY) -> ThreadsView:
    view = threads_view(live_trace(scene))
    assert isinstance(view, ThreadsView)
    return view


# -- server ------------------------------------------------------------------------------------------------------


def test_server_in_a_corner_shows_what_matters_most() -> None:
    assert text(draw_server(server(), 38, 3, LOOK)) == [
        "out  2431 tok/s     run 64 wait 12",
        "TTFT!260 ms/<2.5 s  ITL  23 ms/<50 ms",
        "KV   87 %           in   12100 tok/s",
    ]


def test_server_with_room_adds_graphs() -> None:
    assert text(draw_server(server(), 62, 6, LOOK)) == [
        "output    2431 tok/s     █████  requests  run 64 wait 12 █████",
        "TTFT late 260 ms / < 2.5 s      ITL       23 ms / < 50 ms",
        "KV cache  87 %           ▇▇▇▇▇  prompt    12100 tok/s    █████",
        "preempt   3 /min         ▁▁▁▁▁  finished  38 req/s       █████",
        "queued    170 ms / < 1 s        prefix    41 %",
        "e2e       –                     failed    0 req/s        ▁▁▁▁▁",
    ]


def test_what_was_late_in_some_seconds_alone_stands_with_when_and_not_beside_a_number_that_is_in_time() -> None:
    """ITL p99 of the minute is 30 to 50 ms of 50: what is late is said, and how long ago its seconds ended."""
    view = server()
    by_title = {one.objective.title: one for one in view.objectives}
    ttft, itl = by_title["TTFT p99"], by_title["ITL p99"]
    for ago_ns, when in ((4 * NS_PER_S, "4 s ago"), (NS_PER_S // 2, "just now")):
        seconds = replace(itl, is_met=False, seen=within(0.05, 0.075), window_ns=LENGTH_NS, ago_ns=ago_ns)
        past = replace(view, objectives=(ttft, seconds))
        wide, wider = (text(draw_server(past, width, 6, LOOK))[1] for width in (110, 150))
        assert wider.endswith(f"p99 30 to 50 ms  avg 23 ms  < 75 ms {when}")
        assert wide.endswith(f"ITL late  avg 23 ms  p99 30 to 50 ms  < 75 ms {when}")
        assert text(draw_server(past, 62, 6, LOOK))[1].endswith(f"ITL late  < 75 ms {when}")
    past = replace(view, objectives=(ttft, replace(seconds, ago_ns=4 * NS_PER_S)))
    assert text(draw_server(past, 40, 3, LOOK))[1].endswith("ITL !<75 ms 4 s ago"), "a narrow one"
    assert text(draw_server(past, 38, 3, LOOK))[1].endswith("ITL !< 75 ms"), "and a narrower one"


def test_server_zoomed_judges_objectives_and_says_what_it_is_set_to() -> None:
    told: dict[str, Fact] = {
        "engine_kind": "vllm",
        "setting.max_running": 64,
        "setting.max_running.source": "--max-num-seqs 64",
    }
    trace = live_trace(STEADY)
    track = replace(trace.tracks[ids.server(8000)], facts={**trace.tracks[ids.server(8000)].facts, **told})
    view = server_view(replace(trace, tracks={**trace.tracks, track.id: track}))
    assert isinstance(view, ServerView)
    lines = text(draw_server(view, 110, 30, LOOK))
    assert lines[2] == "TTFT late p50 100 to 250 ms  p99 1 to 2.5 s  avg 260 ms"
    assert "missed      TTFT p99 1 to 2.5 s, objective 500 ms, 10 % later, of 2280 in 60 s (vLLM metrics)" in lines
    assert "kept        ITL p99 30 to 50 ms, objective 50 ms, 1.0 % later, of 2280 in 60 s (vLLM metrics)" in lines
    assert any(line.startswith("cannot tell TTFT p50 100 to 250 ms, objective 200 ms") for line in lines)
    assert lines[lines.index("set to") + 1] == "requests at once, at most 64  --max-num-seqs 64"


def test_what_requests_get_stands_below_the_numbers() -> None:
    trace = live_trace(STEADY)
    found, view = requests_view(trace), server_view(trace)
    assert not isinstance(found, Unknown)
    assert not isinstance(view, Unknown)
    said = draw_requests(found, Unknown("no batch was seen", "look for longer"), 78, LOOK)
    assert text(said) == [
        "",
        "first token   TTFT 260 ms = queue 170 ms + all else 90 ms",
        "goodput       requests 89 to 90 %, tokens 94 % in time (TTFT within 500 ms 90",
        "              %, ITL within 50 ms 99 %)",
        "KV cache      it was full: 2 requests were thrown out in 30 s, none in the",
        "              last 5 s; 87 % now",
        "preemption    a preemption costs about 350 tokens computed again; 3 in 60 s:",
        "              18 tok/s, 0.1 % of the prompt tokens",
        "batch         no batch was seen (look for longer)",
    ]
    drawn = text(draw_server(view, 78, 18, LOOK, said))
    assert len(drawn) == 18
    assert drawn[10:] == text(said)[1:]


def test_batches_stand_with_their_line_and_their_knee() -> None:
    found = requests_view(live_trace(STEADY))
    assert not isinstance(found, Unknown)
    advice = batch_advice(seen(STAIRS), LLAMA)
    assert text(draw_requests(found, advice, 110, LOOK))[-4:] == [
        "ITL at batch  8: 8.8 ms, 16: 9.6 ms, 24 to 32: 11 ms, 48 to 64: 14 ms",
        "              step = 8 ms (± 0 s) + 100 µs (± 0 s) x batch, of 14 looks at batches 8 to 64",
        "batch         knee at batch 170 by ITL p50 25 ms, then 320 by KV cache: 6800 tok/s there, 3600 tok/s at the",
        "              batch of now, 44.5; beyond what was seen",
    ]


def test_server_with_more_room_says_why_numbers_are_missing() -> None:
    assert text(draw_server(server(), 62, 9, LOOK))[6:] == [
        "– prefill time p50, prefill time p99: no reading of prefill",
        "time yet",
        "– decode time p50, decode time p99: no reading of decode time",
    ]


# -- threads -----------------------------------------------------------------------------------------------------


def test_threads_are_bars_that_need_no_colour() -> None:
    assert text(draw_threads(threads(), 78, 4, LOOK)) == [
        "EngineCore       █████████████████▓▓░░░ cpu  78 % rq  9 % futex 13 %",
        "APIServer        ███████░░░░░░░░░░░░░░░ cpu  31 % rq  1 % epoll 68 %",
        "APIServer/ZMQbg… █░░░░░░░░░░░░░░░░░░░░░ cpu   4 % rq  0 % epoll 96 %",
        "2 asleep (1 poll, 1 futex): 4 z shows them",
    ]


def test_threads_with_room_show_roles_first() -> None:
    rows = text(draw_threads(threads(), 78, 7, LOOK))
    assert rows[0] == "EngineCore ×3 0.79 cores   APIServer ×2 0.35 cores"
    assert text(draw_threads(threads(), 49, 7, LOOK))[0] == "cores: EngineCore 0.79   APIServer 0.35"
    assert text(draw_threads(threads(), 36, 7, LOOK))[0] == "cores: EngineCore 0.79"
    sized = replace(threads(), roles=tuple(replace(total, rss=float(1 << 30)) for total in threads().roles))
    for width, shown in (
        (78, "EngineCore ×3 0.79 cores 1.00 GiB   APIServer ×2 0.35 cores 1.00 GiB"),
        (58, "EngineCore ×3 0.79 cores   APIServer ×2 0.35 cores"),
    ):
        assert text(draw_threads(sized, width, 7, LOOK))[0] == shown
    assert text(draw_threads(threads(), 58, 7, LOOK))[1].endswith("futex 13 %")
    assert len(rows) == 5


def row_of(role: str, tid: int, on_cpu: float, cause: str = "futex") -> ThreadRow:
    pid = {"EngineCore": 20, "APIServer": 10}[role]
    return ThreadRow(pid, tid, role.lower(), role, Shares(on_cpu, 0.0, ((cause, 1 - on_cpu),)))


def test_the_main_threads_stand_first_and_sleepers_are_folded() -> None:
    crowd = [row_of("EngineCore", tid, 0.001) for tid in range(21, 90)]
    busy, api, engine = (
        row_of("APIServer", 11, 0.4),
        row_of("APIServer", 10, 0.0, "epoll"),
        row_of("EngineCore", 20, 0.02),
    )
    late = row_of("APIServer", 12, 0.0, "disk")
    view = ThreadsView((busy, *crowd, late, engine, api), (), 10.0, "schedstat")
    shown = text(draw_threads(view, 60, 5, LOOK))
    assert [line[:16].rstrip() for line in shown[:-1]] == ["EngineCore", "APIServer/apise…", "APIServer/apise…"]
    assert shown[1].endswith("futex 60 %")
    assert shown[2].endswith("disk 100 %")
    assert shown[-1] == "70 asleep (69 futex, 1 epoll): 4 z shows them"


POLLER = Shares(0.95, 0.03, (("futex", 0.02),), polling=0.9, in_cuda_sync=0.0, are_causes_exact=True)
WAITER = Shares(0.6, 0.0, (("cuda_sync", 0.3), ("futex", 0.1)), polling=0.0, in_cuda_sync=0.8, are_causes_exact=True)
PROBED = ThreadsView(
    (ThreadRow(1, 1, "Worker_TP0", "", POLLER), ThreadRow(2, 2, "Worker_TP1", "", WAITER)),
    (),
    10.0,
    "schedstat",
    "measured at each sleep (eBPF)",
)


def test_polling_and_waiting_for_the_gpu_are_not_drawn_as_work() -> None:
    assert text(draw_threads(PROBED, 78, 4, LOOK)) == [
        "Worker_TP0       █▞▞▞▞▞▞▞▞▞▞▞▞▞▞▞▞▞▞▞▞▓ cpu  95 % rq  3 % polling 90 %",
        "Worker_TP1       ██▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄░░ cpu  60 % rq  0 % GPU wait 80 %",
    ]
    assert text(draw_threads(PROBED, 78, 4, Look(ASCII)))[0].startswith("Worker_TP0       #~~~~~~~~~~~~~~~~~~~~% cpu")


def test_the_border_says_what_fits_and_how_causes_are_known() -> None:
    full = "2, last 10 s  █ on-CPU  ▞ polling  ▄ GPU wait  ▓ run queue  ░ blocked  causes exact (eBPF)"
    assert said(PROBED, 120) == full
    short = "█ cpu  ▞ poll  ▄ GPU  ▓ queue  ░ blocked"
    assert said(PROBED, 80) == f"2, last 10 s  {short}  exact (eBPF)"
    assert said(PROBED, 65) == f"last 10 s  {short}  exact (eBPF)"
    assert said(PROBED, 60) == f"10 s  {short}  exact (eBPF)", "other panes are of other times"
    assert said(PROBED, 57) == f"{short}  exact (eBPF)"
    assert said(PROBED, 50) == f"10 s  {short}"
    assert said(PROBED, 10) == short
    assert said(threads(), 64) == "5, last 10 s  █ on-CPU  ▓ run queue  ░ blocked  causes sampled"


def test_the_border_of_a_small_terminal_says_in_how_much_of_the_time_sleeps_were_seen() -> None:
    known = [(row, row.shares) for row in PROBED.rows if isinstance(row.shares, Shares)]
    sampled = tuple(replace(row, shares=replace(one, are_causes_exact=False, looked=0.45)) for row, one in known)
    view = replace(PROBED, rows=sampled)
    assert said(view, 100).endswith("  sampled in 45% of the time (eBPF)")
    assert said(view, 68) == "10 s  █ cpu  ▞ poll  ▄ GPU  ▓ queue  ░ blocked  sampled 45% (eBPF)"


def test_the_legend_has_the_colours_of_the_bars() -> None:
    legend = {text.strip(): role for text, role in heading(PROBED, 120, LOOK) if role}
    (row,) = (strip for strip in draw_threads(PROBED, 120, 2, LOOK) if "Worker_TP0" in strip.text)
    for name, role in legend.items():
        drawn = {segment.style for segment in row if segment.text and set(segment.text) == {name[0]}}
        assert drawn <= {LOOK.style(role)}, name
    bordered = in_roles(heading(PROBED, 120, LOOK), LOOK)
    colours = {bordered.plain[span.start : span.end].strip(): span.style for span in bordered.spans}
    assert colours["█ on-CPU"] != colours["▓ run queue"]


def said(view: ThreadsView, width: int) -> str:
    return "".join(part for part, _ in heading(view, width, LOOK))


def test_new_threads_say_that_they_are_new() -> None:
    view = threads_view(live_trace(ticks=1))
    assert isinstance(view, ThreadsView)
    assert "not enough samples yet" in text(draw_threads(view, 78, 4, LOOK))[0]


# -- lanes -------------------------------------------------------------------------------------------------------


def test_lanes_share_columns_and_name_the_top_of_their_scale() -> None:
    rows = text(draw_lanes(lanes_view(live_trace(STEADY, 80)), 60, 9, LOOK))
    assert rows == [
        "DRAM                83 % /100    ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇",
        "tensor              18 % /100    ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂",
        "GPU busy            98 % /100    ███████████████████████████",
        "tokens        2431 tok/s /2431   ███████████████████████████",
        "waiting               12 /12     ███████████████████████████",
        "KV cache            87 % /100    ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇",
        "engine CPU          78 % /100    ▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆",
        "engine run-q       9.0 % /25     ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄",
        "preemption                           ▲                   now",
    ]
    narrow = text(draw_lanes(lanes_view(live_trace(STEADY, 80)), 59, 9, LOOK))
    assert narrow[0].startswith("DRAM                83 % ▇▇")


def test_the_lane_behind_the_headline_stays() -> None:
    view = lanes_view(live_trace(STEADY, 80))
    wanted = lane_behind(view, "run-queue-starvation")
    rows = text(draw_lanes(view, 80, 3, LOOK, first=wanted))
    assert [row[:12].strip() for row in rows[:2]] == ["DRAM", "engine run-q"]


def test_little_room_keeps_one_lane_of_each_kind() -> None:
    rows = text(draw_lanes(lanes_view(live_trace(STEADY, 80)), 60, 4, LOOK))
    assert [row.split()[0] for row in rows] == ["DRAM", "tokens", "engine", "preemption"]


def test_lanes_that_lack_data_for_one_reason_say_it_once() -> None:
    rows = text(draw_lanes(lanes_view(live_trace(NO_GPU)), 90, 8, LOOK))
    assert rows[0].startswith("tokens        2")
    assert rows[5] == "DRAM, tensor, GPU busy  – no NVIDIA driver library was found (install the NVIDIA driver)"
    assert text(draw_lanes(lanes_view(live_trace(NOTHING)), 90, 8, LOOK))[-2].startswith("engine CPU, engine run-q  –")


def test_a_sample_stands_until_the_next_and_then_leaves_a_gap() -> None:
    second = NS_PER_S
    samples = [(0, 1.0), (second, 2.0), (2 * second, None), (3 * second, 4.0)]
    assert resample(samples, 0, 8 * second, 8)[:4] == [1.0, 2.0, None, 4.0]
    assert resample(samples, 0, 8 * second, 8)[-1] is None
    assert resample(samples, 0, 4 * second, 8) == [1.0, 1.0, 2.0, 2.0, None, None, 4.0, 4.0]


def test_several_samples_in_a_column_show_the_largest() -> None:
    assert resample([(0, 1.0), (1, 9.0), (2, None), (3, 2.0)], 0, 4, 1) == [9.0]


def test_axis_moves_by_whole_columns() -> None:
    a = Axis.over(1_000, 61_000, 0, 60)
    assert a == Axis.over(1_000 - 999, 61_000 - 999, 0, 60)
    assert a.end_ns - a.start_ns == 60_000


def test_tall_graph_fills_its_rows_from_below() -> None:
    assert tall_spark([0.0, 50.0, 100.0, None], 4, 2, LOOK, 0.0, 100.0) == ["  █ ", "▁██ "]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, " ▲ d: why  engine waits for a CPU 56 % of the time  → give it cores of its own, or move the others"),
        (80, " ▲ d: why  engine waits for a CPU 56 % of the time  → give it cores of its own…"),
        (52, " ▲ d: why  engine waits for a CPU 56 % of the time"),
        (40, " ▲ engine waits for a CPU 56 % of the…"),
        (30, " ▲ engine waits for a CPU…"),
    ],
)
def test_no_number_of_a_finding_is_cut(width: int, shown: str) -> None:
    what = "engine waits for a CPU 56 % of the time"
    do = "give it cores of its own, or move the others"
    finding = Finding("late", Severity.WARNING, "engine", what, (), do)
    (row,) = text(draw_findings(Diagnosis((finding,)), width, 1, LOOK))
    assert row == shown[:width]


# -- header, findings, diagnosis -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (
            160,
            " llmtop  │ vLLM │ Llama-3.1-8B bf16 │ pid 4242 +1 │ H100 ×1 │ tok/s 2431  │ run 64  wait 12  │ KV 87 %  │ "
            "TTFT late │ live │ self 2.0 %  58 MB",
        ),
        (80, " llmtop  │ vLLM │ tok/s 2431  │ run 64  wait 12  │ KV 87 %  │ TTFT late │ live"),
        (70, " llmtop  │ vLLM │ tok/s 2431  │ run 64  wait 12  │ TTFT late │ live"),
        (40, " llmtop  │ tok/s 2431  │ live"),
        (12, "live"),
    ],
)
def test_header_drops_what_matters_least(width: int, shown: str) -> None:
    assert draw_header(header(live_trace(STEADY), TARGET), ("live", "good"), width, LOOK).text.rstrip() == shown


def test_promises_that_are_kept_leave_the_room_to_others() -> None:
    kept = replace(header(live_trace(STEADY), TARGET), objectives=(("TTFT", True), ("ITL", True)))
    assert "TTFT ok ITL ok │ live" in draw_header(kept, ("live", "good"), 160, LOOK).text
    assert "TTFT" not in draw_header(kept, ("live", "good"), 80, LOOK).text


def test_the_header_says_how_many_gpus_hang_or_are_lost() -> None:
    hung = Unknown("hung: nvmlDeviceGetMemoryInfo has not returned for 9 s", kind=UnknownKind.HUNG)
    lost = Unknown("the GPU is lost: it has fallen off the bus")
    trace = live_trace(replace(STEADY, gpus=3))
    for missing, said in (
        ((Missing(What("gpu:1"), hung),), "×3, 1 hangs "),
        ((Missing(What("gpu:1"), hung), Missing(What("gpu:2"), hung)), "×3, 2 hang "),
        ((Missing(What("gpu:1"), hung), Missing(What("gpu:2"), lost)), "×3, 1 hangs, 1 lost "),
        ((), "×3 "),
    ):
        view = header(replace(trace, missing=missing), replace(TARGET, gpus=(0, 1, 2)))
        assert said in draw_header(view, ("live", "good"), 200, LOOK).text


def test_header_stands_still_while_numbers_grow() -> None:
    view = header(live_trace(STEADY), TARGET)
    assert isinstance(view.server, ServerView)
    few = {"output_tokens_per_s": 7.0, "running": 1.0, "waiting": 0.0, "kv_usage": 0.021}
    small = replace(
        view.server, stats={key: replace(s, value=few.get(key, s.value)) for key, s in view.server.stats.items()}
    )
    for width in range(40, 200, 7):
        lines = [
            draw_header(replace(view, server=one), ("live", "good"), width, LOOK).text for one in (view.server, small)
        ]
        places = [[i for i, character in enumerate(line) if character == "│"] for line in lines]
        assert places[0] == places[1], lines


@pytest.mark.parametrize(("hits", "said"), [(0.0, ""), (0.4, "<1"), (87.0, "87"), (1234.0, "1.2k"), (98765.0, "99k")])
def test_header_tells_how_often_probes_run(hits: float, said: str) -> None:
    view = replace(header(live_trace(STEADY), TARGET), probe_hits=hits)
    shown = draw_header(view, ("live", "good"), 200, LOOK).text.rstrip()
    assert shown.endswith(f"self 2.0 %  58 MB  │ probes {said} hits/s" if said else "self 2.0 %  58 MB")
    assert "hits" not in draw_header(view, ("live", "good"), 120, LOOK).text


def finding(severity: Severity, message: str) -> Finding:
    return Finding("rule", severity, "subject", message, ("evidence (source)",), "do this")


def test_a_server_that_loads_is_said_in_the_header() -> None:
    view = replace(header(live_trace(STEADY), TARGET), server=Unknown("it starts"))
    assert "loading, not ready yet" in draw_header(replace(view, is_starting=True), ("live", "good"), 120, LOOK).text
    assert "no answer yet" in draw_header(replace(view, is_awaited=True), ("live", "good"), 120, LOOK).text
    unseen = draw_header(replace(view, gpus=None), ("live", "good"), 120, LOOK).text
    assert "no GPU" not in unseen
    assert "loading" not in draw_header(view, ("live", "good"), 120, LOOK).text


def test_findings_line_has_a_shape_for_each_severity() -> None:
    rows = [text(draw_findings(Diagnosis((finding(severity, "m"),)), 40, 1, LOOK))[0] for severity in Severity]
    assert rows == [" ● d: why  m  → do this", " ▲ d: why  m  → do this", " ■ d: why  m  → do this"]


def test_silence_on_the_findings_line_says_what_it_means() -> None:
    lacks = (Unjudged("kv-bound", Unknown("no KV usage")),)
    for diagnosed, said in (
        (Diagnosis((), seen_s=15.0), " ● no findings: nothing stands out (why: d)"),
        (Diagnosis((), seen_s=4.0), "   looking (4 s of 15 s seen) (why: d)"),
        (Diagnosis((), lacks, 15.0), "   no verdict: 1 rule lacks data (why: d)"),
        (Diagnosis((), is_about_something=False), "   no verdict: there is no server and no GPU to judge (why: d)"),
    ):
        assert text(draw_findings(diagnosed, 80, 1, LOOK)) == [said]


def test_findings_line_counts_what_it_hides() -> None:
    three = Diagnosis(tuple(finding(Severity.INFO, str(i)) for i in range(3)))
    assert text(draw_findings(three, 40, 1, LOOK)) == [" ● +2 more: d  0  → do this"]
    assert text(draw_findings(three, 40, 2, LOOK)) == [" ● 0  → do this", " ● +1 more: d  1  → do this"]


def test_shares_are_told_with_the_part_of_the_trace_that_they_are_of() -> None:
    """Once, and again where it becomes another; nothing without a share, or where all is looked at."""
    share, other = finding(Severity.INFO, "waits 28 %"), finding(Severity.INFO, "busy 9 %")
    rare = replace(finding(Severity.INFO, "hits 3 %"), window_s=60.0)
    several = (finding(Severity.ERROR, "gone"), share, other, rare)
    shown = text(draw_findings(Diagnosis(several, seen_s=15.0), 60, 4, LOOK))
    assert shown == [
        " ■ gone  → do this",
        " ● last 15 s: waits 28 %  → do this",
        " ● busy 9 %  → do this",
        " ● d: why  last 60 s: hits 3 %  → do this",
    ]
    assert "last" not in " ".join(text(draw_findings(Diagnosis(several, seen_s=14.0), 60, 4, LOOK)))
    (above, *_) = diagnosis(live_trace(STEADY), (), Diagnosis((share,), seen_s=15.0))
    assert above.text == "Of the last 15 s, where no other time is named:"


@pytest.mark.parametrize(
    ("subject", "message", "said"),
    [
        ("EngineCore", "EngineCore waits for a CPU", "EngineCore waits for a CPU"),
        ("EngineCore", "CPU-bound: EngineCore computes", "CPU-bound: EngineCore computes"),
        ("EngineCore", "EngineCore/VLLM fights", "EngineCore: EngineCore/VLLM fights"),
        ("GPU 1", "GPU 10 is hot", "GPU 1: GPU 10 is hot"),
        ("void f<(int)4>(T*)", "void f<(int)4>(T*) waits", "void f<(int)4>(T*) waits"),
        ("vLLM", "KV-bound", "vLLM: KV-bound"),
    ],
)
def test_a_headline_names_its_subject_once(subject: str, message: str, said: str) -> None:
    assert replace(finding(Severity.INFO, message), subject=subject).headline() == said


def test_one_finding_says_what_to_do_on_a_line_of_its_own() -> None:
    one = Diagnosis((finding(Severity.WARNING, "m"),))
    assert text(draw_findings(one, 40, 2, LOOK)) == [" ▲ d: why  m  → do this"]
    assert text(draw_findings(one, 20, 2, LOOK)) == [" ▲ m", "   → do this  d: why"]


def test_what_to_do_about_the_first_finding_comes_before_the_second() -> None:
    wide = finding(Severity.WARNING, "EngineCore waits: 89 % futex, 10 % CPU (waiting 3.5 requests)")
    several = Diagnosis((wide, finding(Severity.WARNING, "TTFT misses its objective"), finding(Severity.INFO, "m")))
    assert text(draw_findings(several, 66, 2, LOOK)) == [
        " ▲ EngineCore waits: 89 % futex, 10 % CPU (waiting 3.5 requests)",
        "   → do this  +2 more: d",
    ]
    assert text(draw_findings(several, 66, 3, LOOK)) == [
        " ▲ EngineCore waits: 89 % futex, 10 % CPU (waiting 3.5 requests)",
        "   → do this",
        " ▲ +1 more: d  TTFT misses its objective  → do this",
    ]


def test_that_there_are_more_findings_is_never_left_out() -> None:
    two = Diagnosis((finding(Severity.WARNING, "a long message with many words"), finding(Severity.INFO, "m")))
    assert text(draw_findings(two, 30, 1, LOOK)) == [" ▲ +1: d  a long message with…"]


def test_diagnosis_wraps_beside_its_labels() -> None:
    issue = Issue(Severity.WARNING, "late", "a poll was late", count=3)
    trace = live_trace(NO_GPU)
    lines = draw_diagnosis(tuple(diagnosis(trace, (issue,), diagnose(trace))), 50, LOOK)
    rows = ["".join(part for part, _ in line) for line in lines]
    assert all(len(row) <= 50 for row in rows)
    assert " ▲ EngineCore waits for a CPU 9 % of the time" in rows
    assert "   do:   others take the CPUs: move them away, or" in rows
    assert "         give the server cores of its own (see" in rows
    assert " nvml: no NVIDIA driver library was found" in rows
    assert " ▲ a poll was late (3 times)" in rows


def test_a_label_that_would_take_the_texts_room_stands_above_it() -> None:
    long = Paragraph(
        "process:460/cgroup.throttled, process:460/cgroup.periods:", "value", "no quota is set here", indent=1
    )
    beside = Paragraph("gpu:0/clock:", "value", "no quota is set here", indent=1)
    rows = ["".join(part for part, _ in line) for line in draw_diagnosis((long, beside), 40, LOOK)]
    assert rows == [
        " process:460/cgroup.throttled,",
        " process:460/cgroup.periods:",
        "   no quota is set here",
        " gpu:0/clock: no quota is set here",
    ]


def test_a_command_names_its_directory_and_a_missing_one_its_reason() -> None:
    """A pane of a file and the live diagnosis say the same, whatever the finding has."""
    anew = replace(finding(Severity.INFO, "m"), next_command="nsys profile serve", no_command="not said beside one")
    without = replace(finding(Severity.INFO, "m"), no_command="the GPU takes this time by itself")
    assert finding_text(anew, "/srv/llm") == (
        ("m  [subject]", "title"),
        ("do: do this", "text"),
        ("next: nsys profile serve", "accent"),
        ("in: /srv/llm", "accent"),
        ("- evidence (source)", "text"),
        ("rule: rule", "dim"),
    )
    for one, directory in ((anew, "/srv/llm"), (without, "")):
        (_, *rows), (_, *texts) = draw_diagnosis(tuple(finding_paragraphs(one, directory)), 80, LOOK), finding_text(one)
        in_place = [" ".join("".join(part for part, _ in row).split()) for row in rows]
        assert [row for row in in_place if row != "in: /srv/llm"] == [said for said, _ in texts]
    assert "no command: the GPU takes this time by itself" in dict(finding_text(without))


def test_the_live_diagnosis_names_the_directory_of_a_command_that_starts_the_server_anew() -> None:
    facts: dict[str, Fact] = {"root": 5, "cmdline": "serve m", "directory": "/srv/llm"}
    tracks = {ids.process(5): Track(ids.process(5), TrackKind.PROCESS, "api", facts=facts)}
    anew, other = (replace(finding(Severity.INFO, "m"), next_command=one) for one in ("nsys profile serve m", "top"))
    trace = Trace(Origin("live"), tracks=tracks)
    (named,) = (one.text for one in diagnosis(trace, (), Diagnosis((anew, other))) if one.label.startswith("in:"))
    assert named == "/srv/llm"


# -- all sizes ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 220), st.integers(1, 60), st.sampled_from([LOOK, Look(ASCII)]))
def test_every_line_has_the_width_it_was_given(width: int, height: int, look: Look) -> None:
    for scene in _SCENES:
        trace = _TRACES[scene]
        drawn = [
            draw_lanes(lanes_view(trace), width, height, look),
            draw_findings(diagnose(trace), width, height, look),
        ]
        if not isinstance(view := server_view(trace), Unknown):
            drawn.append(draw_server(view, width, height, look))
        if not isinstance(rows := threads_view(trace), Unknown):
            drawn.append(draw_threads(rows, width, height, look))
        if not isinstance(devices := gpus_view(trace, TARGET), Unknown):
            drawn.append(draw_gpus(devices, width, height, look))
        drawn.append([draw_header(header(trace, TARGET), ("live", "good"), width, look)])
        for strips in drawn:
            assert len(strips) <= height
            assert {strip.cell_length for strip in strips} <= {width}


_SCENES = ("all", "many", "ampere", "nothing", "hostile")
_TRACES = {
    "all": live_trace(),
    "many": live_trace(Scene(gpus=8), ticks=5),
    "ampere": live_trace(AMPERE, ticks=5),
    "nothing": live_trace(NOTHING),
    "hostile": live_trace(Scene(hostile="内核[/b]é́" * 50), ticks=5),
}
