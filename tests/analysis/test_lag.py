"""Correlations of series whose truth is known: independent ones are chance, a planted lag is found."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop.analysis.series.grid import Cells
from llmtop.analysis.series.lag import Lagged, Ranks, best_lag, holm, n_effective, ranked
from llmtop.model import Unknown

MOST = 5
SEEDS = 100


def autoregressive(n: int, phi: float, rng: random.Random) -> tuple[float, ...]:
    """A stationary AR(1) series: x' = phi x + noise."""
    first = rng.gauss(0, 1) / (1 - phi * phi) ** 0.5
    noise = [rng.gauss(0, 1) for _ in range(n - 1)]
    return tuple(accumulate(noise, lambda x, e: phi * x + e, initial=first))


def telegraph(n: int, stay: float, rng: random.Random) -> tuple[float, ...]:
    """On or off, changing by chance: a GPU that works or idles."""
    state, states = 0.0, []
    for _ in range(n):
        state = state if rng.random() < stay else 1.0 - state
        states.append(state)
    return tuple(states)


def ranks(cells: Cells) -> Ranks:
    found = ranked(cells)
    assert isinstance(found, Ranks)
    return found


def is_significant(first: Cells, second: Cells) -> bool:
    a, b = ranked(first), ranked(second)
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return False
    found = best_lag(a, b, MOST)
    return isinstance(found, Lagged) and found.p < 0.05


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("n", [60, 120])
def test_independent_series_are_chance(phi: float, n: int) -> None:
    false = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        false += is_significant(autoregressive(n, phi, rng), autoregressive(n, phi, rng))
    assert false <= 0.1 * SEEDS


def test_independent_switching_is_chance() -> None:
    rngs = [random.Random(seed) for seed in range(SEEDS)]
    assert sum(is_significant(telegraph(120, 0.9, rng), telegraph(120, 0.9, rng)) for rng in rngs) <= 0.1 * SEEDS


def test_two_trends_are_no_proof() -> None:
    rng = random.Random(4)
    rising = tuple(i + rng.gauss(0, 3) for i in range(60))
    falling = tuple(-2 * i + rng.gauss(0, 3) for i in range(60))
    found = best_lag(ranks(rising), ranks(falling), MOST)
    assert isinstance(found, Unknown)
    assert "independent" in found.reason


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lag=st.integers(-MOST, MOST),
    phi=st.floats(0, 0.7),
    sign=st.sampled_from([-1, 1]),
    gaps=st.integers(0, 15),
)
def test_planted_lag_is_found(seed: int, lag: int, phi: float, sign: int, gaps: int) -> None:
    rng = random.Random(seed)
    truth = autoregressive(120 + 2 * MOST, phi, rng)
    first: list[float | None] = list(truth[MOST : MOST + 120])
    # `lag` cells later the second series does what the first did.
    second: list[float | None] = [sign * truth[MOST + i - lag] + 0.3 * rng.gauss(0, 1) for i in range(120)]
    for _ in range(gaps):
        first[rng.randrange(120)] = second[rng.randrange(120)] = None
    found = best_lag(ranks(tuple(first)), ranks(tuple(second)), MOST)
    assert isinstance(found, Lagged)
    assert found.lag == lag
    assert found.r * sign > 0.7
    assert found.p < 0.05


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), max_size=80), st.integers(0, 99))
def test_any_series_gives_bounded_numbers_or_a_reason(values: list[float | None], seed: int) -> None:
    other = ranks(autoregressive(max(30, len(values)), 0.5, random.Random(seed)))
    found = ranked(tuple(values))
    if isinstance(found, Unknown):
        assert found.reason
        return
    lagged = best_lag(found, other, MOST)
    if isinstance(lagged, Lagged):
        assert -1 - 1e-9 <= lagged.r <= 1 + 1e-9
        assert 0 <= lagged.p <= 1
        assert 0 < lagged.n_effective <= lagged.samples


def test_effective_samples_of_white_noise_are_all_of_them() -> None:
    rng = random.Random(1)
    first, second = (ranks(autoregressive(400, 0.0, rng)) for _ in range(2))
    assert n_effective(first, second, 400) == pytest.approx(400, rel=0.1)


def test_effective_samples_of_slow_series_are_those_of_theory() -> None:
    # For two AR(1) series of the same phi: N (1 - phi^2) / (1 + phi^2), Bartlett's sum in closed form.
    expected = 2000 * (1 - 0.8**2) / (1 + 0.8**2)
    rng = random.Random(2)
    first, second = (ranks(autoregressive(2000, 0.8, rng)) for _ in range(2))
    assert n_effective(first, second, 2000) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ((1.0,) * 14, "not enough data: 14 of at least 30 samples"),
        ((3.0,) * 60, "constant over the window"),
        ((0.1 + 1e-12, 0.1) * 30, "constant over the window"),
        ((0.0,) * 57 + (1.0, 2.0, 3.0), "hardly changes: 3 of 60 samples differ"),
        ((None,) * 60, "not enough data: 0 of at least 30 samples"),
    ],
)
def test_series_without_news_say_so(cells: Cells, reason: str) -> None:
    found = ranked(cells)
    assert isinstance(found, Unknown)
    assert found.reason == reason


def test_series_that_never_meet_cannot_be_judged() -> None:
    noise = autoregressive(80, 0.0, random.Random(3))
    first = ranks(noise[:40] + (None,) * 40)
    second = ranks((None,) * 40 + noise[40:])
    assert isinstance(best_lag(first, second, MOST), Unknown)


def test_equal_values_share_a_rank() -> None:
    values = tuple(float(i % 3) for i in range(30))
    assert sorted(set(ranks(values).ranks)) == [-10.0, 0.0, 10.0]


@given(st.lists(st.floats(0, 1), max_size=20))
def test_correction_never_makes_anything_surer(ps: list[float]) -> None:
    corrected = holm(ps)
    assert all(after >= before for before, after in zip(ps, corrected, strict=True))
    assert all(after <= min(1.0, before * max(1, len(ps))) + 1e-12 for before, after in zip(ps, corrected, strict=True))
