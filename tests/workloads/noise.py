"""Measuring on a machine that others use too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

Parameters = ParamSpec("Parameters")
TRIES = 3


def measured_again(test: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """A test that compares two clocks' accounts of the same time may look up to three times.

    The two are never read in the same instant; what else runs on the machine between the readings spoils one look.
    What is wrong in llmtop spoils all three.
    """

    @functools.wraps(test)
    def look(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        for _ in range(TRIES - 1):
            try:
                return test(*args, **kwargs)
            except AssertionError:
                continue
        return test(*args, **kwargs)

    return look
