"""What a server was told, what it says of itself, and what its version does by default: one answer for each feature.

Pure. The answers travel as facts of a track (see `facts`), so that a recorded trace is judged like a live one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from llmtop.facts import SETTINGS_OF
from llmtop.model import Default, Engine, Fact, Feature, FormerDefault, Knob, Unknown, Value

if TYPE_CHECKING:
    from collections.abc import Callable

ON, OFF = "on", "off"
_SEEN = "told"
"""The fact that says that the command line was read: only then is what it does not say left at its default."""
_WORDS: Mapping[str, Value] = {"true": ON, "yes": ON, "false": OFF, "no": OFF, "none": OFF, "null": OFF, "": OFF}
_UNSEEN = "told.unseen"
"""The fact that says why the command line tells nothing."""
_FORMER = "told.former"
"""The fact that names the variable that brings back an older version's defaults."""
NOT_SEEN = Unknown("the server's command line cannot be seen", "run llmtop as the server's user, or with sudo")
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_FIRST_NUMBER = list(Feature).index(Feature.MAX_RUNNING)
_SWITCHES = frozenset(
    {
        Feature.CUDA_GRAPHS,
        Feature.TORCH_COMPILE,
        Feature.ASYNC_SCHEDULING,
        Feature.PREFIX_CACHING,
        Feature.CHUNKED_PREFILL,
        Feature.EXPERT_PARALLEL,
        Feature.SLEEP_WHEN_IDLE,
    }
)
"""Features for which 0 and 1 mean off and on."""


class Keys(NamedTuple):
    """The names of the facts of one feature: its value, where that was read, and how to set it otherwise."""

    value: str
    source: str
    change: str


@lru_cache(maxsize=2 * len(Feature))  # rules ask in each frame
def keys_of(feature: Feature, *, told: bool = False) -> Keys:
    """Of what a server is set to; of what it was `told` to be.

    >>> keys_of(Feature.MAX_RUNNING).source, keys_of(Feature.MAX_RUNNING, told=True).value
    ('setting.max_running.source', 'told.max_running')
    """
    name = f"{'told' if told else 'setting'}.{feature}"
    return Keys(name, f"{name}.source", f"{name}.change")


def told(
    engine: Engine, argv: Sequence[str], config: Mapping[str, str], variable: Callable[[str], str | None]
) -> dict[str, Fact]:
    """What a server was told by its command line, else by its file of flags, else by its environment.

    With some engines the file counts most (`Engine.config_wins`).

    Args:
        engine: The server's.
        argv: Its arguments, the program first.
        config: The lines of its file of flags, by flag without the dashes.
        variable: The value of one variable of its environment.
    """
    facts: dict[str, Fact] = {_SEEN: "yes"}
    former = next((one for one in engine.formers if variable(one.variable) == one.value), None)
    facts |= {} if former is None else {_FORMER: former.variable}
    for feature, knob in engine.knobs.items():
        sources = (_on_command_line(knob, argv), _in_file(knob, config))
        found = next(chain(*(sources[::-1] if engine.config_wins else sources), _in_environment(knob, variable)), None)
        if found is not None:
            value, where = _value(feature, knob, found[0]), found[1]
            if value is not None:
                keys = keys_of(feature, told=True)
                facts |= {keys.value: value, keys.source: where}
    return facts


def untold(why: Unknown = NOT_SEEN) -> dict[str, Fact]:
    """In the place of `told`: why nobody knows what a server was told."""
    return {_UNSEEN: why}


def facts(
    engine: Engine, told: Mapping[str, Fact], labels: Mapping[str, str] | None = None, version: Fact | None = None
) -> dict[str, Fact]:
    """What is set, by feature, under its `keys_of`.

    What the server says of itself counts most, then what it was told, then what its version does by default.

    Args:
        engine: The server's.
        told: The facts of its target: of these the ones of `told` count.
        labels: Those of its `info` metrics.
        version: The server's own; without it defaults count only where all versions have the same.
    """
    found: dict[str, Fact] = {SETTINGS_OF: engine.kind}
    is_seen = _SEEN in told
    former = next((one for one in engine.formers if one.variable == told.get(_FORMER)), None)
    for feature, knob in _independent_first(engine):
        value, where = _set(feature, knob, told, labels or {})
        fact: Fact = told.get(_UNSEEN, NOT_SEEN) if value is None else value
        if value is None and is_seen:
            fact, where = _by_default(knob, found, version, former)
        keys = keys_of(feature)
        found[keys.value] = fact
        if where:
            found[keys.source] = where
        change = knob.undo if knob.undo and keys_of(feature, told=True).value in told else knob.change
        if change and has_version(knob.since, version) and not (knob.until and has_version(knob.until, version)):
            found[keys.change] = change
    return found


def _independent_first(engine: Engine) -> list[tuple[Feature, Knob]]:
    return sorted(engine.knobs.items(), key=lambda pair: any(one.unless for one in pair[1].defaults))


