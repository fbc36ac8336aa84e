"""Sums of all looks since the start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.helper.governor import observe
from llmtop.collectors.tracing.perf.perf_text import ThreadCalls
from llmtop.collectors.tracing.perf.sched import SliceSums


class Books:
    """Sums since the start, as reports tell them. `owners` are processes by thread."""

    def __init__(self) -> None:
        self.observed: wire.Observed = {"calls": 0, "timed": 0, "scheduler": 0}
        self.blocked: dict[tuple[int, int, str], int] = defaultdict(int)
        self.queued: dict[int, Counter[int]] = defaultdict(Counter)
        self.wakes: Counter[tuple[int, int, int]] = Counter()
        self.calls: dict[tuple[int, str], tuple[int, int | None, int]] = {}
        """Calls, errors and ns, by process and name."""
        self.hits: Counter[str] = Counter()
        self.lost = 0
        self._names: dict[str, int] = {}

    def add_slice(self, sums: SliceSums, owners: Mapping[int, int], seconds_ns: int) -> wire.Sample:
        """The part of a report that a look at the scheduler gives."""
        observe(self.observed, seconds_ns, scheduler=True)
        self.hits["switch"] += sums.events
        for (tid, cause), ns in sums.blocked.items():
            self.blocked[owners[tid], tid, cause.value] += ns
        for tid, slots in sums.queued.items():
            self.queued[owners[tid]].update(slots)
        for (tid, waker), count in sums.wakes.items():
            self.wakes[owners[tid], tid, waker] += count
        changed = {owners[tid] for tid in sums.queued}
        return {
            "blocked": [wire.CauseTotal(*key, ns) for key, ns in self.blocked.items()],
            "queue": [wire.QueueTotal(pid, self.queued[pid]) for pid in changed],
            "wakes": [wire.WakeTotal(*key, count) for key, count in self.wakes.items()],
        }

    def add_calls(self, tables: Sequence[ThreadCalls], owners: Mapping[int, int], seconds_ns: int) -> wire.Sample:
        """The part of a report that a look at the system calls gives."""
        observe(self.observed, seconds_ns, "timed")
        for table in tables:
            pid = owners.get(table.tid, 0)
            for row in table.rows if pid else ():
                calls, errors, ns = self.calls.get((pid, row.name), (0, 0, 0))
                self.hits["call"] += row.calls
                errors = None if row.errors is None or errors is None else errors + row.errors
                self.calls[pid, row.name] = (calls + row.calls, errors, ns + row.total_ns)
        numbers = self._names
        return {
            "calls": [
                wire.CallTotal(pid, numbers.setdefault(name, len(numbers)), *sums, {})
                for (pid, name), sums in self.calls.items()
            ],
            "names": {number: name for name, number in numbers.items()},
        }

    @property
    def lacks_errors(self) -> bool:
        """Whether this perf has told no numbers of errors."""
        return any(sums[1] is None for sums in self.calls.values())

    def forget(self, threads: set[int], processes: set[int]) -> None:
        """Drop what has ended."""
        self.blocked = defaultdict(int, {key: ns for key, ns in self.blocked.items() if key[1] not in threads})
        self.wakes = Counter({key: count for key, count in self.wakes.items() if key[1] not in threads})
        self.calls = {key: sums for key, sums in self.calls.items() if key[0] not in processes}
        for pid in processes:
            self.queued.pop(pid, None)
