"""What a capture does not hold, with the one command for each tool that would collect all of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import filterfalse

from llmtop import whats
from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels import counting
from llmtop.analysis.kernels.shown import SECTIONS
from llmtop.analysis.kernels.table import kernels_of
from llmtop.facts import OriginFact
from llmtop.frozen import frozen
from llmtop.model import Missing, Trace, UnknownKind, What

_OF_PYTORCH: Mapping[What, str] = {
    whats.PYTHON_CALLS: "with_stack=True",
    whats.SHAPES: "record_shapes=True",
    whats.ALLOCATIONS: "profile_memory=True",
}
"""What brings each part of a trace of PyTorch."""


_FAILED = "the program failed, and would under a profiler: mend that first"
_PAST = "what was not looked at then cannot be had any more"


class DataKind(StrEnum):
    """What data are of that one command brings: as they are called."""

    PYTORCH = "PyTorch's profiler"
    TIMELINE = "timeline and CPU"
    COUNTERS = "counters of kernels"
    OBSERVED = "what is observed"


@frozen
class MissingData:
    """Parts that one command would bring.

    Attributes:
        title: What they are of.
        parts: (what, why it is not there).
        command: Complete, with the program's own command line where the capture has it; empty where there is none.
        no_command: Why.
    """

    title: DataKind
    parts: tuple[tuple[str, str], ...]
    command: str
    no_command: str = ""


_NO_GPUS = "nothing in this profile names CUDA or a library that uses it: there may be no GPU work to record"
_OF_GPUS = re.compile(
    r"(?i)cuda|cublas|cudnn|nvrtc|nvidia|nccl|torch|vllm|sglang|tensorrt|triton|\bjax\b|cupy|llama|python"
)
_OF_MACOS = re.compile(r"/Users/|/opt/homebrew/|/System/Library/|\.dylib\b")


def typed(group: MissingData) -> str:
    """The command of a group as it is shown: behind a prompt where a shell takes it, and not the program."""
    if not group.command:
        return f"no command: {group.no_command}"
    is_typed = group.title not in (DataKind.PYTORCH, DataKind.OBSERVED)
    return f"$ {group.command}" if is_typed else group.command


def lacking(trace: Trace) -> tuple[MissingData, ...]:
    """Of the timeline and the CPU side what Nsight Systems collects; of kernels what Nsight Compute does.

    Decodes one launch of each kernel. What no tool collects is left out: a kernel without floating-point work has no
    place in the roofline.
    """
    if trace.origin.is_observed:
        return tuple(_of_observed(trace))
    return (*_of_pytorch(trace), *_of_time(trace), *_of_kernels(trace))


def missing_of_launch(trace: Trace, launch: int) -> tuple[str, str]:
    """The command that collects what is not known of one launch, or why none does; neither where nothing is missing."""
    missing = [one for one in kernels_of(trace).facts(launch).missing if one.why.remedy]
    wanted = [section for one in missing if not _is_not_shown(one) for section in SECTIONS[one.what]]
    if not wanted:
        return "", next((one.why.remedy for one in missing), "")
    return counting.of_launch(trace, launch, wanted)


def _of_observed(trace: Trace) -> Iterator[MissingData]:
    """What llmtop itself could not look at, by what lets it do so the next time."""
    by_remedy: dict[str, list[tuple[str, str]]] = {}
    for missing in trace.missing:
        by_remedy.setdefault(missing.why.remedy, []).append((missing.what, missing.why.reason))
    for remedy, parts in by_remedy.items():
        yield MissingData(DataKind.OBSERVED, _merged(parts), remedy, "" if remedy else _PAST)


def _of_pytorch(trace: Trace) -> Iterator[MissingData]:
    """What PyTorch's profiler would have recorded, had it been told so."""
    parts = [(missing.what, missing.why.reason) for missing in trace.missing if missing.what in _OF_PYTORCH]
    if parts:
        settings = ", ".join(_OF_PYTORCH[what] for what, _ in parts)
        yield MissingData(DataKind.PYTORCH, _merged(parts), f"torch.profiler.profile(..., {settings})")


