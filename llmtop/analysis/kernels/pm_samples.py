"""How the use of a GPU's units goes on while a kernel runs: series of Nsight Compute's section PmSampling (2024.1 on).

Counters are read in equal steps, in as many runs of the kernel as they need (pass groups). A run is sampled from before
the kernel begins until after it has ended: what is shown begins with the first sample in which the SMs did anything,
and ends with the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median

from llmtop.analysis.kernels.counting import not_collected, not_counted
from llmtop.analysis.kernels.section_page import PagePart, PageRow, SectionPage, value_text
from llmtop.analysis.kernels.table import kernels_of
from llmtop.frozen import frozen
from llmtop.model import Instances, KernelDetails, Trace, Unknown
from llmtop.units import duration

SOURCE = "counters of Nsight Compute's section PmSampling, sampled while the kernel ran; values are means"
_SECTION = "PmSampling"
_GROUPS = "profiler__pmsampler_pass_groups"
_DROPPED = "profiler__pmsampler_dropped_samples"
_NAME = re.compile(r"(?:pmsampling:|(?:\w+\.)?Triage\w*\.)?((?P<unit>[a-z0-9]+)__\w+)\.(?P<rest>[\w.]+)")
"""`pmsampling:sm__x.avg` up to 2025.1; later with where it was counted: `TPC.TriageCompute.sm__x.avg`."""
_UNITS = {
    "gr": "Launches",
    "gpc": "Launches",
    "sm": "SM",
    "smsp": "SM",
    "tpc": "SM",
    "l1tex": "L1/TEX",
    "lts": "L2",
    "dramc": "DRAM",
    "dram": "DRAM",
    "pcie": "PCIe",
}
"""What units are called, in the order in which they are shown."""
_OF_SMS = ("sm", "smsp", "tpc", "l1tex")
"""What is idle while no block of a kernel is on the SMs: L2 and DRAM may be busy with what came before."""
_ALL = 100.0


@frozen
class _Sampled:
    """One counter over time: (t_ns, value) while the kernel ran, and of which unit it is."""

    name: str
    unit: str
    metric: str
    times: tuple[int, ...]
    values: tuple[float, ...]


def pm_samples(trace: Trace, launch: int) -> SectionPage | Unknown:
    """The series of one launch; why there are none."""
    if (why := not_counted(trace)) is not None:
        return why
    details = kernels_of(trace).table.details
    groups = () if details is None else tuple(_groups(details, launch))
    if not any(groups) or details is None:
        return not_collected(trace, launch, "samples over the kernel's time", _SECTION)
    parts = tuple(_parts([one for group in groups for one in group], details.unit))
    first = replace(parts[0], says=(*_said(details, launch, groups), *parts[0].says))
    return SectionPage(launch, (first, *parts[1:]), SOURCE)


def _groups(details: KernelDetails, launch: int) -> Iterator[list[_Sampled]]:
    """By run of the kernel the counters that were sampled in it."""
    told = details.instances(launch, _GROUPS)
    for names in told.values if isinstance(told, Instances) else ():
        found = {name: found for name in str(names).split(",") if (found := _series(details, launch, name))}
        first, last = _running(found)
        group = [_within(name, series, first, last) for name, series in found.items()]
        yield [one for one in group if one is not None and one.times]


def _series(details: KernelDetails, launch: int, metric: str) -> dict[int, float]:
    """Samples by their time; what has none stands before them all."""
    found = details.instances(launch, metric)
    pairs = zip(found.keys, found.values, strict=True) if isinstance(found, Instances) and found.keys else ()
    return {int(t): float(value) for t, value in pairs if t and not isinstance(t, str) and not isinstance(value, str)}


def _running(found: dict[str, dict[int, float]]) -> tuple[int, int]:
    """From when until when the SMs did anything; all of the time where nothing tells."""
    of_sms = [series for name, series in found.items() if (one := _NAME.fullmatch(name)) and one["unit"] in _OF_SMS]
    busy = [t for series in of_sms for t, value in series.items() if value > 0]
    every = busy or [t for series in found.values() for t in series] or [0]
    return min(every), max(every)


def _within(metric: str, series: dict[int, float], first: int, last: int) -> _Sampled | None:
    one = _NAME.fullmatch(metric)
    if one is None:
        return None
    times = tuple(t for t in sorted(series) if first <= t <= last)
    return _Sampled(one[1], one["unit"], metric, times, tuple(series[t] for t in times))


def _parts(series: Sequence[_Sampled], unit_of: Callable[[str], str]) -> Iterator[PagePart]:
    order = list(dict.fromkeys(_UNITS.values()))
    by_title: dict[str, list[_Sampled]] = {title: [] for title in order}
    for one in series:
        by_title.setdefault(_UNITS.get(one.unit, one.unit), []).append(one)
    yield from (_part(title, found, unit_of) for title, found in by_title.items() if found)


def _part(title: str, series: Sequence[_Sampled], unit_of: Callable[[str], str]) -> PagePart:
    """What was never above 0 is named alone."""
    unused = ", ".join(_said_name(one) for one in series if not any(one.values))
    rows = tuple(_row(one, unit_of(one.metric)) for one in series if any(one.values))
    return PagePart(title, rows, (f"always 0: {unused}",) if unused else ())


def _row(one: _Sampled, unit: str) -> PageRow:
    mean = fmean(one.values)
    share = mean / _ALL if unit == "%" else None
    said = value_text(max(one.values), unit)
    most = f"at most {said if unit == '%' else said.removesuffix(unit).rstrip()}"
    return PageRow(_said_name(one), mean, unit, share, one.metric, most, "", one.values)


def _said_name(one: _Sampled) -> str:
    """Without its unit, which the part's title says, and what all of them have."""
    plain = one.name.partition("__")[2].replace("_realtime", "").replace("inst_executed_", "")
    return f"{plain} in a cycle" if "per_cycle" in one.metric else plain


def _said(details: KernelDetails, launch: int, groups: Sequence[Sequence[_Sampled]]) -> Iterator[str]:
    """How long, how often, in how many runs, and what was lost."""
    longest = max((one for group in groups for one in group), key=lambda one: len(one.times))
    steps = [later - earlier for earlier, later in pairwise(longest.times)]
    if steps:
        step = median(steps)
        taken = f"{len(longest.times)} samples of {duration(step)} over {duration(step * len(longest.times))}"
        yield f"{taken}; what is counted is of one sample"
    else:
        yield "the kernel is over within one sample"
    if len(groups) > 1:
        yield f"taken in {len(groups)} runs of the kernel: what is below each other need not be of one run"
    if lost := sum(_numbers(details.instances(launch, _DROPPED))):
        yield f"{lost:.0f} samples were dropped"


def _numbers(found: Instances | Unknown) -> list[float]:
    return [] if isinstance(found, Unknown) else [float(value) for value in found.values if not isinstance(value, str)]
