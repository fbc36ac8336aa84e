"""PID namespaces: the server in one, llmtop in one, both in one."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmtop import procfs
from llmtop.collectors.privileges import pid_namespace
from llmtop.model import Unknown
from tests.collectors.tracing.probes import eventually, needs_unshare, probing
from tests.workloads.noise import measured_again
from tests.workloads.programs import Workload, started

pytestmark = pytest.mark.usefixtures("kernel_probes")
OWN = ("--pid", "--fork", "--mount-proc")
NANOSLEEPS = (35, 230, 115, 101)
"""nanosleep and clock_nanosleep on x86-64 and arm64."""
ROOT = Path(__file__).resolve().parents[3]
TRUTHS = (
    "counts_are_exact_over_threads_and_children",
    "programs_own[raw",
    "held[single",
)
"""Of test_probes.py: what must be as true inside a PID namespace as outside."""


@contextmanager
def contained(*argv: str | Path) -> Iterator[tuple[Workload, int]]:
    """A workload in a PID namespace of its own, and its PID as this process sees it."""
    needs_unshare(*OWN)
    if isinstance(why := pid_namespace(), Unknown):
        pytest.skip(f"from within a PID namespace none further in can be watched: {why.reason}")
    with Workload("unshare", "--kill-child", *OWN, *argv) as program:
        (pid,) = procfs.family().descendants(program.pid)
        yield program, pid


def inside(code: str, *arguments: str, own: tuple[str, ...] = OWN) -> str:
    """What a Python program prints that runs in a PID namespace."""
    needs_unshare(*own)
    program = ["unshare", *own, sys.executable, "-c", code, *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@measured_again
def test_a_server_in_a_container_is_watched_by_its_pid_on_the_host(workload: Path) -> None:
    with contained(workload, "nanosleep") as (program, pid):
        assert procfs.innermost_pid(pid) == 1
        with probing(pid, options=["--stacks"]) as probes:
            program.start()
            account = program.account()
            probes.next()
            slept = sum(probes.slept(pid, pid).get(call, 0) for call in NANOSLEEPS)
    assert slept / account["wall"] == pytest.approx(account["in_wait"] / account["wall"], abs=0.05)
    assert any("sleep_here" in entry[5] for entry in probes.all("stacks")), "its functions have names"


def test_inside_a_namespace_everything_is_as_true_as_outside() -> None:
    """The ids that tracepoints carry are the machine's there, and name other threads or none."""
    needs_unshare(*OWN)
    wanted = " or ".join(TRUTHS)
    probes = str(Path(__file__).with_name("test_probes.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", probes, "-k", wanted]
    done = subprocess.run(["unshare", *OWN, *command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(TRUTHS)} passed" in done.stdout
    assert "skipped" not in done.stdout


FIRST_REPORT = """
import os, select, sys
from llmtop.collectors.tracing.probes.collector import PROGRAM
from llmtop.collectors.tracing.process import HelperProcess
helper = HelperProcess([sys.argv[1] if len(sys.argv) > 1 else str(os.getpid())], program=PROGRAM)
said = []
while not said:
    select.select([helper], [], [], 30)
    said = helper.reports()
report = said[0]
print(report["kind"], report.get("reason"), report.get("remedy"), sep="|")
helper.close()
"""


def test_a_proc_of_another_namespace_is_one_line() -> None:
    said = inside(FIRST_REPORT, own=("--pid", "--fork"))
    assert said == (
        "unavailable|llmtop runs in a PID namespace of its own, and /proc shows another one"
        "|docker run --pid=host --privileged ..., or unshare with --mount-proc"
    )


def test_a_server_in_a_namespace_further_in_is_one_line() -> None:
    code = f"""
import subprocess, sys
with subprocess.Popen(["unshare", "--kill-child", *{OWN!r}, "sleep", "100"]) as nested:
    children = f"/proc/{{nested.pid}}/task/{{nested.pid}}/children"
    while not (pids := open(children).read().split()):
        pass
    sys.argv[1:] = pids
    exec({FIRST_REPORT!r})
    nested.kill()
"""
    assert inside(code) == (
        "unavailable|the server runs in a PID namespace inside llmtop's"
        "|run llmtop on the host, or in a container with --pid=host --privileged"
    )


def test_a_waker_outside_the_namespace_has_no_number() -> None:
    """An event of the host's must not be told under the id of an innocent thread, nor as a timer's."""
    code = """
import os, sys
from tests.collectors.tracing.probes import probing
pid = os.fork()
if not pid:
    while os.read(0, 1):
        pass
    os._exit(0)
with probing(pid) as probes:
    probes.next()
    print("ready", flush=True)
    probes.until(lambda _: any(entry[:2] == [pid, pid] and entry[3] >= 20 for entry in probes.all("wakes")))
    wakes = {entry[2]: entry[3] for entry in probes.all("wakes") if entry[:2] == [pid, pid]}
    print(max(wakes, key=wakes.get))
os.kill(pid, 9)
"""
    needs_unshare(*OWN)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["unshare", "--kill-child", *OWN, sys.executable, "-c", code]
    with started(command, stdin=subprocess.PIPE, bufsize=1, cwd=ROOT, env=env) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        stdin, stdout = program.stdin, program.stdout

        def wake() -> bool:
            stdin.write("x")
            stdin.flush()
            return bool(select.select([stdout], [], [], 0.01)[0])

        assert eventually(wake)
        assert program.stdout.readline() == f"{0xFFFFFFFF}\n"
