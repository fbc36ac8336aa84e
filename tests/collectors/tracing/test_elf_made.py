"""Names of addresses in small ELF files that are made here, beside a plain search; and names of code by where it is."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.helper import elf as elf_module
from llmtop.collectors.tracing.helper import symbols
from llmtop.collectors.tracing.helper.elf import ElfError, ElfFunctions, Site
from llmtop.collectors.tracing.helper.interpreters import CollectorSites, collector_sites
from llmtop.collectors.tracing.helper.symbols import Code, Region, Symbols

FUNCTION, OBJECT, INDIRECT = 0x12, 0x11, 0x1A
OFFSET, ADDRESS, SIZE = 0x80, 0x1080, 0x2000
"""Bytes from 0x80 on are loaded at 0x1080."""
Symbol = tuple[bytes, int, int, int]
"""Name, kind, address and size."""


def library(*tables: tuple[int, list[Symbol]], link: int | None = None, notes: bytes = b"") -> bytes:
    """Tables of symbols by their kind (2 for all, 11 for what is exported), each with its names behind; then notes."""
    body, sections = bytearray(), []
    for number, (kind, found) in enumerate(tables):
        names, rows = b"\0", bytearray()
        for name, info, address, size in found:
            rows += struct.pack("<IBBHQQ", len(names), info, 0, 5, address, size)
            names += name + b"\0"
        names_at = 2 * number + 1 if link is None else link
        sections.append((0, kind, 0, 0, 0x100 + len(body), len(rows), names_at, 0, 8, 24))
        body += rows
        sections.append((0, 3, 0, 0, 0x100 + len(body), len(names), 0, 0, 1, 0))
        body += names
    if notes:
        sections.append((0, 7, 0, 0, 0x100 + len(body), len(notes), 0, 0, 4, 0))
        body += notes
    counts = (64, 56, 2, 64, len(sections), 0)
    places = (0, 64, 0x100 + len(body), 0)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, *places, *counts)
    note = struct.pack("<IIQQQQQQ", 4, 4, 0, 0, 0, 0x1000, 0x1000, 4)
    load = struct.pack("<IIQQQQQQ", 1, 5, OFFSET, ADDRESS, ADDRESS, SIZE, SIZE + 0x1000, 0x1000)
    return (
        (header + note + load).ljust(0x100, b"\0")
        + bytes(body)
        + b"".join(struct.pack("<IIQQQQIIQQ", *s) for s in sections)
    )


def probe(name: bytes, place: int, semaphore: int = 0, provider: bytes = b"python", owner: bytes = b"stapsdt") -> bytes:
    """A note of a probe that a program has of its own."""
    text = struct.pack("<QQQ", place, 0, semaphore) + provider + b"\0" + name + b"\0-8@%r12\0"
    head = struct.pack("<III", len(owner) + 1, len(text), 3) + (owner + b"\0").ljust(
        -(-(len(owner) + 1) // 4) * 4, b"\0"
    )
    return head + text.ljust(-(-len(text) // 4) * 4, b"\0")


@contextmanager
def opened(data: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("library")
    os.write(descriptor, data)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def named(data: bytes, *addresses: int) -> list[str | None]:
    with opened(data) as descriptor:
        functions = ElfFunctions(descriptor)
        return [functions.name(descriptor, address - ADDRESS + OFFSET) for address in addresses]


symbol = st.tuples(
    st.just(b""), st.sampled_from([FUNCTION, OBJECT, INDIRECT]), st.integers(ADDRESS, ADDRESS + 200), st.integers(0, 40)
)


@given(st.lists(symbol, max_size=30), st.integers(1, 7))
def test_an_address_has_the_name_of_the_nearest_function_that_holds_it(found: list[Symbol], chunk: int) -> None:
    """However the table is read in parts; of more than eight within each other the outermost are not looked for."""
    with_names = [(f"f{i}".encode(), *one[1:]) for i, one in enumerate(found)]
    functions = [(name, at, size or 1) for name, info, at, size in with_names if info != OBJECT]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elf_module, "_CHUNK", chunk)
        patch.setattr(elf_module, "_BACK", 1000)
        told = named(library((2, with_names)), *range(ADDRESS, ADDRESS + 250))
    for address, name in zip(range(ADDRESS, ADDRESS + 250), told, strict=True):
        holding = [(at, one) for one, at, size in functions if at <= address < at + size]
        nearest = [one.decode() for at, one in holding if at == max(at for at, _ in holding)]
        assert name == (min(nearest, key=lambda one: (len(one), one)) if nearest else None)


def test_a_function_around_seven_others_is_found_and_around_eight_is_not() -> None:
    inside = [(b"inner%d" % i, FUNCTION, ADDRESS + 4 * i, 2) for i in range(1, 9)]
    data = library((2, [(b"outer", FUNCTION, ADDRESS, 100), *inside]))
    assert named(data, ADDRESS + 31, ADDRESS + 35) == ["outer", None]


def test_the_plainest_of_several_names_is_taken() -> None:
    several = [(name, FUNCTION, ADDRESS, 8) for name in (b"__libc_recv", b"__recv", b"recv", b"trecv", b"_recv")]
    assert named(library((2, several)), ADDRESS) == ["recv"]
    assert named(library((2, several[:2])), ADDRESS) == ["__recv"]


def test_all_symbols_are_known_better_than_the_exported_ones() -> None:
    own, shown = [(b"hidden", FUNCTION, ADDRESS, 8)], [(b"shown", FUNCTION, ADDRESS, 8)]
    assert named(library((11, shown), (2, own)), ADDRESS) == ["hidden"]
    assert named(library((11, shown)), ADDRESS) == ["shown"]


def test_names_end_where_the_file_says() -> None:
    long = b"n" * 5000
    assert named(
        library((2, [(long, FUNCTION, ADDRESS, 8), (b"\xff", FUNCTION, ADDRESS + 8, 8)])), ADDRESS, ADDRESS + 8
    ) == [
        "n" * 4096,
        "\ufffd",
    ]


def test_only_what_is_loaded_has_an_address() -> None:
    """The part beyond what lies in the file is memory alone."""
    ends = [(b"first", FUNCTION, ADDRESS, 8), (b"last", FUNCTION, ADDRESS + SIZE - 8, 100)]
    found = named(library((2, ends)), ADDRESS - 1, ADDRESS, ADDRESS + SIZE - 1, ADDRESS + SIZE)
    assert found == [None, "first", "last", None]


@pytest.mark.parametrize("damage", ["cut", "names"])
def test_a_damaged_library_is_refused(damage: str) -> None:
    whole = library((2, [(b"f", FUNCTION, ADDRESS, 8)]), link=2 if damage == "names" else None)
    with opened(whole[:-1] if damage == "cut" else whole) as descriptor, pytest.raises(ElfError):
        ElfFunctions(descriptor)


# -- names by where code is ------------------------------------------------------------------------------------------

PID = 4242


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """What /proc says of it: a library at 0x5000 from its second page on, made code at 0x9000, the kernel's page."""
    data = library((2, [(b"shown", FUNCTION, ADDRESS + 0x1000, 0x20)]))
    (tmp_path / "libx.so").write_bytes(data)
    files = {
        "maps": (
            f"5000-6000 r-xp 00001000 fe:00 7 {tmp_path}/libx.so\n"
            f"6000-7000 rw-p 00002000 fe:00 7 {tmp_path}/libx.so\n"
            "9000-a000 r-xp 00000000 00:00 0\n"
            "b000-c000 r-xp 00000000 00:00 0 [vsyscall]\n"
            "c000-d000 r-xp 00000000 00:01 9 /memfd:jit (deleted)\n"
            "d000-e000 r-xp 00000000 fe:00 8 /nowhere/my lib.so\n"
        )
    }
    monkeypatch.setattr(symbols, "read", lambda path: files["maps"] if path == f"/proc/{PID}/maps" else "")
    opens = os.open
    root = f"/proc/{PID}/root"
    monkeypatch.setattr(os, "open", lambda path, flags: opens(str(path).removeprefix(root), flags))
    monkeypatch.setattr(symbols, "_list_of_made", lambda tgid: str(tmp_path / "made.map"))
    return files


