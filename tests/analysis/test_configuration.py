"""Advice knows what a server is set to."""

from __future__ import annotations

import pytest

from llmtop import ids
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.server.configuration import Setting, change, configuration, is_on, number, setting, switch_on
from llmtop.model import Fact, Feature, Origin, Trace, Track, TrackKind, Unknown
from llmtop.servers.registry import BY_KIND
from llmtop.settings import facts, told
from tests.analysis.verdict_scenes import CPU_BOUND, CPU_ONLY, KV_FULL, THROTTLED

GPU = Track(ids.gpu(0), TrackKind.GPU, "H100")


def server(command: str, kind: str = "vllm", version: Fact = "0.26.0") -> dict[str, Fact]:
    engine = BY_KIND[kind]
    return facts(engine, told(engine, command.split(), {}, lambda _: None), {}, version)


def trace(found: dict[str, Fact], *more: Track, kind: TrackKind = TrackKind.SERVER) -> Trace:
    tracks = (Track(ids.server(1), kind, "s", facts=found), *more)
    return Trace(Origin("live"), tracks={track.id: track for track in tracks})


def test_a_setting_says_who_says_so() -> None:
    eager = trace(server("vllm serve m --enforce-eager --max-num-seqs 8"), GPU)
    assert setting(eager, Feature.CUDA_GRAPHS) == Setting(Feature.CUDA_GRAPHS, "off", "--enforce-eager")
    assert is_on(eager, Feature.CUDA_GRAPHS) is False
    assert is_on(eager, Feature.PREFIX_CACHING) is True
    assert number(eager, Feature.MAX_RUNNING) == 8
    assert number(eager, Feature.MAX_BATCHED_TOKENS) is None
    assert set(configuration(eager)) == set(BY_KIND["vllm"].knobs)


def test_without_an_endpoint_the_command_line_is_known() -> None:
    process = trace(server("vllm serve m --enforce-eager", version=Unknown("no endpoint")), kind=TrackKind.PROCESS)
    assert is_on(process, Feature.CUDA_GRAPHS) is False


def test_what_nobody_knows_is_not_known() -> None:
    nothing = Trace(Origin("live"))
    assert isinstance(setting(nothing, Feature.CUDA_GRAPHS), Unknown)
    assert isinstance(is_on(nothing, Feature.CUDA_GRAPHS), Unknown)
    assert configuration(nothing) == {}
    assert isinstance(setting(trace(server("x", "llamacpp")), Feature.CUDA_GRAPHS), Unknown)


def test_nothing_is_advised_that_is_on_or_cannot_be_had() -> None:
    ordinary, eager = trace(server("vllm serve m"), GPU), trace(server("vllm serve m --enforce-eager"), GPU)
    assert switch_on(ordinary, Feature.CUDA_GRAPHS, "CUDA graphs") == ""
    assert switch_on(eager, Feature.CUDA_GRAPHS, "CUDA graphs") == "CUDA graphs (start without --enforce-eager)"
    assert switch_on(trace(server("vllm serve m --enforce-eager")), Feature.CUDA_GRAPHS, "CUDA graphs") == ""
    assert switch_on(trace(server("x", "llamacpp"), GPU), Feature.CUDA_GRAPHS, "CUDA graphs") == ""
    assert switch_on(trace({}, GPU), Feature.CUDA_GRAPHS, "CUDA graphs") == "CUDA graphs"
    assert change(trace(server("x", "sglang")), Feature.MAX_RUNNING, "fewer") == "fewer (--max-running-requests)"


@pytest.mark.parametrize(
    ("kind", "command", "named", "silent"),
    [
        ("vllm", "vllm serve m", (), ("CUDA graphs", "async scheduling")),
        ("vllm", "vllm serve m --enforce-eager --no-async-scheduling", ("CUDA graphs", "async scheduling"), ()),
        ("sglang", "x --disable-overlap-schedule", ("--disable-overlap-schedule",), ("CUDA graphs", "--async")),
        ("llamacpp", "llama-server", (), ("CUDA graphs", "async scheduling")),
    ],
)
def test_cpu_bound(kind: str, command: str, named: tuple[str, ...], silent: tuple[str, ...]) -> None:
    (finding,) = diagnose(CPU_BOUND.but(facts=server(command, kind)).trace()).findings
    assert all(words in finding.action for words in named), finding.action
    assert not any(words in finding.action for words in silent), finding.action


def test_without_a_gpu_nothing_is_said_of_one() -> None:
    (finding,) = diagnose(CPU_ONLY.but(facts=server("vllm serve m --enforce-eager")).trace()).findings
    assert "CUDA" not in finding.action


@pytest.mark.parametrize(
    ("kind", "words"),
    [("vllm", "TORCHINDUCTOR_COMPILE_THREADS"), ("llamacpp", "cap thread pools (--threads)"), ("demo", "")],
)
def test_thread_pools_are_capped_by_the_engine_s_own_means(kind: str, words: str) -> None:
    finding = diagnose(THROTTLED.but(facts=server("x", kind)).trace()).findings[0]
    assert finding.action == "raise the CPU limit" if not words else words in finding.action


def test_kv_bound_names_the_engine_s_own_flags() -> None:
    by_kind = {kind: diagnose(KV_FULL.but(facts=server("x", kind)).trace()).findings[0].action for kind in BY_KIND}
    assert "--max-num-seqs" in by_kind["vllm"]
    assert "--max-running-requests" in by_kind["sglang"]
    assert "--max-num-seqs" not in by_kind["sglang"]
    assert "--ctx-size" in by_kind["llamacpp"]
    assert "--kv-blocks" in by_kind["demo"]
    quantised = diagnose(KV_FULL.but(facts=server("vllm serve m --kv-cache-dtype fp8")).trace()).findings[0].action
    assert "quantise" not in quantised
