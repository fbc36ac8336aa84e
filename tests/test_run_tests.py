"""`make test` leaves nothing behind, however it ends, and a test that hangs fails alone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
RUN_TESTS = ROOT / "scripts" / "run-tests"
HANGS = """
import os, subprocess

def test_that_starts_a_daemon_and_waits():
    daemon = "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); print(os.getpid()); "
    daemon += "import sys; sys.stdout.close(); os.close(1); time.sleep(1000)"
    with subprocess.Popen(["python3", "-c", daemon], stdout=subprocess.PIPE, text=True) as child:
        pid = int(child.stdout.read())
    with subprocess.Popen(["sleep", "1000"]) as child:
        with open(os.environ["READY"], "w") as ready:
            ready.write(f"{pid} {child.pid} {os.environ['TMPDIR']}")
        child.wait()
"""


@pytest.mark.parametrize(
    ("who", "number"),
    [("front", signal.SIGTERM), ("front", signal.SIGKILL), ("keeper", signal.SIGKILL), ("pytest", signal.SIGKILL)],
)
def test_an_ended_run_leaves_no_process_and_no_file(who: str, number: int, tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    os.mkfifo(tmp_path / "ready")
    command = [sys.executable, str(RUN_TESTS), "-q", "-n1", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)]
    environment = os.environ | {"READY": str(tmp_path / "ready")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as front:
        daemon, sleeper, folder = (tmp_path / "ready").read_text().split()
        (keeper,) = psutil.Process(front.pid).children()
        controller = min(keeper.children(), key=psutil.Process.create_time)  # the other one is the daemon
        below = {int(daemon), int(sleeper), keeper.pid, *(one.pid for one in keeper.children(recursive=True))}
        handles = {pid: os.pidfd_open(pid) for pid in below}
        os.kill({"front": front.pid, "keeper": keeper.pid, "pytest": controller.pid}[who], number)
    for handle in handles.values():
        assert select.select([handle], [], [], 60)[0], "a process goes on"
        os.close(handle)
    assert front.returncode != 0
    assert not Path(folder).exists()


def test_a_test_that_waits_for_ever_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(
        "import subprocess, pytest\n"
        "@pytest.mark.limit(0.5)\n"
        "def test_hang():\n"
        "    with subprocess.Popen(['sleep', '1000']) as child:\n"
        "        child.wait()\n"
        "def test_after(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.time_limits", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "longer than its limit of 0.5 s" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
