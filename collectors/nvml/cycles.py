"""The SMs' true clock, out of GPM's raw samples: NVML's own SM clock was up to 10 % above it on an H200.

A raw sample (the buffer behind nvmlGpmSample_t) is opaque. Percentages are made from its words, so the cycles they are
taken of must stand in it, and it carries its own time. Both are found by what they do, never by where they stood in
another driver:

- cycles: the word whose growth is the denominator of most of GPM's percentages over the same two samples;
- time: a word that grows by a nanosecond each nanosecond and stands in the sample twice.

    clock = growth of cycles / (SMs x growth of time)

It counts only when several windows agree and it lies in 0.85 to 1.02 of NVML's clock, and is looked at anew all the
time. On an H200 (driver 580) it was within 1 % of clock64 over globaltimer under 12 of 13 loads; in the 13th the power
cap moved the clock between 510 and 1650 MHz while the two windows differed by some 10 ms (docs/gpu-checks.md).

A sample is only read, and never past what glibc allotted to it: where its chunk cannot be recognised nothing is read.
"""

from __future__ import annotations

import bisect
import ctypes
from array import array
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LEAST_GROWTH = 1_000_000
"""Cycles in a window are far more; the ratio of two small numbers is any percentage."""
LEAST_RATIO, MOST_RATIO = 0.85, 1.02
"""Of the clock found to NVML's. On an H200 it was 0.90 to 1.00."""
_AGREEING = 5
"""Looks in a row that must name the same words before they count."""
_DISAGREEING = 20
"""Looks without agreement after which the driver counts as one whose samples are not understood."""
_LOOK_NS, _RELOOK_NS = NS_PER_S // 2, 30 * NS_PER_S
"""How often the words are looked for, and looked at anew once found or given up: a look costs half a millisecond."""
_ANCHOR_NS = 10 * NS_PER_S
"""For how long one earlier sample is measured against while nothing is found: the longer, the fewer words fit."""
_LEAST_SPAN_NS, _MOST_SPAN_NS = NS_PER_S, 4 * NS_PER_S
"""What a clock is taken over. The driver samples every 100 ms, and its stamps and counts are some 10 ms apart."""
_TICK_NS = 250_000_000
"""By how much a sample may be older than the moment it is taken at: two of the driver's ticks, and our own delay."""
_TIME_DRIFT = 1e-3
"""Of two clocks that both count nanoseconds; a clock of cycles is further off."""
_MOST_BYTES = 1 << 18
"""Of a sample as it lies in memory: what is larger is taken for something else."""
_LEFT_OVER = 16
"""Bytes by which the sizes of two samples may differ: malloc gives what is left over where it is too little for a
chunk."""
LOOKING = Unknown(
    "the clock is being looked for in GPM's samples", "it takes some seconds of load", UnknownKind.PASSING
)
_STANDS_IN = "NVML's clock stands in: an upper bound"
NO_SIZE = Unknown("the size of GPM's samples cannot be told", _STANDS_IN)
NO_SMS = Unknown("the driver does not tell how many SMs the GPU has", _STANDS_IN)
IDLE = Unknown("the GPU rests: its counters move too little to tell a clock")
_NOT_UNDERSTOOD = Unknown("this driver's GPM samples are not understood", _STANDS_IN)
_APART = Unknown("the clock out of GPM's samples is too far from NVML's", _STANDS_IN)


def denominators(first: Sequence[int], second: Sequence[int], percents: Iterable[float]) -> dict[int, int]:
    """Words whose growth is what percentages are taken of, and of how many of them: the elapsed cycles are among these.

    Found without knowing the layout: where 100 x the growth of one word over that of another is a percentage that GPM
    gave for the same two samples, the other is its denominator.

    >>> denominators([0, 0, 0], [25_000_000, 50_000_000, 100_000_000], [25.0, 50.0])
    {2: 2}
    """
    grown = {i: b - a for i, (a, b) in enumerate(zip(first, second, strict=True)) if b - a >= LEAST_GROWTH}
    ordered = sorted(grown.values())
    distinct = _telling(percents)
    found = {
        index: sum(_is_among(delta * percent / 100, ordered) for percent in distinct) for index, delta in grown.items()
    }
    return {index: parts for index, parts in found.items() if parts >= 2}


def _is_among(wanted: float, ordered: Sequence[int]) -> bool:
    """Whether one of some ascending numbers is a wanted one, to the precision of a percentage kept as a double."""
    slack = 1e-7 * wanted + 0.5
    place = bisect.bisect_left(ordered, wanted - slack)
    return place < len(ordered) and ordered[place] <= wanted + slack


def _telling(percents: Iterable[float]) -> set[float]:
    """Percentages that say something of what they are taken of: not nothing, and not all."""
    return {percent for percent in percents if 0.01 < percent < 99.99}


