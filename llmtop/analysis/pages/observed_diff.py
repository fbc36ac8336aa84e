"""Two moments that llmtop has recorded, beside each other: what changed, and what keeps them from being compared.

Both are looked at over windows of one length: as much as the shorter has, and of one recording no more than lies
between them, as what both windows held would hide what changed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from llmtop import vocabulary as v
from llmtop.analysis.gpus.models import short_gpu_name
from llmtop.analysis.pages.header import header_dtype
from llmtop.analysis.pages.observed import observation
from llmtop.analysis.roofline.live import mean_point
from llmtop.analysis.roofline.rates import dram_bytes_per_s
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.readings import BUSY, gpu_tracks, mean, server_gpus
from llmtop.analysis.server.configuration import configuration
from llmtop.analysis.server.view import GAUGES, server_view
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.threads.shares import Shares, ThreadRow, threads_view
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Trace, Unknown
from llmtop.units import number, percent, quantity, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from llmtop.model import Finding, Metric, Track

_LEAST_S: Final = 10.0
"""What is shorter tells of a few steps."""
_SAME_LOAD: Final = 1.5
"""Requests a second that differ by less are taken for one load."""
_NOTABLE: Final = 0.1
"""Of a number: changes of less go without saying."""
_CAUSES: Final = "causes"
_SLIGHT: Final = 0.01
"""Of a thread's time: what it spends less of in both is left out."""
_POINTS: Final = frozenset({"ratio", "%"})
"""Units of shares, whose changes are differences."""
_TIMES: Final = 9.0
"""From here on times say more than per cent."""
_MOST_TIMES: Final = 99.0
"""From here on what was is noise, and times of it are too."""
_NEAR_ZERO: Final = {"cores": _SLIGHT}
"""Of a unit: below this a number is as good as none, and no ratio is made of it."""
_FUNCTIONS: Final = 15
_HEADLINES: Final = ("output_tokens_per_s", "ttft_p99", "itl_p99", "kv_usage", "waiting")
_NOT_THERE: Final = Unknown("it is not in this recording")
_GPU: Final = (*BUSY, v.GPU_SM, v.GPU_DRAM, v.GPU_TENSOR, v.GPU_OCCUPANCY, v.GPU_POWER, v.GPU_SM_CLOCK)


@frozen
class Amount:
    """A number of one moment.

    Attributes:
        text: How it reads: of a quantile between what it lies.
        bounds: Between what it lies; None where it is not known.
    """

    value: float | Unknown
    text: str
    bounds: tuple[float, float] | None = None


@frozen
class ChangedNumber:
    """A number at both moments.

    Attributes:
        part: What it is of: "server", "GPU 0", "threads", "stacks".
        key: Stable, for scripts.
    """

    part: str
    key: str
    title: str
    unit: str
    before: Amount
    after: Amount

    @property
    def change(self) -> float | None:
        """As a share of what was; of shares in their unit. None where either is not known, or nothing was."""
        before, after = self.before.value, self.after.value
        if isinstance(before, Unknown) or isinstance(after, Unknown):
            return None
        if self.unit in _POINTS:
            return after - before
        return (after - before) / before if before else None

    @property
    def change_said(self) -> str:
        """The same in words; empty where there is none."""
        if (change := self.change) is None:
            return {1: "more", -1: "less"}.get(self.direction, "")
        least = _NEAR_ZERO.get(self.unit, 0.0)
        was_nothing, is_nothing = ((one.bounds or (0.0,))[0] < least for one in (self.before, self.after))
        if was_nothing and is_nothing:
            return ""
        if self.unit not in _POINTS and change >= _TIMES:
            return "from almost 0" if was_nothing or change >= _MOST_TIMES else f"{number(1 + change)} times"
        points = change if self.unit == "%" else 100 * change
        said = percent(abs(points)).replace(" %", " points") if self.unit in _POINTS else percent(abs(points))
        return f"{'+' if points > 0 else '-' if points < 0 else ''}{said}"

    @property
    def direction(self) -> int:
        """Whether it is more (1) or less (-1) by now, wherever within its bounds it lies; 0 where that is open."""
        before, after = self.before.bounds, self.after.bounds
        if before is None or after is None:
            return 0
        if after[0] >= before[1] and after[1] > before[0]:  # buckets of a server touch each other
            return 1
        return -1 if after[1] <= before[0] and after[0] < before[1] else 0

    @property
    def is_notable(self) -> bool:
        """Whether it is worth a word."""
        is_share_small = self.change is not None and abs(self.change) < _NOTABLE
        return bool(self.direction) and not is_share_small


