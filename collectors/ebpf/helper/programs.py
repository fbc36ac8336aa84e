"""Compiles the programs and says in one line why one could not be."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .system import UnavailableError, pid_namespace, read

HERE = Path(__file__).resolve().parent.parent
SOURCES = HERE / "programs"
HITS = (
    "call",
    "foreign_call",
    "switch",
    "foreign_switch",
    "stack",
    "sample",
    "library",
    "lifecycle",
)
"""What the counters of the map `hits` count, in the order of the enumeration in programs/common.h."""
SLOTS = 28
NICE = 10
"""The compiler's: a tenth of what a busy server gets of the same CPU, so that it comes to an end on a full machine."""
RAW_TRACEPOINT = 17
"""enum bpf_prog_type; bcc names only some of them."""


def load_bcc() -> Any:
    """The class BPF of bcc, told to use our headers.

    Raises:
        UnavailableError: bcc is not installed for this interpreter, or its library is broken.
    """
    os.environ["BCC_KERNEL_SOURCE"] = str(HERE / "stub")
    try:
        from bcc import BPF
    except Exception as error:  # a broken installation raises anything
        raise UnavailableError(f"bcc cannot be imported: {error}", "sudo apt install python3-bpfcc") from error
    return BPF


def compile_program(
    bpf: Any, name: str, *, owns_targets: bool = False, flags: tuple[str, ...] = (), end: str = ""
) -> Any:
    """One of the programs with what all share in front, `end` behind.

    Raises:
        UnavailableError: It does not compile here; the reason holds the compiler's first complaint.
    """
    text = (SOURCES / "common.h").read_text() + (SOURCES / f"{name}.c").read_text() + end
    device, inode = pid_namespace() or (0, 0)
    common = (
        f"-DOWNS_TARGETS={int(owns_targets)}",
        f"-DNAMESPACE_DEVICE={device}",
        f"-DNAMESPACE_INODE={inode}",
        "-Wno-macro-redefined",
    )
    with _compiler_output() as complaints:
        try:
            return _politely(partial(bpf, text=text, cflags=[*common, *flags]))
        except Exception as error:  # bcc raises nothing narrower
            raise UnavailableError(f"{name}.c does not compile: {_first_error(complaints()) or error}") from error


def _politely(work: Callable[[], Any]) -> Any:
    """Have the compiler wait for the server and not the other way round.

    In a thread of its own, as the right to come back from a low priority is not everybody's.
    """

    def at_low_priority() -> Any:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(NICE, os.nice(0)))
        return work()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(at_low_priority).result()


def load(module: Any, function: str, kind: int) -> None:
    """Load one function of a module into the kernel.

    Raises:
        UnavailableError: The kernel refuses it.
    """
    with _compiler_output() as complaints:
        try:
            module.load_func(function, kind)
        except Exception as error:  # bcc raises nothing narrower
            raise refusal(f"the kernel refuses {function}: {_last_line(complaints()) or error}") from error


def refusal(reason: str) -> UnavailableError:
    """Why the kernel said no: it is locked down, or only this program is at fault."""
    lockdown = re.search(r"\[(integrity|confidentiality)\]", read("/sys/kernel/security/lockdown"))
    if lockdown and lockdown.group(1) == "confidentiality":
        return UnavailableError("the kernel is locked down (confidentiality)", "boot with lockdown=integrity")
    return UnavailableError(reason)


@contextmanager
def _compiler_output() -> Iterator[Any]:
    """Catch what the compiler and the verifier write to descriptor 2 behind Python's back."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:

            def written() -> str:
                file.seek(0)
                return file.read().decode("utf-8", "replace")

            yield written
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first_error(text: str) -> str:
    return next((line.partition("error: ")[2] for line in text.splitlines() if "error: " in line), "")


def _last_line(text: str) -> str:
    """The verifier's verdict stands before its statistics."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("processed ")]
    return lines[-1].strip() if lines else ""