def time_words(first: Sequence[int], second: Sequence[int], elapsed_ns: int) -> tuple[int, ...]:
    """Words that count nanoseconds and stand in the sample more than once; of each the first place.

    >>> time_words([7, 5, 7], [1_000_000_007, 5, 1_000_000_007], 1_000_000_000)
    (0,)
    """
    slack = _TICK_NS + elapsed_ns * _TIME_DRIFT
    places: dict[tuple[int, int], list[int]] = {}
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        if b > a and abs(b - a - elapsed_ns) <= slack:
            places.setdefault((a, b), []).append(index)
    return tuple(same[0] for same in places.values() if len(same) > 1)


@frozen
class ClockWords:
    """Where a driver's samples carry what makes the clock.

    Attributes:
        units: What the cycles are the sum of: SMs, or parts of them.
    """

    cycles: int
    time: int
    units: int


def find_words(
    window: tuple[Sequence[int], Sequence[int]],
    percents: Iterable[float],
    earlier: Sequence[int],
    elapsed_ns: int,
    sms: int,
    nvml_mhz: float,
) -> ClockWords | None:
    """The words that make a clock, or None where none or several could be meant.

    Percentages are of one window; time and clock are taken since an earlier sample, because the longer the surer. The
    cycles may be the sum of all SMs, of parts of them, or of one unit: NVML's clock tells which.

    Args:
        window: The samples that the percentages were made of.
        percents: GPM's, of that window.
        earlier: The window's first sample, or one before it.
        elapsed_ns: From then to the window's end.
        sms: The GPU's SMs.
        nvml_mhz: NVML's mean clock over that time.
    """
    second = window[1]
    shares = denominators(*window, percents)
    times = time_words(earlier, second, elapsed_ns)
    most = max(shares.values(), default=0)
    best = [index for index, parts in shares.items() if parts == most]
    if len(best) != 1 or len(times) != 1:
        return None
    mhz = 1e3 * (second[best[0]] - earlier[best[0]]) / (second[times[0]] - earlier[times[0]])
    units = [units for units in (1, sms, 2 * sms, 4 * sms) if _is_like(mhz / units, nvml_mhz)]
    return ClockWords(best[0], times[0], units[0]) if len(units) == 1 else None


class Raw(Protocol):
    """A raw sample."""

    def words(self) -> Sequence[int]:
        """All of it."""
        ...

    def word(self, index: int) -> int:
        """One of its words."""
        ...


@frozen
class _Moment:
    """When a sample was taken, by our clock, and what NVML's clock made of the time until then, in MHz x ns."""

    taken_ns: int
    nvml: float

    def mean_mhz(self, earlier: _Moment) -> float:
        """NVML's clock between two moments."""
        return (self.nvml - earlier.nvml) / (self.taken_ns - earlier.taken_ns)


@frozen
class _Count:
    """What stood in one sample."""

    at: _Moment
    cycles: int
    time: int

    def mhz(self, earlier: _Count, units: int) -> float:
        """The clock between two samples."""
        return 1e3 * (self.cycles - earlier.cycles) / units / (self.time - earlier.time)

    def is_of_time(self, earlier: _Count) -> bool:
        """Whether its time went on as ours did."""
        elapsed_ns = self.at.taken_ns - earlier.at.taken_ns
        return abs(self.time - earlier.time - elapsed_ns) <= _TICK_NS + _TIME_DRIFT * elapsed_ns