def test_code_is_what_a_process_may_run(process: dict[str, str], tmp_path: Path) -> None:
    assert Code.of(PID).generated == 0
    (tmp_path / "made.map").write_bytes(MADE)
    code = Code.of(PID)
    assert code.generated == len(MADE)
    assert [(one.start, one.end, one.offset, one.file) for one in code.regions] == [
        (0x5000, 0x6000, 0x1000, "fe:00 7"),
        (0x9000, 0xA000, 0, "00:00 0"),
        (0xB000, 0xC000, 0, "00:00 0"),
        (0xC000, 0xD000, 0, "00:01 9"),
        (0xD000, 0xE000, 0, "fe:00 8"),
    ]
    assert [one.name for one in code.regions] == [
        "[libx.so]",
        "[unknown]",
        "[vsyscall]",
        "[memfd:jit (deleted)]",
        "[my lib.so]",
    ]
    assert [one.is_file for one in code.regions] == [True, False, False, False, True]
    starts = [
        None if (one := code.at(at)) is None else one.start for at in (0x4FFF, 0x5000, 0x5FFF, 0x6000, 0x9000, 0xE000)
    ]
    assert starts == [None, 0x5000, 0x5000, None, 0x9000, None]


MADE = b"9010 10 py::step:/srv/engine.py\xff\nodd\n9010 zz no size\n9040 4\n9030 8 old\n9030 4 new one\n"
"""As CPython writes it with -X perf: what is made where another function was comes later."""


