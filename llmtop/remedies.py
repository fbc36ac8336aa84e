"""Remedies as this user runs them, in the way that llmtop was installed: in a clone, by pip, pipx or uv."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROGRAM = "COMMAND"
"""Stands for the command line of the program in question, where it is not known, or not yet."""
TIMELINE = f"nsys profile --trace=cuda,nvtx,osrt --cuda-graph-trace=node --export=sqlite {PROGRAM}"
"""When each kernel ran and who launched it: CUDA graphs by their kernels, and as a database, which llmtop reads."""
AMD_TIMELINE = f"rocprofv3 --sys-trace --output-format pftrace -- {PROGRAM}"
"""The same on a GPU of AMD (ROCm 6.2 and newer), for Perfetto."""
AMD_THREADS = f"rocprof-sys-sample -- {PROGRAM}"
"""With where threads stood (ROCm Systems Profiler, ROCm 6.3 and newer), for Perfetto too."""
PIPX_GLOBAL = Path("/opt/pipx")
"""Where `pipx install --global` keeps its environments (pipx: PIPX_GLOBAL_HOME)."""
SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""secure_path as Debian, Ubuntu and Fedora ship it (sudoers(5)): a clone and ~/.local/bin are not on it."""

OS_RELEASE = Path("/etc/os-release")
_UBUNTU = re.compile(r"(?m)^ID(_LIKE)?=.*\bubuntu\b")
_BY_APT = re.compile(r"\bapt install ([\w.+-]+\w)")
_INSTALL = {
    "apt": "apt install",
    "dnf": "dnf install",
    "zypper": "zypper install",
    "pacman": "pacman -S",
    "apk": "apk add",
}
_PACKAGES = {
    "linux-perf": {
        "ubuntu": "linux-tools-generic",
        "dnf": "perf",
        "zypper": "perf",
        "pacman": "perf",
        "apk": "perf",
    },
}
"""Debian's names where others differ, by what installs them."""

_OR_SUDO = re.compile(r", or (?:with|use) sudo\b")
_WITH_SUDO = re.compile(r" with sudo, or ")
_SUDO = re.compile(r"\bsudo (?=[\w/-])")
_ALTERNATIVES = re.compile(r"([;,] or )(?![^(]*\))")
"""Not those within parentheses."""
_ASIDE = re.compile(r" *\([^)]*\)")
_OWN_NAME = re.compile(r"(?<=\bsudo )llmtop\b|(?<= )llmtop(?= \.\.\.)")


def for_here(remedy: str) -> str:
    """A remedy as this user of this machine can run it."""
    if "sudo" not in remedy:
        return remedy
    remedy = for_system(remedy, package_system())
    return for_root(remedy) if os.geteuid() == 0 else by_path(remedy, own_command())


def for_system(remedy: str, system: str) -> str:
    """A remedy with packages as this system installs and calls them; remedies are written with Debian's names.

    >>> for_system("sudo apt install linux-perf", "dnf"), for_system("sudo apt install linux-perf", "ubuntu")
    ('sudo dnf install perf', 'sudo apt install linux-tools-generic')
    >>> for_system("sudo apt install linux-perf: any version will do", "pacman")
    'sudo pacman -S perf: any version will do'
    """
    command = _INSTALL.get(system, "apt install")
    return _BY_APT.sub(lambda found: f"{command} {_PACKAGES.get(found[1], {}).get(system, found[1])}", remedy)


@cache
def package_system() -> str:
    """How packages are installed here: the manager, or "ubuntu" for its own names of Debian's packages."""
    manager = next((name for name in _INSTALL if shutil.which(name)), "")
    return "ubuntu" if manager == "apt" and _UBUNTU.search(_os_release()) else manager


def _os_release() -> str:
    try:
        return OS_RELEASE.read_text()
    except OSError:
        return ""


def for_root(remedy: str) -> str:
    """A remedy as root needs it: root has no use for sudo, and where it runs containers there is none.

    >>> for_root("sudo apt install perf"), for_root("run llmtop with sudo, or inside the container")
    ('apt install perf', 'run llmtop inside the container')
    >>> for_root("echo 1 | sudo tee /x && sudo sysctl a=1"), for_root("join that group, or use sudo")
    ('echo 1 | tee /x && sysctl a=1', 'join that group')
    """
    return _SUDO.sub("", _WITH_SUDO.sub(" ", _OR_SUDO.sub("", remedy)))


