"""All diagnosis rules. A new one is one file and one line here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis import profiling
from llmtop.analysis.rules import (
    allocation_stalls,
    api_bound,
    attention_variant,
    blocking_copies,
    cgroup_throttled,
    clocks_capped,
    code_loading,
    compute_bound,
    cpu_bound,
    endpoint_dead,
    endpoint_failing,
    endpoint_slow,
    engine_hung,
    engine_starved,
    exposed_communication,
    fusion_chances,
    gil_bound,
    gpu_bound,
    gpu_shared,
    graph_gaps,
    graph_launch_gaps,
    host_code,
    host_descheduled,
    host_waits,
    idle_polling,
    idle_unknown,
    kernel_compute_bound,
    kernel_low_occupancy,
    kernel_memory_latency,
    kernel_memory_roof,
    kernel_small_grid,
    kernel_turnaround,
    kernel_waits,
    kv_bound,
    launch_gaps,
    memory_bound_decode,
    no_work,
    objective_missed,
    paging,
    prefix_misses,
    process_gone,
    process_hung,
    process_stopped,
    profiler_cost,
    queue_growth,
    queue_standing,
    queued_work,
    requests_held,
    requests_outside,
    restarted,
    run_queue_starvation,
    short_kernels,
    skinny_matrices,
    speculation_poor,
    straggler,
    sync_stalls,
    tool_advice,
    type_conversions,
)
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.commands import is_root
from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.rules.kernel_causes import PARTICULAR
from llmtop.analysis.rules.needs import is_live, is_watched
from llmtop.model import NS_PER_S, Finding, Severity, TrackKind
from llmtop.remedies import for_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from llmtop.analysis.rules.base import Rule
    from llmtop.model import Trace

LIFELESS: tuple[Rule, ...] = (process_gone, process_stopped, process_hung, engine_hung)
"""The server, or what it cannot do without, does not work at all: why it is slow is no question then."""

MUTE: tuple[Rule, ...] = (endpoint_dead, endpoint_failing)
"""The server's own numbers are those of before."""

LIVENESS: tuple[Rule, ...] = (*LIFELESS, *MUTE, endpoint_slow)
"""Above all others."""

CAUSES: tuple[Rule, ...] = (
    cgroup_throttled,
    run_queue_starvation,
    gil_bound,
    api_bound,
    cpu_bound,
    paging,
    engine_starved,
)
"""Why the CPU side is late, the root first. A throttled thread queues for a CPU, one that queues seems CPU-bound, and
threads that fight for the GIL fill one core: the largest speaks, and a second one that is large too, see `_led`."""

_OWN_WORK: tuple[Rule, ...] = (api_bound, cpu_bound)
_SAVED = 0.5
"""Of the time at work no more than half counts as a cause: nobody gets rid of all of it, but of a wait."""
_MORE = 1.2
"""The largest share of the time leads; of shares that differ by less than this, the one that is nearer to the root."""
_LARGE = 0.2
"""Share of the time from which a second cause is said beside the first."""
_MOST = 0.5
"""Share of the time from which a cause explains that a queue stands; with less it may have another reason."""
_SAME_TIME: dict[str, tuple[Rule, ...]] = {
    gil_bound.id: (api_bound, cpu_bound, engine_starved),
    api_bound.id: (gil_bound, engine_starved),
    engine_starved.id: (gil_bound, api_bound),
    cpu_bound.id: (gil_bound,),
}
"""By leading cause, those that say the same time in other words: threads that fight for the GIL sleep in futex."""
SYMPTOMS: tuple[Rule, ...] = (queue_growth, queue_standing)
"""What late steps lead to: evidence of the cause where that is known."""

FAULTS: tuple[Rule, ...] = (*LIVENESS, *CAUSES, kv_bound, requests_outside, straggler, gpu_shared, clocks_capped)
"""What may stand beside each other; none of it beside a verdict that all is well."""

HEALTHY: tuple[Rule, ...] = (idle_polling, gpu_bound)

_EXPLAINED: dict[str, tuple[Rule, ...]] = {
    cpu_bound.id: (kv_bound,),  # requests that were thrown out are computed again
    queue_growth.id: (kv_bound,),
    queue_standing.id: (kv_bound, queue_growth, requests_held),
    requests_outside.id: (api_bound, gil_bound),
    endpoint_slow.id: (api_bound, gil_bound),  # the page waits for the same threads as the requests
    memory_bound_decode.id: CAUSES,  # a GPU that waits for the CPU side gains nothing by being faster
    compute_bound.id: CAUSES,
    short_kernels.id: (launch_gaps, graph_gaps, kernel_turnaround),  # these say what the shortness costs
}
"""By rule, those that say why it is so where they fire."""

