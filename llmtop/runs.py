"""Reports as they are opened together: which files are ranks of one run, and these as one trace on one clock.

A file names its rank (PyTorch's distributedInfo, the variables of torchrun, MPI and Slurm in an nsys capture), or its
name does. Files are of one run where one tool wrote them, no two claim one rank, and they were captured at the same
time, as far as their times of day tell; what they lack of that is made up for by collectives that they share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llmtop.analysis.kernels.collective_clock import clocks
from llmtop.analysis.timeline.join import joined
from llmtop.analysis.timeline.work import gpus_at_work
from llmtop.errors import FileError
from llmtop.model import ClockBasis, ClockFit, Issue, Severity
from llmtop.parsers.registry import PARSERS, load
from llmtop.text import clean, listed

if TYPE_CHECKING:
    from llmtop.model import Trace, Unknown

MOST_FILES: Final = 512
_NAMED = re.compile(r"(?<![a-z])(?:rank|tp|worker)[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_APART_NS = 60_000_000_000
"""Times of day of one moment on hosts whose clocks nobody sets: more than that between two captures makes two runs."""
_FEW = 4


class ApartError(FileError):
    """Files are no ranks of one run: each is a report of its own.

    Attributes:
        is_final: Whether they cannot be one, whoever says that they are.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files to read: of folders those that may be timelines, in the order of their names.

    Raises:
        FileError: A folder has none, or more than anybody has ranks.
    """
    return [file for path in paths for file in (_in_folder(path) if is_folder(path) else [path])]


def is_folder(path: Path) -> bool:
    """Whether it is a folder of files, not one that is a report by itself."""
    try:
        return path.is_dir() and not any(parser.sniff(b"", path) for parser in PARSERS)
    except OSError:
        return False


def _in_folder(folder: Path) -> list[Path]:
    try:
        inside = [one for one in folder.iterdir() if not one.name.startswith(".")]
    except OSError as error:
        raise FileError(f"{folder} cannot be read: {error.strerror}") from error
    below = [one for path in inside if path.is_dir() and is_folder(path) for one in path.iterdir() if one.is_file()]
    every = [path for path in inside if path.is_file() or (path.is_dir() and not is_folder(path))]
    found = _timelines(every) or _timelines(below)
    if not found:
        raise FileError(f"{folder} is a folder without timelines: no {listed(_SUFFIXES, 'or')} is in it")
    if len(found) > MOST_FILES:
        raise FileError(f"{folder} holds {len(found)} timelines: give at most {MOST_FILES} by name")
    return found


_SUFFIXES = (".nsys-rep", ".qdrep", ".sqlite", ".json", ".json.gz", ".json.zst")


def _timelines(paths: Iterable[Path]) -> list[Path]:
    """Those named like timelines; of a report and its export beside it the export."""
    named = sorted(path for path in paths if path.is_dir() or re.search(_TIMELINE, path.name))
    exported = {path.with_suffix("") for path in named if path.suffix == ".sqlite"}
    return [
        path for path in named if path.suffix not in (".nsys-rep", ".qdrep") or path.with_suffix("") not in exported
    ]


_TIMELINE = re.compile(r"\.(?:nsys-rep|qdrep|sqlite|json)(?:\.gz|\.zst|\.xz)?$")


def load_together(paths: Sequence[Path], *, is_forced: bool = False, read: Callable[[Path], Trace] = load) -> Trace:
    """One trace of all that is in these paths, read one after the other.

    Raises:
        ApartError: They are of several runs, or no timelines.
        FileError: None of them can be read; what of several cannot be read is left out, and that is an issue.
    """
    files = files_of(paths)
    if len(files) == 1:
        return read(files[0])
    traces, unread = _readable(files, read)
    if any(map(is_folder, paths)) and any(map(gpus_at_work, traces)):
        unread += [f"{trace.origin.path} has no timeline of a GPU" for trace in traces if not gpus_at_work(trace)]
        traces = [trace for trace in traces if gpus_at_work(trace)]
    if not traces:
        raise FileError("; ".join(unread))
    issues = [Issue(Severity.WARNING, "rank-unread", f"a file is left out: {said}") for said in unread]
    if len(traces) == 1:
        return replace(traces[0], issues=[*issues, *traces[0].issues])
    return together(traces, _name(paths), issues, is_forced=is_forced)


def _readable(files: Sequence[Path], read: Callable[[Path], Trace]) -> tuple[list[Trace], list[str]]:
    traces, unread = [], []
    for file in files:
        try:
            traces.append(read(file))
        except FileError as error:
            unread.append(str(error))
    return traces, unread


def _name(paths: Sequence[Path]) -> str:
    """What to call them all: the folder that they are in."""
    return clean(str(paths[0] if len(paths) == 1 else paths[0].parent))


# -- whether they are of one run --------------------------------------------------------------------------------------


def together(traces: Sequence[Trace], path: str, issues: Sequence[Issue] = (), *, is_forced: bool = False) -> Trace:
    """The ranks of one run as one trace.

    Args:
        traces: Of the files; what they hold goes over into the new one.
        path: What to call the whole.
        issues: What is known to be wrong with it.
        is_forced: They are what they are said to be: ranks of one run.

    Raises:
        ApartError: They are not.
    """
    known = [_ranked(trace) for trace in traces]
    if why := why_never(known):
        raise ApartError(f"{path}: {why}", is_final=True)
    if not is_forced and (why := why_apart(known)):
        raise ApartError(f"{path}: {why}")
    names = _names(known)
    order = sorted(range(len(known)), key=lambda i: (known[i].origin.rank is None, known[i].origin.rank or 0, names[i]))
    ordered, ordered_names = [known[i] for i in order], [names[i] for i in order]
    fits = clocks(ordered)
    if not is_forced and (why := _why_strangers(ordered, fits)):
        raise ApartError(f"{path}: {why}")
    return joined(ordered, ordered_names, fits, path, [*issues, *_absent(ordered)])


def _ranked(trace: Trace) -> Trace:
    """With the rank that the name of its file tells, where nothing in it does."""
    if trace.origin.rank is not None:
        return trace
    named = _NAMED.findall(Path(trace.origin.path).name)
    return replace(trace, origin=replace(trace.origin, rank=int(named[-1]))) if named else trace


def why_never(traces: Sequence[Trace]) -> str:
    """Why they cannot be one trace, whoever says that they are; empty where they can."""
    kinds = sorted({trace.origin.kind for trace in traces})
    if len(kinds) > 1:
        return f"reports of several tools ({listed(kinds)}) are no ranks of one run"
    idle = [trace.origin.path for trace in traces if not gpus_at_work(trace)]
    return f"{idle[0]} has no timeline of a GPU: only timelines are ranks of one run" if idle else ""


def why_apart(traces: Sequence[Trace]) -> str:
    """What speaks against one run; empty where nothing does."""
    sizes = sorted({trace.origin.ranks for trace in traces if trace.origin.ranks is not None})
    if len(sizes) > 1:
        return f"the files are of runs of {listed(map(str, sizes))} ranks: open those of one run"
    claims = Counter(trace.origin.rank for trace in traces if trace.origin.rank is not None)
    twice = [rank for rank, number in claims.items() if number > 1]
    if twice:
        paths = [Path(trace.origin.path).name for trace in traces if trace.origin.rank == twice[0]]
        return f"{listed(paths)} both are of rank {twice[0]}: name the files of one run"
    timed = [(trace.origin.utc_ns + trace.start_ns, trace) for trace in traces if trace.origin.utc_ns is not None]
    reach = None
    for began, trace in sorted(timed, key=lambda pair: pair[0]):
        if reach is not None and began > reach + _APART_NS:
            return f"{Path(trace.origin.path).name} begins {_later(began - reach)} after the others ended"
        ended = began + trace.end_ns - trace.start_ns
        reach = ended if reach is None else max(reach, ended)
    return ""


def _later(ns: int) -> str:
    minutes = ns // 60_000_000_000
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def _why_strangers(traces: Sequence[Trace], fits: Sequence[ClockFit | Unknown]) -> str:
    """Files of which nothing says that they belong together: neither ranks, nor collectives, nor the time of day."""
    for trace, fit in zip(traces, fits, strict=True):
        is_tied = isinstance(fit, ClockFit) and fit.basis is not ClockBasis.UTC
        if trace.origin.rank is None and not is_tied:
            return f"nothing says that {Path(trace.origin.path).name} is of one run with the others"
    return ""


def _names(traces: Sequence[Trace]) -> list[str]:
    """What to call each: by its rank; by its file where none is told, two claim one, or it is of several GPUs."""
    claims = Counter(trace.origin.rank for trace in traces)
    stems = [re.sub(_TIMELINE, "", Path(trace.origin.path).name) or trace.origin.path for trace in traces]
    hosts = [trace.origin.host for trace in traces]
    others = hosts if all(hosts) and len(set(hosts)) == len(hosts) else stems
    wholes = [other if others.count(other) == 1 else f"{other} {i}" for i, other in enumerate(others, 1)]
    return [
        f"rank {trace.origin.rank}"
        if trace.origin.rank is not None and claims[trace.origin.rank] == 1 and len(gpus_at_work(trace)) == 1
        else f"file {whole}"
        if whole[:1].isdigit()
        else whole
        for trace, whole in zip(traces, wholes, strict=True)
    ]


def _absent(traces: Sequence[Trace]) -> list[Issue]:
    """Ranks that no file is of."""
    sizes = {one.origin.ranks for one in traces if one.origin.ranks is not None}
    own = {one.origin.rank for one in traces}
    absent = [str(rank) for size in sizes if size <= MOST_FILES for rank in range(size) if rank not in own]
    if not absent or None in own:
        return []
    few = absent if len(absent) <= _FEW else [*absent[:_FEW], f"{len(absent) - _FEW} more"]
    said = f"the run has {max(sizes)} ranks, and no file is of rank {listed(few)}: who waits for it is not told"
    return [Issue(Severity.WARNING, "rank-absent", said)]