@frozen
class ObservedDiff:
    """Two moments.

    Attributes:
        seconds: The window that each was looked at over.
        cannot: Why their numbers mean little beside each other; empty where nothing speaks against it.
        cautions: What else they do not have in common.
        setup: Settings that differ: (what, before, after).
        came, went: Findings that only the second has, or only the first.
        stayed: Those that both have, as the second says them.
        judged_s: How much of each end the findings are of, which is not what the numbers are of.
    """

    seconds: float
    cannot: tuple[str, ...]
    cautions: tuple[str, ...]
    numbers: tuple[ChangedNumber, ...]
    setup: tuple[tuple[str, str, str], ...]
    came: tuple[Finding, ...]
    went: tuple[Finding, ...]
    stayed: tuple[Finding, ...]
    judged_s: tuple[float, float]

    @property
    def judged(self) -> str:
        """The same in words: "15 s", "8 and 15 s"."""
        return _in_words(self.judged_s)

    @property
    def verdict(self) -> str:
        """What changed most that matters to requests, and what the rules find that they did not."""
        by_key = {one.key: one for one in self.numbers if one.part == "server"}
        told = [one for key in _HEADLINES if (one := by_key.get(key)) is not None and one.is_notable]
        said = [f"{one.title} {one.before.text} → {one.after.text}" for one in told]
        numbers = [f"over {self.seconds:.0f} s: {', '.join(said)}"] if said else []
        turns = [*(f"new: {one.message}" for one in self.came), *(f"gone: {one.message}" for one in self.went)]
        findings = [f"in the last {self.judged} {turns[0]}"] if turns else []
        return "; ".join((*numbers, *findings)) or self._nothing

    @property
    def _nothing(self) -> str:
        """What no change means: silence about numbers that nobody compared would read as that they stand still."""
        if self.cannot:
            return "what changed is not told"
        if not any(one.part == "server" for one in self.numbers):
            return "no number of a server is in both, and the findings are the same"
        return f"nothing of the server's changed by more than {percent(100 * _NOTABLE)}"


def observed_diff(before: Trace, after: Trace) -> ObservedDiff:
    """What changed from one moment to the other."""
    window_ns = _window_ns(before, after)
    numbers = tuple(_changes(_numbers(before, window_ns), _numbers(after, window_ns)))
    judged = [diagnose(trace) for trace in (before, after)]
    found = [{(one.rule, one.subject): one for one in each.findings} for each in judged]
    judged_s = judged[0].seen_s or 0.0, judged[1].seen_s or 0.0
    return ObservedDiff(
        window_ns / NS_PER_S,
        tuple(_why_not(before, after, window_ns)),
        (*_cautions(before, after, numbers), *_shared(before, after, judged_s)),
        numbers,
        tuple(_setup(before, after)),
        tuple(one for key, one in found[1].items() if key not in found[0]),
        tuple(one for key, one in found[0].items() if key not in found[1]),
        tuple(one for key, one in found[1].items() if key in found[0]),
        judged_s,
    )


def _window_ns(before: Trace, after: Trace) -> int:
    had_ns = min(trace.end_ns - trace.start_ns for trace in (before, after))
    return min(had_ns, _between_ns(before, after) or had_ns)


def _between_ns(before: Trace, after: Trace) -> int | None:
    """The time between two moments of one clock; None of two clocks, which say nothing of each other."""
    clocks = [(one.origin.host, one.origin.utc_ns) for one in (before, after)]
    return None if clocks[0] != clocks[1] or clocks[0][1] is None else abs(after.end_ns - before.end_ns)


# -- what keeps them apart -------------------------------------------------------------------------------------


