"""What a server's own counter of steps tells of them where no probe sees each one: means from one look to the next.

A look lasts from a change of the counter to the next one that is seen, so that a step longer than the time between two
readings is told by what it took. Time in which no request ran is in none.
"""

from __future__ import annotations

import math
from statistics import median, quantiles
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import server_track, source, why_absent, why_kind_missing
from llmtop.analysis.server.configuration import number
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Feature, TrackKind, Unknown
from llmtop.units import count, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from llmtop.model import Metric, Series, Trace, TrackId

WINDOW_NS = 60 * NS_PER_S
_FEWEST = 2
"""Looks from which something is said: one alone has no spread."""
_FEW_QUARTERS = 8
"""Looks from which the middle half of them is told too."""
_AT_THE_END = Unknown(
    "the server counts tokens when a request ends, not with each step",
    "none: vLLM and SGLang count them with each step",
)


@frozen
class StepLook:
    """From one change of the counter that was seen to the next, while requests ran.

    Attributes:
        steps: How many the server made.
        prompt_tokens: Of all these steps, where the server counts them as it goes; None where not.
        output_tokens: Likewise.
    """

    start_ns: int
    end_ns: int
    steps: float
    prompt_tokens: float | None = None
    output_tokens: float | None = None

    @property
    def mean_ns(self) -> float:
        """Of a step."""
        return (self.end_ns - self.start_ns) / self.steps


@frozen
class LookGroup:
    """Several looks together."""

    looks: int
    steps: float
    mean_ns: float


@frozen
class CountedSteps:
    """Steps as the server counts them.

    Attributes:
        looks: Oldest first.
        source: Whose counter it is.
        mean_ns: Of a step, over all looks.
        middle: Between which means by look the middle half of them lies; None of few looks.
        output_tokens: A step, or why that is not known; those of prompts likewise.
        with_prompts: The looks in which prompts were computed, and those without; None where that is not known.
        notes: What to know about the numbers, a sentence each.
    """

    looks: tuple[StepLook, ...]
    source: str
    mean_ns: float
    middle: tuple[float, float] | None
    output_tokens: float | Unknown
    prompt_tokens: float | Unknown
    with_prompts: LookGroup | None
    without_prompts: LookGroup | None
    notes: tuple[str, ...]
    end_ns: int

    @property
    def steps(self) -> float:
        """How many there were."""
        return math.fsum(one.steps for one in self.looks)

    @property
    def per_s(self) -> float:
        """While requests ran."""
        return NS_PER_S / self.mean_ns

    @property
    def slowest_ns(self) -> float:
        """The mean step of the look with the longest ones."""
        return max(one.mean_ns for one in self.looks)

    @property
    def fastest_ns(self) -> float:
        """Likewise the shortest."""
        return min(one.mean_ns for one in self.looks)

    @property
    def prompt_share(self) -> float | None:
        """Of all tokens, those of prompts; None where that is not known, and without tokens."""
        if isinstance(self.output_tokens, Unknown) or isinstance(self.prompt_tokens, Unknown):
            return None
        whole = self.output_tokens + self.prompt_tokens
        return self.prompt_tokens / whole if whole else None


def counted_steps(trace: Trace, window_ns: int = WINDOW_NS) -> CountedSteps | Unknown:
    """What the server's counter tells of the steps of the last `window_ns`; why it tells nothing."""
    server = server_track(trace)
    if server is None:
        return why_kind_missing(trace, TrackKind.SERVER)
    series = trace.get(server.id, v.SERVER_STEPS)
    if series is None:
        return why_absent(trace, server.id, v.SERVER_STEPS)
    looks = tuple(_looks(trace, server.id, series, trace.end_ns - window_ns))
    if len(looks) < _FEWEST:
        return Unknown(f"fewer than {_FEWEST} looks at the server's counter of steps while requests ran", "wait")
    with_prompts, without = _by_prompts(looks)
    means = sorted(one.mean_ns for one in looks)
    quarters = quantiles(means, n=4, method="inclusive") if len(means) >= _FEW_QUARTERS else None
    return CountedSteps(
        looks,
        source(trace, server.id, v.SERVER_STEPS),
        _mean_ns(looks),
        (quarters[0], quarters[2]) if quarters else None,
        _a_step(trace, server.id, v.SERVER_OUTPUT_TOKENS, looks),
        _a_step(trace, server.id, v.SERVER_PROMPT_TOKENS, looks),
        with_prompts,
        without,
        tuple(_notes(trace, looks)),
        trace.end_ns,
    )


def _looks(trace: Trace, server: TrackId, series: Series, since_ns: int) -> Iterator[StepLook]:
    running = trace.get(server, v.SERVER_RUNNING)
    start: tuple[int, float] | None = None
    for t, steps in zip(*series.stretch(since_ns, trace.end_ns), strict=True):
        if math.isnan(steps) or (running is not None and running.at(t) == 0):
            start = None  # nobody knows when in between it became idle
            continue
        if start is not None and steps > start[1]:
            yield StepLook(
                start[0],
                t,
                steps - start[1],
                _grown(trace, server, v.SERVER_PROMPT_TOKENS, start[0], t),
                _grown(trace, server, v.SERVER_OUTPUT_TOKENS, start[0], t),
            )
        if start is None or steps != start[1]:
            start = (t, steps)


def _grown(trace: Trace, server: TrackId, metric: Metric, start_ns: int, end_ns: int) -> float | None:
    series = trace.get(server, metric)
    before, after = (None, None) if series is None else (series.at(start_ns), series.at(end_ns))
    return None if before is None or after is None or after < before else after - before


def _mean_ns(looks: Sequence[StepLook]) -> float:
    return math.fsum(one.end_ns - one.start_ns for one in looks) / math.fsum(one.steps for one in looks)


def _a_step(trace: Trace, server: TrackId, metric: Metric, looks: Sequence[StepLook]) -> float | Unknown:
    """Tokens a step, over the looks of which they are known."""
    known = [(one.steps, tokens) for one in looks if (tokens := _tokens(one, metric)) is not None]
    if known:
        return math.fsum(tokens for _, tokens in known) / math.fsum(steps for steps, _ in known)
    return why_absent(trace, server, metric) if trace.get(server, v.ENDED[metric]) is None else _AT_THE_END


def _tokens(look: StepLook, metric: Metric) -> float | None:
    return look.output_tokens if metric is v.SERVER_OUTPUT_TOKENS else look.prompt_tokens


def _by_prompts(looks: Sequence[StepLook]) -> tuple[LookGroup | None, LookGroup | None]:
    """Those in which the server counted tokens of prompts, and the others; None of none."""
    known = [one for one in looks if one.prompt_tokens is not None]
    return _group(one for one in known if one.prompt_tokens), _group(one for one in known if not one.prompt_tokens)


def _group(looks: Iterable[StepLook]) -> LookGroup | None:
    several = tuple(looks)
    if not several:
        return None
    return LookGroup(len(several), math.fsum(one.steps for one in several), _mean_ns(several))


def _notes(trace: Trace, looks: Sequence[StepLook]) -> Iterator[str]:
    usual = median(one.steps for one in looks)
    yield f"a look holds about {count(usual)} steps, and one more or less lies across its ends: {percent(100 / usual)}"
    engines = number(trace, Feature.DATA_PARALLEL)
    if engines is not None and engines > 1:
        yield f"{count(engines)} engines count together: a step of one of them takes {count(engines)} times as long"
