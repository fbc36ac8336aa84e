"""What makes a recording worth keeping: a number that is too high or too low for a while, or a finding.

`ttft_p99 > 1s for 10s`, `kv_usage > 90%`, `gpu.power < 100`, `finding:kv-bound`
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose, rule_book
from llmtop.analysis.series.readings import latest
from llmtop.analysis.server.view import ServerNumber, concepts, server_view
from llmtop.frozen import frozen
from llmtop.model import LIVE, NS_PER_S, Metric, Trace, Unknown
from llmtop.text import did_you_mean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DURATION: Final = r"(?:\s+for\s+(?P<long>[\d.]+)\s*(?P<scale>ms|s|min|h))?\s*"
_NUMBER: Final = re.compile(
    r"\s*(?P<name>[\w.]+)\s*(?P<sign>[<>])\s*(?P<limit>[\d.]+)\s*(?P<unit>(?!for\b)[A-Za-z%/]*)" + _DURATION
)
_FINDING: Final = re.compile(r"\s*finding:(?P<name>[\w-]+)" + _DURATION)
_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_BYTES: Final = {"B": 1.0} | {
    f"{prefix}{binary}B": (1024.0 if binary else 1000.0) ** power
    for power, prefix in enumerate("kMGT", 1)
    for binary in ("", "i")
}
_SCALES: Final[Mapping[str, Mapping[str, float]]] = {
    "s": _SECONDS,
    "ratio": {"%": 0.01},
    "bytes": _BYTES,
    "bytes/s": {f"{unit}/s": scale for unit, scale in _BYTES.items()},
}
"""By the unit of a number: the units that its limit may be given in, and what one of them is."""
_NO_QUANTITIES: Final = (*v.SIGNS, "ns")
"""Units of what stands for something, and of distributions."""
_EXAMPLE: Final = "as in 'ttft_p99 > 1s for 10s', 'kv_usage > 90%' or 'finding:kv-bound'"
_LONGEST_NAME: Final = 40
_JUDGED_NS: Final = 5 * NS_PER_S
"""How often it is asked what the rules find: that takes much longer than a look at a number."""


class TriggerError(ValueError):
    """What was written is no trigger; the message says what would be one."""


@frozen
class Trigger:
    """A condition, and for how long it has to hold.

    Attributes:
        text: As it was written.
        name: Of a number; of a rule where there is no limit.
        limit: In the unit of the number.
        is_above: Whether more than the limit is too much; else less is too little.
    """

    text: str
    name: str
    limit: float | None
    is_above: bool
    for_ns: int

    def holds(self, trace: Trace) -> bool:
        """Whether it is so at the end of a trace; what is not known does not hold."""
        if self.limit is None:
            return any(finding.rule == self.name for finding in diagnose(trace).findings)
        return any(self._is_beyond(low, high, self.limit) for low, high in _values(trace, self.name))

    def is_told(self, trace: Trace) -> bool:
        """Whether its number is known at the end of a trace; what a rule lacks, the rule says itself."""
        return self.limit is None or next(_values(trace, self.name), None) is not None

    def _is_beyond(self, low: float, high: float, limit: float) -> bool:
        """Whether a value that lies between two is beyond the limit wherever it lies."""
        return low > limit if self.is_above else high < limit


@dataclass(slots=True)
class TriggerWatch:
    """Looks at one trigger again and again."""

    trigger: Trigger
    since_ns: int | None = field(default=None, init=False)
    """Since when it holds."""
    was_told: bool = field(default=False, init=False)
    """Whether its number was known once."""
    _judged_ns: int | None = field(default=None, init=False)

    def fires(self, trace: Trace) -> bool:
        """Whether it has held for long enough; to be asked about once a second."""
        now = trace.end_ns
        if self.trigger.limit is not None or self._judged_ns is None or now - self._judged_ns >= _JUDGED_NS:
            self._judged_ns = now
            holds = self.trigger.holds(trace)
            self.was_told = self.was_told or self.trigger.is_told(trace)
            self.since_ns = None if not holds else now if self.since_ns is None else self.since_ns
        return self.since_ns is not None and now - self.since_ns >= self.trigger.for_ns


def trigger(text: str) -> Trigger:
    """A trigger as users write it.

    Raises:
        TriggerError: It is none, or of a number or a rule that there is not.
    """
    if found := _FINDING.fullmatch(text):
        _known(found["name"], _rules(), "rule")
        return Trigger(text.strip(), found["name"], None, True, _duration_ns(found))
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise TriggerError(f"{text!r} is no condition, {_EXAMPLE}")
    unit = _known(found["name"], _units(), "number")
    limit = _amount(text, found["limit"]) * _scale(text, found["unit"], unit)
    return Trigger(text.strip(), found["name"], limit, found["sign"] == ">", _duration_ns(found))


def _known(name: str, names: Mapping[str, str], what: str) -> str:
    if name not in names:
        near, all_ = did_you_mean(name, names), ", ".join(names)
        others = f"{near} There are {all_}" if near else f", but {all_}"
        raise TriggerError(f"there is no {what} {shorten(name, _LONGEST_NAME)!r}{others}")
    return names[name]


def _duration_ns(found: re.Match[str]) -> int:
    if found["long"] is None:
        return 0
    return int(_amount(found.string, found["long"]) * _SECONDS[found["scale"]] * NS_PER_S)


def _amount(text: str, digits: str) -> float:
    try:
        return float(digits)
    except ValueError:
        raise TriggerError(f"{text!r}: {digits!r} is no number, {_EXAMPLE}") from None


def _scale(text: str, given: str, unit: str) -> float:
    """What one of the given unit is in the unit of the number."""
    scales = {"": 1.0, unit: 1.0, **_SCALES.get(unit, {})}
    if given not in scales:
        raise TriggerError(f"{text!r}: it is in {unit}, and may be given in {', '.join(filter(None, scales))}")
    return scales[given]


@cache
def _rules() -> Mapping[str, str]:
    return dict.fromkeys(sorted(rule.id for rule in rule_book(Trace(LIVE)).RULES), "")


@cache
def _units() -> Mapping[str, str]:
    """Numbers that a limit may be set to, with their units: what the server tells, and what stands in the series."""
    gauges = (one for one in vars(v).values() if isinstance(one, Metric) and not one.counter)
    known = sorted((one.name, one.unit) for one in gauges if one.unit not in _NO_QUANTITIES)
    return {**concepts(), **{name: unit for name, unit in known if not name.startswith("server.")}}


def _values(trace: Trace, name: str) -> Iterator[tuple[float, float]]:
    """Between what the number lies: of a server one, of a series that of each track that has it."""
    if name in concepts():
        view = server_view(trace)
        if not isinstance(view, Unknown) and name in view.stats:
            yield from _of_server(view.stats[name])
        return
    for track, metric in trace.series:
        if metric == name:
            value = latest(trace, track, trace.series[track, metric].metric)
            if not isinstance(value, Unknown):
                yield value, value


def _of_server(stat: ServerNumber) -> Iterator[tuple[float, float]]:
    if stat.bounds is not None:
        yield stat.bounds.low, stat.bounds.high
    elif not isinstance(stat.value, Unknown):
        yield stat.value, stat.value
