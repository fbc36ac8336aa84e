"""What a diagnosis rule is, and how it says that it could not judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from llmtop.frozen import frozen
from llmtop.model import Severity

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace, Unknown


@frozen
class Unjudged:
    """A rule that applies here and could not judge: what it lacks, why, and how to get it."""

    rule: str
    why: Unknown


class Rule(Protocol):
    """One diagnosis. Pure: trace in, findings out; where the data do not allow a verdict, it says so."""

    id: str
    """Kebab-case and stable: "memory-bound-decode"."""

    summary: str
    """One sentence: what it means when it fires."""

    source: str
    """Where the rule comes from (a seed's section, a paper, a vendor's guide)."""

    def check(self, trace: Trace) -> Iterable[Finding | Unjudged]:
        """Findings with evidence; `Unjudged` where data are lacking that could have made one.

        Nothing, where it could judge and found nothing, or does not apply here: a rule on ranks of a server with one
        GPU, a live rule on a report. What is known may rule a finding out whatever is not: a thread that sleeps all
        the time is not the limit, probes or no probes. Then nothing is lacking.
        """
        ...


def named(*modules: str) -> tuple[Rule, ...]:
    """Rules by the names of their files in this folder; a rule that other rules refer to is imported instead."""
    return tuple(cast("Rule", import_module(f"llmtop.analysis.rules.{name}")) for name in modules)


def unjudged(rule: str, *lacks: Unknown | None) -> Iterator[Unjudged]:
    """`Unjudged` for the first of what a rule lacks; nothing where all of it is None.

    >>> from llmtop.model import Unknown
    >>> list(unjudged("kv-bound", None))
    []
    >>> [one.why.reason for one in unjudged("kv-bound", None, Unknown("no KV usage"), Unknown("no queue"))]
    ['no KV usage']
    """
    yield from (Unjudged(rule, why) for why in [one for one in lacks if one is not None][:1])


class RuleSet(Protocol):
    """All rules for one kind of trace: `live_rules` and `report_rules`."""

    RULES: tuple[Rule, ...]

    def asked(self, trace: Trace) -> tuple[Rule, ...]:
        """Those of `RULES` that this trace is long enough for."""
        ...

    def heard(self, rules: Sequence[Rule], found: Mapping[str, Sequence[Finding]]) -> dict[Rule, Sequence[Finding]]:
        """What is said in the end, by rule and in order, of what each of `rules` has found by itself.

        A rule is left out where another explains or contradicts what it says; what it lacks is not asked for then.
        """
        ...


def grave_rules(found: Mapping[str, Sequence[Finding]]) -> set[str]:
    """Ids of the rules whose findings are more than information."""
    return {rule for rule, several in found.items() if any(one.severity is not Severity.INFO for one in several)}
