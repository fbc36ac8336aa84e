"""Tables around the thresholds of small collectors' parts: every line of what they know, in whole answers."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from llmtop import procfs, remedies
from llmtop.collectors import cgroups, host_checks, pyspy_dump
from llmtop.collectors.metrics_http import NotHttpError
from llmtop.collectors.nvml import facts as nvml_facts
from llmtop.collectors.nvml.errors import GPU_DOWN, explain, explain_code
from llmtop.collectors.privileges import ALL_CAPABILITIES, GRANT, GRANT_TO_CONTAINER, Rights
from llmtop.collectors.scrape_pace import ScrapePace
from llmtop.model import Unknown

MS = 1_000_000


# -- NVML ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words", "remedy", "is_down"),
    [
        ("UNINITIALIZED", "shut down", "restart", True),
        ("INVALID_ARGUMENT", "does not know the request", "newer driver", False),
        ("NOT_SUPPORTED", "does not report it", "", False),
        ("NO_PERMISSION", "no permission", "join the group", False),
        ("NOT_FOUND", "no such object", "", False),
        ("DRIVER_NOT_LOADED", "not loaded", "modprobe", True),
        ("LIBRARY_NOT_FOUND", "libnvidia-ml.so.1 not found", "install the driver", False),
        ("FUNCTION_NOT_FOUND", "does not have it", "upgrade the driver", False),
        ("GPU_IS_LOST", "lost", "drain", True),
        ("RESET_REQUIRED", "needs a reset", "--gpu-reset", True),
        ("OPERATING_SYSTEM", "operating system refused", "dmesg", False),
        ("LIB_RM_VERSION_MISMATCH", "differ in version", "reboot", True),
        ("NO_DATA", "no data yet", "", False),
        ("ARGUMENT_VERSION_MISMATCH", "does not have it", "nvidia-ml-py", False),
        ("UNKNOWN", "only Unknown Error", "restart the container", False),
        ("TIMEOUT", "NVML error 10", "", False),
    ],
)
def test_return_codes_are_told_by_nvmls_own_names(name: str, words: str, remedy: str, is_down: bool) -> None:
    code = getattr(pynvml, f"NVML_ERROR_{name}")
    why = explain_code(code)
    assert words in why.reason
    assert (remedy in why.remedy, bool(remedy)) == (True, bool(why.remedy))
    assert (code in GPU_DOWN) is is_down
    assert explain(pynvml.NVMLError(code)) == why


def test_errors_that_are_not_nvmls() -> None:
    assert explain(UnicodeDecodeError("utf-8", b"x", 0, 1, "odd")) == Unknown("the driver's answer is not text")
    assert explain(ValueError("o\x1bdd")) == Unknown("NVML failed: ValueError: o␛dd")


@pytest.mark.parametrize(
    ("capability", "lanes"),
    [((5, 2), 128), ((6, 0), 64), ((6, 1), 128), ((7, 0), 64), ((7, 2), 64), ((7, 5), 64), ((8, 0), 64), ((8, 6), 128),
     ((8, 9), 128), ((9, 0), 128), ((10, 0), 128), ((12, 0), 128)],
)  # fmt: skip
def test_lanes_of_a_multiprocessor_by_architecture(capability: tuple[int, int], lanes: int) -> None:
    nvml = SimpleNamespace(
        nvmlDeviceGetNumGpuCores=lambda handle: 132 * lanes,
        nvmlDeviceGetCudaComputeCapability=lambda handle: capability,
    )
    assert nvml_facts.sm_count(nvml, None) == 132


@pytest.mark.parametrize(
    ("fields", "remapping", "action"),
    [
        ({144: 0, 145: 0, 230: 0}, "none", "none"),
        ({144: 1, 145: 0, 230: 1}, "pending", "reset the GPU"),
        ({144: 1, 145: 1, 230: 2}, "failed", "reboot the machine"),
        ({144: 0, 145: 1, 230: 7}, "failed", "reboot the whole system"),
        ({144: 0, 145: 0, 230: 8}, "none", "action 8 of NVML's list"),
    ],
)
def test_rows_of_memory_and_what_the_driver_wants_done(
    monkeypatch: pytest.MonkeyPatch, fields: dict[int, int], remapping: str, action: str
) -> None:
    assert (pynvml.NVML_FI_DEV_REMAPPED_PENDING, pynvml.NVML_FI_DEV_REMAPPED_FAILURE) == (144, 145)
    monkeypatch.setattr(nvml_facts, "field", lambda nvml, handle, number: fields[number])
    assert (nvml_facts._row_remapping(None, None), nvml_facts._recovery_action(None, None)) == (remapping, action)


# -- the host ------------------------------------------------------------------------------------------------------


def rights(uid: int, *capabilities: str) -> Rights:
    return Rights(uid, frozenset(capabilities))


USER, ROOT = rights(1000), rights(0, *ALL_CAPABILITIES)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What there is of /proc, by path."""
    found: dict[str, str] = {}
    monkeypatch.setattr(procfs, "read_text", lambda path: found.get(str(path)))
    monkeypatch.setattr(procfs, "read_bytes", lambda path: found[str(path)].encode() if str(path) in found else None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return found


@pytest.mark.parametrize(
    ("mounts", "uid", "hides"),
    [
        ("proc /proc proc rw,hidepid=2 0 0", 1000, True),
        ("proc /proc proc rw,hidepid=invisible", 1000, True),
        ("proc /proc proc rw,hidepid=2 0 0", 0, False),
        ("proc /proc proc rw,hidepid=0 0 0", 1000, False),
        ("proc /proc proc rw,hidepid=off 0 0", 1000, False),
        ("proc /proc proc rw 0 0", 1000, False),
        ("proc /mnt/proc proc rw,hidepid=2 0 0", 1000, False),
        ("proc /proc proc\nproc /proc proc rw,hidepid=0 0 0\nproc /proc proc rw,hidepid=1 0 0", 1000, True),
        ("", 1000, False),
    ],
)
def test_a_proc_that_hides_processes(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, mounts: str, uid: int, hides: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    files["/proc/mounts"] = mounts
    hidden = Unknown("/proc hides other users' processes", "sudo mount -o remount,hidepid=0 /proc")
    assert host_checks._hidepid() == (hidden if hides else "visible")


@pytest.mark.parametrize(
    ("scope", "who", "state"),
    [
        (None, USER, "allowed for this user's processes (no Yama)"),
        (None, ROOT, "allowed for all processes"),
        ("0\n", USER, "allowed (ptrace_scope 0)"),
        ("1\n", USER, Unknown("ptrace is for a process's own parents only (ptrace_scope 1)",
                              "sudo sysctl kernel.yama.ptrace_scope=0, or sudo llmtop ...")),
        ("2\n", USER, Unknown("ptrace is for root only (ptrace_scope 2)",
                              "sudo sysctl kernel.yama.ptrace_scope=0, or sudo llmtop ...")),
        ("2\n", ROOT, "allowed (ptrace_scope 2)"),
        ("3\n", ROOT, Unknown("ptrace is off until the next boot (ptrace_scope 3)",
                              "echo kernel.yama.ptrace_scope=1 | sudo tee /etc/sysctl.d/10-ptrace.conf, and reboot")),
    ],
)  # fmt: skip
def test_levels_of_ptrace(files: dict[str, str], scope: str | None, who: Rights, state: str | Unknown) -> None:
    if scope is not None:
        files["/proc/sys/kernel/yama/ptrace_scope"] = scope
    assert host_checks._ptrace(who, Path("/")) == state


@pytest.mark.parametrize(
    ("level", "who", "state"),
    [
        (None, USER, Unknown("this kernel has no perf events", "a kernel with CONFIG_PERF_EVENTS=y is needed")),
        ("-1", USER, "kernel and user stacks (perf_event_paranoid -1)"),
        ("1", USER, "kernel and user stacks (perf_event_paranoid 1)"),
        ("2", USER, Unknown("no perf stacks of the kernel (perf_event_paranoid 2)",
                            "sudo sysctl kernel.perf_event_paranoid=1")),
        ("3", USER, Unknown("perf is for root only (perf_event_paranoid 3)",
                            "sudo sysctl kernel.perf_event_paranoid=1")),
        ("4", ROOT, "kernel and user stacks (perf_event_paranoid 4)"),
    ],
)  # fmt: skip
def test_levels_of_perf_events(files: dict[str, str], level: str | None, who: Rights, state: str | Unknown) -> None:
    if level is not None:
        files["/proc/sys/kernel/perf_event_paranoid"] = level
    assert host_checks._perf_events(who, Path("/")) == state


@pytest.mark.parametrize(
    ("level", "who", "is_shown"),
    [(None, USER, True), ("0", USER, True), ("1", USER, False), ("1", ROOT, True), ("2", ROOT, False)],
)
def test_names_of_the_kernels_functions(files: dict[str, str], level: str | None, who: Rights, is_shown: bool) -> None:
    if level is not None:
        files["/proc/sys/kernel/kptr_restrict"] = f"{level}\n"
    hidden = Unknown(f"stacks show no kernel functions (kptr_restrict {level})", "sudo sysctl kernel.kptr_restrict=0")
    assert host_checks._kernel_names(who, Path("/")) == (f"shown (kptr_restrict {level or 0})" if is_shown else hidden)


def test_who_asks_and_what_that_lets_it_see(files: dict[str, str]) -> None:
    see = rights(1000, "CAP_SYS_PTRACE")
    assert host_checks._user(ROOT) == "root: all processes can be read"
    assert host_checks._user(see) == "user 1000 with CAP_SYS_PTRACE: all processes can be read"
    assert host_checks._user(USER).startswith("user 1000: only this user's processes can be read in full")
    every = " ".join(ALL_CAPABILITIES)
    others = " ".join(one for one in ALL_CAPABILITIES if one != "CAP_SYS_PTRACE")
    assert host_checks._capabilities(ROOT) == f"all that llmtop uses: {every}"
    assert host_checks._capabilities(USER) == Unknown(f"none of {every}", GRANT)
    assert host_checks._capabilities(see) == Unknown(f"only CAP_SYS_PTRACE, not {others}", GRANT)
    lacks = Unknown(f"this container's root lacks {others}", GRANT_TO_CONTAINER)
    assert host_checks._capabilities(rights(0, "CAP_SYS_PTRACE")) == lacks


def test_what_the_kernel_tells_of_threads(files: dict[str, str]) -> None:
    hidden = Unknown("wait channels of others' threads are hidden", "run llmtop as the server's user, or with sudo")
    none = Unknown("this kernel names no wait channels: system calls are used instead")
    for channel, user, root in (
        ("0", hidden, none),
        ("", hidden, none),
        ("ep_poll", *["kernel functions in which threads wait"] * 2),
    ):
        files["/proc/1/wchan"] = channel
        assert (host_checks._wait_channel(USER), host_checks._wait_channel(ROOT)) == (user, root)
    no_psi = Unknown("no pressure-stall information", "boot with psi=1 (kernel with CONFIG_PSI=y)")
    no_waits = Unknown("this kernel counts no run-queue wait", "a kernel with CONFIG_SCHED_INFO=y is needed")
    assert (host_checks._pressure(), host_checks._schedstat()) == (no_psi, no_waits)
    files |= {"/proc/pressure/cpu": "some", "/proc/self/schedstat": "1 2 3"}
    assert host_checks._pressure() == "/proc/pressure/cpu"
    assert host_checks._schedstat() == "on-CPU time and run-queue wait in ns"


# -- py-spy --------------------------------------------------------------------------------------------------------


def test_what_py_spy_says_that_is_not_understood_asks_for_a_newer_one() -> None:
    newer = remedies.install(pyspy_dump.PACKAGE, newer=True)
    assert " -U" in newer or "upgrade" in newer
    odd = Unknown("py-spy wrote something that is not JSON", newer)
    assert [pyspy_dump.parse(said) for said in (b"", b"{", b"\xff", b"[" * 200_000)] == [odd] * 4
    unknown = Unknown("py-spy wrote something that llmtop does not know", newer)
    assert [pyspy_dump.parse(said) for said in (b"{}", b"5", b"null")] == [unknown] * 3
    assert pyspy_dump.parse(b"[]") == ()
    stripped = pyspy_dump.why_failed(7, "Error: Failed to find python version from target process")
    assert stripped.remedy == newer


@pytest.mark.parametrize(
    ("scope", "uid", "reason", "remedy"),
    [
        ("3", 0, "ptrace_scope is 3, which forbids it until the next boot", "kernel.yama.ptrace_scope=1"),
        ("1", 0, "this container has no CAP_SYS_PTRACE", "docker run --cap-add SYS_PTRACE ..."),
        ("1", 1000, "ptrace_scope is 1", "sudo llmtop ... (or sudo sysctl kernel.yama.ptrace_scope=0)"),
        ("2", 1000, "ptrace_scope is 2", "sudo llmtop ... (or sudo sysctl kernel.yama.ptrace_scope=0)"),
        ("0", 1000, "it is another user's", "sudo llmtop ..."),
        (None, 1000, "it is another user's", "sudo llmtop ..."),
    ],
)
def test_why_a_process_may_not_be_read(
    monkeypatch: pytest.MonkeyPatch, scope: str | None, uid: int, reason: str, remedy: str
) -> None:
    told = f"{scope}\n" if scope else None
    monkeypatch.setattr(procfs, "read_text", lambda path: told if str(path).endswith("yama/ptrace_scope") else None)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert pyspy_dump.why_denied(7) == Unknown(f"py-spy may not read process 7: {reason}", remedy)


# -- how often a page is asked for ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pages_ms", "beside_ms", "cost_ms", "wait_ms", "is_open"),
    [
        ([], [], 0, 0, False),
        ([500, 400], [], 400, 0, True),
        ([500, 400, 600], [], 400, 7600, True),
        ([50] * 3, [], 50, 0, False),
        ([51] * 3, [], 51, 969, True),
        ([600] * 3, [], 600, 10_000, True),
        ([500] * 3, [(500, 300)], 200, 3800, True),
        ([500] * 3, [(500, 300), (500, 440), (500, 200)], 60, 1140, True),
        ([500] * 3, [(500, 300)] * 4, 200, 3800, False),
        ([500] * 3, [(500, 450)] * 3, 50, 0, True),
        ([500] * 3, [(300, 500)], 0, 0, True),
        ([500] * 3, [(500, 490), *[(500, 300)] * 4], 200, 3800, False),
    ],
)
def test_pages_are_spread_out_by_what_they_cost(
    pages_ms: list[int], beside_ms: list[tuple[int, int]], cost_ms: int, wait_ms: int, is_open: bool
) -> None:
    """The first two pages may come late for reasons of their own; of comparisons the last four count."""
    pace = ScrapePace()
    for page in pages_ms:
        pace.took(page * MS)
    for page, nothing in beside_ms:
        pace.took_beside(page * MS, nothing * MS)
    assert (pace.cost_ns, pace.wait_ns, pace.is_cost_open) == (cost_ms * MS, wait_ms * MS, is_open)
    assert pace.own_ns == (cost_ms * MS if beside_ms else None)


# -- what answers in place of HTTP ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("said", "is_tls"), [(b"\x15\x03\x01\x00\x02", True), (b"\x15", True), (b"SSH-2.0", False)])
def test_an_alert_of_tls_is_told_from_other_words(said: bytes, is_tls: bool) -> None:
    """RFC 8446, 5.1: its first byte is 21."""
    assert NotHttpError(said).is_tls is is_tls


# -- where a process is in the hierarchy of cgroups ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("memberships", "folder", "path"),
    [
        ("0::/user.slice", ".", "/user.slice"),
        ("0::/pod:7/c:1", ".", "/pod:7/c:1"),
        ("4:cpu,cpuacct:/a:b\n3:memory:/m\n0::/u", "cpu,cpuacct", "/a:b"),
        ("3:memory:/m\n0::/u", ".", "/u"),
    ],
)
def test_the_group_of_a_process_by_version(memberships: str, folder: str, path: str, tmp_path: Path) -> None:
    """Paths may have colons in them: the first two are those that divide the fields."""
    (tmp_path / "cpu,cpuacct").mkdir()
    assert cgroups._own_folder(memberships, tmp_path) == (tmp_path / folder, path)
