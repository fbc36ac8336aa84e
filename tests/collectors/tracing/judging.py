"""What becomes of one process's kinds of call when they cost so much."""

from __future__ import annotations

from collections.abc import Mapping

from llmtop.collectors.tracing.probes.helper.sampling import Sampling, lost


def judge(sampling: Sampling, rates: Mapping[str, float], now_s: float) -> bool:
    """Hold it to its budget, as `LibraryProbes` does; whether a kind has lost its probes."""
    sampling.rates = rates
    kinds = lost({1: sampling.steady_rates}, sampling._account.budget_ns).get(1, ())
    sampling.give_up(kinds, now_s)
    return bool(kinds)
