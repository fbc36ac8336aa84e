"""Which memory goes into large pages: the program's own, where nearly all of a mapping is there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from llmtop.tui import app
from llmtop.tui.large_pages import full_mappings, use_large_pages

SMAPS = """\
55e970800000-55e971200000 rw-p 00000000 00:00 0                          [heap]
Size:              10240 kB
Rss:               10000 kB
VmFlags: rd wr mr mw me ac sd
7f0000100000-7f0000500000 rw-p 00000000 00:00 0
Size:               4096 kB
Rss:                4096 kB
7f0000600000-7f0000a00000 rw-p 00000000 00:00 0
Size:               4096 kB
Rss:                3000 kB
7f0000c00000-7f0000e00000 r-xp 00000000 fe:01 1234                       /usr/lib/libpython3.11.so.1.0
Size:               2048 kB
Rss:                2048 kB
7f0001000000-7f0001200000 rw-p 00000000 fe:01 1234                       /usr/lib/libpython3.11.so.1.0
Size:               2048 kB
Rss:                2048 kB
7f0001400000-7f0001500000 rw-p 00000000 00:00 0
Size:               1024 kB
Rss:                1024 kB
7ffc00000000-7ffc00200000 rw-p 00000000 00:00 0                          [stack]
Size:               2048 kB
Rss:                2048 kB
"""
"""The heap, objects that begin and end within a large page, half a stack, a library's code and data, too little."""


def test_only_what_is_there_is_moved_in_whole_large_pages() -> None:
    assert [(f"{start:x}", f"{stop:x}") for start, stop in full_mappings(SMAPS)] == [
        ("55e970800000", "55e971200000"),
        ("7f0000200000", "7f0000400000"),
    ]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        pytest.param("always [madvise] never\n", [(0x55E970800000, 10 << 20), (0x7F0000200000, 2 << 20)], id="on"),
        pytest.param("always madvise [never]\n", [], id="off"),
        pytest.param(None, [], id="a kernel without"),
    ],
)
def test_a_machine_without_large_pages_is_left_without(
    tmp_path: Path, setting: str | None, expected: list[tuple[int, int]]
) -> None:
    smaps = tmp_path / "smaps"
    smaps.write_text(SMAPS)
    if setting is not None:
        (tmp_path / "enabled").write_text(setting)
    advised: list[tuple[int, int]] = []

    def advise(address: int, length: int, advice: int) -> None:
        assert advice == 25
        advised.append((address, length))

    use_large_pages(tmp_path / "enabled", smaps, advise)
    assert advised == expected


def test_the_programs_own_memory_goes_on_holding_what_it_held() -> None:
    held = [bytes([i % 256]) * 400 for i in range(20_000)]
    use_large_pages()
    assert all(one == bytes([i % 256]) * 400 for i, one in enumerate(held))


def test_the_screen_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    is_let, threads = threading.Event(), list[threading.Thread]()

    def slow() -> None:
        threads.append(threading.current_thread())
        is_let.wait(30)

    monkeypatch.setattr(app, "use_large_pages", slow)
    monkeypatch.setattr("gc.freeze", lambda: None)
    app.settle()
    own = next(one for one in threading.enumerate() if one.name == "large pages")
    is_let.set()
    own.join(30)
    assert threads == [own]
