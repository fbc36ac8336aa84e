"""Communication between GPUs on a timeline: what no computation covers, and which GPU lets the others wait."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.kernels.collective_clock import clock_groups
from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.analysis.timeline.collectives import group_of_kernels
from llmtop.frozen import frozen
from llmtop.model import SpanKind
from llmtop.units import count, duration, percent

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace, TrackId

_Stretch = tuple[int, int]


@frozen
class Communication:
    """The communication of one GPU, in ns.

    Attributes:
        kernels: How many; `names` are theirs, the longest in total first.
        total_ns: With at least one of them running.
        exposed_ns: The part of it in which the GPU computes nothing: T_comm - T_overlap.
        computing_ns: With at least one other kernel running.
        matched: Kernels that run on other GPUs of the capture at the same time, as parts of one operation.
        waiting_ns: Of the matched ones, from their start to that of the last GPU's: nothing can be sent before.
        exposed_waiting_ns: The part of it in which the GPU computes nothing.
        last: In how many of the matched ones this GPU is the one that comes last.
        waits_for: Those for which it waits longest, by GPU, the longest first.
    """

    gpu: TrackId
    kernels: int
    names: tuple[str, ...]
    total_ns: int
    exposed_ns: int
    computing_ns: int
    matched: int
    waiting_ns: int
    exposed_waiting_ns: int
    last: int
    waits_for: tuple[tuple[TrackId, int], ...]


@lru_cache(maxsize=2)
def communication(trace: Trace) -> tuple[Communication, ...]:
    """The communication of each GPU that has any, in the order of the GPUs; none without a timeline."""
    spans = trace.spans.get(SpanKind.KERNEL)
    if spans is None:
        return ()
    is_sent = [kernel_kind(name).family is KernelFamily.COMMUNICATION for name in spans.names]
    if not any(is_sent):
        return ()
    gpus = [ids.gpu_of(track) for track in spans.tracks]
    sent: dict[TrackId, list[int]] = defaultdict(list)
    computed: dict[TrackId, list[int]] = defaultdict(list)
    for i, (name, track) in enumerate(zip(spans.name_id, spans.track_id, strict=True)):
        (sent if is_sent[name] else computed)[gpus[track]].append(i)
    groups = group_of_kernels(trace)
    alike = [{gpu: rows for gpu, rows in sent.items() if gpu in group} for group in clock_groups(trace, sent)]
    met = [one for group in alike for one in _met(spans, group, groups)]
    return tuple(_of_gpu(spans, gpu, sent[gpu], computed[gpu], met) for gpu in sorted(sent, key=lambda g: (len(g), g)))


def described(gpu: Communication) -> str:
    """How much of it there is, and how much of that costs time: "17.2 ms in 33 kernels, 100 % exposed ..."."""
    exposed = percent(100 * gpu.exposed_ns / gpu.total_ns) if gpu.total_ns else "none"
    waiting = f", {duration(gpu.waiting_ns)} before the last GPU has come" if gpu.matched else ""
    return f"{duration(gpu.total_ns)} in {count(gpu.kernels)} kernels, {exposed} exposed{waiting}"


@frozen
class _CollectiveKernel:
    """One kernel of an operation in which several GPUs meet."""

    gpu: TrackId
    since_ns: int
    begun_ns: int
    last: TrackId

    @property
    def waits_ns(self) -> int:
        """From its own start to that of the last GPU's."""
        return self.begun_ns - self.since_ns


def _of_gpu(
    spans: SpanTable, gpu: TrackId, sent: Sequence[int], computed: Sequence[int], met: Sequence[_CollectiveKernel]
) -> Communication:
    lengths: Counter[str] = Counter()
    for i in sent:
        lengths[spans.names[spans.name_id[i]]] += spans.end_ns[i] - spans.start_ns[i]
    stretches = list(_union(spans, sent))
    total = sum(end - start for start, end in stretches)
    computing = list(_union(spans, computed))
    own = [one for one in met if one.gpu == gpu]
    waits: Counter[TrackId] = Counter()
    for one in own:
        waits[one.last] += one.waits_ns
    return Communication(
        gpu,
        len(sent),
        tuple(name for name, _ in lengths.most_common()),
        total,
        total - _covered(stretches, computing),
        sum(end - start for start, end in computing),
        len(own),
        waits.total(),
        waits.total() - _covered(((one.since_ns, one.begun_ns) for one in own), computing),
        sum(one.last == gpu for one in own),
        tuple((other, ns) for other, ns in waits.most_common() if ns),
    )


def _union(spans: SpanTable, rows: Sequence[int]) -> Iterator[_Stretch]:
    """The time that these spans cover; they are in the order of their start."""
    if not rows:
        return
    start = end = spans.start_ns[rows[0]]
    for i in rows:
        if spans.start_ns[i] > end:
            yield start, end
            start = end = spans.start_ns[i]
        end = max(end, spans.end_ns[i])
    yield start, end


def _covered(stretches: Iterable[_Stretch], others: Sequence[_Stretch]) -> int:
    """How much of the stretches the others cover; both are disjoint and in order."""
    ends = [end for _, end in others]
    covered = 0
    for start, end in stretches:
        i = bisect_right(ends, start)
        while i < len(others) and others[i][0] < end:
            covered += min(end, others[i][1]) - max(start, others[i][0])
            i += 1
    return covered


def _met(spans: SpanTable, sent: Mapping[TrackId, Sequence[int]], groups: Mapping[int, str]) -> list[_CollectiveKernel]:
    """Kernels of one name and group of ranks on several GPUs at once: none can end before the last has begun."""
    gpu_by_row = {i: gpu for gpu, rows in sent.items() for i in rows}
    rows_by_name: dict[tuple[int, str], list[int]] = defaultdict(list)
    for i in sorted(gpu_by_row):
        rows_by_name[spans.name_id[i], groups.get(i, "")].append(i)
    return [one for rows in rows_by_name.values() for group in _groups(spans, rows, gpu_by_row) for one in group]


def _groups(
    spans: SpanTable, rows: Sequence[int], gpu_by_row: Mapping[int, TrackId]
) -> Iterator[list[_CollectiveKernel]]:
    """The kernels of each operation; a kernel that no other GPU joins makes none."""
    together: dict[TrackId, int] = {}
    first_end = 0
    for i in rows:
        gpu = gpu_by_row[i]
        if gpu in together or spans.start_ns[i] >= first_end:
            if len(together) > 1:
                yield _waits(spans, together)
            together, first_end = {}, spans.end_ns[i]
        together[gpu] = i
        first_end = min(first_end, spans.end_ns[i])
    if len(together) > 1:
        yield _waits(spans, together)


def _waits(spans: SpanTable, rows: Mapping[TrackId, int]) -> list[_CollectiveKernel]:
    last = max(rows, key=lambda gpu: spans.start_ns[rows[gpu]])
    begun = spans.start_ns[rows[last]]
    return [_CollectiveKernel(gpu, spans.start_ns[i], begun, last) for gpu, i in rows.items()]
