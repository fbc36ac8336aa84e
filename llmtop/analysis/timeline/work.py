"""What kept each GPU of a timeline busy, and the gaps between."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, chain, compress, count, islice
from operator import gt, sub
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.columns import in_order, reaches
from llmtop.frozen import frozen
from llmtop.model import GPU_WORK, TrackId, TrackKind

if TYPE_CHECKING:
    from llmtop.model import SpanTable, Trace

"""Kinds of spans that keep a GPU busy. A graph traced as a whole is one of them: its inside is not idle."""


@frozen
class GpuWork:
    """The work of one GPU in columns, sorted by start, in ns; `joins` ties each to the call that launched it.

    Attributes:
        reach: When all work up to and including this one had ended.
    """

    starts: array[int]
    ends: array[int]
    joins: array[int]
    reach: array[int]

    def __len__(self) -> int:
        return len(self.starts)

    def gaps(self) -> Iterable[int]:
        """The works before which the GPU was idle, since `reach` of the one before."""
        return compress(count(1), map(gt, islice(self.starts, 1, None), self.reach))


def busy_over_time(work: GpuWork, start: int, end: int, steps: int) -> tuple[float, ...]:
    """The share of each of `steps` equal stretches from `start` to `end` in which there was work, 0 to 1.

    Counted in whole nanoseconds: 0 is said only of a stretch without any work, 1 only of one without a gap. Of less
    than a nanosecond for each stretch there are as many as nanoseconds.
    """
    length = end - start
    if length <= 0:
        return ()
    steps = min(steps, length)
    edges = [start + length * i // steps for i in range(steps + 1)]
    rows = array("q", work.gaps())
    since = array("q", chain([start], (work.reach[i - 1] for i in rows), [work.reach[-1]]))
    until = array("q", chain([work.starts[0]], map(work.starts.__getitem__, rows), [end]))
    before = array("q", accumulate(map(sub, until, since), initial=0))
    ended = [bisect_right(until, edge) for edge in edges]
    idle = [
        before[i] + (max(0, edge - since[i]) if i < len(since) else 0) for i, edge in zip(ended, edges, strict=True)
    ]
    return tuple(1 - (idle[i + 1] - idle[i]) / (edges[i + 1] - edges[i]) for i in range(steps))


@lru_cache(maxsize=1)
def work_by_gpu(trace: Trace) -> dict[TrackId, GpuWork]:
    """The work of every GPU that had any, by the id of its track, in the order of these.

    Kept for the newest trace: the account, its pieces and the timeline's gaps go by the same columns.
    """
    parts: dict[TrackId, list[list[array[int]]]] = defaultdict(list)
    for kind in GPU_WORK:
        if (spans := trace.spans.get(kind)) is not None:
            for gpu, columns in _columns_by_gpu(spans):
                parts[gpu].append(columns)
    return {gpu: _joined(parts[gpu]) for gpu in sorted(parts, key=lambda gpu: (len(gpu), gpu))}


def gpus_at_work(trace: Trace) -> frozenset[TrackId]:
    """The GPUs of a timeline that had any work; without looking at each of it."""
    return frozenset(
        ids.gpu_of(track) for kind in GPU_WORK if kind in trace.spans for track in trace.spans[kind].tracks
    )


def gpu_by_join(trace: Trace) -> dict[int, str]:
    """The GPU of each work by its join key, of those processes alone that give work to several GPUs."""
    spans = [trace.spans[kind] for kind in GPU_WORK if kind in trace.spans]
    gpus: dict[str, set[TrackId]] = defaultdict(set)
    for track in {track for table in spans for track in table.tracks}:
        gpus[_process(track)].add(ids.gpu_of(track))
    found: dict[int, str] = {}
    for table in spans:
        shared = {i: ids.gpu_of(track) for i, track in enumerate(table.tracks) if len(gpus[_process(track)]) > 1}
        if shared:
            rows = zip(table.correlation, table.track_id, strict=True)
            found.update((join, shared[track]) for join, track in rows if track in shared)
    return found


def _process(track: TrackId) -> str:
    return ids.process_of(track) if ids.kind(track) is TrackKind.STREAM else ""


def gpu_title(track: TrackId) -> str:
    """What to call a GPU.

    >>> gpu_title("gpu:0"), gpu_title("gpu:rank 3"), gpu_title("gpu:rank 3.1")
    ('GPU 0', 'rank 3', 'rank 3 GPU 1')
    """
    label = ids.gpu_label(track)
    rank, _, number = label.partition(".")
    if not rank or rank.partition("/")[0].isdecimal():
        return f"GPU {label}"
    return f"{rank} GPU {number}" if number else rank


def gpu_titles(tracks: Iterable[TrackId]) -> str:
    """What to call several GPUs.

    >>> gpu_titles(["gpu:0"]), gpu_titles(["gpu:3", "gpu:0", "gpu:1", "gpu:2", "gpu:7"])
    ('GPU 0', 'GPUs 0-3, 7')
    >>> gpu_titles(["gpu:rank 3", "gpu:rank 4", "gpu:rank 5"]), gpu_titles(["gpu:node-a.0", "gpu:node-b.0"])
    ('ranks 3-5', 'node-a GPU 0, node-b GPU 0')
    """
    ordered = sorted(tracks, key=lambda gpu: (len(gpu), gpu))
    titles = [gpu_title(gpu) for gpu in ordered]
    what = next((what for what in ("GPU ", "rank ") if all(_is_number(title, what) for title in titles)), "")
    if len(ordered) == 1 or not what:
        return ", ".join(titles)
    return f"{what.strip()}s {_runs([title.removeprefix(what) for title in titles])}"


def _is_number(title: str, what: str) -> bool:
    """Whether it is numbered alone; GPUs of a MIG slice are too."""
    return title.startswith(what) and (what == "GPU " or title.removeprefix(what).isdecimal())


def _runs(labels: Iterable[str]) -> str:
    """Numbers in short: "0-3, 7"."""
    runs: list[list[str]] = []
    for name in labels:
        if runs and name.isdecimal() and runs[-1][-1].isdecimal() and int(name) == int(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(", ".join(run) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs)


def _columns_by_gpu(spans: SpanTable) -> Iterable[tuple[TrackId, list[array[int]]]]:
    columns = (spans.start_ns, spans.end_ns, spans.correlation)
    gpus = [ids.gpu_of(track) for track in spans.tracks]
    if len(set(gpus)) == 1:
        yield gpus[0], list(columns)
        return
    for gpu in dict.fromkeys(gpus):
        is_of_it = [gpu == other for other in gpus]
        chosen = list(map(is_of_it.__getitem__, spans.track_id))
        yield gpu, [array("q", compress(column, chosen)) for column in columns]


def _joined(parts: list[list[array[int]]]) -> GpuWork:
    columns = parts[0]
    if len(parts) > 1:
        together = [array("q", chain.from_iterable(part[i] for part in parts)) for i in range(3)]
        columns = in_order(together)
    starts, ends, joins = columns
    return GpuWork(starts, ends, joins, reaches(ends))
