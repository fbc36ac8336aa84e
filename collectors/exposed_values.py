"""What a page of metrics says of one number of the vocabulary.

One number may stand in several samples: per data-parallel engine, per rank, per outcome. How they become one:

* ranks of one tensor-parallel group repeat each other (`Engine.replicas`): the largest counts once;
* counts and request gauges add up over everything else;
* KV cache usage is that of the fullest engine, because that one preempts, however empty the others are;
* hit rates are the mean over engines, and so are estimates "per GPU".
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from llmtop import vocabulary as v
from llmtop.collectors.metrics_text import ExposedSample, key
from llmtop.model import Metric, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llmtop.collectors.metrics_text import Exposition, Pairs
    from llmtop.model import Engine, ExposedNumber

_LARGEST = {v.SERVER_KV_USAGE}
_COUNTED_ON_DEMAND = {v.SERVER_FLOPS, v.SERVER_READ_BYTES, v.SERVER_WRITE_BYTES}
_ON_DEMAND = "it comes with the first request, or the server has to be told to count it"
_MEAN = {v.SERVER_PREFIX_HIT_RATE, v.SERVER_ACCEPTANCE, v.SERVER_FLOPS, v.SERVER_READ_BYTES, v.SERVER_WRITE_BYTES}
_SUFFIXES = ("_bucket", "_sum", "_count")
Values: TypeAlias = "list[tuple[Metric, float | None, str]]"
"""Of a metric, or of each part of a distribution: the value, None where it has none, and the name it came from."""


def wanted_names(engine: Engine) -> set[str]:
    """The names of all samples that an engine is read by, as `metrics_text.key` writes them."""
    families = (*engine.names.values(), *engine.means.values())
    plain = {key(name) for samples in families for sample in samples for name in (sample.name, *sample.plus)}
    parts = {
        key(sample.name + suffix)
        for samples in engine.distributions.values()
        for sample in samples
        for suffix in _SUFFIXES
    }
    return plain | parts | {key(name) for name in engine.info}


def read_values(engine: Engine, metric: Metric, exposition: Exposition) -> Values | Unknown:
    """The readings of one vocabulary metric, each with the name it came from, or why there are none."""
    if metric in engine.names:
        for sample in engine.names[metric]:
            chosen = _chosen(exposition.samples.get(key(sample.name), ()), sample)
            if sample.over is not None:
                chosen = _shares(chosen, sample, sample.over, exposition)
            if chosen:
                told = v.ENDED[metric] if sample.at_end else metric
                more = (key(name) for name in sample.plus if key(name) in exposition.samples)
                parts = [chosen, *(exposition.samples[name] for name in more)]
                value = _added(metric, parts, engine.replicas, sample.scale)
                if metric in _COUNTED_ON_DEMAND and not value:
                    return Unknown(f"{engine.title} has counted no {metric.title}", _ON_DEMAND)
                return [(told, value, chosen[0].name)]
            if sample.from_zero and _is_counted(exposition, sample):
                return [(metric, 0.0, sample.name)]
        return _absent(engine, engine.names[metric], exposition)
    if metric in engine.distributions:
        for sample in engine.distributions[metric]:
            values = _distribution(metric, sample, exposition, engine.replicas)
            if values:
                return values
        return _absent(engine, engine.distributions[metric], exposition)
    if metric in engine.means:
        return _mean(metric, engine, exposition)
    return Unknown(f"{engine.title} exports no {metric.title}")


def _mean(metric: Metric, engine: Engine, exposition: Exposition) -> Values | Unknown:
    """A latency of which only the sum and the number are counted: a histogram of one bucket, without an end."""
    values: Values = []
    for part, sample in zip((v.total(metric), v.bucket(metric, math.inf)), engine.means[metric], strict=True):
        chosen = _chosen(exposition.samples.get(key(sample.name), ()), sample)
        if not chosen:
            return _absent(engine, (sample,), exposition)
        values.append((part, _folded(metric, chosen, engine.replicas, sample.scale), chosen[0].name))
    return values


def _absent(engine: Engine, samples: Sequence[ExposedNumber], exposition: Exposition) -> Unknown:
    name = samples[0].name
    if samples[0].where and exposition.samples.get(key(name)):
        label, values = next(iter(samples[0].where.items()))
        return Unknown(f"{engine.title} has no {name} with {label}={'|'.join(values)}, or none so far")
    if key(name) in exposition.declared:
        return Unknown(f"{engine.title} has written no {name} yet", "it comes with its first request")
    return Unknown(f"this {engine.title} shows no {name}: another version, or none so far")


def _shares(
    parts: Iterable[ExposedSample], wanted: ExposedNumber, over: ExposedNumber, exposition: Exposition
) -> list[ExposedSample]:
    """Each sample as a share of that with the same labels, but for those that name the part."""

    def of(sample: ExposedSample) -> Pairs:
        return tuple(pair for pair in sample.pairs if pair[0] not in wanted.where)

    wholes = {of(one): one.value for one in _chosen(exposition.samples.get(key(over.name), ()), over)}
    return [
        ExposedSample(one.name, one.labels, None if one.value is None else one.value / whole, one.pairs)
        for one in parts
        if (whole := wholes.get(of(one)))
    ]


def _is_counted(exposition: Exposition, wanted: ExposedNumber) -> bool:
    """Whether the counter is there, under labels that tell what is wanted, or with no sample so far."""
    samples = exposition.samples.get(key(wanted.name), ())
    if not samples:
        return key(wanted.name) in exposition.declared
    return all(label in samples[0].labels for label in wanted.where)


def _chosen(samples: Sequence[ExposedSample], wanted: ExposedNumber) -> Sequence[ExposedSample]:
    where = wanted.where.items()
    if not where:
        return samples
    return [sample for sample in samples if all(_matches(sample.labels.get(label, ""), some) for label, some in where)]


@lru_cache(maxsize=4096)  # of each sample at each scrape, always the same few values
def _matches(value: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)


def _added(
    metric: Metric, parts: Iterable[Iterable[ExposedSample]], replicas: tuple[str, ...], scale: float
) -> float | None:
    """The sum of what one number is divided into; None when a part has no value, for it would be too small."""
    values = [_folded(metric, part, replicas, scale) for part in parts]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _folded(metric: Metric, samples: Iterable[ExposedSample], replicas: tuple[str, ...], scale: float) -> float | None:
    values = list(_without_replicas(samples, replicas).values())
    if not values:
        return None
    if metric in _LARGEST:
        return max(values) * scale
    return sum(values) * scale / (len(values) if metric in _MEAN else 1)


@lru_cache(maxsize=4096)  # hundreds at each scrape, always the same ones
def _told_apart_by(pairs: Pairs, replicas: tuple[str, ...]) -> Pairs:
    return tuple(pair for pair in pairs if pair[0] not in replicas)


def _without_replicas(samples: Iterable[ExposedSample], replicas: tuple[str, ...]) -> dict[Pairs, float]:
    """One value for each set of labels that is left when the replicas' labels are taken away.

    A value below 0 says that there is none: all of a server's numbers are counts, times and shares.
    """
    values: dict[Pairs, float] = {}
    for sample in samples:
        if sample.value is not None and sample.value >= 0:
            labels = _told_apart_by(sample.pairs, replicas) if replicas else sample.pairs
            values[labels] = max(sample.value, values.get(labels, -math.inf))
    return values


def _distribution(metric: Metric, sample: ExposedNumber, exposition: Exposition, replicas: tuple[str, ...]) -> Values:
    """The counters of a histogram: one per bucket, the count as the bucket up to infinity, and the sum."""

    def part(suffix: str) -> Sequence[ExposedSample]:
        return _chosen(exposition.samples.get(key(sample.name + suffix), ()), sample)

    buckets: dict[float, float] = {}
    for labels, value in _without_replicas(part("_bucket"), replicas).items():
        upper = _upper_bound(labels) * sample.scale
        buckets[upper] = buckets.get(upper, 0.0) + value
    counts = part("_count")
    source = next((one.name.rpartition("_")[0] for one in (*part("_bucket"), *counts)), "")
    if math.inf not in buckets and counts:
        buckets[math.inf] = sum(_without_replicas(counts, replicas).values())
    values: Values = [
        (v.bucket(metric, upper), count, source) for upper, count in sorted(buckets.items()) if not math.isnan(upper)
    ]
    if values and (sums := part("_sum")):
        values.append((v.total(metric), sum(_without_replicas(sums, replicas).values()) * sample.scale, source))
    return values


@lru_cache(maxsize=4096)
def _upper_bound(labels: Pairs) -> float:
    try:
        return float(dict(labels)["le"])
    except (KeyError, ValueError):
        return math.nan
