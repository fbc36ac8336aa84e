"""Numbers over time of an Nsight Systems capture: metrics of GPUs and network cards, memory that was allocated."""

from __future__ import annotations

import json
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from llmtop import ids
from llmtop.columns import alike, in_order
from llmtop.lazy import LazyMapping
from llmtop.model import Metric, Series, Track, TrackId, TrackKind
from llmtop.parsers.allocations import allocations, levels
from llmtop.parsers.nsys_export import DAMAGE, Capture, Columns, Export, lost, read_rows
from llmtop.parsers.nsys_gpus import MEMORY, MEMORY_KINDS, memory_events

_GPU_METRICS, _GPU_METRIC_NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_GENERIC, _GENERIC_TYPES = "GENERIC_EVENTS", "GENERIC_EVENT_TYPES"
_NIC, _NIC_NAMES = "NET_NIC_METRIC", "TARGET_INFO_NETWORK_METRICS"
_WITH_UNIT = re.compile(r"(.+?)\s*\[(.+)\]")
_UNITS = {"Throughput %": "%", "Throughput": "%", "Percentage": "%"}
_HIGHEST_MHZ = 1e5
"""A clock in MHz that is above it was written down in Hz."""
_T = TypeVar("_T")
Key: TypeAlias = tuple[TrackId, str]
All: TypeAlias = Mapping[Key, Series]
Source: TypeAlias = tuple[Mapping[Key, Metric], Callable[[], All]]
"""Which series there are, and what reads them all."""
_NOTHING: All = {}
_NONE: Source = ({}, dict)


class _Samples(NamedTuple):
    """Columns of one series, by time."""

    times: array[int]
    values: array[float]


def series(capture: Capture) -> LazyMapping[Key, Series]:
    """Every series that there is, read with the others of its table when one of them is asked for."""
    readers: dict[Key, Callable[[], Series]] = {}
    for source in (_of_gpus, _of_generic_events, _of_nics, _of_memory):
        metrics, read = _guarded(capture, partial(source, capture), _NONE)
        whole = cache(partial(_guarded, capture, read, _NOTHING))
        for key, metric in metrics.items():
            readers.setdefault(key, partial(_one, whole, key, metric))
    return LazyMapping({}, readers)


def _one(whole: Callable[[], All], key: Key, metric: Metric) -> Series:
    found = whole().get(key)
    return Series.of(key[0], metric, "nsys", []) if found is None else found


def _guarded(capture: Capture, read: Callable[[], _T], without: _T) -> _T:
    """What is read, or where the file is damaged what there is without it."""
    try:
        return read()
    except DAMAGE as error:
        capture.issues.append(lost("series", error))
        return without


def _metric(family: str, name: str) -> Metric:
    """A metric by the name that nsys gives it, which often ends with its unit.

    >>> _metric("gpu_metrics", "DRAM Read Bandwidth [Throughput %]")
    Metric(name='gpu_metrics.DRAM Read Bandwidth', unit='%', counter=False, title='DRAM Read Bandwidth')
    """
    parts = _WITH_UNIT.fullmatch(name)
    title, unit = parts.groups() if parts else (name, "")
    return Metric(f"{family}.{title}", _UNITS.get(unit, unit), title=title)


def _series(track: TrackId, metric: Metric, samples: _Samples) -> Series:
    values = samples.values
    if metric.unit == "MHz" and max(values, default=0.0) > _HIGHEST_MHZ:
        values = array("d", (value / 1e6 for value in values))
    return Series(track, metric, "nsys", samples.times, values, 0, len(samples.times))


def _of_gpus(capture: Capture) -> Source:
    """Metrics that counters of GPUs gave, at a fixed rate."""
    export = capture.export
    names: dict[tuple[int, int], tuple[TrackId, Metric]] = {}
    if export.has(_GPU_METRICS, "timestamp", "typeId", "metricId", "value"):
        for kind, number, name in export.rows(_GPU_METRIC_NAMES, "typeId", "metricId", "metricName"):
            if isinstance(kind, int) and isinstance(number, int):
                track = capture.devices.gpu_track(kind & 0xFF)
                names[kind, number] = track, _metric("gpu_metrics", str(name))
    return {(track, metric.name): metric for track, metric in names.values()}, partial(_read_gpus, export, names)


