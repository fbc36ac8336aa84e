"""The helpers as the programs that they are: what the collectors start, and how it ends where it cannot look."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from llmtop.collectors.tracing.perf.collector import PROGRAM as THROUGH_PERF
from llmtop.collectors.tracing.probes.collector import PROGRAM as THROUGH_PROBES
from llmtop.collectors.tracing.probes.helper import __main__ as probes_helper
from tests.collectors.tracing.collecting import a_copy, replace_in

HELPERS = {"llmtop-probes": THROUGH_PROBES, "llmtop-perf": THROUGH_PERF}
PID = 4_300_001


def run(program: tuple[str, ...], *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In a folder that is first on the PATH and where Python would look for modules, with an input that stays open."""
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(folder)}
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w"):
        return subprocess.run(
            [*program, *arguments], cwd=folder, env=env, stdin=reader, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip


@pytest.mark.parametrize("name", HELPERS)
def test_each_helper_takes_pids_and_nothing_of_the_folder_it_is_started_in(name: str, tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('another argparse')\n")
    told = run(HELPERS[name], "--help", folder=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith(f"usage: {name} [-h] ")
    refused = run(HELPERS[name], folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "the following arguments are required: pids" in refused.stderr


def stand_in(folder: Path, name: str) -> None:
    """A tracer that can do nothing."""
    program = folder / name
    program.write_text("#!/bin/sh\necho 'no such thing here' >&2\nexit 1\n")
    program.chmod(0o755)


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_that_cannot_look_says_so_in_one_line_and_fails(name: str, tmp_path: Path) -> None:
    program = HELPERS[name]
    if name == "llmtop-probes":
        _, program = a_copy(tmp_path)
        file = Path(program[-1], Path(probes_helper.__file__).resolve().relative_to(THROUGH_PROBES[-1]))
        replace_in(file, "helper = protocol.attach(", 'raise UnavailableError(f"not {options.pids}", "")\n    (')
    else:
        stand_in(tmp_path, name.removeprefix("llmtop-"))
    ended = run(program, str(PID), "--interval", "0.5", folder=tmp_path)
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ([one["kind"] for one in said], ended.returncode) == (["unavailable"], 1), ended.stderr
    if name == "llmtop-probes":
        assert said[0]["reason"] == f"not [{PID}]"
