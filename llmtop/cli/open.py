"""Explore reports and profiles, also as .xz, .gz or .zst, or play a recording; told by content: docs/formats.md."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.cli.report import TOGETHER, add_source_dir, check_source_dirs
from llmtop.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Sequence


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    paths = "a report; several become tabs, but the timelines of one run, and those of a folder, are one"
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help=paths)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--together", action="store_true", help=TOGETHER)
    how.add_argument("--apart", action="store_true", help="each file is a report of its own, whatever is in it")
    add_source_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Show the explorer until the user leaves it, or the live screen over a recording.

    Raises:
        FileError: None of the files is a report.
        TargetError: The terminal does not do.
        UsageError: A folder of sources is none.
    """
    from llmtop.cli.inputs import STANDARD_INPUT, opened_inputs, take_keyboard

    check_source_dirs(args.source_dir)
    with opened_inputs(args.paths) as paths:
        if STANDARD_INPUT in args.paths:
            take_keyboard()
        _refuse_without_screen(paths)
        if len(paths) == 1 and (code := _played(paths[0])) is not None:
            return code
        from llmtop.tui.screens.explore import explore

        return explore(paths, True if args.together else False if args.apart else None, args.source_dir)


def _refuse_without_screen(paths: Sequence[Path]) -> None:
    """Fail where none can be drawn: by what is wrong with the files, which a terminal would not mend."""
    from llmtop.cli.inputs import refuse_hopeless
    from llmtop.cli.live import refuse_unfit_terminal

    try:
        refuse_unfit_terminal()
    except TargetError:
        refuse_hopeless(paths)
        raise


def _played(path: Path) -> int | None:
    """The exit code of the live screen over a recording; None where the file is something else."""
    from llmtop.parsers.registry import recording_at

    recording = recording_at(path)
    if recording is None:
        return None
    from llmtop.tui.screens.replay import play_recording

    return play_recording(recording)
