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
from llmtop.errors import ApartError, FileError, ForeignFileError
from llmtop.model import ClockBasis, ClockFit, Issue, Severity, Unknown
from llmtop.parsers.registry import is_report, load, parsers
from llmtop.text import clean, listed

if TYPE_CHECKING:
    from llmtop.model import Trace

MOST_FILES: Final = 256
"""So many join keys of 54 bits, a PID of Linux and a number of CUDA, are told apart in 62."""
_NAMED = re.compile(r"(?<![a-z])(?:rank|tp|worker)[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_APART_NS = 60_000_000_000
"""Times of day of one moment on hosts whose clocks nobody sets: more than that between two captures makes two runs."""
_SET_NS = 5_000_000_000
"""The same on hosts of one cluster, whose clocks are set."""
_FEW = 4


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files to read: of folders those that may be timelines, else all reports, in the order of their names.

    Raises:
        FileError: A folder has none, or more than anybody has ranks.
    """
    return [file for path in paths for file in (_in_folder(path) if is_folder(path) else [path])]


def is_folder(path: Path) -> bool:
    """Whether it is a folder of files, not one that is a report by itself."""
    try:
        return path.is_dir() and not any(parser.sniff(b"", path) for parser in parsers())
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
    if not any(map(_may_be_timeline, found)):
        named = set(found)
        found = sorted(path for path in every if path not in named and is_report(path)) or found
    if not found:
        raise FileError(f"{folder} is a folder without reports: no {listed(_SUFFIXES, 'or')}, nor any other, is in it")
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


def _may_be_timeline(path: Path) -> bool:
    """All but JSON without events, as a model's config beside a report; what is wrong with a file is said later."""
    if path.suffix != ".json":
        return True
    from llmtop.parsers.kineto import has_events

    try:
        return has_events(path)
    except OSError:
        return False


_NOT_IN_NAMES = re.compile(r"[^\w -]")
"""What ids of tracks are made of."""
_TIMELINE = re.compile(r"\.(?:nsys-rep|qdrep|sqlite|json)(?:\.gz|\.zst|\.xz)?$")


class RunFiles:
    """The files of what may be one run, as they are read one after the other.

    Attributes:
        path: What to call the whole.
        is_forced: They are what they are said to be: ranks of one run.
        is_choosy: What is no timeline of a GPU is left out, as it may lie in the same folder by chance.
    """

    def __init__(self, path: Path | str, *, is_forced: bool = False, is_choosy: bool = False) -> None:
        self.path = clean(str(path))
        self.is_forced = is_forced
        self.is_choosy = is_choosy
        self._traces: list[Trace] = []
        self._unread: list[str] = []
        self._foreign = 0

    def add(self, result: Trace | Exception) -> None:
        """Take what was read of a file, or why it cannot be.

        Raises:
            ApartError: It is of another run than those before, or no timeline.
        """
        if self.is_choosy and isinstance(result, ForeignFileError):
            self._foreign += 1
        elif isinstance(result, Exception):
            self._unread.append(str(result))
        elif self.is_choosy and not gpus_at_work(result):
            self._unread.append(f"{result.origin.path} has no timeline of a GPU")
        else:
            self._traces.append(_ranked(result))
        if why := why_never(self._traces):
            raise ApartError(f"{self.path}: {why}", is_final=True)
        if not self.is_forced and (why := why_apart(self._traces)):
            raise ApartError(f"{self.path}: {why}")

    def together(self) -> Trace:
        """All of them as one trace, which what they hold goes over into; the only one by itself.

        Raises:
            ApartError: Nothing says that they are of one run.
            FileError: None of them could be read.
        """
        if not self._traces and self._foreign and not self._unread:
            raise FileError(f"{self.path} has no report: none of its {self._foreign} files is one")
        if not self._traces:
            more = f"; and {len(self._unread) - _FEW} more" if len(self._unread) > _FEW else ""
            raise FileError("; ".join(self._unread[:_FEW]) + more)
        issues = [Issue(Severity.WARNING, "rank-unread", f"a file is left out: {said}") for said in self._unread]
        if self._foreign:
            issues.append(Issue(Severity.INFO, "files-foreign", _skipped(self._foreign)))
        if len(self._traces) == 1:
            return replace(self._traces[0], issues=[*issues, *self._traces[0].issues])
        traces, names = _in_order(self._traces)
        fits = clocks(traces)
        if not self.is_forced and (why := _why_strangers(traces, fits)):
            raise ApartError(f"{self.path}: {why}")
        return joined(traces, names, fits, self.path, [*issues, *_absent(traces)])


def _skipped(foreign: int) -> str:
    if foreign == 1:
        return "1 file of the folder is no report, and skipped"
    return f"{foreign} files of the folder are no reports, and skipped"


def load_together(paths: Sequence[Path], *, is_forced: bool = False, read: Callable[[Path], Trace] = load) -> Trace:
    """One trace of all that is in these paths, read one after the other.

    Raises:
        ApartError: They are of several runs, or no timelines.
        FileError: None of them can be read; what of several cannot be read is left out, and that is an issue.
    """
    files = files_of(paths)
    if len(files) == 1:
        return read(files[0])
    whole = paths[0] if len(paths) == 1 else paths[0].parent
    run = RunFiles(whole, is_forced=is_forced, is_choosy=any(map(is_folder, paths)))
    for file in files:
        run.add(_read(file, read))
    return run.together()


def _read(file: Path, read: Callable[[Path], Trace]) -> Trace | FileError:
    try:
        return read(file)
    except FileError as error:
        return error


# -- whether they are of one run --------------------------------------------------------------------------------------


def _in_order(traces: Sequence[Trace]) -> tuple[list[Trace], list[str]]:
    """By rank, those without one last; and what to call each."""
    named = zip(traces, _names(traces), strict=True)
    ordered = sorted(named, key=lambda one: (one[0].origin.rank is None, one[0].origin.rank or 0, one[1]))
    return [trace for trace, _ in ordered], [name for _, name in ordered]


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
    """Files of which nothing says that they belong together: neither ranks, nor collectives, nor one host's clock."""
    for trace, fit in zip(traces, fits, strict=True):
        if trace.origin.rank is None and not _is_tied(traces[0], trace, fit):
            return f"nothing says that {Path(trace.origin.path).name} is of one run with the others"
    return ""


def _is_tied(first: Trace, trace: Trace, fit: ClockFit | Unknown) -> bool:
    """Whether a file without a rank was captured with the first: runs one after the other may be alike in all else."""
    if isinstance(fit, Unknown) or fit.basis is ClockBasis.UTC:
        return False
    if first.origin.utc_ns is None or trace.origin.utc_ns is None:
        return True
    later = trace.origin.utc_ns - first.origin.utc_ns
    between = max(trace.start_ns + later - first.end_ns, first.start_ns - trace.end_ns - later)
    is_one_host = bool(trace.origin.host) and trace.origin.host == first.origin.host
    return between < (0 if is_one_host else _SET_NS)


def _names(traces: Sequence[Trace]) -> list[str]:
    """What to call each: by its rank; by its file where none is told, two claim one, or it is of several GPUs."""
    claims = Counter(trace.origin.rank for trace in traces)
    stems = [_stem(trace.origin.path) for trace in traces]
    hosts = [_NOT_IN_NAMES.sub("_", trace.origin.host.partition(".")[0]) for trace in traces]
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


def _stem(path: str) -> str:
    """The name of a file without what says that it is a timeline."""
    return _NOT_IN_NAMES.sub("_", re.sub(_TIMELINE, "", Path(path).name).removesuffix(".trace").removesuffix(".pt"))


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
