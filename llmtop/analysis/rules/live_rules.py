"""The rules for a machine under observation. A new one is one file and one line here, in `OTHERS`.

A verdict on what a server waits for also takes its rank: which others explain it, or are explained by it. Then it is
imported, so that the type checker sees what is said of it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.rules import (
    api_bound,
    cgroup_throttled,
    clients_leave,
    clocks_capped,
    compute_bound,
    core_dump,
    cpu_bound,
    endpoint_dead,
    endpoint_failing,
    endpoint_slow,
    engine_hung,
    engine_starved,
    files_exhausted,
    gil_bound,
    gpu_bound,
    gpu_shared,
    idle_polling,
    kv_bound,
    memory_bound_decode,
    model_on_cpu,
    objective_missed,
    paging,
    process_gone,
    process_hung,
    process_stopped,
    queue_growth,
    queue_standing,
    requests_failed,
    requests_held,
    requests_outside,
    restarted,
    run_queue_starvation,
    step_tail,
    straggler,
    time_spent,
    xid,
)
from llmtop.analysis.rules.base import grave_rules, named
from llmtop.model import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from llmtop.analysis.rules.base import Rule
    from llmtop.model import Finding, Trace

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

_CAUSE_IDS = frozenset(rule.id for rule in CAUSES)
_OWN_WORK: tuple[Rule, ...] = (api_bound, cpu_bound)
_SAVED = 0.5
"""Of the time at work no more than half counts as a cause: nobody gets rid of all of it, but of a wait."""
_MORE = 1.2
"""The largest share of the time leads; of shares that differ by less than this, the one that is nearer to the root."""
_LARGE = 0.2
"""Share of the time from which a second cause is said beside the first."""
_LITTLE = 0.1
"""Share of the time of a cause, below which it is said too where the rest of a program's time goes."""
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

FAULTS: tuple[Rule, ...] = (
    *LIVENESS,
    *CAUSES,
    kv_bound,
    requests_outside,
    step_tail,
    straggler,
    gpu_shared,
    clocks_capped,
)
"""What may stand beside each other; none of it beside a verdict that all is well."""

HEALTHY: tuple[Rule, ...] = (idle_polling, gpu_bound, model_on_cpu)

_EXPLAINED: dict[str, tuple[Rule, ...]] = {
    cpu_bound.id: (kv_bound,),  # requests that were thrown out are computed again
    queue_growth.id: (kv_bound,),
    queue_standing.id: (kv_bound, queue_growth, requests_held),
    requests_outside.id: (api_bound, gil_bound),
    step_tail.id: (kv_bound,),  # requests that were thrown out are computed again
    endpoint_slow.id: (api_bound, gil_bound),  # the page waits for the same threads as the requests
    memory_bound_decode.id: CAUSES,  # a GPU that waits for the CPU side gains nothing by being faster
    compute_bound.id: CAUSES,
}
"""By rule, those that say why it is so where they fire."""

OTHERS = named(
    "speculation_poor",
    "context_filled",
    "prefix_misses",
    "allocation_churn",
    "thread_migrations",
    "cache_misses",
)
"""Those that explain no other rule and are explained by none."""

RULES: tuple[Rule, ...] = (
    # whether it lives
    *LIVENESS,
    core_dump,
    xid,
    restarted,
    files_exhausted,
    requests_failed,
    clients_leave,
    # what the server waits for
    *CAUSES,
    kv_bound,
    queue_growth,
    queue_standing,
    requests_held,
    requests_outside,
    step_tail,
    objective_missed,
    *OTHERS,
    straggler,
    gpu_shared,
    clocks_capped,
    *HEALTHY,
    memory_bound_decode,
    compute_bound,
    time_spent,
)
"""Of findings that matter alike, the one whose rule stands first here is shown first."""

_OF_ITS_NUMBERS: tuple[Rule, ...] = (
    requests_failed,
    clients_leave,
    kv_bound,
    queue_growth,
    queue_standing,
    requests_outside,
)


def silenced_by(rule: Rule) -> tuple[Rule, ...]:
    """The rules whose findings, where they are more than information, explain or contradict what this one says."""
    if rule in LIFELESS or rule in (core_dump, xid):  # a GPU's fault is why a server died
        return ()
    if rule in LIVENESS:
        return (*LIFELESS, *_EXPLAINED.get(rule.id, ()))
    if rule in HEALTHY or rule is time_spent:
        return FAULTS
    mute = MUTE if rule in _OF_ITS_NUMBERS else ()
    return (*LIFELESS, *mute, *_EXPLAINED.get(rule.id, ()))


