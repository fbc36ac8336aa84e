"""Print what a report says, without a screen: text, Markdown, HTML, JSON or CSV, or its stacks for other tools."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmtop.cli.moments import add_at_argument
from llmtop.cli.output import add_output_argument
from llmtop.errors import ApartError, FileError, UsageError
from llmtop.files import whole_file, write_whole
from llmtop.text import did_you_mean

if TYPE_CHECKING:
    from llmtop.cli.part_table import PartTable
    from llmtop.model import Trace

FORMATS = ("text", "json", "md", "csv", "html")
_FOR_PEOPLE = ("text", "md", "html")
STACK_FORMATS = ("folded", "speedscope")
TRACE_FORMATS = ("perfetto",)
OF_KERNELS = (
    *("line", "instruction", "occupancy", "traffic"),
    *("roofline", "warps", "mix", "samples", "sections"),
)
"""What is told of chosen kernels, if one likes: the values of `CodeBy`, and pages of kernels."""
OF_PRINTED = ("counts", "scheduling", "cache-lines", "accesses")
"""The tables of what other tools have printed: of `report_printed`, which is not loaded for them."""
OF_RECORDINGS = ("budget", "engine-steps", "threads")
"""The tables of `report_observed`, which is not loaded for them either."""
_OVER_TIME = ("step", "nvtx", "stream", "rank", "api", "copy", "os", "allocation", "memory", "series")
"""The values of `By` and `Listed` of the analysis, which is not loaded for them, and what goes over time."""
BY = (*_OVER_TIME, *OF_RECORDINGS, *OF_PRINTED, *OF_KERNELS)
SOURCE_DIR = "a folder with source files that a report names and does not hold; may be given several times"
TOGETHER = "several files are ranks of one run, even if nothing in them says so"


_KERNELS = ("kernel", "kernels")


def _by(text: str) -> str:
    """An argparse type: the kernels themselves are no part of a report, but what it is of."""
    if text not in BY and did_you_mean(text, _KERNELS):
        raise argparse.ArgumentTypeError(f"kernels are what a report lists anyway: leave {text!r} out")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="a report or a profile: docs/formats.md lists them; several timelines, or a folder of them, are the ranks "
        "of one run",
    )
    parser.add_argument("--together", action="store_true", help=TOGETHER)
    parser.add_argument(
        "--format",
        choices=(*FORMATS, *STACK_FORMATS, *TRACE_FORMATS),
        default="text",
        help="default: text; folded and speedscope are its stacks alone, for tools that draw these; perfetto is a "
        "recording or a timeline as a trace for ui.perfetto.dev",
    )
    _add_parts(parser)
    parser.add_argument(
        "--by",
        type=_by,
        choices=BY,
        help="add a table of a timeline's time, calls, copies or memory, of numbers over time, of where in their code "
        "kernels wait, of their occupancy, or of what they move through the memory system; as csv that table alone",
    )
    parser.add_argument(
        "--kernel", metavar="NAME", help=f"with --by {'|'.join(OF_KERNELS)}: kernels with this in their name"
    )
    add_source_dir(parser)
    parser.add_argument(
        "--each-range", action="store_true", help="ranges one by one, not those as one that differ by numbers only"
    )
    add_output_argument(parser)


def _add_parts(parser: argparse.ArgumentParser) -> None:
    """Declare what of a file alone is looked at."""
    parser.add_argument(
        "--range",
        "--nvtx",
        metavar="NAME|START:END",
        help="only the kernels launched in this range of the program (NVTX, record_function; --by: its time), or only "
        "this time of the capture, as in 2.5s:3.1s",
    )
    add_at_argument(parser)
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        help='only kernels for which it holds: "duration > 100us and dram%% > 50 and name ~ gemm" (docs/filters.md)',
    )


def add_source_dir(parser: argparse.ArgumentParser) -> None:
    """Declare the folders of source files."""
    parser.add_argument("--source-dir", metavar="DIR", type=Path, action="append", default=[], help=SOURCE_DIR)


def check_source_dirs(folders: Sequence[Path]) -> None:
    """Refuse what is no folder before anything is read.

    Raises:
        UsageError: One of them is none.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--source-dir {folder}: no such folder")


def _refuse_unknown_kernel(trace: Trace, name: str) -> None:
    from llmtop.analysis.kernels.source_table import no_such_kernel

    if (why := no_such_kernel(trace, name)) is not None:
        raise FileError(f"{trace.origin.path}: {why}")


