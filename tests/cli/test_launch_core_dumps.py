"""`llmtop launch --coredump`: what the command is told by its environment, and what the user is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llmtop.cli.launch_core_dumps import LEAST_FREE, NAME, SMALL, prepared
from llmtop.cli.run import run
from llmtop.errors import FileError, UsageError

SAYS = 'echo "$CUDA_ENABLE_COREDUMP_ON_EXCEPTION|$CUDA_COREDUMP_FILE|$CUDA_COREDUMP_GENERATION_FLAGS"'
LEAVES = 'echo core > "$(dirname "$CUDA_COREDUMP_FILE")/core_1_node_7.nvcudmp"; exit 134'


def llmtop(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    return subprocess.run(
        [sys.executable, "-m", "llmtop", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=others | environment,
    )


def test_the_command_is_told_to_dump_and_the_user_where_to(tmp_path: Path) -> None:
    done = llmtop("launch", "--coredump", str(tmp_path / "new"), "--", "sh", "-c", SAYS)
    assert done.stdout == f"1|{tmp_path}/new/{NAME}|{SMALL}\n"
    first, last = done.stderr.splitlines()
    assert first.startswith(f"llmtop: core dumps of GPUs go to {tmp_path}/new, with ")
    assert last == f"llmtop: no core dump of a GPU was written to {tmp_path}/new"


def test_a_dump_is_told_at_the_end_and_those_of_before_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "core_0_node_6.nvcudmp").write_bytes(bytes(2048))
    done = llmtop("launch", "--coredump", str(tmp_path), "--", "sh", "-c", LEAVES)
    assert done.returncode == 134
    first, last = done.stderr.splitlines()
    assert first.endswith("; 1 of before are there, 2.00 KiB, which llmtop leaves to you")
    assert last == f"llmtop: core dump of a GPU, 5 B: llmtop open {tmp_path}/core_1_node_7.nvcudmp"


def test_without_a_folder_they_lie_with_llmtops_state(tmp_path: Path) -> None:
    done = llmtop("launch", "--coredump", "--", "sh", "-c", SAYS, XDG_STATE_HOME=str(tmp_path))
    assert done.stdout.split("|")[1] == f"{tmp_path}/llmtop/core-dumps/{NAME}"
    assert (tmp_path / "llmtop/core-dumps").stat().st_mode & 0o777 == 0o700


def test_without_the_option_nothing_is_said_or_set() -> None:
    done = llmtop("launch", "--", "sh", "-c", SAYS)
    assert (done.stdout, done.stderr) == ("||\n", "")


def test_what_the_user_has_set_stays_and_is_told(tmp_path: Path) -> None:
    own = {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "0",
        "CUDA_COREDUMP_FILE": "/x/%p",
        "CUDA_COREDUMP_GENERATION_FLAGS": "skip_global_memory",
    }
    done = prepared(str(tmp_path / "new"), ["serve"], own)
    assert dict(done.environment) == own
    assert done.folder is None
    assert not (tmp_path / "new").exists()
    assert done.said == (
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=0 is set in the environment and stays: no core dump will be written",
        f"CUDA_COREDUMP_FILE=/x/%p is set in the environment and stays, and not to {tmp_path}/new",
        "CUDA_COREDUMP_GENERATION_FLAGS=skip_global_memory is set in the environment and stays",
        "add skip_constbank_memory to CUDA_COREDUMP_GENERATION_FLAGS: driver 580 stops half-way without it",
    )
    assert list(done.at_the_end()) == []


@pytest.mark.parametrize(("free", "words"), [(LEAST_FREE - 1, "with only "), (LEAST_FREE, "with 1.00 GiB free")])
def test_little_space_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, words: str) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    (said,) = prepared(str(tmp_path), ["serve"], {}).said
    assert words in said


def test_a_container_is_to_be_given_both(tmp_path: Path) -> None:
    *_, said = prepared(str(tmp_path), ["docker", "run", "vllm/vllm-openai"], {}).said
    assert said == (
        "docker gives its environment to no container: put -e CUDA_ENABLE_COREDUMP_ON_EXCEPTION "
        f"-e CUDA_COREDUMP_GENERATION_FLAGS -e CUDA_COREDUMP_FILE -v {tmp_path}:{tmp_path} behind docker run"
    )


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="name another folder"):
        prepared(str(tmp_path / "file"), ["serve"], {})
    with pytest.raises(UsageError, match=r"% in .*means something else to the driver"):
        prepared(str(tmp_path / "50%p"), ["serve"], {})


def test_a_command_without_its_dashes_is_not_taken_for_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch", "--coredump", "vllm", "serve"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "put -- before the command" in line
