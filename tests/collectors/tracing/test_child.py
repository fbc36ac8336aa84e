"""Programs that tracers start: what they say is read without waiting, and they end with who started them."""

from __future__ import annotations

import doctest
import os
import select
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from llmtop.collectors.tracing.helper import child, system
from llmtop.collectors.tracing.helper.child import Child
from tests.collectors.tracing.probes import eventually
from tests.workloads.programs import started

ROOT = Path(__file__).resolve().parents[3]
OWNER = """
import sys
from llmtop.collectors.tracing.helper.child import Child
print(Child([sys.executable, "-c", "import signal; signal.pause()"], is_bound=sys.argv[1] == "bound").process.pid)
sys.stdout.flush()
sys.stdin.read()
"""


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(child) == (0, 1)


def test_lines_are_told_once_they_are_whole() -> None:
    told: list[bytes] = []

    def are(*lines: bytes) -> bool:
        told.extend(cat.lines())
        return tuple(told) == lines

    with closing(Child(["cat"], has_input=True)) as cat:
        assert cat.process.stdin is not None
        assert are(), "it has said nothing yet, and is not waited for"
        cat.process.stdin.write(b"one\ntw")
        assert eventually(lambda: are(b"one"))
        cat.process.stdin.write(b"o\nthree")
        assert eventually(lambda: are(b"one", b"two"))
        assert not cat.is_at_end
        cat.process.stdin.close()
        assert eventually(lambda: are(b"one", b"two") and cat.is_at_end)


def test_a_line_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_LONGEST_LINE", 5)
    with closing(Child(["sh", "-c", "printf 'abcde'; read x; printf 'f\\nabcd'; read x; echo"], has_input=True)) as one:
        assert one.process.stdin is not None
        select.select([one], [], [], 30)
        assert one.lines() == []
        one.process.stdin.write(b"\n")
        select.select([one], [], [], 30)
        assert one.lines() == [b"f"]
        one.process.stdin.write(b"\n")
        select.select([one], [], [], 30)
        assert one.lines() == [b"abcd"]


def test_what_it_complains_of_is_kept_until_it_is_let_go() -> None:
    with child.in_memory() as output:
        one = Child(["sh", "-c", "echo said; echo first >&2; echo second >&2; exec sleep 1000"], output=output)
        assert eventually(lambda: one.errors() == "first\nsecond\n")
        one.close()
        output.seek(0)
        assert output.read() == b"said\n"
    assert one.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("how", ["bound", "free"])
def test_one_that_is_bound_ends_with_who_started_it(how: str) -> None:
    """Nobody gets to say goodbye. Another has a session of its own: what ends a terminal's programs does not end it."""
    with started([sys.executable, "-c", OWNER, how], cwd=ROOT, stdin=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert (os.getsid(pid) == pid) is (how == "free")
        owner.kill()
        owner.wait()
    if how == "bound":
        assert eventually(lambda: not system.start_time(pid))
    else:
        assert system.start_time(pid)
        os.kill(pid, signal.SIGKILL)


def test_one_that_reads_its_input_without_being_given_any_is_not_waited_for() -> None:
    with closing(Child(["cat"])) as cat:
        assert eventually(lambda: not cat.lines() and cat.is_at_end)
