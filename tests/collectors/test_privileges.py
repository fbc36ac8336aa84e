"""What rights and settings of the kernel allow: on machines that are made of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.collectors import host_checks, privileges
from llmtop.collectors.privileges import ALL_CAPABILITIES, Rights, own_rights, tracefs, why_no_probes
from llmtop.model import Unknown

NOBODY = Rights(1000, frozenset())
ROOT_USER = Rights(0, frozenset({*ALL_CAPABILITIES, "CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"}))
CAPABLE = Rights(1000, frozenset(ALL_CAPABILITIES))
CONTAINER_ROOT = Rights(0, frozenset({"CAP_DAC_OVERRIDE"}))
SUDO = "sudo llmtop ..."


def machine(folder: Path, *, has_tracefs: bool = True, **settings: str) -> Path:
    """A /proc and /sys with these settings; "__" in a name stands for "/"."""
    files = {f"proc/sys/kernel/{name.replace('__', '/')}": value for name, value in settings.items()}
    if "lockdown" in settings:
        files["sys/kernel/security/lockdown"] = files.pop("proc/sys/kernel/lockdown")
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{value}\n")
    if has_tracefs:
        (folder / "sys/kernel/tracing/events").mkdir(parents=True)
    return folder


def check(what: str, rights: Rights, root: Path) -> str | Unknown:
    return next(one.state for one in host_checks.checks(rights, root) if one.what.startswith(what))


def refusal(state: str | Unknown | None) -> tuple[str, str]:
    assert isinstance(state, Unknown), state
    return state.reason, state.remedy


def test_wider_capabilities_include_the_narrow_ones() -> None:
    assert Rights(0, frozenset({"CAP_SYS_ADMIN"})).has("CAP_BPF", "CAP_PERFMON")
    assert Rights(0, frozenset({"CAP_DAC_OVERRIDE"})).has("CAP_DAC_READ_SEARCH")
    assert not Rights(0, frozenset({"CAP_SYS_ADMIN"})).has("CAP_SYS_PTRACE")
    assert NOBODY.lacks(*ALL_CAPABILITIES) == ALL_CAPABILITIES


def test_own_rights_are_read_from_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.procfs.read_text", lambda path: "CapPrm:\tffffffff\nCapEff:\t000000c000000004\n")
    assert own_rights().capabilities == {"CAP_DAC_READ_SEARCH", "CAP_PERFMON", "CAP_BPF"}


@pytest.mark.parametrize(
    ("wants", "has_sudo", "rights", "told"),
    [
        ("1", True, NOBODY, True),
        ("", True, NOBODY, False),
        ("1", False, NOBODY, False),
        ("1", True, Rights(1, frozenset()), True),
        ("1", True, ROOT_USER, False),
        ("1", True, CONTAINER_ROOT, False),  # it would be no other
        ("1", True, CAPABLE, False),
    ],
)
def test_a_helper_goes_through_sudo_where_the_user_wants_it_and_needs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wants: str, has_sudo: bool, rights: Rights, told: bool
) -> None:
    monkeypatch.setenv(privileges.USE_SUDO, wants)
    monkeypatch.setattr("llmtop.programs.find", lambda name: "/usr/bin/sudo" if has_sudo else None)
    monkeypatch.setattr("os.geteuid", lambda: rights.uid)
    monkeypatch.setattr(privileges, "own_rights", lambda: rights)
    kernel, refusal = machine(tmp_path), privileges.why_no_probes
    monkeypatch.setattr(privileges, "why_no_probes", lambda rights: refusal(rights, kernel))
    assert privileges.through_sudo() is told


def test_root_and_capable_users_may_load_probes(tmp_path: Path) -> None:
    root = machine(tmp_path)
    assert why_no_probes(ROOT_USER, root) is None
    assert why_no_probes(CAPABLE, root) is None


def test_an_ordinary_user_is_told_of_sudo(tmp_path: Path) -> None:
    reason, remedy = refusal(why_no_probes(NOBODY, machine(tmp_path)))
    assert reason == "only root may load probes"
    assert remedy == "sudo llmtop ... (or LLMTOP_SUDO=1 where sudo asks no password)"


def test_a_containers_root_is_told_of_its_flags(tmp_path: Path) -> None:
    reason, remedy = refusal(why_no_probes(CONTAINER_ROOT, machine(tmp_path)))
    assert reason == "this container's root may not load probes (no CAP_BPF, no CAP_PERFMON)"
    assert remedy == "docker run --pid=host --privileged ... (Kubernetes: hostPID and privileged, both true)"


def test_a_locked_down_kernel_is_told_whoever_asks(tmp_path: Path) -> None:
    root = machine(tmp_path, lockdown="none integrity [confidentiality]")
    for rights in (NOBODY, ROOT_USER):
        reason, remedy = refusal(why_no_probes(rights, root))
        assert reason == "the kernel is locked down (confidentiality)"
        assert remedy.startswith("boot with lockdown=integrity")
    assert refusal(check("kernel lockdown", ROOT_USER, root))[1].startswith("boot with lockdown=integrity")


@pytest.mark.parametrize("mode", ["[none] integrity confidentiality", "none [integrity] confidentiality"])
def test_milder_lockdowns_hinder_nothing(tmp_path: Path, mode: str) -> None:
    root = machine(tmp_path, lockdown=mode)
    assert why_no_probes(ROOT_USER, root) is None
    assert isinstance(check("kernel lockdown", ROOT_USER, root), str)


def test_tracefs_that_is_not_mounted(tmp_path: Path) -> None:
    root = machine(tmp_path, has_tracefs=False)
    assert tracefs(ROOT_USER, root) == "not mounted: the probes' helper mounts it for itself alone"
    reason, remedy = refusal(why_no_probes(CAPABLE, root))
    assert reason == "tracefs is not mounted"
    assert remedy.startswith("sudo mount -t tracefs tracefs /sys/kernel/tracing")
    (root / "sys/kernel/debug/tracing/events").mkdir(parents=True)
    assert tracefs(CAPABLE, root) == str(root / "sys/kernel/debug/tracing/events")


def test_tracefs_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "iterdir", denied)
    reason, remedy = refusal(tracefs(CAPABLE, machine(tmp_path)))
    assert reason == "tracefs is for root's eyes only"
    assert remedy.endswith("the capability CAP_DAC_READ_SEARCH too")


@pytest.mark.parametrize(
    ("level", "reason", "remedy"),
    [
        ("1", "ptrace is for a process's own parents only (ptrace_scope 1)", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("2", "ptrace is for root only (ptrace_scope 2)", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("3", "ptrace is off until the next boot (ptrace_scope 3)", "echo kernel.yama.ptrace_scope=1 | sudo tee"),
    ],
)
def test_levels_of_yama(tmp_path: Path, level: str, reason: str, remedy: str) -> None:
    root = machine(tmp_path, yama__ptrace_scope=level)
    said, command = refusal(check("ptrace", NOBODY, root))
    assert said == reason
    assert command.startswith(remedy)
    with_right = check("ptrace", CAPABLE, root)
    assert isinstance(with_right, Unknown) == (level == "3")


def test_ptrace_that_is_allowed(tmp_path: Path) -> None:
    assert check("ptrace", NOBODY, machine(tmp_path, yama__ptrace_scope="0")) == "allowed (ptrace_scope 0)"
    assert check("ptrace", NOBODY, tmp_path / "none") == "allowed for this user's processes (no Yama)"


@pytest.mark.parametrize(
    ("level", "reason"),
    [("2", "no perf stacks of the kernel"), ("3", "perf is for root only"), ("4", "perf is for root only")],
)
def test_levels_of_perf_event_paranoid(tmp_path: Path, level: str, reason: str) -> None:
    root = machine(tmp_path, perf_event_paranoid=level)
    said, command = refusal(check("perf_event_paranoid", NOBODY, root))
    assert said == f"{reason} (perf_event_paranoid {level})"
    assert command == "sudo sysctl kernel.perf_event_paranoid=1"
    assert check("perf_event_paranoid", CAPABLE, root) == f"kernel and user stacks (perf_event_paranoid {level})"


def test_unprivileged_bpf_is_said_to_make_no_difference(tmp_path: Path) -> None:
    said = check("unprivileged_bpf_disabled", NOBODY, machine(tmp_path, unprivileged_bpf_disabled="2"))
    assert said == "2: makes no difference, tracing takes CAP_BPF and CAP_PERFMON"


def test_hidden_kernel_functions(tmp_path: Path) -> None:
    root = machine(tmp_path, kptr_restrict="2")
    assert refusal(check("kernel function names", ROOT_USER, root))[1] == "sudo sysctl kernel.kptr_restrict=0"
    assert check("kernel function names", ROOT_USER, machine(tmp_path / "1", kptr_restrict="1")) == (
        "shown (kptr_restrict 1)"
    )


def test_capabilities_that_lack_are_named_with_the_command_that_grants_them(tmp_path: Path) -> None:
    root = machine(tmp_path)
    assert check("capabilities", CAPABLE, root) == f"all that llmtop uses: {' '.join(ALL_CAPABILITIES)}"
    some = Rights(1000, frozenset({"CAP_BPF", "CAP_PERFMON"}))
    reason, remedy = refusal(check("capabilities", some, root))
    assert reason == "only CAP_BPF CAP_PERFMON, not CAP_SYS_PTRACE CAP_DAC_READ_SEARCH"
    assert "systemd-run" in remedy
    assert "AmbientCapabilities='CAP_BPF CAP_PERFMON CAP_SYS_PTRACE CAP_DAC_READ_SEARCH'" in remedy
    assert "--cap-add" in refusal(check("capabilities", CONTAINER_ROOT, root))[1]


def test_a_container_is_told_that_it_does_not_see_the_host(tmp_path: Path) -> None:
    link = tmp_path / "proc/self/ns/pid"
    link.parent.mkdir(parents=True)
    link.symlink_to("pid:[4026533333]")
    reason, remedy = refusal(check("PID namespace", ROOT_USER, tmp_path))
    assert reason == "llmtop runs in a container: servers outside its PID namespace are not seen"
    assert "--pid=host" in remedy
    link.unlink()
    link.symlink_to("pid:[4026531836]")
    assert check("PID namespace", ROOT_USER, tmp_path) == "the machine's own: all its processes are seen"
