"""One run of bpftrace: started, read and ended by the helper, which has a single thread."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import time

from llmtop.collectors.tracing.bpftrace.output import Record, parse
from llmtop.collectors.tracing.helper.child import Child, ending
from llmtop.text import clean

OLDEST = (0, 17)
"""The oldest that the program was tried with."""
INSTALL = "sudo apt install bpftrace"
_END_S = 5.0
"""For bpftrace to end and to print its maps, before it is made to."""
_LAST_WORDS = 300
"""Characters that are told of its last words."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_LIMIT = "RLIMIT_MEMLOCK"
"""bpftrace speaks of it whenever it may not raise that limit, which newer kernels do not need (5.11)."""


def find() -> str | None:
    """Where bpftrace is; also where an ordinary user's PATH does not lead."""
    return shutil.which("bpftrace") or shutil.which("bpftrace", path="/usr/sbin:/usr/local/sbin:/sbin")


def version(path: str) -> tuple[int, int] | None:
    """Which bpftrace it is; None when it does not say."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stdout)
    return (int(found.group(1)), int(found.group(2))) if found else None


def names_by_process(found: tuple[int, int] | None) -> bool:
    """Whether it keeps the symbols of each process; before 0.19 only those of each program.

    Kept by program they are wrong for its second process, whose code lies elsewhere; and not kept at all, the files
    of all libraries are read anew for each name.
    """
    return found is not None and found >= (0, 19)


def loses_first(found: tuple[int, int] | None) -> bool:
    """Whether CPUs that come to a new entry of a map at once lose what they add: 0.23 does, 0.17 does not."""
    return found is None or found > OLDEST


def _symbols(path: str, named: bool) -> dict[str, str]:
    if not named:
        return {"BPFTRACE_NO_USER_SYMBOLS": "1"}
    return {"BPFTRACE_CACHE_USER_SYMBOLS": "PER_PID" if names_by_process(version(path)) else "1"}


class Bpftrace(Child):
    """A running bpftrace. The kernel ends it when the helper ends, and what it has attached ends with it.

    Args:
        path: The program.
        text: What it is to do.
        keys: How many entries each of its maps has room for.
        named: Whether it gives the functions of programs their names; else it tells their addresses.
    """

    def __init__(self, path: str, text: str, keys: int, *, named: bool = True) -> None:
        script = os.memfd_create("llmtop.bt")
        with os.fdopen(script, "w", closefd=False) as file:
            file.write(text)
        room = {"BPFTRACE_MAP_KEYS_MAX": f"{keys}", "BPFTRACE_MAX_MAP_KEYS": f"{keys}"}  # until 0.19, and since
        super().__init__(
            [path, "-B", "line", "-f", "json", f"/dev/fd/{script}"],
            env={**os.environ, **room, **_symbols(path, named)},
            pass_fds=(script,),
        )
        os.close(script)
        self._words = ""
        self.pid = self.process.pid

    def records(self) -> list[Record]:
        """What it has said since the last call; never waits. Lines that are not what they should be are left out."""
        return [record for line in self.lines() if (record := parse(line)) is not None]

    def end(self) -> list[Record]:
        """End it and wait: afterwards no probe of it is attached. What it had still to say; nothing the second time."""
        if self._errors.closed:
            return []
        self.process.terminate()
        deadline = time.monotonic() + _END_S
        records: list[Record] = []
        while not self.is_at_end and (left := deadline - time.monotonic()) > 0:
            select.select([self], [], [], left)
            records += self.records()
        if not self.is_at_end:
            self.process.kill()
        self.process.wait()
        self._words = self.last_words()
        self.close()
        return records

    def last_words(self) -> str:
        """Its first complaint, in a few words; how it ended when it made none."""
        if self._errors.closed:
            return self._words
        lines = self.errors().splitlines()
        complaints = [line for line in lines if "ERROR" in line and _LIMIT not in line]
        said = [*complaints, *(line for line in lines if line.strip() and _LIMIT not in line)]
        if said:
            return clean(said[0].strip())[:_LAST_WORDS]
        code = self.process.poll()
        return ending(code) if code is not None else "it does not say why"

    def how_it_ended(self) -> str:
        """In a sentence, once its output is at the end; one that was killed has not ended by itself."""
        try:
            code = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "bpftrace has closed its output"
        if code < 0:
            return f"bpftrace was killed {ending(code)}"
        return f"bpftrace has ended by itself: {self.last_words()}"