def _of_time(trace: Trace) -> Iterator[MissingData]:
    parts = [
        (missing.what, missing.why.reason)
        for missing in trace.missing
        if not (_is_of_kernels(missing) or missing.what in _OF_PYTORCH)
        and missing.why.kind is not UnknownKind.NOT_ASKED
    ]
    if any(missing.why.kind is UnknownKind.FAILED for missing in trace.missing):
        yield MissingData(DataKind.TIMELINE, _merged(parts), "", _FAILED)
    elif parts and not _may_use_gpus(trace):
        yield MissingData(DataKind.TIMELINE, _merged(parts), "", _NO_GPUS)
    elif parts:
        of_threads, _ = profiling.of_threads(trace)
        command = of_threads or (profiling.timeline_with_threads(trace) if trace.spans else profiling.timeline(trace))
        yield MissingData(DataKind.TIMELINE, _merged(parts), command)


def _may_use_gpus(trace: Trace) -> bool:
    """Whether a profile of CPUs leaves it open: no name in it is of macOS, and one is of what uses GPUs, or none is."""
    if trace.spans or trace.kernels is not None:
        return True
    names = [
        str(trace.origin.facts.get(OriginFact.COMMAND, "")),
        *(one for stack in trace.stacks for one in stack.frames),
    ]
    known = [name for name in names if name]
    return not known or (not any(map(_OF_MACOS.search, known)) and any(map(_OF_GPUS.search, known)))


def _of_kernels(trace: Trace) -> Iterator[MissingData]:
    kernels = kernels_of(trace)
    launches = (kernels.middle(row) for row in kernels.groups())
    facts = [kernels.facts(launch) for launch in launches if not kernels.has_failed(launch)]
    lacks = [missing for one in facts for missing in one.missing if missing.why.remedy]
    of_all = [missing for missing in trace.missing if _is_of_kernels(missing)]
    hidden = [*filter(_is_not_shown, of_all), *filter(_is_not_shown, lacks)]
    if hidden:
        parts = (*_named(filter(_is_not_shown, of_all)), *_counted(filter(_is_not_shown, lacks), len(facts)))
        yield MissingData(DataKind.COUNTERS, _merged(parts), "", hidden[0].why.remedy)
    of_all, lacks = [*filterfalse(_is_not_shown, of_all)], [*filterfalse(_is_not_shown, lacks)]
    if of_all or lacks:
        parts = (*_named(of_all), *_counted(lacks, len(facts)))
        yield MissingData(DataKind.COUNTERS, _merged(parts), *_collect(trace, {missing.what for missing in lacks}))


def _named(missing: Iterable[Missing]) -> Iterator[tuple[str, str]]:
    return ((str(one.what), one.why.reason) for one in missing)


def _counted(lacks: Iterable[Missing], kernels: int) -> Iterator[tuple[str, str]]:
    """Of so many kernels what is not known of how many, with the reason of the first."""
    known = [*lacks]
    count = Counter(missing.what for missing in known)
    reasons = {missing.what: missing.why.general or missing.why.reason for missing in reversed(known)}
    for what in SECTIONS:
        if what in count:
            yield what if count[what] == kernels else f"{what} of {count[what]} of {kernels} kernels", reasons[what]


def _collect(trace: Trace, parts: Collection[What]) -> tuple[str, str]:
    """Of a timeline the counters of one kernel: those of all launches would take a day."""
    if trace.kernels is None or trace.kernels.details is None:
        return counting.of_heaviest(trace)
    sections = [section for what in SECTIONS if what in parts for section in SECTIONS[what]] or [c.SPEED_OF_LIGHT]
    return profiling.of_report(trace, profiling.absent(trace, 0, sections) or sections), ""


def _is_of_kernels(missing: Missing) -> bool:
    return missing.why.kind is UnknownKind.NOT_COUNTED or _is_not_shown(missing)


def _is_not_shown(missing: Missing) -> bool:
    return missing.why.kind is UnknownKind.NOT_SHOWN


def _merged(parts: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What is missing for one reason, together."""
    together: dict[str, list[str]] = {}
    for what, reason in parts:
        together.setdefault(reason, []).append(what)
    return tuple((", ".join(names), reason) for reason, names in together.items())