def _on_command_line(knob: Knob, argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(words, source); of a flag that is given twice the last counts, as in argparse."""
    yield from list(_given(knob, argv))[-1:]


def _in_file(knob: Knob, config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for flag in (*knob.flags, *knob.switches):
        value = config.get(flag.lstrip("-"))
        if value is not None:
            meant = knob.switches.get(flag, value)
            is_off = flag in knob.switches and _WORDS.get(value.lower()) == OFF
            if not is_off:
                yield meant, f"{flag.lstrip('-')}: {value} in its configuration file"


def _in_environment(knob: Knob, variable: Callable[[str], str | None]) -> Iterator[tuple[str, str]]:
    for name in knob.variables:
        value = variable(name)
        if value is not None:
            yield value, f"{name}={value}"


def _given(knob: Knob, argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    for i, argument in enumerate(argv):
        name, has_value, value = argument.partition("=")
        if name.startswith("--"):
            base, dot, inner = name[2:].partition(".")
            name = f"--{base.replace('_', '-')}{dot}{inner}"
        behind = value if has_value else argv[i + 1] if i + 1 < len(argv) else ""
        switch = next((one for one in (argument, name, f"{name}={behind}") if one in knob.switches), None)
        if switch is not None:
            yield knob.switches[switch], switch
            continue
        for flag in knob.flags:
            if name == flag and behind:
                yield behind, f"{name} {behind}" if len(behind) <= _SHOWN else name
            elif "." in flag and name == flag.partition(".")[0]:
                meant = _in_json(behind, flag.partition(".")[2])
                if meant is not None:
                    yield meant, f"{name} ({flag.partition('.')[2]} {meant})"


_SHOWN = 60


def _in_json(text: str, key: str) -> str | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    value = document.get(key) if isinstance(document, dict) else None
    return None if value is None or isinstance(value, (dict, list)) else str(value)


def _value(feature: Feature, knob: Knob, words: str) -> Value | None:
    """What words mean; None for those that mean nothing here ("auto" for a number)."""
    word = words.strip().lower()
    if word in knob.words:
        return knob.words[word]
    if list(Feature).index(feature) >= _FIRST_NUMBER:
        return _number(word)
    if feature in _SWITCHES and word in ("0", "1"):
        return (OFF, ON)[int(word)]
    return _WORDS.get(word, words.strip())


def _number(word: str) -> float | int | None:
    factor = {"k": 1000, "m": 1000_000}.get(word[-1:], 1)
    try:
        number = float(word[:-1] if factor > 1 else word) * factor
    except ValueError:
        return None
    if number != number or abs(number) == float("inf"):
        return None
    return int(number) if number == int(number) else number


def _set(feature: Feature, knob: Knob, told: Mapping[str, Fact], labels: Mapping[str, str]) -> tuple[Value | None, str]:
    for label in knob.labels:
        words = labels.get(label, "")
        value = _value(feature, knob, words) if words and words.lower() != "none" else None
        if value is not None:
            return value, f'{label}="{words}" of its metrics'
    keys = keys_of(feature, told=True)
    given, where = told.get(keys.value), told.get(keys.source, "")
    return (None, "") if given is None or isinstance(given, Unknown) else (given, str(where))


def _by_default(
    knob: Knob, found: Mapping[str, Fact], version: Fact | None, former: FormerDefault | None
) -> tuple[Fact, str]:
    """The newest default that the version has, or the older one that it was set back to."""
    like = version if former is None or has_version(former.until, version) else former.version
    of_version = [one for one in knob.defaults if has_version(one.since, like)]
    if not knob.defaults:
        return Unknown("the server decides it by itself, and does not say how"), ""
    if isinstance(version, Unknown | None) and any(one.since for one in knob.defaults):
        return Unknown("what it does by default depends on its version, which is not known"), ""
    if not of_version:
        return Unknown(f"what version {version} does by default is not known"), ""
    default = of_version[0]
    if any(_is_on(found.get(keys_of(other).value)) for other in default.unless):
        others = ", ".join(other.replace("_", " ") for other in default.unless)
        return Unknown(f"what it does by default together with {others} is not known"), ""
    if isinstance(default.value, Unknown):
        return default.value, ""
    where = _says_default(default, version)
    return (
        default.value,
        where if like == version or former is None else f"{where} with {former.variable}={former.value}",
    )


def _says_default(default: Default, version: Fact | None) -> str:
    return "default" if isinstance(version, Unknown | None) or not default.since else f"default of {version}"


def has_version(since: str, version: Fact | None) -> bool:
    """Whether a version is `since` or newer; true where it is not known which it is."""
    if not since or version is None or isinstance(version, Unknown):
        return True
    return _order(str(version)) >= _order(since)


def _order(version: str) -> tuple[int, ...]:
    """A version as numbers that can be compared.

    >>> _order("0.26.1rc1+cu130"), _order("v0.9") < _order("0.10.2")
    ((0, 26, 1), True)
    """
    match = _VERSION.search(version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _is_on(fact: Fact | None) -> bool:
    return is_on(fact) if fact is not None and not isinstance(fact, Unknown) else False


def is_on(value: Value) -> bool:
    """Whether a value means that something is in use: one GPU in parallel is none, "auto" is the ordinary.

    >>> is_on("on"), is_on("fp8"), is_on("off"), is_on("auto"), is_on(1), is_on(4)
    (True, True, False, False, False, True)
    """
    if isinstance(value, str):
        return value not in (OFF, "auto")
    return value > 1
