"""The stretch of time that a timeline shows: in whole nanoseconds, at least one for each cell."""

from __future__ import annotations

from llmtop.frozen import frozen


@frozen
class ShownTime:
    """From `start_ns` to before `end_ns`, within [first_ns, last_ns]."""

    start_ns: int
    end_ns: int
    first_ns: int
    last_ns: int

    @property
    def length_ns(self) -> int:
        """How much time it shows."""
        return self.end_ns - self.start_ns

    def edges(self, columns: int) -> list[int]:
        """Where each of so many cells begins, and where the last one ends.

        >>> ShownTime(0, 10, 0, 10).edges(4)
        [0, 2, 5, 7, 10]
        """
        length = max(columns, self.length_ns)
        return [self.start_ns + length * i // columns for i in range(columns + 1)]

    def column_of(self, t_ns: int, columns: int) -> int:
        """The cell that a moment falls in: below 0 before the first, from `columns` on after the last.

        >>> [ShownTime(0, 10, 0, 10).column_of(t, 4) for t in (-1, 0, 1, 2, 9, 10)]
        [-1, 0, 0, 1, 3, 4]
        """
        # The last cell i with start + length * i // columns <= t.
        return (columns * (t_ns - self.start_ns + 1) - 1) // max(columns, self.length_ns)

    def holds(self, t_ns: int) -> bool:
        """Whether it shows a moment."""
        return self.start_ns <= t_ns < self.end_ns

    def zoomed(self, at_ns: int, factor: float, columns: int) -> ShownTime:
        """So many times as much time, with the moment where it was."""
        widest = max(columns, self.last_ns - self.first_ns)
        length = min(widest, max(columns, round(self.length_ns * factor)))
        before = (at_ns - self.start_ns) * length // self.length_ns
        return self._placed(at_ns - before, length)

    def moved(self, by_ns: int) -> ShownTime:
        """Later or earlier, as far as there is anything."""
        return self._placed(self.start_ns + by_ns, self.length_ns)

    def around(self, start_ns: int, end_ns: int) -> ShownTime:
        """As wide as before, moved until it shows a stretch: in its middle, unless it does so already."""
        if self.start_ns <= start_ns and end_ns <= self.end_ns:
            return self
        if end_ns - start_ns >= self.length_ns:
            return self._placed(start_ns - self.length_ns // 8, self.length_ns)
        return self._placed((start_ns + end_ns - self.length_ns) // 2, self.length_ns)

    def of(self, start_ns: int, end_ns: int, columns: int) -> ShownTime:
        """A stretch with a tenth of it on either side."""
        length = max(columns, (end_ns - start_ns) * 12 // 10)
        return self._placed((start_ns + end_ns - length) // 2, length)

    def _placed(self, start: int, length: int) -> ShownTime:
        start = max(self.first_ns, min(start, self.last_ns - length))
        return ShownTime(start, start + length, self.first_ns, self.last_ns)
