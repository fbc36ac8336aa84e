"""A copy of a recording, row by row, whose texts are changed on the way; its numbers stay as they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from llmtop.frozen import frozen
from llmtop.recording.blocks import BadBlockError, BlockReader, BlockWriter
from llmtop.recording.documents import parsed
from llmtop.recording.row_reader import DamagedRowError, RowReader, StoredRow
from llmtop.recording.row_writer import RowWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_TEXTS: Final = frozenset({"about", "target", "track", "series", "mark", "frame", "stack", "verdict"})


@frozen
class RecordedRow:
    """A row unpacked.

    Attributes:
        document: What it tells in JSON.
        directory, columns: Of a block, the numbers; None of others.
    """

    kind: str
    t_ns: int
    document: Any
    directory: Any = None
    columns: bytes | None = None


class RecordedRows:
    """All rows of a recording that can be read and that this version knows: others could hold anything.

    Raises:
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._rows = RowReader(path)
        self.left_out = 0
        """How many could not be read, or are of a newer version."""

    def __iter__(self) -> Iterator[RecordedRow]:
        self.left_out = self._rows.lost
        blocks: BlockReader | None = None
        for row in self._rows.rows:
            try:
                if row.kind == "stretch":
                    blocks = BlockReader()
                found = self._unpacked(row, blocks)
            except (DamagedRowError, BadBlockError, ValueError):
                blocks = blocks if row.kind in _TEXTS else None  # what follows in a stretch needs all before it
                found = None
            if found is None:
                self.left_out += 1
            else:
                yield found

    def _unpacked(self, row: StoredRow, blocks: BlockReader | None) -> RecordedRow | None:
        if row.kind in _TEXTS:
            return RecordedRow(row.kind, row.t_ns, parsed(self._rows.data(row)))
        if row.kind not in ("stretch", "moment") or blocks is None:
            return None
        data = self._rows.data(row)
        if isinstance(data, str):
            raise BadBlockError
        told, directory, columns = blocks.unpack(data)
        return RecordedRow(row.kind, row.t_ns, parsed(told), directory, columns)


def write_copy(rows: RecordedRows, path: Path, changed: Callable[[Any], Any]) -> int:
    """Write all rows to a new file, each document as `changed` makes it; how many moments there are.

    Raises:
        FileExistsError: There is such a file.
        OSError: It cannot be read or written; what has been written is removed again.
    """
    writer, moments = RowWriter(path), 0
    try:
        blocks = BlockWriter()
        for row in rows:
            document = changed(row.document)
            if row.columns is None:
                writer.append(row.kind, row.t_ns, _json(document))
                continue
            blocks = BlockWriter() if row.kind == "stretch" else blocks
            writer.append(row.kind, row.t_ns, blocks.pack(document, changed(row.directory), [row.columns]))
            moments += 1
        writer.flush()
    except OSError:
        path.unlink()
        raise
    finally:
        writer.close()
    return moments


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
