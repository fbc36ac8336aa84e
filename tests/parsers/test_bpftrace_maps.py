"""Maps of bpftrace with stacks, and looks of py-spy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.errors import FileError
from llmtop.model import Trace
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

MAPS = SAMPLE_TRACES / "bpftrace" / "0.17" / "three-threads.bpftrace.json"
LOOK = SAMPLE_TRACES / "py-spy" / "0.4.3" / "two-threads.py-spy.json"
KSTACK = "\n    vfs_write+920\n    do_syscall_64+113\n    entry_SYSCALL_64_after_hwframe+118\n"
USTACK = "\n    write+79\n    0x5630f996d35b\n    main+98\n"
KERNEL = ("entry_SYSCALL_64_after_hwframe_[k]", "do_syscall_64_[k]", "vfs_write_[k]")
USER = ("main", "[unknown]", "write")


def read(folder: Path, *lines: Any) -> Trace:
    path = folder / "maps"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return load(path)


def a_map(**maps: Any) -> dict[str, Any]:
    return {"type": "map", "data": {f"@{name}": entries for name, entries in maps.items()}}


def test_a_recorded_map_has_all_its_samples() -> None:
    trace = load(MAPS)
    (counts,) = [
        line["data"]["@samples"]
        for line in map(json.loads, filter(str.strip, MAPS.read_text().splitlines()))
        if line["type"] == "map"
    ]
    assert sum(stack.weight for stack in trace.stacks) == sum(counts.values())
    assert {track.name for track in trace.tracks.values()} == {"engine", "serve", "worker 3"}
    writes = [stack for stack in trace.stacks if "vfs_write_[k]" in stack.frames]
    assert writes
    assert all(stack.frames[0] == "[unknown]" for stack in writes), "the user's functions are around the kernel's"


@pytest.mark.parametrize(
    ("key", "frames", "name"),
    [
        (f"serve,42,43,{KSTACK},{USTACK}", (*USER, *KERNEL), "serve"),
        (f"{USTACK},{KSTACK},serve", (*USER, *KERNEL), "serve"),
        (KSTACK, KERNEL, None),
        (USTACK, USER, None),
        (f"7,{USTACK}", USER, "7"),
        ("\n    std::map<int, a>::at(int)+9\n    main+1\n,a,b", ("main", "std::map<int, a>::at(int)"), "a, b"),
        ("\n    7fcb17548 write+79 (/usr/lib/libc.so.6)\n", ("write",), None),
    ],
)
def test_keys_are_stacks_and_names(key: str, frames: tuple[str, ...], name: str | None, tmp_path: Path) -> None:
    trace = read(tmp_path, {"type": "attached_probes", "data": {"probes": 1}}, a_map(x={key: 3}))
    (stack,) = trace.stacks
    assert (stack.frames, stack.weight, stack.unit) == (frames, 3.0, "samples")
    assert [track.name for track in trace.tracks.values()] == ([] if name is None else [name])


def test_maps_do_not_add_up_and_the_last_of_a_name_counts(tmp_path: Path) -> None:
    trace = read(tmp_path, a_map(x={KSTACK: 3}), a_map(x={KSTACK: 5}), a_map(ns={KSTACK: 700}, c={"serve": 9}))
    assert [(stack.unit, stack.weight) for stack in trace.stacks] == [("@ns", 700.0), ("@x", 5.0)]


def test_what_is_broken_is_counted_and_what_is_no_number_left_out(tmp_path: Path) -> None:
    odd = {KSTACK: 3, USTACK: "7", f"{USTACK},a": {"min": 1}, f"{USTACK},b": True, f"{USTACK},c": -1}
    trace = read(tmp_path, a_map(x=odd), '{"type": "map", "da')
    assert [stack.weight for stack in trace.stacks] == [3.0]
    assert [(issue.code, issue.count) for issue in trace.issues] == [("rows-skipped", 1)]


def test_maps_without_stacks_say_what_to_count_by(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"has no map with stacks: count by kstack or ustack"):
        read(tmp_path, a_map(x={"serve": 3}))


def test_each_thread_is_where_py_spy_saw_it() -> None:
    trace = load(LOOK)
    seen = {trace.tracks[stack.track].name: stack.frames for stack in trace.stacks}
    assert seen["client (idle)"][-1] == "wait (squares.py:7)"
    (engine,) = [frames for name, frames in seen.items() if name.startswith("engine (")]
    assert "forward (squares.py:3)" in engine
    assert [stack.weight for stack in trace.stacks] == [1.0, 1.0, 1.0]


def test_a_look_without_threads_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has no thread with frames: none ran Python; look again"):
        read(tmp_path, [{"pid": 1, "thread_id": 2, "frames": []}])


DAMAGE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("sample", [MAPS, LOOK], ids=["bpftrace", "py-spy"])
@DAMAGE
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8), st.integers(0, 1 << 20))
def test_changed_bytes_and_cuts_cost_no_more_than_a_sentence(
    sample: Path, tmp_path: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(sample.read_bytes())
    for place, byte in changes:
        data[place % len(data)] = byte
    path = tmp_path / "damaged"
    path.write_bytes(bytes(data[: 1 + cut % len(data)]))
    try:
        trace = load(path)
    except FileError as error:
        refusal = str(error)
        assert "\n" not in refusal
        return
    assert "\\x1b" not in repr((trace.stacks, trace.tracks))
