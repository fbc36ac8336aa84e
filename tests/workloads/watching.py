"""What llmtop makes of running workloads: real collectors, recorder and views, beside the programs' accounts."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from llmtop.analysis.series.readings import counter_increase
from llmtop.analysis.threads.shares import Shares, threads_view
from llmtop.collectors import children
from llmtop.collectors.proc import ProcCollector
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import NS_PER_S, Metric, Origin, Trace, TrackId, Unknown
from llmtop.session import Recorder
from tests.workloads.noise import first_myself, put_first
from tests.workloads.programs import Account, Workload, target_of

_DEADLINE_S = 30.0
_STEP_S = 0.05
_RUN_UP_NS = NS_PER_S // 2
WITHOUT_BUDGET = 100.0


@dataclass(frozen=True)
class Seen:
    """What was recorded between two accounts of each program."""

    trace: Trace
    before: Mapping[str, Account]
    after: Mapping[str, Account]
    pids: Mapping[str, int]

    def shares(self, program: str, thread: str) -> Shares:
        """What llmtop says of a thread."""
        pid, tid = self.pids[program], self.after[program].threads[thread]["tid"]
        view = threads_view(self._told_by(program), self._window_ns(program))
        assert not isinstance(view, Unknown), view
        (shares,) = (row.shares for row in view.rows if (row.pid, row.tid) == (pid, tid))
        assert isinstance(shares, Shares), shares
        return shares

    def counted(self, program: str, track: TrackId, metric: Metric) -> float:
        """How much a counter of a program grew."""
        grown = counter_increase(self._told_by(program), track, metric, self._window_ns(program))
        return 0.0 if isinstance(grown, Unknown) else grown.amount

    def _told_by(self, program: str) -> Trace:
        """What was recorded until the program gave its last account: what came later is no part of that."""
        return replace(self.trace, end_ns=self.after[program].t)

    def _window_ns(self, program: str) -> int:
        return self.after[program].t - self.before[program].t

    def stack_share(self, program: str, thread: str, state: str, function: str) -> float:
        """The share of a thread's stacks in a state that have a function in them."""
        track = f"thread:{self.pids[program]}/{self.after[program].threads[thread]['tid']}"
        weights = [
            (stack.weight, function in stack.frames)
            for stack in self.trace.stacks
            if stack.track == track and stack.state == state
        ]
        total = sum(weight for weight, _ in weights)
        return sum(weight for weight, is_there in weights if is_there) / total if total else 0.0


class Watch:
    """Collectors on programs that are ready and have not begun."""

    def __init__(self, programs: Mapping[str, Workload], collectors: ExitStack) -> None:
        self._programs = programs
        pids = [pid for program in programs.values() for pid in program.pids]
        probes = EbpfCollector(target_of(*pids), budget=WITHOUT_BUDGET, interval_s=0.1)
        self._probes = collectors.enter_context(probes)
        self._clocks = [collectors.enter_context(ProcCollector(target_of(pid))) for pid in pids]
        self.recorder = Recorder(Origin("live"), 60.0)
        self._reported_ns = 0
        # Library calls are probed last: a call that had begun before would not be seen.
        self.until(lambda trace: self._reported_ns and not self._probes.is_starting)

    def _poll(self) -> Trace:
        trace = self._probes.poll()
        self._reported_ns = max((reading.t_ns for reading in trace.readings), default=self._reported_ns)
        self.recorder.append("ebpf", trace)
        for number, clock in enumerate(self._clocks):
            self.recorder.append(f"proc {number}", clock.poll())
        return trace

    def until(self, condition: Callable[[Trace], object]) -> None:
        """Record until a poll of the probes meets a condition."""
        deadline = time.monotonic() + _DEADLINE_S
        while not condition(self._poll()):
            assert time.monotonic() < deadline, self.recorder.freeze().missing
            select.select([], [], [], _STEP_S)

    def record(self, seconds: float) -> Seen:
        """Let the programs work so long, after a start that is long enough to be out of the window."""
        for program in self._programs.values():
            program.start()
        start_ns = time.monotonic_ns()
        self.until(lambda _: time.monotonic_ns() > start_ns + _RUN_UP_NS)
        before = {name: program.ask() for name, program in self._programs.items()}
        begin_ns = time.monotonic_ns()
        self.until(lambda _: time.monotonic_ns() > begin_ns + seconds * NS_PER_S)
        after = {name: program.ask() for name, program in self._programs.items()}
        end_ns = time.monotonic_ns()
        self.until(lambda _: self._reported_ns > end_ns)
        pids = {name: program.pid for name, program in self._programs.items()}
        return Seen(self.recorder.freeze(), before, after, pids)


@contextmanager
def watching(programs: Mapping[str, Workload]) -> Iterator[Watch]:
    """Probes without a budget and /proc, on all of these programs.

    Those who look come first, whoever else uses the machine: what is read late is of another time than the accounts.
    """
    with ExitStack() as collectors:
        watch = Watch(programs, collectors)
        put_first(children.running(), priority=3)
        with first_myself(priority=3):
            yield watch
