"""The commands that profile a program once more, for what a capture does not have: complete, and as shells take them.

They suit Nsight Compute 2024.1 to 2026 and Nsight Systems 2023.4 to 2026: no `--` before the program, which the older
ones refuse. None writes over a file: `%i` in the name of a report is the first number that is free (Nsight Compute
2020.1 and newer), and Nsight Systems counts up by itself (report1, report2, ...).

GPUs of AMD have tools of their own, and so commands (ROCm documentation: Using rocprofv3; ROCm Systems Profiler,
Sampling the call stack; ROCm Compute Profiler, Profile mode). What they write is for Perfetto and for themselves.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop.analysis.commands.ncu import UNKNOWN_PROGRAM, NcuCommand, Option, parse
from llmtop.facts import AMD, OriginFact, ProcessFact
from llmtop.model import RECORDING, SpanKind, TrackKind
from llmtop.remedies import AMD_THREADS, AMD_TIMELINE, PROGRAM, TIMELINE
from llmtop.text import listed, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llmtop.model import Finding, KernelTable, Trace

TENSOR_ROOFLINE = "SpeedOfLight_HierarchicalTensorRooflineChart"
_WHOLE = (Option("set", "full"), Option("section", TENSOR_ROOFLINE))
"""All that views and rules read of a launch, so that the report of one launch can be judged alone.

