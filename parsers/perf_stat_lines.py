"""The lines that `perf stat` prints for people, as CSV (`-x`) and as JSON (`-j`): a count each.

The same numbers in three layouts, with the same optional parts (tools/perf/util/stat-display.c; perf-stat(1), "CSV
FORMAT" and "JSON FORMAT"): the time of an interval (`-I`), the core, CPU, node or thread and how many CPUs it stands
for (`--per-core`, `-A`, `--per-thread`), a cgroup, how far runs are apart (`-r`), for how long there was a counter.

         0.100176963 S0-D0-C0  1     42.07 msec task-clock    #    0.421 CPUs utilized   ( +-  5.36% )  (83.33%)
         0.100176963,S0-D0-C0,1,42.07,msec,task-clock,5.36%,42070112,83.33,0.421,CPUs utilized
    {"interval" : 0.100176963, "core" : "S0-D0-C0", "counters" : 1, "counter-value" : "42.070112", "unit" : "msec", ...

Numbers are printed as the user's language has them, in CSV and JSON too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIME = r"\d{1,9}\.\d{9}"
"""Of an interval, in seconds: the one number that no language changes."""
_NUMBER = r"\d[\d.,'\u2019\u00a0\u202f]*"
_NOT = r"<not counted>|<not supported>"
_PART = r"(?:S|N|D|CPU)\d+(?:-\S+)?"
"""A socket, a node, a die, a CPU; with what is below it a core or a cache."""
_EVENT = r"[A-Za-z_][^\s#]*"
_TEXT = re.compile(
    rf"\s*(?:(?P<time>{_TIME})\s+)?(?:(?P<of>{_PART}|\S.*?-\d+)\s+(?:(?P<cpus>\d+)\s+)?)?"
    rf"(?P<count>{_NUMBER}|{_NOT})\s+(?:(?P<unit>[A-Za-z%]\S*)\s+)??(?P<event>{_EVENT})(?:\s+\((?P<msec>msec)\))?"
    r"(?:\s+(?P<cgroup>/\S*))?\s*(?:#(?P<derived>.*?))?(?:\( \+-\s*(?P<spread>[\d.,]+)% ?\))?\s*"
    r"(?:\((?P<share>[\d.,]+)%\))?\s*"
)
_UTILIZED = re.compile(r"\s*([\d.,]+) +CPUs utilized\b.*")
_CPUS = "CPUs utilized"
_JSON = re.compile(r'"([\w-]+)" ?: ?(?:"((?:[^"\\]|\\.)*)"|(-?[\d.]+(?:,\d+)?))')
_JSON_PARTS = ("core", "die", "socket", "cluster", "cache", "node", "thread", "cpu")
SEPARATORS: Final = ",;\t|:@~^"
"""What CSV may have between its fields, of all that `-x` takes."""
_NS_PER_MS = 1e6
_CLOCKS = re.compile(r"(?:task|cpu)-clock(?:$|[:/])|(?:duration|user|system)_time$")


@frozen
class CountLine:
    """One line.

    Attributes:
        count: None where perf did not count; `is_supported` tells whether it could have.
        unit: "ns" of a clock, "1" of what happens, else as it is printed.
        of: The core, CPU, node or thread; empty of what is counted as a whole.
        time_s: The end of its interval; None without intervals.
        share, spread: As `EventCount` has them.
        utilized: How many CPUs were in use, where perf says so.
    """

    event: str
    count: float | None
    unit: str
    is_supported: bool = True
    of: str = ""
    cgroup: str = ""
    time_s: float | None = None
    share: float | None = None
    spread: float | None = None
    utilized: float | None = None


def count_line(line: str) -> CountLine | None:
    """What a line in any of the layouts tells; None of one that is no count."""
    if line.lstrip().startswith("{"):
        return _of_json(line)
    if (printed := _TEXT.fullmatch(line)) is not None:
        return _of_text(printed.groupdict())
    return of_csv(line)


def printed_number(text: str) -> float:
    """A number in any language: grouped by threes, or with two or more than three digits behind its decimal sign.

    Counts have no fraction, and all that has one is printed with two digits of it, by old perfs with six.

    >>> [printed_number(text) for text in ("9.653", "233,59", "1,354.99", "1 234 567", "1708.761321", "42")]
    [9653.0, 233.59, 1354.99, 1234567.0, 1708.761321, 42.0]
    """
    found = re.fullmatch(r"(.*\d)[.,](\d{1,2}|\d{4,})", text)
    whole, fraction = (found[1], found[2]) if found else (text, "0")
    return float(f"{re.sub(r'[^0-9]', '', whole)}.{fraction}")


def plain_number(text: str) -> float:
    """A number that is not grouped, whatever its decimal sign.

    >>> plain_number("36,940841"), plain_number("100.00"), plain_number("0,497")
    (36.940841, 100.0, 0.497)
    """
    return float(text.replace(",", "."))


def _of_text(told: Mapping[str, str | None]) -> CountLine:
    unit = told["unit"] or told["msec"] or ""
    count, event = told["count"] or "", told["event"] or ""
    utilized = _UTILIZED.fullmatch(told["derived"] or "")
    return _line(
        {**told, "share": told["share"] or "100"},  # it is printed where it is less
        event,
        None if count.startswith("<") else printed_number(count),
        unit,
        utilized=plain_number(utilized[1]) if utilized else None,
        is_supported=count != "<not supported>",
    )


def of_csv(line: str) -> CountLine | None:
    """What a line of CSV tells, whatever is between its fields; None of any other line."""
    for separator in SEPARATORS:
        if line.count(separator) >= _FEWEST and (found := _csv(separator).fullmatch(line)) is not None:
            told = found.groupdict()
            count = told["count"]
            # Where the decimal sign is a comma, perf cuts this one number there.
            is_whole = "." in (told["metric"] or "") or "," in (told["metric"] or "")
            utilized = plain_number(told["metric"]) if told["what"] == _CPUS and is_whole else None
            value = None if count.startswith("<") else plain_number(count)
            is_supported = count != "<not supported>"
            return _line(told, told["event"], value, told["unit"], utilized=utilized, is_supported=is_supported)
    return None


_FEWEST = 4
"""Separators in a line of CSV: count, unit, event, time, share."""


@lru_cache(maxsize=len(SEPARATORS))
def _csv(separator: str) -> re.Pattern[str]:
    s = re.escape(separator)
    part = rf"(?:S|N|D|CPU)\d+(?:-[^{s}\s]+)?"
    number = r"\d{1,20}(?:[.,]\d{1,6})?"
    return re.compile(
        rf"(?:\s*(?P<time>{_TIME}){s})?(?:\s*(?P<of>{part}|[^{s}]*-\d+){s}(?:(?P<cpus>\d{{1,9}}){s})?)?"
        rf"(?P<count>{number}|{_NOT}){s}(?P<unit>[^{s}\d]*){s}(?P<event>[A-Za-z_](?:[^{s}/]*/[^/]*/[^{s}]*|[^{s}]*)){s}"
        rf"(?:(?P<cgroup>[^{s}\d%][^{s}]*){s})?(?:(?P<spread>{number})%{s})?\d{{1,20}}{s}(?P<share>{number})"
        rf"(?:{s}(?P<metric>{number})?{s}(?P<what>[^{s}]*))?.*"
    )


def _of_json(line: str) -> CountLine | None:
    told = {name: text or number for name, text, number in _JSON.findall(line)}
    event, count = told.get("event"), told.get("counter-value")
    if not event or not count:
        return None
    is_number = re.fullmatch(r"-?[\d.]+(?:,\d+)?", count) is not None
    if not is_number and count not in ("<not counted>", "<not supported>"):
        return None
    part = next((name for name in _JSON_PARTS if told.get(name)), "")
    of = f"CPU{told[part]}" if part == "cpu" and told[part].isdecimal() else told.get(part, "")
    renamed = {"time": "interval", "share": "pcnt-running", "spread": "variance", "cgroup": "cgroup"}
    utilized = told.get("metric-value") if told.get("metric-unit") == _CPUS else None
    return _line(
        {"of": of, **{name: told.get(key) for name, key in renamed.items()}},
        event,
        plain_number(count) if is_number else None,
        told.get("unit", ""),
        utilized=plain_number(utilized) if utilized else None,
        is_supported=count != "<not supported>",
    )


def _line(
    told: Mapping[str, str | None],
    event: str,
    count: float | None,
    unit: str,
    *,
    utilized: float | None,
    is_supported: bool,
) -> CountLine:
    base, scale = _base_unit(event, unit, count)
    share, spread, time_s = (told.get(name) for name in ("share", "spread", "time"))
    return CountLine(
        event=event,
        count=None if count is None else count * scale,
        unit=base,
        is_supported=is_supported,
        of=(told.get("of") or "").strip(),
        cgroup=(told.get("cgroup") or "").strip(),
        time_s=float(time_s) if time_s else None,
        share=plain_number(share) / 100 if share else None,
        spread=plain_number(spread) / 100 if spread else None,
        utilized=utilized,
    )


def _base_unit(event: str, unit: str, count: float | None) -> tuple[str, float]:
    """What a count is in, and what it is to be multiplied by: clocks are in ms, with a fraction, or in ns."""
    if unit == "msec" or (not unit and _CLOCKS.match(event) and count is not None and count % 1):
        return "ns", _NS_PER_MS
    return ("ns", 1.0) if unit == "ns" or (not unit and _CLOCKS.match(event)) else (unit or "1", 1.0)
