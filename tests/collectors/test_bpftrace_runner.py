"""How a run of bpftrace ends, with a program in its place."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from llmtop.collectors.tracing.bpftrace.runner import Bpftrace


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("kill -9 $$", "bpftrace was killed by SIGKILL"),
        ("kill -15 $$", "bpftrace was killed by SIGTERM"),
        ("echo ERROR: no such probe >&2; exit 1", "bpftrace has ended by itself: ERROR: no such probe"),
        ("exit 3", "bpftrace has ended by itself: exit code 3"),
    ],
)
def test_one_that_was_killed_has_not_ended_by_itself(tmp_path: Path, does: str, says: str) -> None:
    program = tmp_path / "bpftrace"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    run = Bpftrace(str(program), "", 16, named=False)
    while not run.is_at_end:
        select.select([run], [], [], 20)
        run.records()
    said = run.how_it_ended()
    run.end()

    assert said == says
