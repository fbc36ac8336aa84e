"""Every command that llmtop names: written so that all versions of the tools in use take it.

The tables in tests/tool_options.py hold it always. The tools themselves, where they are: on the PATH, or below the
folder that LLMTOP_NSIGHT names (Debian's nsight-compute and nsight-systems of the section non-free, unpacked, will do:
options are read without a GPU).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from llmtop import ids
from llmtop.analysis.commands import profiling
from llmtop.analysis.commands.live import queueing
from llmtop.analysis.commands.ncu import FLAGS, VALUED, parse
from llmtop.analysis.kernels.lacking import lacking
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Fact, KernelDetails, Origin, Trace, Track, TrackKind
from llmtop.parsers.registry import load
from llmtop.text import REDACTED, clean, shell_command
from tests.analysis import verdict_scenes
from tests.analysis.verdict_scenes import Scene
from tests.kernel_traces import LADDER, TIMELINE, Launch, report
from tests.nvidia_tools import tools
from tests.tool_options import NCU_OPTIONS, NCU_OWN_TO_A_REPORT, NCU_SECTIONS, NSYS_VALUES, SINCE_2024

PROGRAM = "./program --set a -c 5"
OURS = {
    "cat", "curl", "f=$(mktemp)", "gdb", "grep", "llmtop", "ncu", "nsys", "nvidia-smi", "perf", "ps", "py-spy", "sh",
    "sudo", "top",
}  # fmt: skip
"""What commands begin with."""
_TIMEOUT_S = 60
KINDS = ("sgemm-ladder", "few-metrics", "contended-atomics", "small-grid", "too-many-registers")
REPORTS = [LADDER.with_name(f"{kind}.ncu-rep.xz") for kind in KINDS]
"""Reports of which each lacks something else."""


class _Few:
    """The details of a report with the same counters, as if they came from fewer sections."""

    def __init__(self, details: KernelDetails, sections: tuple[str, ...]) -> None:
        self._details = details
        self._sections = sections

    def __getattr__(self, name: str) -> object:
        return getattr(self._details, name)

    def sections(self, i: int) -> tuple[str, ...]:
        return self._sections


def with_few_sections(trace: Trace) -> Trace:
    kernels = trace.kernels
    assert kernels is not None
    assert kernels.details is not None
    return replace(
        trace, kernels=replace(kernels, details=cast("KernelDetails", _Few(kernels.details, ("LaunchStats",))))
    )


def traces() -> Iterator[Trace]:
    """Servers in trouble of every kind that the rules' own tests know; reports, as they are and with less in them."""
    yield from (scene.trace() for scene in vars(verdict_scenes).values() if isinstance(scene, Scene))
    for path in (*REPORTS, TIMELINE):
        trace = load(path)
        yield from (trace, replace(trace, origin=replace(trace.origin, facts={})))
        if path != TIMELINE:
            yield with_few_sections(trace)


@cache
def commands() -> Mapping[str, str]:
    """The distinct next commands of all rules that fire, and those that remedies name, each with its program."""
    said = {
        finding.next_command: profiling.program(trace) for trace in traces() for finding in diagnose(trace).findings
    }
    for circumstances in ("", "--nvtx --nvtx-include decode/", "-s 5 -c 9 -k regex:a|b", "--kernel-id ::k:2"):
        trace = report(Launch("k"), command=f"ncu {circumstances} {PROGRAM}")
        said |= dict.fromkeys(
            (
                profiling.of_launch(trace, 0, sorted(NCU_SECTIONS)),
                profiling.of_launch_as_run(trace, 0),
                profiling.of_report(trace, sorted(NCU_SECTIONS)),
                profiling.timeline(trace),
                profiling.timeline_of_server(trace),
            ),
            PROGRAM,
        )
    return {command: program for command, program in said.items() if command}


def of(tool: str) -> list[str]:
    return [command for command in commands() if command.startswith(f"{tool} ")]


def test_rules_of_every_kind_name_commands() -> None:
    assert len(of("ncu")) > 10
    assert len(of("nsys")) > 2
    assert {"curl", "py-spy", "sudo"} <= {command.split()[0] for command in commands()}


