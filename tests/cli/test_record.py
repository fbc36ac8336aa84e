"""`llmtop record`: what it writes, where it says so, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from llmtop.parsers.registry import load
from llmtop.recording.row_reader import RowReader

COMMAND = [sys.executable, "-m", "llmtop", "record"]


def test_it_ends_when_the_time_is_over_and_prints_the_path(tmp_path: Path) -> None:
    path = tmp_path / "machine.llmtop"
    done = subprocess.run([*COMMAND, "-o", path, "--duration", "1"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}\n"
    begun, ended = done.stderr.splitlines()
    assert begun == f"llmtop: recording this machine's GPUs to {path}; Ctrl+C ends it"
    assert ended.startswith("llmtop: 00:00:0")
    trace = load(path)
    assert trace.tracks, "llmtop itself is watched everywhere"
    assert {row.kind for row in RowReader(path).rows} >= {"about", "series", "stretch", "verdict"}


def test_a_signal_ends_it_with_all_that_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "machine.llmtop"
    with subprocess.Popen([*COMMAND, "-o", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "Ctrl+C ends it" in process.stderr.readline()
        while b"stretch" not in path.read_bytes():  # until the first moment is written, or the test's own deadline
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, f"{path}\n")
    assert load(path).tracks


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("mine")
    done = subprocess.run([*COMMAND, "-o", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"llmtop: {path} is there already, and a recording never writes over a file; name another\n"
    assert path.read_text() == "mine"