def run(args: argparse.Namespace) -> int:
    """Read the report and print it.

    Raises:
        FileError: The report cannot be read or has no such NVTX range, kernel, table or stacks, or the output cannot be
            written.
        UsageError: The output is the input, a folder of sources is none, or --at is no moment of the one recording.
    """
    from llmtop.cli.inputs import STANDARD_INPUT, opened_inputs
    from llmtop.cli.waiting import telling_progress
    from llmtop.freed import give_back_columns, give_back_freed
    from llmtop.notes import digest_of, noted
    from llmtop.parsers.source_files import with_sources

    if args.output is not None and any(is_same_file(args.output, path) for path in args.paths):
        raise UsageError(f"{args.output} is the report itself: give another name to -o")
    if args.kernel is not None and args.by not in OF_KERNELS:
        raise UsageError(f"--kernel goes with --by {'|'.join(OF_KERNELS)}")
    check_source_dirs(args.source_dir)
    give_back_columns()
    with opened_inputs(args.paths) as paths:
        with telling_progress(sys.__stderr__):
            trace = noted(with_sources(_read(args, paths), args.source_dir), digest_of(paths[0]))
        give_back_freed()
        if list(args.paths) == [STANDARD_INPUT]:
            trace = replace(trace, origin=replace(trace.origin, path="standard input"))
        return _print(args, trace)


def _read(args: argparse.Namespace, paths: Sequence[Path]) -> Trace:
    """What is asked of a recording, or all of any other file."""
    if args.at is None and args.range is None:
        return read_report(paths, is_together=args.together)
    from llmtop.analysis.pages.cut import moments
    from llmtop.cli.moments import recorded_at, recorded_between

    if args.at is not None:
        if len(paths) > 1 or args.range is not None:
            raise UsageError("--at takes a moment of one recording, without --range, which takes a time of it")
        return recorded_at(paths[0], args.at)
    between = moments(args.range)
    recorded = recorded_between(paths[0], *between) if len(paths) == 1 and between is not None else None
    return recorded or read_report(paths, is_together=args.together)


def _is_cut(args: argparse.Namespace, trace: Trace) -> bool:
    """Whether what was read is of that time alone already: a recording is."""
    from llmtop.analysis.pages.cut import moments

    return trace.origin.is_observed and moments(args.range) is not None


def _print(args: argparse.Namespace, trace: Trace) -> int:
    if args.kernel is not None:
        _refuse_unknown_kernel(trace, args.kernel)
    reported = trace if args.range is None or _is_cut(args, trace) else in_range(trace, args.range)
    if args.where is not None:
        trace = reported = _only_where(reported, args.where)
    by = None if args.by is None else _table(args, trace, reported)
    if by is not None and args.format != "json":
        by.known()  # before a word is written; in JSON a table that cannot be had is unknown
    if args.format in TRACE_FORMATS:
        _print_trace(reported, args.output)
    elif args.output is None:
        for part in report(reported, args.format, to_terminal=True, each_range=args.each_range, by=by):
            sys.stdout.write(part)
    else:
        write_parts(args.output, report(reported, args.format, each_range=args.each_range, by=by))
    return 0


def read_report(paths: Sequence[Path], *, is_together: bool, switch: str = "--together") -> Trace:
    """The report, or the ranks of one run as one.

    Args:
        paths: Files and folders.
        is_together: They are of one run, even if nothing in them says so.
        switch: How whoever reads an error says that they are.

    Raises:
        FileError: It cannot be read.
    """
    from llmtop.parsers.registry import load

    if len(paths) == 1 and not paths[0].is_dir():
        return load(paths[0])
    from llmtop.runs import load_together

    try:
        return load_together(paths, is_forced=is_together)
    except ApartError as error:
        again = "name one of them" if error.is_final else f"{switch} takes them as ranks of one run all the same"
        raise FileError(f"{error}; {again}") from error


def _table(args: argparse.Namespace, trace: Trace, reported: Trace) -> PartTable[Any]:
    """The table that is asked for: of ranges of a name, cut to them; else of what is reported."""
    from llmtop.analysis.pages.cut import moments
    from llmtop.cli.part_table import WantedTable
    from llmtop.cli.report_by import part_table

    wanted = WantedTable(args.by, args.kernel or "", each_range=args.each_range)
    if args.range is None or moments(args.range) is not None or not trace.spans:
        return part_table(reported, wanted)
    return part_table(trace, replace(wanted, within=args.range))


def _only_where(trace: Trace, condition: str) -> Trace:
    """The trace with the kernels for which a condition holds.

    Raises:
        FileError: There is none, or it asks for what these kernels do not have.
        UsageError: It is written wrongly.
    """
    from llmtop.analysis.kernels.absent import no_kernels
    from llmtop.analysis.kernels.conditions import ConditionError, condition_of
    from llmtop.analysis.kernels.only_where import only_where
    from llmtop.model import Unknown, UnknownKind

    try:
        condition_of(condition)
    except ConditionError as error:
        raise UsageError(f"--where {condition}: {error}") from error
    chosen = no_kernels(trace) or only_where(trace, condition)
    if not isinstance(chosen, Unknown):
        return chosen
    if chosen.kind is UnknownKind.MISWRITTEN:
        raise UsageError(f"--where {condition}: {chosen}")
    raise FileError(f"{trace.origin.path}: {chosen}")