What is missing of it alone would be less to collect, and a report that says nothing: why a kernel waits shows only
beside how busy it keeps the GPU. One launch is replayed some 40 times for it, which takes seconds.
"""
FULL_SET = frozenset(
    (
        "ComputeWorkloadAnalysis", "InstructionStats", "LaunchStats", "MemoryWorkloadAnalysis",
        "MemoryWorkloadAnalysis_Chart", "MemoryWorkloadAnalysis_Tables", "Occupancy", "SchedulerStats",
        "SourceCounters", "SpeedOfLight", "SpeedOfLight_RooflineChart", "WarpStateStats",
        "WorkloadDistribution",
    )
)  # fmt: skip
"""What the set "full" has, of what a version knows (`ncu --list-sets` of 2022.3 and 2024.1)."""
_WARM = Option("cache-control", "none")
_FROM_WHERE = (
    "--launch-skip counts from where this capture begins: if the program had run before, have ncu begin there too "
    "(cudaProfilerStart and --profile-from-start off, or --nvtx-include)"
)
_MIDWAY = (
    "this capture begins while the program runs, so that no number of a launch is known: a command for ncu takes the "
    "program's first launch of a function of that name, which may have another template or grid and belong to a "
    "warm-up. To have ncu begin where this does, call cudaProfilerStart there and add --profile-from-start off"
)
_IN_RANGE = "; or make this report of an NVTX range (--range NAME): its commands count from where that range begins"
_FROM_START = Option("profile-from-start", "off")
"""Of a timeline nobody can tell how many launches of a kernel came before it."""
_SERVER_STARTS_S = 120
"""Loading weights and capturing graphs; a larger model takes longer."""
_LOOK_S = 10
"""Of a timeline of a server: some hundred steps, in a file that opens quickly."""
_VERSION = re.compile(r"(\d+)\.(\d+)")
_SINCE = {"WorkloadDistribution": (2024, 1)}
"""Sections that came later (`ncu --list-sections` of 2022.3 and 2024.1; what lies between was not asked)."""
WHERE_FACT = "where"
"""Names the fact of a trace that it has the kernels alone for which a condition holds."""
RANGE_FACT = "range"
"""Names the fact of a trace that it has the kernels of one range alone."""
DELAY_FACT = "delay"
"""Names the fact of a timeline that the profiler was told to wait before it."""
START_FACT = "begins at"
"""Names the fact of a timeline without its calls that it began as the program called cudaProfilerStart."""
INCLUDE_FACT = "nvtx-include"
"""Names the fact by which Nsight Compute finds that range again."""
_OF_THREADS = (whats.CUDA_CALLS, whats.OS_CALLS, whats.CPU_SCHEDULING, whats.CPU_SAMPLES)
"""What a timeline may lack of the CPU side."""
_PLACEHOLDER = re.compile(rf"\b{PROGRAM}\b")


def program(trace: Trace) -> str:
    """The command line of what was profiled or is watched, secrets hidden; `COMMAND` where it is not known."""
    if trace.origin.is_observed:
        return _of_root(trace, ProcessFact.COMMAND) or PROGRAM
    command = trace.origin.facts.get(OriginFact.COMMAND, "")
    if not isinstance(command, str) or not command:
        return PROGRAM
    return (ncu_command(trace).program or PROGRAM) if trace.origin.is_ncu else command


def directory(trace: Trace) -> str:
    """Where the program ran, in which its command line is to be given again; empty where the capture does not say."""
    told = trace.origin.facts.get(OriginFact.DIRECTORY)
    where = _of_root(trace, ProcessFact.DIRECTORY) if trace.origin.is_observed else told
    return where if isinstance(where, str) and program(trace) != PROGRAM else ""


def directory_for(trace: Trace, command: str) -> str:
    """The same for one command: empty where it does not start the program anew."""
    return directory(trace) if program(trace) in command else ""


def where_to_run(trace: Trace, findings: Iterable[Finding] = ()) -> str:
    """What to know of the commands before one pastes them: where they run, what `COMMAND` and a number stand for.

    Args:
        trace: What they are of.
        findings: Those that have them; of a recording, for whose processes numbers are left out.
    """
    parts: list[str] = []
    if trace.faults:
        return ""  # what failed is looked into as it is, and not run again
    if trace.origin.is_observed:
        where = f"commands are to run on {trace.origin.host}" if trace.origin.host else ""
        commands = [one.next_command for one in findings]
        named = _what_numbers_stand_for(commands) if trace.origin.kind == RECORDING else ""
        who = "the recording does not name" if trace.origin.kind == RECORDING else "cannot be read"
        stands = f"{PROGRAM} stands for the server's command line, which {who}"
        is_meant = program(trace) == PROGRAM and any(PROGRAM in command.split() for command in commands)
        return "; ".join(part for part in (where, named, stands if is_meant else "") if part)
    if program(trace) == PROGRAM:
        parts.append(f"{PROGRAM} stands for the program's command line, which the capture does not name")
    elif where := directory(trace):
        parts.append(f"commands are to run in {where}, as the program did")
    has_timeline = trace.kernels is not None and len(trace.kernels) and not trace.origin.is_ncu
    if has_timeline and not begins_where_told(trace) and not is_of_amd(trace):
        midway = f"{_MIDWAY}{_IN_RANGE if SpanKind.NVTX in trace.spans and trace.origin.has_nvtx else ''}"
        parts.append(midway if _is_midway(trace) else _FROM_WHERE)
    return "; ".join(parts)


def _what_numbers_stand_for(commands: Sequence[str]) -> str:
    used = [word for word in ("PID", "TID") if any(re.search(rf"\b{word}\b", one) for one in commands)]
    return f"{listed(used)} stand{'s' * (len(used) == 1)} for what runs when it is so again" if used else ""


@lru_cache(maxsize=4)
def begins_where_told(trace: Trace) -> bool:
    """Whether a timeline begins as the program calls cudaProfilerStart: Nsight Compute can begin there too."""
    if START_FACT in trace.origin.facts:
        return True
    calls, launches = trace.spans.get(SpanKind.CALL), trace.spans.get(SpanKind.LAUNCH)
    if calls is None or not len(calls) or not calls.names[calls.name_id[0]].endswith("ProfilerStart"):
        return False
    return launches is None or not len(launches) or calls.start_ns[0] <= launches.start_ns[0]


@lru_cache(maxsize=4)
def _is_midway(trace: Trace) -> bool:
    """Whether a timeline shows that the program ran before it: it was told to wait, or work came from before it."""
    if INCLUDE_FACT in trace.origin.facts:
        return False  # launches count from where the range begins
    if DELAY_FACT in trace.origin.facts:
        return True
    kernels, launches = trace.spans.get(SpanKind.KERNEL), trace.spans.get(SpanKind.LAUNCH)
    if kernels is None or launches is None or not len(kernels) or not len(launches):
        return False
    return kernels.start_ns[0] < launches.start_ns[0] or kernels.correlation[0] not in launches.correlation


def is_of_amd(trace: Trace) -> bool:
    """Whether the GPUs of a capture are of AMD, for which NVIDIA's tools have no use."""
    return trace.origin.facts.get(OriginFact.GPU_VENDOR) == AMD


