"""Models that are steps of other models (Triton's ensembles, business logic): a request counts once, at its entry.

A page counts the requests of each model and does not say which model calls which. An entry has "ensemble" or "bls" in
its name; without such a name it is the one of several models with the same count whose time is that of all others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.collectors.metrics_text import key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from llmtop.collectors.metrics_text import ExposedSample, Exposition
    from llmtop.model import Engine

_ENTRIES = ("ensemble", "bls")
_ALIKE = 0.1
"""Share by which counts of an entry and its steps differ: steps are counted as they end, and some fail."""
_UNDER_WAY = 20.0
"""Requests that may be between two steps, and of fewer of which times tell nothing."""
_ITS_STEPS = 0.9
"""Share of an entry's time that its steps take together."""


def without_steps(engine: Engine, exposition: Exposition) -> Exposition:
    """The page with the counts of entries alone; time in queues stays that of all models."""
    if not engine.entry_counts:
        return exposition
    label = engine.model_labels[0]
    served, *_, took = (_by(label, exposition.samples.get(key(name), ())) for name in engine.entry_counts)
    steps = _steps(served, took)
    if not steps:
        return exposition
    counts = {
        key(name): tuple(one for one in exposition.samples[key(name)] if one.labels.get(label) not in steps)
        for name in engine.entry_counts
        if key(name) in exposition.samples
    }
    return replace(exposition, samples={**exposition.samples, **counts})


def queue_at(engine: Engine, exposition: Exposition, name: str) -> str | None:
    """The model before which most requests wait, where there are several."""
    waiting = _by(engine.model_labels[0], exposition.samples.get(key(name), ()))
    longest = max(waiting, key=lambda model: waiting[model], default=None)
    return longest if longest is not None and len(waiting) > 1 and waiting[longest] >= 1 else None


def _by(label: str, samples: Iterable[ExposedSample]) -> dict[str, float]:
    """What each model has, over its versions."""
    found: dict[str, float] = {}
    for one in samples:
        found[one.labels.get(label, "")] = found.get(one.labels.get(label, ""), 0.0) + (one.value or 0.0)
    return found


def _steps(served: Mapping[str, float], took: Mapping[str, float]) -> set[str]:
    entries = {model for model in served if any(word in model.lower() for word in _ENTRIES)}
    if entries:
        return {model for model in served if model not in entries and _are_alike(served, model, entries)}
    for entry in sorted(served, key=lambda model: -took.get(model, 0.0)):
        alike = {model for model in served if model != entry and _are_alike(served, model, {entry})}
        of_steps = sum(took.get(model, 0.0) for model in alike)
        if len(alike) > 1 and served[entry] > _UNDER_WAY and 0 < _ITS_STEPS * of_steps <= took.get(entry, 0.0):
            return alike
    return set()


def _are_alike(served: Mapping[str, float], model: str, entries: set[str]) -> bool:
    through = sum(served[entry] for entry in entries)
    return abs(served[model] - through) <= max(_UNDER_WAY, _ALIKE * through)
