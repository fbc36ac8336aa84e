"""`llmtop record`: what it writes, where it says so, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from llmtop import ids
from llmtop.cli import record
from llmtop.model import LIVE, Source, Trace, Track, TrackKind, Unknown
from llmtop.parsers.registry import load
from llmtop.recording.row_reader import RowReader
from llmtop.session import Session
from tests.collectors.processes import Fake, tree


class GpulessCollector:
    """One of GPUs, where there is no driver."""

    name = "nvml"
    owns = Source(name, (TrackKind.GPU,))
    period_s = 1.0

    def missing(self) -> Unknown | None:
        return Unknown("there is no driver", "install it")

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    def poll(self) -> Trace:
        raise NotImplementedError


COMMAND = [sys.executable, "-m", "llmtop", "record"]


def test_it_ends_when_the_time_is_over_and_prints_the_path(tmp_path: Path) -> None:
    path = tmp_path / "machine.llmtop"
    done = subprocess.run([*COMMAND, "-o", path, "--duration", "1"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}\n"
    begun, *_, ended = done.stderr.splitlines()
    assert begun == f"llmtop: recording this machine's GPUs to {path}; Ctrl+C ends it"
    assert ended.startswith("llmtop: 00:00:0")
    trace = load(path)
    assert trace.tracks, "llmtop itself is watched everywhere"
    assert {row.kind for row in RowReader(path).rows} >= {"about", "series", "stretch", "verdict"}


@pytest.mark.parametrize("options", [[], ["--when", "self.rss > 1 TB"]])
def test_that_a_server_runs_which_is_not_recorded_is_said(tmp_path: Path, options: list[str]) -> None:
    with tree(Fake("api", ("/usr/bin/python3", "/opt/bin/vllm", "serve", "m"))) as running:
        code, said = ended_when_it_says("no server", *options, "-o", str(tmp_path / "new"))
    assert code == 0
    (no_server,) = (line for line in said if "no server" in line)
    assert f" {running.pids['api']} (vLLM m)" in no_server
    assert no_server.endswith(": --attach PID\n")


def ended_when_it_says(wanted: str, *arguments: str) -> tuple[int, list[str]]:
    """Its exit code after a SIGTERM as soon as a message holds a text, and all that it said."""
    said = []
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as one:
        assert one.stderr is not None
        for line in one.stderr:
            said.append(line)
            if wanted in line:
                one.send_signal(signal.SIGTERM)
    return one.returncode, said


def test_that_there_is_no_gpu_to_record_is_said_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but llmtop itself would be in the file, and nobody would know before it is opened."""
    monkeypatch.setattr(record, "servers_here", str)
    session = Session((GpulessCollector(),), LIVE)
    remarks = record._remarks(session)
    assert next(remarks) == ""
    session.start()
    try:
        said = next(one for one in remarks if one)
    finally:
        session.stop()
    assert said == "no GPU is recorded: there is no driver (install it)"
    assert list(remarks) == []


def test_a_machine_with_a_gpu_has_something_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "servers_here", str)
    session = Session((), LIVE)
    session.recorder.append("nvml", Trace(LIVE, tracks={ids.gpu(0): Track(ids.gpu(0), TrackKind.GPU, "GPU 0")}))
    assert list(record._remarks(session)) == []


def test_a_recording_of_a_server_says_nothing_of_others(tmp_path: Path) -> None:
    command = [*COMMAND, "--attach", str(os.getpid()), "--no-ebpf", "-o", str(tmp_path / "new"), "--duration", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stderr.splitlines()) == 2


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--when", "kv > 1"], "there is no number 'kv', but output_tokens_per_s, "),
        (["--when", "finding:kv"], "there is no rule 'kv', but allocation-churn, "),
        (["--keep", "10,5"], "--keep goes with --when CONDITION"),
        (["--keep-files", "3"], "--keep goes with --when CONDITION"),
        (["--when", "running > 1", "--keep", "10"], "'10' is not seconds before and after, as in 120,60"),
        (["--when", "running > 1", "--keep-mib", "0"], "'0' is not a number from 1 on"),
    ],
)
def test_what_is_no_condition_or_bound_is_usage(arguments: list[str], said: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_an_incident_is_written_to_its_end_when_a_signal_comes(tmp_path: Path) -> None:
    command = [*COMMAND, "--when", "self.rss > 1 B", "-o", str(tmp_path / "incidents")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "self.rss > 1 B: looking; files go to" in process.stderr.readline()
        begun = next(line for line in process.stderr if "incident-" in line)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert begun.strip().endswith(out.strip())
    trace = load(Path(out.strip()))
    assert trace.origin.facts["trigger"] == "self.rss > 1 B"
    assert trace.tracks


def test_a_folder_that_cannot_be_made_is_said_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    wanted = "it is tried again in a minute"
    code, said = ended_when_it_says(wanted, "--when", "self.rss > 1 B", "-o", str(tmp_path / "file"))
    assert code == 1
    assert any(f"{tmp_path}/file" in line and wanted in line for line in said)
    assert (tmp_path / "file").read_text() == "mine"
