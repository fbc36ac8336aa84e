"""One rank or one GPU of a server does not keep step with the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.commands import live as commands
from llmtop.analysis.gpus.stragglers import Departure, in_words, stragglers
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, gpu_names
from llmtop.analysis.rules.needs import lacks_gauges
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import process_activity
from llmtop.analysis.rules.thread_signals import ServerThread, drivers
from llmtop.analysis.series.labels import labels
from llmtop.analysis.series.rates import step_increase
from llmtop.analysis.series.readings import busy_metric, server_gpus
from llmtop.analysis.series.readings import source as read_by
from llmtop.analysis.server.ranks import gpus_of, peers, ranks_in_step
from llmtop.frozen import frozen
from llmtop.model import Finding, Series, Severity, Trace, TrackId
from llmtop.units import percent

id = "straggler"
summary = "One rank is late or one GPU slow: in tensor parallelism all others wait for it."
source = "Sinha et al., Not All GPUs Are Created Equal (SC'22, arXiv:2208.11035); median and MAD over the peers"

_LESS = 0.2
"""Share of the time that the late rank waits less than its peers do: 4 ms of a step of 20 ms."""
_ELSEWHERE = 0.1
"""Share of the time that it spends more than they on something else."""
_WAITS = re.compile(r"Synchronize|^nccl")


@frozen
class _Rank:
    """A process of a tensor-parallel group: the share of the time that it waits for the GPU and the others.

    Attributes:
        waits: By its calls; or, with `by_gpu`, that its GPU has work: a kernel that stands in a collective until the
            last rank comes is such a wait.
    """

    thread: ServerThread
    waits: float
    source: str
    by_gpu: bool = False


@frozen
class LateRank:
    """A rank that the others of its group wait for, over the last 15 s.

    Attributes:
        waits: The share of the time that it waits for the GPU and the others, or that its GPU has work; `peers_wait` is
            the median of its peers'.
        elsewhere: What its clocks say that it does instead.
    """

    thread: ServerThread
    waits: float
    peers_wait: float
    source: str
    elsewhere: str
    by_gpu: bool

    @property
    def told(self) -> str:
        """How it shows: "waits 25 % of the time in CUDA and NCCL, its peers 70 %"."""
        own, usual = percent(100 * self.waits), percent(100 * self.peers_wait)
        if self.by_gpu:
            waiting = percent(100 * (self.peers_wait - self.waits))
            return f"keeps its GPU busy {own} of the time, its peers theirs {usual}, up to {waiting} in wait for it"
        return f"waits {own} of the time in CUDA and NCCL, its peers {usual}"


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """A rank that waits least and does something else; and each GPU that departs from its peers."""
    gpus = server_gpus(trace)
    if len(gpus) > 1 and is_watched(trace):
        compared = (v.GPU_SM_CLOCK, busy_metric(trace, gpus[0].id))
        yield from unjudged(id, lacks_gauges(trace, [gpu.id for gpu in gpus], *compared))
    departures = stragglers(trace, peers(trace, gpus))
    told: set[TrackId] = set()
    for late in late_ranks(trace):
        own = [gpu for gpu in gpus_of(trace, late.thread.row.pid) if gpu in departures]
        told.update(own)
        yield _late(trace, late, [f"{gpu_names([gpu])}: {in_words(departures[gpu])}" for gpu in own])
    yield from (_departs(gpu, found) for gpu, found in departures.items() if gpu not in told)


def _late(trace: Trace, late: LateRank, gpus: Sequence[str]) -> Finding:
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=late.thread.name,
        message=f"{late.thread.name} is late: it {late.told}",
        evidence=(f"{late.thread.name} {late.told} ({late.source})", late.elsewhere, *gpus),
        action="all other ranks wait for this one: see what it does instead, and pin it to free cores near its GPU",
        next_command=commands.stacks(trace, late.thread.row.pid),
        source=source,
    )


def _departs(gpu: TrackId, departures: Sequence[Departure]) -> Finding:
    is_slow = any(one.metric is v.GPU_SM_CLOCK for one in departures)
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=gpu_names([gpu]),
        message=f"{gpu_names([gpu])} departs from its peers: {in_words(departures)}",
        evidence=tuple(one.text for one in departures),
        action=_COOL if is_slow else _BALANCE,
        next_command=f"nvidia-smi -i {ids.gpu_index(gpu)} -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER",
        source=source,
    )


def late_ranks(trace: Trace) -> Iterator[LateRank]:
    """Of each group of ranks the one that waits much less than its peers do, and is at something else meanwhile.

    By their calls; and by their GPUs, which wait within kernels too where another thread waits for these, or none is
    seen.
    """
    threads = drivers(trace)
    groups = ([one for one in threads if one.row.pid in pids] for pids in ranks_in_step(trace))
    several = [some for some in groups if len(some) > 1]
    calls = _waiting_calls(trace) if several else {}
    for some in several:
        by_calls = [_by_calls(trace, one, calls.get(ids.process(one.row.pid), ())) for one in some]
        found = _late_of(trace, by_calls) or _late_of(trace, [_by_gpu(trace, one) for one in some])
        yield from [found] if found else ()


def _late_of(trace: Trace, ranks: Sequence[_Rank | None]) -> LateRank | None:
    """The late one, where of all of them it is known how long they wait."""
    known = [rank for rank in ranks if rank is not None]
    if len(known) < len(ranks):
        return None
    late = min(known, key=lambda rank: rank.waits)
    peers = [rank for rank in known if rank is not late]
    usual = median(peer.waits for peer in peers)
    elsewhere = _elsewhere(trace, late, peers) if usual - late.waits >= _LESS else None
    return LateRank(late.thread, late.waits, usual, late.source, elsewhere, late.by_gpu) if elsewhere else None


def _waiting_calls(trace: Trace) -> Mapping[TrackId, Sequence[Series]]:
    """The time that each process spends in library calls that wait, by process."""
    return {
        process: [trace.series[process, v.labelled(v.LIBRARY_TIME, call).name] for call in calls if _WAITS.search(call)]
        for process, calls in labels(trace, v.LIBRARY_TIME).items()
    }


def _by_gpu(trace: Trace, thread: ServerThread) -> _Rank | None:
    """By the GPUs of its own."""
    busiest = process_activity(trace, thread.row.pid)
    if busiest is None:
        return None
    return _Rank(thread, busiest.value / 100, read_by(trace, busiest.gpu, busiest.by), by_gpu=True)


def _by_calls(trace: Trace, thread: ServerThread, calls: Sequence[Series]) -> _Rank | None:
    """By the thread's own waits; else by the time that all threads of its process spent in calls that wait."""
    sync = thread.shares.in_cuda_sync
    if sync is not None:
        return _Rank(thread, sync, read_by(trace, thread.track, v.THREAD_CUDA_SYNC) or "uprobes")
    grown = sum(step_increase(one, trace.end_ns - WINDOW_NS, trace.end_ns) for one in calls)
    return _Rank(thread, grown / WINDOW_NS, calls[0].source) if calls else None


def _elsewhere(trace: Trace, late: _Rank, peers: Sequence[_Rank]) -> str | None:
    """The second signal: what the late rank's clocks say that it does instead."""
    more = [
        (own - median(_spent(peer.thread)[what] for peer in peers), what, own)
        for what, own in _spent(late.thread).items()
    ]
    excess, what, own = max(more)
    if excess < _ELSEWHERE:
        return None
    usual = percent(100 * (own - excess))
    clock = read_by(trace, late.thread.track, v.THREAD_ON_CPU)
    return f"{late.thread.name}: {what} {percent(100 * own)} of the time, its peers {usual} ({clock})"


def _spent(thread: ServerThread) -> dict[str, float]:
    shares = thread.shares
    asleep = shares.blocked_total - thread.blocked_on((v.ThreadCause.CUDA_SYNC,))
    return {"at work on its CPU": shares.working, "in the run queue": shares.run_queue, "asleep elsewhere": asleep}


_COOL = "compare cooling, power limit and neighbours of this GPU with the others'; all ranks wait for its clock"
_BALANCE = "look at how work is shared out: a pipeline stage, experts, or requests of one data-parallel rank"
