"""What the panes show as Prometheus text: names, base units and labels as Prometheus has them.

What is not known is absent, never 0; why stands in `llmtop_missing`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from heapq import nlargest
from math import fsum, isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.roofline.server import server_roofline
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.readings import gpu_tracks, latest
from llmtop.analysis.server.liveness import Life, liveness
from llmtop.analysis.server.view import server_view
from llmtop.analysis.threads.shares import threads_view
from llmtop.facts import GpuFact, ProcessFact
from llmtop.frozen import frozen
from llmtop.model import Target, Trace, Track, TrackKind, Unknown
from llmtop.recording.own_words import CHUNK, is_own
from llmtop.vocabulary import is_part, parted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric as Family

_PREFIX: Final = "llmtop"
_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "%": ("ratio", 0.01),
    "ratio": ("ratio", 1.0),
    "s": ("seconds", 1.0),
    "ns": ("seconds", 1e-9),
    "bytes": ("bytes", 1.0),
    "bytes/s": ("bytes_per_second", 1.0),
    "W": ("watts", 1.0),
    "mJ": ("joules", 1e-3),
    "MHz": ("hertz", 1e6),
    "°C": ("celsius", 1.0),
    "tok/s": ("tokens_per_second", 1.0),
    "req/s": ("requests_per_second", 1.0),
    "/min": ("per_minute", 1.0),
    "1": ("", 1.0),
    "code": ("code", 1.0),
}
"""Base units (https://prometheus.io/docs/practices/naming/), and what one of ours is of them."""
_SPANS: Final = {"s": "second", "min": "minute"}
_NOT_EACH: Final = frozenset({TrackKind.THREAD, TrackKind.GPU_PROCESS, TrackKind.ENDED, TrackKind.NEIGHBOUR})
"""Not told one by one: threads of a server come and go by hundreds, and programs beside it by thousands; their roles
and names are."""
_LABEL: Final = "label"
_NEIGHBOURS: Final = 5
"""Names of programs beside the server at a time: they come and go, and each is a series that a database keeps."""
_OTHERS: Final = "(others)"
_NAME: Final = "name"
"""The label with the name of a program that is not the server's."""
_HIDDEN: Final = "(hidden)"
_PUBLIC: Final = frozenset({"gpu", "uuid", "pid", "port"})
"""Labels that everybody on the machine can read elsewhere."""


@frozen
class ExportedSample:
    """One value.

    Attributes:
        name: Without "_total", which counters get.
        labels: Names and values; every sample of a name has the same names.
    """

    name: str
    about: str
    is_counter: bool
    labels: tuple[tuple[str, str], ...]
    value: float


def exposition(trace: Trace, target: Target | None, *, is_public: bool = False) -> bytes:
    """The page that Prometheus reads.

    Args:
        trace: The moment.
        target: The server.
        is_public: Whether everybody on the machine may read it, without a token: then it has only what all may know.
    """
    samples = exported(trace, target)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(tuple(public(samples) if is_public else samples)))
    return generate_latest(registry)


def public(samples: Iterable[ExportedSample]) -> Iterator[ExportedSample]:
    """The same without names that a user or another program chose: llmtop may see them as root alone.

    Numbers stay, and so do llmtop's own words, GPUs and PIDs. What is of a hidden name is summed up.
    """
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], ExportedSample] = {}
    for one in samples:
        labels = tuple((name, _public_label(name, value)) for name, value in one.labels)
        before = sums.get((one.name, labels))
        sums[one.name, labels] = replace(
            one,
            about=" ".join(_public(word) for word in one.about.split(" ")),
            labels=labels,
            value=one.value + (before.value if before else 0.0),
        )
    yield from sums.values()


def _public_label(name: str, value: str) -> str:
    if name == _NAME:
        return _OTHERS
    return value if name in _PUBLIC else _public(value)


def _public(value: str) -> str:
    return value if all(map(is_own, CHUNK.findall(value))) else _HIDDEN