def _why_not(before: Trace, after: Trace, window_ns: int) -> Iterator[str]:
    if window_ns < _LEAST_S * NS_PER_S:
        is_near = window_ns == _between_ns(before, after)
        lengths = {one.end_ns - one.start_ns for one in (before, after)}
        has = "they have {} each" if len(lengths) == 1 else "one of them has {}"
        why = "{} lie between them" if is_near else has
        yield f"{why.format(seen(window_ns / NS_PER_S))}, and rates and latencies need {_LEAST_S:.0f} s"
    told = {
        "server": _of_both(before, after, _engine),
        "model": _of_both(before, after, _model),
        "GPUs": _of_both(before, after, _gpus),
    }
    for what, (mine, theirs) in told.items():
        if mine != theirs and mine and theirs:
            yield f"they are of another {what}: {mine} and {theirs}"


def _cautions(before: Trace, after: Trace, numbers: Iterable[ChangedNumber]) -> Iterator[str]:
    if _between_ns(before, after) == 0:
        yield "they are the same moment of one recording"
    load = next((one for one in numbers if one.key == "requests_per_s"), None)
    if load is not None and load.change is not None and not 1 / _SAME_LOAD <= 1 + load.change <= _SAME_LOAD:
        yield f"the load is another one ({load.before.text} and {load.after.text}): latencies and shares follow it"
    hosts = before.origin.host, after.origin.host
    if all(hosts) and hosts[0] != hosts[1]:
        yield f"they are of two machines: {hosts[0]} and {hosts[1]}"


def _shared(before: Trace, after: Trace, judged_s: tuple[float, float]) -> Iterator[str]:
    """What the ends that findings are of have in common: rules need all of theirs, where numbers make do with less."""
    between_ns = _between_ns(before, after)
    if not between_ns:
        return
    earlier_s, later_s = judged_s if before.end_ns < after.end_ns else reversed(judged_s)
    between_s = between_ns / NS_PER_S
    if later_s > between_s:
        shared = f"{seen(min(later_s - between_s, earlier_s))} are in both"
        yield f"findings are of the last {_in_words(judged_s)} of each, and {seen(between_s)} lie between: {shared}"


def _in_words(judged_s: tuple[float, float]) -> str:
    """Two times that are the same mostly: "15 s", "8 and 15 s"."""
    return f"{' and '.join(dict.fromkeys(f'{one:.0f}' for one in judged_s))} s"


def _of_both(before: Trace, after: Trace, of: Callable[[Trace], str]) -> tuple[str, str]:
    return of(before), of(after)


def _engine(trace: Trace) -> str:
    found = observation(trace)
    return "" if found is None or isinstance(found.server, Unknown) else str(found.server)


def _model(trace: Trace) -> str:
    found = observation(trace)
    return "" if found is None or isinstance(found.model, Unknown) else str(found.model)


def _gpus(trace: Trace) -> str:
    names = sorted(short_gpu_name(track.name) for track in _shown_gpus(trace))
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _shown_gpus(trace: Trace) -> tuple[Track, ...]:
    return server_gpus(trace) or gpu_tracks(trace)


def _setup(before: Trace, after: Trace) -> Iterator[tuple[str, str, str]]:
    was, now = configuration(before), configuration(after)
    for feature, found in was.items():
        other = now.get(feature, found)
        if not isinstance(found, Unknown) and not isinstance(other, Unknown) and found.value != other.value:
            yield str(feature), str(found.value), str(other.value)


# -- numbers ---------------------------------------------------------------------------------------------------

Numbers = dict[tuple[str, str], tuple[str, str, Amount]]
"""By part and key: title, unit, and the number."""


def _changes(before: Numbers, after: Numbers) -> Iterator[ChangedNumber]:
    """All that either has a value of, in the order of the second, with what only the first has behind it."""
    absent = Amount(_NOT_THERE, "–")
    for key in dict.fromkeys((*after, *before)):
        title, unit, _ = after.get(key) or before[key]
        both = [found[key][2] if key in found else absent for found in (before, after)]
        least = _SLIGHT if key[0] == _CAUSES else -math.inf
        if any(one.bounds is not None and one.bounds[1] >= least for one in both):
            yield ChangedNumber(*key, title, unit, *both)