def _read_gpus(export: Export, names: Mapping[tuple[int, int], tuple[TrackId, Metric]]) -> All:
    rows = read_rows(export, _GPU_METRICS, _gpu_metric_keys)
    times, _, kinds, numbers, values = rows.columns
    if _has_fractions(export, _GPU_METRICS):
        return _read_fractions(export, names)
    found = {}
    for group in alike([kinds, numbers]):
        known = names.get((kinds[group[0]], numbers[group[0]]))
        if known is not None:
            samples = _Samples(array("q", (times[i] for i in group)), array("d", (values[i] for i in group)))
            found[known[0], known[1].name] = _series(*known, samples)
    return found


def _gpu_metric_keys(of: Columns) -> tuple[Any, ...]:
    return of.integer("typeId"), of.integer("metricId"), of.integer("value")


def _has_fractions(export: Export, table: str) -> bool:
    return export.execute(f"SELECT 1 FROM {table} WHERE typeof(value) = 'real' LIMIT 1").fetchone() is not None


def _read_fractions(export: Export, names: Mapping[tuple[int, int], tuple[TrackId, Metric]]) -> All:
    found: dict[tuple[int, int], _Samples] = defaultdict(lambda: _Samples(array("q"), array("d")))
    query = f"SELECT timestamp, typeId, metricId, value FROM {_GPU_METRICS} WHERE typeof(timestamp) = 'integer' AND "
    for t_ns, kind, number, value in export.execute(f"{query} typeof(value) != 'text' ORDER BY timestamp"):
        if (kind, number) in names and value is not None:
            found[kind, number].times.append(t_ns)
            found[kind, number].values.append(value)
    return {(names[key][0], names[key][1].name): _series(*names[key], samples) for key, samples in found.items()}


def _of_generic_events(capture: Capture) -> Source:
    """The same of older versions, whose rows are JSON. The names are those of the first row of each GPU."""
    export = capture.export
    columns = ("timestamp", "typeId", "data")
    if export.has(_GPU_METRICS) or not export.has(_GENERIC, *columns):
        return _NONE
    kinds = [kind for kind, data in export.rows(_GENERIC_TYPES, "typeId", "data") if "GPU Metrics" in str(data)]
    found: dict[Key, Metric] = {}
    for kind in kinds:
        first = export.execute(f"SELECT data FROM {_GENERIC} WHERE typeId = ? LIMIT 1", (kind,)).fetchone()
        track = capture.devices.gpu_track(int(str(kind)) & 0xFF)
        for name, _ in _numbers(first[0] if first else ""):
            metric = _metric("gpu_metrics", name)
            found[track, metric.name] = metric
    return found, partial(_read_generic, export, found)


def _read_generic(export: Export, metrics: Mapping[Key, Metric]) -> All:
    found: dict[Key, _Samples] = defaultdict(lambda: _Samples(array("q"), array("d")))
    query = f"SELECT timestamp, typeId, data FROM {_GENERIC} WHERE typeof(timestamp) = 'integer' ORDER BY timestamp"
    for t_ns, kind, data in export.execute(query):
        track = ids.gpu(int(kind) & 0xFF)
        for name, value in _numbers(data):
            key = track, _metric("gpu_metrics", name).name
            if key in metrics:
                found[key].times.append(t_ns)
                found[key].values.append(value)
    return {key: _series(key[0], metrics[key], samples) for key, samples in found.items()}


