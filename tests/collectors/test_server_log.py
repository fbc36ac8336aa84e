"""Where a server's log is, and which of its errors came first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import procfs
from llmtop.collectors.server_log import MOST_LINES, ServerLog, first_error
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import IO

ENGINE = [
    "(EngineCore pid=31) INFO 11-23 14:51:00 [gpu_model_runner.py:90] Starting to load model m3b",
    "(EngineCore pid=31) ERROR 11-23 14:51:40 [core.py:1010] EngineCore failed to start.",
    "(EngineCore pid=31) ERROR 11-23 14:51:40 [core.py:1010] Traceback (most recent call last):",
    '(EngineCore pid=31) ERROR 11-23 14:51:40 [core.py:1010]   File "/v/core.py", line 1001, in run_engine_core',
    "(EngineCore pid=31) ERROR 11-23 14:51:40 [core.py:1010]     engine = EngineCore(vllm_config)",
    "(EngineCore pid=31) ERROR 11-23 14:51:40 [core.py:1010] torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB",
    "[rank0]:[W1123 14:51:41.4 ProcessGroupNCCL.cpp:15] Warning: destroy_process_group() was not called",
]
API = [
    "(APIServer pid=7) Traceback (most recent call last):",
    '(APIServer pid=7)   File "/v/cli.py", line 5, in <module>',
    "(APIServer pid=7)     sys.exit(main())",
    "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above.",
]
LAST = API[-1].partition(") ")[2]
CONTAINER = "3f2a91b0c7d1" + 52 * "0"
CALM = [f"(APIServer pid=7) INFO 11-23 14:50:{i:02} [loggers.py:1] Avg throughput: 5 tokens/s" for i in range(40)]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (ENGINE + API, "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB"),
        (API, LAST),
        ([*API, *CALM[:30]], LAST),
        ([*API, *CALM[:31]], ""),
        ([*API, *CALM[:31], "ValueError: no room"], "ValueError: no room"),
        ([*API, *CALM[:30], "ValueError: no room"], LAST),
        ([*API, *CALM[:31], "ERROR no room"], ""),
        ([*API, *CALM[:30], "ERROR no room"], LAST),
        (["(A pid=1) RuntimeError: ", "(A pid=1)         no fork", "(A pid=1)"], "RuntimeError: no fork"),
        (["RuntimeError: ", "", "no fork", "at all"], "RuntimeError: no fork"),
        (["RuntimeError: ", "", "", "INFO up"], "RuntimeError"),
        (["AssertionError"], "AssertionError"),
        (["ValueError: SystemExit"], "ValueError: SystemExit"),
        (["ValueError: " + 300 * "x"], "ValueError: " + 228 * "x"),
        (["asyncio.exceptions.CancelledError", "KeyboardInterrupt", "KeyboardInterrupt: "], ""),
        (["llama_model_load: error loading model: no such file"], "error loading model: no such file"),
        (["terminate called after throwing 'E'", "  what():  no"], "terminate called after throwing 'E': no"),
        (["terminate called after throwing 'E'", "frame #0"], "terminate called after throwing 'E'"),
        (['{"level": "error", "message": "it failed", "exception": "Traceback\\nOSError: no a"}'], "OSError: no a"),
        (['{"fields": {"message": "ValueError: no \\"room\\", cut he'], 'ValueError: no "room", cut he'),
        (["thread 'main' panicked at main.rs:3:5:", "no room"], "thread 'main' panicked at main.rs:3:5: no room"),
        (["2026-11-23T14:00:00.1Z ERROR text_generation_launcher: Error when initializing model"], ""),
        (["FATAL: out of memory for 24 MiB of KV cache", *API], "out of memory for 24 MiB of KV cache"),
        (["alloc_buffer: cudaMalloc failed: out of memory"], "alloc_buffer: cudaMalloc failed: out of memory"),
        (["INFO 11-23 runs out of memory one day"], ""),
        (["Fatal Python error: Segmentation fault"], "Fatal Python error: Segmentation fault"),
        (["INFO retrying after ConnectionError: refused", "a note on the ValueError class"], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_first_error_of_the_last_trouble(lines: Sequence[str], said: str) -> None:
    assert first_error(lines) == said


@given(st.lists(st.text(max_size=80), max_size=60))
def test_any_text_is_a_log(lines: list[str]) -> None:
    said = first_error(lines)
    assert len(said) <= 240
    assert not said or any(said.split(":")[0].split()[0] in line for line in lines)


def test_launched_server_is_read_by_what_it_printed() -> None:
    asked: list[int] = []

    def output(n: int) -> Sequence[str]:
        asked.append(n)
        return ["MemoryError", "bye"]

    log = ServerLog(output)
    log.open(1)
    assert (log.last_error(), log.command, asked) == ("MemoryError", "", [MOST_LINES])


def test_file_of_a_server_that_runs_by_itself_is_read_after_its_end(tmp_path: Path) -> None:
    path = tmp_path / "server log.txt"
    with path.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, "-c", "input(); raise ValueError('\x1b[2Jno room')"], stdin=subprocess.PIPE, stderr=file
        )
        log = ServerLog()
        log.open(child.pid)
        child.communicate(b"\n", timeout=30)
    assert log.command == f"tail -n 200 '{path}'"
    path.rename(tmp_path / "rotated")
    assert log.last_error() == "ValueError: no room"
    log.close()
    assert (log.last_error(), log.command) == ("", "")


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> Callable[..., int]:
    """The number of a process whose outputs go where it is told, as long as the test runs."""

    def start(stdout: IO[str] | int, stderr: IO[str] | int) -> int:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)
        request.addfinalizer(lambda: child.communicate(timeout=30))
        return child.pid

    return start


def test_output_that_is_thrown_away_can_be_read_by_nobody(runs: Callable[..., int], tmp_path: Path) -> None:
    log = ServerLog()
    log.open(runs(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    assert isinstance(log.last_line(), Unknown)
    log.open(runs(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    assert log.last_line() is None
    with (tmp_path / "log").open("a") as file:
        log.open(runs(stdout=file, stderr=subprocess.DEVNULL))
    assert log.last_line() == ""
    log.close()


def test_of_a_long_log_the_end_is_read(tmp_path: Path, runs: Callable[..., int]) -> None:
    """400 lines of it, or 128 KiB, and it may be what the server prints to its output."""
    path, log = tmp_path / "log", ServerLog()
    with path.open("a") as file:
        log.open(runs(stdout=file, stderr=subprocess.PIPE))
    for lines, said in (
        (["ValueError: first", *["OSError: later"] * 399], "ValueError: first"),
        (["ValueError: first", *["OSError: later"] * 400], "OSError: later"),
        ([f"ValueError: {i}".ljust(1023) for i in range(130)], "ValueError: 2"),
    ):
        path.write_text("".join(f"{line}\n" for line in lines))
        assert log.last_error() == said
    log.close()


def test_of_another_process_its_own_log_is_read(tmp_path: Path, runs: Callable[..., int]) -> None:
    log = ServerLog()
    with (tmp_path / "log").open("a") as file:
        log.open(runs(stdout=subprocess.DEVNULL, stderr=file))
    (tmp_path / "log").write_text("ValueError: of the first\n")
    log.open(runs(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    assert (log.last_error(), log.command) == ("", "")
    held = procfs.open_files(os.getpid()) or []
    assert str(tmp_path / "log") not in held, "a log that is rotated away takes no room because of it"


def test_secrets_in_an_error_are_hidden() -> None:
    assert "s3cr3t" not in ServerLog(lambda _: ["ValueError: --api-key=s3cr3t is no key"]).last_error()


@pytest.mark.parametrize(
    ("stderr", "group", "command"),
    [
        ("socket:[7]", "0::/system.slice/vllm.service\n", "journalctl -u vllm.service -n 200 --no-pager"),
        ("pipe:[7]", f"0::/system.slice/docker-{CONTAINER}.scope\n", "docker logs --tail 200 3f2a91b0c7d1"),
        ("pipe:[7]", f"0::/libpod/{CONTAINER}\n", "podman logs --tail 200 3f2a91b0c7d1"),
        ("pipe:[7]", f"0::/kubepods.slice/{CONTAINER}\n", ""),
        ("pipe:[7]", "0::/docker\n", ""),
        ("socket:[7]", "0::/user.slice/user-1000.slice/user@1000.service\n", ""),
        ("pipe:[7]", "0::/user.slice/session-3.scope\n", ""),
        ("/dev/pts/3", "0::/system.slice/vllm.service\n", ""),
        ("/dev/null", "0::/system.slice/vllm.service\n", ""),
    ],
)  # fmt: skip
def test_command_where_somebody_else_keeps_the_log(
    monkeypatch: pytest.MonkeyPatch, stderr: str, group: str, command: str
) -> None:
    monkeypatch.setattr(procfs, "read_link", lambda path: stderr)
    monkeypatch.setattr(procfs, "read_text", lambda path: group)
    log = ServerLog()
    log.open(99_999_999)  # more than PIDs go to: of a real one a real file would be opened
    assert (log.command, log.last_error()) == (command, "")
