"""Which labelled series a trace has: found in one pass, and only where their names have changed.

A live trace has thousands of series, mostly the same as the one before it: each pane and rule that went through all of
them for its own cost more than all it made of them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from llmtop import vocabulary as v

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmtop.model import Metric, Trace, TrackId

Keys: TypeAlias = "tuple[tuple[TrackId, str], ...]"


@lru_cache(maxsize=4)
def labelled(trace: Trace) -> Keys:
    """Track and name of each series whose metric has a label ("thread.blocked|futex"), in the trace's order."""
    return tuple(key for key in trace.series if v.has_label(key[1]))


def labels(trace: Trace, metric: Metric) -> Mapping[TrackId, tuple[str, ...]]:
    """By track, the labels under which it has series of a metric; empty where it has none."""
    return _all_labels(trace).get(metric.name, {})


@lru_cache(maxsize=4)
def _all_labels(trace: Trace) -> Mapping[str, Mapping[TrackId, tuple[str, ...]]]:
    """Kept by trace too: to find thousands of names again among those kept takes a hash of them all."""
    return _by_metric(labelled(trace))


@lru_cache(maxsize=2)
def _by_metric(keys: Keys) -> Mapping[str, Mapping[TrackId, tuple[str, ...]]]:
    found: defaultdict[str, defaultdict[TrackId, list[str]]] = defaultdict(lambda: defaultdict(list))
    for track, name in keys:
        metric, label = v.parted(name)
        found[metric][track].append(label)
    return {metric: {track: tuple(several) for track, several in tracks.items()} for metric, tracks in found.items()}
