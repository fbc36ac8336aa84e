"""How much of a capture's time a finding is about, which ranks it and makes it a warning or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.commands.profiling import RANGE_FACT
from llmtop.analysis.kernels.table import kernels_of
from llmtop.columns import first_rows
from llmtop.model import Finding, Severity
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import Stretch, Trace

NOTABLE_SHARE = 0.05
"""Of the capture's time. Ours: what could be won below it drowns in the scatter from run to run."""


def capture_ns(trace: Trace) -> float:
    """What the time at stake is a share of: the length of a timeline; of a report without one, its kernels' time."""
    length = trace.end_ns - trace.start_ns
    return float(length) if trace.spans and length > 0 else kernels_of(trace).total_ns


def on_each_gpu(trace: Trace, ns: float) -> float:
    """Time of kernels of all GPUs as time of one of them: they work side by side, and do the same."""
    return ns / gpus(trace)


def gpus(trace: Trace) -> int:
    """How many ran kernels; 1 where none did."""
    return max(1, 0 if trace.kernels is None else len(first_rows(trace.kernels.device)))


def mean(trace: Trace) -> str:
    """What follows a time that `on_each_gpu` made: ", the mean of 2 GPUs"; empty where there is one."""
    number = gpus(trace)
    return "" if number == 1 else f", the mean of {number} GPUs"


def share(trace: Trace, at_stake_ns: float) -> float:
    """Time at stake as a share of the capture's, 0 to 1.

    Spread over several GPUs it can exceed the capture's length; more than all of it cannot be won.
    """
    whole = capture_ns(trace)
    return min(1.0, at_stake_ns / whole) if whole > 0 else 0.0


def severity(trace: Trace, at_stake_ns: float) -> Severity:
    """A warning from 5 % of the capture's time on."""
    return Severity.WARNING if share(trace, at_stake_ns) >= NOTABLE_SHARE else Severity.INFO


def in_words(trace: Trace, at_stake_ns: float, basis: str) -> str:
    """The line of evidence that says what could be won: "at stake: up to 1.20 ms, 14 % of the capture: all of it".

    Args:
        trace: Any report.
        at_stake_ns: Time that acting on a finding can save at most.
        basis: What that was computed from, in words: "half of their time".
    """
    of_capture = percent(100 * share(trace, at_stake_ns))
    whole = "the range's kernel time" if RANGE_FACT in trace.origin.facts else "the capture"
    return f"at stake: up to {duration(at_stake_ns)}, {of_capture} of {whole}: {basis}"


def finding(
    trace: Trace,
    at_stake_ns: float,
    basis: str,
    *,
    rule: str,
    subject: str,
    message: str,
    evidence: Iterable[str],
    action: str,
    source: str,
    next_command: str = "",
    no_command: str = "",
    place: Stretch | None = None,
    times: tuple[Stretch, ...] = (),
) -> Finding:
    """A finding on time that acting on it can save: a warning by its share of the capture, and told in its evidence.

    `basis` says what the time was computed from, as of `in_words`; all else is as of `Finding`.
    """
    return Finding(
        rule=rule,
        severity=severity(trace, at_stake_ns),
        subject=subject,
        message=message,
        evidence=(*evidence, in_words(trace, at_stake_ns, basis)),
        action=action,
        next_command=next_command,
        no_command=no_command,
        source=source,
        at_stake_ns=at_stake_ns,
        place=place,
        times=times,
    )
