"""GPU activity from a DCGM exporter: names, units, sentinels, and who is read at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.roofline.live import live_view
from llmtop.collectors.dcgm import DcgmCollector, KnownGpu, gpus_of_nvml
from llmtop.collectors.metrics_http import Page
from llmtop.model import NS_PER_S, Fact, Metric, Origin, Reading, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.session import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llmtop.model import Fact

A100, H100 = "GPU-aaaa", "GPU-bbbb"
AMPERE = {A100: KnownGpu(0, has_gpm=False)}
BLANKS = (140737488355328.0, 140737488355330.0, 9223372036854775792, 9223372036854775794, 2147483632)


def line(name: str, value: object, uuid: str = A100, more: str = "") -> str:
    labels = f'gpu="3",UUID="{uuid}",device="nvidia3",modelName="NVIDIA A100-SXM4-80GB",Hostname="h"{more}'
    return f"{name}{{{labels}}} {value}\n"


PAGE = (
    "# HELP DCGM_FI_PROF_DRAM_ACTIVE Ratio.\n# TYPE DCGM_FI_PROF_DRAM_ACTIVE gauge\n"
    + line("DCGM_FI_PROF_DRAM_ACTIVE", 0.81)
    + line("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.2)
    + line("DCGM_FI_PROF_PCIE_RX_BYTES", 123456789)
    + line("DCGM_FI_DEV_SM_CLOCK", 1410)
    + line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 5_000_000)
    + line("DCGM_FI_DEV_FB_USED", 2048)
)


class Exporter:
    """Answers with `text`, or fails with `error`, and counts how often it was asked."""

    def __init__(self, text: str = PAGE) -> None:
        self.text = text
        self.error: Exception | None = None
        self.asked = 0

    def __call__(self, url: str) -> Page:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Page(200, self.text.encode())


def collector(
    exporter: Exporter, gpus: Mapping[str, KnownGpu] | None = AMPERE, clock: Callable[[], int] = lambda: NS_PER_S
) -> DcgmCollector:
    return DcgmCollector("http://127.0.0.1:9400/metrics", clock, exporter, lambda: gpus)


def values(trace: Trace) -> dict[tuple[TrackId, Metric], float | None]:
    return {(reading.track, reading.metric): reading.value for reading in trace.readings}


def test_profiling_counters_come_under_the_vocabularys_names_and_units() -> None:
    trace = collector(Exporter()).poll()
    read = values(trace)
    assert read[ids.gpu(0), v.GPU_DRAM] == pytest.approx(81)
    assert read[ids.gpu(0), v.GPU_TENSOR] == pytest.approx(20)
    assert read[ids.gpu(0), v.GPU_PCIE_RX] == 123456789
    assert {reading.source for reading in trace.readings} == {"DCGM"}


def test_what_nvml_reads_itself_is_left_to_it() -> None:
    trace = collector(Exporter()).poll()
    assert ("gpu:0", v.GPU_SM_CLOCK) not in values(trace)
    assert not trace.tracks


def test_without_nvml_the_exporters_own_index_and_device_fields_serve() -> None:
    trace = collector(Exporter(), None).poll()
    read = values(trace)
    assert read[ids.gpu(3), v.GPU_SM_CLOCK] == 1410
    assert read[ids.gpu(3), v.GPU_ENERGY] == 5000
    assert read[ids.gpu(3), v.GPU_MEMORY_USED] == 2048 * 2**20
    assert trace.tracks[ids.gpu(3)].facts["name"] == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize("blank", [*BLANKS, 1.01, 87.0, -0.1, "NaN", "+Inf"])
def test_blanks_and_impossible_shares_are_gaps(blank: object) -> None:
    exporter = Exporter(line("DCGM_FI_PROF_DRAM_ACTIVE", blank) + line("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.5))
    read = values(collector(exporter).poll())
    assert read[ids.gpu(0), v.GPU_DRAM] is None
    assert read[ids.gpu(0), v.GPU_TENSOR] == 50


@pytest.mark.parametrize("blank", BLANKS)
def test_blanks_are_gaps_where_large_numbers_are_possible(blank: object) -> None:
    exporter = Exporter(line("DCGM_FI_PROF_NVLINK_RX_BYTES", blank))
    assert values(collector(exporter).poll())[ids.gpu(0), v.GPU_NVLINK_RX] is None


def test_gpus_with_gpm_are_not_asked_of_the_exporter() -> None:
    exporter = Exporter()
    polled = DcgmCollector("http://h/metrics", lambda: NS_PER_S, exporter, lambda: {A100: KnownGpu(0, has_gpm=True)})
    trace = polled.poll()
    assert exporter.asked == 0
    assert polled.rests_until_ns == 31 * NS_PER_S
    assert not trace.readings
    assert not trace.missing


@pytest.mark.parametrize(("gpus", "questions"), [(AMPERE, 1), ({}, 4), (None, 4)])
def test_nvml_is_asked_until_it_has_gpus(gpus: Mapping[str, KnownGpu] | None, questions: int) -> None:
    asked, now = [], [NS_PER_S]

    def ask() -> Mapping[str, KnownGpu] | None:
        asked.append(now[0])
        return gpus

    polled = DcgmCollector("http://h/metrics", lambda: now[0], Exporter(), ask)
    for _ in range(100):
        polled.poll()
        now[0] += NS_PER_S
    assert len(asked) == questions


def test_only_the_gpu_without_gpm_is_read_where_both_are_exported() -> None:
    exporter = Exporter(PAGE + line("DCGM_FI_PROF_DRAM_ACTIVE", 0.5, H100))
    trace = collector(exporter, {**AMPERE, H100: KnownGpu(1, has_gpm=True)}).poll()
    assert {reading.track for reading in trace.readings} == {"gpu:0"}


def test_mig_instances_are_not_taken_for_the_gpu() -> None:
    exporter = Exporter(line("DCGM_FI_PROF_DRAM_ACTIVE", 0.5, more=',GPU_I_ID="1",GPU_I_PROFILE="1g.10gb"'))
    assert not collector(exporter).poll().readings


def test_an_exporter_that_goes_leaves_gaps_and_a_reason_and_is_left_in_peace() -> None:
    exporter, now = Exporter(), [NS_PER_S]
    polled = collector(exporter, clock=lambda: now[0])
    shown = set(values(polled.poll()))
    exporter.error = ConnectionRefusedError()
    now[0] += NS_PER_S
    lost = polled.poll()
    assert values(lost) == dict.fromkeys(shown)
    assert "no DCGM exporter answers" in lost.missing[0].why.reason
    now[0] += NS_PER_S
    assert polled.poll().missing == lost.missing
    assert exporter.asked == 2
    exporter.error = None
    now[0] += 30 * NS_PER_S
    assert set(values(polled.poll())) == shown


def test_no_exporter_is_nobodys_loss_on_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMTOP_DCGM_URL", raising=False)
    exporter = Exporter()
    exporter.error = ConnectionRefusedError()
    assert not DcgmCollector(None, lambda: 0, exporter, lambda: None).poll().missing
    monkeypatch.setenv("LLMTOP_DCGM_URL", "http://elsewhere:9400/metrics")
    why = DcgmCollector(None, lambda: 0, exporter, lambda: None).poll().missing[0].why
    assert "elsewhere" in why.reason


def test_a_counter_that_is_not_exported_is_named_with_the_remedy() -> None:
    missing = collector(Exporter(line("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.5))).poll().missing
    assert [one.what for one in missing] == ["gpu:0/gpu.dram"]
    assert "DCGM_FI_PROF_DRAM_ACTIVE" in missing[0].why.reason


def test_an_exporter_of_another_machine_is_said_so() -> None:
    trace = collector(Exporter(), {"GPU-else": KnownGpu(0, has_gpm=False)}).poll()
    assert not trace.readings
    assert "other GPUs" in trace.missing[0].why.reason


def test_an_address_that_is_not_http_is_refused() -> None:
    why = DcgmCollector("file:///etc/passwd").missing()
    assert why is not None
    assert "http://" in why.reason
    assert DcgmCollector("http://127.0.0.1:9400/metrics").missing() is None


def test_hostile_labels_are_cleaned() -> None:
    text = PAGE.replace("NVIDIA A100-SXM4-80GB", "A100\x1b[2J").replace(A100, "GPU-\x9b")
    trace = collector(Exporter(text), None).poll()
    assert "\x1b" not in trace.tracks[ids.gpu(3)].name
    assert "\x9b" not in str(trace.tracks[ids.gpu(3)].facts["uuid"])


@given(st.binary(max_size=300), st.booleans())
def test_no_page_breaks_the_collector(body: bytes, has_nvml: bool) -> None:
    def fetch(url: str) -> Page:
        return Page(200, b'DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-aaaa"} 0.5\n' + body)

    trace = DcgmCollector("http://h/metrics", lambda: 0, fetch, lambda: AMPERE if has_nvml else None).poll()
    assert all(reading.value is None or 0 <= reading.value < 2.0**47 * 2**20 for reading in trace.readings)


def test_the_roofline_of_an_a100_stands_on_dcgm() -> None:
    """DRAM and one tensor counter from DCGM, the clock from NVML at other times: the point says so."""
    now = [NS_PER_S]
    polled = collector(Exporter(), clock=lambda: now[0])
    facts: dict[str, Fact] = {
        "name": "NVIDIA A100-SXM4-80GB",
        "bus_width_bits": 5120,
        "max_memory_mhz": 1593,
        "max_sm_mhz": 1410,
    }
    track = Track(ids.gpu(0), TrackKind.GPU, "A100", facts=facts)
    recorder = Recorder(Origin("live"))
    for second in range(1, 6):
        now[0] = second * NS_PER_S
        recorder.append("dcgm", polled.poll())
        clock = Reading(ids.gpu(0), v.GPU_SM_CLOCK, now[0] + 1000, 1410.0, "NVML")
        recorder.append("nvml", Trace(Origin("live"), now[0], now[0], tracks={ids.gpu(0): track}, readings=(clock,)))
    view = live_view(recorder.freeze(), ids.gpu(0), "bfloat16")
    assert view.points[0].source == "DCGM"
    assert view.points[0].quality.value == "upper bound"
    assert view.points[0].flops_per_s == pytest.approx(0.2 * 312e12)
    assert view.points[0].bytes_per_s == pytest.approx(0.81 * 5120 / 8 * 1593e6 * 2)
    assert any("one counter for all tensor work" in note for note in view.notes)
    assert any("DCGM exporter" in note for note in view.notes)


@pytest.mark.parametrize(
    ("gpus", "error", "says"),
    [
        (AMPERE, None, "answers at http://127.0.0.1:9400/metrics"),
        (AMPERE, ConnectionRefusedError(), "no DCGM exporter answers"),
        ({A100: KnownGpu(0, has_gpm=True)}, None, "not needed: GPM reads every GPU here"),
    ],
)
def test_doctor_is_told_whether_an_exporter_is_needed_and_there(
    gpus: Mapping[str, KnownGpu], error: Exception | None, says: str
) -> None:
    exporter = Exporter()
    exporter.error = error
    assert says in str(collector(exporter, gpus).look())


def test_doctor_asks_no_exporter_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMTOP_DCGM_URL", raising=False)
    exporter = Exporter()
    assert "no NVIDIA GPU" in str(DcgmCollector(None, lambda: 0, exporter, lambda: None).look())
    assert exporter.asked == 0


def test_a_gpu_of_nvml_is_known_by_its_uuid_where_it_says_both(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Unknown("the driver gives no value")
    facts: list[dict[str, Fact]] = [
        {"uuid": "GPU-a", "index": 0, "gpm": "supported"},
        {"uuid": "GPU-b", "index": 1, "gpm": unknown},
        {"uuid": "GPU-c", "index": unknown, "gpm": "supported"},
        {"uuid": unknown, "index": 3},
        {},
    ]
    tracks = [Track(ids.gpu(i), TrackKind.GPU, "a GPU", facts=one) for i, one in enumerate(facts)]
    monkeypatch.setattr("llmtop.collectors.dcgm.gpus_now", lambda: tracks)
    assert gpus_of_nvml() == {"GPU-a": KnownGpu(0, has_gpm=True), "GPU-b": KnownGpu(1, has_gpm=False)}
    monkeypatch.setattr("llmtop.collectors.dcgm.gpus_now", lambda: None)
    assert gpus_of_nvml() is None
