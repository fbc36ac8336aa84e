"""What a server's command line says of its model: name, dtype, quantization."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from pathlib import Path
from typing import Any

from llmtop import foreign, procfs
from llmtop.facts import CONFIG_NUMBERS, CONFIG_TEXTS, TargetFact
from llmtop.frozen import frozen
from llmtop.model import Engine, Fact, Unknown
from llmtop.text import clean, redact

_CONFIG_BYTES = 1 << 20
_CONFIG_TEXT = 40
"""Longer texts are names of no model type or number format."""
_UNANSWERED = Unknown(
    "the file system of the model's folder does not answer: its config.json could not be read",
    "say the dtype: llmtop --attach PID --dtype bf16",
)
_WEIGHT_FILES = ("model*.safetensors", "*.safetensors", "pytorch_model*.bin")
"""The first kind that is there: some models come in two formats side by side."""
_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp16": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp32": "fp32",
}
_MATRIX_FORMATS = ("nvfp4", "mxfp4", "fp8")
"""Quantizations in which the matrix products themselves run; others (AWQ, GPTQ ...) unpack the weights first."""
_GGUF_TYPE = re.compile(r"(?i)[-._]((?:I?Q\d\w*|F16|BF16|F32|MXFP4\w*))\.gguf\Z")


@frozen
class ModelFacts:
    """What is served, as far as a command line and a model's configuration tell."""

    model: Fact
    dtype: Fact
    more: Mapping[str, Fact] = field(default_factory=dict)
    config: Mapping[str, Fact] = field(default_factory=dict)


def flag(argv: Sequence[str], *names: str) -> str | None:
    """The value of the first of `names` that is given, as "--name value" or "--name=value".

    >>> flag(["vllm", "serve", "m", "--port=9000"], "--port")
    '9000'
    """
    wanted = {name: index for index, name in enumerate(names)}
    values: dict[int, str] = {}
    for i, argument in enumerate(argv):
        name, given, value = argument.partition("=")
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        if name in wanted and (given or i + 1 < len(argv)):
            values.setdefault(wanted[name], value if given else argv[i + 1])
    return values[min(values)] if values else None


def port(engine: Engine, argv: Sequence[str], pid: int, proc: Path = procfs.PROC) -> int | None:
    """The port that the server was told to use; None when it was told nothing."""
    value = flag(argv, *engine.port_flags)
    if value is None and engine.port_variable:
        value = procfs.environment(pid, engine.port_variable, proc)
    return int(value) if value is not None and value.isdigit() else None


def socket_path(engine: Engine, argv: Sequence[str]) -> str | None:
    """The Unix socket that the server was told to listen on instead of a port.

    llama-server takes it for its host, and knows it by its end.
    """
    host = flag(argv, "--host") or ""
    return flag(argv, *engine.socket_flags) or (host if host.endswith(".sock") else None)


def model_facts(engine: Engine, argv: Sequence[str], pid: int, proc: Path = procfs.PROC) -> ModelFacts:
    """Name and number format of the model, from flags first and its config.json where these leave it open."""
    alias = flag(argv, *engine.alias_flags)
    name = _model_name(engine, argv) or alias
    if name is None:
        why = Unknown(f"the command line of {engine.title} names no model", "its metrics may: see the server pane")
        return ModelFacts(why, Unknown("the model is not known", why.remedy))
    folder, config = _configuration(name, pid, proc)
    is_unanswered, config = config is None, config or {}
    quantization = flag(argv, "--quantization", "-q", "--quantize") or _text(
        config, "quantization_config", "quant_method"
    )
    cache = flag(argv, "--kv-cache-dtype", "--cache-type-k", "-ctk")
    given = {TargetFact.QUANTIZATION: quantization, TargetFact.KV_CACHE_DTYPE: cache}
    more = {key: clean(redact(value)) for key, value in given.items() if value}
    if alias is not None and alias != name:
        more[TargetFact.MODEL_PATH] = clean(redact(name))
    return ModelFacts(
        clean(redact(alias or name)),
        _dtype(engine, argv, name, config, quantization, is_unanswered=is_unanswered),
        more | ({} if is_unanswered else _weights(folder, name, pid, proc)),
        _single_values(config),
    )


def _model_name(engine: Engine, argv: Sequence[str]) -> str | None:
    for word in engine.model_after:
        for before, argument in pairwise(argv):
            if before.rsplit("/", 1)[-1] == word and not argument.startswith("-"):
                return argument
    return flag(argv, *engine.model_flags)


