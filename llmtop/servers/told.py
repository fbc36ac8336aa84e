"""What a running server was told: by its command line, a file of flags, its environment, the model's own files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from llmtop import foreign, procfs, settings
from llmtop.facts import TargetFact
from llmtop.model import Engine, Fact, Feature, Unknown
from llmtop.servers import command_line
from llmtop.servers.command_line import ModelFacts
from llmtop.text import clean, redact

_FILE_BYTES = 1 << 18
_UNANSWERED = Unknown(
    "the file system of the server's file of flags does not answer", "see whether it is mounted: ls may hang as well"
)
_TITLED = Unknown(
    "the server has written a title over its command line", "what started it has it: a unit, a container, a script"
)


def told(
    engine: Engine,
    argv: Sequence[str],
    config: Mapping[str, str] | Unknown,
    pid: int,
    model: ModelFacts,
    proc: Path = procfs.PROC,
) -> dict[str, Fact]:
    """The facts of `settings.told` for a process.

    Args:
        engine: The server's.
        argv: Its arguments.
        config: What `file_of_flags` found.
        pid: Its own.
        model: What `command_line.model_facts` found of the model: how its weights are stored.
        proc: Where processes are looked at.
    """
    if (why := _why_unseen(argv, pid, proc)) is not None:
        return settings.untold(why)
    if isinstance(config, Unknown):
        return settings.untold(config)
    facts = settings.told(engine, argv, config, lambda name: procfs.environment(pid, name, proc))
    facts = {key: clean(redact(value)) if isinstance(value, str) else value for key, value in facts.items()}
    keys = settings.keys_of(Feature.QUANTIZATION, told=True)
    if keys.value not in facts and Feature.QUANTIZATION in engine.knobs:
        stored, where = _stored(model)
        facts |= {keys.value: stored, keys.source: where} if stored else {}
    return facts


def _why_unseen(argv: Sequence[str], pid: int, proc: Path) -> Unknown | None:
    """Why its arguments do not tell what it was told; None where they do.

    A process of Python may have written a title over them, and without rights nobody knows which program it runs.
    """
    if len(argv) > 1:
        return None
    program = procfs.read_link(f"{proc}/{pid}/exe")
    if program is None or not argv:
        return settings.NOT_SEEN
    return _TITLED if program.rpartition("/")[2].startswith(("python", "pypy")) else None


def _stored(model: ModelFacts) -> tuple[str, str]:
    """How a model's files say that its weights are stored; empty where they do not."""
    quantization = model.more.get(TargetFact.QUANTIZATION)
    if isinstance(quantization, str):
        return quantization, "the model's config.json"
    return (settings.OFF, "the model's config.json") if model.config else ("", "")


def with_file(argv: Sequence[str], config: Mapping[str, str] | Unknown) -> tuple[str, ...]:
    """Arguments with those of a file of flags behind them, for what is asked of the first that is there."""
    if isinstance(config, Unknown):
        return tuple(argv)
    return (*argv, *(f"--{name}={value}" for name, value in config.items()))


def file_of_flags(engine: Engine, argv: Sequence[str], pid: int, proc: Path = procfs.PROC) -> dict[str, str] | Unknown:
    """The values of the file of further flags that a command line names; none where it cannot be read.

    Unknown where its file system does not answer.
    """
    name = command_line.flag(argv, *engine.config_flags) if engine.config_flags else None
    if name is None:
        return {}
    file = Path(procfs.read_link(f"{proc}/{pid}/cwd") or "/", name)
    try:
        text = foreign.read(pid, str(file), _FILE_BYTES, proc)
    except TimeoutError:
        return _UNANSWERED
    except OSError:
        return {}
    return dict(flags_in(text.decode(errors="replace")))


def flags_in(text: str) -> Iterator[tuple[str, str]]:
    r"""The single values of a YAML file, two levels deep, by flag.

    Not a YAML reader: lists, anchors and longer texts are left out, as flags have none.

    >>> dict(flags_in("max_num_seqs: 8  # few\nkv_cache_config:\n  dtype: 'fp8'\n"))
    {'max-num-seqs': '8', 'kv-cache-config.dtype': 'fp8'}
    """
    above = ""
    for line in text.splitlines():
        key, found, value = line.partition(" #")[0].partition(":")
        name, value = key.strip().replace("_", "-"), value.strip().strip("'\"")
        if not found or not name or name.startswith(("#", "-")):
            continue
        is_inner = key[0].isspace()
        if not value:
            above = f"{name}." if not is_inner else above
            continue
        above = above if is_inner else ""
        yield above + name, value
