"""Recordings as somebody who means harm would make them: each a small file that costs much, steers, or has no sense."""

from __future__ import annotations

import copy
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from llmtop.recording.blocks import ENCODING, BlockWriter
from llmtop.recording.copies import RecordedRow, RecordedRows, write_copy
from llmtop.recording.layout import LEAF, PAGE, record, varint
from llmtop.recording.row_writer import RowWriter

STEERING = "\x1b]52;c;cHduZWQ=\x07\x9b31m\u202e\r\nllmtop: forged"
"""Sets the clipboard, colours, turns around, begins a line of its own."""
STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 62, 10**30, 1e308, -1e308, float("inf"), float("nan"), "", "x", "process:x", "thread:1"),
    *([], {}, [[]], {"a": []}, [None], ["x"], [[0, 10**12]], [[-5, 3]], {"reason": 5}, {"": ""}),
)
"""What no field is."""
Change = Callable[[Any], Any]


def rows_of(path: Path) -> list[RecordedRow]:
    """All rows of a recording."""
    return list(RecordedRows(path))


def write_rows(path: Path, rows: list[tuple[str, int, str | bytes]]) -> Path:
    """A file of rows as they are."""
    writer = RowWriter(path)
    for row in rows:
        writer.append(*row)
    writer.close()
    return path


def block(told: str, directory: str, columns: bytes = b"") -> bytes:
    """A block of any texts, alone in its stretch."""
    texts = told.encode(), directory.encode()
    content = struct.pack("<II", *map(len, texts)) + b"".join(texts) + columns
    deflate = zlib.compressobj(9, wbits=-15)
    packed = deflate.compress(content) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return struct.pack("<BII", ENCODING, zlib.crc32(packed), len(content)) + packed


TOLD = '{"start_ns":0,"series":[]}'
ABOUT = ("about", 0, '{"host":"h","utc_ns":5}')


def _stretches(count: int, made: bytes) -> list[tuple[str, int, str | bytes]]:
    return [ABOUT, *(("stretch", 1 + i, made) for i in range(count))]