def clocks(trace: Trace) -> str:
    """The command that shows the clocks of GPUs, and what holds them down."""
    if is_of_amd(trace):
        return "amd-smi metric --clock --power --temperature"
    return "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER"


def filled(trace: Trace, remedy: str) -> str:
    """A remedy with the program's command line in the place of `COMMAND`."""
    return _PLACEHOLDER.sub(lambda _: program(trace), remedy)


def of_launch(trace: Trace, launch: int, sections: Iterable[str]) -> str:
    """The command that collects sections of one launch and all else it is judged by; empty where all are there.

    Args:
        trace: A capture with kernels.
        launch: The launch's number in it.
        sections: Names of Nsight Compute's sections.
    """
    table = trace.kernels
    lacking = absent(trace, launch, sections)
    if table is None or not lacking:
        return ""
    if is_of_amd(trace):
        return of_function(trace, table.functions[table.name_id[launch]])
    function, before = _place(trace, table, launch)
    others = (Option("section", section) for section in lacking if section not in FULL_SET)
    return _collect(
        trace, ncu_command(trace).only(launch, function, before), dict.fromkeys((*_WHOLE, *others)), "kernel"
    )


def of_launch_as_run(trace: Trace, launch: int) -> str:
    """The command that measures one launch with the caches as the program leaves them."""
    table = trace.kernels
    if table is None:
        return ""
    function, before = _place(trace, table, launch)
    as_run = ncu_command(trace).without("cache-control")
    return _collect(trace, (_WARM, *as_run.only(launch, function, before)), _WHOLE, "kernel", as_run)


def _place(trace: Trace, table: KernelTable, launch: int) -> tuple[str, int]:
    """The function of a launch, and how many launches of it come before, as far as that can be known."""
    function = table.functions[table.name_id[launch]]
    if not trace.origin.is_ncu and _is_midway(trace):
        return function, 0
    if table.earlier:
        return function, table.earlier[launch]
    return function, sum(table.functions[name] == function for name in table.name_id[:launch])


def is_cut_off(trace: Trace) -> bool:
    """Whether a report ends because it has as many launches as were asked for: the program may have gone on."""
    return trace.kernels is not None and Option("launch-count", str(len(trace.kernels))) in ncu_command(trace).options


def empties_caches(trace: Trace) -> bool:
    """Whether caches were emptied before each pass: Nsight Compute does so unless it is told not to."""
    return trace.origin.is_ncu and _WARM not in ncu_command(trace).options


def of_report(trace: Trace, sections: Iterable[str]) -> str:
    """The command that collects sections of all launches that a report has."""
    wanted = (Option("section", section) for section in dict.fromkeys(sections))
    return _collect(trace, ncu_command(trace).choice, wanted, "report")


def of_function(trace: Trace, function: str) -> str:
    """The command that collects counters of the first launch of a function that a timeline has."""
    if is_of_amd(trace):
        return f"rocprof-compute profile --name kernel --kernel {quoted(function)} -- {program(trace)}"
    return _collect(trace, UNKNOWN_PROGRAM.only(0, function, before=0), _WHOLE, "kernel")


def absent(trace: Trace, launch: int, sections: Iterable[str]) -> tuple[str, ...]:
    """Those of the sections that were not collected of a launch, as far as this version of the tool has them."""
    details = trace.kernels.details if trace.kernels is not None else None
    there = () if details is None else details.sections(launch)
    return tuple(section for section in dict.fromkeys(sections) if section not in there and _is_known(trace, section))


