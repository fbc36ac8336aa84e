"""What a step of several GPUs communicates at least, by hand and by the chapter's own sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.gpus.links import peer_bandwidth
from llmtop.analysis.gpus.scaling import ALL_REDUCE_BEGINS_S, ring_bytes, scaling_tax
from llmtop.analysis.pages.budget_gains import budget_gains
from llmtop.analysis.pages.budget_terms import BudgetPart, BudgetTerm
from llmtop.analysis.pages.token_budget import TokenBudget, token_budget
from llmtop.analysis.series.readings import gpu_tracks
from llmtop.analysis.views import Quality
from llmtop.facts import SETTINGS_OF
from llmtop.model import Fact, Feature, Metric, Quantity, Target, Trace, TrackId, Unknown
from llmtop.settings import keys_of
from tests.analysis.llama_on_h100 import H100
from tests.analysis.test_budget_gains import step_of
from tests.analysis.test_efficiency import GPU_GAUGES, TARGET, trace_of
from tests.analysis.verdict_scenes import Scene, ranks

# -- the chapter's sums ----------------------------------------------------------------------------------------------


def test_an_all_reduce_of_one_request_sends_32_8_kb_and_of_64_2_1_mb() -> None:
    """70B on 8 H100: 2 x 8192 x B x 2 bytes, the most that any number of ranks sends; at 900 GB/s 36.4 ns, 2.3 us."""
    one, many = (ring_bytes(8192 * batch * 2, 1e9) for batch in (1, 64))
    assert (one, many) == pytest.approx((32.8e3, 2.1e6), rel=0.01)
    assert (one / 900e9, many / 900e9) == pytest.approx((36.4e-9, 2.3e-6), rel=0.02)
    assert 100 < ALL_REDUCE_BEGINS_S / (one / 900e9) < 150


def test_gradients_of_16_1_gb_take_62_5_ms_over_nvlink() -> None:
    """2 (N - 1) / N is 1.75 for eight GPUs; 450 GB/s each way."""
    assert ring_bytes(1.0, 8) == 1.75
    assert ring_bytes(16.1e9, 8) / 450e9 == pytest.approx(62.5e-3, rel=0.01)


def test_a_fleet_at_48_percent_of_nodes_at_65_pays_a_tax_of_26_2() -> None:
    """Napkin math 1.5."""
    assert round(scaling_tax(0.48, 0.65), 3) == 0.262


# -- how fast GPUs reach each other ----------------------------------------------------------------------------------


def two(facts: Mapping[str, Fact], gauges: Mapping[Metric, float], settings: Mapping[str, Fact]) -> Trace:
    """A server over two GPUs that are connected somehow."""
    whole = trace_of(2, gauges={**GPU_GAUGES, **gauges}, facts=dict(settings))
    gpus = {track.id: replace(track, facts={**track.facts, **facts}) for track in gpu_tracks(whole)}
    return replace(whole, tracks={**whole.tracks, **gpus})


NO_NVLINK = Unknown("the driver shows no NVLink of this GPU")
BY_PCIE: dict[str, Fact] = {"pcie_max_generation": 4, "pcie_max_width": 16}


@pytest.mark.parametrize(
    ("name", "facts", "up", "gb_per_s", "source"),
    [
        ("NVIDIA H100 80GB HBM3", {"nvlinks": 18}, 18.0, 450.0, "18 NVLinks"),
        ("NVIDIA H100 80GB HBM3", {"nvlinks": 18}, 9.0, 225.0, "9 NVLinks"),
        ("NVIDIA A100-SXM4-80GB", {"nvlinks": 12}, 12.0, 300.0, "12 NVLinks"),
        ("NVIDIA B200", {"nvlinks": 18}, 18.0, 900.0, "18 NVLinks"),
        ("NVIDIA RTX A6000", {"nvlinks": 4}, 4.0, 56.25, "4 NVLinks"),
        ("NVIDIA A100 80GB PCIe", {"nvlinks": 12, **BY_PCIE}, 0.0, 31.5, "PCIe gen 4 x16"),
        ("NVIDIA L4", {"nvlinks": NO_NVLINK, **BY_PCIE}, None, 31.5, "PCIe gen 4 x16"),
    ],
)
def test_the_links_that_are_up_tell_how_fast(
    name: str, facts: dict[str, Fact], up: float | None, gb_per_s: float, source: str
) -> None:
    gauges = {} if up is None else {v.GPU_NVLINK_ACTIVE: up}
    trace = two({"name": name, **facts}, gauges, {})
    found = peer_bandwidth(trace, gpu_tracks(trace))
    assert isinstance(found, Quantity), found
    assert (round(float(found.value) / 1e9, 2), found.source) == (gb_per_s, source)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"nvlinks": NO_NVLINK, **BY_PCIE},
        {"name": "NVIDIA L4"},
        {"name": "an unknown GPU", "nvlinks": 4},
    ],
)
def test_how_fast_is_not_guessed(facts: dict[str, Fact]) -> None:
    """An H100 has links or a bridge or neither; the driver has to say."""
    trace = two(facts, {v.GPU_NVLINK_ACTIVE: 4.0} if facts.get("nvlinks") == 4 else {}, {})
    assert isinstance(peer_bandwidth(trace, gpu_tracks(trace)), Unknown)


# -- the term --------------------------------------------------------------------------------------------------------

STEP_S = 1 / 31.25
TOKENS = (2000 + 6000 - 1000) / 31.25
TWO = replace(TARGET, gpus=(0, 1))
LINKS: dict[str, Fact] = {"nvlinks": 18}


def budget(
    gauges: Mapping[Metric, float] | None = None,
    target: Target = TWO,
    facts: Mapping[str, Fact] = LINKS,
    settings: Mapping[str, Fact] | None = None,
) -> TokenBudget:
    found = token_budget(two(facts, {v.GPU_NVLINK_ACTIVE: 18.0, **(gauges or {})}, settings or {}), target)
    assert isinstance(found, TokenBudget), found
    return found


def sent(found: TokenBudget) -> BudgetTerm | None:
    return next((term for term in found.terms if term.part is BudgetPart.COMMUNICATION), None)


def test_two_all_reduces_a_layer_and_what_they_send() -> None:
    """32 layers of width 4096 in 16 bits; with two ranks a rank sends each of 224 tokens' sums once."""
    found = budget()
    term = sent(found)
    assert term is not None
    wire_s = 64 * TOKENS * 4096 * 2 / 450e9
    assert term.seconds == pytest.approx(64 * 5e-6 + wire_s)
    assert term.quality is Quality.LOWER_BOUND
    assert [words for words, _ in term.details] == [
        "64 all-reduces of 5 µs and more",
        "112 MiB by the model's shape at 450 GB/s of 18 NVLinks",
    ]
    assert sum(one.seconds for one in found.terms) == pytest.approx(found.step_s)
    rest_s = found.terms[-1].seconds
    assert found.scaling_tax == pytest.approx((term.seconds / STEP_S, (term.seconds + rest_s) / STEP_S))
    assert any(note.startswith("scaling tax of 2 GPUs: 1.8 % at least, 89 %") for note in found.notes)


