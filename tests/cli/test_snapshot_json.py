"""The header's facts and the snapshot document, whose shape is a contract."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from llmtop import ids
from llmtop.analysis.pages.header import header
from llmtop.analysis.server.step_causes import StepCause
from llmtop.analysis.server.view import ServerView
from llmtop.cli.snapshot_json import snapshot_document
from llmtop.model import (
    NS_PER_S,
    Issue,
    Missing,
    Origin,
    Series,
    Severity,
    Stack,
    Target,
    Trace,
    Track,
    TrackKind,
    Unknown,
    What,
)
from llmtop.vocabulary import EndpointAnswer
from tests.analysis import verdict_scenes
from tests.analysis.engine_rounds import PLANTED, even, rounds_of, trace_of
from tests.analysis.probe_traces import Probed
from tests.analysis.test_batches import STAIRS
from tests.analysis.test_batches import seen as seen_batches
from tests.analysis.test_correlate import starved
from tests.analysis.test_counted_steps import Scrape, tokens
from tests.analysis.test_counted_steps import trace_of as counted_trace
from tests.analysis.test_efficiency import TARGET as LLAMA
from tests.analysis.test_garbage import AT_WORK, CLOCKS
from tests.live_traces import AMPERE, NO_GPU, NOTHING, TARGET, Scene, live_trace, probed

DOCUMENTED = Path(__file__).parents[2] / "docs" / "json-snapshot.md"
KEYS = [
    "schema",
    "host",
    "target",
    "liveness",
    "time",
    "window_s",
    "gpus",
    "gpu_totals",
    "roofline",
    "efficiency",
    "token_budget",
    "server",
    "requests",
    "batches",
    "steps",
    "counted_steps",
    "objectives",
    "connections",
    "threads",
    "syscalls",
    "stacks",
    "python_stacks",
    "idle_causes",
    "correlation",
    "verdict",
    "findings",
    "missing",
    "self",
]


def document(trace: Trace, target: Target | None = TARGET, seconds: float = 10.0) -> dict[str, Any]:
    """Through strict JSON and back."""
    loaded: dict[str, Any] = json.loads(json.dumps(snapshot_document(trace, target, seconds), allow_nan=False))
    return loaded


def test_header_of_a_running_server() -> None:
    seen = header(live_trace(), TARGET)
    assert (seen.title, seen.model, seen.dtype) == ("vLLM", "meta-llama/Llama-3.1-8B", "bfloat16")
    assert (seen.pid, seen.others, seen.gpus) == (4242, 1, ("H100 80GB HBM3", 1))
    assert isinstance(seen.server, ServerView)
    assert seen.self_cpu == pytest.approx(0.018)
    assert seen.self_rss == 58e6


@pytest.mark.parametrize(("kind", "is_starting"), [("vllm", True), ("process", False)])
def test_only_a_known_server_is_said_to_load(kind: str, is_starting: bool) -> None:
    trace = verdict_scenes.ALIVE.but(running=None, waiting=None, answer=EndpointAnswer.REFUSED, seconds=5).trace()
    assert header(trace, replace(TARGET, kind=kind)).is_starting == is_starting


def test_header_without_a_target_is_about_gpus() -> None:
    seen = header(live_trace(Scene(gpus=2)), None)
    assert (seen.title, seen.pid, seen.gpus) == ("GPUs", None, ("H100 80GB HBM3", 2))
    assert isinstance(seen.server, Unknown)


def test_header_counts_only_the_servers_gpus() -> None:
    assert header(live_trace(Scene(gpus=8)), replace(TARGET, gpus=(2, 3))).gpus == ("H100 80GB HBM3", 2)


def test_model_comes_from_the_metrics_where_the_command_line_has_none() -> None:
    trace = live_trace(ticks=1)
    tracks = dict(trace.tracks)
    tracks[ids.server(8000)] = replace(tracks[ids.server(8000)], facts={"model": "qwen"})
    known = replace(trace, tracks=tracks)
    assert header(known, replace(TARGET, model=Unknown("not on the command line"))).model == "qwen"


def test_document_has_the_keys_of_the_contract_in_order() -> None:
    assert list(document(live_trace())) == KEYS
    assert list(document(live_trace(NOTHING))) == KEYS


def test_document_of_a_running_server() -> None:
    seen = document(live_trace(Scene(is_moving=False)))
    assert seen["schema"] == "llmtop.snapshot/1"
    assert seen["target"]["pid"] == 4242
    assert seen["target"]["model"] == "meta-llama/Llama-3.1-8B"
    assert [one["role"] for one in seen["target"]["processes"]] == ["APIServer", "EngineCore"]
    (gpu,) = seen["gpus"]
    assert (gpu["index"], gpu["busy"], gpu["sm"], gpu["dram"], gpu["tensor"]) == (0, 98.5, 95.5, 83.0, 18.0)
    assert gpu["dram_bytes_per_s"] == pytest.approx(0.83 * 5120 / 8 * 2 * 2619e6)
    assert gpu["throttle"] == ["power cap"]
    assert gpu["processes"] == [{"pid": 4300, "name": "VLLM::EngineCore", "memory_bytes": 70.2 * 2**30}]
    point = seen["roofline"][0]
    assert (point["gpu"], point["precision"]) == (0, "bf16")
    assert point["intensity"] == pytest.approx(point["flops_per_s"] / point["bytes_per_s"])
    assert seen["server"]["running"] == {"value": 64.0, "unit": "requests", "source": "vLLM metrics"}
    assert seen["server"]["e2e_p50"]["value"] == {"unknown": "no reading of end-to-end latency yet", "remedy": ""}
    assert seen["self"].pop("start_cpu_s") == pytest.approx(0.018 * 79)  # seconds before the window
    assert seen["self"] == {
        "cpu": pytest.approx(0.018),
        "helpers_cpu": pytest.approx(0.004),
        "rss_bytes": 58e6,
        "probes": 0.0,
    }
    assert seen["host"]["cpu_pressure_percent"] == 12.0
    assert {finding["rule"] for finding in seen["findings"]} >= {"memory-bound-decode"}


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    """The contract as the documentation has it."""
    found = re.search(r"```json\n(.*?)```", DOCUMENTED.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    loaded: dict[str, Any] = json.loads(found[1])
    Draft202012Validator.check_schema(documented := loaded)
    return Draft202012Validator(documented)


SCENES = (
    (live_trace(), TARGET),
    (live_trace(ticks=1), TARGET),
    (live_trace(NOTHING), TARGET),
    (live_trace(AMPERE), TARGET),
    (live_trace(NO_GPU), TARGET),
    (live_trace(Scene(gpus=2)), None),
    (probed(live_trace()), TARGET),
    (starved(), TARGET),
)


@pytest.mark.parametrize("number", range(len(SCENES)))
def test_documents_follow_the_documented_schema(number: int, schema: Draft202012Validator) -> None:
    schema.validate(document(*SCENES[number]))


def test_the_schema_can_fail(schema: Draft202012Validator) -> None:
    seen = document(live_trace())
    seen["server"]["ttft_p50"]["low"] = None
    with pytest.raises(ValidationError):
        schema.validate(seen)
    seen = document(live_trace())
    del seen["efficiency"]["mfu"]
    with pytest.raises(ValidationError):
        schema.validate(seen)


def test_gpus_are_means_over_the_window_and_not_the_last_sample() -> None:
    """The GPU rests at the last sample: 44 % of the window it worked."""
    trace = live_trace(Scene(is_moving=False))
    series = dict(trace.series)
    for name in ("gpu.sm", "gpu.dram", "gpu.tensor_hmma", "gpu.tensor", "gpu.fp32", "gpu.fp16", "gpu.power"):
        old = series[ids.gpu(0), name]
        samples: list[tuple[int, float | None]] = list(old)
        samples[-5:] = [(t, 0.0) for t, _ in samples[-5:]]
        series[ids.gpu(0), name] = Series.of(ids.gpu(0), old.metric, old.source, samples)
    gpu, *_ = (resting := document(replace(trace, series=series), seconds=9.5))["gpus"]
    assert gpu["sm"] == pytest.approx(95.5 / 2)
    assert gpu["dram_bytes_per_s"] == pytest.approx(0.83 * 5120 / 8 * 2 * 2619e6 / 2)
    assert resting["gpu_totals"]["power_w"] == gpu["power_w"]
    assert resting["gpu_totals"]["busy"] == gpu["busy"]
    (point,) = resting["roofline"]
    assert point["label"] == "mean of 9.5 s"
    busy = document(trace)["roofline"][0]
    assert point["bytes_per_s"] == pytest.approx(busy["bytes_per_s"] / 2)
    assert point["intensity"] == pytest.approx(busy["intensity"], rel=1e-6)


def test_efficiency_and_the_parts_of_the_server_are_told() -> None:
    seen = document(live_trace(Scene(is_moving=False)))
    assert set(seen["efficiency"]) == {
        "mfu", "mbu", "joules_per_token", "phase", "flops_share", "dram_share", "notes",
    }  # fmt: skip
    assert seen["efficiency"]["joules_per_token"]["unit"] == "J/token"
    assert seen["efficiency"]["phase"]["value"] == "decode"
    assert "does not tell it" in seen["target"]["version"]["unknown"]


def test_the_parts_of_a_step_add_up() -> None:
    seen = document(live_trace(Scene(is_moving=False)))["token_budget"]
    assert sum(term["seconds"] for term in seen["terms"]) == pytest.approx(seen["step_s"])
    assert seen["terms"][0]["part"] == "weights"
    assert all(0 <= gain["at_least_s"] <= gain["at_most_s"] for gain in seen["gains"])
    assert {gain["part"] for gain in seen["gains"]} == {"weights", "prompts", "rest"}
    assert seen["scaling_tax"]["unknown"] == "no layer of the model is shared between GPUs"


def test_what_requests_get_and_how_far_a_batch_goes() -> None:
    requests = document(live_trace(Scene(is_moving=False)), seconds=60.0)["requests"]
    assert sum(part["mean_s"] for part in requests["first_token"]["parts"]) == pytest.approx(0.26)
    assert requests["goodput"]["first_tokens"] == {"low": pytest.approx(0.9), "high": pytest.approx(0.9)}
    assert requests["kv_runway"]["unknown"].startswith("it was full: 2 requests were thrown out")
    assert requests["preemption"]["quality"] == "estimate"
    batches = document(seen_batches(STAIRS), LLAMA)["batches"]
    assert batches["line"]["per_request_s"] == pytest.approx(0.0001)
    assert batches["knee"]["by"] == batches["limits"][0]["by"] == "ITL p50 25 ms"
    assert batches["knee"]["is_beyond_seen"] is True
    assert sum(one["looks"] for one in batches["seen"]) == batches["line"]["looks"]
    still = document(live_trace(Scene(is_moving=False)))["batches"]
    assert "when a request ends" in still["unknown"]


def test_steps_of_the_engine_with_the_causes_of_slow_ones() -> None:
    rounds = even(300)
    for i in (100, 150, 200, 250):
        rounds[i] = PLANTED[StepCause.LOCK]
    steps = document(trace_of(rounds_of(rounds)), seconds=60.0)["steps"]
    assert (steps["thread"], steps["count"], steps["slow_count"]) == ("EngineCore", 299, 4)
    assert steps["p50_s"] == pytest.approx(0.01006, rel=0.01)
    assert steps["gpu_share"] == pytest.approx(0.7, abs=0.01)
    assert {one["cause"] for one in steps["slow"]} == {"lock"}
    assert steps["slow"][0]["parts_s"]["lock"] == pytest.approx(0.008)
    assert steps["slow"][0]["launches"] == 30
    assert steps["tail"]["shares"] == [{"cause": "lock", "share": pytest.approx(1.0, abs=0.01)}]
    even_ones = document(trace_of(rounds_of(even(300))), seconds=60.0)["steps"]
    assert "p99 is hardly above p50" in even_ones["tail"]["unknown"]
    assert "no thread was seen to launch work" in document(live_trace())["steps"]["unknown"]


def test_quantiles_are_told_by_their_bounds() -> None:
    seen = document(live_trace(Scene(is_moving=False)))["server"]
    assert (seen["ttft_p50"]["low"], seen["ttft_p50"]["high"]) == (0.1, 0.25)
    assert seen["ttft_p50"]["mean"] == pytest.approx(0.26)
    assert seen["ttft_p50"]["value"]["unknown"].startswith("100 to 250 ms")


def test_system_calls_carry_the_time_looked_at() -> None:
    for call in document(probed(live_trace()))["syscalls"]:
        assert call["observed_s"] > 0
        assert call["per_second"] == pytest.approx(call["count"] / call["observed_s"], rel=0.01)


def test_thread_shares_sum_to_one() -> None:
    for thread in document(live_trace())["threads"]:
        assert thread["on_cpu"] + thread["run_queue"] + sum(thread["blocked"].values()) == pytest.approx(1, abs=1e-3)


def test_what_is_not_known_says_why() -> None:
    seen = document(live_trace(AMPERE))
    assert seen["gpus"][0]["sm"] == {
        "unknown": "GPM needs Hopper or newer",
        "remedy": "use the server's own estimate: --enable-mfu-metrics",
    }


def test_nothing_at_all_is_listed_as_missing() -> None:
    seen = document(live_trace(NOTHING))
    assert (seen["gpus"], seen["server"], seen["threads"], seen["roofline"]) == ([], {}, [], [])
    assert {"nvml", "gpus", "server", "threads", "syscalls", "stacks"} <= {one["what"] for one in seen["missing"]}
    assert all(one["reason"] for one in seen["missing"])


def test_without_a_target_gpus_are_still_there() -> None:
    seen = document(live_trace(Scene(has_server=False, has_threads=False)), None)
    assert seen["target"] == {"unknown": "no server is attached", "remedy": "llmtop --attach PID"}
    assert len(seen["gpus"]) == 1


def test_no_gpu_costs_only_the_gpu_parts() -> None:
    seen = document(live_trace(NO_GPU))
    assert seen["gpus"] == []
    assert seen["server"]["running"]["value"] == 64.0


def test_infinite_readings_stay_out_of_the_json() -> None:
    seen = document(live_trace(Scene(values={"gpu.power": math.inf})))
    assert seen["gpus"][0]["power_w"] == {"unknown": "not a finite number", "remedy": ""}


def test_stacks_are_taken_over() -> None:
    stack = Stack(("main", "step"), 12.0, "ns", "futex")
    seen = document(replace(live_trace(ticks=2), stacks=(stack,)))
    assert seen["stacks"] == [{"frames": ["main", "step"], "weight_ns": 12.0, "state": "futex"}]


def test_failed_collector_is_listed() -> None:
    issue = Issue(Severity.ERROR, "collector-nvml", "the nvml collector failed: X; please report this")
    missing = document(replace(live_trace(NOTHING), issues=(issue,)))["missing"]
    assert {"what": "nvml", "reason": issue.message, "remedy": ""} in missing


def test_python_functions_are_in_the_stacks_and_on_their_own() -> None:
    track = ids.thread(4300, 4301)
    stacks = (
        Stack(("_PyEval_EvalFrameDefault", "sem_wait"), 1e9, "ns", "futex", track),
        Stack(("main (a.py:3)", "step (a.py:7)"), 4, "samples", "python waiting", track),
    )
    seen = document(replace(live_trace(), stacks=stacks))
    assert seen["stacks"] == [
        {"frames": ["main (a.py)_[p]", "step (a.py)_[p]", "sem_wait"], "weight_ns": 1e9, "state": "futex"}
    ]
    frames = ["main (a.py:3)", "step (a.py:7)"]
    assert seen["python_stacks"] == [{"pid": 4300, "tid": 4301, "frames": frames, "looks": 4, "state": "waiting"}]


def test_probed_threads_and_idle_gpus_are_in_the_document() -> None:
    target = replace(TARGET, pid=7, root_pid=7)
    seen = document(starved(seconds=60), target, 60.0)
    (thread,) = seen["threads"]
    assert thread["is_blocked_exact"] is True
    assert thread["polling"] == 0.0
    (idle,) = seen["idle_causes"]
    assert (idle["gpu"], idle["quality"]) == (0, "estimate")
    assert sum(row["idle_s"] for row in idle["causes"]) == pytest.approx(idle["idle_s"], abs=1e-3)
    assert sum(row["of_idle"] for row in idle["causes"]) == pytest.approx(1.0, abs=1e-3)
    (correlation,) = seen["correlation"]
    by_title = {one["title"]: one for one in correlation["series"]}
    assert by_title["run queue of EngineCore/engine"]["lag_ns"] == 2 * NS_PER_S
    assert by_title["run queue of EngineCore/engine"]["is_significant"] is True
    assert by_title["output tokens"]["is_control"] is True
    assert by_title["requests waiting"]["unknown"] == "constant over the window"


def test_garbage_collection_of_a_thread_where_it_is_known() -> None:
    (thread,) = document(Probed(CLOCKS, probes=AT_WORK).trace(), replace(TARGET, pid=7, root_pid=7))["threads"]
    assert (thread["collecting"], thread["collections_per_s"]) == (0.1, 4.0)
    (thread,) = document(Probed(CLOCKS).trace(), replace(TARGET, pid=7, root_pid=7))["threads"]
    assert "collecting" not in thread


def test_short_look_says_why_nothing_correlates() -> None:
    (correlation,) = document(live_trace(), seconds=5)["correlation"]
    assert correlation["unknown"] == "GPU 0's idle share: not enough data: 5 of at least 30 samples"
    assert correlation["remedy"] == "wait 25 s more"


def test_unknown_parts_of_threads_are_left_out() -> None:
    thread = document(live_trace())["threads"][0]
    assert "polling" not in thread
    assert "in_cuda_sync" not in thread
    assert thread["is_blocked_exact"] is False


@pytest.mark.parametrize(("scene", "reason"), [(NO_GPU, "no NVIDIA driver"), (NOTHING, "the process is not ours")])
def test_sides_that_are_missing_are_listed(scene: Scene, reason: str) -> None:
    seen = document(live_trace(scene))
    assert seen["idle_causes"] == seen["correlation"] == []
    why = {one["what"]: one["reason"] for one in seen["missing"]}
    assert why["idle_causes"].startswith(reason)
    assert why["correlation"].startswith(reason)


def test_nobody_says_that_there_is_no_gpu_before_somebody_has_looked() -> None:
    assert header(Trace(Origin("live")), None).gpus is None
    told = Trace(Origin("live"), missing=(Missing(What("gpu"), Unknown("the driver sees no GPU")),))
    assert header(told, None).gpus == Unknown("the driver sees no GPU")


def test_a_server_whose_port_is_open_and_says_nothing_is_awaited() -> None:
    trace = verdict_scenes.ALIVE.but(running=None, waiting=None, answer=None, seconds=1).trace()
    silent = {name: track for name, track in trace.tracks.items() if track.kind is not TrackKind.SERVER}
    asked = replace(trace, tracks={**silent, ids.endpoint(1): Track(ids.endpoint(1), TrackKind.ENDPOINT, "GET")})
    view = header(asked, TARGET)
    assert (view.is_starting, view.is_awaited) == (False, True)
    assert not header(asked, replace(TARGET, kind="process")).is_awaited


def test_steps_as_the_server_counts_them() -> None:
    sums = ((0, 0, 0), (100, 0, 400), (150, 1000, 600), (250, 1000, 1000))
    scrapes = [Scrape(steps, others=tokens(prompts, output)) for steps, prompts, output in sums]
    told = document(counted_trace(*scrapes), seconds=60.0)
    assert told["counted_steps"] == {
        "source": "metrics",
        "looks": 3,
        "count": 250,
        "per_s": pytest.approx(250 / 3),
        "mean_s": 0.012,
        "fastest_look_s": 0.01,
        "slowest_look_s": 0.02,
        "output_tokens": 4.0,
        "prompt_tokens": 4.0,
        "with_prompts": {"looks": 1, "mean_s": 0.02},
        "without_prompts": {"looks": 2, "mean_s": 0.01},
        "notes": ["a look holds about 100 steps, and one more or less lies across its ends: 1.0 %"],
    }
    assert "unknown" in told["steps"]
