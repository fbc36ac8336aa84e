"""Compare reports: what became better or worse, by how much, and why. The first is the baseline of the others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.cli.report import FORMATS, in_range, is_same_file, read_report, write_parts
from llmtop.errors import FileError, LlmtopError, UsageError

if TYPE_CHECKING:
    from llmtop.cli.diff_head import Compared
    from llmtop.model import Trace


class RegressionError(LlmtopError):
    """A report takes longer than its baseline, by more than was allowed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="two reports or more, of any kind that has kernels, steps or stacks; a folder of timelines is one run",
    )
    parser.add_argument(
        "--baseline", metavar="PATH|NUMBER", help="what the others are compared with (default: 1, the first)"
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
        help="only the kernels launched in this NVTX range of each, or only this time of each capture",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write there, not to standard output")


def run(args: argparse.Namespace) -> int:
    """Read the reports and print how they differ.

    Raises:
        FileError: A report cannot be read or has nothing to compare, or the output cannot be written.
        UsageError: There is only one report, the baseline is none of them, or the output is one of them.
        RegressionError: One is slower than `--fail-above` allows.
    """
    _check(args)
    traces = _read(args.paths, args.range)
    compared = _compared(traces, _baseline(args.baseline, args.paths))
    parts = _parts(compared, args.format, to_terminal=args.output is None)
    if args.output is None:
        for part in parts:
            sys.stdout.write(part)
    else:
        write_parts(args.output, parts)
    if args.fail_above is not None:
        _judge(compared, args.fail_above)
    return 0


def _check(args: argparse.Namespace) -> None:
    if len(args.paths) < 2:
        raise UsageError("a diff takes two reports or more: llmtop diff BEFORE AFTER")
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

    with telling_progress(sys.stderr):
        traces = [read_report([path], is_together=False) for path in paths]
    if wanted is not None:
        traces = [in_range(trace, wanted, None) for trace in traces]
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
    from llmtop.analysis.diff.side import sides
    from llmtop.cli.diff_head import Compared

    others = [trace for i, trace in enumerate(traces) if i != baseline]
    names = [chr(ord("B") + i) if i < 25 else f"#{i + 2}" for i in range(len(others))]
    return [Compared(*sides(traces[baseline], other), ("A", name)) for other, name in zip(others, names, strict=True)]


def _parts(compared: Sequence[Compared], kind: str, *, to_terminal: bool) -> Iterator[str]:
    from llmtop.cli.diff_text import diff_text
    from llmtop.cli.text_layout import terminal_style

    return diff_text(compared, terminal_style(to_terminal=to_terminal))


def _judge(compared: Sequence[Compared], most_percent: float) -> None:
    """Raise what makes a job of CI fail."""
    from llmtop.analysis.diff.headline import headline

    for one in compared:
        found, name = headline(one.before, one.after), one.after.trace.origin.path
        if one.verdict.cannot or found is None:
            raise RegressionError(f"{name} cannot be held to --fail-above: {one.verdict.cannot or one.verdict.said}")
        if found.is_beyond_noise and 100 * found.share > most_percent:
            raise RegressionError(f"{name} is too slow (--fail-above {most_percent:g}): {one.verdict.said}")