def test_counters_of_nvlink_tell_the_bytes_where_they_count() -> None:
    counted = sent(budget({v.GPU_NVLINK_TX: 45e9, v.GPU_NVLINK_RX: 40e9}))
    assert counted is not None
    assert counted.seconds == pytest.approx(64 * 5e-6 + 0.1 * STEP_S)
    assert "1.34 GiB counted by NVLink" in counted.source
    still = sent(budget({v.GPU_NVLINK_TX: 0.0, v.GPU_NVLINK_RX: 0.0}))
    assert still is not None
    assert "by the model's shape" in still.source


def test_of_a_model_that_has_no_configuration_only_what_was_counted_is_known() -> None:
    named = replace(TWO, config={}, model="Llama-3.1-8B")
    term = sent(budget({v.GPU_NVLINK_TX: 45e9, v.GPU_NVLINK_RX: 40e9}, named))
    assert term is not None
    assert term.seconds == pytest.approx(0.1 * STEP_S)
    found = budget(target=named)
    assert sent(found) is None
    assert any(
        note.startswith("communication is within the rest: the model's layers are not known") for note in found.notes
    )


def test_without_the_links_only_that_all_reduces_begin_is_known() -> None:
    term = sent(budget(facts={}))
    assert term is not None
    assert term.seconds == pytest.approx(64 * 5e-6)


