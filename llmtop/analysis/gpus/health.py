"""What else is to know of one GPU: its throttling, links, memory errors and identity, each as one short line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.analysis.series.readings import counter_increase, latest
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Severity, Unknown
from llmtop.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import Fact, Metric, Trace, Track

THROTTLE_WINDOW_NS = 60 * NS_PER_S
"""In which a throttle reason must have counted to be told as one of now."""
_THROTTLED = tuple((reason.value, v.labelled(v.GPU_THROTTLED, reason)) for reason in v.ThrottleReason)


@frozen
class HealthFact:
    """One thing about a GPU in words; INFO is as it should be."""

    title: str
    text: str
    severity: Severity = Severity.INFO


def health(trace: Trace, track: Track) -> tuple[HealthFact, ...]:
    """What is known of a GPU beside its load, the gravest first; what is not known is left to the diagnosis."""
    found = [fact for make in _FACTS for fact in make(trace, track)]
    return tuple(sorted(found, key=lambda fact: _ORDER[fact.severity]))


_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def _recovery(_: Trace, track: Track) -> Iterator[HealthFact]:
    action = track.facts.get(GpuFact.RECOVERY_ACTION, "none")
    if not isinstance(action, Unknown) and action != "none":
        yield HealthFact("recovery", f"the driver asks: {action}", Severity.ERROR)


def _throttled(trace: Trace, track: Track) -> Iterator[HealthFact]:
    """Shares of the last minute in which the clock was held down, from the driver's counters."""
    shares: list[tuple[str, float]] = []
    for reason, metric in _THROTTLED:
        if trace.get(track.id, metric) is None:
            continue
        grown = counter_increase(trace, track.id, metric, THROTTLE_WINDOW_NS)
        if not isinstance(grown, Unknown):
            shares.append((reason.replace("_", " "), min(100.0, grown.per_second / NS_PER_S * 100)))
    if shares:
        standing = [f"{reason} {percent(share)}" for reason, share in shares if share >= 0.05]
        yield HealthFact("throttled", f"{', '.join(standing) or 'not at all'} of the last minute")


def _ecc(trace: Trace, track: Track) -> Iterator[HealthFact]:
    corrected, lost = (_count(trace, track, metric) for metric in (v.GPU_ECC_CORRECTED, v.GPU_ECC_UNCORRECTED))
    if track.facts.get(GpuFact.ECC) == "disabled":
        yield HealthFact("ECC", "off", Severity.WARNING)
    elif corrected is not None and lost is not None:
        severity = Severity.ERROR if lost else Severity.INFO
        yield HealthFact("ECC", f"{corrected} errors corrected, {lost} not", severity)


def _rows(trace: Trace, track: Track) -> Iterator[HealthFact]:
    corrected, lost = (_count(trace, track, metric) for metric in (v.GPU_ROWS_CORRECTED, v.GPU_ROWS_UNCORRECTED))
    if corrected is None or lost is None:
        return
    state = track.facts.get(GpuFact.ROW_REMAPPING)
    if state == "failed":
        yield HealthFact("memory rows", "a faulty row could not be replaced: the GPU needs service", Severity.ERROR)
    elif state == "pending":
        yield HealthFact("memory rows", "a faulty row is to be replaced: reset the GPU", Severity.WARNING)
    else:
        yield HealthFact("memory rows", f"{corrected + lost} replaced")


def _pcie(trace: Trace, track: Track) -> Iterator[HealthFact]:
    generation, width = (_count(trace, track, metric) for metric in (v.GPU_PCIE_GENERATION, v.GPU_PCIE_WIDTH))
    if generation is None or width is None:
        return
    most, widest = (_whole(track.facts.get(key)) for key in (GpuFact.PCIE_MAX_GENERATION, GpuFact.PCIE_MAX_WIDTH))
    of = f" (of gen {most} x{widest})" if (most, widest) != (generation, width) and most and widest else ""
    replays = _count(trace, track, v.GPU_PCIE_REPLAYS)
    again = f", {replays} replays" if replays else ""
    # An idle link slows down by itself, but it never gets narrower by itself.
    severity = Severity.WARNING if widest and width < widest else Severity.INFO
    yield HealthFact("PCIe link", f"gen {generation} x{width}{of}{again}", severity)


