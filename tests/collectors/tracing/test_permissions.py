"""Who may load probes, and through what: real capabilities, a stand-in sudo."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from llmtop.collectors import children
from llmtop.collectors.privileges import USE_SUDO, Rights
from llmtop.collectors.tracing.probes import collector as ebpf_collector
from llmtop.collectors.tracing.probes.collector import EbpfCollector, checks
from llmtop.model import Unknown
from tests.collectors.tracing.collecting import Watch
from tests.collectors.tracing.probes import eventually, needs_unshare, owned, programs_in_kernel
from tests.workloads.programs import Workload, target_of

pytestmark = pytest.mark.usefixtures("kernel_probes")

SYSTEM_PYTHON = "/usr/bin/python3"
"""What an ordinary user can run, wherever the tests' own interpreter is."""
ROOT = Path(__file__).resolve().parents[3]
NOBODY_ID = 65534
ALL = "+bpf,+perfmon,+sys_ptrace,+dac_read_search"
MOUNTED = "mount -t tracefs tracefs /sys/kernel/tracing 2> /dev/null"
NOT_MOUNTED = "umount /sys/kernel/tracing /sys/kernel/debug/tracing /sys/kernel/debug 2> /dev/null"

LOOK = """
import sys, time
from llmtop.collectors.tracing.probes.collector import EbpfCollector, why_not
from llmtop.model import Target
why = why_not()
if why is not None:
    sys.exit(f"{why.reason}|{why.remedy}")
pid = int(sys.argv[1])
with EbpfCollector(Target(pid, pid, "process", "a program", ()), interval_s=0.1, budget=100) as collector:
    deadline, seen, trace = time.monotonic() + 30, set(), None
    while time.monotonic() < deadline and (len(seen) < 3 or trace.missing):
        trace = collector.poll()
        names = {reading.metric.name.partition("|")[0] for reading in trace.readings}
        seen |= names & {"syscall.count", "thread.blocked", "process.run_queue_latency"}
        if collector.unavailable:
            sys.exit(f"{collector.unavailable.reason}|{collector.unavailable.remedy}")
    print(*sorted(seen), *(missing.what for missing in trace.missing))
"""


def as_nobody(capabilities: str, tracefs: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as an ordinary user with these capabilities, and with tracefs mounted or not."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become another user")
    needs_unshare("--mount")
    readable = subprocess.run(
        ["setpriv", "--reuid", f"{NOBODY_ID}", "--clear-groups", SYSTEM_PYTHON, "-c", "import tomllib, llmtop"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if readable.returncode:
        pytest.skip(f"an ordinary user cannot run llmtop with the system's Python: {readable.stderr.strip()[-100:]}")
    given = ["--inh-caps", capabilities, "--ambient-caps", capabilities] if capabilities else []
    become = ["setpriv", "--reuid", f"{NOBODY_ID}", "--regid", f"{NOBODY_ID}", "--clear-groups", *given]
    program = [*become, SYSTEM_PYTHON, "-c", code, *arguments]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{tracefs}; exec "$@"', "sh", *program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_four_capabilities_do_what_root_does(workload: Path) -> None:
    with Workload(workload, "nanosleep", "0") as program:
        program.start()
        done = as_nobody(ALL, MOUNTED, LOOK, str(program.pid))
    assert done.stdout.split() == ["process.run_queue_latency", "syscall.count", "thread.blocked"], done.stderr


@pytest.mark.parametrize(
    ("capabilities", "tracefs", "reason", "remedy"),
    [
        ("", MOUNTED, "only root may load probes", "sudo llmtop ..."),
        ("+bpf,+sys_ptrace", MOUNTED, "only root may load probes", "sudo llmtop ..."),
        ("+bpf,+perfmon", MOUNTED, "tracefs is for root's eyes only", "sudo llmtop ..."),
        (ALL, NOT_MOUNTED, "tracefs is not mounted", "sudo mount -t tracefs tracefs /sys/kernel/tracing"),
    ],
)
def test_each_lack_is_one_line(workload: Path, capabilities: str, tracefs: str, reason: str, remedy: str) -> None:
    with Workload(workload, "spin") as program:
        done = as_nobody(capabilities, tracefs, LOOK, str(program.pid))
    assert done.stderr.strip().split("|")[0] == reason
    assert done.stderr.strip().split("|")[1].startswith(remedy)


def test_root_mounts_tracefs_for_its_helper_alone(workload: Path) -> None:
    needs_unshare("--mount")
    with Workload(workload, "nanosleep", "0") as program:
        program.start()
        script = f"{NOT_MOUNTED}; \"$@\" && ! grep -q ' /sys/kernel/tracing ' /proc/mounts"
        command = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", LOOK, str(program.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "thread.blocked" in done.stdout


@pytest.fixture
def user_with_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process takes itself for an ordinary user's, and finds a sudo that runs a command and waits for its end."""
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] || exit 9\nshift\n"$@"\n')
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv(USE_SUDO, "1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("llmtop.collectors.privileges.own_rights", lambda: Rights(1000, frozenset()))
    monkeypatch.setattr(ebpf_collector, "own_rights", lambda: Rights(1000, frozenset()))
    return sudo


@pytest.mark.usefixtures("user_with_sudo")
def test_the_helper_runs_through_sudo_and_is_known_by_its_own_pid(workload: Path) -> None:
    with (
        Workload(workload, "spin") as program,
        EbpfCollector(target_of(program.pid), interval_s=0.1, budget=100) as collector,
    ):
        (sudo,) = children.running()
        watch = Watch(collector)
        watch.until_ready()
        (helper,) = set(children.running()) - {sudo}
        assert programs_in_kernel(helper) >= 7, "its cost is llmtop's own"
    assert children.running() == ()
    assert eventually(lambda: not Path(f"/proc/{helper}").exists())


def test_a_sudo_that_wants_a_password_is_one_line_for_good(workload: Path, user_with_sudo: Path) -> None:
    user_with_sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n")
    with Workload(workload, "spin") as program, EbpfCollector(target_of(program.pid)) as collector:
        watch = Watch(collector)
        watch.until(lambda _: collector.unavailable)
    assert collector.unavailable == Unknown(
        "sudo refuses: a password is required", "sudo llmtop ..., or a sudo rule that asks no password (NOPASSWD)"
    )
    (check,) = checks()
    assert check.state == Unknown(
        "the helper failed: sudo: a password is required",
        "sudo llmtop ..., or a sudo rule that asks no password (NOPASSWD)",
    )


@pytest.mark.usefixtures("user_with_sudo")
def test_a_helper_through_sudo_ends_when_llmtop_is_killed(workload: Path) -> None:
    with Workload(workload, "spin") as program:
        with owned(program.pid, sudo=True) as (owner, helper):
            assert programs_in_kernel(helper) >= 7
            owner.send_signal(signal.SIGKILL)
        assert eventually(lambda: not Path(f"/proc/{helper}").exists()), "nothing is left attached"
