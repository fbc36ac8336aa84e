"""Every series of a trace in a line: what it is of, how much of it there is, and between which values it goes."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.analysis.series.rates import rate_samples
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Metric, Series, Trace, Unknown
from llmtop.units import quantity

_NO_SERIES = Unknown(
    "this file has no series of numbers",
    "nsys profile --gpu-metrics-devices=all has them of GPUs, llmtop record of a server and its machine",
)
_NO_VALUE = Unknown("no sample has a value")
_ONE_SAMPLE = Unknown("a counter tells with its second sample how fast it grows")
_IS_SIGN = Unknown("it stands for something, and is no quantity")


@frozen
class SeriesRow:
    """A series.

    Attributes:
        unit: Of the values: of a counter they are rates.
        seconds: From its first sample to its last.
        values: The (t_ns, value) samples, None where there is none.
        least, mean, most, last: Of the samples that have a value; of codes and bits the last one alone.
        last_said: What the last one stands for, of codes and bits.
    """

    track: str
    title: str
    unit: str
    source: str
    seconds: float
    values: tuple[tuple[int, float | None], ...]
    least: float | Unknown
    mean: float | Unknown
    most: float | Unknown
    last: float | Unknown
    last_said: str = ""


def why_no_series(trace: Trace) -> Unknown | None:
    """Why there are no series to show; None where there are some."""
    return None if trace.series else trace.why_missing(whats.SERIES) or _NO_SERIES


def has_series_alone(trace: Trace) -> bool:
    """Whether numbers over time are all that it has."""
    others = (trace.kernels, trace.spans, trace.more_spans, trace.stacks, trace.faults)
    return bool(trace.series) and not any(others)


def series_row(trace: Trace, series: Series) -> SeriesRow:
    """What a series holds."""
    metric, (track, title) = series.metric, names_of(trace, series)
    samples = tuple(rate_samples(series) if metric.counter else series)
    known = [value for _, value in samples if value is not None]
    why = _ONE_SAMPLE if metric.counter and len(series) < 2 else _NO_VALUE
    is_sign = metric.unit in v.SIGNS
    measured, why_none = ([], _IS_SIGN) if is_sign else (known, why)
    return SeriesRow(
        track,
        title,
        f"{metric.unit}/s" if metric.counter else metric.unit,
        series.source,
        (series.times[-1] - series.times[0]) / NS_PER_S if len(series) else 0.0,
        samples,
        min(measured, default=why_none),
        sum(measured) / len(measured) if measured else why_none,
        max(measured, default=why_none),
        known[-1] if known else why,
        v.said(metric, known[-1]) if is_sign and known else "",
    )


def names_of(trace: Trace, series: Series) -> tuple[str, str]:
    """What a series is of, and which number."""
    track = trace.tracks.get(series.track)
    return series.track if track is None else track.name, series.metric.title or series.metric.name


def value_said(metric: Metric, value: float) -> str:
    """One value in words: in its unit, or what it stands for.

    >>> value_said(v.GPU_POWER, 350.0), value_said(v.PROCESS_STATE, 2.0)
    ('350 W', 'stopped')
    """
    return v.said(metric, value) if metric.unit in v.SIGNS else quantity(value, metric.unit)
