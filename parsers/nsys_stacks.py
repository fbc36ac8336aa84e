"""CPU samples of an Nsight Systems capture as folded stacks, by thread."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from llmtop.model import Stack
from llmtop.parsers.nsys_export import DAMAGE, Capture, Export, lost
from llmtop.parsers.nsys_host import SAMPLES


def stacks(capture: Capture) -> tuple[Stack, ...]:
    """Root first, the most frequent ones first; what is damaged costs them all, and is an issue."""
    try:
        return tuple(_folded(capture))
    except DAMAGE as error:
        capture.issues.append(lost("stacks", error))
        return ()


def _folded(capture: Capture) -> list[Stack]:
    export, (events, chains) = capture.export, SAMPLES
    module, unresolved = (_column(export, chains, name) for name in ("module", "unresolved"))
    frame = f"symbol || ':' || coalesce({module}, '') || ':' || coalesce({unresolved}, 0)"
    frames = f"SELECT id, {frame} AS frame FROM {chains} WHERE typeof(symbol) = 'integer' ORDER BY id, stackDepth DESC"
    folded = f"SELECT id, group_concat(frame, ' ') AS stack FROM ({frames}) GROUP BY id"
    counted = (
        f"SELECT globalTid, stack, count(*) AS seen FROM ({folded}) JOIN {events} USING (id) "
        "WHERE typeof(globalTid) = 'integer' GROUP BY globalTid, stack ORDER BY seen DESC"
    )
    rows = export.execute(counted).fetchall()
    return [
        Stack(frames, float(seen), "samples", track=capture.devices.thread_track(thread))
        for thread, frames, seen in _named(export, rows)
    ]


def _column(export: Export, table: str, name: str) -> str:
    return name if name in export.columns(table) else "NULL"


def _named(export: Export, rows: list[tuple[Any, ...]]) -> list[tuple[int, tuple[str, ...], int]]:
    """The stacks with names in place of numbers; what has no name is that of its file, once in a row."""
    frames = {frame for _, stack, _ in rows for frame in stack.split(" ")}
    texts = export.strings({int(number) for frame in frames for number in frame.split(":")[:2] if number.isdecimal()})
    name_by_frame = {frame: _name(frame, texts) for frame in frames}
    return [(thread, tuple(_without_twins(stack, name_by_frame)), seen) for thread, stack, seen in rows]


def _name(frame: str, texts: dict[int, str]) -> str:
    symbol, module, unresolved = frame.split(":")
    file = PurePath(texts.get(int(module), "")).name if module.isdecimal() else ""
    own = texts.get(int(symbol), "") if symbol.isdecimal() else ""
    if own and unresolved in ("0", ""):
        return own
    return f"[{file.strip('[]')}]" if file else own or "[unknown]"


def _without_twins(stack: str, name_by_frame: dict[str, str]) -> list[str]:
    names: list[str] = []
    for frame in stack.split(" "):
        name = name_by_frame[frame]
        if not (names and names[-1] == name and name.startswith("[")):
            names.append(name)
    return names
