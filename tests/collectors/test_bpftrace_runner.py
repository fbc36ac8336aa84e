"""How a run of bpftrace ends, with a program in its place."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from llmtop.collectors.tracing.bpftrace import runner
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


STOPPING = """#!/bin/sh
trap 'TRAP' TERM
echo '{"type": "printf", "data": "begin 5"}'
while :; do sleep 0.02; done
"""


@pytest.mark.parametrize(
    ("trap", "said", "words"),
    [
        (
            'echo "{\\"type\\": \\"printf\\", \\"data\\": \\"end\\"}"; exec >&-; sleep 0.3; exit 7',
            ["end"],
            "exit code 7",
        ),
        ("exec >&-; sleep 0.3; echo ERROR: too late >&2; exit 0", [], "ERROR: too late"),
        (":", [], "by SIGKILL"),
    ],
    ids=["takes its time", "complains at the end", "does not hear"],
)
def test_one_that_is_ended_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str, said: list[str], words: str
) -> None:
    """It closes its output before its probes are off: only its end tells that none is attached any more."""
    program = tmp_path / "bpftrace"
    program.write_text(STOPPING.replace("TRAP", trap))
    program.chmod(0o755)
    run = Bpftrace(str(program), "", 16, named=False)
    while not run.records():
        select.select([run], [], [], 20)
    if trap == ":":
        monkeypatch.setattr(runner, "_END_S", 0.3)
    assert [record.data for record in run.end()] == said
    assert run.process.returncode is not None
    assert (run.last_words(), run.end()) == (words, [])
