"""Nsight Systems captures: SQLite exports, folders of tables, and reports, where an nsys is there that exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.parsers.base import Content

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace
    from llmtop.parsers.base import Parser

MAGIC = b"SQLite format 3\0"
_REPORT = b"NVIDIA Tegra Profiler Report "


class NsysSqliteParser:
    """Reads an SQLite export of an Nsight Systems capture, and of a report what nsys exports of it."""

    name = "nsys-sqlite"
    title = "Nsight Systems captures, and profiles of nvprof"
    written_by = (
        "`nsys export` (sqlite, arrowdir, parquetdir); `nsys profile`, where an nsys is there that reads them; "
        "`nvprof -o`"
    )
    extensions: tuple[str, ...] = (".sqlite", ".nsys-rep", ".qdrep", ".nvvp", ".nvprof")
    holds = frozenset({Content.KERNELS, Content.TIMELINE, Content.GPU, Content.TOOL_VERSION})

    def sniff(self, head: bytes, path: Path) -> bool:
        """A report, a folder of tables, or any SQLite database: whether it is an export is known when it is open."""
        return head.startswith((MAGIC, _REPORT)) or (not head and _is_folder_of_tables(path))

    def parse(self, path: Path) -> Trace:
        """Read kernels, launches, copies, graphs and NVTX ranges.

        Raises:
            FileError: It is truncated, corrupted, or a database of something else.
        """
        # The readers bring SQLite and much else, which sniffing other files must not pay for.
        from llmtop.parsers.nsys_capture import read_export, read_report

        if path.is_dir():
            return read_export(path)
        with path.open("rb") as file:
            is_report = file.read(len(_REPORT)) == _REPORT
        return read_report(path) if is_report else read_export(path)


def _is_folder_of_tables(path: Path) -> bool:
    from llmtop.parsers.nsys_directory import is_export

    return is_export(path)


PARSER: Final[Parser] = NsysSqliteParser()