def with_pages(path: Path, pages: list[bytes]) -> Path:
    """A recording with pages put behind it."""
    write_rows(path, _stretches(1, block(TOLD, "{}")))
    content = bytearray(path.read_bytes() + b"".join(page.ljust(PAGE, b"\0") for page in pages))
    content[28:32] = (len(content) // PAGE).to_bytes(4, "big")
    path.write_bytes(content)
    return path


def leaf(cells: list[bytes], count: int | None = None, place: int | None = None) -> bytes:
    """A page of rows; `count` and `place` of each where these lie."""
    places, at = b"", PAGE
    for cell in cells:
        at -= len(cell)
        places += (at if place is None else place).to_bytes(2, "big")
    head = struct.pack(">BHHHB", LEAF, 0, len(cells) if count is None else count, at, 0)
    return head + places.ljust(at - len(head), b"\0") + b"".join(reversed(cells))


def _claiming(length: int, row: int, page: int) -> bytes:
    """A row that says how long it is, and where the rest of it stands."""
    codes = b"".join((varint(0), varint(13 + 2 * 4), varint(6), varint(13 + 2 * (length - 30))))
    start = varint(len(codes) + 1) + codes + b"mark" + bytes(8)
    least = (PAGE - 12) * 32 // 255 - 23
    kept = least + (length - least) % (PAGE - 4)
    kept = kept if kept <= PAGE - 35 else least
    return varint(length) + varint(row) + start.ljust(kept, b"[")[:kept] + page.to_bytes(4, "big")


def made(folder: Path, *, small: bool = False) -> Iterator[Path]:
    """One file for each way that is known to cost much; `small` ones cost less in time, and are of the same kinds."""
    folder.mkdir(exist_ok=True)
    deep, most = "[" * 200_000, 200 if small else 1
    zeros = bytes((60 << 20) // most)
    circle = (5).to_bytes(4, "big") + b"[" * (PAGE - 4)
    claims = [leaf([_claiming(200 << 20, 3 + 2 * i + j, 5) for j in range(2)]) for i in range(20)]
    yield with_pages(folder / "circle-long", [*claims[:2], circle, *claims[2:]])
    claims = [leaf([_claiming(232 + 20 * (PAGE - 4), 3 + 2 * i + j, 5) for j in range(2)]) for i in range(400)]
    yield with_pages(folder / "circle-shared", [*claims[:2], circle, *claims[2:]])
    cell = varint(30) + varint(3) + record((None, "mark", 1, "{}"))
    yield with_pages(folder / "cells-beyond", [leaf([cell], count=65_535) for _ in range(500)])
    yield with_pages(folder / "cells-alike", [leaf([cell], 1000, PAGE - len(cell)) for _ in range(500)])
    yield write_rows(folder / "bomb", _stretches(60, block(TOLD, "{}", zeros)))
    lists = "[]," * (1_300_000 // most)
    yield write_rows(folder / "bomb-told", _stretches(20, block(f'{{"start_ns":0,"x":[{lists}0]}}', "{}")))
    yield write_rows(folder / "bomb-directory", _stretches(20, block(TOLD, f'{{"groups":[{lists}[]]}}')))
    yield write_rows(folder / "deep-verdict", [*_stretches(1, block(TOLD, "{}")), ("verdict", 5, deep)])
    yield write_rows(folder / "deep-told", _stretches(1, block('{"start_ns":' + deep, "{}")))
    yield write_rows(folder / "deep-directory", _stretches(1, block(TOLD, deep)))
    for name, directory in (
        ("a-list", "[]"),
        ("a-number", "5"),
        ("null", "null"),
        ("many-series", '{"groups":[[[0,1000000000000]]]}'),
        ("less-than-none", '{"groups":[[[0,1000000000000],[0,-1000000000000]]]}'),
        ("no-group", '{"samples":[[7,1]]}'),
        ("fewer-samples", '{"groups":[[[1,1]]],"samples":[[0,-1]]}'),
        ("many-samples", '{"groups":[[[1,1]]],"samples":[[0,1000000000000]]}'),
        ("many-moved", '{"groups":[[[1,1]]],"samples":[[0,1,[[0,1000000000000]]]]}'),
        ("many-stacks", '{"stacks":[[1,1000000000000,false]]}'),
        ("texts", '{"groups":"abc","samples":"abc","stacks":"abc"}'),
    ):
        yield write_rows(folder / f"directory-{name}", _stretches(2, block(TOLD, directory, bytes(64))))
    count = 20_000 // most
    named = {"track": "host", "unit": "1", "counter": False, "title": "", "source": "x"}
    series = [("series", 0, json.dumps({"id": i, "metric": f"a.{i}", **named})) for i in range(1, count + 1)]
    wide = block(
        f'{{"start_ns":0,"series":[[1,{count}]]}}',
        f'{{"groups":[[[1,{count}]]],"samples":[[0,{count},[]]]}}',
        struct.pack(f"<{count}q", *range(count)) + bytes(8 * count),
    )
    yield write_rows(folder / "many-cells", [ABOUT, *series, ("stretch", 30_000, wide)])
    count = 4_000_000 // most
    tall = block(
        '{"start_ns":0,"series":[[1,1]]}',
        f'{{"groups":[[[1,1]]],"samples":[[0,{count},[[0,1]]]]}}',
        struct.pack(f"<{count}q", *range(count)) + bytes(8 * count),
    )
    yield write_rows(folder / "many-rows", [ABOUT, *series[:1], *(("stretch", 5_000_000 + i, tall) for i in range(8))])
    kinds = ((f"k{i}\x1b", 5, "{}") for i in range(20_000 // most))
    yield write_rows(folder / "many-kinds", [*_stretches(1, block(TOLD, "{}")), *kinds])
    stacks = [
        ("frame", 0, '{"id":1,"name":"f"}'),
        ("stack", 0, '{"id":1,"track":"","state":"","unit":"ns","frames":[%s1]}' % ("1," * 900_000)),
    ]
    yield write_rows(folder / "long-stack", [*stacks, *_stretches(1, block(TOLD, "{}"))])
    for size in (0, 1, 4, 35, 512, 65_535):
        path = write_rows(folder / f"page-of-{size}", _stretches(1, block(TOLD, "{}")))
        content = bytearray(path.read_bytes())
        content[16:18] = size.to_bytes(2, "big")
        content[28:32] = b"\xff" * 4
        path.write_bytes(content)
        yield path
    for t_ns in (-(1 << 63), -1, (1 << 63) - 1):
        yield write_rows(
            folder / f"moment-{t_ns}", [*_stretches(2, block(TOLD, "{}")), ("stretch", t_ns, block(TOLD, "{}"))]
        )


def steered(source: Path, path: Path) -> Path:
    """A recording in which each text that may be any text ends with what steers a terminal."""
    kept = {
        "id",
        "kind",
        "track",
        "parent",
        "metric",
        "severity",
        "rule",
        "unit",
        "counter",
        "gone",
        "what",
        "state",
        "sources",
    }

    def changed(document: Any, name: str = "") -> Any:
        if isinstance(document, str) or name == "sources":
            return document if name in kept else f"{document}{STEERING}"
        if isinstance(document, dict):
            return {key: changed(one, key) for key, one in document.items()}
        return [changed(one, name) for one in document] if isinstance(document, list) else document

    write_copy(RecordedRows(source), path, changed)
    return path


def misshapen(rows: list[RecordedRow], path: Path, draw: random.Random) -> Path:
    """A recording with some values of its documents and directories changed to what no such field is."""
    writer, blocks = RowWriter(path), BlockWriter()
    for row in rows:
        document, directory = json.loads(json.dumps(row.document)), json.loads(json.dumps(row.directory))
        if row.columns is not None or draw.random() < 0.02:
            for _ in range(draw.choice((0, 1, 1, 2))):
                document = _misshape(document, draw)
        if row.columns is None:
            writer.append(row.kind, row.t_ns, json.dumps(document))
            continue
        if draw.random() < 0.1:
            directory = _misshape(directory, draw)
        blocks = BlockWriter() if row.kind == "stretch" else blocks
        writer.append(row.kind, row.t_ns, blocks.pack(document, directory, [row.columns]))
    writer.close()
    return path


def _misshape(document: Any, draw: random.Random) -> Any:
    """The same with one value anywhere in it replaced."""
    if isinstance(document, dict | list) and document and draw.random() < 0.85:
        key = draw.choice(list(document) if isinstance(document, dict) else range(len(document)))
        document[key] = _misshape(document[key], draw)
        return document
    return copy.deepcopy(draw.choice(STRANGE))
