"""Each field and each fact of the model has been decided on: whether and how it is in a shared copy."""

from __future__ import annotations

import inspect
from dataclasses import fields
from enum import StrEnum

import pytest

from llmtop import facts, model
from llmtop.analysis.roofline.model_facts import model_size
from llmtop.model import Fact, Target
from llmtop.recording.fields import FACTS, FIELDS, OF_SOURCES, FieldKind, fact
from llmtop.recording.secrets import Secrets
from tests.live_traces import TARGET

RECORDED = (
    *(model.Target, model.TargetProcess, model.Track, model.Mark, model.ProcessEnd, model.Restart, model.XidReport),
    *(model.CoreDump, model.GpuFault, model.FailedWarp, model.Unknown, model.Missing, model.Issue, model.Finding),
    *(model.Origin, model.IdleTime, model.Stretch),
)
GONE = {"registers", "path"}
"""What the program worked on; where a file lies that was looked at."""


@pytest.mark.parametrize("kind", RECORDED)
def test_each_field_is_decided_on(kind: type) -> None:
    names = {one.name for one in fields(kind) if one.init}
    assert names - FIELDS.keys() - GONE - {"name"} == set()


@pytest.mark.parametrize("kind", [model.Source, model.SourceLane, model.Metric])
def test_what_collectors_say_of_themselves_stays(kind: type) -> None:
    assert {one.name for one in fields(kind)} <= OF_SOURCES.keys()


def test_each_fact_is_decided_on() -> None:
    classes = [one for _, one in inspect.getmembers(facts, inspect.isclass) if one.__name__.endswith("Fact")]
    names = {
        value
        for one in classes
        if not issubclass(one, StrEnum)
        for name, value in vars(one).items()
        if name.isupper() and isinstance(value, str)
    }
    assert len(classes) >= 12
    assert names - FACTS.keys() == set()


def test_of_other_facts_those_of_settings_stay() -> None:
    assert fact("setting.kv_cache_dtype.source") is FieldKind.PROSE
    assert fact("told.max_running") is FieldKind.SETTING
    assert fact("server.failures.remark") is FieldKind.PROSE
    assert fact("enable_prefix_caching") is None, "a label of the server's"
    assert fact("setting.zq_tenant") is None


def test_a_copy_has_of_a_models_configuration_what_its_size_is_made_of() -> None:
    config: dict[str, Fact] = {
        "model_type": "qwen2", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "intermediate_size": 29568, "vocab_size": 152064, "torch_dtype": "bfloat16",
        "tie_word_embeddings": False, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 1024,
        "quantization_config.bits": 4, "secret": 7,
    }  # fmt: skip
    copied: dict[str, Fact] = Secrets().without({"config": config})["config"]
    assert "secret" not in copied
    whole, shared = (
        model_size(Target(1, 1, "vllm", "vLLM", TARGET.processes, dtype="bf16", config=one)) for one in (config, copied)
    )
    assert whole == shared
