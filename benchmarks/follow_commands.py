"""Do the commands under the findings work as pasted, and do they lead to the cause?

    nvcc -O3 -std=c++17 -lineinfo -arch=native -o known_causes benchmarks/known_causes.cu
    python benchmarks/follow_commands.py ./known_causes [--only NAME...] [--with '--set basic']

Each fault of known_causes.cu is profiled with little (`--with`), as somebody does who begins. Then the next command of
each finding of that report is run by a shell, as it stands, in the folder where the program lies, and the report that
it writes is opened: does its first finding name the cause? Needs a GPU, ncu and the rights to use its counters. Prints
a table in Markdown; the exit code is 1 where a command failed, wrote nothing, or did not lead to the cause.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.known_causes import KNOWN
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Finding
from llmtop.parsers.registry import load

LIMIT_S = 90
_LAST_LINES = 3


@dataclass(frozen=True)
class Step:
    """A command of a finding, as it was run.

    Attributes:
        failure: What it said if it failed or wrote no report; empty otherwise.
        findings: Of the report that it wrote.
    """

    command: str
    took_s: float
    failure: str
    findings: tuple[Finding, ...]


def profiled(program: Path, name: str, few: str) -> Path:
    """A report of this fault with the sections that were asked for.

    Raises:
        subprocess.CalledProcessError: ncu failed.
    """
    report = program.parent / f"few_{name}.ncu-rep"
    ncu = ["ncu", *shlex.split(few), "--clock-control", "none", "--profile-from-start", "off", "-f", "-o", str(report)]
    run = [f"./{program.name}", name]
    subprocess.run([*ncu, *run], cwd=program.parent, check=True, capture_output=True, timeout=LIMIT_S)
    return report


def follow(finding: Finding, folder: Path) -> Step:
    """Paste a finding's command into a shell and open what it writes."""
    assert finding.next_command
    before, began_s = set(folder.glob("*.ncu-rep")), time.monotonic()
    ran = subprocess.run(
        ["bash", "-c", finding.next_command], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S
    )
    took_s = time.monotonic() - began_s
    new = sorted(set(folder.glob("*.ncu-rep")) - before)
    last = " / ".join((ran.stdout + ran.stderr).strip().splitlines()[-_LAST_LINES:])
    failure = f"exit code {ran.returncode}: {last}" if ran.returncode else "" if new else f"no report: {last}"
    return Step(finding.next_command, took_s, failure, diagnose(load(new[0])).findings if new else ())


def steps(program: Path, names: list[str], few: str) -> Iterator[tuple[str, tuple[Finding, ...], list[Step]]]:
    """Each fault, what a report with few sections says of it, and what following that leads to."""
    for name in names:
        findings = diagnose(load(profiled(program, name, few))).findings
        yield name, findings, [follow(one, program.parent) for one in findings if one.next_command]


def _rules(findings: tuple[Finding, ...]) -> str:
    return ", ".join(one.rule for one in findings) or "none"


def _is_named(name: str, findings: tuple[Finding, ...]) -> bool:
    return bool(findings) and findings[0].rule in KNOWN[name].rules


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, help="known_causes, as nvcc made it")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="some of the faults")
    parser.add_argument("--with", dest="few", default="--set basic", help="what is collected at first")
    args = parser.parse_args()
    program = args.program.resolve()
    listed = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    names = args.only or [one for one in re.findall(r"^\w+$", listed.stdout, re.MULTILINE) if one in KNOWN]
    wrong = 0
    print("| fault | with little | command | took | leads to | right |\n|---|---|---|--:|---|---|")
    for name, findings, done in steps(program, names, args.few):
        is_right = not any(one.failure for one in done) and (
            _is_named(name, findings) or any(_is_named(name, one.findings) for one in done)
        )
        wrong += not is_right
        for one in done or [Step("none", 0.0, "", ())]:
            result = one.failure or _rules(one.findings)
            print(
                f"| {name} | {_rules(findings)} | `{one.command}` | {one.took_s:.1f} s | {result} "
                f"| {'yes' if is_right else '**no**'} |",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
