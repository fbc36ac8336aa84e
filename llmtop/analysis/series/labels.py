"""Which labelled series a trace has: found in one pass, and only where their names have changed.

A live trace has thousands of series, mostly the same as the one before it: each pane and rule that went through all of
them for its own cost more than all it made of them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from llmtop import vocabulary as v
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmtop.model import Metric, Trace, TrackId

Keys: TypeAlias = "tuple[tuple[TrackId, str], ...]"


@frozen
class _Names:
    """All series of a trace by track and name, those of them that have a label, and the labels by metric and track."""

    keys: Keys
    labelled: Keys
    by_metric: Mapping[str, Mapping[TrackId, tuple[str, ...]]]


_kept: deque[_Names] = deque(maxlen=2)
"""Of the newest traces. Theirs is looked for by comparison: the keys of a recorder's traces are the same objects, which
Python sees without a look into them. A cache would take a hash of thousands of names, as long as going through them."""


def labelled(trace: Trace) -> Keys:
    """Track and name of each series whose metric has a label ("thread.blocked|futex"), in the trace's order."""
    return _names(trace).labelled


def labels(trace: Trace, metric: Metric) -> Mapping[TrackId, tuple[str, ...]]:
    """By track, the labels under which it has series of a metric; empty where it has none."""
    return _names(trace).by_metric.get(metric.name, {})


@lru_cache(maxsize=4)
def _names(trace: Trace) -> _Names:
    keys = tuple(trace.series)
    known = next((one for one in tuple(_kept) if one.keys == keys), None)
    if known is None:
        known = _names_of(keys)
        _kept.append(known)
    return known


def _names_of(keys: Keys) -> _Names:
    """What comes and goes has mostly no label: a neighbour."""
    labelled = tuple(key for key in keys if v.has_label(key[1]))
    same = next((one for one in tuple(_kept) if one.labelled == labelled), None)
    return _Names(keys, labelled, _by_metric(labelled)) if same is None else replace(same, keys=keys)


def _by_metric(labelled: Keys) -> Mapping[str, Mapping[TrackId, tuple[str, ...]]]:
    found: defaultdict[str, defaultdict[TrackId, list[str]]] = defaultdict(lambda: defaultdict(list))
    for track, name in labelled:
        metric, label = v.parted(name)
        found[metric][track].append(label)
    return {metric: {track: tuple(several) for track, several in tracks.items()} for metric, tracks in found.items()}
