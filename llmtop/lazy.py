"""Parts of a trace that are read or made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from threading import Lock, RLock
from typing import TYPE_CHECKING, Generic, TypeVar, overload

if TYPE_CHECKING:
    from llmtop.model import Track, TrackId

_K = TypeVar("_K")
_V = TypeVar("_V")
_Whole = TypeVar("_Whole", bound="Sized")


class LazyMapping(Mapping[_K, _V]):
    """Values of which some are read, and of the others is known that they are there. Any thread may ask.

    A reader is called once. It raises nothing: what a file has lost is an issue and a value without content.
    """

    def __init__(self, read: Mapping[_K, _V], readers: Mapping[_K, Callable[[], _V]]) -> None:
        self._read = dict(read)
        self._readers = dict(readers)
        self._keys = tuple(dict.fromkeys((*read, *readers)))
        self._lock = RLock()

    def __getitem__(self, key: _K) -> _V:
        if key not in self._read and key in self._readers:
            with self._lock:
                if key not in self._read:
                    self._read[key] = self._readers[key]()
                    del self._readers[key]
        return self._read[key]

    def take(self, key: _K) -> _V:
        """The value, which is forgotten here: whoever takes it keeps it alone. To ask for it again raises KeyError."""
        with self._lock:
            value = self[key]
            self._read.pop(key, None)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[_K]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class _ReadOnce(Generic[_Whole]):
    """Holds what is read as a whole when anything of it is asked for; until then it is taken to have something."""

    def __init__(self, reader: Callable[[], _Whole]) -> None:
        self._reader = reader
        self._lock = RLock()
        self._read: _Whole | None = None

    def _all(self) -> _Whole:
        with self._lock:
            if self._read is None:
                self._read = self._reader()
            return self._read

    def __bool__(self) -> bool:
        return self._read is None or bool(self._read)

    def __len__(self) -> int:
        return len(self._all())


class LazySequence(_ReadOnce[Sequence[_V]], Sequence[_V], Generic[_V]):
    """Values of which only is known that there are some, until one is asked for. Any thread may ask."""

    @overload
    def __getitem__(self, at: int) -> _V: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[_V]: ...
    def __getitem__(self, at: int | slice) -> _V | Sequence[_V]:
        return self._all()[at]


class LazyDictionary(_ReadOnce[Mapping[_K, _V]], Mapping[_K, _V]):
    """The same of a mapping."""

    def __getitem__(self, key: _K) -> _V:
        return self._all()[key]

    def __iter__(self) -> Iterator[_K]:
        return iter(self._all())


def renumbered(values: Mapping[int, _V], rows: Sequence[int]) -> Mapping[int, _V]:
    """Values by row, when row i is what row `rows[i]` was; read once something of it is asked for.

    >>> dict(renumbered({3: "a", 9: "b"}, [9, 2, 3]))
    {0: 'b', 2: 'a'}
    """
    if not values:
        return values
    return LazyDictionary(
        lambda: {i: values[row] for i, row in enumerate(rows) if row in values} if len(values) else {}
    )


class GrowingTracks(Mapping["TrackId", "Track"]):
    """Tracks by id; those of what is read later join then, and never while somebody goes through them."""

    def __init__(self) -> None:
        self._now: dict[TrackId, Track] = {}
        self._lock = Lock()

    def add(self, track: Track) -> None:
        """Take in a track, unless one with its id is there."""
        with self._lock:
            if track.id not in self._now:
                self._now = {**self._now, track.id: track}

    def __getitem__(self, track: TrackId) -> Track:
        return self._now[track]

    def __iter__(self) -> Iterator[TrackId]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)
