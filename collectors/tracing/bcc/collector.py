"""The eBPF collector: a helper process loads the probes, this reads what it reports."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import Any

from llmtop.collectors.base import DoctorCheck
from llmtop.collectors.privileges import through_sudo
from llmtop.collectors.tracing.helped import SUDO_REMEDY
from llmtop.collectors.tracing.helper.protocol import WAIT
from llmtop.collectors.tracing.helper.system import kernel_release
from llmtop.collectors.tracing.probes import ProbesCollector, why_not_here, why_switched_off
from llmtop.collectors.tracing.process import HelperProcess
from llmtop.collectors.tracing.reports import SOURCE
from llmtop.model import Unknown
from llmtop.text import clean

SYSTEM_PYTHON = Path("/usr/bin/python3")
"""Distributions install bcc for this interpreter; it is on no package index."""
_BOOT = (
    "import runpy, sys, types; tracing = sys.modules['tracing'] = types.ModuleType('tracing'); "
    "tracing.__path__ = [sys.argv.pop(1)]; runpy.run_module('tracing.bcc.helper', run_name='__main__')"
)
PROGRAM = (str(SYSTEM_PYTHON), "-I", "-c", _BOOT, str(Path(__file__).resolve().parent.parent))
"""What loads the probes. There the package `tracing` is all that is seen of llmtop."""
OLDEST_KERNEL = (5, 8)
"""The release of Linux from which on the probes load."""
_INSTALL = "sudo apt install python3-bpfcc"
_CHECK_S = 20.0
"""For `llmtop doctor`: how long probes may take until they are compiled."""


class EbpfCollector(ProbesCollector):
    """System calls, sleeps, run-queue waits, stacks and CUDA calls of a server's processes.

    Its helper looks all the time, and reports every `interval_s`.
    """

    source = SOURCE
    program = PROGRAM

    def missing(self) -> Unknown | None:
        """Why probes cannot be loaded here, as far as can be told without trying."""
        return why_not()


def why_not() -> Unknown | None:
    """Why probes cannot be loaded here, as far as can be told without trying."""
    if (off := why_switched_off()) is not None:
        return off
    if (release := kernel_release()) < OLDEST_KERNEL:
        return Unknown(f"Linux {release[0]}.{release[1]} is too old for the probes", "Linux 5.8 or newer")
    if not SYSTEM_PYTHON.exists():
        return Unknown(f"{SYSTEM_PYTHON} is not there, so bcc is not", _INSTALL)
    return why_not_here()


def checks() -> tuple[DoctorCheck, ...]:
    """What of the probes can be loaded here: found out by loading them for a moment."""
    why = why_not()
    return (DoctorCheck("eBPF probes", why if why is not None else _tried()),)


def _tried() -> str | Unknown:
    start_s = time.monotonic()
    helper = HelperProcess([str(os.getpid())], program=EbpfCollector.program, sudo=through_sudo())
    try:
        report = _last_word(helper)
        took_s = time.monotonic() - start_s
        if report is None and not helper.is_at_end:
            return Unknown(f"the probes are not compiled after {_CHECK_S:.0f} s")
        if report is None:
            return Unknown(f"the helper failed: {helper.last_words()}", SUDO_REMEDY if through_sudo() else "")
    finally:
        helper.close()
    if report["kind"] == "unavailable":
        return Unknown(clean(report["reason"]), clean(report["remedy"]))
    if report["missing"]:
        part, (reason, remedy) = next(iter(report["missing"].items()))
        return Unknown(f"no {part}: {clean(reason)}", clean(remedy))
    return f"system calls, scheduler and stacks; loaded in {took_s:.1f} s"


def _last_word(helper: HelperProcess) -> dict[str, Any] | None:
    """What it has to say once nothing is awaited; None where it ends, or the time does, without that."""
    end_s = time.monotonic() + _CHECK_S
    while (left_s := end_s - time.monotonic()) > 0 and not helper.is_at_end:
        select.select([helper], [], [], left_s)
        for report in helper.reports():
            awaited = any(remedy == WAIT for _, remedy in report.get("missing", {}).values())
            if report["kind"] != "attaching" and not awaited:
                return report
    return None
