"""The end of a helper that the kernel does not let go of at once."""

from __future__ import annotations

import gc
import select
import sys

import pytest

from llmtop.collectors.tracing import process
from llmtop.collectors.tracing.process import HelperProcess
from tests.collectors.tracing.probes import eventually

DEAF = (sys.executable, "-S", "-c", "import time; print('{}', flush=True); time.sleep(1000)")


def test_one_that_is_killed_and_takes_its_time_is_kept_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STOP_S", 0.0)
    helper = HelperProcess([], program=DEAF)
    select.select([helper], [], [])
    helper.close()
    del helper
    gc.collect()  # a process that nobody waits for is warned of here, and a zombie to the end

    def all_ended() -> bool:
        process._reap()
        return not process._dying

    assert eventually(all_ended)