def test_each_command_is_one_line_that_a_shell_reads() -> None:
    for command in commands():
        assert command.split()[0] in OURS, command
        assert "\n" not in command
        done = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)


ODD = (
    ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "my models/a b"],
    ["torchrun", "--nproc_per_node=2", "../train.py", "--", "--lr", "1e-3"],
    ["./run me.sh", "it's", 'a "quoted" word', "$HOME", "`id`", "a;b", "x&&y", "*", ""],
    ["env", "CUDA_VISIBLE_DEVICES=0,1", "python", "serve.py", "--json", '{"a": [1, 2]}'],
    ["bash", "-c", "export A=1; python x.py | tee 'a log'"],
    ["python3.12", "-c", "for i in 1, 2:\n    print(i, '\\\\')\n"],
)
"""Programs whose command lines a shell would take apart."""


def commands_for(trace: Trace) -> set[str]:
    """All that is said for one capture to run."""
    found = {finding.next_command for finding in diagnose(trace).findings}
    found |= {one.command for one in lacking(trace)}
    return {*found, profiling.timeline(trace), profiling.timeline_with_threads(trace)} - {""}


@pytest.mark.parametrize("words", ODD, ids=lambda words: words[0])
def test_the_program_is_the_same_once_a_shell_has_read_it(words: list[str]) -> None:
    """Of a capture that keeps its words apart, as nsys does, whatever is in them: bash is asked."""
    trace = load(TIMELINE)
    command = shell_command([clean(word) for word in words])
    said = commands_for(replace(trace, origin=replace(trace.origin, facts={"command": command})))
    assert len(said) >= 3
    for one in said:
        assert "\n" not in one
        shown = subprocess.run(["bash", "-c", f"printf '%s\\0' {one}"], capture_output=True, text=True, check=True)
        assert shown.stdout.split("\0")[-len(words) - 1 : -1] == words, one


def test_secrets_in_a_program_leave_a_word_to_fill_in() -> None:
    words = ["env", "HF_TOKEN=hf_a b", "vllm", "serve", "m", "--api-key", "sk-1 2", "--seed=1"]
    trace = load(TIMELINE)
    facts: dict[str, Fact] = {"command": shell_command(words)}
    for one in commands_for(replace(trace, origin=replace(trace.origin, facts=facts))):
        asked = ["env", f"HF_TOKEN={REDACTED}", "vllm", "serve", "m", "--api-key", REDACTED, "--seed=1"]
        assert shlex.split(one)[-len(words) :] == asked


def test_no_command_writes_over_a_file() -> None:
    for command in commands():
        assert not re.search(
            r"^(ncu|nsys) .* (-f|--force-overwrite|--force)\b", command.removesuffix(commands()[command])
        )
        for name in re.findall(r" -o (\S+)", command):
            assert name in ("/dev/null", '"$f"') or "%i" in name, command


def test_each_command_of_ncu_has_only_options_that_all_versions_take() -> None:
    for command in of("ncu"):
        told = parse(command)
        assert told is not None, command
        assert {option.name for option in told.options} <= NCU_OPTIONS | {"export"}, command
        assert {option.value for option in told.options if option.name == "section"} <= NCU_SECTIONS, command
        assert {option.value for option in told.options if option.name == "set"} <= {"full"}, command
        assert "--" not in shlex.split(command)
        assert told.program == commands()[command], command


_PROGRAMS = {"./program --set a b -c 5", './program --set "\'a" "b\'" -c 5'}
"""A report joins the words of its program with spaces: those that held one cannot be told apart any more."""


def test_what_a_report_was_made_with_is_known_to_a_version() -> None:
    assert NCU_OPTIONS | NCU_OWN_TO_A_REPORT <= FLAGS | VALUED


def test_each_command_of_nsys_has_only_options_that_all_versions_take() -> None:
    for command in of("nsys"):
        words = shlex.split(command)
        assert words[1] == "profile"
        assert "--" not in words
        for option in (word for word in words[2:] if word.startswith("--") and "=" in word):
            name, _, value = option.removeprefix("--").partition("=")
            taken = NSYS_VALUES[name]
            assert value if taken is None else set(value.split(",")) <= taken, command


