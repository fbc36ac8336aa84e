"""Core dumps of the GPUs of a command that llmtop launches: what it is told by its environment, and where they lie."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llmtop.collectors.core_dump_places import ENABLED, FILE, FLAGS, flags_warning
from llmtop.errors import FileError, UsageError
from llmtop.files import own_folder
from llmtop.frozen import frozen
from llmtop.servers.follow import CONTAINER_CLIENTS, client_of
from llmtop.state import state_folder
from llmtop.text import clean, quoted
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAME: Final = "core_%t_%h_%p.nvcudmp"
"""That of the driver itself: time, host and process, so that no dump takes another's place."""
SMALL: Final = "skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"
"""Registers and code alone, no memory. With the first of them alone driver 580 stopped half-way in 17 of 21 dumps
(docs/panes/gpu_faults.md)."""
LEAST_FREE = 1 << 30
"""Bytes of free disk space below which is said that they are few: 34 MB of registers are in an H100, and what tells of
each thread takes more than these."""


@frozen
class LaunchCoreDumps:
    """How a command is started so that it leaves core dumps of GPUs.

    Attributes:
        environment: The command's, whole.
        folder: Where they go; None where the environment has named another place before.
        before: What lay there already.
        said: Sentences for the user.
    """

    environment: Mapping[str, str]
    folder: Path | None
    before: frozenset[str]
    said: tuple[str, ...]

    def at_the_end(self) -> Iterator[str]:
        """What has come of it, once the command has ended."""
        if self.folder is None:
            return
        new = [path for path in _dumps(self.folder) if path.name not in self.before]
        for path in new:
            yield f"core dump of a GPU, {binary_bytes(path.stat().st_size)}: llmtop open {quoted(str(path))}"
        if not new:
            yield f"no core dump of a GPU was written to {clean(str(self.folder))}"


def prepared(folder: str, command: Sequence[str], environment: Mapping[str, str]) -> LaunchCoreDumps:
    """What a command needs for core dumps of its GPUs; what the user's own environment says of them stays.

    Args:
        folder: Where they are to go; empty for a folder of llmtop's own.
        command: Its words.
        environment: Without it.

    Raises:
        UsageError: The driver cannot be told this folder.
        FileError: It cannot be made or written to.
    """
    wanted = {ENABLED: "1", FLAGS: SMALL}
    place = None if FILE in environment else _made(folder)
    if place is not None:
        wanted[FILE] = str(place / NAME)
    own = {name: environment[name] for name in (ENABLED, FILE, FLAGS) if name in environment}
    before = () if place is None else _dumps(place)
    said = (*_of_folder(place, before), *_of_own(own, folder), *_of_client(command, wanted | own))
    return LaunchCoreDumps({**wanted, **environment}, place, frozenset(path.name for path in before), said)


def _made(folder: str) -> Path:
    path = Path(folder).expanduser().absolute() if folder else state_folder() / "core-dumps"
    if "%" in str(path):
        raise UsageError(
            f"--coredump: a % in {clean(str(path))} means something else to the driver; name another folder"
        )
    try:
        path = path if folder else own_folder(path)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise FileError(
            f"no core dumps can go to {clean(str(path))}: {why}; name another folder: --coredump DIR"
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise FileError(f"no core dumps can go to {clean(str(path))}: it may not be written to; name another folder")
    return path


def _dumps(folder: Path) -> tuple[Path, ...]:
    """The dumps in a folder, the oldest first."""
    return tuple(
        sorted((one for one in folder.glob("*.nvcudmp") if one.is_file()), key=lambda one: one.stat().st_mtime)
    )


def _of_folder(folder: Path | None, before: Sequence[Path]) -> Iterator[str]:
    if folder is None:
        return
    free = shutil.disk_usage(folder).free
    few = " only" if free < LEAST_FREE else ""
    old = ""
    if before:
        size = binary_bytes(sum(path.stat().st_size for path in before))
        old = f"; {len(before)} of before are there, {size}, which llmtop leaves to you"
    yield f"core dumps of GPUs go to {clean(str(folder))}, with{few} {binary_bytes(free)} free{old}"


def _of_own(own: Mapping[str, str], folder: str) -> Iterator[str]:
    """What the user has said in the environment."""
    for name, value in own.items():
        so = ": no core dump will be written" if name == ENABLED and value in ("", "0") else ""
        so = f", and not to {clean(folder)}" if name == FILE and folder else so
        yield f"{name}={clean(value)} is set in the environment and stays{so}"
    if warning := flags_warning(own.get(FLAGS, SMALL)):
        yield warning


def _of_client(command: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    """A container has an environment and a file system of its own."""
    if (client := client_of(command)) not in CONTAINER_CLIENTS:
        return
    folder = Path(variables.get(FILE, "")).parent
    options = " ".join((*(f"-e {name}" for name in variables), f"-v {quoted(str(folder))}:{quoted(str(folder))}"))
    yield f"{client} gives its environment to no container: put {options} behind {client} run"
