"""Tracks of a recording: told whole once a stretch, then only what of their facts is another by now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from llmtop import ids
from llmtop.facts import ThreadFact
from llmtop.model import Track, TrackId, TrackKind, Unknown
from llmtop.recording.documents import MisfitError, value_of

if TYPE_CHECKING:
    from llmtop.model import Fact

_PLAIN: Final = frozenset({str, int, float})
"""Facts that are as they stand in JSON."""
_OF_CPUS: Final = frozenset({ThreadFact.CPUS, ThreadFact.CPUS_BEFORE, ThreadFact.CPUS_SINCE})
MAY_TELL_CPUS: Final = (b'"kind"', b'"gone"', f'"{ThreadFact.CPUS}'.encode())
"""What is in the JSON of each moment at which another thread is told of, or other CPUs of one."""
_ORDER: Final = {kind: i for i, kind in enumerate(TrackKind)}
Note = Callable[[str], None]
"""Takes the name of what this version does not know."""


class ChangingTracks:
    """Tracks from moment to moment. Those that change are made once they are asked for: many do each second.

    Args:
        before: What they are at first.
    """

    def __init__(self, before: Mapping[TrackId, Track]) -> None:
        self._before = before
        self._tracks = dict(before)
        self._facts: dict[TrackId, dict[str, Fact]] = {}
        """New facts of tracks that do not have them yet."""
        self._is_changed = False

    def take(self, told: Mapping[str, Any], t_ns: int, note: Note) -> None:
        """Take what a moment tells: which tracks are gone, and what is new of the others."""
        for id in told.get("gone", ()):
            self._tracks.pop(id, None)
            self._facts.pop(id, None)
        for id, document in told.get("tracks", {}).items():
            if isinstance(document, dict):
                self._change(id, document, t_ns, note)
            else:
                note("track")
        self._is_changed |= "gone" in told or "tracks" in told

    def now(self) -> Mapping[TrackId, Track]:
        """The tracks as they are; the same object as before where nothing was told."""
        if not self._is_changed:
            return self._before
        for id in tuple(self._facts):
            self._settled(id)
        return self._tracks

    def _change(self, id: TrackId, document: Mapping[str, Any], t_ns: int, note: Note) -> None:
        facts = known_facts(document.get("facts", {}), note)
        is_whole = "kind" in document or id not in self._tracks
        if not is_whole and _OF_CPUS.isdisjoint(facts):
            self._facts.setdefault(id, {}).update(facts)
            return
        old = self._settled(id)
        if old is not None and not is_whole:
            self._tracks[id] = with_former_cpus(_with_facts(old, {**old.facts, **facts}), old, t_ns)
            return
        try:
            new = _with_facts(value_of(Track, {**document, "id": id, "facts": {}}), facts)
        except MisfitError:
            note("track")
            return
        if ids.kind(id) is new.kind and ids.is_well_formed(id) and _may_hold(new.parent, new.kind):
            self._tracks[id] = with_former_cpus(new, old or new, t_ns)
        else:
            note("track")

    def _settled(self, id: TrackId) -> Track | None:
        """A track with all its facts; None where there is none."""
        track = self._tracks.get(id)
        if track is not None and (facts := self._facts.pop(id, None)):
            track = self._tracks[id] = _with_facts(track, {**track.facts, **facts})
        return track


def _may_hold(parent: TrackId | None, kind: TrackKind) -> bool:
    """Whether a track may be the parent of one of a kind: those before it, so that no track is above itself."""
    above = None if parent is None else ids.kind(parent)
    return parent is None or (above is not None and _ORDER[above] < _ORDER[kind] and ids.is_well_formed(parent))


def with_former_cpus(track: Track, old: Track, t_ns: int) -> Track:
    """A thread with the CPUs that it might run on before, where these changed and whoever wrote it did not say so."""
    cpus, former = track.facts.get(ThreadFact.CPUS), old.facts.get(ThreadFact.CPUS)
    is_told = track.facts.get(ThreadFact.CPUS_SINCE) not in (None, old.facts.get(ThreadFact.CPUS_SINCE))
    if cpus is None or former is None or is_told:
        return track
    told = {name: old.facts[name] for name in (ThreadFact.CPUS_BEFORE, ThreadFact.CPUS_SINCE) if name in old.facts}
    if cpus != former:
        told = {ThreadFact.CPUS_BEFORE: former, ThreadFact.CPUS_SINCE: t_ns}
    return replace(track, facts={**track.facts, **told}) if told else track


def _with_facts(track: Track, facts: Mapping[str, Fact]) -> Track:
    return Track(track.id, track.kind, track.name, track.parent, facts)


def known_facts(told: Any, note: Note) -> Mapping[str, Fact]:
    """Facts: most are plain, and need no look at what else they could be."""
    facts: dict[str, Any] = {}
    if not isinstance(told, dict):
        note("fact")
        return facts
    for name, value in told.items():
        if value.__class__ in _PLAIN:
            facts[name] = value
            continue
        try:
            facts[name] = value_of(Unknown, value).recorded
        except MisfitError:
            note("fact")
    return facts