def _is_known(trace: Trace, section: str) -> bool:
    """Whether the version that made a report has the section: it refuses what it does not know."""
    version = _VERSION.match(trace.origin.tool_version) if trace.origin.is_ncu else None
    return version is None or (int(version[1]), int(version[2])) >= _SINCE.get(section, (0, 0))


def timeline(trace: Trace) -> str:
    """The command that shows when each kernel ran and who launched it."""
    return _timeline(trace, "")


def timeline_with_threads(trace: Trace) -> str:
    """The same with where threads stood, and when they had a CPU."""
    if is_of_amd(trace):
        return filled(trace, AMD_THREADS)
    return _timeline(trace, "--sample=process-tree --cpuctxsw=process-tree")


def timeline_of_server(trace: Trace) -> str:
    """The same of a server, once it has started, for some seconds; the server goes on."""
    return _timeline(trace, f"--delay={_SERVER_STARTS_S} --duration={_LOOK_S} --kill=none")


def explained(trace: Trace, finding: Finding) -> Finding:
    """A finding that names no command with why: its rule's reason, or that the report has all that it rests on."""
    if finding.next_command or finding.no_command:
        return finding
    what = "counters" if trace.origin.is_ncu else "times and names"
    return replace(finding, no_command=f"this capture has all {what} that this rests on")


def of_threads(trace: Trace) -> tuple[str, str]:
    """The command that collects what threads did, if the capture lacks any of it; else none, and why."""
    if any(trace.why_missing(what) is not None for what in _OF_THREADS):
        return timeline_with_threads(trace), ""
    return "", "what nsys records of threads is in this capture: their calls, OS calls, samples and CPU times"


def lightest_timeline(trace: Trace) -> str:
    """The command for a timeline that costs the program least: GPU work and CUDA calls alone."""
    light = TIMELINE.replace("--trace=cuda,nvtx,osrt", "--trace=cuda --sample=none --cpuctxsw=none")
    return filled(trace, light)


def _timeline(trace: Trace, options: str) -> str:
    """A program that says itself what is to be looked at (cudaProfilerStart) is looked at there alone."""
    if is_of_amd(trace):
        return filled(trace, AMD_TIMELINE)
    if _FROM_START in ncu_command(trace).options:
        options = f"--capture-range=cudaProfilerApi {options}".strip()
    return filled(trace, TIMELINE.replace(PROGRAM, f"{options} {PROGRAM}" if options else PROGRAM))


def _collect(
    trace: Trace, choice: Iterable[Option], wanted: Iterable[Option], name: str, made: NcuCommand | None = None
) -> str:
    circumstances = (made or ncu_command(trace)).circumstances
    words = ("ncu", *map(str, (*circumstances, *choice, *wanted)), "-o", f"{name}_%i", program(trace))
    return " ".join(words)


def ncu_command(trace: Trace) -> NcuCommand:
    """How a report of Nsight Compute was made; without any option where it does not say, or was made otherwise."""
    command = trace.origin.facts.get(OriginFact.COMMAND, "")
    known = parse(command) if trace.origin.is_ncu and isinstance(command, str) else None
    if known is not None or trace.origin.is_ncu:
        return known or UNKNOWN_PROGRAM
    begins = (_FROM_START,) if begins_where_told(trace) else ()
    include = trace.origin.facts.get(INCLUDE_FACT)
    ranges = (Option("nvtx"), Option("nvtx-include", include)) if isinstance(include, str) else ()
    return NcuCommand((*begins, *ranges), "")


def _of_root(trace: Trace, name: str) -> str:
    """A fact of the server's root process; empty where it is not known."""
    roots = (one for one in trace.tracks_of(TrackKind.PROCESS) if ids.pid(one.id) == one.facts.get(ProcessFact.ROOT))
    return next((fact for one in roots if isinstance(fact := one.facts.get(name), str)), "")
