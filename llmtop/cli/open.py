"""Explore reports and profiles, also as .xz, .gz or .zst; told by content, not by name: docs/formats.md lists them."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a report; several become tabs")


def run(args: argparse.Namespace) -> int:
    """Show the explorer until the user leaves it."""
    from llmtop.cli.live import refuse_unfit_terminal

    refuse_unfit_terminal()
    from llmtop.tui.screens.explore import explore

    return explore(args.paths)
