"""What of a step the GPUs of a server spend on each other: what can be known of it live, without a timeline.

    communication = 2 layers x 5 us + bytes / bandwidth + waiting for a late rank

* tensor parallelism adds up partial sums twice in a layer, after attention and after the MLP (Performance Engineering,
  communication-computation overlap). Each of these all-reduces takes 5 us at least, and sends 2 (n - 1) / n of
  tokens x hidden size x bytes of a value over each rank's link: exposed, for the next layer needs the sum;
* bytes are what NVLink's counters (GPM) say that a step sends, where they count; else the model's;
* a rank that is late on its CPU lets the others' GPUs stand in a collective, which counts as work there and not as idle
  time. Its peers wait longer in CUDA and NCCL by that (probes).

All three are least times: how long a GPU takes for a collective no call on the CPU tells, since it only asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.gpus.links import nvlink_bytes_per_s, peer_bandwidth
from llmtop.analysis.gpus.scaling import ALL_REDUCE_BEGINS_S, ring_bytes
from llmtop.analysis.pages.budget_terms import BudgetPart, BudgetTerm
from llmtop.analysis.rules.straggler import late_ranks
from llmtop.analysis.series.labels import labels
from llmtop.analysis.series.rates import step_increase
from llmtop.analysis.server.configuration import number
from llmtop.analysis.views import Quality
from llmtop.frozen import frozen
from llmtop.model import Feature, Unknown
from llmtop.units import count, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.analysis.roofline.model_facts import ModelSize
    from llmtop.model import Trace, Track, TrackId

ALL_REDUCES = 2
"""Of each layer: after attention, and after the MLP (Performance Engineering, communication-computation overlap)."""
_NO_SHAPE = Unknown("the model's layers are not known without its config.json")


@frozen
class SharedStep:
    """A mean step of one model over several GPUs.

    Attributes:
        tokens: Prompt and output tokens that it computes.
    """

    trace: Trace
    gpus: Sequence[Track]
    size: ModelSize
    tokens: float
    steps_per_s: float
    window_ns: int

    @property
    def ranks(self) -> int:
        """GPUs that add up their sums: what tensor parallelism is set to, else all of them."""
        told = number(self.trace, Feature.TENSOR_PARALLEL)
        return len(self.gpus) if told is None else min(int(told), len(self.gpus))


def communication_term(step: SharedStep) -> BudgetTerm | Unknown | None:
    """The least that a step communicates; None where no GPU shares a layer with another."""
    if step.ranks < 2:
        return None
    parts, why = [], _NO_SHAPE
    if step.size.layers is not None:
        begun = ALL_REDUCES * step.size.layers
        parts.append((f"{count(begun)} all-reduces of 5 µs and more", begun * ALL_REDUCE_BEGINS_S))
    if isinstance(sent := _sent(step), Unknown):
        why = sent
    else:
        parts.append(sent)
    late = list(_late(step))
    if not (parts := [*parts, *late]):
        return why
    details = tuple(sorted(parts, key=lambda part: -part[1]))
    source = f"{'; '.join(words for words, _ in details)}; {step.size.source}"
    least_s, waiting_s = (sum(seconds for _, seconds in some) for some in (parts, late))
    return BudgetTerm(BudgetPart.COMMUNICATION, least_s, Quality.LOWER_BOUND, source, details, waiting_s=waiting_s)


def communication_notes(step: SharedStep) -> Iterator[str]:
    """What else is known of it: how often, and how long, ranks were in NCCL's calls."""
    own = [_in_nccl(step, process) for process in labels(step.trace, v.LIBRARY_COUNT)]
    calls, seconds = (amount / step.steps_per_s for amount in max(own, default=(0.0, 0.0)))
    if calls >= 1:
        yield (
            f"probes count {count(round(calls))} calls of NCCL a step in a rank, {quantity(seconds, 's')} of its CPU's "
            "time: how long the GPU takes for them no call tells"
        )


def _sent(step: SharedStep) -> tuple[str, float] | Unknown:
    """What a step sends over the busiest link at least, and how long that takes."""
    bandwidth = peer_bandwidth(step.trace, step.gpus)
    if isinstance(bandwidth, Unknown):
        return bandwidth
    speed, link = float(bandwidth.value), bandwidth.source
    counted = nvlink_bytes_per_s(step.trace, step.gpus, step.window_ns)
    # Counters that stand at 0 while tokens advance do not count.
    if not isinstance(counted, Unknown) and counted > 0:
        sent, who = counted / step.steps_per_s, "counted by NVLink"
    elif step.size.layers is None or step.size.width is None:
        return _NO_SHAPE
    else:
        payload = step.tokens * step.size.width * step.size.value_bytes
        sent, who = ALL_REDUCES * step.size.layers * ring_bytes(payload, step.ranks), "by the model's shape"
    return f"{quantity(sent, 'bytes')} {who} at {quantity(speed, 'bytes/s')} of {link}", sent / speed


def _late(step: SharedStep) -> Iterator[tuple[str, float]]:
    """What the other GPUs stand in collectives for the rank that they wait for longest; its own GPU idles."""
    for late in sorted(late_ranks(step.trace), key=lambda one: one.waits - one.peers_wait)[:1]:
        share = (late.peers_wait - late.waits) * (step.ranks - 1) / step.ranks
        yield f"waiting for {late.thread.name} ({late.source})", share / step.steps_per_s


def _in_nccl(step: SharedStep, process: TrackId) -> tuple[float, float]:
    """Calls a second of a process, and seconds a second in them, over the time in which probes looked."""
    trace, since = step.trace, step.trace.end_ns - step.window_ns
    named = [name for name in labels(trace, v.LIBRARY_COUNT)[process] if name.startswith("nccl")]
    watched = step_increase(trace.get(process, v.LIBRARY_OBSERVED), since, trace.end_ns)
    if not named or not watched:
        return 0.0, 0.0
    grown = [
        sum(step_increase(trace.get(process, v.labelled(metric, name)), since, trace.end_ns) for name in named)
        for metric in (v.LIBRARY_COUNT, v.LIBRARY_TIME)
    ]
    return grown[0] / watched * 1e9, grown[1] / watched