def in_range(trace: Trace, wanted: str) -> Trace:
    """The trace of a range of time, or of the NVTX ranges of a name.

    Raises:
        FileError: It has no such range.
        UsageError: What is wanted is written wrongly.
    """
    from llmtop.analysis.kernels.nvtx_ranges import only_range
    from llmtop.analysis.pages.cut import lacks_units, moments, only_time
    from llmtop.model import RECORDING, Unknown

    between = moments(wanted)
    if between is None and trace.origin.kind == RECORDING:
        raise UsageError(f"--range {wanted}: of a recording a range is from one moment to another, as in 20s:28s")
    chosen = only_range(trace, wanted) if between is None else only_time(trace, *between)
    if isinstance(chosen, Unknown) and lacks_units(wanted):
        raise UsageError(f"--range {wanted}: a moment needs a unit, as in 2.5s:3.1s (ns, us, ms, s)")
    if isinstance(chosen, Unknown):
        raise FileError(f"{trace.origin.path}: {chosen}")
    return chosen


def report(
    trace: Trace,
    kind: str,
    *,
    to_terminal: bool = False,
    each_range: bool = False,
    by: PartTable[Any] | None = None,
) -> Iterator[str]:
    """The report in one of `FORMATS` or `STACK_FORMATS`, in parts.

    Args:
        trace: What it is of.
        kind: The format.
        to_terminal: Whether it may have what terminals show.
        each_range: NVTX ranges by their full names.
        by: A table that is added; as CSV that table alone. A file of series alone has theirs unasked.
    """
    by = by or _unasked(trace, kind)
    match kind:
        case "text":
            from llmtop.cli.report_text import report_text
            from llmtop.cli.text_layout import terminal_style

            return report_text(trace, terminal_style(each_range=each_range, by=by, to_terminal=to_terminal))
        case "folded" | "speedscope":
            from llmtop.cli.report_stacks import report_stacks

            return report_stacks(trace, kind)
        case _:
            return _document(trace, kind, each_range=each_range, by=by)


def _document(trace: Trace, kind: str, *, each_range: bool, by: PartTable[Any] | None) -> Iterator[str]:
    """The report as JSON, CSV, Markdown or HTML."""
    match kind:
        case "json":
            from llmtop.cli.report_json import report_json

            return report_json(trace, each_range=each_range, by=by)
        case "csv":
            from llmtop.cli.report_csv import report_csv

            return report_csv(trace) if by is None else by.csv()
        case "md":
            from llmtop.cli.report_md import report_md

            return report_md(trace, each_range=each_range, by=by)
        case _:
            from llmtop.cli.report_html import report_html

            return report_html(trace, each_range=each_range, by=by)


def _unasked(trace: Trace, kind: str) -> PartTable[Any] | None:
    """What a tool has printed; else series, of a trace that has little else: a recording, a file of series alone.

    Of a recording with what comes before its numbers, in formats for people.
    """
    from llmtop.analysis.series.summary import has_series_alone

    for by, told in zip(OF_PRINTED, (trace.counts, trace.scheduling, trace.cache_lines, trace.accesses), strict=True):
        if told:
            return _all_of(trace, by)
    if not (has_series_alone(trace) or (trace.origin.is_observed and trace.series)):
        return None
    series = _all_of(trace, "series")
    if not trace.origin.is_observed or kind not in _FOR_PEOPLE:
        return series
    from llmtop.cli.report_observed import observed_parts

    return replace(series, before=observed_parts(trace))


def _all_of(trace: Trace, by: str) -> PartTable[Any]:
    from llmtop.cli.part_table import WantedTable
    from llmtop.cli.report_by import part_table

    return part_table(trace, WantedTable(by))


def is_same_file(path: Path, other: Path) -> bool:
    """Whether both are there and are one file, whatever they are called: writing one would destroy the other."""
    return path.exists() and other.exists() and path.samefile(other)


def _print_trace(trace: Trace, path: Path | None) -> None:
    """Write the trace in one of `TRACE_FORMATS`.

    Raises:
        FileError: It has nothing that goes over time, or cannot be written.
        UsageError: It would go to a terminal.
    """
    from llmtop.cli.report_perfetto import refuse_what_has_no_time, write_perfetto

    refuse_what_has_no_time(trace)
    if path is None:
        if sys.stdout.isatty():
            raise UsageError("a Perfetto trace is no text: name a file for it, -o trace.pftrace")
        write_perfetto(trace, sys.stdout.buffer)
        return
    try:
        with whole_file(path) as file:
            write_perfetto(trace, file)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}") from error


def write_parts(path: Path, parts: Iterable[str]) -> None:
    """Write a report.

    Raises:
        FileError: It cannot be written.
    """
    try:
        write_whole({path: parts})
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}") from error
