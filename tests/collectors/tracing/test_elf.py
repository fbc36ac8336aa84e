"""Functions by address: libraries built here and loaded, with `nm` and the dynamic linker as oracles."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.collectors.tracing.helper import elf
from llmtop.collectors.tracing.helper.elf import ElfError, ElfFunctions, demangled
from tests.workloads.programs import compiler

SOURCE = """
int data_is_no_function = 1;
static __attribute__((noinline)) int hidden(int a) { return a * data_is_no_function; }
int shown(int a) { return hidden(a) + 1; }
int __shown(int a) __attribute__((alias("shown")));
int _ZN2at3addERKNS_6TensorE(int a) { return hidden(a) + 2; }
int last(int a) { return hidden(a) + 3; }
"""

pytestmark = pytest.mark.skipif(
    compiler() is None or not all(map(shutil.which, ("nm", "strip"))), reason="needs a C compiler, nm and strip"
)


@dataclass
class Library:
    """A library as `nm` tells it."""

    path: Path
    places: dict[str, tuple[int, int]]

    def read(self) -> ElfFunctions:
        with self.opened() as file:
            return ElfFunctions(file.fileno())

    def opened(self) -> BufferedReader:
        return self.path.open("rb")

    def name(self, functions: ElfFunctions, offset: int) -> str | None:
        with self.opened() as file:
            return functions.name(file.fileno(), offset)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "some.c").write_text(SOURCE)
    path = folder / "libsome.so"
    # Pages of the file and of memory are the same ones, so that an address of nm's is a place in the file.
    flags = ["-shared", "-fPIC", "-O1", "-fno-inline", "-Wl,-z,norelro", "-Wl,-z,noseparate-code"]
    subprocess.run([str(compiler()), *flags, "-o", str(path), str(folder / "some.c")], check=True)
    said = subprocess.run(["nm", "-S", str(path)], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in said.splitlines()]
    return Library(path, {row[3]: (int(row[0], 16), int(row[1], 16)) for row in rows if len(row) == 4})


def test_every_byte_of_a_function_is_its(library: Library) -> None:
    functions = library.read()
    for name, shown in (
        ("hidden", "hidden"),
        ("shown", "shown"),
        ("__shown", "shown"),
        ("last", "last"),
        ("_ZN2at3addERKNS_6TensorE", "at::add(at::Tensor const&)"),
    ):
        start, size = library.places[name]
        assert {library.name(functions, start + i) for i in range(size)} == {shown}


def test_what_is_in_no_function_has_no_name(library: Library) -> None:
    functions = library.read()
    end = sum(library.places["last"])
    assert library.name(functions, 0) is None
    assert library.name(functions, end + 100_000_000) is None
    assert library.name(functions, library.places["data_is_no_function"][0]) is None


def test_a_stripped_library_knows_what_it_exports(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "libstripped.so"
    subprocess.run(["strip", "-o", str(path), str(library.path)], check=True)
    stripped = Library(path, library.places)
    functions = stripped.read()
    assert stripped.name(functions, library.places["last"][0]) == "last"
    assert stripped.name(functions, library.places["hidden"][0]) is None


def test_the_table_is_read_in_parts(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = library.read()
    monkeypatch.setattr(elf, "_CHUNK", 3)
    parts = library.read()
    for start, size in library.places.values():
        for offset in (start, start + size - 1):
            assert library.name(parts, offset) == library.name(whole, offset)


def test_the_dynamic_linkers_addresses_have_its_names() -> None:
    maps = Path("/proc/self/maps").read_text().splitlines()
    path = Path(next(line.split()[-1] for line in maps if "/libc.so" in line or "/libc-" in line))
    base = ctypes.CDLL(str(path))
    with path.open("rb") as file:
        functions = ElfFunctions(file.fileno())
        for name in ("getpid", "qsort", "nanosleep"):
            address = ctypes.cast(getattr(base, name), ctypes.c_void_p).value
            assert address is not None
            found = functions.name(file.fileno(), address - mapped_at(address))
            assert found is not None
            assert found.lstrip("_").removeprefix("GI_") in (name, f"libc_{name}", "clock_nanosleep")


def mapped_at(address: int) -> int:
    """What to take from an address of this process for its place in the file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, *_ = line.split()
        start, end = (int(one, 16) for one in span.split("-"))
        if start <= address < end:
            return start - int(offset, 16)
    raise AssertionError("not mapped")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    descriptor = os.open(tmp_path_factory.mktemp("damaged") / "lib.so", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_refused_or_read_never_worse(library: Library, damaged: int, data: st.DataObject) -> None:
    whole = bytearray(library.path.read_bytes())
    tables = st.one_of(
        st.integers(0, 63), st.integers(0, len(whole) - 1), st.integers(len(whole) - 2048, len(whole) - 1)
    )
    for place in data.draw(st.lists(tables, max_size=8)):
        whole[place] = data.draw(st.integers(0, 255))
    os.truncate(damaged, 0)
    os.pwrite(damaged, whole[: data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))], 0)
    try:
        functions = ElfFunctions(damaged)
    except ElfError:
        return
    for offset in (0, *(start for start, _ in library.places.values()), len(whole) * 2):
        name = functions.name(damaged, offset)
        assert name is None or isinstance(name, str)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"_ZN3foo3barEv", b"foo::bar()"),
        (b"plain", b"plain"),
        (b"_Znot a name", b"_Znot a name"),
        (b"_Z" + b"N" * 5000, b"_Z" + b"N" * 5000),
        (b"", b""),
    ],
)
def test_names_of_cpp_are_those_of_its_source(name: bytes, shown: bytes) -> None:
    assert demangled(name) == shown


def test_what_the_demangler_hands_out_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    free = elf._free

    def noted(address: int) -> None:
        given_back.append(address)
        free(address)

    monkeypatch.setattr(elf, "_free", noted)
    assert [demangled(name) for name in (b"_Z3foov", b"_Z?", b"plain")] == [b"foo()", b"_Z?", b"plain"]
    assert len(given_back) == 1, "a name that it does not know takes no memory"