def test_each_kind_of_code_has_its_name(process: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "made.map").write_bytes(MADE)
    one = Symbols()
    # The function lies 0x1080 bytes into the file: 0x80 beyond where the mapping begins.
    addresses = {
        0x507F: "[libx.so]", 0x5080: "shown", 0x509F: "shown", 0x50A0: "[libx.so]", 0x900F: "[unknown]",
        0x9010: "py::step:/srv/engine.py\ufffd", 0x901F: "py::step:/srv/engine.py\ufffd", 0x9020: "[unknown]",
        0x9030: "new one", 0x9034: "[unknown]", 0x9040: "[unknown]", 0xB000: "[vsyscall]", 0xD000: "[my lib.so]",
        0xF000: "[unknown]",
    }  # fmt: skip
    assert {address: one.user(PID, address) for address in addresses} == addresses


def test_a_longer_list_of_made_code_is_read_again(process: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "made.map").write_bytes(MADE)
    one = Symbols()
    assert one.user(PID, 0x9050) == "[unknown]"
    (tmp_path / "made.map").write_bytes(MADE + b"9050 10 later\n")
    for _ in range(7):
        one.tick()
    assert one.user(PID, 0x9050) == "later"


@pytest.mark.limit(20)
def test_a_list_that_is_no_plain_file_is_not_read(process: dict[str, str], tmp_path: Path) -> None:
    """Whoever runs the server may put there what he likes: a file of root's by a link, or a pipe that never ends."""
    (tmp_path / "secret").write_bytes(MADE)
    (tmp_path / "made.map").symlink_to(tmp_path / "secret")
    assert Symbols().user(PID, 0x9010) == "[unknown]"
    (tmp_path / "made.map").unlink()
    os.mkfifo(tmp_path / "made.map")
    assert symbols.MadeFunctions(PID).name(0x9010) is None


def test_a_process_in_a_container_lists_its_code_by_its_own_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "read", lambda path: "Pid:\t4242\nNSpid:\t4242\t17\t3\n")
    assert symbols._list_of_made(PID) == "/proc/4242/root/tmp/perf-3.map"
    monkeypatch.setattr(symbols, "read", lambda path: "")
    assert symbols._list_of_made(PID) == "/proc/4242/root/tmp/perf-4242.map"


@pytest.mark.parametrize("build_id", [b"\xab" * 20, b"\x01\x02\x03"])
def test_a_stripped_file_has_the_names_of_its_debug_file(build_id: bytes, tmp_path: Path) -> None:
    note = struct.pack("<III4s", 4, len(build_id), 3, b"GNU") + build_id
    exported = [(b"shown", FUNCTION, ADDRESS + 0x40, 8)]
    text = build_id.hex()
    (tmp_path / text[:2]).mkdir()
    debug = tmp_path / text[:2] / f"{text[2:]}.debug"
    debug.write_bytes(library((2, [(b"hidden", FUNCTION, ADDRESS, 8), (b"__shown", FUNCTION, ADDRESS + 0x40, 8)])))
    with opened(library((11, exported), notes=note)) as file:
        for folder, found in ((str(tmp_path), ["hidden", "shown", None]), ("", [None, "shown", None])):
            functions = ElfFunctions(file, folder)
            assert [functions.name(file, OFFSET + at) for at in (0, 0x40, 0x80)] == found
        debug.write_bytes(b"no such file")
        assert ElfFunctions(file, str(tmp_path)).name(file, OFFSET) is None


