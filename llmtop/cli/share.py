"""A copy of a recording without secrets, or one page of HTML: what is taken out is shown first."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.cli.moments import add_at_argument
from llmtop.cli.output import new_file
from llmtop.errors import FileError, UsageError, print_message
from llmtop.files import whole_file
from llmtop.text import clean, redact, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.recording.copies import RecordedRows
    from llmtop.recording.remains import Remains
    from llmtop.recording.secrets import Removal

LIVE_S = 30.0
"""How long a server is looked at: what the rules look back on, twice."""
_SHOWN = 6
"""Things of one kind."""
_WIDTH = 44
_A_WORD = " (where it is a name; elsewhere it may be a word)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from llmtop.cli.live import add_attach_argument, seconds

    parser.add_argument(
        "source", metavar="FILE|PID", nargs="?", help="a recording, or any process of a server that runs here"
    )
    add_attach_argument(parser)
    parser.add_argument("-o", "--output", metavar="OUT", type=new_file, required=True, help="a new file")
    parser.add_argument("--html", action="store_true", help="write one self-contained page, not a recording")
    add_at_argument(parser)
    parser.add_argument(
        "--anonymise",
        action="store_true",
        help="take out the names of models and of other programs too, and the ids of GPUs",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="write without asking, as where there is no terminal")
    parser.add_argument(
        "--seconds", metavar="N", type=seconds, default=LIVE_S, help=f"look at a PID for so long (default {LIVE_S:.0f})"
    )


def run(args: argparse.Namespace) -> int:
    """Show what is taken out, ask, and write.

    Returns:
        0; 1 where the user wants nothing to be written.

    Raises:
        FileError: The recording cannot be read, or the output is there already or cannot be written.
        UsageError: Nobody can be asked, or --at is no moment of it.
    """
    if (args.source is None) == (args.attach is None):
        raise UsageError("give one thing to share: a recording, or the server of a process (--attach PID)")
    if args.at is not None and not args.html:
        raise UsageError("--at takes the moment of a page: it goes with --html")
    if args.output.exists():
        raise FileError(f"{args.output} is there already, and nothing is written over; name another")
    if not args.output.parent.is_dir():  # before a server is looked at for half a minute
        raise FileError(f"{args.output} cannot be written: there is no folder {args.output.parent}; name another")
    with ExitStack() as stack:
        given = _given(args, stack)  # a file that is none is said first, a server looked at last
        if not args.yes and not sys.stdin.isatty():
            raise UsageError("there is no terminal to ask on: --yes writes without asking, and tells what it takes out")
        return _share(args, given or _recorded(args, stack), stack)


def _recorded(args: argparse.Namespace, stack: ExitStack) -> Path:
    """A recording of the server that was named, just made."""
    from llmtop.parsers.compressed import private_folder

    pid = args.attach or int(args.source)
    return _record(pid, args.seconds, stack.enter_context(private_folder(args.output)) / "live.llmtop")


def _given(args: argparse.Namespace, stack: ExitStack) -> Path | None:
    """Where the recording lies that was given, unpacked; None where a server is to be looked at."""
    from llmtop.parsers.registry import plain_recording

    path = Path(args.source or "")
    if args.attach is not None or (args.source.isdecimal() and not path.exists()):
        return None
    plain = plain_recording(path, stack)
    if plain is None:
        raise FileError(
            f"{path} is no recording of llmtop; a page of other reports: llmtop report {path} --format html"
        )
    return plain


def _record(pid: int, seconds: float, path: Path) -> Path:
    """Look at a server for a while."""
    from llmtop.cli.live import find, live_session
    from llmtop.cli.record import record_for

    print_message(f"looking at {pid} for {seconds:g} s")
    record_for(live_session(find(pid), 1.0), path, seconds)
    return path


def _share(args: argparse.Namespace, recording: Path, stack: ExitStack) -> int:
    from llmtop.parsers.compressed import private_folder
    from llmtop.recording.copies import RecordedRows
    from llmtop.recording.secrets import Secrets
    from llmtop.recording.shared import shared_copy

    try:
        rows = RecordedRows(recording)
        secrets = Secrets(is_anonymous=args.anonymise)
        copy = stack.enter_context(private_folder(args.output)) / "shared.llmtop"
        shared = shared_copy(rows, copy, secrets)
    except OSError as error:
        raise FileError(f"{args.source or recording} cannot be copied: {error.strerror}") from error
    if not shared.moments:
        raise FileError(f"{args.source or recording} is a recording without a moment: copy it again")
    if shared.left:
        raise FileError(_leak(shared.left))
    for line in _told(secrets.removals, rows):
        print(line, file=sys.stderr)
    if not args.yes and not _is_wanted(args.output):
        print_message("nothing was written")
        return 1
    _write(args, copy)
    return 0


def _leak(left: Sequence[Remains]) -> str:
    """Why nothing is written, with the first place that shows it."""
    what, where = (shorten(redact(clean(text)), _WIDTH) for text in (left[0].what, left[0].text))
    place = f"{left[0].field} {where!r}" if left[0].field else "bytes that are no text"
    more = f", and {len(left) - 1} more like it" if len(left) > 1 else ""
    return (
        f"nothing was written: {what!r} is taken out and would still stand in the copy ({place}{more}); "
        "this is a fault of llmtop: please report it"
    )


def _is_wanted(output: Path) -> bool:
    print(f"Write {clean(str(output))} without these? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _write(args: argparse.Namespace, copy: Path) -> None:
    """Put the copy, or a page of it, where it is wanted; nothing that is there is written over."""
    from llmtop.cli.moments import recorded_at
    from llmtop.cli.report import report

    trace = recorded_at(copy, args.at or "") if args.html else None  # before there is a file
    try:
        with whole_file(args.output, is_new=True) as file:
            if trace is None:
                file.write(copy.read_bytes())
                return
            named = replace(trace, origin=replace(trace.origin, path=clean(args.output.name)))
            file.writelines(part.encode() for part in report(named, "html"))
    except OSError as error:
        raise FileError(f"{args.output} cannot be written: {error.strerror}") from error


def _told(removals: tuple[Removal, ...], rows: RecordedRows) -> Iterator[str]:
    """What is taken out, by kind; of each what is taken out most."""
    yield "Taken out:" if removals else "Nothing in it is known to be secret."
    for kind, several in groupby(removals, lambda one: one.kind):
        found = _together(several)
        places = sum(found.values())
        yield f"  {kind}: {len(found)}, in {places} place{'s' * (places != 1)}"
        yield from (f"    {said}" for said in list(found)[:_SHOWN])
        if len(found) > _SHOWN:
            yield f"    and {len(found) - _SHOWN} more"
    if rows.left_out:
        yield f"  rows that cannot be read, or are of a newer llmtop: {rows.left_out}"
    yield "What stays: numbers, times, PIDs, ports, names of functions and threads, and what the rules found."


def _together(removals: Iterator[Removal]) -> Counter[str]:
    """Each thing with what stands there instead, and in how many places."""
    found: Counter[str] = Counter()
    for one in removals:
        instead = f" → {one.instead}" if one.instead else ""
        remark = _A_WORD if one.is_word else ""
        found[shorten(redact(clean(one.what)), _WIDTH) + instead + remark] += one.places
    return found