def _dtype(
    engine: Engine,
    argv: Sequence[str],
    model: str,
    config: Mapping[str, Any],
    quantization: str | None,
    *,
    is_unanswered: bool,
) -> Fact:
    if (gguf := _GGUF_TYPE.search(model)) is not None:
        return clean(gguf[1].lower())
    for matrix_format in _MATRIX_FORMATS:
        if quantization and matrix_format in quantization.lower():
            return matrix_format
    given = flag(argv, *engine.dtype_flags)
    if given is None or given == "auto":
        given = _text(config, "dtype") or _text(config, "torch_dtype") or _text(config, "text_config", "torch_dtype")
    if given is None and is_unanswered:
        return _UNANSWERED
    if given is None:
        return Unknown(
            "neither the command line nor a config.json that can be read says the model's dtype",
            f"start the server with {engine.dtype_flags[0]}, give llmtop read access to the model's folder, "
            "or say it: llmtop --attach PID --dtype bf16",
        )
    return _DTYPES.get(given.lower(), clean(given))


def _text(config: Mapping[str, Any], *keys: str) -> str | None:
    value: object = config
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) and len(value) <= _CONFIG_TEXT else None


def _configuration(model: str, pid: int, proc: Path) -> tuple[str, Mapping[str, Any] | None]:
    """The model's folder, seen with the server's eyes, and its config.json; None where that does not answer."""
    try:
        for folder in _folders(model, pid, proc):
            try:
                content = json.loads(foreign.read(pid, f"{folder}/config.json", _CONFIG_BYTES, proc))
            except TimeoutError:
                raise
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(content, Mapping):
                return folder, content
    except TimeoutError:
        return "", None
    return "", {}


_MOST_SNAPSHOTS = 8
"""Versions of a model in a download cache that are looked into."""
_QUANTIZATION_KEYS = ("bits", "group_size", "zero_point", "sym")
NOT_ATTENTION = re.compile(r"[a-z]{0,12}_?(mamba|ssm|linear_num|rwkv|lru_width)[a-z_]{0,24}")
"""Names of what layers have that are not attention: their values are kept next to `facts.CONFIG_NUMBERS`."""


def _single_values(config: Mapping[str, Any]) -> dict[str, Fact]:
    """What a configuration says in single values; a multimodal model's is that of its text part."""
    text, quantization = config.get("text_config"), config.get("quantization_config")
    values: dict[str, Any] = {**config, **(text if isinstance(text, Mapping) else {})}
    if isinstance(quantization, Mapping):
        values |= {f"quantization_config.{key}": quantization.get(key) for key in _QUANTIZATION_KEYS}
    return {
        key: clean(value) if isinstance(value, str) else value
        for key, value in values.items()
        if (key in CONFIG_TEXTS and isinstance(value, str) and len(value) <= _CONFIG_TEXT)
        or ((key in CONFIG_NUMBERS or NOT_ATTENTION.fullmatch(key)) and isinstance(value, int))
    }


def _weights(folder: str, model: str, pid: int, proc: Path) -> dict[str, Fact]:
    """Bytes of the files that hold the weights; nothing where they cannot be seen."""
    if model.endswith(".gguf"):
        where, _, name = next(_folders(model, pid, proc)).rpartition("/")
        wanted = [(where, glob.escape(name))]
    else:
        wanted = [(folder, pattern) for pattern in _WEIGHT_FILES if folder]
    try:
        found = (foreign.sizes(pid, where, pattern, proc) for where, pattern in wanted)
        total = next((size for sizes in found if (size := sum(filter(None, sizes.values())))), 0)
    except OSError:
        return {}
    return {TargetFact.WEIGHTS_BYTES: total} if total else {}


def _folders(model: str, pid: int, proc: Path) -> Iterator[str]:
    """Where a model may be, as the process sees it.

    Raises:
        TimeoutError: A file system does not answer.
    """
    yield str(Path(procfs.read_link(f"{proc}/{pid}/cwd") or "/", model))
    if model.startswith("/"):
        return
    snapshots = f"{_hub(pid, proc)}/models--{model.replace('/', '--')}/snapshots"
    try:
        names = sorted(foreign.sizes(pid, snapshots, "*", proc))
    except TimeoutError:
        raise
    except OSError:
        return
    yield from (f"{snapshots}/{name}" for name in names[:_MOST_SNAPSHOTS])


def _hub(pid: int, proc: Path) -> str:
    """Where the process keeps models that it downloads (huggingface_hub's rules for its cache)."""
    if (hub := procfs.environment(pid, "HF_HUB_CACHE", proc)) is not None:
        return hub
    home = procfs.environment(pid, "HF_HOME", proc)
    return f"{home or (procfs.environment(pid, 'HOME', proc) or '/root') + '/.cache/huggingface'}/hub"
