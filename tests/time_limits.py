"""A time limit for each test that also ends what the test waits for: a hang costs one test, and a stack shows where.

pytest-timeout raises once. A test that then leaves `with Popen(...)` waits for its child forever, its fixtures are torn
down without a limit, and no summary appears. Here each phase of a test (setup, call, teardown) has the limit, the
children that it started are killed first, and a phase that still does not end takes its worker with it.
"""

from __future__ import annotations

import faulthandler
import signal
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key  # stderr as it was before pytest captured it

if TYPE_CHECKING:
    from types import FrameType

LIMIT_S = 120.0
"""For a phase of a test on a busy machine; `@pytest.mark.limit(seconds)` gives another one."""
AGAIN_S, TIMES = 5.0, 3
"""A phase that goes on is failed again at this interval, so often; then its worker ends, and xdist names it."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item))


def _limited(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("limit")
    limit_s = float(marker.args[0]) if marker else LIMIT_S
    started = time.time()

    def fail(_number: int, _frame: FrameType | None) -> None:
        for child in psutil.Process().children(recursive=True):
            if child.create_time() >= started - 1:  # others belong to fixtures that tests share
                child.kill()
        pytest.fail(f"took longer than its limit of {limit_s:g} s; the processes that it started were killed")

    signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(limit_s + TIMES * AGAIN_S, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