class SmClock:
    """Looks for the words in a GPU's samples, and makes clocks of them.

    Args:
        sms: The GPU's SMs.
    """

    def __init__(self, sms: int) -> None:
        self._sms = sms
        self.words: ClockWords | None = None
        """Where the clock's words stand, once several windows agree."""
        self._candidate: ClockWords | None = None
        self._agreed = self._failed = self._refused = 0
        self._look_ns = 0
        self._anchor: tuple[_Moment, Sequence[int]] | None = None
        self._start: _Count | None = None
        self._counts: deque[_Count] = deque()
        self._now = _Moment(0, 0.0)
        self._nvml_mhz = 0.0

    def window(
        self, first: Raw, second: Raw, percents: Sequence[float], *, nvml_mhz: float, taken_ns: int
    ) -> float | Unknown:
        """MHz over a window of GPM.

        Args:
            first: The sample that began it.
            second: The one that ended it.
            percents: What GPM made of the two.
            nvml_mhz: NVML's SM clock at its end.
            taken_ns: When it ended, by our clock.
        """
        window_mhz = (nvml_mhz + (self._nvml_mhz or nvml_mhz)) / 2
        self._now = _Moment(taken_ns, self._now.nvml + window_mhz * (taken_ns - self._now.taken_ns))
        self._nvml_mhz = nvml_mhz
        if len(_telling(percents)) < 2:
            self._counts.clear()
            return IDLE
        if taken_ns >= self._look_ns:
            self._look(first.words(), second.words(), percents)
        return self._why_not if self.words is None else self._clock(self.words, second, window_mhz)

    @property
    def _why_not(self) -> Unknown:
        return _NOT_UNDERSTOOD if self._failed >= _DISAGREEING else LOOKING

    def _look(self, first: Sequence[int], second: Sequence[int], percents: Sequence[float]) -> None:
        """Look for the words, or whether they still stand where they were found."""
        if self._anchor is None:
            self._anchor = (self._now, second)
            self._look_ns = self._now.taken_ns + _LOOK_NS
            return
        since, earlier = self._anchor
        elapsed_ns, said = self._now.taken_ns - since.taken_ns, self._now.mean_mhz(since)
        found = find_words((first, second), percents, earlier, elapsed_ns, self._sms, said)
        if found is not None and found == self._candidate:
            self._agreed += 1
        else:
            self._begin_anew(found)
            if self._now.taken_ns - since.taken_ns > _ANCHOR_NS:
                self._anchor = (self._now, second)
        if self._agreed >= _AGREEING and self.words is None and found is not None:
            self.words, self._failed = found, 0
            self._start = _Count(since, earlier[found.cycles], earlier[found.time])
        given_up = found is None and self._failed >= _DISAGREEING and self._failed % _AGREEING == 0
        self._look_ns = self._now.taken_ns + (_RELOOK_NS if self.words is not None or given_up else _LOOK_NS)

    def _clock(self, words: ClockWords, sample: Raw, window_mhz: float) -> float | Unknown:
        """Of the last seconds; how its cycles spread over them is NVML's word, whose clock follows a change at once."""
        count = _Count(self._now, sample.word(words.cycles), sample.word(words.time))
        if self._start is not None and not count.is_of_time(self._start):
            self._refuse()
            return self._why_not
        self._counts.append(count)
        while self._now.taken_ns - self._counts[0].at.taken_ns > _MOST_SPAN_NS:
            self._counts.popleft()
        first = self._counts[0]
        if count.time - first.time < _LEAST_SPAN_NS:
            return LOOKING
        mhz, said = count.mhz(first, words.units), self._now.mean_mhz(first.at)
        return window_mhz * mhz / said if _is_like(mhz, said) else _APART

    def _refuse(self) -> None:
        """What seemed to be time is not, or our own clock stood still: look again later, and later each time."""
        self._begin_anew()
        self._refused += 1
        self._anchor, self._failed = None, _DISAGREEING
        self._look_ns = self._now.taken_ns + self._refused * _RELOOK_NS

    def _begin_anew(self, candidate: ClockWords | None = None) -> None:
        self.words, self._start, self._candidate = None, None, candidate
        self._agreed, self._look_ns = int(candidate is not None), 0
        self._failed += candidate is None
        self._counts.clear()


def _is_like(mhz: float, nvml_mhz: float) -> bool:
    return LEAST_RATIO * nvml_mhz <= mhz <= MOST_RATIO * nvml_mhz


# The bytes of a sample


class RawSample:
    """The buffer behind one of NVML's GPM samples, to be read."""

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        self._count = size // 8

    def words(self) -> array[int]:
        """All of it."""
        return array("Q", ctypes.string_at(self._address, self._count * 8))

    def word(self, index: int) -> int:
        """One of its words."""
        if not 0 <= index < self._count:
            raise IndexError(index)
        return ctypes.c_uint64.from_address(self._address + 8 * index).value


def raw_samples(first: Any, second: Any) -> tuple[RawSample, RawSample] | None:
    """Two of NVML's samples as bytes; None where their size cannot be told, or is not the same.

    A chunk may be larger than another of the same request by what was too small to be a chunk of its own.
    """
    addresses = [ctypes.cast(sample, ctypes.c_void_p).value or 0 for sample in (first, second)]
    ranges = list(_writable_ranges())
    sizes = [_allotted(address, ranges) for address in addresses]
    size = min(sizes)
    if not size or max(sizes) - size > _LEFT_OVER:
        return None
    return RawSample(addresses[0], size), RawSample(addresses[1], size)


def _writable_ranges() -> Iterator[tuple[int, int]]:
    """Of memory of our own that is backed by no file."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        where, rights, _, _, inode, *_ = line.split()
        if rights.startswith("rw") and inode == "0":
            start, end = where.split("-")
            yield int(start, 16), int(end, 16)


def _allotted(address: int, ranges: Sequence[tuple[int, int]]) -> int:
    """Bytes that glibc's malloc gave at least at an address: from the size that it keeps before each chunk.

    0 where that does not look like a chunk in use: a driver is free to give a number that is no address, and another
    allocator keeps no size there. The lowest bit of a chunk's size says that the chunk before it is in use.
    """
    end = next((end for start, end in ranges if start + 16 <= address < end), 0)
    if not end or address % 16:
        return 0
    size = _word_at(address - 8)
    chunk, is_mapped = size & ~7, bool(size & 2)
    if chunk % 16 or not 32 <= chunk <= _MOST_BYTES or address - 16 + chunk + 16 > end or is_mapped:
        return 0
    return chunk - 16 if _word_at(address - 8 + chunk) & 1 else 0


def _word_at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
