"""Numbers over time: what they mean, one by one as collectors read them, and in columns."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from llmtop.frozen import frozen
from llmtop.model.tracks import TrackId

_FEW: Final = 8
"""So many samples from the end it is looked first where what is new begins."""


@frozen
class Metric:
    """What a number means. The live ones are listed in `llmtop.vocabulary`.

    Attributes:
        name: Dotted and stable: "gpu.sm". It is the key in JSON and in recordings.
        unit: "%" (0 to 100), "ratio" (0 to 1), "bytes", "bytes/s", "W", "MHz", "s", "ns", "1" ...
        counter: It only grows (until its owner restarts); a rate is made of it, never shown raw.
        title: What a pane calls it.
    """

    name: str
    unit: str
    counter: bool = False
    title: str = ""

    def __hash__(self) -> int:
        return hash(self.name)  # a key of most tables: Python keeps a string's hash, and makes that of fields each time


@dataclass(slots=True, unsafe_hash=True)
class Reading:
    """One sample. `value` is None where the source had none: history then shows a gap, never a zero.

    Held to be frozen by the type checker alone, as series are: a frozen class takes four times as long to make, and
    of both there are a thousand a second.
    """

    track: Final[TrackId]
    metric: Final[Metric]
    t_ns: Final[int]
    value: Final[float | None]
    source: Final[str]


@dataclass(slots=True, eq=False)
class Series:
    """The samples of one metric on one track, oldest first, in columns.

    The arrays may be longer than the series: only [start, stop) belongs to it, so that freezing a window of the
    recorder copies nothing. NaN in `_values` is "the source had none".
    """

    track: Final[TrackId]
    metric: Final[Metric]
    source: Final[str]
    _times: Final[array[int]] = field(repr=False)
    _values: Final[array[float]] = field(repr=False)
    start: Final[int]
    stop: Final[int]

    @classmethod
    def of(cls, track: TrackId, metric: Metric, source: str, samples: list[tuple[int, float | None]]) -> Series:
        """Make a series from (t_ns, value) pairs, oldest first."""
        times = array("q", (t for t, _ in samples))
        values = array("d", (math.nan if v is None else v for _, v in samples))
        return cls(track, metric, source, times, values, 0, len(times))

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[tuple[int, float | None]]:
        return zip(self.times, self.samples, strict=True)

    @property
    def samples(self) -> Sequence[float | None]:
        """Sample values, a copy; None where the source had none."""
        values = self.values
        # Hundreds of graphs a frame: only where a sample is missing does Python look at each one.
        if any(map(math.isnan, values)):
            return [None if math.isnan(value) else value for value in values]
        return values

    @property
    def known(self) -> Iterator[tuple[int, float]]:
        """The samples that have a value."""
        values = self.values
        if any(map(math.isnan, values)):
            return ((t_ns, value) for t_ns, value in zip(self.times, values, strict=True) if value == value)
        return zip(self.times, values, strict=True)

    @property
    def times(self) -> array[int]:
        """Sample times in ns, a copy."""
        return self._times[self.start : self.stop]

    @property
    def values(self) -> array[float]:
        """Sample values, a copy; NaN where the source had none."""
        return self._values[self.start : self.stop]

    @property
    def last(self) -> float | None:
        """The newest value; None when there is none or the source had none."""
        if self.start == self.stop:
            return None
        value = self._values[self.stop - 1]
        return None if math.isnan(value) else value

    @property
    def first_t_ns(self) -> int | None:
        """When the oldest sample was taken."""
        return self._times[self.start] if self.stop > self.start else None

    @property
    def last_t_ns(self) -> int | None:
        """When the newest sample was taken."""
        return self._times[self.stop - 1] if self.stop > self.start else None

    def at(self, t_ns: int) -> float | None:
        """The newest value by then, looking past samples without one; None before the first."""
        i = bisect_right(self._times, t_ns, self.start, self.stop) - 1
        while i >= self.start and math.isnan(self._values[i]):
            i -= 1
        return self._values[i] if i >= self.start else None

    def newest(self, count: int) -> Series:
        """The last samples, at most `count`; shares the columns."""
        start = max(self.start, self.stop - count)
        return Series(self.track, self.metric, self.source, self._times, self._values, start, self.stop)

    def stretch(self, start_ns: int, end_ns: int) -> tuple[array[int], array[float]]:
        """Times and values with start_ns < t <= end_ns and those of the sample before, where there is one; copies."""
        start = bisect_right(self._times, start_ns, self.start, self.stop)
        stop = bisect_right(self._times, end_ns, start, self.stop)
        start = max(self.start, start - 1)
        return self._times[start:stop], self._values[start:stop]

    def after(self, t_ns: int) -> tuple[array[int], array[float]]:
        """Times and values with t > t_ns; copies."""
        times, stop = self._times, self.stop
        near = stop - _FEW if stop - self.start > _FEW and times[stop - _FEW] <= t_ns else self.start
        start = bisect_right(times, t_ns, near, stop)
        return times[start:stop], self._values[start:stop]

    def next_after(self, t_ns: int) -> tuple[int, float] | None:
        """The newest sample where it alone follows one with t <= t_ns, NaN where the source had none; else None.

        >>> load = Series.of("t", Metric("m", "1"), "", [(1, 5.0), (2, 6.0)])
        >>> load.next_after(0), load.next_after(1), load.next_after(2)
        (None, (2, 6.0), None)
        """
        times, last = self._times, self.stop - 1
        if last > self.start and times[last - 1] <= t_ns < (newest := times[last]):
            return newest, self._values[last]
        return None

    def shares_columns(self, other: Series) -> bool:
        """Whether both are stretches of the same samples as they were recorded."""
        return self._times is other._times

    def from_end(self, t_ns: int) -> int:
        """How many samples back from the end the last one at or before a moment stands; more than all before the first.

        >>> hits = Series.of("t", Metric("m", "1"), "", [(1, 5.0), (2, 6.0), (3, 9.0)])
        >>> hits.from_end(3), hits.from_end(2), hits.from_end(0)
        (1, 2, 4)
        """
        return self.stop - bisect_right(self._times, t_ns, self.start, self.stop) + 1

    def step(self, first: int, first_ns: int, last: int, last_ns: int) -> float | None:
        """The difference of two values, by how far back from the end they stand.

        None where the samples there are not of these moments; NaN where one has no value.
        """
        start, stop = self.stop - first, self.stop - last
        if start < self.start or self._times[start] != first_ns or self._times[stop] != last_ns:
            return None
        return self._values[stop] - self._values[start]

    def between(self, start_ns: int, end_ns: int) -> Series:
        """The part with start_ns <= t <= end_ns; shares the columns."""
        start = bisect_left(self._times, start_ns, self.start, self.stop)
        stop = bisect_right(self._times, end_ns, self.start, self.stop)
        return Series(self.track, self.metric, self.source, self._times, self._values, start, stop)


TORCH_ALLOCATED: Final = Metric("torch.allocated", "bytes", title="allocated by PyTorch")
TORCH_RESERVED: Final = Metric("torch.reserved", "bytes", title="reserved by PyTorch")
TORCH_GROWN: Final = Metric("torch.allocated_since_start", "bytes", title="allocated since the profile began")
"""What PyTorch's allocators held, on the tracks of GPUs and processes; the last one in traces before 2022, that tell of
each allocation and not of what there was before."""
