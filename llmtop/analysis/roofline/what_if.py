"""Sums of what a change would do, as one does them on a napkin: bytes, requests that fit, tokens of a draft.

After Performance Engineering, whose worked numbers are their tests: the precision dividend (napkin math 1.2), the
compilation dividend (1.3) and the geometric model of acceptance (the 70B case study, round 3).
"""

from __future__ import annotations

EAGER_LAUNCH_S = (5e-6, 50e-6)
"""What goes with a kernel that becomes part of a graph: the launch alone takes 5 µs at least (CUDA graphs: typically 5
to 10); with what Python and PyTorch do for it 33 and 47 µs were measured of vLLM on two H100 machines."""
LAUNCHES_SAVED = 0.8
"""Of launch overhead, what graphs and compilation take away (napkin math 1.3: 80 percent)."""
ELEMENTWISE_SAVED = 0.7
"""Of the time in element-wise kernels, what fusing them takes away (napkin math 1.3: about 70 percent)."""
_LEAST_ACCEPTED = 1e-9
"""How near the acceptance is found by halving."""


def largest_batch(memory_bytes: float, weight_bytes: float, cache_bytes_per_request: float) -> int:
    """Requests whose KV cache fits beside the weights."""
    return max(0, int((memory_bytes - weight_bytes) / cache_bytes_per_request))


def saved_by_compiling_s(elementwise_s: float, launches_s: float) -> float:
    """What of so much time in element-wise kernels and in launches goes with fusion and graphs."""
    return ELEMENTWISE_SAVED * elementwise_s + LAUNCHES_SAVED * launches_s


def tokens_per_round(acceptance: float, drafted: float) -> float:
    """Tokens that a step of the model itself yields, with drafted ones that are each accepted with a probability.

    (1 - p ** (k + 1)) / (1 - p): those accepted up to the first that is not, and the model's own one.
    """
    return drafted + 1.0 if acceptance >= 1 else (1 - acceptance ** (drafted + 1)) / (1 - acceptance)


def acceptance_from(accepted: float, drafted: float) -> float:
    """The probability with which one drafted token is accepted, from how many of `drafted` are on the mean."""
    low, high = 0.0, 1.0
    while high - low > _LEAST_ACCEPTED:
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_per_round(middle, drafted) - 1 < accepted else (low, middle)
    return (low + high) / 2


def speculative_s(draft_s: float, verify_s: float, acceptance: float, drafted: float) -> float:
    """Time for each token of a round: of drafting and of one step that verifies, over the tokens that it yields."""
    return (draft_s + verify_s) / tokens_per_round(acceptance, drafted)
