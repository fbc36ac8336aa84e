"""The end of a helper that the kernel does not let go of at once."""

from __future__ import annotations

import fcntl
import gc
import select
import sys
from pathlib import Path

import pytest

from llmtop.collectors import children
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


def test_it_is_llmtops_own_by_both_its_ids_until_it_is_closed() -> None:
    """Through sudo the helper is a child of the process that was started: what both cost is llmtop's cost."""
    before = set(children.running())
    helper = HelperProcess([], program=DEAF)
    helper.is_known_as(4_000_001)
    assert set(children.running()) - before == {helper.process.pid, 4_000_001}
    helper.kill()
    helper.close()
    assert set(children.running()) == before


def test_a_helper_has_room_for_a_megabyte_of_reports_before_it_waits_for_llmtop() -> None:
    most = int(Path("/proc/sys/fs/pipe-max-size").read_text())
    if most < 1 << 20:
        pytest.skip(f"a pipe may have {most} bytes here")
    helper = HelperProcess([], program=DEAF)
    assert fcntl.fcntl(helper.fileno(), fcntl.F_GETPIPE_SZ) == 1 << 20
    helper.kill()
    helper.close()


@pytest.mark.parametrize(
    ("does", "has_crashed", "says"),
    [
        ("kill -SEGV $$", True, "it was ended by SIGSEGV"),
        ("kill -ABRT $$", True, "it was ended by SIGABRT"),
        ("kill -TERM $$", False, "it was ended by SIGTERM"),
        ("exit 11", False, "exit code 11"),
        ("echo odd >&2; echo no luck >&2; exit 1", False, "no luck"),
        ("exit 0", False, "exit code 0"),
    ],
)
def test_a_crash_in_native_code_is_told_from_other_ends(does: str, has_crashed: bool, says: str) -> None:
    helper = HelperProcess([], program=("sh", "-c", does))
    while not helper.is_at_end:
        select.select([helper], [], [], 30)
        helper.reports()
    assert eventually(lambda: helper.last_words() == says)
    assert helper.has_crashed is has_crashed
    helper.close()


def test_of_a_long_complaint_the_end_is_told() -> None:
    """There stands what was wrong, behind paths and types."""
    helper = HelperProcess([], program=(sys.executable, "-S", "-c", "import sys; sys.exit('a' * 50 + 'b' * 399 + 'c')"))
    while not helper.is_at_end:
        select.select([helper], [], [], 30)
        helper.reports()
    assert eventually(lambda: helper.last_words() == "b" * 399 + "c")
    helper.close()