RULES: tuple[Rule, ...] = (
    # live: whether it lives
    *LIVENESS,
    restarted,
    # live: what the server waits for
    *CAUSES,
    kv_bound,
    queue_growth,
    queue_standing,
    requests_held,
    requests_outside,
    objective_missed,
    speculation_poor,
    prefix_misses,
    straggler,
    gpu_shared,
    clocks_capped,
    *HEALTHY,
    memory_bound_decode,
    compute_bound,
    # reports: what a timeline or its kernels wait for
    host_code,
    host_waits,
    host_descheduled,
    sync_stalls,
    blocking_copies,
    allocation_stalls,
    launch_gaps,
    graph_launch_gaps,
    graph_gaps,
    kernel_turnaround,
    exposed_communication,
    queued_work,
    code_loading,
    no_work,
    idle_unknown,
    profiler_cost,
    skinny_matrices,
    fusion_chances,
    type_conversions,
    attention_variant,
    *PARTICULAR,
    kernel_low_occupancy,
    kernel_memory_latency,
    kernel_waits,
    kernel_small_grid,
    kernel_memory_roof,
    kernel_compute_bound,
    short_kernels,
    tool_advice,
)
"""Of findings that matter alike, the one whose rule stands first here is shown first."""

_OF_ITS_NUMBERS: tuple[Rule, ...] = (kv_bound, queue_growth, queue_standing, requests_outside)
_SUBJECTS = (TrackKind.SERVER, TrackKind.THREAD, TrackKind.GPU)
_GRAVEST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def silenced_by(rule: Rule) -> tuple[Rule, ...]:
    """The rules whose findings, where they are more than information, explain or contradict what this one says."""
    if rule in LIFELESS:
        return ()
    if rule in LIVENESS:
        return (*LIFELESS, *_EXPLAINED.get(rule.id, ()))
    if rule in HEALTHY:
        return FAULTS
    mute = MUTE if rule in _OF_ITS_NUMBERS else ()
    return (*LIFELESS, *mute, *_EXPLAINED.get(rule.id, ()))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What all rules say of a trace.

    Attributes:
        findings: The gravest first; of those of a report, the one with the most time at stake.
        unjudged: Rules that apply here and lack data; one a rule.
        seen_s: For how long a live trace has been looked at, up to `window_s`; None for a report.
        is_about_something: Whether there is a server or a GPU to judge.
    """

    findings: tuple[Finding, ...]
    unjudged: tuple[Unjudged, ...] = ()
    seen_s: float | None = None
    is_about_something: bool = True
    window_s: float = WINDOW_NS / NS_PER_S

    @property
    def is_clear(self) -> bool:
        """Whether every rule could judge, over the whole window, and none found anything: silence says something."""
        return not self.findings and not self.silence_reason

    @property
    def silence_reason(self) -> str:
        """Why it means nothing that there is no finding; empty where it means that all is well."""
        if not self.is_about_something:
            return "no verdict: there is no server and no GPU to judge"
        if self.seen_s is not None and self.seen_s < self.window_s:
            return f"looking ({self.seen_s:.0f} s of {self.window_s:.0f} s seen)"
        if self.unjudged:
            n = len(self.unjudged)
            return f"no verdict: {n} rule{'s' * (n != 1)} lack{'s' * (n == 1)} data"
        return ""

    @property
    def verdict(self) -> str:
        """One line: the gravest finding, or what the lack of one means."""
        if self.findings:
            return self.findings[0].message
        return self.silence_reason or "no findings: nothing stands out"


def diagnose(trace: Trace, rules: Sequence[Rule] = RULES) -> Diagnosis:
    """What all rules find, gravest first, and which could not judge. A rule that fails costs only itself.

    Kept for the newest traces: header, panes and screens ask for the same frame.
    """
    return _diagnose(trace, tuple(rules))


@lru_cache(maxsize=4)
def _diagnose(trace: Trace, rules: tuple[Rule, ...]) -> Diagnosis:
    said = {rule.id: tuple(_checked(rule, trace)) for rule in rules}
    found = {rule: [one for one in several if isinstance(one, Finding)] for rule, several in said.items()}
    grave = {rule for rule, several in found.items() if any(one.severity is not Severity.INFO for one in several)}
    causes = _led({rule: found[rule.id] for rule in CAUSES if rule.id in grave and not _is_told_by(rule, grave)})
    others = [rule for rule in rules if rule not in CAUSES or rule.id not in grave]
    heard = [*(rule for rule in others if rule in LIVENESS), *causes, *(one for one in others if one not in LIVENESS)]
    spoken = [rule for rule in heard if grave.isdisjoint(other.id for other in silenced_by(rule))]
    if causes and causes[0] in spoken and _share(found[causes[0].id]) >= _MOST:
        spoken = [rule for rule in spoken if rule not in SYMPTOMS]
        found |= _explained(causes[0], found)
    findings = [finding for rule in spoken for finding in found[rule.id]]
    if grave:
        findings = [_unpraised(finding) for finding in findings]
    findings = [replace(one, next_command=profiling.filled(trace, one.next_command)) for one in findings]
    if is_root(trace):
        findings = [replace(finding, next_command=for_root(finding.next_command)) for finding in findings]
    # What is explained by a finding needs no judging.
    lacking = {one.rule: one for rule in spoken for one in said[rule.id] if isinstance(one, Unjudged)}
    if any(rule.id in grave for rule in LIFELESS):
        lacking = {}  # of what does not live nothing else is asked
    return Diagnosis(
        tuple(sorted(findings, key=_rank)),
        tuple(one for rule, one in lacking.items() if not found[rule]),
        min(trace.end_ns - trace.start_ns, WINDOW_NS) / NS_PER_S if is_live(trace) else None,
        not is_live(trace) or any(trace.tracks_of(kind) for kind in _SUBJECTS) or is_watched(trace),
    )


def _rank(finding: Finding) -> tuple[int, float]:
    return _GRAVEST_FIRST.index(finding.severity), -(finding.at_stake_ns or 0.0)


def _led(causes: Mapping[Rule, Sequence[Finding]]) -> tuple[Rule, ...]:
    """Of the causes that were found the largest, then a second one if it is large too and not the same time."""
    leading, most = None, 0.0
    for rule, findings in causes.items():
        share = (_SAVED if rule in _OWN_WORK else 1.0) * _share(findings)
        if leading is None or share > _MORE * most:
            leading, most = rule, share
    if leading is None:
        return ()
    others = [rule for rule in causes if rule is not leading and rule not in _SAME_TIME.get(leading.id, ())]
    second = max(others, key=lambda rule: _share(causes[rule]), default=leading)
    return (leading, second) if second is not leading and _share(causes[second]) >= _LARGE else (leading,)


def _explained(cause: Rule, found: Mapping[str, list[Finding]]) -> dict[str, list[Finding]]:
    """The cause with the queue as its evidence, and missed objectives with it as what to do about them first."""
    queue = tuple(f"{one.message} ({one.rule})" for rule in SYMPTOMS for one in found.get(rule.id, ()))
    first = f"{cause.id} comes first: late steps make first tokens, and the time between tokens, late"
    return {
        cause.id: [replace(one, evidence=(*one.evidence, *queue)) for one in found[cause.id]],
        objective_missed.id: [replace(one, action=first) for one in found.get(objective_missed.id, ())],
    }


def _is_told_by(rule: Rule, grave: set[str]) -> bool:
    """A loop that sleeps while a thread beside it never rests waits for that one; or it waits for its own memory."""
    return rule is engine_starved and not grave.isdisjoint({cpu_bound.id, paging.id})


def _share(findings: Sequence[Finding]) -> float:
    return max((one.share for one in findings if one.share is not None), default=0.0)


def _unpraised(finding: Finding) -> Finding:
    """Nothing is called healthy beside a fault: a missed objective, a queue that grows."""
    return replace(finding, message=finding.message.replace(", healthy", "", 1))


def _checked(rule: Rule, trace: Trace) -> Iterator[Finding | Unjudged]:
    try:
        yield from rule.check(trace)
    except Exception as error:  # the border: one bad rule never ends the program
        message = f"the rule {rule.id} failed: {type(error).__name__}: {error}"
        yield Finding(rule.id, Severity.INFO, "llmtop", message, (), "please report this")