def tensor_parallel(size: int) -> dict[str, Fact]:
    keys = keys_of(Feature.TENSOR_PARALLEL)
    return {SETTINGS_OF: "vllm", keys.value: size, keys.source: "told"}


def test_one_gpu_and_whole_replicas_communicate_nothing() -> None:
    alone = token_budget(trace_of(), TARGET)
    assert isinstance(alone, TokenBudget)
    replicas = budget(settings=tensor_parallel(1))
    for found in (alone, replicas):
        assert sent(found) is None
        assert isinstance(found.scaling_tax, Unknown)
    assert not any("replica" in note for note in alone.notes)
    assert any("tensor parallelism is 1" in note for note in replicas.notes)
    assert sent(budget(settings=tensor_parallel(2))) is not None


def late(*syncs: float, counters: Mapping[tuple[TrackId, Metric], float] | None = None) -> TokenBudget:
    """A server of two GPUs whose ranks are under probes, at 31.25 steps a second."""
    gauges = {(ids.gpu(i), v.GPU_NVLINK_ACTIVE): 18.0 for i in range(2)}
    scene = Scene(threads=ranks(*syncs), gpus=(95.0, 95.0), gauges=gauges, counters=counters or {}, steps=31.25)
    trace = scene.trace()
    gpus = {track.id: replace(track, facts={**H100, **LINKS}) for track in gpu_tracks(trace)}
    found = token_budget(replace(trace, tracks={**trace.tracks, **gpus}), TWO)
    assert isinstance(found, TokenBudget), found
    return found


def test_a_late_rank_lets_the_others_gpus_stand_in_collectives() -> None:
    """It waits half of the time less than its peer, whose GPU stands for that; its own GPU is idle meanwhile."""
    term, usual = (sent(late(*syncs)) for syncs in ((0.4, 0.9), (0.9, 0.9)))
    assert term is not None
    assert usual is not None
    assert term.waiting_s == pytest.approx(0.5 / 2 * STEP_S, rel=0.01)
    assert usual.waiting_s == 0
    assert term.seconds - term.waiting_s == pytest.approx(usual.seconds)
    assert term.details[0][0] == "waiting for Worker_TP0 (eBPF)"


def test_calls_of_nccl_are_counted_and_not_taken_for_the_gpus_time() -> None:
    process = ids.process(100)
    counters = {
        (process, v.labelled(v.LIBRARY_COUNT, "ncclAllReduce")): 64 * 31.25,
        (process, v.labelled(v.LIBRARY_TIME, "ncclAllReduce")): 0.01,
    }
    found, none = late(0.9, 0.9, counters=counters), late(0.9, 0.9)
    (note,) = (one for one in found.notes if "NCCL" in one)
    assert note.startswith("probes count 64 calls of NCCL a step in a rank, 320 µs of its CPU's time")
    assert not any("NCCL" in one for one in none.notes)


# -- what would help -------------------------------------------------------------------------------------------------


def test_communication_is_hidden_and_a_late_rank_mended() -> None:
    """Each at most what it takes now: T_comm - T_overlap is exposed."""
    step = step_of({})
    term = BudgetTerm(BudgetPart.COMMUNICATION, 0.005, Quality.LOWER_BOUND, "", waiting_s=0.004)
    found = {gain.change: gain for gain in budget_gains(replace(step, terms=[term]))}
    assert {change: (gain.low, gain.high) for change, gain in found.items()} == {
        "communication behind computation": (0.0, pytest.approx(0.001)),
        "the late rank in step with the others": (0.0, 0.004),
    }
    in_step = budget_gains(replace(step, terms=[replace(term, waiting_s=0.0)]))
    assert [gain.change for gain in in_step] == ["communication behind computation"]
