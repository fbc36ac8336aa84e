"""How a recording lies in its file: an SQLite database of one table, to which rows are only ever added.

The numbers in brackets are sections of https://www.sqlite.org/fileformat.html. docs/recording.md tells users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAGIC: Final = b"SQLite format 3\0"
APPLICATION_ID: Final = 0x4C4D5430
"""What tells a recording from other databases (1.3.17): "LMT0"."""
FORMAT: Final = 2
"""The version of what the rows hold (1.3.16, user_version): a newer one adds kinds of rows and fields to them.

With 2 came `blocks.ENCODING` 2."""
PAGE: Final = 2048
"""Bytes. Smaller ones leave less room unused behind a row, larger ones have fewer of them to look through."""
INTERIOR, LEAF = 5, 13
"""Kinds of pages of a table (1.6). The first byte of all other pages is part of a page's number: 0 up to 33 GB."""
INTEGER: Final = 6
"""The type of an integer of eight bytes (2.1): no row has another one."""
ROOT: Final = 2
"""The number of the table's first page; those of SQLite count from 1."""
LOCKS_AT: Final = 0x40000000
"""Where SQLite's locks on a file begin, `LOCK_BYTES` long (os_unix.c: PENDING_BYTE to the end of SHARED)."""
LOCK_BYTES: Final = 512
STOPPED: Final = "stopped"
"""What a second row `about` says of a recording that did not reach its end: why."""
TABLE: Final = "CREATE TABLE part(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, t_ns INTEGER NOT NULL, data NOT NULL)"
_VIEWS: Final = {
    "track": ("id", "kind", "name"),
    "series": ("id", "track", "metric", "unit", "counter", "source"),
    "mark": ("kind", "track", "severity", "subject", "said"),
    "frame": ("id", "name"),
    "stack": ("id", "track", "state", "unit", "frames"),
}
"""What people may ask for by SQL: fields of the rows of one kind."""
_FINDINGS: Final = (
    "CREATE VIEW finding AS SELECT t_ns, json_extract(value,'$.rule') rule, json_extract(value,'$.severity') severity,"
    " json_extract(value,'$.subject') subject, json_extract(value,'$.message') message"
    " FROM part, json_each(data,'$.findings') WHERE part.kind='verdict'"
)


def is_recording(head: bytes) -> bool:
    """Whether a file that begins like this is a recording."""
    return head.startswith(MAGIC) and head[68:72] == APPLICATION_ID.to_bytes(4, "big")


def schema() -> list[tuple[str, str, str, int, str]]:
    """The rows of sqlite_schema (2.6)."""
    views = {"finding": _FINDINGS}
    for name, fields in _VIEWS.items():
        columns = ", ".join(f"json_extract(data,'$.{field}') {field}" for field in fields)
        views[name] = f"CREATE VIEW {name} AS SELECT t_ns, {columns} FROM part WHERE kind='{name}'"
    return [("table", "part", "part", ROOT, TABLE), *(("view", name, name, 0, sql) for name, sql in views.items())]


def varint(value: int) -> bytes:
    r"""An integer of one to eight bytes, seven bits each, the highest first (1.6).

    >>> varint(5), varint(300)
    (b'\x05', b'\x82,')
    """
    parts = [value & 127]
    while value := value >> 7:
        parts.append(value & 127 | 128)
    return bytes(reversed(parts))


def record(values: Sequence[str | bytes | int | None]) -> bytes:
    """A row (2.1)."""
    codes, bodies = bytearray(), []
    for value in values:
        if value is None:
            code, body = 0, b""
        elif isinstance(value, int):
            code, body = INTEGER, value.to_bytes(8, "big", signed=True)
        elif isinstance(value, str):
            body = value.encode("utf-8", "replace")
            code = 13 + 2 * len(body)
        else:
            body = value
            code = 12 + 2 * len(body)
        codes += varint(code)
        bodies.append(body)
    assert len(codes) < 127
    return b"".join((varint(len(codes) + 1), codes, *bodies))


def kept_here(payload: int, page: int = PAGE) -> int:
    """How many bytes of a row stand on its own page; the others go on pages behind it (1.6)."""
    most, least = page - 35, (page - 12) * 32 // 255 - 23
    if payload <= most:
        return payload
    kept = least + (payload - least) % (page - 4)
    return kept if kept <= most else least
