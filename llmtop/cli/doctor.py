"""What can be collected here, what cannot, why, and the command that would change it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from llmtop.model import Unknown
from llmtop.remedies import for_here

if TYPE_CHECKING:
    from llmtop.collectors.base import DoctorCheck


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON document (docs/doctor.md)")


def run(args: argparse.Namespace) -> int:
    """Print every check; finding something missing is no failure."""
    from llmtop.collectors.registry import checks
    from llmtop.tui.terminal import is_ascii_only

    found = checks()
    if args.json:
        json.dump(_document(found), sys.stdout, allow_nan=False, indent=2)
        sys.stdout.write("\n")
    else:
        arrow = "->" if is_ascii_only(os.environ, sys.stdout.encoding) else "→"
        sys.stdout.writelines(f"{line}\n" for check in found for line in _lines(check, arrow))
    return 0


def _document(checks: tuple[DoctorCheck, ...]) -> dict[str, object]:
    return {"schema": "llmtop.doctor/1", "checks": [_entry(check) for check in checks]}


def _entry(check: DoctorCheck) -> dict[str, object]:
    if isinstance(check.state, Unknown):
        remedy = for_here(check.state.remedy)
        return {"what": check.what, "ok": False, "reason": check.state.reason, "remedy": remedy}
    return {"what": check.what, "ok": True, "state": for_here(check.state)}


def _lines(check: DoctorCheck, arrow: str) -> list[str]:
    """A check as text, never wrapped, so that a command can be copied whole.

    A word tells the state, so that it does not hang on colour.
    """
    if isinstance(check.state, str):
        return [f"ok  {check.what}: {for_here(check.state)}"]
    remedy = [f"      {arrow} {for_here(check.state.remedy)}"] if check.state.remedy else []
    return [f"no  {check.what}: {check.state.reason}", *remedy]