def asked(trace: Trace) -> tuple[Rule, ...]:
    """In the first second those on what is so at once: a share of a quarter of a second is no verdict."""
    return RULES if trace.end_ns - trace.start_ns >= NS_PER_S else LIVENESS


def heard(rules: Sequence[Rule], found: Mapping[str, Sequence[Finding]]) -> dict[Rule, Sequence[Finding]]:
    """The largest causes, and of the others those that nothing explains: see `base.RuleSet`."""
    grave = grave_rules(found)
    causes = _led({rule: found[rule.id] for rule in CAUSES if rule.id in grave and not _is_told_by(rule, grave)})
    explained = {step_tail} if _holds_up_each_step(causes, found) else set()
    others = [rule for rule in rules if rule not in explained and (rule not in CAUSES or rule.id not in grave)]
    first = [rule for rule in others if rule in (*LIVENESS, step_tail)]
    ordered = [*first, *causes, *(rule for rule in others if rule not in first)]
    notable = {id for id in grave if id not in _CAUSE_IDS or _share(found[id]) >= _LITTLE}
    spoken = [
        rule
        for rule in ordered
        if (notable if rule is time_spent else grave).isdisjoint(other.id for other in silenced_by(rule))
    ]
    if causes and causes[0] in spoken and _share(found[causes[0].id]) >= _MOST:
        spoken = [rule for rule in spoken if rule not in SYMPTOMS]
        found = {**found, **_explained(causes[0], found)}
    elif causes and causes[0] in spoken and step_tail in explained:
        found = {**found, objective_missed.id: _late_by(causes[0], found, lambda one: f"; then {one.action}")}
    if step_tail.id in grave and step_tail in spoken:
        found = {**found, objective_missed.id: _with_tail(found)}
    if any(rule.id in grave for rule in LIFELESS):  # of what does not live nothing else is asked
        spoken = [rule for rule in spoken if found[rule.id]]
    return {rule: found[rule.id] for rule in spoken}


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


def _holds_up_each_step(causes: Sequence[Rule], found: Mapping[str, Sequence[Finding]]) -> bool:
    """Whether the engine waits so much that single steps are late by that too. Its own work is that of all steps."""
    return bool(causes) and causes[0] not in _OWN_WORK and _share(found[causes[0].id]) >= _LARGE


def _explained(cause: Rule, found: Mapping[str, Sequence[Finding]]) -> dict[str, Sequence[Finding]]:
    """The cause with the queue as its evidence, and missed objectives with it as what to do about them first."""
    queue = tuple(f"{one.message} ({one.rule})" for rule in SYMPTOMS for one in found.get(rule.id, ()))
    return {
        cause.id: [replace(one, evidence=(*one.evidence, *queue)) for one in found[cause.id]],
        objective_missed.id: _late_by(cause, found, lambda _: ""),
    }


def _late_by(cause: Rule, found: Mapping[str, Sequence[Finding]], rest: Callable[[Finding], str]) -> Sequence[Finding]:
    """Missed objectives with the cause as what to do about first, and the rest of what helps."""
    first = f"{_called(found[cause.id])} comes first: late steps make first tokens, and the time between tokens, late"
    return [replace(one, action=f"{first}{rest(one)}") for one in found.get(objective_missed.id, ())]


def _called(findings: Sequence[Finding]) -> str:
    """What people know the first of several by: how its message begins, for no screen shows a rule's name."""
    return f'"{_DETAILS.split(findings[0].message, maxsplit=1)[0]}"'


_DETAILS = re.compile(r"[:,;] | \(")
"""Where a message goes into details."""


def _with_tail(found: Mapping[str, Sequence[Finding]]) -> Sequence[Finding]:
    """Missed objectives, of the time between tokens with its slow steps as what to do about first."""
    first = f"{_called(found[step_tail.id])} comes first: it says what makes single tokens late"
    return [
        replace(one, action=first) if objective_missed.is_of_gaps(one) else one
        for one in found.get(objective_missed.id, ())
    ]


def _is_told_by(rule: Rule, grave: set[str]) -> bool:
    """A loop that sleeps while a thread beside it never rests waits for that one; or it waits for its own memory."""
    return rule is engine_starved and not grave.isdisjoint({cpu_bound.id, paging.id})


def _share(findings: Sequence[Finding]) -> float:
    return max((one.share for one in findings if one.share is not None), default=0.0)