def _options(command: str) -> str:
    """The command up to its program."""
    program = f" {commands()[command]}"
    assert command.endswith(program)
    return command.removesuffix(program)


_NOT_THERE = "./no-such-program"
_LOOKED_FOR = re.compile(r"(?i)no-such-program|(executable|file) not found")
"""What the tools say once they have read their options and look for the program."""
_REFUSED = re.compile(r"(?i)unrecogni[sz]ed option|unknown option|is ambiguous|illegal .* argument|is invalid")


def _say(tool: Path, options: str, home: Path, program: str = _NOT_THERE) -> str:
    """What the tool says to these options before a program that is not there, so that it starts none."""
    return subprocess.run(
        ["sh", "-c", f"{shlex.quote(str(tool))} {options.partition(' ')[2]} {program}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=home,
        env=os.environ | {"HOME": str(home)},  # ncu copies its sections there
        timeout=_TIMEOUT_S,
    ).stdout


@pytest.mark.parametrize("name", ["ncu", "nsys"])
def test_the_tools_here_take_each_command(name: str, tmp_path: Path) -> None:
    found = tools(name)
    if not found:
        pytest.skip(f"{name} is not installed, and LLMTOP_NSIGHT names no folder with it")
    for tool in found:
        assert _REFUSED.search(_say(tool, f"{name} {_PROFILE[name]} --not-an-option", tmp_path))
        for options in dict.fromkeys(map(_options, of(name))):
            said = _say(tool, options, tmp_path)
            assert not _REFUSED.search(said), f"{tool} refuses {options}: {said[:400]}"
            assert _LOOKED_FOR.search(said), f"{tool} did not come to {options}: {said[:400]}"


_PROFILE = {"ncu": "", "nsys": "profile"}


def test_the_tools_here_have_each_section(tmp_path: Path) -> None:
    found = tools("ncu")
    if not found:
        pytest.skip("ncu is not installed, and LLMTOP_NSIGHT names no folder with it")
    for tool in found:
        listed = _say(tool, "ncu --list-sections", tmp_path, program="").split()
        year = re.search(r"Version (\d{4})", _say(tool, "ncu --version", tmp_path, program=""))
        assert year is not None, tool
        wanted = NCU_SECTIONS - (SINCE_2024 if int(year[1]) < 2024 else frozenset())
        assert set(listed) >= wanted, f"{tool} lacks {wanted.difference(listed)}"


def test_who_runs_while_others_wait_is_found_out(tmp_path: Path) -> None:
    """The one command of perf that writes a file: in a shell, with nothing left behind."""
    host = Track(ids.HOST, TrackKind.HOST, "host", facts={"is_root": 1, "tools": "perf"})
    command = queueing(Trace(Origin("live"), tracks={ids.HOST: host}))
    may = tmp_path / "may"
    subprocess.run(["perf", "sched", "record", "-o", may, "--", "true"], capture_output=True, check=False)
    if not may.exists() or not may.stat().st_size:
        pytest.skip("perf may not trace the scheduler here")
    shown = subprocess.run(
        ["sh", "-c", command.replace("sleep 2", "sleep 0.2")],
        capture_output=True, text=True, check=False, env=os.environ | {"TMPDIR": str(tmp_path)}, timeout=_TIMEOUT_S,
    )  # fmt: skip
    assert "Avg delay ms" in shown.stdout, shown.stderr
    assert list(tmp_path.iterdir()) == [may]


def test_the_full_set_has_what_is_counted_on(tmp_path: Path) -> None:
    found = tools("ncu")
    if not found:
        pytest.skip("ncu is not installed, and LLMTOP_NSIGHT names no folder with it")
    for tool in found:
        listed = _say(tool, "ncu --list-sets", tmp_path, program="")
        # A row goes on below with its first column empty, broken anywhere in a name.
        row = re.search(r"^full (.*\n(?: .*\n)*)", listed, re.MULTILINE)
        assert row is not None, listed
        sections = "".join(re.split(r" (?:yes|no) | {2}", line.strip())[0] for line in row[1].splitlines())
        known = set(_say(tool, "ncu --list-sections", tmp_path, program="").split())
        assert set(sections.replace(" ", "").split(",")) >= profiling.FULL_SET & known, tool
