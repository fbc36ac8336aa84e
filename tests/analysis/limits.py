"""Where what is said changes as one number changes: the limits as they are met, and on which side of them they lie."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

from llmtop.model import Finding

Said = TypeVar("Said", bound=Hashable)
STEPS, FINE = 8, 7
"""So many distances of levels are tried from the least to the most, and so often one is halved whose ends differ."""
_NUMBER = re.compile(r"[\d.,]*\d(?: (?:[nµm]?s|[kMGT]?B)(?:/s)?\b)?")


def without_numbers(findings: Iterable[Finding]) -> tuple[tuple[object, ...], ...]:
    """What findings say, whatever the numbers in it are."""
    return tuple(
        (one.rule, one.severity, one.subject, *(_NUMBER.sub("#", text) for text in _texts(one))) for one in findings
    )


def _texts(finding: Finding) -> tuple[str, ...]:
    return (finding.message, *finding.evidence, finding.action, finding.next_command)


def in_full(finding: Finding) -> str:
    """All that a finding says."""
    at_stake_ns = "?" if finding.at_stake_ns is None else f"{finding.at_stake_ns:.6g}"
    said = (f"{finding.message} ({finding.severity.value}, {at_stake_ns} ns at stake)", *finding.evidence)
    return "\n".join((*said, finding.action, finding.next_command))


def limits(said: Callable[[float], Said], least: float, most: float) -> Iterator[tuple[str, Said]]:
    """("below 0.05" or "up to 0.05", what is said there), from the least level to the most."""
    known = {level: said(level) for level in (least + (most - least) * step / STEPS for step in range(STEPS + 1))}
    for low, high in pairwise(sorted(known)):
        if known[low] != known[high]:
            yield _between(said, known, low, high), known[low]
    yield f"up to {most:.4g}", known[max(known)]


def _between(said: Callable[[float], Said], known: dict[float, Said], low: float, high: float) -> str:
    before = known[low]
    for _ in range(FINE):
        middle = (low + high) / 2
        low, high = (middle, high) if said(middle) == before else (low, middle)
    round_one = next(level for digits in range(1, 18) if low <= (level := float(f"{high:.{digits}g}")) <= high)
    return f"{'up to' if said(round_one) == before else 'below'} {round_one:g}"
