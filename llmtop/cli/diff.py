"""Compare reports: what became better or worse, by how much, and why. The first is the baseline of the others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.cli.output import add_output_argument
from llmtop.cli.report import FORMATS, in_range, is_same_file, read_report, write_parts
from llmtop.errors import FileError, LlmtopError, UsageError, print_message

if TYPE_CHECKING:
    from llmtop.cli.diff_pages import Compared
    from llmtop.model import Trace


_REMEDY = "more calls or steps in both reports make it smaller"


class RegressionError(LlmtopError):
    """A report takes longer than its baseline, by more than was allowed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="two reports or more, of any kind that has kernels, steps or stacks; a folder of timelines is one run; of "
        "one report alone its kernels are compared with each other",
    )
    parser.add_argument(
        "--baseline",
        metavar="PATH|NUMBER",
        help="what the others are compared with, of one report a kernel's name or number (default: 1, the first)",
    )
    parser.add_argument(
        "--fail-above",
        metavar="PERCENT",
        type=float,
        help="exit with 1 if one takes longer than the baseline by more than this, and beyond the noise",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument(
        "--range",
        "--nvtx",
        metavar="NAME|START:END",
        help="only the kernels launched in this range of each program (NVTX, record_function), or only this time of "
        "each capture",
    )
    parser.add_argument(
        "--at",
        metavar="TIME,TIME",
        help="of recordings the moments to compare, as 2:00,12:00 or --at=-10:00,-1:00 (default: their ends); of one "
        "recording alone two or more",
    )
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Read the reports and print how they differ.

    Raises:
        FileError: A report cannot be read or has nothing to compare, or the output cannot be written.
        UsageError: The baseline is none of the reports, or the output is one of them.
        RegressionError: One is slower than `--fail-above` allows.
    """
    _check(args)
    if _of_recordings(args):
        return 0
    traces = _read(args.paths, args.range)
    if len(traces) == 1:
        _print(args, _of_kernels(traces[0], args.baseline, args.format, to_terminal=args.output is None))
        return 0
    compared = _compared(traces, _baseline(args.baseline, args.paths))
    _print(args, _of_reports(compared, args.format, to_terminal=args.output is None))
    if args.fail_above is not None:
        _judge(compared, args.fail_above)
    return 0


def _of_recordings(args: argparse.Namespace) -> bool:
    """Print how recordings differ; False where there is none among the files."""
    from llmtop.cli.diff_recordings import recorded_moments, recordings_diff

    traces = recorded_moments(args.paths, args.at)
    if traces is None:
        return False
    if args.fail_above is not None or args.range is not None:
        raise UsageError("recordings have no kernels: --at takes moments of them, and --fail-above and --range nothing")
    names = [Path(trace.origin.path) for trace in traces]
    baseline = _baseline(args.baseline, args.paths if len(args.paths) == len(names) else names)
    _print(args, recordings_diff(traces, baseline, args.format, to_terminal=args.output is None))
    return True


def _print(args: argparse.Namespace, parts: Iterator[str]) -> None:
    if args.output is not None:
        write_parts(args.output, parts)
        return
    for part in parts:
        sys.stdout.write(part)


def _check(args: argparse.Namespace) -> None:
    if len(args.paths) < 2 and args.fail_above is not None:
        raise UsageError("--fail-above takes two reports or more: llmtop diff BEFORE AFTER --fail-above PERCENT")
    if args.output is not None and any(is_same_file(args.output, path) for path in args.paths):
        raise UsageError(f"{args.output} is one of the reports: give another name to -o")
    if args.fail_above is not None and not args.fail_above >= 0:
        raise UsageError("--fail-above takes per cent, 0 or more")


def _baseline(wanted: str | None, paths: Sequence[Path]) -> int:
    """The place of the report that the others are compared with."""
    if wanted is None:
        return 0
    named = [i for i, path in enumerate(paths) if wanted in (str(path), path.name)]
    if len(named) == 1:
        return named[0]
    if wanted.isdecimal() and 1 <= int(wanted) <= len(paths):
        return int(wanted) - 1
    raise UsageError(f"--baseline {wanted} is not one of the reports: give its path, or 1 to {len(paths)}")


def _read(paths: Sequence[Path], wanted: str | None) -> list[Trace]:
    from llmtop.cli.waiting import telling_progress
    from llmtop.notes import digest_of, noted

    with telling_progress(sys.__stderr__):
        traces = [noted(read_report([path], is_together=False), digest_of(path)) for path in paths]
    if wanted is not None:
        traces = [in_range(trace, wanted) for trace in traces]
    for trace in traces:
        if (why := _why_nothing(trace)) is not None:
            raise FileError(f"{trace.origin.path} has nothing to compare: {why}")
    return traces


def _why_nothing(trace: Trace) -> object | None:
    """Why a report has neither kernels nor a timeline nor stacks."""
    from llmtop.analysis.kernels.absent import no_kernels

    return None if trace.stacks or any(len(trace.spans[kind]) for kind in trace.spans) else no_kernels(trace)


def _compared(traces: Sequence[Trace], baseline: int) -> list[Compared]:
    """Each of the others beside the baseline, in their order."""
    from llmtop.analysis.pages.diff.side import sides
    from llmtop.cli.diff_pages import Compared

    others = [trace for i, trace in enumerate(traces) if i != baseline]
    names = [chr(ord("B") + i) if i < 25 else f"#{i + 2}" for i in range(len(others))]
    return [Compared(*sides(traces[baseline], other), name) for other, name in zip(others, names, strict=True)]


def _of_reports(compared: Sequence[Compared], kind: str, *, to_terminal: bool) -> Iterator[str]:
    """In one of `FORMATS`."""
    match kind:
        case "json":
            from llmtop.cli.diff_json import diff_json

            return diff_json(compared)
        case "csv":
            from llmtop.cli.diff_csv import diff_csv

            return diff_csv(compared)
    from llmtop.cli.diff_drawn import drawn
    from llmtop.cli.diff_pages import diff_pages

    names = [compared[0].before.trace.origin.path, *(one.after.trace.origin.path for one in compared)]
    return drawn(diff_pages(compared), kind, " – ".join(Path(name).name for name in names), to_terminal=to_terminal)


def _of_kernels(trace: Trace, wanted: str | None, kind: str, *, to_terminal: bool) -> Iterator[str]:
    """The kernels of one report beside each other.

    Raises:
        FileError: It has none.
        UsageError: The baseline is none of them.
    """
    from llmtop.analysis.kernels.absent import no_kernels
    from llmtop.analysis.pages.diff.ladder import ladder_of_kernels

    if (why := no_kernels(trace)) is not None:
        raise FileError(f"{trace.origin.path} has no kernels to compare with each other: {why}")
    baseline = _kernel(trace, wanted)
    match kind:
        case "json":
            from llmtop.cli.diff_json import ladder_json

            return ladder_json(trace, ladder_of_kernels(trace, baseline))
        case "csv":
            from llmtop.cli.diff_csv import ladder_csv

            return ladder_csv(ladder_of_kernels(trace, baseline))
    from llmtop.cli.diff_drawn import drawn
    from llmtop.cli.diff_pages import kernel_pages

    title = Path(trace.origin.path).name
    return drawn(kernel_pages(trace, baseline), kind, title, to_terminal=to_terminal)


def _kernel(trace: Trace, wanted: str | None) -> int:
    """The place of the kernel that the others are held against: its number, or the only one with that in its name."""
    from llmtop.analysis.kernels.table import kernels_of
    from llmtop.analysis.pages.diff.ladder import kernel_rungs

    kernels = kernels_of(trace)
    rows = kernel_rungs(kernels)
    if wanted is None:
        return 0
    if wanted.isdecimal() and 1 <= int(wanted) <= len(rows):
        return int(wanted) - 1
    names = [f"{kernels.row_name(row)}\n{kernels.table.name(row.launches[0])}".casefold() for row in rows]
    named = [i for i, name in enumerate(names) if wanted.casefold() in name]
    if len(named) != 1:
        says = f"{len(named)} kernels have it in their names" if named else "no kernel has it in its name"
        raise UsageError(f"--baseline {wanted}: {says}; a number from 1 to {len(rows)} will do")
    return named[0]


def _judge(compared: Sequence[Compared], most_percent: float) -> None:
    """Raise what makes a job of CI fail, and tell of what is too noisy to be judged."""
    from llmtop.analysis.pages.diff.headline import headline
    from llmtop.analysis.pages.diff.verdict import Outcome
    from llmtop.units import percent

    for one in compared:
        found, name = headline(one.before, one.after), one.after.trace.origin.path
        if one.verdict.cannot or found is None:
            raise RegressionError(f"{name} cannot be held to --fail-above: {one.verdict.cannot or one.verdict.said}")
        if found.is_beyond_noise and 100 * found.share > most_percent:
            raise RegressionError(f"{name} is too slow (--fail-above {most_percent:g}): {one.verdict.said}")
        if one.verdict.outcome is Outcome.NOISE and 100 * found.noise_share > most_percent:
            said = f"cannot tell {most_percent:g} %: the noise is ±{percent(100 * found.noise_share)}"
            print_message(f"{name}: {said}; {_REMEDY}")