def _numbers(trace: Trace, window_ns: int) -> Numbers:
    return {
        (part, key): (title, unit, amount)
        for parts in (_server(trace, window_ns), _of_gpus(trace, window_ns), _threads(trace, window_ns), _stacks(trace))
        for part, key, title, unit, amount in parts
    }


Told = tuple[str, str, str, str, Amount]


def _server(trace: Trace, window_ns: int) -> Iterator[Told]:
    """What the server tells of the window; of levels their mean: the last reading of a moment says little of it."""
    view = server_view(trace, rate_window_ns=window_ns, latency_window_ns=window_ns)
    if isinstance(view, Unknown):
        return
    levels = {concept: metric for concept, _, metric, _ in GAUGES}
    for stat in view.stats.values():
        level = levels.get(stat.concept)
        if level is not None:
            stat = replace(stat, value=mean(trace, view.track, level, window_ns, at_least=1))
        found = _amount(stat.value, stat.unit)
        bounds = found.bounds if stat.bounds is None else (stat.bounds.low, stat.bounds.high)
        yield "server", stat.concept, stat.title, stat.unit, Amount(stat.value, stat.text, bounds)


def _of_gpus(trace: Trace, window_ns: int) -> Iterator[Told]:
    """Means over the window, and where it stood on the roofline."""
    for i, gpu in enumerate(_shown_gpus(trace)):
        part = f"GPU {i}"
        for metric in _GPU:
            yield part, metric.name, metric.title, metric.unit, _mean(trace, gpu, metric, window_ns)
        traffic = dram_bytes_per_s(trace, gpu.id, window_ns)
        yield part, "dram_bytes_per_s", "DRAM traffic", "bytes/s", _amount(traffic, "bytes/s")
        point = mean_point(trace, gpu.id, header_dtype(trace.target), window_ns)
        for key, title, unit in (
            ("intensity", "FLOP per byte", "FLOP/B"),
            ("flops_per_s", "FLOP/s", "FLOP/s"),
            ("roof_fraction", "of the roof", "ratio"),
        ):
            value = point if isinstance(point, Unknown) else getattr(point, key)
            yield part, key, title, unit, _amount(Unknown("without a roof") if value is None else value, unit)


def _threads(trace: Trace, window_ns: int) -> Iterator[Told]:
    """CPU time and waiting of each role, and what the busiest thread of each was in, by cause."""
    view = threads_view(trace, window_ns)
    if isinstance(view, Unknown):
        return
    for total in view.roles:
        name = total.role or "other"
        yield "threads", f"{name}.cores", f"{name}: on CPUs", "cores", _amount(total.cores, "cores")
        yield "threads", f"{name}.waiting", f"{name}: waiting for one", "cores", _amount(total.waiting, "cores")
    busiest: dict[str, ThreadRow] = {}
    for row in view.rows:
        if isinstance(row.shares, Shares) and row.role and _busy(row) > _busy(busiest.get(row.role)):
            busiest[row.role] = row
    for role, row in busiest.items():
        assert isinstance(row.shares, Shares)
        causes = (("on CPU", row.shares.on_cpu), ("run queue", row.shares.run_queue), *row.shares.blocked)
        for cause, share in causes:
            title = f"{role}, its busiest thread: {cause}"
            yield _CAUSES, f"{role}.{cause}", title, "ratio", _amount(share, "ratio")


def _busy(row: ThreadRow | None) -> float:
    return row.shares.on_cpu + row.shares.run_queue if row is not None and isinstance(row.shares, Shares) else -1.0


def _stacks(trace: Trace) -> Iterator[Told]:
    """The functions that stacks end in most, as shares of all stacks of their unit."""
    for found in functions(trace):
        for one in found.shares[:_FUNCTIONS]:
            yield "stacks", one.name, one.name, "ratio", _amount(one.own_share, "ratio")


def _mean(trace: Trace, gpu: Track, metric: Metric, window_ns: int) -> Amount:
    return _amount(mean(trace, gpu.id, metric, window_ns, at_least=1), metric.unit)


def _amount(value: float | Unknown, unit: str) -> Amount:
    if isinstance(value, Unknown) or not math.isfinite(value):
        return Amount(value if isinstance(value, Unknown) else _NOT_THERE, "–")
    return Amount(value, quantity(value, unit), (value, value))