def _numbers(data: object) -> Iterator[tuple[str, float]]:
    """The numbers of a JSON object by their names; nsys writes them as text."""
    try:
        values = json.loads(str(data))
    except ValueError:
        return
    for name, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, int | float | str) and "timestamp" not in name.lower():
            try:
                yield name, float(value)
            except ValueError:
                continue


def _of_nics(capture: Capture) -> Source:
    """Metrics of network cards, as nsys has them: rates over each interval, told at its end."""
    export = capture.export
    names: dict[tuple[int, int, int], Metric] = {}
    if export.has(_NIC, "start", "end", "globalId", "metricsListId", "metricsIdx", "value"):
        columns = ("metricsListId", "metricsIdx", "name", "unit")
        cards = _cards(export)
        for key in export.execute(f"SELECT DISTINCT globalId, metricsListId, metricsIdx FROM {_NIC}").fetchall():
            for group, number, name, unit in export.rows(_NIC_NAMES, *columns):
                if (group, number) == key[1:]:
                    title = f"{cards.get(key[0], 'network card')}: {name}"
                    names[key] = Metric(f"nic.{title}", str(unit), title=title)
    if names:
        capture.devices.tracks.add(Track(ids.HOST, TrackKind.HOST, "host"))
    return {(ids.HOST, metric.name): metric for metric in names.values()}, partial(_read_nics, export, names)


def _cards(export: Export) -> Mapping[object, str]:
    """Names of network cards by the ids that their metrics have."""
    name_by_nic = {nic: str(name) for nic, name in export.rows("TARGET_INFO_NIC_INFO", "nicId", "name")}
    pairs = export.rows("NIC_ID_MAP", "globalId", "nicId")
    return {key: name_by_nic[nic] for key, nic in pairs if nic in name_by_nic}


def _read_nics(export: Export, names: Mapping[tuple[int, int, int], Metric]) -> All:
    _, ends, cards, groups, numbers, values = read_rows(export, _NIC, _nic_keys).columns
    found = {}
    for group in alike([cards, groups, numbers]):
        i = group[0]
        metric = names.get((cards[i], groups[i], numbers[i]))
        if metric is not None:
            times, read = in_order([array("q", (ends[i] for i in group)), array("q", (values[i] for i in group))])
            found[ids.HOST, metric.name] = _series(ids.HOST, metric, _Samples(times, array("d", read)))
    return found


def _nic_keys(of: Columns) -> tuple[Any, ...]:
    return of.integer("globalId"), of.integer("metricsListId"), of.integer("metricsIdx"), of.integer("value")


def _of_memory(capture: Capture) -> Source:
    """What each process had allocated of each kind of memory, on each GPU."""
    export, columns = capture.export, ("globalPid", "deviceId", "memKind")
    if not export.has(MEMORY, "start", "address", "bytes", "memoryOperationType", *columns):
        return _NONE
    found: dict[Key, Metric] = {}
    for pid, device, kind in export.execute(f"SELECT DISTINCT {', '.join(columns)} FROM {MEMORY}"):
        if isinstance(pid, int) and isinstance(device, int):
            track = capture.devices.gpu_process_track(((pid >> 24) & 0xFFFFFF) << 40 | (device & 0xFF) << 32)
            metric = _of_kind(kind)
            found[track, metric.name] = metric
    return found, partial(_read_memory, capture)


def _of_kind(kind: object) -> Metric:
    name = MEMORY_KINDS.get(kind, "memory") if isinstance(kind, int) else "memory"
    return Metric(f"cuda.{name.replace(' ', '_')}", "bytes", title=f"{name} allocated")


def _read_memory(capture: Capture) -> All:
    """Levels after each event; what is released and was never got in the capture was there from its beginning."""
    found = {}
    for (key, kind), samples in levels(allocations(memory_events(capture.export)).held):
        track, metric = capture.devices.gpu_process_track(key), _of_kind(kind)
        columns = _Samples(array("q", (t_ns for t_ns, _ in samples)), array("d", (level for _, level in samples)))
        found[track, metric.name] = _series(track, metric, columns)
    return found
