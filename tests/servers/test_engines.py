from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules

import pytest

from llmtop import procfs, servers
from llmtop import vocabulary as v
from llmtop.analysis.rules.kv_bound import ABOUT_ROOM
from llmtop.model import Engine, Metric
from llmtop.servers.command_line import flag
from llmtop.servers.registry import BY_KIND, ENGINES, MODULES


def test_kinds_are_unique() -> None:
    assert len(BY_KIND) == len(ENGINES)


def test_every_engine_beside_the_registry_is_in_it() -> None:
    modules = {name: import_module(f"llmtop.servers.{name}") for _, name, _ in iter_modules(servers.__path__)}
    described = {name: module.ENGINE for name, module in modules.items() if hasattr(module, "ENGINE")}
    assert described.keys() == set(MODULES)
    assert all(isinstance(engine, Engine) for engine in described.values())
    assert set(map(id, described.values())) == set(map(id, ENGINES))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.kind)
def test_engine_data_is_sound(engine: Engine) -> None:
    for role in engine.roles:
        assert re.compile(role.pattern)
        assert role.pattern.startswith("^"), "a command that only mentions the server must not match"
    for metric, samples in (*engine.names.items(), *engine.distributions.items()):
        assert isinstance(metric, Metric)
        assert metric.name.startswith("server.")
        for sample in samples:
            assert sample.name.startswith((*engine.prefixes, "http_")), sample.name
            assert ":" not in sample.name
    assert not set(engine.names) & set(engine.distributions)
    if engine.metrics_paths:
        assert engine.names
        assert engine.prefixes


@pytest.mark.parametrize(
    ("command", "kind", "role"),
    [
        ("VLLM::EngineCore", "vllm", "EngineCore"),
        ("VLLM::EngineCore_DP1", "vllm", "EngineCore_DP1"),
        ("mine::Worker_DP0_TP1_EP3", "vllm", "Worker_DP0_TP1_EP3"),
        ("VLLM::APIServer_2", "vllm", "APIServer_2"),
        ("VLLM::DPCoordinator", "vllm", "DPCoordinator"),
        ("ray::RayWorkerWrapper.execute_method", "vllm", "Worker"),
        ("vllm serve m", "vllm", "APIServer"),
        ("-m vllm.entrypoints.openai.api_server --model m", "vllm", "APIServer"),
        ("-m vllm.entrypoints.cli.main serve m", "vllm", "APIServer"),
        ("/src/vllm/entrypoints/openai/api_server.py --model m", "vllm", "APIServer"),
        ("-c import sys\nfrom vllm.entrypoints.cli.main import main; main() serve m", "vllm", "APIServer"),
        ("/sgl/python/sglang/launch_server.py --model-path m", "sglang", "http_server"),
        ("sglang::scheduler", "sglang", "scheduler"),
        ("sglang::scheduler_TP3", "sglang", "scheduler_TP3"),
        ("sglang::data_parallel_controller", "sglang", "data_parallel_controller"),
        ("sglang::tokenizer_worker:4242", "sglang", "tokenizer_worker"),
        ("sglang::detokenizer_router", "sglang", "detokenizer_router"),
        ("sglang serve --model-path m", "sglang", "http_server"),
        ("-m sglang_router.launch_router", "sglang", "router"),
        ("ollama runner --model x --port 3", "ollama", "runner"),
        ("-m dynamo.frontend", "dynamo", "frontend"),
        ("-m llama_cpp.server --model x", "llamacpp", "server"),
        ("/opt/tritonserver/bin/tritonserver --x", "triton", "server"),
    ],
)
def test_roles(command: str, kind: str, role: str) -> None:
    first = next(engine for engine in ENGINES if engine.role(command) is not None)

    assert (first.kind, first.role(command)) == (kind, role)


@pytest.mark.parametrize(
    "command",
    [
        "grep vllm serve",
        "tail -f vllm.log",
        "-c import vllm",
        "-m vllm.entrypoints.cli.main bench",
        "vllm bench",
        "",
        "nginx",
    ],
)
def test_what_only_mentions_a_server_is_none(command: str) -> None:
    assert all(engine.role(command) is None for engine in ENGINES)


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["--model", "a"], "a"),
        (["--model=a=b"], "a=b"),
        (["--served_model_name", "s"], "s"),
        (["--served-model-name", "s", "--model", "m"], "m"),
        (["--model"], None),
        ([], None),
    ],
)
def test_flags(argv: list[str], value: str | None) -> None:
    assert flag(argv, "--model", "--served-model-name") == value


def test_interpreters_are_taken_off_the_command() -> None:
    assert procfs.command(["python3.12", "-X", "dev", "-u", "-m", "x"]) == "-m x"
    assert procfs.command(["pypy3", "app.py", "-m", "x"]) == "app.py -m x"
    assert procfs.command(["python"]) == "python"
    assert procfs.command([]) == ""


@pytest.mark.parametrize("engine", [one for one in ENGINES if v.SERVER_KV_USAGE in one.names], ids=lambda one: one.kind)
def test_the_command_of_a_full_cache_shows_what_its_evidence_quotes(engine: Engine) -> None:
    quoted = (v.SERVER_KV_USAGE, v.SERVER_RUNNING, v.SERVER_WAITING, v.SERVER_PREEMPTIONS)
    samples = [f"{exposed.name} {dict(exposed.where)}" for metric in quoted for exposed in engine.names.get(metric, ())]
    assert samples
    assert [one for one in samples if re.search(ABOUT_ROOM, one) is None] == []