def exported(trace: Trace, target: Target | None) -> Iterator[ExportedSample]:
    """All values of a moment."""
    yield from _series(trace)
    yield from _neighbours(trace)
    if target is not None:
        yield from _server(trace)
        yield from _roles(trace)
    yield from _rooflines(trace, target)
    yield from _findings(trace)
    for missing in trace.missing:
        labels = (("what", str(missing.what)), ("reason", missing.why.reason))
        yield ExportedSample(f"{_PREFIX}_missing", "what is not known, and why", False, labels, 1.0)


class _Families:
    """The families of all samples, as the client library wants them."""

    def __init__(self, samples: Iterable[ExportedSample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        families: dict[tuple[str, bool], CounterMetricFamily | GaugeMetricFamily] = {}
        for one in self._samples:
            family = families.get((one.name, one.is_counter))
            if family is None:
                kind = CounterMetricFamily if one.is_counter else GaugeMetricFamily
                family = families[one.name, one.is_counter] = kind(one.name, one.about, labels=_names(one))
            family.add_metric([value for _, value in one.labels], one.value)
        yield from families.values()


def _names(sample: ExportedSample) -> list[str]:
    return [name for name, _ in sample.labels]


def _series(trace: Trace) -> Iterator[ExportedSample]:
    """The newest value of each series: of a GPU, a process, the machine, llmtop itself."""
    for (track_id, _), series in trace.series.items():
        track, metric = trace.tracks.get(track_id), series.metric
        if track is None or track.kind in _NOT_EACH or is_part(metric):
            continue
        value = latest(trace, track_id, metric)
        if isinstance(value, Unknown):
            continue
        name, label = parted(metric.name)
        of_label = ((_LABEL, label),) if label else ()
        about = f"{metric.title} ({series.source})" if metric.title else series.source
        full, scale = _full_name(name, metric.unit)
        yield ExportedSample(full, about, metric.counter, (*_labels(track), *of_label), value * scale)


def _neighbours(trace: Trace) -> Iterator[ExportedSample]:
    """CPUs that programs beside the server use, by name: the largest few, and all others that were told of together."""
    cores: dict[str, float] = {}
    for track in trace.tracks_of(TrackKind.NEIGHBOUR):
        used = latest(trace, track.id, v.NEIGHBOUR_CPU)
        if not isinstance(used, Unknown):
            name = track.name.partition("/")[0]  # kworker/3:1, of which each CPU has several
            cores[name] = cores.get(name, 0.0) + used
    largest = dict(nlargest(_NEIGHBOURS, cores.items(), key=itemgetter(1)))
    rest = [used for name, used in cores.items() if name not in largest]
    about = f"CPUs that programs beside the server use, by name: the {_NEIGHBOURS} largest, and the others together"
    for name, used in (*largest.items(), *([(_OTHERS, fsum(rest))] if rest else ())):
        yield ExportedSample(f"{_PREFIX}_neighbour_cpu_cores", about, False, ((_NAME, name),), used)


def _full_name(name: str, unit: str) -> tuple[str, float]:
    """A name with its base unit, and what the value is multiplied by.

    >>> _full_name("gpu.sm", "%"), _full_name("process.cpu", "ns"), _full_name("process.faults", "faults")
    (('llmtop_gpu_sm_ratio', 0.01), ('llmtop_process_cpu_seconds', 1e-09), ('llmtop_process_faults', 1.0))
    """
    suffix, scale = _UNITS.get(unit, (unit.lower().replace("/s", "_per_second"), 1.0))
    words = re.sub(r"[^a-zA-Z0-9]+", "_", f"{_PREFIX}_{name}")
    return (words if not suffix or words.endswith(f"_{suffix}") else f"{words}_{suffix}"), scale


def _labels(track: Track) -> tuple[tuple[str, str], ...]:
    """What tells a track from others of its kind."""
    match track.kind:
        case TrackKind.GPU | TrackKind.GPU_INSTANCE:
            return ("gpu", ids.gpu_label(track.id)), ("uuid", _fact(track, GpuFact.UUID))
        case TrackKind.PROCESS:
            return ("role", _fact(track, ProcessFact.ROLE)), ("pid", str(ids.pid(track.id)))
        case TrackKind.SERVER | TrackKind.ENDPOINT:
            return (("port", ids.port(track.id)),)
        case _:
            return ()


def _fact(track: Track, name: str) -> str:
    value = track.facts.get(name, "")
    return "" if isinstance(value, Unknown) else str(value)


def _server(trace: Trace) -> Iterator[ExportedSample]:
    """What the server pane shows, worked out: rates and quantiles over its windows; of a quantile its bounds too."""
    life = liveness(trace).life
    if life is not Life.UNKNOWN:
        yield ExportedSample(f"{_PREFIX}_server_alive", "1 while it lives", False, (), float(life is not Life.DEAD))
    view = server_view(trace)
    if isinstance(view, Unknown):
        return
    for stat in view.stats.values():
        about = f"{stat.title}, as the server pane has it ({stat.source})"
        told = {} if isinstance(stat.value, Unknown) else {"": stat.value}
        if stat.bounds is not None:
            told |= {"_at_least": stat.bounds.low, "_at_most": stat.bounds.high}
        for suffix, value in told.items():
            if isfinite(value):
                name, scale = _concept_name(stat.concept + suffix, stat.unit)
                yield ExportedSample(name, about, False, (), value * scale)


def _concept_name(concept: str, unit: str) -> tuple[str, float]:
    """The same of a number of the server pane, whose name may say its unit.

    >>> _concept_name("output_tokens_per_s", "tok/s"), _concept_name("ttft_p99_at_least", "s")
    (('llmtop_server_now_output_tokens_per_second', 1.0), ('llmtop_server_now_ttft_p99_at_least_seconds', 1.0))
    """
    told, _, span = concept.rpartition("_per_")
    if told:
        return f"{_PREFIX}_server_now_{told}_per_{_SPANS[span]}", 1.0
    return _full_name(f"server_now_{concept}", unit)


def _roles(trace: Trace) -> Iterator[ExportedSample]:
    view = threads_view(trace)
    for total in () if isinstance(view, Unknown) else view.roles:
        role = (("role", total.role),)
        yield ExportedSample(f"{_PREFIX}_threads_cpu_cores", "CPUs that its threads use", False, role, total.cores)
        yield ExportedSample(f"{_PREFIX}_threads_queued_cores", "CPUs that they wait for", False, role, total.waiting)


def _rooflines(trace: Trace, target: Target | None) -> Iterator[ExportedSample]:
    """Where each GPU stands now."""
    for gpu in gpu_tracks(trace):
        point = next((one for one in server_roofline(trace, target, gpu.id).points if one.age_s == 0), None)
        if point is None:
            continue
        labels = (*_labels(gpu), ("precision", point.precision), ("quality", str(point.quality)))
        told = {
            "flops_per_byte": point.intensity,
            "flops_per_second": point.flops_per_s,
            "roof_ratio": point.roof_fraction,
        }
        for name, value in told.items():
            if value is not None:
                about = f"where it stands in the roofline ({point.source})"
                yield ExportedSample(f"{_PREFIX}_roofline_{name}", about, False, labels, value)


def _findings(trace: Trace) -> Iterator[ExportedSample]:
    """How many of a rule and a subject, without messages.

    Their figures change: each text would be a series of its own (https://prometheus.io/docs/practices/naming/#labels),
    and an alert could not wait until one has held for some minutes.
    """
    found = Counter((one.rule, one.severity.value, one.subject) for one in diagnose(trace).findings)
    for values, count in found.items():
        labels = tuple(zip(("rule", "severity", "subject"), values, strict=True))
        yield ExportedSample(f"{_PREFIX}_finding", "how many things a rule finds of a subject", False, labels, count)
