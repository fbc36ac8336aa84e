"""Remedies name the command that works the way llmtop was installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from llmtop import remedies

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of an ordinary user, who works elsewhere, with llmtop in an environment in it."""
    for cached in (remedies.install, remedies.own_command):
        cached.cache_clear()
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(home if name == "purelib" else tmp_path))
    return home


def environment(prefix: Path, monkeypatch: pytest.MonkeyPatch, *files: str) -> Path:
    for name in ("bin/llmtop", "bin/python", *files):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).touch()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", str(prefix / "bin/python"))
    monkeypatch.setattr(sys, "argv", [str(prefix / "bin/llmtop")])
    return prefix


def test_in_a_clone_it_is_the_clones_pip(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(home / "llmtop/.venv", monkeypatch, "bin/pip")
    monkeypatch.chdir(home / "llmtop")
    assert remedies.install("py-spy") == ".venv/bin/pip install py-spy"
    assert remedies.install("py-spy", newer=True) == ".venv/bin/pip install -U py-spy"


def test_from_another_folder_the_path_leads_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(home / "my llmtop/.venv", monkeypatch, "bin/pip")
    assert remedies.install("py-spy>=0.4") == "~/'my llmtop/.venv/bin/pip' install 'py-spy>=0.4'"
    monkeypatch.delenv("HOME")
    assert remedies.typed(home / "a") == str(home / "a")


def test_the_folder_one_stands_in_may_be_gone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(home / ".venv", monkeypatch, "bin/pip")
    Path.cwd().rmdir()
    assert remedies.install("py-spy") == "~/.venv/bin/pip install py-spy"


def test_another_users_environment_takes_sudo(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(home / ".venv", monkeypatch, "bin/pip")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert remedies.install("py-spy") == "sudo ~/.venv/bin/pip install py-spy"


def test_pipx_injects_into_the_environment_that_it_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(home / ".local/share/pipx/venvs/llmtop-monitor-2", monkeypatch, "pipx_metadata.json", "bin/pip")
    assert remedies.install("py-spy") == "pipx inject llmtop-monitor-2 py-spy"
    assert remedies.install("py-spy", newer=True) == "pipx runpip llmtop-monitor-2 install -U py-spy"


def test_pipx_for_all_users(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedies, "PIPX_GLOBAL", home)
    environment(home / "venvs/llmtop-monitor", monkeypatch, "pipx_metadata.json")
    assert remedies.install("py-spy") == "sudo pipx inject --global llmtop-monitor py-spy"


def test_an_environment_without_pip_was_made_by_uv(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(home / "tools/llmtop-monitor", monkeypatch, "uv-receipt.toml")
    assert remedies.install("py-spy") == "uv pip install --python ~/tools/llmtop-monitor py-spy"


@pytest.mark.parametrize("is_managed", [True, False])
def test_a_distributions_python_is_told_that_it_is_meant(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_managed: bool
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(environment(home / "usr", monkeypatch)))
    if is_managed:
        (tmp_path / "EXTERNALLY-MANAGED").touch()
    option = "--user --break-system-packages " if is_managed else ""
    assert remedies.install("py-spy") == f"~/usr/bin/python -m pip install {option}py-spy"


def test_the_command_of_this_environment_runs_here() -> None:
    """The real one, asked only what it would do: nothing is installed or fetched."""
    remedies.install.cache_clear()
    command = [os.path.expanduser(word) for word in shlex.split(remedies.install("psutil"))]  # noqa: PTH111
    done = subprocess.run([*command, "--dry-run", "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)


def test_sudo_is_given_the_path_that_it_does_not_know(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(home / "llmtop/.venv", monkeypatch)
    monkeypatch.chdir(home / "llmtop")
    assert remedies.for_here("sudo llmtop ... (or LLMTOP_SUDO=1)") == "sudo .venv/bin/llmtop ... (or LLMTOP_SUDO=1)"
    assert remedies.for_here("sudo llmtop doctor, or wait") == "sudo .venv/bin/llmtop doctor, or wait"
    assert remedies.for_here("sudo sysctl a=1") == "sudo sysctl a=1"


def test_sudo_knows_a_command_on_its_own_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = environment(home, monkeypatch) / "bin/llmtop"
    program.chmod(0o755)
    monkeypatch.setattr(remedies, "SUDO_PATH", str(program.parent))
    assert remedies.for_here("sudo llmtop ...") == "sudo llmtop ..."


def test_a_module_that_is_run_is_named_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (environment(home, monkeypatch) / "bin/llmtop").unlink()
    monkeypatch.setattr(sys, "argv", ["/usr/lib/llmtop/__main__.py"])
    assert remedies.for_here("sudo llmtop ...") == "sudo ~/bin/python -m llmtop ..."


def test_root_needs_no_sudo(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert remedies.for_here("sudo apt install gdb") == "apt install gdb"


@pytest.mark.parametrize(
    ("manager", "release", "said"),
    [
        ("apt", "ID=debian\n", "sudo apt install linux-perf, or sudo apt install gdb"),
        (
            "apt",
            'ID=linuxmint\nID_LIKE="ubuntu debian"\n',
            "sudo apt install linux-tools-generic, or sudo apt install gdb",
        ),
        ("dnf", "ID=fedora\n", "sudo dnf install perf, or sudo dnf install gdb"),
        ("apk", "", "sudo apk add perf, or sudo apk add gdb"),
        ("", "", "sudo apt install linux-perf, or sudo apt install gdb"),
    ],
)
def test_packages_are_named_as_this_system_has_them(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, release: str, said: str
) -> None:
    environment(home, monkeypatch)
    (tmp_path / "os-release").write_text(release)
    monkeypatch.setattr(remedies, "OS_RELEASE", tmp_path / ("os-release" if release else "none"))
    monkeypatch.setattr(shutil, "which", lambda name, **_: name if name == manager else None)
    remedies.package_system.cache_clear()
    try:
        assert remedies.for_here("sudo apt install linux-perf, or sudo apt install gdb") == said
    finally:
        remedies.package_system.cache_clear()


def test_nothing_advises_to_install_from_an_index_that_does_not_have_it() -> None:
    """llmtop-monitor is on no package index yet: it comes from a clone."""
    sources = [path for part in ("llmtop", "tui", "collectors", "parsers") for path in (ROOT / part).rglob("*.py")]
    texts = [*(ROOT / "docs").rglob("*.md"), *sources]
    advice = re.compile(r"(?:pipx?|uv(?: tool| pip)?) install[^\n`]*llmtop-monitor")
    assert len(texts) > 300
    assert not [str(path) for path in texts if advice.search(path.read_text())]
