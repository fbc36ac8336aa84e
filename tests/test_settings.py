"""What servers are set to: from command lines, files, environments, metrics and defaults by version."""

from __future__ import annotations

import pytest

from llmtop.model import Fact, Feature, Unknown
from llmtop.servers.registry import BY_KIND
from llmtop.settings import facts, is_on, told


def settled(
    kind: str,
    command: str,
    version: Fact | None = None,
    *,
    config: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> dict[str, Fact]:
    engine = BY_KIND[kind]
    said = told(engine, command.split(), config or {}, (variables or {}).get)
    return facts(engine, said, labels, version)


def value(found: dict[str, Fact], feature: Feature) -> Fact:
    return found[f"setting.{feature}"]


@pytest.mark.parametrize(
    ("version", "graphs", "asynchronous", "prefixes", "chunks"),
    [
        ("0.6.6", "on", "off", "off", None),
        ("0.8.5", "on", "off", "on", "on"),
        ("0.13.0", "on", "off", "on", "on"),
        ("0.14.0rc1", "on", "on", "on", "on"),
        ("0.26.0", "on", "on", "on", "on"),
    ],
)
def test_vllm_by_version(version: str, graphs: str, asynchronous: str, prefixes: str, chunks: str | None) -> None:
    found = settled("vllm", "vllm serve m", version)
    assert value(found, Feature.CUDA_GRAPHS) == graphs
    assert value(found, Feature.ASYNC_SCHEDULING) == asynchronous
    assert value(found, Feature.PREFIX_CACHING) == prefixes
    chunked = value(found, Feature.CHUNKED_PREFILL)
    assert chunked == chunks or (chunks is None and isinstance(chunked, Unknown))


@pytest.mark.parametrize(
    ("arguments", "feature", "expected", "where"),
    [
        ("--enforce-eager", Feature.CUDA_GRAPHS, "off", "--enforce-eager"),
        ("--enforce-eager", Feature.TORCH_COMPILE, "off", "--enforce-eager"),
        ("--compilation-config.cudagraph_mode=NONE", Feature.CUDA_GRAPHS, "off", None),
        ('--compilation-config {"cudagraph_mode":"NONE"}', Feature.CUDA_GRAPHS, "off", None),
        ('--compilation-config {"cudagraph_mode":"FULL"}', Feature.CUDA_GRAPHS, "FULL", None),
        ('-cc {"mode":0}', Feature.TORCH_COMPILE, "off", None),
        ("--no-async-scheduling", Feature.ASYNC_SCHEDULING, "off", "--no-async-scheduling"),
        ("--no-enable-prefix-caching", Feature.PREFIX_CACHING, "off", "--no-enable-prefix-caching"),
        ("--max-num-seqs 8 --max_num_seqs=16", Feature.MAX_RUNNING, 16, "--max-num-seqs 16"),
        ("--max-model-len 8k", Feature.MAX_LENGTH, 8000, "--max-model-len 8k"),
        ("-tp 4", Feature.TENSOR_PARALLEL, 4, "-tp 4"),
        ('--speculative-config {"method":"eagle3","model":"d"}', Feature.SPECULATIVE_DECODING, "eagle3", None),
        ("--quantization fp8", Feature.QUANTIZATION, "fp8", "--quantization fp8"),
    ],
)
def test_vllm_by_flag(arguments: str, feature: Feature, expected: Fact, where: str | None) -> None:
    found = settled("vllm", f"vllm serve m {arguments}", "0.26.0")
    assert value(found, feature) == expected
    assert where is None or found[f"setting.{feature}.source"] == where


def test_the_server_s_own_word_counts_most() -> None:
    found = settled("vllm", "vllm serve m --enable-prefix-caching", "0.26.0", labels={"enable_prefix_caching": "False"})
    assert value(found, Feature.PREFIX_CACHING) == "off"
    assert found["setting.prefix_caching.source"] == 'enable_prefix_caching="False" of its metrics'


def test_none_is_no_word() -> None:
    """The word "None" stands in vLLM's metrics for what is not settled when it describes its cache."""
    found = settled("vllm", "vllm serve m --gpu-memory-utilization 0.8", labels={"gpu_memory_utilization": "None"})
    assert value(found, Feature.GPU_MEMORY_SHARE) == 0.8


def test_defaults_that_depend_on_what_is_not_known_are_not_known() -> None:
    without_version = settled("vllm", "vllm serve m")
    assert isinstance(value(without_version, Feature.ASYNC_SCHEDULING), Unknown)
    assert value(without_version, Feature.CUDA_GRAPHS) == "on"
    speculative = settled("vllm", "vllm serve m --speculative-model d", "0.26.0")
    assert isinstance(value(speculative, Feature.ASYNC_SCHEDULING), Unknown)
    unread = facts(BY_KIND["vllm"], {}, None, "0.26.0")
    assert isinstance(value(unread, Feature.CUDA_GRAPHS), Unknown)


def test_vllm_sleeps_by_itself_from_some_version_on() -> None:
    """The variable was taken away with the loop that it was for."""
    old, between, new = (settled("vllm", "vllm serve m", version) for version in ("0.10.2", "0.17.0", "0.26.0"))
    assert value(old, Feature.SLEEP_WHEN_IDLE) == "off"
    assert old["setting.sleep_when_idle.change"] == "VLLM_SLEEP_WHEN_IDLE=1"
    assert isinstance(value(between, Feature.SLEEP_WHEN_IDLE), Unknown)
    assert value(new, Feature.SLEEP_WHEN_IDLE) == "on"
    assert "setting.sleep_when_idle.change" not in new
    assert "setting.sleep_when_idle.change" not in between


def test_an_older_engine_has_its_own_defaults() -> None:
    variables = {"VLLM_USE_V1": "0"}
    found = settled("vllm", "vllm serve m", "0.9.2", variables=variables)
    assert value(found, Feature.PREFIX_CACHING) == "off"
    assert value(found, Feature.TORCH_COMPILE) == "off"
    assert isinstance(value(found, Feature.CHUNKED_PREFILL), Unknown)
    assert found["setting.prefix_caching.source"] == "default with VLLM_USE_V1=0"
    ignored = settled("vllm", "vllm serve m", "0.11.0", variables=variables)
    assert value(ignored, Feature.PREFIX_CACHING) == "on"
    assert (
        value(settled("vllm", "vllm serve m", "0.9.2", variables={"VLLM_USE_V1": "1"}), Feature.PREFIX_CACHING) == "on"
    )


@pytest.mark.parametrize("flag", ["-O0", "-O=0", "-O 0", "--optimization-level 0"])
def test_vllm_without_optimisation_captures_no_graphs(flag: str) -> None:
    found = settled("vllm", f"vllm serve m {flag}", "0.26.0")
    assert (value(found, Feature.CUDA_GRAPHS), value(found, Feature.TORCH_COMPILE)) == ("off", "off")


def test_an_option_is_offered_only_to_versions_that_have_it() -> None:
    assert "setting.async_scheduling.change" not in settled("vllm", "vllm serve m", "0.9.2")
    assert settled("vllm", "vllm serve m", "0.10.2")["setting.async_scheduling.change"] == "--async-scheduling"


@pytest.mark.parametrize(
    ("kind", "command", "feature", "expected"),
    [
        ("sglang", "python -m sglang.launch_server", Feature.ASYNC_SCHEDULING, "on"),
        (
            "sglang",
            "python -m sglang.launch_server --disable-overlap-schedule",
            Feature.ASYNC_SCHEDULING,
            "off",
        ),
        ("sglang", "python -m sglang.launch_server --disable-cuda-graph", Feature.CUDA_GRAPHS, "off"),
        ("sglang", "python -m sglang.launch_server --disable-radix-cache", Feature.PREFIX_CACHING, "off"),
        ("sglang", "python -m sglang.launch_server --chunked-prefill-size -1", Feature.CHUNKED_PREFILL, "off"),
        ("sglang", "python -m sglang.launch_server --chunked-prefill-size 4096", Feature.CHUNKED_PREFILL, "4096"),
        ("llamacpp", "llama-server -m m.gguf -np 4", Feature.MAX_RUNNING, 4),
        ("llamacpp", "llama-server -m m.gguf -ctk q8_0", Feature.KV_CACHE_DTYPE, "q8_0"),
        ("trtllm", "trtllm-serve m --max_batch_size 64", Feature.MAX_RUNNING, 64),
        ("demo", "python -m llmtop.demo.server --no-prefix-caching", Feature.PREFIX_CACHING, "off"),
        (
            "sglang",
            "python -m sglang.launch_server --cuda-graph-backend-decode disabled",
            Feature.CUDA_GRAPHS,
            "off",
        ),
        ("lmdeploy", "lmdeploy serve api_server m --quant-policy 8", Feature.KV_CACHE_DTYPE, "int8"),
        ("lmdeploy", "lmdeploy serve api_server m --quant-policy 0", Feature.KV_CACHE_DTYPE, "auto"),
        ("lmdeploy", "lmdeploy serve api_server m", Feature.PREFIX_CACHING, "off"),
        ("trtllm", "trtllm-serve m --tensor_parallel_size 4", Feature.TENSOR_PARALLEL, 4),
    ],
)
def test_other_servers(kind: str, command: str, feature: Feature, expected: Fact) -> None:
    assert value(settled(kind, command), feature) == expected


def test_no_server_is_given_another_s_flags() -> None:
    assert not [key for key in settled("llamacpp", "llama-server") if "cuda_graphs" in key or "async" in key]
    changes = {str(text) for key, text in settled("sglang", "x").items() if key.endswith(".change")}
    assert "--max-num-seqs" not in changes
    assert "--max-running-requests" in changes


def test_what_was_told_and_is_better_left_is_undone() -> None:
    assert "setting.kv_blocks.change" not in settled("vllm", "vllm serve m", labels={"num_gpu_blocks": "27000"})
    found = settled("vllm", "vllm serve m --num-gpu-blocks-override 40", labels={"num_gpu_blocks": "40"})
    assert found["setting.kv_blocks.change"] == "start without --num-gpu-blocks-override"


def test_files_and_variables() -> None:
    config = {"max-num-seqs": "32", "enforce-eager": "true", "async-scheduling": "false"}
    found = settled("vllm", "vllm serve m", "0.26.0", config=config)
    assert value(found, Feature.MAX_RUNNING) == 32
    assert value(found, Feature.CUDA_GRAPHS) == "off"
    assert found["setting.max_running.source"] == "max-num-seqs: 32 in its configuration file"
    assert value(settled("tgi", "text-generation-launcher", variables={"NUM_SHARD": "2"}), Feature.TENSOR_PARALLEL) == 2
    assert (
        value(settled("tgi", "text-generation-launcher", variables={"CUDA_GRAPHS": "0"}), Feature.CUDA_GRAPHS) == "off"
    )


def test_the_options_file_of_trtllm_serve_counts_more_than_its_command_line() -> None:
    config = {"max-batch-size": "16", "kv-cache-config.free-gpu-memory-fraction": "0.5"}
    found = settled("trtllm", "trtllm-serve m --max_batch_size 64 --max_num_tokens 512", config=config)
    assert value(found, Feature.MAX_RUNNING) == 16
    assert value(found, Feature.GPU_MEMORY_SHARE) == 0.5
    assert value(found, Feature.MAX_BATCHED_TOKENS) == 512
    assert (
        value(settled("vllm", "vllm serve m --max-num-seqs 8", config={"max-num-seqs": "9"}), Feature.MAX_RUNNING) == 8
    )


@pytest.mark.parametrize("word", ["auto", "", "nan", "inf", "seven"])
def test_words_that_are_no_numbers_are_no_settings(word: str) -> None:
    found = settled("vllm", f"vllm serve m --max-num-seqs={word}", "0.26.0")
    assert isinstance(value(found, Feature.MAX_RUNNING), Unknown)


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_every_engine_s_knobs_can_be_read(kind: str) -> None:
    for feature in BY_KIND[kind].knobs:
        found = settled(kind, "server")[f"setting.{feature}"]
        assert isinstance(found, Unknown) or is_on(found) in (True, False)
