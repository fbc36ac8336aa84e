"""Sums of what several GPUs cost beside one, as one does them on a napkin.

After Performance Engineering, whose worked numbers are their tests: communication-computation overlap, and the scaling
tax (napkin math 1.5).
"""

from __future__ import annotations

ALL_REDUCE_BEGINS_S = 5e-6
"""What goes with each all-reduce however little it sends (communication-computation overlap: approximately 5 µs)."""


def ring_bytes(payload_bytes: float, ranks: float) -> float:
    """Bytes that each of the ranks sends in an all-reduce, and receives at the same time: 2 (n - 1) / n of them."""
    return 2 * (ranks - 1) / ranks * payload_bytes


def scaling_tax(of_all: float, of_one: float) -> float:
    """The share of its efficiency that a GPU loses beside others: 1 - efficiency of all / efficiency of one alone."""
    return 1 - of_all / of_one