def _nvlink(trace: Trace, track: Track) -> Iterator[HealthFact]:
    up, links = _count(trace, track, v.GPU_NVLINK_ACTIVE), _whole(track.facts.get(GpuFact.NVLINKS))
    if up is None or not links:
        return
    errors = _count(trace, track, v.GPU_NVLINK_ERRORS)
    more = f", {errors} errors" if errors else ""
    severity = Severity.WARNING if up < links or errors else Severity.INFO
    yield HealthFact("NVLink", f"{up} of {links} up{more}", severity)


def _clocks(trace: Trace, track: Track) -> Iterator[HealthFact]:
    memory_mhz, highest = _count(trace, track, v.GPU_MEMORY_CLOCK), _whole(track.facts.get(GpuFact.MAX_SM_MHZ))
    parts = [f"memory at {memory_mhz} MHz"] if memory_mhz is not None else []
    parts += [f"SMs up to {highest} MHz"] if highest else []
    if parts:
        yield HealthFact("clocks", ", ".join(parts))
    yield from _true_clock(trace, track)
    hot = _count(trace, track, v.GPU_TEMPERATURE_MEMORY)
    if hot is not None:
        yield HealthFact("memory temperature", f"{hot} °C")


def _true_clock(trace: Trace, track: Track) -> Iterator[HealthFact]:
    """The SMs' clock by their own count beside what NVML says of it, or why it is not counted."""
    said, counted = (latest(trace, track.id, metric) for metric in (v.GPU_SM_CLOCK, v.GPU_SM_CLOCK_TRUE))
    why = trace.why_missing(whats.reading(track.id, v.GPU_SM_CLOCK_TRUE))
    if isinstance(said, Unknown):
        return
    if not isinstance(counted, Unknown):
        more = f": {percent((said / counted - 1) * 100)} high" if said > counted else ""
        yield HealthFact("SM clock", f"{counted:.0f} MHz by GPM's count of cycles; NVML says {said:.0f}{more}")
    elif why is not None:
        yield HealthFact("SM clock", f"{said:.0f} MHz, says NVML; true unknown: {why.reason}")


def _identity(_: Trace, track: Track) -> Iterator[HealthFact]:
    facts = track.facts
    chip = [f"{facts[key]} {words}" for key, words in ((GpuFact.SM_COUNT, "SMs"),) if _is_known(facts.get(key))]
    capability = facts.get(GpuFact.COMPUTE_CAPABILITY)
    chip += [f"compute capability {capability}"] if _is_known(capability) else []
    chip += ["MIG on"] if facts.get(GpuFact.MIG) == "enabled" else []
    if chip:
        yield HealthFact("chip", ", ".join(chip))
    for key, title in ((GpuFact.DRIVER, "driver"), (GpuFact.PCI_BUS_ID, "PCI address"), (GpuFact.UUID, "UUID")):
        if _is_known(facts.get(key)):
            yield HealthFact(title, str(facts[key]))


_FACTS = (_recovery, _ecc, _rows, _throttled, _pcie, _nvlink, _clocks, _identity)


def _is_known(fact: Fact | None) -> bool:
    return fact is not None and not isinstance(fact, Unknown)


def _count(trace: Trace, track: Track, metric: Metric) -> int | None:
    if trace.get(track.id, metric) is None:
        return None  # without looking for the reason, which eight GPUs would do a hundred times a frame
    value = latest(trace, track.id, metric)
    return None if isinstance(value, Unknown) else round(value)


def _whole(fact: Fact | None) -> int | None:
    return fact if isinstance(fact, int) else None