def each_once(remedies: Iterable[str], between: str) -> str:
    """Several remedies as one, without what one before them says already; an aside in parentheses makes no difference.

    >>> each_once(["sudo llmtop ... (or A=1)", "sudo llmtop ..., or be that user", "sudo llmtop ..."], "; or ")
    'sudo llmtop ... (or A=1); or be that user'
    >>> each_once(["join the group, or use sudo", "", "mount it"], "; ")
    'join the group, or use sudo; mount it'
    """
    seen: set[str] = set()
    return between.join(new for remedy in remedies if (new := _new_in(remedy, seen)))


def _new_in(remedy: str, seen: set[str]) -> str:
    words = ""
    separators_and_ways = ("", *_ALTERNATIVES.split(remedy))
    for separator, way in zip(separators_and_ways[::2], separators_and_ways[1::2], strict=True):
        plain = _ASIDE.sub("", way)
        if plain not in seen:
            words += (separator if words else "") + way
        seen.add(plain)
    return words


def by_path(remedy: str, command: str) -> str:
    """A remedy with llmtop called so that sudo finds it.

    >>> by_path("sudo llmtop ..., or sudo systemd-run --pty llmtop ...", ".venv/bin/llmtop")
    'sudo .venv/bin/llmtop ..., or sudo systemd-run --pty .venv/bin/llmtop ...'
    >>> by_path("run llmtop as the server's user, or with sudo", ".venv/bin/llmtop")
    "run llmtop as the server's user, or with sudo"
    """
    return _OWN_NAME.sub(lambda _: command, remedy)


@cache
def own_command() -> str:
    """How to call this llmtop where only the system's folders are on the PATH, as under sudo."""
    started = Path(sys.argv[0]).absolute()
    program = started if started.name == "llmtop" else Path(sys.prefix, "bin", "llmtop")
    if not program.is_file():
        return f"{typed(Path(sys.executable))} -m llmtop"
    found = shutil.which("llmtop", path=SUDO_PATH)
    return "llmtop" if found and program.samefile(found) else typed(program)


@cache
def install(requirement: str, *, newer: bool = False) -> str:
    """The command that puts a package of the package index where this llmtop finds it.

    Args:
        requirement: As pip takes it.
        newer: It is there already, and too old.
    """
    return f"{_installer(newer)} {shlex.quote(requirement)}"


def _installer(newer: bool) -> str:
    prefix, upgrade = Path(sys.prefix), " -U" if newer else ""
    if (prefix / "pipx_metadata.json").exists():
        return _pipx(prefix, newer)
    if sys.prefix == sys.base_prefix:
        return f"{typed(Path(sys.executable))} -m pip install{_system_options()}{upgrade}"
    sudo = "" if os.access(sysconfig.get_path("purelib"), os.W_OK) else "sudo "
    pip = prefix / "bin" / "pip"
    if pip.exists():
        return f"{sudo}{typed(pip)} install{upgrade}"
    return f"{sudo}uv pip install --python {typed(prefix)}{upgrade}"


def _pipx(prefix: Path, newer: bool) -> str:
    """`pipx inject` leaves alone what is there already."""
    sudo, which = ("sudo ", " --global") if prefix.is_relative_to(PIPX_GLOBAL) else ("", "")
    if newer:
        return f"{sudo}pipx runpip{which} {prefix.name} install -U"
    return f"{sudo}pipx inject{which} {prefix.name}"


def _system_options() -> str:
    """What pip wants to be told before it adds to a distribution's own Python (PEP 668)."""
    is_managed = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
    return " --user --break-system-packages" if is_managed else ""


def typed(path: Path) -> str:
    """A path as one types it in this folder: as short as may be, and quoted where a shell needs that."""
    for start, base in _bases():
        if path.is_relative_to(base):
            return start + shlex.quote(f"{path.relative_to(base)}")
    return shlex.quote(f"{path}")


def _bases() -> Iterator[tuple[str, Path]]:
    """Folders that a path may begin at; this one may be gone, and a user without a home."""
    with contextlib.suppress(OSError):
        yield "", Path.cwd()
    with contextlib.suppress(RuntimeError):
        yield "~/", Path.home()
