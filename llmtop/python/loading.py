"""Files as traces, for scripts: what `llmtop open` takes, told by content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmtop.cli.inputs import STANDARD_INPUT, opened_inputs
from llmtop.cli.report import check_source_dirs, read_report
from llmtop.errors import FileError
from llmtop.model import Trace
from llmtop.parsers.source_files import with_sources


def load(
    path: str | Path, *more: str | Path, is_together: bool = False, source_dirs: Sequence[str | Path] = ()
) -> Trace:
    """Read a report, a profile or a recording; several files, a folder or an archive are the ranks of one run.

    Args:
        path: A file of any format of docs/formats.md, packed or not; nothing is written beside it.
        more: Further ones.
        is_together: Several files are ranks of one run, even if nothing in them says so.
        source_dirs: Folders with source files that a report names and does not hold.

    Raises:
        FileError: It cannot be read, is of no known format or damaged beyond use, or there are several runs.
        UsageError: A folder of sources is none.
    """
    paths = [Path(one).expanduser() for one in (path, *more)]
    if STANDARD_INPUT in paths:
        raise FileError("- is standard input, which is gone before a script asks for its tables: load a file")
    folders = [Path(one).expanduser() for one in source_dirs]
    check_source_dirs(folders)
    with opened_inputs(paths) as files:
        trace = read_report(files, is_together=is_together, switch="is_together=True")
        return with_sources(trace, folders)