def test_code_that_may_be_named_later_is_looked_up_again_when_more_is_mapped(process: dict[str, str]) -> None:
    one = Symbols()
    assert one.user(PID, 0x9010) == "[unknown]"
    assert one.user(PID, 0xE010) == "[unknown]"
    process["maps"] += "e000-f000 r-xp 00000000 fe:00 9 /opt/new.so\n"
    told = []
    for _ in range(7):
        told.append(one.user(PID, 0xE010))
        one.tick()
    assert told == ["[unknown]"] * 6 + ["[new.so]"], "after five ticks in which it had addresses without a name"


def test_a_process_with_all_its_names_is_not_looked_at_again(process: dict[str, str]) -> None:
    one = Symbols()
    assert one.user(PID, 0x5080) == "shown"
    process["maps"] = ""
    for _ in range(20):
        one.tick()
    assert one.user(PID, 0x5081) == "shown"
    one.forget(PID)
    assert one.user(PID, 0x5081) == "[unknown]"


def test_names_of_the_kernel_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Functions:
        def name(self, address: int) -> str:
            asked.append(address)
            return f"f{address}"

    monkeypatch.setattr(symbols, "KernelFunctions", Functions)
    one = Symbols()
    assert [one.kernel(at) for at in (5, 6, 5, 5)] == ["f5_[k]", "f6_[k]", "f5_[k]", "f5_[k]"]
    assert asked == [5, 6]
    one.forget(0)
    one.forget(1)
    assert (one.kernel(5), asked) == ("f5_[k]", [5, 6]), "they are no process's"


def test_regions_are_named_by_their_files() -> None:
    paths = {"/usr/lib/libx.so": ("[libx.so]", True), "": ("[unknown]", False), "[vdso]": ("[vdso]", False),
             "/dev/zero (deleted)": ("[zero (deleted)]", False), "/memfd:x": ("[memfd:x]", False)}  # fmt: skip
    for path, told in paths.items():
        region = Region(0, 1, 0, "", path)
        assert (region.name, region.is_file) == told


def sites(data: bytes) -> CollectorSites | None:
    with opened(data) as descriptor:
        return collector_sites(f"/proc/self/fd/{descriptor}")


def test_a_collector_is_found_by_the_probes_that_the_interpreter_has_of_its_own() -> None:
    others = (
        probe(b"line", ADDRESS) + probe(b"gc__start", ADDRESS, provider=b"ruby") + probe(b"gc__done", 1, owner=b"x")
    )
    own = probe(b"gc__start", ADDRESS + 5, ADDRESS + 64) + probe(b"gc__start", ADDRESS + 9, ADDRESS + 64)
    symbols = (2, [(b"gc_collect_main", FUNCTION, ADDRESS, 8)])
    found = sites(library(symbols, notes=others + own + probe(b"gc__done", ADDRESS + 7)))
    begins = (Site(OFFSET + 5, OFFSET + 64), Site(OFFSET + 9, OFFSET + 64))
    assert found == CollectorSites(begins, (Site(OFFSET + 7),)), "a compiler may have made several of one"
    assert sites(library(symbols, notes=others + own)) == CollectorSites((Site(OFFSET),), (), ("gc_collect_main",)), (
        "nobody tells of its end"
    )


@pytest.mark.parametrize(
    ("names", "begins"),
    [
        ([b"gc_collect_main", b"_PyGC_Collect"], [0]),  # 3.13, where the second calls the first
        ([b"PyGC_Collect", b"_PyGC_Collect"], [1]),  # 3.14
        ([b"gc_collect_main.constprop.0", b"gc_collect_main.isra.0.constprop.1"], [0, 1]),
        ([b"gc_collect_main.cold", b"gc_collect_main_too", b"my_gc_collect_main", b"gc_collect_main.part.0"], None),
        ([], None),
    ],
)
def test_a_collector_is_found_by_its_symbol(names: list[bytes], begins: list[int] | None) -> None:
    data = library((2, [(name, FUNCTION, ADDRESS + 16 * i, 8) for i, name in enumerate(names)]))
    if begins is None:
        assert sites(data) is None
        return
    places = tuple(Site(OFFSET + 16 * i) for i in begins)
    assert sites(data) == CollectorSites(places, symbols=tuple(names[i].decode() for i in begins))


def test_what_is_exported_is_not_what_collects() -> None:
    assert sites(library((11, [(b"_PyGC_Collect", FUNCTION, ADDRESS, 8)]))) is None


def test_damaged_notes_are_an_error() -> None:
    with pytest.raises(ElfError, match="longer than their section"):
        sites(library(notes=probe(b"gc__start", ADDRESS)[:-8]))
